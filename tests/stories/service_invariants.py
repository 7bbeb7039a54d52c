"""What must be true of load balancers: at every write (`InvariantChecker`), and whenever all is at rest (`find_faults`).

Both look at the two APIs as their administrators do, never through the program, and say what is wrong in sentences;
no sentence is a clean bill. Names are worked out here once more, from reference 02 §3.3: the duplicate is the check.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from windrow.apiserver.admission import AdmissionRequest
from windrow.emulator import kinds
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    uid_of,
)
from windrow.kubernetes.resources import EVENT, SERVICE

from .service_rig import (
    ADDRESSES,
    AT_HOST,
    CLEANUP,
    CLUSTER,
    INTERFACE,
    IPAM,
    NETWORK_OF,
    PRIMARY,
    PROVIDER,
    US,
    ServiceRig,
)

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LONGEST_BASE = 55
# What people write into the annotation for addresses: on a service that is none of ours it stays.
SOMEBODYS = ("10.9.9.9", "nonsense")
# Of one service; the recorder's own allowance is 25 and one more each five minutes.
MOST_EVENTS = 60


def load_balancer_name(cluster: str, namespace: str, name: str, uid: str) -> str:
    """What the load balancer of a service is called at Harvester."""
    if not _LABEL.fullmatch(cluster):
        cluster = f"a{cluster}"
    base = f"{cluster}-{namespace}-{name}-"
    return f"{base[:LONGEST_BASE]}{crc32(f'{base}{uid}'.encode()):08x}"


def name_for(service: Raw) -> str:
    return load_balancer_name(CLUSTER, namespace_of(service), name_of(service), uid_of(service))


# --- at every write -------------------------------------------------------------------------------------------------

# Everything of a Service that is the cloud provider's to write.
VIP_HOST = "kube-vip.io/vipHost"
AWAITS, IGNORE = "windrow.io/awaits-address", "kube-vip.io/ignore"
_OUR_ANNOTATIONS = frozenset({ADDRESSES, INTERFACE, AWAITS})
# A secondary gets its primary's network and loses its own address source.
_OUR_ANNOTATIONS_OF_SECONDARIES = _OUR_ANNOTATIONS | {NETWORK_OF, IPAM}
# What kube-vip leaves behind goes with the address.
_LEFTOVERS = frozenset({"kube-vip.io/vipHost", "kube-vip.io/hwaddr", "kube-vip.io/requestedIP"})


@dataclass
class InvariantChecker:
    """Sees every write to both APIs before it is kept."""

    rig: ServiceRig
    faults: list[str] = field(default_factory=list)
    torn: set[str] = field(
        default_factory=set
    )  # load balancers of services whose finalizer a person took away

    def __post_init__(self) -> None:
        self.rig.api.admission.append(self._in_guest)
        self.rig.host.api.admission.append(self._at_host)

    def _complain(self, sentence: str) -> None:
        self.faults.append(f"at {self.rig.now_s:.3f} s: {sentence}")

    async def _in_guest(self, operation: AdmissionRequest) -> None:
        old, new = operation.old_object, operation.object
        if operation.kind != SERVICE or old is None:
            return
        if new is None:
            if operation.user.username == US:
                self._complain(f"it deletes service {operation.namespace}/{operation.name}")
            return
        if CLEANUP in finalizers_of(old) and CLEANUP not in finalizers_of(new):
            await self._finalizer_goes(old, operation.user.username)
        if operation.user.username == US:
            for what in _strange_changes(old, new):
                self._complain(f"it changes {what} of service {operation.namespace}/{operation.name}")

    async def _finalizer_goes(self, service: Raw, who: str) -> None:
        if who != US:
            self.torn.add(name_for(service))
            return
        ref = kinds.LOAD_BALANCER.ref(name_for(service), "default")
        if await self.rig.at_host.find(ref) is not None:
            self._complain(f"the finalizer of {name_of(service)} goes while {ref} is there")

    async def _at_host(self, operation: AdmissionRequest) -> None:
        if operation.user.username != AT_HOST:
            return
        raw = operation.old_object or operation.object or {"metadata": {}}
        what = f"{operation.kind.kind} {operation.namespace}/{operation.name}"
        if operation.kind != kinds.LOAD_BALANCER:
            self._complain(f"it writes {what}")
            return
        if labels_of(raw).get(f"{PROVIDER}/cluster") != CLUSTER:
            self._complain(f"it touches {what} of {labels_of(raw).get(f'{PROVIDER}/cluster')!r}")
        if operation.verb == "update" and operation.old_object == operation.object:
            self._complain(f"it writes {what} without a difference")


def _strange_changes(old: Raw, new: Raw) -> Iterable[str]:
    if old.get("spec") != new.get("spec"):
        yield "the spec"
    is_secondary = bool(annotations_of(old).get(PRIMARY))
    allowed = _OUR_ANNOTATIONS_OF_SECONDARIES if is_secondary else _OUR_ANNOTATIONS
    for word, texts, ours in (
        ("annotation", annotations_of, allowed),
        ("label", labels_of, frozenset({PRIMARY})),
    ):
        was, now = texts(old), texts(new)
        for key in was.keys() | now.keys():
            if was.get(key) == now.get(key) or key in ours or (key in _LEFTOVERS and key not in now):
                continue
            if key == IGNORE and AWAITS in was.keys() | now.keys():
                continue
            yield f"{word} {key} from {was.get(key)!r} to {now.get(key)!r}"
    foreign = [[one for one in finalizers_of(raw) if one != CLEANUP] for raw in (old, new)]
    if foreign[0] != foreign[1]:
        yield f"finalizers {foreign[0]} to {foreign[1]}"
    shown, shows = (nested(raw, "status", "loadBalancer", "ingress", default=[]) for raw in (old, new))
    if shows and shown != shows:
        yield f"the status to {shows}"


# --- at rest --------------------------------------------------------------------------------------------------------


@dataclass
class Scene:
    """Everything there is, read at one instant."""

    services: dict[tuple[str, str], Raw]
    balancers: dict[str, Raw]  # of our cluster, by name
    pools: list[Raw]
    events: list[Raw]
    orphans: frozenset[str] = frozenset()  # load balancers that may be left, for the orphan sweep

    def primary_of(self, service: Raw) -> Raw | None:
        """The service that a secondary names, where that one can be a primary for it."""
        found = self.services.get(_named(service))
        if found is None or not wants(found) or is_secondary(found) or is_deleting(found):
            return None
        return found

    def balancer_of(self, service: Raw) -> Raw | None:
        return self.balancers.get(name_for(service))

    def users_of(self, primary: Raw) -> list[Raw]:
        """The services that have its address and say so."""
        group = group_of(primary)
        return [raw for raw in self.services.values() if labels_of(raw).get(PRIMARY) == group]


def _named(service: Raw) -> tuple[str, str]:
    namespace, _, name = annotations_of(service).get(PRIMARY, "").rpartition("/")
    return namespace or namespace_of(service), name


def wants(service: Raw) -> bool:
    """Whether it is a load balancer of ours at all."""
    spec = service["spec"]
    return bool(spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass"))


def is_secondary(service: Raw) -> bool:
    return bool(annotations_of(service).get(PRIMARY, "").strip())


def group_of(service: Raw) -> str:
    """What the label of those who share its address says."""
    return f"{namespace_of(service)}.{name_of(service)}"


def shown(service: Raw) -> str:
    return str(nested(service, "status", "loadBalancer", "ingress", 0, "ip", default=""))


def allocated(balancer: Raw | None) -> str:
    return str(nested(balancer, "status", "allocatedAddress", "ip", default=""))


async def look(rig: ServiceRig) -> Scene:
    services = await rig.guest.list(SERVICE)
    balancers = await rig.at_host.list(kinds.LOAD_BALANCER)
    ours = {name_of(raw): raw for raw in balancers if labels_of(raw).get(f"{PROVIDER}/cluster") == CLUSTER}
    return Scene(
        {(namespace_of(raw), name_of(raw)): raw for raw in services},
        ours,
        await rig.at_host.list(kinds.IP_POOL),
        await rig.guest.list(EVENT),
    )


def find_faults(scene: Scene) -> list[str]:
    """Everything that is wrong with load balancers that are at rest."""
    faults = []
    for key, service in scene.services.items():
        faults += [f"service {'/'.join(key)}: {fault}" for fault in _service_faults(scene, service)]
    faults += _leaks(scene)
    faults += _doubles(scene)
    faults += _pool_faults(scene)
    faults += find_floods(scene.events)
    return faults


def _service_faults(scene: Scene, service: Raw) -> Iterable[str]:
    balancer = scene.balancer_of(service)
    if is_deleting(service):
        if CLEANUP in finalizers_of(service) and not scene.users_of(service):
            yield "is still being deleted"
        return
    if not wants(service):
        if not scene.users_of(service):
            yield from _idle_faults(service, balancer)
        return
    if CLEANUP not in finalizers_of(service) and balancer is not None:
        yield "has a load balancer and no finalizer"
    if not is_secondary(service):
        yield from _primary_faults(scene, service, balancer)
        return
    primary = scene.primary_of(service)
    if primary is None or _is_refused(scene, service, primary):
        # It stays as it is, and what it was told is still true.
        if balancer is None:
            yield from _unreserved(service)
        elif ADDRESSES in annotations_of(service):
            yield from _address_faults(service, balancer, is_refused=True)
        return
    if balancer is not None:
        yield f"shares an address and has load balancer {name_of(balancer)}"
    if shown(primary) and annotations_of(service).get(ADDRESSES) != shown(primary):
        yield f"is told {annotations_of(service).get(ADDRESSES)} and its primary has {shown(primary)}"
    if shown(primary) and shown(service) != shown(primary):
        yield f"shows {shown(service)} and its primary has {shown(primary)}"


def _idle_faults(service: Raw, balancer: Raw | None) -> Iterable[str]:
    if service["spec"].get("loadBalancerClass"):
        return
    if shown(service):
        yield f"is no load balancer and shows {shown(service)}"
    if VIP_HOST in annotations_of(service):  # whose node goes on answering for the address
        if balancer is None or CLEANUP not in finalizers_of(service):
            yield f"keeps {VIP_HOST}, and its address is not reserved any more"
        return
    if balancer is not None:
        yield f"is no load balancer and has {name_of(balancer)}"
    if CLEANUP in finalizers_of(service):
        yield "is no load balancer and keeps the finalizer"
    if annotations_of(service).get(ADDRESSES) not in (None, "", *SOMEBODYS):  # empty: it never had one
        yield f"is no load balancer and keeps {ADDRESSES}"


def _primary_faults(scene: Scene, service: Raw, balancer: Raw | None) -> Iterable[str]:
    if balancer is None:
        if _wants_the_impossible(service):
            yield from _unreserved(service)
        else:
            yield "has no load balancer"
        return
    is_refused = _wants_the_impossible(service) or _differs(service, balancer)
    if ADDRESSES in annotations_of(service) or not is_refused:
        yield from _address_faults(service, balancer, is_refused=is_refused)


def _unreserved(service: Raw) -> Iterable[str]:
    """A service that is refused and has nothing on Harvester may show what it shares, or what a person wrote."""
    told = annotations_of(service).get(ADDRESSES, "")
    if labels_of(service).get(PRIMARY) or CLEANUP not in finalizers_of(service):
        return
    if told and told not in SOMEBODYS:
        yield f"is told {told}, which is not reserved for it"


def _wants_the_impossible(service: Raw) -> bool:
    said = annotations_of(service)
    return said.get(IPAM) not in (None, "", "pool", "dhcp") or said.get(NETWORK_OF) == "default/nowhere"


def _differs(service: Raw, balancer: Raw) -> bool:
    """Whether it wants what its load balancer cannot become."""
    said, made_for = annotations_of(service), annotations_of(balancer)
    mode = said.get(IPAM) or "pool"
    return mode != nested(balancer, "spec", "ipam") or said.get(NETWORK_OF, "") != made_for.get(
        f"{PROVIDER}/lb-network", ""
    )


def _address_faults(service: Raw, balancer: Raw, *, is_refused: bool = False) -> Iterable[str]:
    if is_deleting(balancer):
        yield f"has a load balancer that is being deleted: {name_of(balancer)}"
    address, told = allocated(balancer), annotations_of(service).get(ADDRESSES, "")
    if is_refused and told in SOMEBODYS:
        return
    if address and AWAITS in annotations_of(service):
        yield f"has {address}, and kube-vip passes it over"
    if told != address:
        yield f"is told {told or 'no address'} and its load balancer has {address or 'none'}"
    if not address and not _refusal(balancer) and not is_refused:
        yield "waits for its address"
    if address == "0.0.0.0" and not shown(service):
        yield "shows nothing yet"
    if address and address != "0.0.0.0" and shown(service) != address:
        yield f"shows {shown(service) or 'nothing'} and its load balancer has {address}"
    recorded = nested(balancer, "status", "address", default="")
    # A service that is refused is left alone, also in this.
    if shown(service) and recorded != shown(service) and not is_refused:
        yield f"shows {shown(service)} and Harvester was told {recorded or 'nothing'}"


def _refusal(balancer: Raw) -> str:
    found = find_condition(nested(balancer, "status", "conditions"), "Ready")
    return found.message if found is not None and found.status == "False" else ""


def _is_refused(scene: Scene, service: Raw, primary: Raw) -> bool:
    """Whether some other service at the address has one of its ports, or it cannot leave its own address."""
    if scene.users_of(service):
        return True
    network = annotations_of(service).get(NETWORK_OF, "")
    if network and network != annotations_of(primary).get(NETWORK_OF, ""):
        return True
    others = [primary, *(raw for raw in scene.services.values() if _named(raw) == _key(primary))]
    own = _ports(service)
    return any(own & _ports(one) for one in others if uid_of(one) != uid_of(service))


def _key(service: Raw) -> tuple[str, str]:
    return namespace_of(service), name_of(service)


def _ports(service: Raw) -> set[tuple[str, int]]:
    return {(one.get("protocol", "TCP"), one["port"]) for one in nested(service, "spec", "ports", default=[])}


def _leaks(scene: Scene) -> Iterable[str]:
    names = {name_for(raw) for raw in scene.services.values()}
    # Secondaries outlive a primary that was torn away; what they show stays reserved.
    used = {shown(raw) for raw in scene.services.values() if labels_of(raw).get(PRIMARY)}
    for name, balancer in scene.balancers.items():
        if name not in names and name not in scene.orphans and allocated(balancer) not in used:
            who = labels_of(balancer).get(f"{PROVIDER}/serviceName")
            yield f"load balancer {name} of {who} belongs to no service"


def _doubles(scene: Scene) -> Iterable[str]:
    holders: dict[str, set[str]] = defaultdict(set)
    for service in scene.services.values():
        if is_deleting(service) and CLEANUP not in finalizers_of(service):
            continue  # none of ours any more, whatever kube-vip wrote late
        for address in {shown(service), annotations_of(service).get(ADDRESSES, "")}:
            if wants(service) and address not in ("", "0.0.0.0"):
                holders[address].add(labels_of(service).get(PRIMARY) or group_of(service))
    for address, keys in holders.items():
        if len(keys) > 1:
            yield f"{address} is held by {sorted(keys)}"
    count = Counter(
        allocated(raw)
        for raw in scene.balancers.values()
        if nested(raw, "status", "allocatedAddress", "ipPool")
    )
    for address, times in count.items():
        if times > 1:
            yield f"{address} is allocated {times} times"


def _is_for_us(pool: Raw) -> bool:
    scope = nested(pool, "spec", "selector", "scope", 0, default={})
    return scope.get("guestCluster") in ("*", CLUSTER) and scope.get("namespace") in ("*", "default")


def _pool_faults(scene: Scene) -> Iterable[str]:
    rig = sum(nested(pool, "status", "available", default=0) for pool in scene.pools if _is_for_us(pool))
    for name, balancer in scene.balancers.items():
        if rig and not allocated(balancer) and not is_deleting(balancer):
            yield f"load balancer {name} has no address, and there are {rig}: {_refusal(balancer)}"
    held: dict[tuple[str, str], str] = {}
    for pool in scene.pools:
        status = pool.get("status") or {}
        books = status.get("allocated") or {}
        if "total" in status and status["available"] != status["total"] - len(books):
            yield f"pool {name_of(pool)} does not add up: {status}"
        held |= {(name_of(pool), address): holder for address, holder in books.items()}
    known = {f"default/{name}": raw for name, raw in scene.balancers.items()}
    for (pool_name, address), holder in held.items():
        balancer = known.get(holder)
        if balancer is None and holder.startswith(f"default/{CLUSTER}-"):
            yield f"{address} of pool {pool_name} is held by {holder}, which is gone"
        if balancer is not None and allocated(balancer) != address:
            yield f"{address} of pool {pool_name} is held by {holder}, which has {allocated(balancer) or 'none'}"


def find_floods(events: Iterable[Raw]) -> list[str]:
    """Services of which too much was told."""
    count: Counter[str] = Counter()
    for raw in events:
        if nested(raw, "involvedObject", "kind") == "Service":
            count[str(nested(raw, "involvedObject", "uid"))] += raw.get("count") or 1
    return [f"{times} events of one service" for times in count.values() if times > MOST_EVENTS]
