"""The plan for a service that shares the address of another. Pure."""

from __future__ import annotations

from dataclasses import replace

from windrow.cloudprovider import names
from windrow.cloudprovider.names import sharing_label
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    WAIT_TIMEOUT,
    Action,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    Plan,
    ensure_failed,
    refused,
    waiting,
)
from windrow.cloudprovider.services.own_address import plan_announcement
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.removal import plan_withdrawal
from windrow.cloudprovider.services.sharing import find_port_conflict
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState


def plan_shared_address(state: ServiceState, primary: Service, settings: ClusterSettings) -> Plan:
    """The primary's address on the service, and then the deletion of its own LoadBalancers."""
    service = state.service
    if fault := _find_sharing_problem(state, primary):
        return replace(refused(fault), actions=plan_withdrawal(state, settings))
    actions: list[Action] = []
    addresses = primary.ingress
    if addresses:
        patch = _patch_for_shared_address(service, primary)
        if patch is not None:
            if not service.has_finalizer:
                actions.append(ENSURING)
            actions.append(patch)
            if names.VIP_ADDRESSES in patch.annotations:
                actions.append(ENSURED)
            if names.IPAM in patch.annotations:
                actions.append(_ipam_removed(service, primary))
        if state.host is None:
            actions.extend(_delete_own(state, primary, settings))
    elif not service.primary_label:
        problem = ensure_failed(
            f"primary service {primary.title} has no ingress IP after "
            f"{WAIT_TIMEOUT.seconds} s; its own events say why"
        )
        return waiting(state, "primary", problem)
    if not addresses:
        return Plan(plan_withdrawal(state, settings), waits_for="primary")
    return plan_announcement(state, addresses, tuple(actions))


def _find_sharing_problem(state: ServiceState, primary: Service) -> str:
    service = state.service
    if state.users:
        users = " ".join(one.title for one in state.users)
        return (
            f"service {service.title} cannot share the address of {primary.title}, because services [{users}] share "
            f"its own; let them name {primary.title} first"
        )
    # On one that shares already, it is the copy of the primary's that we wrote, and no wish of the user's.
    shares = service.primary_label == sharing_label(primary.namespace, primary.name)
    if not shares and service.network and service.network != state.primary_network:
        return (
            f"network annotation of service {service.title} ({service.network}) is not same as that of its primary "
            f"service {primary.title} ({state.primary_network or 'none'}); remove {names.NETWORK} from the secondary"
        )
    return find_port_conflict(service, primary, state.sharers)


def _patch_for_shared_address(service: Service, primary: Service) -> PatchService | None:
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    wanted, label = ",".join(primary.ingress), sharing_label(primary.namespace, primary.name)
    if service.addresses != wanted:
        annotations[names.VIP_ADDRESSES] = wanted
    if primary.network and service.network != primary.network:
        annotations[names.NETWORK] = primary.network
    if service.interface is not None:
        annotations[names.VIP_INTERFACE] = None
    if service.has_ipam:
        annotations[names.IPAM] = None
    if service.primary_label != label:
        labels[names.PRIMARY_SERVICE] = label
    if not annotations and not labels and service.has_finalizer:
        return None
    because = f"it shares the address of {primary.title}"
    return PatchService(because, annotations, labels, add_finalizer=not service.has_finalizer)


def _ipam_removed(service: Service, primary: Service) -> EmitEvent:
    return EmitEvent(
        "IgnoredAnnotations",
        f"Removed the annotation {names.IPAM} ({service.ipam!r}): the address is that of {primary.title}, in its mode",
    )


def _delete_own(state: ServiceState, primary: Service, settings: ClusterSettings) -> list[Action]:
    """The deletion of its own LoadBalancers, once kube-vip announces the primary's address: until then its own is in
    use."""
    service = state.service
    to_delete = [*state.orphans]
    if state.load_balancer is not None and settings.owns(state.load_balancer, service):
        to_delete.append(state.load_balancer)
    in_use = set(service.ingress) - set(primary.ingress)
    return [
        DeleteLoadBalancer(one, because=f"it shares the address of {primary.title}")
        for one in to_delete
        if not one.is_deleting and not in_use & {*one.allocated, one.address}
    ]
