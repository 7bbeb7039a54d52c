"""What is to be done for one service, as a list of values. Pure: the same seen, the same plan.

    wants an address of its own      finalizer -> LoadBalancer on Harvester -> its address to the service
    shares a primary's address       finalizer and the primary's address, then away with its own LoadBalancer
    wants none any more, or ends     LoadBalancer away -> and gone -> finalizer away

A plan holds what can be done now; the next one is made when something has changed. What the service cannot have as
it stands is a `problem`: then nothing is touched, neither the service nor what it has on Harvester.

Existence is the object's existence: a LoadBalancer without an address is waited for, never made anew. Harvester looks
for a free address again by itself, at most every two minutes, so a full pool that is widened needs no push from us
(and we have no right to see pools).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from windrow.cloudprovider import names
from windrow.cloudprovider.services.balancer_names import balancer_name, is_legal_name, sharing_label
from windrow.cloudprovider.services.balancer_readings import Balancer, Owner
from windrow.cloudprovider.services.service_readings import Interfaces, Service
from windrow.cloudprovider.services.sharing import CannotShare, Shares, Sharing, find_collision
from windrow.cloudprovider.services.words import explain_refusal
from windrow.harvester.names import is_label_value

# How long a step of somebody else may take before we say on the service what it waits for.
PATIENCE = timedelta(seconds=60)
MODES = ("pool", "dhcp")
# What a plan waits for while Harvester's load balancers are not known.
HARVESTER = "Harvester"

# --- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """What does not change while the program runs."""

    cluster: str
    namespace: str  # on Harvester
    management_network: str = ""

    def name_for(self, service: Service) -> str:
        return balancer_name(self.cluster, service.namespace, service.name, service.uid)

    def owner_for(self, service: Service) -> Owner:
        return Owner(self.cluster, service.namespace, service.name)


@dataclass(frozen=True, slots=True)
class Unseen:
    """A side that is not known now. `problem` is "" while it is only being listed, or away for a moment."""

    problem: str = ""
    until: datetime | None = None  # when the moment is over


@dataclass(frozen=True, slots=True)
class Pause:
    """What the plan before waited for, and since when."""

    what: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One service and all that its plan depends on, at one instant."""

    service: Service
    now: datetime
    balancer: Balancer | None = None  # of the name that this service's has
    strays: tuple[Balancer, ...] = ()  # of services before it that had its name
    sharing: Sharing | None = None
    sharers: tuple[Service, ...] = ()  # of its primary's address
    users: tuple[Service, ...] = ()  # of its own address
    primary_network: str = ""
    host: Unseen | None = None  # None: all of Harvester's load balancers are known
    interfaces: Interfaces | Unseen | None = None  # None: there is no map
    pause: Pause = Pause()
    is_over: bool = False  # it is not in the cluster any more
    new_old_keys: tuple[str, ...] = ()  # annotations without effect that it has been given


# --- what can be done -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """Write on the service, in one patch. None removes."""

    because: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    protects: bool = False  # with the finalizer


@dataclass(frozen=True, slots=True)
class ClearStatus:
    """Take the addresses out of the service's status."""

    because: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the LoadBalancer on Harvester."""

    name: str
    because: str


@dataclass(frozen=True, slots=True)
class Amend:
    """Update the LoadBalancer where it differs."""

    balancer: Balancer
    because: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    pool: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the LoadBalancer, which gives its address back."""

    balancer: Balancer
    because: str


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take the finalizer away, once Harvester itself says that the LoadBalancer `unless` is gone."""

    because: str
    unless: str = ""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tell:
    """An event on the service."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


Action = Mark | ClearStatus | Reserve | Amend | Release | LetGo | Tell

ENSURING = Tell("EnsuringLoadBalancer", "Ensuring load balancer")
ENSURED = Tell("EnsuredLoadBalancer", "Ensured load balancer")
DELETING = Tell("DeletingLoadBalancer", "Deleting load balancer")
DELETED = Tell("DeletedLoadBalancer", "Deleted load balancer")


