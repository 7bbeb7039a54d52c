"""Load balancers of services that had this one's name before: they are given back before, or whatever, it gets. Pure."""

from __future__ import annotations

from windrow.cloudprovider.services.actions import DeleteLoadBalancer
from windrow.cloudprovider.services.load_balancers import LoadBalancer
from windrow.cloudprovider.services.state import ServiceState


def deletable_orphans(state: ServiceState) -> tuple[LoadBalancer, ...]:
    """Those that may go. One whose address secondaries still show stays until they have the new one, unless there is
    no new one while it stays."""
    if state.load_balancer is not None and state.load_balancer.refusal:
        return state.orphans
    shown = {address for one in state.users for address in one.assigned}
    return tuple(one for one in state.orphans if one.is_deleting or not shown & set(one.allocated))


def delete_orphans(state: ServiceState) -> tuple[DeleteLoadBalancer, ...]:
    if state.host is not None:
        return ()
    return tuple(
        DeleteLoadBalancer(one, because="it is of an earlier service of this name, with another UID")
        for one in deletable_orphans(state)
        if not one.is_deleting
    )
