"""The plan for a service that shares the address of another. Pure."""

from __future__ import annotations

from dataclasses import replace

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    PATIENCE,
    Action,
    Mark,
    Plan,
    Release,
    Tell,
    cannot_ensure,
    refused,
    waiting,
)
from windrow.cloudprovider.services.announcement import plan_announcement
from windrow.cloudprovider.services.balancer_names import sharing_label
from windrow.cloudprovider.services.seeing import Policy, Seen
from windrow.cloudprovider.services.service_readings import Service
from windrow.cloudprovider.services.sharing import find_collision
from windrow.cloudprovider.services.withdrawal import plan_withdrawal


def plan_shared_address(seen: Seen, primary: Service, policy: Policy) -> Plan:
    """The primary's address to the service, and then away with what it had of its own."""
    service = seen.service
    if fault := _find_sharing_fault(seen, primary):
        return replace(refused(fault), actions=plan_withdrawal(seen, policy))
    actions: list[Action] = []
    addresses = primary.ingress
    if addresses:
        mark = _mark_for_shared(service, primary)
        if mark is not None:
            if not service.is_protected:
                actions.append(ENSURING)
            actions.append(mark)
            if names.VIP_ADDRESSES in mark.annotations:
                actions.append(ENSURED)
            if names.IPAM in mark.annotations:
                actions.append(_mode_taken_away(service, primary))
        if seen.host is None:
            actions.extend(_release_own(seen, primary, policy))
    elif not service.primary_label:
        complaint = cannot_ensure(
            f"primary service {primary.title} has no ingress IP after "
            f"{PATIENCE.seconds} s; its own events say why"
        )
        return waiting(seen, "primary", complaint)
    if not addresses:
        return Plan(plan_withdrawal(seen, policy), waits_for="primary")
    return plan_announcement(seen, addresses, tuple(actions))


def _find_sharing_fault(seen: Seen, primary: Service) -> str:
    service = seen.service
    if seen.users:
        users = " ".join(one.title for one in seen.users)
        return (
            f"service {service.title} cannot share the address of {primary.title}, because services [{users}] share "
            f"its own; let them name {primary.title} first"
        )
    # On one that shares already, it is the copy of the primary's that we wrote, and no wish of the user's.
    shares = service.primary_label == sharing_label(primary.namespace, primary.name)
    if not shares and service.network and service.network != seen.primary_network:
        return (
            f"network annotation of service {service.title} ({service.network}) is not same as that of its primary "
            f"service {primary.title} ({seen.primary_network or 'none'}); remove {names.NETWORK} from the secondary"
        )
    return find_collision(service, primary, seen.sharers)


def _mark_for_shared(service: Service, primary: Service) -> Mark | None:
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    wanted, label = ",".join(primary.ingress), sharing_label(primary.namespace, primary.name)
    if service.addresses != wanted:
        annotations[names.VIP_ADDRESSES] = wanted
    if primary.network and service.network != primary.network:
        annotations[names.NETWORK] = primary.network
    if service.interface is not None:
        annotations[names.VIP_INTERFACE] = None
    if service.has_ipam:
        annotations[names.IPAM] = None
    if service.primary_label != label:
        labels[names.PRIMARY_SERVICE] = label
    if not annotations and not labels and service.is_protected:
        return None
    because = f"it shares the address of {primary.title}"
    return Mark(because, annotations, labels, protects=not service.is_protected)


def _mode_taken_away(service: Service, primary: Service) -> Tell:
    return Tell(
        "IgnoredAnnotations",
        f"Removed the annotation {names.IPAM} ({service.ipam!r}): the address is that of {primary.title}, in its mode",
    )


def _release_own(seen: Seen, primary: Service, policy: Policy) -> list[Action]:
    """Not before kube-vip announces the primary's address: until then its own one is in use."""
    service = seen.service
    doomed = [*seen.strays]
    if seen.balancer is not None and policy.owns(seen.balancer, service):
        doomed.append(seen.balancer)
    in_use = set(service.ingress) - set(primary.ingress)
    return [
        Release(one, because=f"it shares the address of {primary.title}")
        for one in doomed
        if not one.is_deleting and not in_use & {*one.given, one.address}
    ]