@dataclass(frozen=True, slots=True)
class Plan:
    """`problem` is told as an event, once; `waits_for` is what brings the next plan, at `until` at the latest."""

    actions: tuple[Action, ...] = ()
    problem: str = ""
    waits_for: str = ""
    until: datetime | None = None


NOTHING = Plan()


def _refused(text: str) -> Plan:
    return Plan(problem=f"failed to ensure load balancer: {text}")


def _waiting(seen: Seen, what: str, complaint: str, actions: tuple[Action, ...] = ()) -> Plan:
    """Wait for `what`; after a while with the complaint."""
    since = seen.pause.since if seen.pause.what == what and seen.pause.since else seen.now
    if seen.now - since >= PATIENCE:
        return Plan(actions, problem=complaint, waits_for=what)
    return Plan(actions, waits_for=what, until=since + PATIENCE)


def _waited_in_vain(seen: Seen, what: str) -> bool:
    return (
        seen.pause.what == what and seen.pause.since is not None and seen.now - seen.pause.since >= PATIENCE
    )


def _without_host(host: Unseen, doing: str) -> Plan:
    problem = f"failed to {doing} load balancer: {host.problem}" if host.problem else ""
    return Plan(problem=problem, waits_for=HARVESTER, until=host.until)


# --- one service ------------------------------------------------------------------------------------------------------


def plan_service(seen: Seen, policy: Policy) -> Plan:
    """What is to be done for the service now."""
    if must_go(seen, policy):
        return _plan_removal(seen, policy)
    service = seen.service
    if not service.wants_balancer or service.is_deleting or seen.is_over:
        return NOTHING
    if not policy.cluster:
        return _refused(
            "the cluster name is empty, so load balancers of clusters in one Harvester namespace would take each "
            "other's names; set --cluster-name (chart value global.cattle.clusterName) to the guest cluster's name"
        )
    match seen.sharing:
        case CannotShare(why=why):
            return _refused(why)
        case Shares(primary=primary):
            return _plan_secondary(seen, primary, policy)
        case _:
            return _plan_primary(seen, policy)


def must_go(seen: Seen, policy: Policy) -> bool:
    """Whether what the service has on Harvester is to be removed, and our traces on the service with it."""
    service = seen.service
    has_any = _is_own(seen.balancer, service, policy) or bool(seen.strays)
    if seen.is_over:
        return has_any
    if service.is_deleting or not service.is_balanced:
        return service.is_protected or has_any
    # With a class it is another controller's, which uses the same finalizer.
    return bool(service.balancer_class) and (has_any or bool(service.sharing))


def _is_own(balancer: Balancer | None, service: Service, policy: Policy) -> bool:
    return balancer is not None and balancer.owner == policy.owner_for(service)


def _foreign(seen: Seen, policy: Policy) -> str:
    """Why the load balancer of this name is not ours; "" when it is, or is not there."""
    balancer = seen.balancer
    if balancer is None or _is_own(balancer, seen.service, policy):
        return ""
    return (
        f"LoadBalancer {balancer.namespace}/{balancer.name} on Harvester is of {balancer.owner}, not of service "
        f"{seen.service.title} of cluster {policy.cluster!r}; it is neither used nor deleted: delete or rename it there"
    )


# --- an address of its own --------------------------------------------------------------------------------------------


def _plan_primary(seen: Seen, policy: Policy) -> Plan:
    if fault := _find_fault(seen, policy):
        return _refused(fault)
    if seen.host is not None and seen.balancer is None:
        return _without_host(seen.host, "ensure")
    if isinstance(seen.interfaces, Unseen) and seen.service.network and not seen.service.interface:
        return Plan(waits_for="the network map")
    if seen.host is None and _free_strays(seen) and not _waited_in_vain(seen, "strays"):
        return _plan_strays(seen)
    if seen.balancer is None:
        return _plan_reservation(seen, policy)
    if seen.balancer.is_deleting:
        return _waiting(seen, "removal", _stuck(seen.balancer))
    return _plan_upkeep(seen, seen.balancer, policy)


