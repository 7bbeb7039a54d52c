"""Services that share an address: primaries, secondaries, and their ports. Pure.

A service with the annotation `primary-service` is a secondary: it has no load balancer of its own and shows the
primary's address. Once it does, it has a label that says so. The label tells who uses an address; the annotation
only tells who wants to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass

from windrow.cloudprovider import names
from windrow.cloudprovider.names import sharing_label
from windrow.cloudprovider.services.readings import Service


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """It has an address of its own."""


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """It has the address of `primary`."""

    primary: Service


@dataclass(frozen=True, slots=True)
class CannotShare:
    """It wants to, and cannot: why, with a hint."""

    why: str
    is_transient: bool = False  # the primary comes or goes just now, and the secondary may with it


# What stands for an address that is still to come.
_PLACEHOLDERS = names.DHCP_PLACEHOLDERS | {""}
Sharing = OwnAddress | SharedAddress | CannotShare
Find = Callable[[str, str], Service | None]
# The titles of load balancer services that have this name, in whatever namespace.
FindSameName = Callable[[str], Sequence[str]]


def primary_of(service: Service) -> tuple[str, str] | None:
    """Namespace and name of the primary in its annotation; None where the annotation is missing or invalid."""
    namespace, slash, name = service.primary.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        return None
    return (namespace, name) if slash else (service.namespace, name)


def find_sharing(service: Service, find: Find, same_name: FindSameName = lambda name: ()) -> Sharing:
    """How the annotation applies in this cluster."""
    if not service.primary:
        return OwnAddress()

    def refuse(problem: str, *, or_else: str = "", is_transient: bool = False) -> CannotShare:
        hint = f"correct the annotation {names.PRIMARY_SERVICE}, or remove it to get an address of its own"
        return CannotShare(f"{problem}; {or_else}{hint}", is_transient)

    named = primary_of(service)
    if named is None:
        return refuse(
            f"invalid service name {service.primary}: write the primary service as NAMESPACE/NAME, or as NAME if it "
            f"is in namespace {service.namespace}"
        )
    title = "/".join(named)
    if named == (service.namespace, service.name):
        return refuse(f"service {title} names itself as its primary service")
    primary = find(*named)
    if primary is None:
        others = ", ".join(one for one in same_name(named[1]) if one not in (service.title, title))
        hint = f", but {others} does" if others else ""
        return refuse(
            f"primary service {title} does not exist{hint}", or_else="create it, or ", is_transient=True
        )
    if primary.is_deleting:
        return refuse(f"primary service {title} is being deleted", is_transient=True)
    if not primary.is_load_balancer:
        return refuse(f"primary service {title} is not of type LoadBalancer")
    if primary.load_balancer_class:
        return refuse(
            f"primary service {title} has loadBalancerClass {primary.load_balancer_class!r}, so its address is not ours "
            "to share"
        )
    if primary.primary:
        return refuse(
            f"service {title} is not a primary service: it shares the address of {primary.primary}; name that one"
        )
    return SharedAddress(primary)


def find_port_conflict(service: Service, primary: Service, sharers: Iterable[Service]) -> str:
    """The port that another service has at the shared address, with a hint; "" when there is none.

    Services that have the address come before those that want it; the latter in the order of their creation, so that of
    two that are created at once only one gets the port.
    """
    for other in (primary, *sorted(sharers, key=_rank)):
        if other.uid == service.uid or (other is not primary and not _precedes(other, service, primary)):
            continue
        taken = sorted(set(service.ports) & set(other.ports))
        if taken:
            protocol, number = taken[0]
            # The owner of this service may not be allowed to know of services in other namespaces.
            is_known = other is primary or other.namespace == service.namespace
            user = (
                f"service {other.title}"
                if is_known
                else "a service of another namespace that shares the address"
            )
            return (
                f"check port overlap failed, primary service: {primary.title}, secondary service: {service.title}, "
                f"error: port {number} ({protocol}) has been used in {user}; give one of them another "
                f"port, or remove the annotation {names.PRIMARY_SERVICE} to get an address of its own"
            )
    return ""


def _precedes(other: Service, service: Service, primary: Service) -> bool:
    if other.is_deleting or not other.wants_load_balancer:
        return False
    label = sharing_label(primary.namespace, primary.name)
    has, we_have = other.primary_label == label, service.primary_label == label
    if has != we_have:
        return has
    return _rank(other) < _rank(service)


def _rank(service: Service) -> tuple[str, str, str]:
    return (service.created, service.namespace, service.name)


def users_of(primary: Service, sharers: Iterable[Service], held: Collection[str] = ()) -> tuple[Service, ...]:
    """The services that show the primary's address now, one of its own or one of `held`: it must not be released before
    they have another. Neither a label alone nor one with another address counts, because any user may write them. A
    service that names the primary in its annotation may lag behind a change of its address."""
    label = sharing_label(primary.namespace, primary.name)
    addresses = {*primary.shown, *held} - _PLACEHOLDERS
    users = (
        one
        for one in sharers
        if one.primary_label == label
        and one.uid != primary.uid
        and _shows(one, primary, addresses)
        and (one.has_finalizer or (one.is_load_balancer and not one.is_deleting))
    )
    return tuple(sorted(users, key=lambda one: one.title))


def _shows(one: Service, primary: Service, addresses: Set[str]) -> bool:
    if primary_of(one) == (primary.namespace, primary.name):
        return bool(one.shown)
    return bool(one.shown & addresses)


def sharing_groups(service: Service) -> list[str]:
    """The shared addresses that a service has or wants, by label value."""
    named = primary_of(service) if service.primary else None
    return [*filter(None, [service.primary_label]), *([sharing_label(*named)] if named is not None else [])]
