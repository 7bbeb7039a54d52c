"""The plan for a service that has, or is, no load balancer of ours any more. Pure."""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services import words
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    GRACE,
    NOTHING,
    Action,
    ClearStatus,
    LetGo,
    Mark,
    Plan,
    Release,
    waiting,
    without_host,
)
from windrow.cloudprovider.services.seeing import Policy, Seen
from windrow.cloudprovider.services.service_readings import Service


def plan_removal(seen: Seen, policy: Policy) -> Plan:
    """What it has on Harvester goes, then our traces on the service, and last the finalizer."""
    service = seen.service
    if seen.users:
        users = " ".join(one.title for one in seen.users)
        complaint = (
            f"failed to delete load balancer: could not delete load balancer for service {service.title}: "
            f"service {service.title} is still used by other services [{users}]; delete these, or remove their "
            f"annotation {names.PRIMARY_SERVICE}, first"
        )
        return waiting(seen, "users", complaint, patience=GRACE)
    if seen.host is not None:
        return without_host(seen.host, "delete")
    stays = not service.is_deleting and not seen.is_over
    lingers = _lingers(service) and not seen.is_over
    traces = _traces(service) if stays or lingers else {}
    labels: dict[str, str | None] = (
        {names.PRIMARY_SERVICE: None} if (stays or lingers) and service.primary_label is not None else {}
    )
    actions: list[Action] = []
    own = seen.balancer if policy.owns(seen.balancer, service) else None
    doomed = [*([own] if own else []), *seen.strays]
    leaves_finalizer = stays and bool(service.balancer_class)
    if doomed:
        if traces or labels:
            # First the address off the network, then back into the pool.
            actions.append(Mark("it is no load balancer of ours any more", traces, labels))
        if lingers and service.ingress:
            actions.append(
                ClearStatus("it is being deleted, and kube-vip announces it as long as it is there")
            )
        because = "it is being deleted" if not stays else "it is no load balancer of ours any more"
        actions += [Release(one, because) for one in doomed if not one.is_deleting]
        if own is not None and not own.is_deleting:
            actions.append(DELETING)  # after the order, so that one that fails is not told at each try
        return waiting(seen, "removal", words.stuck(doomed[0]), tuple(actions))
    if leaves_finalizer:
        return Plan(
            (Mark("it is no load balancer of ours any more", traces, labels),) if traces or labels else ()
        )
    if not service.is_protected:
        return NOTHING
    if (stays or lingers) and service.ingress:
        actions.append(ClearStatus("it is no load balancer any more"))
    # A secondary is asked about, too: it may have had one before it was one, and its label proves nothing.
    actions.append(LetGo("nothing is left of it on Harvester", policy.name_for(service), traces, labels))
    actions.append(DELETED)
    return Plan(tuple(actions))


def _lingers(service: Service) -> bool:
    """Whether somebody else's finalizer keeps it after ours has gone. Then it would show an address that is free."""
    return service.is_deleting and any(one != names.FINALIZER for one in service.finalizers)


def _traces(service: Service) -> dict[str, str | None]:
    """What we and kube-vip wrote. With a class kube-vip may still be in charge, and keeps its own."""
    found: dict[str, str | None] = {}
    if service.addresses is not None:
        found[names.VIP_ADDRESSES] = None
    if service.interface is not None:
        found[names.VIP_INTERFACE] = None
    if not service.balancer_class:
        found.update(dict.fromkeys(service.traces))
    return found
