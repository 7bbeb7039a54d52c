"""What is done about a service that shows an address which is reserved for it no longer. Pure.

Somebody deletes the load balancer on Harvester by hand and none can take its place, or the pool is changed while the
service by now asks for what cannot be, or a secondary has lost its primary's address. Such an address may be given to
another one at any time, and then two machines would answer for it. While a new load balancer is only on its way, the
address stays: Harvester gives the same one again.
"""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import Action, ClearStatus, Confirm, Mark
from windrow.cloudprovider.services.seeing import Policy, Seen
from windrow.cloudprovider.services.service_readings import Service
from windrow.cloudprovider.services.sharing import primary_of


def plan_withdrawal(seen: Seen, policy: Policy) -> tuple[Action, ...]:
    """Off with an address that is known to be reserved for it no more; on with the one that is, also where another was
    taken away from it."""
    service, balancer = seen.service, seen.balancer
    if not service.is_protected:
        return ()
    if service.primary_label:
        return _follow(seen)
    if seen.host is not None:
        return ()
    if balancer is None:
        off = withdraw(service, "its load balancer is gone")
        return (Confirm(policy.name_for(service)), *off) if off else ()
    if not policy.owns(balancer, service):
        return ()
    if balancer.has_released or balancer.moves:
        return withdraw(service, "Harvester takes its address back")
    if not balancer.given:
        is_lost = balancer.refusal and not balancer.is_being_healed
        return withdraw(service, "Harvester refuses it an address") if is_lost else ()
    wanted = ",".join(balancer.given)
    if service.addresses == wanted or balancer.is_deleting:
        return ()
    return (Mark("Harvester holds this address for it", {names.VIP_ADDRESSES: wanted}),)


def _follow(seen: Seen) -> tuple[Action, ...]:
    """One that shows somebody else's address shows what that one has now, whatever it wishes itself."""
    service, holder = seen.service, seen.holder
    if holder is None:
        return ()
    is_refused = seen.balancer is not None and not seen.balancer.given and bool(seen.balancer.refusal)
    if holder.is_deleting and is_refused and not service.primary:
        # Each would wait for the other: the only free address may be the one that the holder cannot give back.
        return withdraw(service, f"{holder.title} is to go, and may leave its address to it", leaves=True)
    wanted = ",".join(holder.ingress)
    # The label alone gives nobody an address: anyone may write it.
    shares = service.addresses is not None or primary_of(service) == (holder.namespace, holder.name)
    if wanted and shares and service.addresses != wanted:
        return (Mark(f"it shows the address of {holder.title}", {names.VIP_ADDRESSES: wanted}),)
    if not wanted and not seen.is_held:
        return withdraw(service, f"{holder.title} has no address any more")
    return ()


def withdraw(service: Service, because: str, *, leaves: bool = False) -> tuple[Action, ...]:
    """Off the network with what it shows, and out of the shared address if it `leaves` that."""
    if service.addresses is None and not leaves:
        return ()  # done already; what kube-vip may write after that is not fought over
    labels: dict[str, str | None] = {names.PRIMARY_SERVICE: None} if leaves else {}
    # The annotation last, for it tells that this is to be done. Without it kube-vip takes the status for a wish.
    clear = (ClearStatus(because),) if service.ingress else ()
    return (*clear, Mark(because, {names.VIP_ADDRESSES: None}, labels))
