"""The plan for one Service: a list of actions. Pure: the same state, the same plan.

    wants an address of its own      finalizer -> LoadBalancer on Harvester -> its address on the service
    shares a primary's address       finalizer and the primary's address, then its own LoadBalancer is deleted
    wants none any more, or is deleted   LoadBalancer deleted -> gone -> finalizer removed

A plan holds what can be done now; the next one is made after a change. What the service cannot have as it is specified
is a `problem`: then neither the service nor its objects on Harvester are changed, except that an address which is not
reserved any more is removed (`plan_withdrawal`).

A service whose address is held by its LoadBalancer under another cluster name is left as it is, also when it is deleted:
`--cluster-name` was lost or changed.

A LoadBalancer that exists is never created again: one without an address is waited for. Harvester tries to allocate an
address again by itself, at least every two minutes, so a pool that is widened needs no request from us (and we have no
right to read pools).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from windrow.cloudprovider import names
from windrow.cloudprovider.names import sharing_label
from windrow.cloudprovider.services import problems
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    GRACE,
    NO_ACTION,
    WAIT_TIMEOUT,
    Action,
    DeleteLoadBalancer,
    EmitEvent,
    Entries,
    PatchService,
    Plan,
    ensure_failed,
    refused,
    waiting,
)
from windrow.cloudprovider.services.families import fits, own_load_balancers
from windrow.cloudprovider.services.own_address import announce_change, plan_announcement, plan_own_address
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.removal import (
    delete_orphans,
    plan_annotation_removal,
    plan_removal,
    plan_withdrawal,
)
from windrow.cloudprovider.services.sharing import CannotShare, SharedAddress, find_port_conflict
from windrow.cloudprovider.services.state import ServiceState, Unavailable


def plan_service(state: ServiceState) -> Plan:
    """The plan for the service now."""
    if state.held_under_other_name and not state.is_gone:
        return Plan(problem=problems.held_under_other_name(state), waits_for=OTHER_NAME)
    if needs_removal(state):
        return plan_removal(state)
    service = state.service
    if service.is_deleting or state.is_gone:
        return NO_ACTION
    if not service.wants_load_balancer:
        return plan_annotation_removal(service) if service.awaits_address else NO_ACTION
    if not state.settings.cluster:
        return refused(
            "the cluster name is empty, so load balancers of clusters in one Harvester namespace would take each "
            "other's names; set --cluster-name (chart value global.cattle.clusterName) to the guest cluster's name",
            _keep_kube_vip_going(state, ()),
        )
    plan = _plan_address(state)
    if plan.problem:
        # Orphans of earlier services are deleted whatever the problem of this one is.
        going = [one.balancer for one in plan.actions if isinstance(one, DeleteLoadBalancer)]
        more = tuple(one for one in delete_orphans(state) if one.balancer not in going)
        plan = replace(plan, actions=(*_ensure_finalizer(state, plan), *plan.actions, *more))
    return replace(plan, actions=_keep_kube_vip_going(state, plan.actions))


def _keep_kube_vip_going(state: ServiceState, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions, with the annotations of a service that has no address yet, whatever its problem: kube-vip would wait for
    its address, and serve no other service meanwhile. They go with the patch that brings the address."""
    service = state.service
    patches = [one for one in actions if isinstance(one, PatchService)]
    addressing = [one for one in patches if one.annotations.get(names.VIP_ADDRESSES)]
    if service.awaits_address and (addressing or service.addresses):
        because, more = "it has an address", _AWAITS_NO_MORE
        patches = addressing or patches
    elif service.stalls_kube_vip and not any(names.VIP_ADDRESSES in one.annotations for one in patches):
        because, more = "it has no address yet, for which kube-vip need not wait", _awaits_address(service)
    else:
        return actions
    if not patches:
        return (PatchService(because, more), *actions)
    merged = replace(patches[0], annotations={**patches[0].annotations, **more})
    return tuple(merged if one is patches[0] else one for one in actions)


_AWAITS_NO_MORE: Entries = {names.VIP_IGNORE: None, names.AWAITS_ADDRESS: None}


def _awaits_address(service: Service) -> Entries:
    empty = {names.VIP_ADDRESSES: names.NO_ADDRESS}
    # What kube-vip may announce it has to look at, or it stays on the node.
    passed_over = {names.VIP_IGNORE: "true", names.AWAITS_ADDRESS: "true"}
    return empty if service.may_be_announced else empty | passed_over