def _find_fault(seen: Seen, policy: Policy) -> str:
    """What Harvester need not be asked about; "" when nothing is wrong."""
    service = seen.service
    if service.mode not in MODES:
        return (
            f"annotation {names.IPAM} is {service.ipam!r}, which is not known; write 'pool' (an address from an IP "
            "pool of Harvester) or 'dhcp'"
        )
    name = policy.name_for(service)
    if not is_legal_name(name) or not is_label_value(policy.cluster):
        return (
            f"the cluster name {policy.cluster!r} cannot be part of an object's name on Harvester ({name}), or not its "
            "label; set --cluster-name to the guest cluster's name: lower-case letters, digits and dashes, 63 at most"
        )
    return _foreign(seen, policy) or _find_change(service, seen.balancer) or _find_missing_interface(seen)


def _find_change(service: Service, balancer: Balancer | None) -> str:
    """What a living load balancer cannot become."""
    if balancer is None or balancer.is_deleting:
        return ""
    if balancer.mode != service.mode:
        return (
            f"the IPAM mode cannot be changed from {balancer.mode} to {service.mode} while the load balancer exists; "
            f"set the annotation {names.IPAM} back to {balancer.mode!r}, or delete the service and create it with "
            f"{service.mode!r}"
        )
    # Load balancers of before v0.2.7 do not say what they were made for.
    made_for = balancer.annotations.get(names.FIXED_NETWORK)
    if made_for is not None and made_for != service.network:
        return (
            f"network annotation of service {service.title} ({service.network or 'none'}) is not same as the load "
            f"balancer's ({made_for or 'none'}), and cannot be changed while that exists; set the annotation "
            f"{names.NETWORK} back to {made_for!r}, or delete the service and create it anew"
        )
    return ""


def _find_missing_interface(seen: Seen) -> str:
    """Why kube-vip cannot be told an interface. A service that works is left alone: networks come to and go from
    the map as nodes start and stop."""
    service, interfaces = seen.service, seen.interfaces
    works = service.interface or (service.addresses and seen.balancer is not None)
    if not service.network or interfaces is None or works:
        return ""
    where = f"{names.NETWORK_MAP_NAMESPACE}/{names.NETWORK_MAP_NAME}"
    if isinstance(interfaces, Unseen):
        return interfaces.problem
    if not interfaces.of:
        return (
            f"there is no common NAD mapping: {where} is empty; every VM of the cluster needs a running guest agent and "
            f"the network {service.network} on the same interface"
        )
    if service.network not in interfaces.of:
        known = ", ".join(sorted(interfaces.of))
        return (
            f"network {service.network} not found in NAD mapping for service {service.title}: not every VM of the "
            f"cluster has it on the same interface; write NAMESPACE/NAME of one that is there ({known}) into the "
            f"annotation {names.NETWORK}, or attach it to all VMs"
        )
    return ""


def _plan_strays(seen: Seen) -> Plan:
    """Those before it must give their addresses back first: the pool may have only one."""
    actions = tuple(
        Release(one, because=f"its service {seen.service.title} was made anew, with another UID")
        for one in _free_strays(seen)
        if not one.is_deleting
    )
    return _waiting(seen, "strays", "", actions)


def _free_strays(seen: Seen) -> tuple[Balancer, ...]:
    """Those that may go. One whose address secondaries still show stays until they have the new one, unless there is
    no new one while it stays."""
    if seen.balancer is not None and seen.balancer.refusal:
        return seen.strays
    shown = {address for one in seen.users for address in (one.addresses or "").split(",")}
    return tuple(one for one in seen.strays if one.is_deleting or not shown & set(one.given))


