"""The plan for one Service: a list of actions. Pure: the same state, the same plan.

    wants an address of its own      finalizer -> LoadBalancer on Harvester -> its address on the service
    shares a primary's address       finalizer and the primary's address, then its own LoadBalancer is deleted
    wants none any more, or is deleted   LoadBalancer deleted -> gone -> finalizer removed

A plan holds what can be done now; the next one is made after a change. What the service cannot have as it is specified
is a `problem`: then neither the service nor its objects on Harvester are changed, except that an address which is not
reserved any more is removed (`plan_withdrawal`).

A LoadBalancer that exists is never created again: one without an address is waited for. Harvester tries to allocate an
address again by itself, at least every two minutes, so a pool that is widened needs no request from us (and we have no
right to read pools).
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
    """The plan for the service now."""
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
        # Orphans of earlier services are deleted whatever the problem of this one is.
        going = [one.balancer for one in plan.actions if isinstance(one, DeleteLoadBalancer)]
        more = tuple(one for one in delete_orphans(state) if one.balancer not in going)
        return replace(plan, actions=(*_ensure_finalizer(state, plan, settings), *plan.actions, *more))
    return plan


def _ensure_finalizer(state: ServiceState, plan: Plan, settings: ClusterSettings) -> tuple[PatchService, ...]:
    """The finalizer, whatever its problem: a service with a LoadBalancer must not be deleted before that."""
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
    """Whether its LoadBalancers are to be deleted, and our annotations on the service removed."""
    service = state.service
    has_any = settings.owns(state.load_balancer, service) or bool(state.orphans)
    if state.is_gone:
        return has_any
    if service.is_deleting or not service.is_load_balancer:
        return service.has_finalizer or has_any
    # With a class it belongs to another controller, which uses the same finalizer.
    return bool(service.load_balancer_class) and (has_any or bool(service.primary_label))


NAMESPACE = "the namespace to be verified"


def apply_namespace_gate(
    state: ServiceState, plan: Plan, find_problem: Callable[[], Unavailable | None]
) -> Plan:
    """The plan, or the problem of the namespace in its place.

    A service that has its LoadBalancer in this namespace is planned for in any case. One that has none may have it in
    another namespace: it gets no second one, keeps its address, and keeps its finalizer.
    """
    if state.load_balancer is not None or all(isinstance(one, EmitEvent) for one in plan.actions):
        return plan
    unavailable = find_problem()
    if unavailable is None:
        return plan
    problem = f"its load balancer is left as it is: {unavailable.problem}" if unavailable.problem else ""
    return Plan(problem=problem, waits_for=NAMESPACE, until=unavailable.until)