def _ensure_finalizer(state: ServiceState, plan: Plan) -> tuple[PatchService, ...]:
    """The finalizer, whatever its problem: a service with a LoadBalancer must not be deleted before that."""
    is_bare = bool(own_load_balancers(state)) and not state.service.has_finalizer
    if not is_bare or any(isinstance(one, PatchService) for one in plan.actions):
        return ()
    return (PatchService("it has a load balancer on Harvester", add_finalizer=True),)


def _plan_address(state: ServiceState) -> Plan:
    match state.sharing:
        case CannotShare(why=why, is_transient=True):
            return waiting(state, "a primary", ensure_failed(why), plan_withdrawal(state), GRACE)
        case CannotShare(why=why):
            return refused(why, plan_withdrawal(state))
        case SharedAddress(primary=primary):
            return plan_shared_address(state, primary)
        case _:
            return plan_own_address(state)


def needs_removal(state: ServiceState) -> bool:
    """Whether its LoadBalancers are to be deleted, and our annotations on the service removed."""
    service = state.service
    has_any = state.owns_load_balancer or state.owns_second or bool(state.orphans)
    if state.is_gone:
        return has_any
    if service.is_deleting or not service.is_load_balancer:
        return service.has_finalizer or has_any
    # With a class it belongs to another controller, which uses the same finalizer.
    return bool(service.load_balancer_class) and (has_any or bool(service.primary_label))


OTHER_NAME = "the cluster name to be right"
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
    lives = not state.service.is_deleting and not state.is_gone
    return Plan(_keep_kube_vip_going(state, ()) if lives else (), problem, NAMESPACE, unavailable.until)


# --- a service that shares the address of another ----------------------------------------------------------------


def plan_shared_address(state: ServiceState, primary: Service) -> Plan:
    """The primary's address on the service, and then the deletion of its own LoadBalancers."""
    service = state.service
    if fault := _find_sharing_problem(state, primary):
        return refused(fault, plan_withdrawal(state))
    if not primary.ingress and service.primary_label:
        return Plan(plan_withdrawal(state), waits_for="primary")
    if not primary.ingress:
        problem = f"primary service {primary.title} has no ingress IP after {WAIT_TIMEOUT.seconds} s"
        return waiting(state, "primary", ensure_failed(f"{problem}; its own events say why"))
    actions: list[Action] = []
    if (patch := _patch_for_shared_address(state, primary)) is not None:
        if not service.has_finalizer:
            actions.append(ENSURING)
        actions.append(patch)
        if names.VIP_ADDRESSES in patch.annotations:
            actions.append(ENSURED)
            actions += announce_change(service, primary.ingress)
        if names.IPAM in patch.annotations:
            actions.append(_ipam_removed(service, primary))
    if state.host is None:
        actions.extend(_delete_own(state, primary))
    return plan_announcement(state, primary.ingress, tuple(actions))


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
    local = next((one for one in (service, primary) if one.has_local_policy), None)
    if state.settings.has_elections and local is not None and not shares:
        return (
            f"service {service.title} cannot share the address of {primary.title}: {local.title} has "
            "externalTrafficPolicy Local, and with svc_election kube-vip would have it on a node of its own; set "
            f"externalTrafficPolicy Cluster, or remove the annotation {names.PRIMARY_SERVICE}"
        )
    if primary.ingress and not any(fits(service, one) for one in primary.ingress):
        return problems.shares_wrong_family(service, primary)
    return find_port_conflict(service, primary, state.sharers)


def _patch_for_shared_address(state: ServiceState, primary: Service) -> PatchService | None:
    service = state.service
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    wanted, label = ",".join(primary.ingress), sharing_label(primary.namespace, primary.name)
    if service.addresses != wanted:
        annotations[names.VIP_ADDRESSES] = wanted
    if primary.network and service.network != primary.network:
        annotations[names.NETWORK] = primary.network
    lease = names.vip_lease(primary.namespace, primary.name)
    if state.settings.has_elections and service.lease != lease:
        annotations[names.VIP_LEASE] = lease
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


def _delete_own(state: ServiceState, primary: Service) -> list[Action]:
    """The deletion of its own LoadBalancers, once kube-vip announces the primary's address: until then its own is in
    use."""
    service = state.service
    to_delete = [*state.orphans, *own_load_balancers(state)]
    in_use = set(service.ingress) - set(primary.ingress)
    return [
        DeleteLoadBalancer(one, because=f"it shares the address of {primary.title}")
        for one in to_delete
        if not one.is_deleting and not in_use & {*one.allocated, one.address}
    ]
