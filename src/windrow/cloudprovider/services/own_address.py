"""The plan for a Service with an address of its own, up to its announcement by kube-vip. Pure."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from windrow.cloudprovider import names
from windrow.cloudprovider.services import problems
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    REFUSAL_GRACE,
    Action,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    Plan,
    UpdateLoadBalancer,
    ensure_failed,
    host_unavailable,
    refused,
    wait_timed_out,
    waiting,
)
from windrow.cloudprovider.services.families import SECOND, FamilyPlan, plan_families
from windrow.cloudprovider.services.readings import AS_LABEL, LoadBalancer, Service
from windrow.cloudprovider.services.removal import (
    deletable_orphans,
    delete_orphans,
    plan_withdrawal,
    withdraw,
)
from windrow.cloudprovider.services.state import ServiceState, Unavailable
from windrow.cloudprovider.services.updates import plan_update


def plan_announcement(state: ServiceState, addresses: tuple[str, ...], actions: tuple[Action, ...]) -> Plan:
    """The service has its addresses in the annotation; wait until kube-vip announces them."""
    service = state.service
    by_dhcp = set(addresses) <= names.DHCP_PLACEHOLDERS
    missing = tuple(one for one in addresses if one not in service.ingress)
    if (service.ingress if by_dhcp else not missing) or service.ignores_vip:
        return Plan(actions)
    why_not = problems.without_lease(state) if by_dhcp else problems.not_announced(service, missing)
    problem = ensure_failed(why_not)
    return waiting(state, "announcement", problem, actions)


def announce_change(service: Service, addresses: tuple[str, ...]) -> list[EmitEvent]:
    """The warning about another address than the one that kube-vip announced before, with what makes it follow."""
    if not service.vip_keys or service.ignores_vip:
        return []
    return [EmitEvent("AddressChanged", problems.address_changed(service, addresses), "Warning")]


# What a plan waits for before it requests an address: the deletion of orphans.
ORPHANS = "orphans"
# And when Harvester refuses an address that it had allocated: whether that lasts.
REFUSAL_RECHECK = "a reallocation"


def plan_own_address(state: ServiceState) -> Plan:
    """The finalizer, the LoadBalancer on Harvester, and its address on the service, each as soon as it can be."""
    if (replacement := _plan_replacement(state)) is not None:
        return replacement
    if fault := problems.find_problem(state):
        return refused(fault, plan_withdrawal(state))
    if state.host is not None and state.load_balancer is None:
        return host_unavailable(state.host, "ensure")
    if isinstance(state.interfaces, Unavailable) and state.service.network and not state.service.interface:
        return Plan(waits_for="the network map", until=state.interfaces.until)
    if state.load_balancer is None:
        if deletable_orphans(state) and not wait_timed_out(state, ORPHANS):
            return waiting(state, ORPHANS, "", delete_orphans(state))  # the pool may have only one address
        return _plan_creation(state)
    if state.load_balancer.is_deleting:
        problem = problems.deletion_timeout(state.load_balancer)
        return waiting(state, "removal", problem, plan_withdrawal(state))
    plan = _plan_update(state, state.load_balancer)
    # Orphans last: the service must not wait for their deletion.
    return plan if plan.problem else replace(plan, actions=(*plan.actions, *delete_orphans(state)))


def _plan_replacement(state: ServiceState) -> Plan | None:
    """Delete a LoadBalancer without an address, where the service asks for what it cannot be changed to."""
    service, balancer = state.service, state.load_balancer
    if balancer is None or not state.owns_load_balancer or state.host is not None:
        return None
    has_address = bool({*balancer.reserved, *service.shown} - names.DHCP_PLACEHOLDERS)
    if has_address or not problems.find_immutable_change(service, balancer):
        return None
    if problems.find_problem(replace(state, load_balancer=None)):
        return None
    because = "the service asks for another IPAM mode or network, and it has no address yet"
    actions = (*withdraw(service, because), DeleteLoadBalancer(balancer, because))
    return waiting(state, "removal", problems.deletion_timeout(balancer), actions)


def _plan_creation(state: ServiceState) -> Plan:
    service = state.service
    actions: list[Action] = []
    if not service.has_finalizer:
        actions.append(PatchService("it is about to have a load balancer on Harvester", add_finalizer=True))
    actions.append(CreateLoadBalancer(state.settings.name_for(service), because="it has none"))
    actions.append(ENSURING)
    if state.settings.cluster == names.DEFAULT_CLUSTER_NAME:
        actions.append(CLUSTER_NAME_MISSING)
    actions += warn_of_annotations(service.ignored_annotations)
    return waiting(state, "allocation", problems.allocation_timeout(service), tuple(actions))


CLUSTER_NAME_MISSING = EmitEvent(
    "ClusterNameMissing",
    f"The cloud provider runs with the cluster name {names.DEFAULT_CLUSTER_NAME!r}: IP pools for this cluster do not match, and "
    "clusters in one Harvester namespace may take each other's load balancers. Set --cluster-name (chart value "
    "global.cattle.clusterName) to the guest cluster's name",
    "Warning",
)


def warn_of_annotations(keys: tuple[str, ...]) -> list[EmitEvent]:
    """The warnings about annotations without effect: those of versions before 0.2, and those that no Service has."""
    removed = tuple(key for key in keys if key in names.REMOVED_SERVICE_KEYS)
    unknown = tuple(key for key in keys if key not in removed)
    found = [_annotations_ignored(removed)] if removed else []
    return [*found, _annotations_unknown(unknown)] if unknown else found


def _annotations_unknown(keys: tuple[str, ...]) -> EmitEvent:
    return EmitEvent(
        "UnknownAnnotations",
        f"Without effect, since no Service has them: {'; '.join(map(_with_nearest, keys))}",
        "Warning",
    )


def _with_nearest(key: str) -> str:
    """The annotation, with the one that was probably meant."""
    if key.startswith(AS_LABEL):
        return f"{key} (write it as an annotation)"
    known = {name.rpartition("/")[2]: name for name in names.SERVICE_KEYS}
    near = get_close_matches(key.rpartition("/")[2].lower(), known, 1)
    return f"{key} (did you mean {known[near[0]]}?)" if near else f"{key} (remove it)"


def _annotations_ignored(keys: tuple[str, ...]) -> EmitEvent:
    return EmitEvent(
        "IgnoredAnnotations",
        f"Without effect since v0.2.0: {', '.join(keys)}; traffic goes to Ready pods only, so use readiness and "
        "liveness probes of the pods instead, and remove the annotations",
        "Warning",
    )


def _plan_update(state: ServiceState, balancer: LoadBalancer) -> Plan:
    """The LoadBalancer exists: its addresses go to the service, and the requests of the service to it."""
    service = state.service
    actions: list[Action] = []
    update = plan_update(state, balancer, service.pool)
    changes_pool = balancer.changes_pool
    if update is not None and update.pool is not None and state.host is None:
        changes_pool = replace(balancer, pool=update.pool).changes_pool
    allocated = () if changes_pool else balancer.allocated
    families = plan_families(state, allocated)
    addresses = families.addresses
    patch = _patch_for_own_address(state, addresses)
    if patch is not None:
        actions.append(patch)
    is_new_address = patch is not None and bool(patch.annotations.get(names.VIP_ADDRESSES))
    if is_new_address:
        actions.append(ENSURED)
        actions += announce_change(service, addresses)
    if addresses and (is_new_address or state.has_new_request):
        actions.extend(_address_warnings(service, balancer, families))
    actions += warn_of_annotations(state.new_ignored_annotations)
    if changes_pool and not service.primary_label:
        # The announcement ends before the address goes back into the pool.
        actions += withdraw(service, "another pool is asked for, so Harvester takes its address back")
    if update is not None and state.host is not None:
        return replace(host_unavailable(state.host, "ensure"), actions=tuple(actions))
    if update is not None:
        actions.append(update)
    actions += families.actions  # last, so that what Harvester refuses about them keeps back nothing else
    if addresses:
        plan = plan_announcement(state, addresses, tuple(actions))
        is_short = families.missing and service.requires_both and not plan.problem
        return replace(plan, problem=ensure_failed(families.missing)) if is_short else plan
    if allocated:
        actions += plan_withdrawal(state)
    if families.is_awaited:
        return waiting(state, SECOND, ensure_failed(families.missing), tuple(actions))
    if allocated:
        return Plan(tuple(actions), problem=ensure_failed(families.missing), waits_for=SECOND)
    if balancer.refusal and _refusal_is_older(state, balancer, update):
        return waiting(state, _answer_after(balancer), problems.allocation_timeout(service), tuple(actions))
    if balancer.refusal and _is_new_refusal(state):
        return waiting(state, REFUSAL_RECHECK, "", tuple(actions), REFUSAL_GRACE)
    if balancer.refusal:
        actions.extend(plan_withdrawal(state))
        problem = ensure_failed(problems.explain_refusal(service, balancer, service.pool))
        waits_for = REFUSAL_RECHECK if state.wait.what == REFUSAL_RECHECK else "allocation"
        return Plan(tuple(actions), problem=problem, waits_for=waits_for)
    return waiting(state, "allocation", problems.allocation_timeout(service), tuple(actions))


def _is_new_refusal(state: ServiceState) -> bool:
    """Whether it had an address, and has been refused one for less than the grace period."""
    if not state.service.addresses or state.service.primary_label:
        return False
    since = state.wait.since if state.wait.what == REFUSAL_RECHECK else None
    return since is None or state.now - since < REFUSAL_GRACE


def _refusal_is_older(state: ServiceState, balancer: LoadBalancer, update: UpdateLoadBalancer | None) -> bool:
    """Whether the refusal is older than our request: it stays in the Ready condition until Harvester has tried again.
    The same message counts again after a timeout."""
    if update is not None and update.pool is not None:
        return True
    asked = state.wait.what == _answer_after(balancer) and not wait_timed_out(state, state.wait.what)
    return asked or balancer.is_refusal_outdated


def _answer_after(balancer: LoadBalancer) -> str:
    return f"another answer than: {balancer.refusal}"


def _patch_for_own_address(state: ServiceState, addresses: tuple[str, ...]) -> PatchService | None:
    service = state.service
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    if addresses:
        wanted = ",".join(addresses)
        if service.addresses != wanted:
            annotations[names.VIP_ADDRESSES] = wanted
        interface = _interface(state)
        if interface and service.interface != interface:
            annotations[names.VIP_INTERFACE] = interface
        if service.primary_label:  # the Go program leaves an empty label, which means the same as none
            labels[names.PRIMARY_SERVICE] = None
            if state.settings.has_elections and service.lease is not None:
                annotations[names.VIP_LEASE] = None
    if not annotations and not labels and service.has_finalizer:
        return None
    because = "Harvester gave its address" if annotations else "it shares no address any more"
    if not annotations and not labels:
        because = "it has a load balancer on Harvester"
    return PatchService(because, annotations, labels, add_finalizer=not service.has_finalizer)


def _interface(state: ServiceState) -> str:
    if not state.service.network or not isinstance(state.interfaces, dict):
        return ""
    return state.interfaces.get(state.service.network, "")


def _address_warnings(service: Service, balancer: LoadBalancer, families: FamilyPlan) -> list[EmitEvent]:
    """An event for each request of the service, for an address, a pool or a family, that its addresses do not meet."""
    address, pool = service.requested_address, service.pool
    is_met = not address or address in names.DHCP_PLACEHOLDERS or address in families.addresses
    problems = []
    if service.uses_dhcp:
        asks = [] if is_met else [f"spec.loadBalancerIP asks for {address}"]
        asks += [f"the annotation {names.IP_POOL} names the pool {pool}"] if pool else []
        hint = "but in mode dhcp the DHCP server chooses the address; use mode pool"
        problems = [f"{ask}, {hint}" for ask in asks]
    elif not is_met:
        problems = [
            f"spec.loadBalancerIP asks for {address}, and Harvester gave {', '.join(balancer.allocated)} from pool "
            f"{balancer.allocated_pool or 'none'}; an address is fixed by an IP pool of its own: create one with only "
            f"{address} and name it in the annotation {names.IP_POOL}"
        ]
    if families.missing and not service.requires_both:
        problems.append(families.missing)
    if service.second_pool and len(service.families) == 1:
        problems.append(
            f"the annotation {names.IP_POOL} names two pools, and spec.ipFamilies of the service is {service.families[0]} alone, so "
            f"pool {service.second_pool} is not asked; set ipFamilyPolicy PreferDualStack, or name one pool"
        )
    return [EmitEvent("AddressNotAsRequested", problem, "Warning") for problem in problems]
