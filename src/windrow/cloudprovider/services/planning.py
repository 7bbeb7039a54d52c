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
"""

from __future__ import annotations

from dataclasses import replace

from windrow.cloudprovider.services.actions import (
    GRACE,
    NOTHING,
    Mark,
    Plan,
    Release,
    cannot_ensure,
    refused,
    waiting,
)
from windrow.cloudprovider.services.own_address import plan_own_address
from windrow.cloudprovider.services.removal import plan_removal
from windrow.cloudprovider.services.seeing import Policy, Seen
from windrow.cloudprovider.services.shared_address import plan_shared_address
from windrow.cloudprovider.services.sharing import CannotShare, Shares
from windrow.cloudprovider.services.strays import release_strays
from windrow.cloudprovider.services.withdrawal import plan_withdrawal


def plan_service(seen: Seen, policy: Policy) -> Plan:
    """What is to be done for the service now."""
    if must_go(seen, policy):
        return plan_removal(seen, policy)
    service = seen.service
    if not service.wants_balancer or service.is_deleting or seen.is_over:
        return NOTHING
    if not policy.cluster:
        return refused(
            "the cluster name is empty, so load balancers of clusters in one Harvester namespace would take each "
            "other's names; set --cluster-name (chart value global.cattle.clusterName) to the guest cluster's name"
        )
    plan = _plan_address(seen, policy)
    if plan.problem:
        # What a service before it left behind is no part of its own trouble.
        going = [one.balancer for one in plan.actions if isinstance(one, Release)]
        more = tuple(one for one in release_strays(seen) if one.balancer not in going)
        return replace(plan, actions=(*_protection(seen, plan, policy), *plan.actions, *more))
    return plan


def _protection(seen: Seen, plan: Plan, policy: Policy) -> tuple[Mark, ...]:
    """Whatever is wrong with it: while it has something on Harvester, it stays until that is gone."""
    is_bare = policy.owns(seen.balancer, seen.service) and not seen.service.is_protected
    if not is_bare or any(isinstance(one, Mark) for one in plan.actions):
        return ()
    return (Mark("it has a load balancer on Harvester", protects=True),)


def _plan_address(seen: Seen, policy: Policy) -> Plan:
    match seen.sharing:
        case CannotShare(why=why, may_pass=True):
            return waiting(seen, "a primary", cannot_ensure(why), plan_withdrawal(seen, policy), GRACE)
        case CannotShare(why=why):
            return replace(refused(why), actions=plan_withdrawal(seen, policy))
        case Shares(primary=primary):
            return plan_shared_address(seen, primary, policy)
        case _:
            return plan_own_address(seen, policy)


def must_go(seen: Seen, policy: Policy) -> bool:
    """Whether what the service has on Harvester is to be removed, and our traces on the service with it."""
    service = seen.service
    has_any = policy.owns(seen.balancer, service) or bool(seen.strays)
    if seen.is_over:
        return has_any
    if service.is_deleting or not service.is_balanced:
        return service.is_protected or has_any
    # With a class it is another controller's, which uses the same finalizer.
    return bool(service.balancer_class) and (has_any or bool(service.primary_label))
