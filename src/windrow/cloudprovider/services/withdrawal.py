"""What is done about a service that shows an address which is reserved for it no longer. Pure.

That takes two: somebody deletes the load balancer on Harvester by hand, and none can take its place, because the pool
is used up or gone, or because the service by now asks for what cannot be. The address may be given to another one at
any time, and then two machines would answer for it. While a new load balancer is only on its way, the address stays:
Harvester gives the same one again.
"""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import Action, ClearStatus, Mark
from windrow.cloudprovider.services.seeing import Seen


def plan_withdrawal(seen: Seen) -> tuple[Action, ...]:
    """Off with the address that we gave it, where Harvester is known to reserve none for it."""
    service, balancer = seen.service, seen.balancer
    reserved = balancer is not None and (bool(balancer.given) or not balancer.refusal)
    if seen.host is not None or reserved or service.sharing or not service.is_protected:
        return ()
    because = "its address is not reserved for it on Harvester any more"
    actions: list[Action] = []
    # The status second: kube-vip takes the address in it for a wish where there is no annotation.
    if service.addresses is not None:
        actions.append(Mark(because, {names.VIP_ADDRESSES: None}))
    if service.ingress:
        actions.append(ClearStatus(because))
    return tuple(actions)
