"""What is to be done for one service, as a list of values. Pure: the same seen, the same plan.

    wants an address of its own      finalizer -> LoadBalancer on Harvester -> its address to the service
    shares a primary's address       finalizer and the primary's address, then away with its own LoadBalancer
    wants none any more, or ends     LoadBalancer away -> and gone -> finalizer away

A plan holds what can be done now; the next one is made when something has changed. What the service cannot have as
it stands is a `problem`: then nothing is touched, neither the service nor what it has on Harvester; but for an address
that is not reserved any more (`withdrawal`).

Existence is the object's existence: a LoadBalancer without an address is waited for, never made anew. Harvester looks
for a free address again by itself, at most every two minutes, so a full pool that is widened needs no push from us
(and we have no right to see pools).

What is not done for a service while it is not known whether this namespace on Harvester is ours. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from windrow.cloudprovider.services.actions import (
    GRACE,
    NO_ACTION,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    Plan,
    ensure_failed,
    refused,
    waiting,
)
from windrow.cloudprovider.services.own_address import plan_own_address
from windrow.cloudprovider.services.removal import delete_orphans, plan_removal, plan_withdrawal
from windrow.cloudprovider.services.shared_address import plan_shared_address
from windrow.cloudprovider.services.sharing import CannotShare, SharedAddress
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState, Unavailable


def plan_service(state: ServiceState, settings: ClusterSettings) -> Plan:
    """What is to be done for the service now."""
    if needs_removal(state, settings):
        return plan_removal(state, settings)
    service = state.service
    if not service.wants_load_balancer or service.is_deleting or state.is_gone:
        return NO_ACTION
    if not settings.cluster:
        return refused(
            "the cluster name is empty, so load balancers of clusters in one Harvester namespace would take each "
            "other's names; set --cluster-name (chart value global.cattle.clusterName) to the guest cluster's name"
        )
    plan = _plan_address(state, settings)
    if plan.problem:
        # What a service before it left behind is no part of its own trouble.
        going = [one.balancer for one in plan.actions if isinstance(one, DeleteLoadBalancer)]
        more = tuple(one for one in delete_orphans(state) if one.balancer not in going)
        return replace(plan, actions=(*_ensure_finalizer(state, plan, settings), *plan.actions, *more))
    return plan


def _ensure_finalizer(state: ServiceState, plan: Plan, settings: ClusterSettings) -> tuple[PatchService, ...]:
    """Whatever is wrong with it: while it has something on Harvester, it stays until that is gone."""
    is_bare = settings.owns(state.load_balancer, state.service) and not state.service.has_finalizer
    if not is_bare or any(isinstance(one, PatchService) for one in plan.actions):
        return ()
    return (PatchService("it has a load balancer on Harvester", add_finalizer=True),)


def _plan_address(state: ServiceState, settings: ClusterSettings) -> Plan:
    match state.sharing:
        case CannotShare(why=why, is_transient=True):
            return waiting(state, "a primary", ensure_failed(why), plan_withdrawal(state, settings), GRACE)
        case CannotShare(why=why):
            return replace(refused(why), actions=plan_withdrawal(state, settings))
        case SharedAddress(primary=primary):
            return plan_shared_address(state, primary, settings)
        case _:
            return plan_own_address(state, settings)


def needs_removal(state: ServiceState, settings: ClusterSettings) -> bool:
    """Whether what the service has on Harvester is to be removed, and our traces on the service with it."""
    service = state.service
    has_any = settings.owns(state.load_balancer, service) or bool(state.orphans)
    if state.is_gone:
        return has_any
    if service.is_deleting or not service.is_load_balancer:
        return service.has_finalizer or has_any
    # With a class it is another controller's, which uses the same finalizer.
    return bool(service.load_balancer_class) and (has_any or bool(service.primary_label))


NAMESPACE = "the namespace of our VMs"


def apply_namespace_gate(
    state: ServiceState, plan: Plan, find_problem: Callable[[], Unavailable | None]
) -> Plan:
    """The plan, or the doubt in its place.

    A service that has its load balancer here proves more than any doubt. One that has none here may have it elsewhere:
    it is not given another one, nor loses its address, nor goes for good.
    """
    if state.load_balancer is not None or all(isinstance(one, EmitEvent) for one in plan.actions):
        return plan
    unavailable = find_problem()
    if unavailable is None:
        return plan
    problem = f"nothing is done about its load balancer: {unavailable.problem}" if unavailable.problem else ""
    return Plan(problem=problem, waits_for=NAMESPACE, until=unavailable.until)
