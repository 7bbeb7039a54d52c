"""What was done to the machines of a cluster, as it is seen from outside, compared with what `windrow plan` showed before.

Nothing here asks the manager what it did: a VM that is another one was replaced, one that booted was restarted, and a service
that was started without a boot was restarted. The serial consoles say when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from tests.support.simulation import Simulation

from windrow.app.plan import FIELD_MANAGER, ClusterPlan, plan_existing, plan_manifest
from windrow.clusters.api.kinds import CLUSTER, machine_config
from windrow.clusters.api.manifest.supported_fields import Change
from windrow.clusters.change.fields import TURNS
from windrow.demo.cluster import DemoCluster, is_ready
from windrow.emulator import kinds
from windrow.emulator.host.hypervisor import Consoles
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested, uid_of

# As systemd names the services of RKE2 and K3s once they are up.
_SERVICES = ("] Started Rancher Kubernetes Engine", "] Started K3s")
REST_S = 25.0  # how long nothing may have been under way
LEAST_S = 20.0  # an edit of a machine config is no generation of its Cluster: it is seen within this time


@dataclass(frozen=True, slots=True)
class Strike:
    """A moment at which a machine was away: it booted, or its service was started."""

    at_s: float
    machine: str
    is_boot: bool


class WatchedConsoles(Consoles):
    """Serial consoles that remember each boot and each start of a service."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.strikes: list[Strike] = []
        self._now_s = now_s

    def write(self, key: tuple[str, str], line: str) -> None:
        super().write(key, line)
        is_boot = " booting on " in line
        if is_boot or any(one in line for one in _SERVICES):
            self.strikes.append(Strike(self._now_s(), key[1], is_boot))


def watch_consoles(sim: Simulation) -> WatchedConsoles:
    """Consoles that are watched from now on; before the first machine is there."""
    consoles = WatchedConsoles(lambda: sim.clock.monotonic().total_seconds())
    sim.harvester.hypervisor.consoles = consoles
    return consoles


@dataclass(frozen=True, slots=True)
class Inventory:
    """The machines of a cluster at one moment: by name the uid of the VM, and what the consoles had told until then."""

    vms: Mapping[str, str]
    pools: Mapping[str, str]
    servers: frozenset[str]
    told: int
    at_s: float