def _plan_reservation(seen: Seen, policy: Policy) -> Plan:
    service = seen.service
    actions: list[Action] = []
    if not service.is_protected:
        actions.append(Mark("it is about to have a load balancer on Harvester", protects=True))
    actions.append(Reserve(policy.name_for(service), because=f"service {service.title} has none"))
    actions.append(ENSURING)
    if policy.cluster == names.UNNAMED:
        actions.append(_UNNAMED)
    if service.old_keys:
        actions.append(old_keys_ignored(service.old_keys))
    return _waiting(seen, "allocation", _slow(service), tuple(actions))


_UNNAMED = Tell(
    "ClusterNameMissing",
    f"The cloud provider runs with the cluster name {names.UNNAMED!r}: IP pools for this cluster do not match, and "
    "clusters in one Harvester namespace may take each other's load balancers. Set --cluster-name (chart value "
    "global.cattle.clusterName) to the guest cluster's name",
    "Warning",
)


def old_keys_ignored(keys: tuple[str, ...]) -> Tell:
    """What is said of annotations that mean nothing any more."""
    return Tell(
        "IgnoredAnnotations",
        f"Without effect since v0.2.0: {', '.join(keys)}; traffic goes to Ready pods only, so use readiness and "
        "liveness probes of the pods instead, and remove the annotations",
        "Warning",
    )


def _slow(service: Service) -> str:
    return (
        "failed to ensure load balancer: ip is not allocated after "
        f"{PATIENCE.seconds} s, mode: {service.mode}, message: none; is the load balancer controller "
        "(harvester-load-balancer in harvester-system) running on Harvester?"
    )


def _stuck(balancer: Balancer) -> str:
    held = ", ".join(balancer.finalizers) or "nothing"
    return (
        f"failed to delete load balancer: {balancer.namespace}/{balancer.name} is still there {PATIENCE.seconds} s "
        f"after its deletion, held by {held}; is the load balancer controller (harvester-load-balancer in "
        "harvester-system) running on Harvester, and does the IP pool of its address still exist?"
    )


def _plan_upkeep(seen: Seen, balancer: Balancer, policy: Policy) -> Plan:
    """The load balancer is there: what it says is brought to the service, and what the service says to it."""
    service = seen.service
    actions: list[Action] = []
    addresses = balancer.given
    mark = _mark_for_own(seen, addresses)
    if mark is not None:
        actions.append(mark)
        if addresses and mark.annotations.get(names.VIP_ADDRESSES):
            actions.append(ENSURED)
            actions.extend(_other_than_wished(service, balancer))
    if seen.new_old_keys:
        actions.append(old_keys_ignored(seen.new_old_keys))
    amend = _amend(service, balancer, policy)
    if amend is not None and seen.host is not None:
        return replace(_without_host(seen.host, "ensure"), actions=tuple(actions))
    if amend is not None:
        actions.append(amend)
    if addresses:
        return _announced(seen, addresses, tuple(actions))
    if balancer.refusal:
        problem = f"failed to ensure load balancer: {explain_refusal(service, balancer)}"
        return Plan(tuple(actions), problem=problem, waits_for="allocation")
    return _waiting(seen, "allocation", _slow(service), tuple(actions))


def _mark_for_own(seen: Seen, addresses: tuple[str, ...]) -> Mark | None:
    service = seen.service
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    if addresses:
        wanted = ",".join(addresses)
        if service.addresses != wanted:
            annotations[names.VIP_ADDRESSES] = wanted
        interface = _interface(seen)
        if interface and service.interface != interface:
            annotations[names.VIP_INTERFACE] = interface
        if service.sharing is not None:
            labels[names.PRIMARY_SERVICE] = None
    if not annotations and not labels and service.is_protected:
        return None
    because = "Harvester gave its address" if annotations else "it shares no address any more"
    if not annotations and not labels:
        because = "it has a load balancer on Harvester"
    return Mark(because, annotations, labels, protects=not service.is_protected)


def _interface(seen: Seen) -> str:
    if not seen.service.network or not isinstance(seen.interfaces, Interfaces):
        return ""
    return seen.interfaces.of.get(seen.service.network, "")


