"""The plan for a service that has, or is, no load balancer of ours any more. Pure."""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services import messages
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    GRACE,
    NO_ACTION,
    Action,
    ClearStatus,
    DeleteLoadBalancer,
    PatchService,
    Plan,
    RemoveFinalizer,
    host_unavailable,
    waiting,
)
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState


def plan_removal(state: ServiceState, policy: ClusterSettings) -> Plan:
    """What it has on Harvester goes, then our traces on the service, and last the finalizer."""
    service = state.service
    if state.users:
        users = " ".join(one.title for one in state.users)
        problem = (
            f"failed to delete load balancer: could not delete load balancer for service {service.title}: "
            f"service {service.title} is still used by other services [{users}]; delete these, or remove their "
            f"annotation {names.PRIMARY_SERVICE}, first"
        )
        return waiting(state, "users", problem, timeout=GRACE)
    if state.host is not None:
        return host_unavailable(state.host, "delete")
    stays = not service.is_deleting and not state.is_gone
    has_other_finalizer = _has_other_finalizer(service) and not state.is_gone
    annotations = _own_annotations(service) if stays or has_other_finalizer else {}
    labels: dict[str, str | None] = (
        {names.PRIMARY_SERVICE: None}
        if (stays or has_other_finalizer) and service.primary_label is not None
        else {}
    )
    actions: list[Action] = []
    own = state.load_balancer if policy.owns(state.load_balancer, service) else None
    to_delete = [*([own] if own else []), *state.orphans]
    leaves_finalizer = stays and bool(service.load_balancer_class)
    if to_delete:
        if annotations or labels:
            # First the address off the network, then back into the pool.
            actions.append(PatchService("it is no load balancer of ours any more", annotations, labels))
        if has_other_finalizer and service.ingress:
            actions.append(
                ClearStatus("it is being deleted, and kube-vip announces it as long as it is there")
            )
        because = "it is being deleted" if not stays else "it is no load balancer of ours any more"
        actions += [DeleteLoadBalancer(one, because) for one in to_delete if not one.is_deleting]
        if own is not None and not own.is_deleting:
            actions.append(DELETING)  # after the order, so that one that fails is not told at each try
        return waiting(state, "removal", messages.deletion_timeout(to_delete[0]), tuple(actions))
    if leaves_finalizer:
        return Plan(
            (PatchService("it is no load balancer of ours any more", annotations, labels),)
            if annotations or labels
            else ()
        )
    if not service.has_finalizer:
        return NO_ACTION
    if (stays or has_other_finalizer) and service.ingress:
        actions.append(ClearStatus("it is no load balancer any more"))
    # A secondary is asked about, too: it may have had one before it was one, and its label proves nothing.
    actions.append(
        RemoveFinalizer("nothing is left of it on Harvester", policy.name_for(service), annotations, labels)
    )
    actions.append(DELETED)
    return Plan(tuple(actions))


def _has_other_finalizer(service: Service) -> bool:
    """Whether somebody else's finalizer keeps it after ours has gone. Then it would show an address that is free."""
    return service.is_deleting and any(one != names.FINALIZER for one in service.finalizers)


def _own_annotations(service: Service) -> dict[str, str | None]:
    """What we and kube-vip wrote. With a class kube-vip may still be in charge, and keeps its own."""
    found: dict[str, str | None] = {}
    if service.addresses is not None:
        found[names.VIP_ADDRESSES] = None
    if service.interface is not None:
        found[names.VIP_INTERFACE] = None
    if not service.load_balancer_class:
        found.update(dict.fromkeys(service.vip_keys))
    return found
