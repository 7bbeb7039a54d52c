"""What a LoadBalancer on Harvester is updated to. Pure."""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import UpdateLoadBalancer
from windrow.cloudprovider.services.readings import LoadBalancer, Service
from windrow.cloudprovider.services.state import ServiceState


def plan_update(state: ServiceState, balancer: LoadBalancer, pool: str) -> UpdateLoadBalancer | None:
    """The update that makes it what the service asks for, from `pool` ("" for any); None where it is that."""
    service, settings = state.service, state.settings
    annotations: dict[str, str | None] = {}
    current = balancer.annotations
    if current.get(names.LB_CLUSTER) != settings.cluster:
        annotations[names.LB_CLUSTER] = settings.cluster
    if current.get(names.MANAGEMENT_NETWORK, "") != settings.management_network:
        annotations[names.MANAGEMENT_NETWORK] = settings.management_network or None
    if service.network and names.FIXED_NETWORK not in current:
        annotations[names.FIXED_NETWORK] = service.network
    other = _other_pool(service, balancer, pool)
    in_use = _address_in_use(service, balancer)
    address = in_use if in_use and in_use != balancer.address else None
    if not annotations and other is None and address is None:
        return None
    reasons = [f"annotation {key} differs" for key in annotations]
    if other is not None:
        reasons.append(f"the service asks for {f'pool {other}' if other else 'no pool any more'}")
    if address:
        reasons.append(f"{address} is in use")
    return UpdateLoadBalancer(balancer, "; ".join(reasons), annotations, other, address)


def _other_pool(service: Service, balancer: LoadBalancer, pool: str) -> str | None:
    """The pool to request instead; "" for any. An address that is allocated stays when the annotation is removed, and
    so does a pool that an administrator chose and Harvester has not refused."""
    if service.uses_dhcp or pool == balancer.pool:
        return None
    gives_up = not balancer.allocated and balancer.refusing_pool == balancer.pool
    return pool if pool or gives_up else None


def _address_in_use(service: Service, balancer: LoadBalancer) -> str:
    """The first of its addresses that kube-vip announces; "" while there is none, or another one still."""
    if balancer.mode == "dhcp":
        return service.ingress[0] if service.ingress and not service.primary_label else ""
    return next((one for one in service.ingress if one in balancer.allocated), "")