def _other_than_wished(service: Service, balancer: Balancer) -> list[Tell]:
    wish = service.wanted_address
    if not wish or wish in (names.ASK_DHCP, "::") or wish in balancer.given:
        return []
    found = ", ".join(balancer.given)
    text = (
        f"spec.loadBalancerIP asks for {wish}, and Harvester gave {found} from pool {balancer.given_pool or 'none'}; an "
        f"address is fixed by an IP pool of its own: create one with only {wish} and name it in the annotation "
        f"{names.IP_POOL}"
    )
    if service.uses_dhcp:
        text = f"spec.loadBalancerIP asks for {wish}, but in mode dhcp the DHCP server chooses the address; use mode pool"
    return [Tell("AddressNotAsWished", text, "Warning")]


def _amend(service: Service, balancer: Balancer, policy: Policy) -> Amend | None:
    annotations: dict[str, str | None] = {}
    said = balancer.annotations
    if said.get(names.LB_CLUSTER) != policy.cluster:
        annotations[names.LB_CLUSTER] = policy.cluster
    if said.get(names.MANAGEMENT_NETWORK, "") != policy.management_network:
        annotations[names.MANAGEMENT_NETWORK] = policy.management_network or None
    if service.network and names.FIXED_NETWORK not in said:
        annotations[names.FIXED_NETWORK] = service.network
    pool = service.pool if service.pool and service.pool != balancer.pool and not service.uses_dhcp else None
    in_use = _address_in_use(service, balancer)
    address = in_use if in_use and in_use != balancer.address else None
    if not annotations and pool is None and address is None:
        return None
    reasons = [
        *(f"annotation {key} differs" for key in annotations),
        *([f"the service asks for pool {pool}"] if pool else []),
        *([f"{address} is in use"] if address else []),
    ]
    return Amend(balancer, "; ".join(reasons), annotations, pool, address)


def _address_in_use(service: Service, balancer: Balancer) -> str:
    """The first of its addresses that kube-vip announces; "" while there is none, or another one still."""
    if balancer.mode == "dhcp":
        return service.ingress[0] if service.ingress and not service.sharing else ""
    return next((one for one in service.ingress if one in balancer.given), "")


def _announced(seen: Seen, addresses: tuple[str, ...], actions: tuple[Action, ...]) -> Plan:
    """The service has been told its addresses; kube-vip is to announce them."""
    service = seen.service
    asks = set(addresses) <= {names.ASK_DHCP, "::"}
    if (service.ingress if asks else set(service.ingress) & set(addresses)) or service.ignores_vip:
        return Plan(actions)
    shown = ", ".join(addresses)
    complaint = (
        f"failed to ensure load balancer: kube-vip does not announce {shown} after {PATIENCE.seconds} s; is kube-vip "
        "running on the control-plane nodes (DaemonSet kube-vip in kube-system, chart value kube-vip.enabled), and "
        "does the interface exist there?"
    )
    if asks:
        network = service.network or "of the VMs"
        complaint = (
            f"failed to ensure load balancer: no address by DHCP after {PATIENCE.seconds} s; either no DHCP server "
            f"answers on the network {network} (or its addresses are used up), or the nodes' kernel lacks the module "
            "macvlan, as minimal cloud images do (install the full kernel package); kube-vip's log says which"
        )
    return _waiting(seen, "announcement", complaint, actions)


# --- a primary's address ----------------------------------------------------------------------------------------------


def _plan_secondary(seen: Seen, primary: Service, policy: Policy) -> Plan:
    service = seen.service
    if fault := _find_sharing_fault(seen, primary):
        return _refused(fault)
    actions: list[Action] = []
    addresses = primary.ingress
    if addresses:
        mark = _mark_for_shared(service, primary)
        if mark is not None:
            if not service.is_protected:
                actions.append(ENSURING)
            actions.append(mark)
            if names.VIP_ADDRESSES in mark.annotations:
                actions.append(ENSURED)
        if seen.host is None:
            actions.extend(_release_own(seen, primary, policy))
    elif not service.sharing:
        complaint = (
            f"failed to ensure load balancer: primary service {primary.title} has no ingress IP after "
            f"{PATIENCE.seconds} s; its own events say why"
        )
        return _waiting(seen, "primary", complaint)
    if not addresses:
        return Plan(waits_for="primary")
    return _announced(seen, addresses, tuple(actions))


