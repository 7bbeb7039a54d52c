"""What is done about a service that shows an address which is reserved for it no longer. Pure.

Somebody deletes the load balancer on Harvester by hand and none can take its place, or the pool is changed while the
service by now asks for what cannot be, or a secondary has lost its primary's address. Such an address may be given to
another one at any time, and then two machines would answer for it. While a new load balancer is only on its way, the
address stays: Harvester gives the same one again.
"""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import Action, ClearStatus, ConfirmDeleted, PatchService
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.sharing import primary_of
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState


def plan_withdrawal(state: ServiceState, policy: ClusterSettings) -> tuple[Action, ...]:
    """Off with an address that is known to be reserved for it no more; on with the one that is, also where another was
    taken away from it."""
    service, balancer = state.service, state.load_balancer
    if not service.has_finalizer:
        return ()
    if service.primary_label:
        return _follow_holder(state)
    if state.host is not None:
        return ()
    if balancer is None:
        off = withdraw(service, "its load balancer is gone")
        return (ConfirmDeleted(policy.name_for(service)), *off) if off else ()
    if not policy.owns(balancer, service):
        return ()
    if balancer.has_released_address or balancer.changes_pool:
        return withdraw(service, "Harvester takes its address back")
    if not balancer.allocated:
        is_lost = balancer.refusal and not balancer.is_reallocating
        return withdraw(service, "Harvester refuses it an address") if is_lost else ()
    wanted = ",".join(balancer.allocated)
    if service.addresses == wanted or balancer.is_deleting:
        return ()
    return (PatchService("Harvester holds this address for it", {names.VIP_ADDRESSES: wanted}),)


def _follow_holder(state: ServiceState) -> tuple[Action, ...]:
    """One that shows somebody else's address shows what that one has now, whatever it wishes itself."""
    service, holder = state.service, state.holder
    if holder is None:
        return ()
    is_refused = (
        state.load_balancer is not None
        and not state.load_balancer.allocated
        and bool(state.load_balancer.refusal)
    )
    if holder.is_deleting and is_refused and not service.primary:
        # Each would wait for the other: the only free address may be the one that the holder cannot give back.
        return withdraw(
            service, f"{holder.title} is to go, and may leave its address to it", leave_shared=True
        )
    wanted = ",".join(holder.ingress)
    # The label alone gives nobody an address: anyone may write it.
    shares = service.addresses is not None or primary_of(service) == (holder.namespace, holder.name)
    if wanted and shares and service.addresses != wanted:
        return (PatchService(f"it shows the address of {holder.title}", {names.VIP_ADDRESSES: wanted}),)
    if not wanted and not state.is_reserved:
        return withdraw(service, f"{holder.title} has no address any more")
    return ()


def withdraw(service: Service, because: str, *, leave_shared: bool = False) -> tuple[Action, ...]:
    """Off the network with what it shows, and out of the shared address if it `leaves` that."""
    if service.addresses is None and not leave_shared:
        return ()  # done already; what kube-vip may write after that is not fought over
    labels: dict[str, str | None] = {names.PRIMARY_SERVICE: None} if leave_shared else {}
    # The annotation last, for it tells that this is to be done. Without it kube-vip takes the status for a wish.
    clear = (ClearStatus(because),) if service.ingress else ()
    return (*clear, PatchService(because, {names.VIP_ADDRESSES: None}, labels))
