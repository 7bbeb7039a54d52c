"""The families of a Service's addresses, IPv4 and IPv6, and the LoadBalancer for the second one. Pure.

What this rests on:

* kube-proxy forwards from an address only if its family is among the Service's `ipFamilies`.
* Harvester gives a LoadBalancer one address, from one pool, and chooses pools by scope, never by family. So a Service of
  two families has two LoadBalancers, and its annotation names a pool for each (we have no right to read pools).
* kube-vip 1.2 and later takes everything off the node when the list of addresses changes, and announces the new list only
  after a restart. So the list is written once it is whole, and an announced one does not grow by itself.
* By DHCP kube-vip has IPv4 alone. In every version that the chart had so far it crashes after a lease for `::`, and beside
  any other address it takes `0.0.0.0` off at the next change of the Service.

PreferDualStack goes on with one address, and an event names the other one and why; RequireDualStack waits for both. What
is announced already stays in either case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from windrow.cloudprovider.services import problems
from windrow.cloudprovider.services.actions import (
    Action,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    wait_timed_out,
)
from windrow.cloudprovider.services.readings import LoadBalancer, Service, family_of
from windrow.cloudprovider.services.state import ServiceState
from windrow.cloudprovider.services.updates import plan_update

# What a plan waits for while the address of the second family is to come.
SECOND = "the address of the second family"


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """The `addresses` to be announced now, and the `actions` for the second LoadBalancer.

    `missing` says which address there is not, and why; `is_awaited`: it may come within a minute, and the first one is not
    announced before.
    """

    addresses: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    missing: str = ""
    is_awaited: bool = False


@dataclass(frozen=True, slots=True)
class _Second:
    """The address of the second family: itself, or why it is missing (it `may_come` without a change of anything)."""

    address: str = ""
    missing: str = ""
    may_come: bool = False
    actions: tuple[Action, ...] = ()


def plan_families(state: ServiceState, allocated: tuple[str, ...]) -> FamilyPlan:
    """What to do with the addresses that its own LoadBalancer has, and about those that it lacks."""
    service = state.service
    first = tuple(one for one in allocated if fits(service, one))
    if allocated and not first:
        return FamilyPlan(actions=_release(state), missing=problems.wrong_family(service, allocated))
    if len(service.families) < 2 or {family_of(one) for one in first} >= set(service.families):
        return FamilyPlan(first, _release(state))
    if not first:
        return FamilyPlan()
    second = _observe_second(state, first)
    actions = second.actions if state.host is None else ()
    is_announced = bool(service.vip_keys and set(first) & service.assigned)
    if second.address and (second.address in service.assigned or not is_announced):
        return FamilyPlan(_in_order(service, (*first, second.address)), actions)
    if second.address:
        return FamilyPlan(first, actions, problems.not_added(service, second.address))
    if kept := _kept(state, first):
        return FamilyPlan(_in_order(service, (*first, *kept)), actions)
    is_shown = bool(set(first) & service.shown)
    if not is_shown and service.requires_both:
        return FamilyPlan((), actions, second.missing, second.may_come)
    if not is_shown and second.may_come and not wait_timed_out(state, SECOND):
        return FamilyPlan((), actions, second.missing, is_awaited=True)
    return FamilyPlan(first, actions, second.missing)


def _observe_second(state: ServiceState, first: tuple[str, ...]) -> _Second:
    service, balancer = state.service, state.second
    if service.uses_dhcp:
        return _Second(missing=problems.dhcp_has_one_family(service), actions=_release(state))
    if not service.second_pool:
        return _Second(missing=problems.one_pool_for_two(service, first), actions=_release(state))
    waits = problems.second_is_awaited(service)
    if balancer is None:
        name = state.settings.second_name_for(service)
        create = CreateLoadBalancer(name, "it has an address of one of its two families", is_second=True)
        # Orphans first: the pool may have only one address.
        return _Second(missing=waits, may_come=True, actions=() if state.orphans else (create,))
    if not state.owns_second:
        return _Second(missing=problems.other_owner(state, balancer))
    if balancer.is_deleting:
        return _Second(missing=waits, may_come=True)
    update = plan_update(state, balancer, service.second_pool)
    actions = (update,) if update is not None else ()
    asked = balancer if update is None or update.pool is None else replace(balancer, pool=update.pool)
    if asked.changes_pool:
        return _Second(missing=waits, may_come=True, actions=actions)
    if balancer.allocated:
        address = balancer.allocated[0]
        if family_of(address) in {family_of(one) for one in first}:
            return _Second(missing=problems.same_family_twice(service, (*first, address)), actions=actions)
        return _Second(address, actions=actions)
    if not balancer.refusal or asked.is_refusal_outdated or balancer.is_reallocating:
        return _Second(missing=waits, may_come=True, actions=actions)
    why = problems.explain_refusal(service, balancer, service.second_pool)
    return _Second(missing=problems.second_is_refused(service, why), actions=actions)


def fits(service: Service, address: str) -> bool:
    """Whether kube-proxy forwards from it. What the service shows already stays, and one without families may be older."""
    return not service.families or family_of(address) in service.families or address in service.assigned


def _kept(state: ServiceState, first: tuple[str, ...]) -> tuple[str, ...]:
    """The address that it shows while the LoadBalancer for it is being created again: Harvester allocates the same one."""
    service, balancer = state.service, state.second
    is_coming = (
        balancer is None
        or (balancer.is_deleting and not balancer.has_released_address)
        or (not balancer.allocated and (not balancer.refusal or balancer.is_reallocating))
    )
    if not is_coming or service.primary_label or not service.second_pool or service.uses_dhcp:
        return ()
    known = {family_of(one) for one in first}
    return tuple(sorted(one for one in service.assigned if family_of(one) not in known))


def _in_order(service: Service, addresses: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(addresses, key=lambda one: family_of(one) != service.families[0]))


def _release(state: ServiceState) -> tuple[Action, ...]:
    """The deletion of a second LoadBalancer that is asked for no more, once kube-vip does not announce its address."""
    balancer = state.second
    if balancer is None or not state.owns_second or balancer.is_deleting or state.host is not None:
        return ()
    if set(balancer.reserved) & state.service.shown:
        return ()
    return (DeleteLoadBalancer(balancer, "the service asks for no address of a second family"),)


def own_load_balancers(state: ServiceState) -> tuple[LoadBalancer, ...]:
    """Those of this service: the one with its name, and the one for its second family."""
    own = state.load_balancer if state.owns_load_balancer else None
    second = state.second if state.owns_second else None
    return tuple(one for one in (own, second) if one is not None)