def _find_sharing_fault(seen: Seen, primary: Service) -> str:
    service = seen.service
    if seen.users:
        users = " ".join(one.title for one in seen.users)
        return (
            f"service {service.title} cannot share the address of {primary.title}, because services [{users}] share "
            f"its own; let them name {primary.title} first"
        )
    # On one that shares already, it is the copy of the primary's that we wrote, and no wish of the user's.
    shares = service.sharing == sharing_label(primary.namespace, primary.name)
    if not shares and service.network and service.network != seen.primary_network:
        return (
            f"network annotation of service {service.title} ({service.network}) is not same as that of its primary "
            f"service {primary.title} ({seen.primary_network or 'none'}); remove {names.NETWORK} from the secondary"
        )
    return find_collision(service, primary, seen.sharers)


def _mark_for_shared(service: Service, primary: Service) -> Mark | None:
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
    if service.sharing != label:
        labels[names.PRIMARY_SERVICE] = label
    if not annotations and not labels and service.is_protected:
        return None
    because = f"it shares the address of {primary.title}"
    return Mark(because, annotations, labels, protects=not service.is_protected)


def _release_own(seen: Seen, primary: Service, policy: Policy) -> list[Action]:
    """Only after the service shows the primary's address: until then its own one is in use."""
    doomed = [*seen.strays]
    if seen.balancer is not None and _is_own(seen.balancer, seen.service, policy):
        doomed.append(seen.balancer)
    return [
        Release(one, because=f"service {seen.service.title} shares the address of {primary.title}")
        for one in doomed
        if not one.is_deleting
    ]


# --- the end ----------------------------------------------------------------------------------------------------------


def _plan_removal(seen: Seen, policy: Policy) -> Plan:
    service = seen.service
    if seen.users:
        users = " ".join(one.title for one in seen.users)
        return Plan(
            problem=f"failed to delete load balancer: could not delete load balancer for service {service.title}: "
            f"service {service.title} is still used by other services [{users}]; delete these, or remove their "
            f"annotation {names.PRIMARY_SERVICE}, first",
            waits_for="users",
        )
    if seen.host is not None:
        return _without_host(seen.host, "delete")
    stays = not service.is_deleting and not seen.is_over
    traces = _traces(service) if stays else {}
    labels: dict[str, str | None] = (
        {names.PRIMARY_SERVICE: None} if stays and service.sharing is not None else {}
    )
    actions: list[Action] = []
    own = seen.balancer if _is_own(seen.balancer, service, policy) else None
    doomed = [*([own] if own else []), *seen.strays]
    leaves_finalizer = stays and bool(service.balancer_class)
    if doomed:
        if traces or labels:
            # First the address off the network, then back into the pool.
            actions.append(Mark("it is no load balancer of ours any more", traces, labels))
        because = "it is being deleted" if not stays else "it is no load balancer of ours any more"
        actions += [
            Release(one, because=f"service {service.title}: {because}")
            for one in doomed
            if not one.is_deleting
        ]
        if own is not None and not own.is_deleting:
            actions.append(DELETING)  # after the order, so that one that fails is not told at each try
        return _waiting(seen, "removal", _stuck(doomed[0]), tuple(actions))
    if leaves_finalizer:
        return Plan(
            (Mark("it is no load balancer of ours any more", traces, labels),) if traces or labels else ()
        )
    if not service.is_protected:
        return NOTHING
    if stays and service.ingress:
        actions.append(ClearStatus("it is no load balancer any more"))
    # A secondary has no load balancer of its own: that is known without asking.
    unless = "" if service.sharing else policy.name_for(service)
    actions.append(LetGo("nothing is left of it on Harvester", unless, traces, labels))
    actions.append(DELETED)
    return Plan(tuple(actions))


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