async def take_inventory(sim: Simulation, stage: DemoCluster, consoles: WatchedConsoles) -> Inventory:
    machines = [raw for raw in await stage.list_machines() if not is_deleting(raw)]
    names = {name_of(raw) for raw in machines}
    vms = {name_of(raw): uid_of(raw) for raw in await sim.harvester_client.list(kinds.VM)}
    return Inventory(
        {name: uid for name, uid in vms.items() if name in names},
        {name_of(raw): raw["spec"]["pool"] for raw in machines},
        frozenset(name_of(raw) for raw in machines if set(raw["spec"]["roles"]) != {"worker"}),
        len(consoles.strikes),
        sim.clock.monotonic().total_seconds(),
    )


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to one machine that was there before: how often it was replaced (at most once), its VM booted, and its service
    started without that; and when first."""

    times: Counter[Change] = field(default_factory=Counter)
    at_s: float = 0.0

    def __str__(self) -> str:
        return ", ".join(f"{count} {change}" for change, count in sorted(self.times.items())) or "nothing"


def find_done(before: Inventory, after: Inventory, consoles: WatchedConsoles) -> dict[str, Done]:
    """By machine what was done to it between the two; a machine that has another VM was replaced."""
    found = {}
    strikes = consoles.strikes[before.told : after.told]
    for name, uid in before.vms.items():
        own = [one for one in strikes if one.machine == name]
        if after.vms.get(name) != uid:
            found[name] = Done(Counter({"replace": 1}), after.at_s)
            continue
        boots = sum(one.is_boot for one in own)
        starts = len(own) - boots
        counts: Counter[Change] = Counter()
        counts["VM restart"], counts["service restart"] = boots, max(0, starts - boots)
        found[name] = Done(+counts, min((one.at_s for one in own), default=0.0))
    return found


# -- predicted = done ----------------------------------------------------------------------------------------------


def _predict_requested(plan: ClusterPlan, *, is_server: bool) -> Counter[Change]:
    """The turns of a machine for what is asked for once."""
    concerned = ("all", "servers") if is_server else ("all",)
    return Counter(one.change for one in plan.requests if one.concerns in concerned)


def predict(plan: ClusterPlan, machine: str, *, is_server: bool = False) -> Counter[Change]:
    """What the plan says of the machine: one that is replaced has no other turn, else each class of its fields is one turn, and
    each request that concerns it another."""
    change, counts = plan.pending.find(machine), _predict_requested(plan, is_server=is_server)
    if change is None:
        return counts
    if change.change == "replace":
        return Counter({"replace": 1})
    classes: Iterable[Change] = {one.change for one in change.fields}
    return counts + Counter({one: 1 for one in classes if one in TURNS})


def find_differences(
    plan: ClusterPlan, before: Inventory, done: Mapping[str, Done], excused: Iterable[str] = ()
) -> list[str]:
    """Where what was done is not what was predicted. `excused` are machines that something else struck meanwhile. Machines of a
    pool that becomes smaller may go."""
    removed = Counter({one.pool: -one.count for one in plan.pools if one.count < 0})
    faults = []
    for name, was in done.items():
        predicted, pool = predict(plan, name, is_server=name in before.servers), before.pools[name]
        if name in excused or was.times == predicted:
            continue
        if _restarts_once_for_all(was.times, predicted, plan):
            continue
        if was.times["replace"] and removed[pool]:
            removed[pool] -= 1
            continue
        told = ", ".join(f"{count} {change}" for change, count in sorted(predicted.items())) or "nothing"
        faults.append(f"{told} was predicted of {name}, and {was} was done")
    return faults


def _restarts_once_for_all(was: Counter[Change], predicted: Counter[Change], plan: ClusterPlan) -> bool:
    """Whether the service started less often than predicted, since a start that comes anyway after a request counts for it."""
    saved = predicted - was
    most = min(len(plan.requests), predicted.total() - 1)
    return not was - predicted and saved.keys() == {"service restart"} and saved.total() <= most


def find_excess(
    plans: Sequence[ClusterPlan],
    before: Inventory,
    done: Mapping[str, Done],
    excused: Iterable[str] = (),
    undone: Mapping[str, Counter[Change]] = MappingProxyType({}),
) -> list[str]:
    """What was done that none of these plans showed, or more often than all of them together. Machines of a pool that becomes
    smaller may go. `undone` are turns that were under way at an edit, and may be undone by others."""
    faults = []
    shrinking = {one.pool for plan in plans for one in plan.pools if one.count < 0}
    for name, was in done.items():
        is_server = name in before.servers
        predicted = sum((predict(plan, name, is_server=is_server) for plan in plans), Counter[Change]())
        if predicted["replace"]:  # one that comes to stay after all restarts for what was asked for meanwhile
            predicted = sum((_predict_requested(plan, is_server=is_server) for plan in plans), predicted)
        excess = was.times - predicted - undone.get(name, Counter())
        if before.pools[name] in shrinking:
            del excess["replace"]
        if excess and name not in excused:
            faults.append(f"{was} was done to {name}, of which the plans showed {dict(predicted)}")
    return faults


def find_disorder(
    plan: ClusterPlan,
    done: Mapping[str, Done],
    servers: Collection[str],
    most_at_once: int = 1,
    excused: Iterable[str] = (),
) -> list[str]:
    """Where machines did not have their turns in the order of the plan, as far as turns under way at once leave one. Servers that
    restart for a request as well follow that one in an order of its own, its leader first: one of the two restarts is seen."""
    turns = [
        one.machine
        for one in plan.pending.turns
        if one.change == "service restart"
        and one.machine not in set(excused)
        and done.get(one.machine, Done()).times == Counter({"service restart": 1})
    ]
    had = sorted(turns, key=lambda name: done[name].at_s)
    if plan.requests:
        had, turns = [_side(name, servers) for name in had], [_side(name, servers) for name in turns]
        return [] if had == turns else [f"turns were predicted of {turns}, and were had by {had}"]
    if any(abs(had.index(name) - place) >= most_at_once for place, name in enumerate(turns)):
        return [f"turns were predicted in the order {turns}, and were had in the order {had}"]
    return []


def _side(name: str, servers: Collection[str]) -> str:
    return "a server" if name in servers else "a worker"


# -- a user with files ---------------------------------------------------------------------------------------------


async def plan_documents(sim: Simulation, documents: Sequence[Raw]) -> ClusterPlan:
    """As `windrow plan FILE` shows it."""
    [plan] = await plan_manifest(documents, sim.management_client, sim.clock.now())
    return plan


async def apply_documents(sim: Simulation, documents: Iterable[Raw]) -> None:
    """As `windrow apply` does it."""
    for raw in documents:
        kind = CLUSTER if raw["kind"] == CLUSTER.kind else machine_config(str(raw["kind"]))
        await sim.management_client.apply(
            kind.ref(name_of(raw), namespace_of(raw)), raw, FIELD_MANAGER, force=True
        )


class NoRest(Exception):
    """The cluster did not come to rest; the message says what it waits for."""


async def until_rest(
    sim: Simulation, stage: DemoCluster, within: timedelta, *, holds: Callable[[], bool] = lambda: False
) -> None:
    """Return once nothing has been under way for a while: every machine is there and Ready, none has a turn, and nothing is
    pending but what is refused, or `holds` back, which is asked at the end of that while. Raises NoRest."""
    end = sim.clock.now() + within
    await sim.advance(seconds=LEAST_S)
    since, is_over = sim.clock.now(), False
    while not is_over:
        is_over = sim.clock.now() >= since + timedelta(seconds=REST_S)
        why = await _find_unrest(sim, stage)
        if why := why or (is_over and await _find_pending(sim, stage, holds())) or "":
            since, is_over = sim.clock.now(), False
            if since > end:
                raise NoRest(why)
        await sim.advance(seconds=5)


async def _find_unrest(sim: Simulation, stage: DemoCluster) -> str:
    cluster, machines = await stage.get_cluster(), await stage.list_machines()
    status = cluster.get("status") or {}
    if status.get("observedGeneration") != cluster["metadata"].get("generation"):
        return f"generation {cluster['metadata'].get('generation')} is not observed"
    for raw in machines:
        if is_deleting(raw) or not is_ready(raw) or nested(raw, "status", "update"):
            return f"Machine {name_of(raw)}: {nested(raw, 'status', 'update') or nested(raw, 'status', 'waiting')}"
    if not is_ready(cluster):
        return f"the Cluster: {status.get('waiting') or status.get('conditions')}"
    return ""


async def _find_pending(sim: Simulation, stage: DemoCluster, is_held: bool) -> str:
    cluster = await stage.get_cluster()
    try:
        plan = await plan_existing(cluster, sim.management_client, sim.clock.now())
    except KubeError as error:
        return str(error)
    if plan.pools and not is_held:
        return f"pools {plan.pools}"
    pending = plan.pending
    waiting = [(one.machine, one.change) for one in pending.machines if one.order or one.change == "live"]
    if not is_held and (waiting or (pending.cluster and not pending.refused)):
        return f"still pending: {waiting}, {pending.cluster}"
    return ""
