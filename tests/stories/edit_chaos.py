"""One random life of a running cluster whose user edits it: what `windrow plan` showed is compared with what was done.

Everything is drawn from the seed: the cluster, and step after step which fields are edited, several at once; whether the next edit
comes at rest or while machines have their turns; which writes of the manager go wrong and how, at which of them it dies, and
which machines are lost meanwhile. After each step all troubles end, and the cluster comes to rest. Then, of each machine:

* edited at rest: what the plan showed was done to it, once, and nothing else; turns were had in the order of the plan;
* edited while machines had their turns: nothing was done to it that none of the plans showed, and nothing more often;
* either way it runs what the files of the user say, as Harvester and the guest show it, and nothing is pending.

Of each VM that was deleted `edit_deletions` names the one cause that it had. In every second life two managers compete: the one
that leads dies, or is cut off in the middle of a write, which arrives when the other one leads (`rivals`).

The rules of `cluster_invariants`, `cluster_instants` and `tests/chaos/invariants.py` hold as in `cluster_chaos`.

    PYTHONHASHSEED=0 python -m tests.stories.edit_chaos 17      # what happened in this life, and what is wrong
    python -m tests.stories.edit_chaos 0 200    # all lives from 0 to 199: those that fail, how many edits, and which

Sets have another order in each process, and with it managers: a life is lived again in the same way where the hashes are the same.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.chaos.history import History
from tests.chaos.invariants import find_silent_waits
from tests.stories.cluster_chaos import follow
from tests.stories.cluster_instants import Instants
from tests.stories.cluster_invariants import Founded, find_claim_faults, find_faults
from tests.stories.cluster_rig import stock
from tests.stories.cluster_topologies import (
    DISTRIBUTIONS,
    NAME,
    NAMESPACE,
    Pool,
    Topology,
    render,
)
from tests.stories.crashes import Lives, Moment
from tests.stories.edit_deletions import Causes, explain_deletions
from tests.stories.observed_changes import (
    Done,
    Inventory,
    NoRest,
    WatchedConsoles,
    apply_documents,
    find_differences,
    find_disorder,
    find_done,
    find_excess,
    plan_documents,
    take_inventory,
    until_rest,
    watch_consoles,
)
from tests.stories.rivals import Rivals
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.app.plan import ClusterPlan, plan_existing
from windrow.bootstrap.charts import HELM_CHART_CONFIG
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import ETCD_SNAPSHOT, IP_ADDRESS, MACHINE
from windrow.clusters.api.manifest.supported_fields import Change
from windrow.clusters.api.names import CANARY, RETRY_UPDATE, STRATEGY
from windrow.clusters.plan.operations.snapshots import MAX_TRIES
from windrow.core.formats.yaml import load
from windrow.core.rng import Rng
from windrow.demo.cluster import DemoCluster, is_ready
from windrow.emulator import kinds
from windrow.emulator.faults import (
    CONFLICT,
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    WRITES,
    Fault,
    Refuse,
    render_refusal,
)
from windrow.emulator.kit.inventory import Item, inventory
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import KubeError, OutcomeUnknown
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    uid_of,
)
from windrow.kubernetes.requests import Reply, Request, WatchEvent, put_subresource
from windrow.kubernetes.resources import CONFIG_MAP, NODE, PVC, ApiResource

PATIENCE = timedelta(hours=3)
MOST_DOWN_S, TOLD_WITHIN_S = 20.0, 40.0
TELL_EACH = 5  # lives
VERSIONS = ("v1.34.7", "v1.34.8", "v1.35.4", "v1.35.5")
REFUSED_VERSIONS = ("v1.38.0", "v1.33.1", "latest")
IMAGES = ("default/jammy", "default/noble")
SHAPES = (
    "1 ecw",
    "1 ecw",
    "1 ec, 1 w",
    "1 ec, 2 w",
    "1 ec, 2 w",
    "3 ec, 2 w",
    "3 e, 2 c, 1 w",
    "1 e, 1 c, 2 w",
)


# -- the line of the manager ---------------------------------------------------------------------------------------------


SQUALL_WORDS = ("a squall", "429", "etcdserver: leader changed")
EFFECTS: tuple[Refuse | str, ...] = (CONFLICT, INTERNAL_ERROR, TOO_MANY_REQUESTS, "lost before", "lost after")


@dataclass
class Squalls:
    """While they blow, one of `each` writes of the manager goes wrong, wherever it goes: Harvester, the management API, a guest."""

    rng: Rng
    each: int = 20
    blow: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def draw(self, request: Request) -> Refuse | str:
        if request.is_read or not self.blow or self.rng.below(self.each):
            return ""
        effect = EFFECTS[self.rng.below(len(EFFECTS))]
        if effect is CONFLICT and request.method not in ("PUT", "PATCH"):
            return ""
        self.seen[effect if isinstance(effect, str) else str(effect.status)] += 1
        return effect


class SquallyTransport:
    """A transport through squalls."""

    def __init__(self, inner: Transport, squalls: Squalls) -> None:
        self._inner, self._squalls = inner, squalls

    async def send(self, request: Request) -> Reply:
        effect = self._squalls.draw(request)
        if isinstance(effect, Refuse):
            return render_refusal(effect)
        if effect == "lost before":
            raise OutcomeUnknown("connection reset by peer (a squall, before the server saw the request)")
        reply = await self._inner.send(request)
        if effect == "lost after":
            raise OutcomeUnknown("connection reset by peer (a squall, after the server executed the request)")
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class Deaths:
    """The fate of the managers: while they happen, death before or after one of `each` writes, and of four times as many of a
    class that none died at yet; one of `each_cut` cuts its process off instead, where there is another one."""

    rng: Rng
    each: int = 25
    each_cut: int = 40
    happen: bool = False
    ask_at_s: float | None = None
    seen: Counter[str] = field(default_factory=Counter)

    def strikes(self, moment: Moment) -> bool:
        if not self.happen or not moment.write:
            return False
        what = f"died {moment.when} {moment.what}"
        if self.rng.below(self.each if self.seen[what] else max(2, self.each // 4)):
            return False
        self.seen[what] += 1
        return True

    def cuts(self, moment: Moment) -> bool:
        if not self.happen or self.rng.below(self.each_cut):
            return False
        self.seen[f"cut off in {moment.what}"] += 1
        return True

    def draw_delay_s(self) -> float:
        return (20.0, 45.0, 120.0, 400.0)[self.rng.below(4)]


# -- a life --------------------------------------------------------------------------------------------------------------


class RecordingInstants(Instants):
    """Instants that remember each Machine as it was last. One that is being deleted counts in no pool: another is created before
    its VM is gone."""

    machines: dict[str, Raw]
    history: History

    async def look(self, kind: ApiResource, before: Raw | None, after: Raw | None) -> None:
        if kind == MACHINE and after is not None:
            self.machines[name_of(after)] = after
            if is_deleting(after):
                self.history.held |= {name_of(after)}
        await super().look(kind, before, after)


@dataclass
class Life:
    """One run: the files of the user (`documents`), what happened (`lines`), and what happened by kind (`seen`)."""

    sim: Simulation
    rng: Rng
    topology: Topology
    stage: DemoCluster
    history: History
    instants: RecordingInstants
    consoles: WatchedConsoles
    deaths: Deaths
    squalls: Squalls
    documents: list[Raw]
    lines: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)  # uids of VMs that the run itself deleted
    struck: set[str] = field(default_factory=set)  # names of machines that the run itself struck
    ever_struck: set[str] = field(default_factory=set)  # also before the present step
    undone: dict[str, Counter[Change]] = field(default_factory=dict)  # turns under way as the user edited
    at_rest: list[Raw] = field(default_factory=list)  # the documents when the step began
    version: str = (
        ""  # the newest that was asked for, without the distribution's suffix: no machine goes back from it
    )
    steps: list[list[Raw]] = field(default_factory=list)  # the documents of the step, one after the other
    applied: list[Raw] = field(default_factory=list)  # rkeConfigs of servers that came and went again
    edits: int = 0
    snapshots: int = 0
    restores: int = 0

    def log(self, what: str) -> None:
        self.lines.append(f"{self.sim.clock.monotonic().total_seconds():8.1f} s  {what}")

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.rng.below(len(options))]

    @property
    def suffix(self) -> str:
        return "+k3s1" if self.topology.distribution == "k3s" else "+rke2r1"


# -- edits ---------------------------------------------------------------------------------------------------------------

# An edit changes the documents in place, and says what it changed; "" where it has nothing to change now.
Edit = Callable[[Life, list[Raw]], str]


def _spec(documents: list[Raw]) -> Raw:
    return documents[-1]["spec"]  # type: ignore[no-any-return]


def _rke(documents: list[Raw]) -> Raw:
    return _spec(documents)["rkeConfig"]  # type: ignore[no-any-return]


def _pool(life: Life, documents: list[Raw]) -> Raw:
    return life.pick(_rke(documents)["machinePools"])  # type: ignore[no-any-return]


def _annotations(documents: list[Raw]) -> Raw:
    return documents[-1]["metadata"].setdefault("annotations", {})  # type: ignore[no-any-return]


def upgrade(life: Life, documents: list[Raw]) -> str:
    place = VERSIONS.index(life.version)
    if place + 1 == len(VERSIONS):
        return ""
    life.version = VERSIONS[place + 1]
    _spec(documents)["kubernetesVersion"] = wanted = f"{life.version}{life.suffix}"
    return f"kubernetesVersion: {wanted}"


def upgrade_wrongly(life: Life, documents: list[Raw]) -> str:
    wanted = life.pick(REFUSED_VERSIONS)
    wanted += life.suffix if wanted.startswith("v") else ""
    _spec(documents)["kubernetesVersion"] = wanted
    return f"kubernetesVersion: {wanted}, which is refused"


def set_kubelet_arg(life: Life, documents: list[Raw]) -> str:
    value = f"max-pods={100 + life.rng.below(100)}"
    _rke(documents)["machineGlobalConfig"]["kubelet-arg"] = [value]
    return f"machineGlobalConfig.kubelet-arg: {value}"


def set_server_key(life: Life, documents: list[Raw]) -> str:
    value = f"audit-log-maxage={life.rng.below(30)}"
    _rke(documents)["machineGlobalConfig"]["kube-apiserver-arg"] = [value]
    return f"machineGlobalConfig.kube-apiserver-arg: {value}"


def set_selected(life: Life, documents: list[Raw]) -> str:
    role = life.pick(("worker", "etcd", "control-plane"))
    debug = bool(life.rng.below(2))
    selector = {"matchLabels": {f"rke.cattle.io/{role}-role": "true"}}
    entry = {"machineLabelSelector": selector, "config": {"debug": debug}}
    _rke(documents)["machineSelectorConfig"] = [entry]
    return f"machineSelectorConfig of {role}: debug={debug}"


def set_registries(life: Life, documents: list[Raw]) -> str:
    host = f"mirror-{life.rng.below(9)}.example"
    _rke(documents)["registries"] = {"mirrors": {"quay.io": {"endpoint": [f"https://{host}"]}}}
    return f"registries: {host}"


def set_environment(life: Life, documents: list[Raw]) -> str:
    value = f"10.{life.rng.below(99)}.0.0/16"
    _spec(documents)["agentEnvVars"] = [{"name": "NO_PROXY", "value": value}]
    return f"agentEnvVars: NO_PROXY={value}"


def set_chart_values(life: Life, documents: list[Raw]) -> str:
    value = life.rng.below(100)
    _rke(documents)["chartValues"] = {CHART[life.topology.distribution]: {"motto": value}}
    return f"chartValues: {value}"


def set_manifest(life: Life, documents: list[Raw]) -> str:
    value = life.rng.below(100)
    _rke(documents)["additionalManifest"] = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, namespace: default}\n"
        f'data: {{motto: "{value}"}}\n'
    )
    return f"additionalManifest: {value}"


def set_labels(life: Life, documents: list[Raw]) -> str:
    pool, value = _pool(life, documents), str(life.rng.below(100))
    pool["labels"] = {life.pick(("tier", "team")): value}
    return f"pool {pool['name']} labels: {pool['labels']}"


def set_taints(life: Life, documents: list[Raw]) -> str:
    pool, value = _pool(life, documents), str(life.rng.below(100))
    pool["taints"] = [{"key": "db", "value": value, "effect": "PreferNoSchedule"}]
    return f"pool {pool['name']} taints: {value}"


def set_etcd(life: Life, documents: list[Raw]) -> str:
    value = 3 + life.rng.below(9)
    _rke(documents)["etcd"] = {"snapshotRetention": value}
    return f"etcd.snapshotRetention: {value}"


def set_cpus(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    config["cpuCount"] = life.pick(("2", "3", "4"))
    return f"{name_of(config)} cpuCount: {config['cpuCount']}"


def set_memory(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    config["memorySize"] = life.pick(("4", "5", "6"))
    return f"{name_of(config)} memorySize: {config['memorySize']}"


def set_affinity(life: Life, documents: list[Raw]) -> str:
    config, value = life.pick(documents[:-1]), str(life.rng.below(9))
    term = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": "room", "operator": "In", "values": [value]}]},
    }
    config["vmAffinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return f"{name_of(config)} vmAffinity: room {value}"


def _disk(config: Raw) -> tuple[str, int]:
    disk = load(config["diskInfo"])["disks"][0]
    return disk["imageName"], disk["size"]


def _set_disk(config: Raw, image: str, size: int) -> None:
    config["diskInfo"] = f'{{"disks":[{{"imageName":"{image}","size":{size},"bootOrder":1}}]}}'


def grow_disk(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    image, size = _disk(config)
    _set_disk(config, image, size + 1 + life.rng.below(5))
    return f"{name_of(config)} disk: {_disk(config)}"


def set_image(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    image, size = _disk(config)
    _set_disk(config, IMAGES[1 - IMAGES.index(image)], size)
    return f"{name_of(config)} disk: {_disk(config)}"


def shrink_disk(life: Life, documents: list[Raw]) -> str:
    """A smaller disk is another disk."""
    config = life.pick(documents[:-1])
    image, size = _disk(config)
    _set_disk(config, image, size - 1)
    return f"{name_of(config)} disk: {_disk(config)}, smaller"


def set_firmware(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    config["enableEfi"] = not config.get("enableEfi", False)
    return f"{name_of(config)} enableEfi: {config['enableEfi']}"


def set_model(life: Life, documents: list[Raw]) -> str:
    config = life.pick(documents[:-1])
    [card] = (
        load(str(config["networkInfo"]))["interfaces"]
        if isinstance(config["networkInfo"], str)
        else config["networkInfo"]["interfaces"]
    )
    model = life.pick(("virtio", "e1000"))
    config["networkInfo"] = {"interfaces": [{**card, "model": model}]}
    return f"{name_of(config)} card: {model}"


def scale(life: Life, documents: list[Raw]) -> str:
    """Workers alone: servers that are added or removed are `cluster_chaos`'."""
    workers = [
        one for one in _rke(documents)["machinePools"] if not (one["etcdRole"] or one["controlPlaneRole"])
    ]
    if not workers:
        return ""
    pool = life.pick(workers)
    pool["quantity"] = life.pick([one for one in range(4) if one != pool["quantity"]])
    return f"pool {pool['name']} quantity: {pool['quantity']}"


def set_strategy(life: Life, documents: list[Raw]) -> str:
    drain = {"enabled": bool(life.rng.below(2)), "timeout": 120}
    strategy = {
        "workerConcurrency": life.pick(("1", "2", "50%")),
        "workerDrainOptions": drain,
        "controlPlaneDrainOptions": drain,
    }
    _rke(documents)["upgradeStrategy"] = strategy
    return f"upgradeStrategy: {strategy['workerConcurrency']}, drain {drain['enabled']}"


def set_rolling_update(life: Life, documents: list[Raw]) -> str:
    pool = _pool(life, documents)
    pool["rollingUpdate"] = life.pick(
        (
            {"maxSurge": "1", "maxUnavailable": "0"},
            {"maxSurge": "0", "maxUnavailable": "1"},
            {"maxSurge": "2", "maxUnavailable": "0"},
            {"maxSurge": "50%", "maxUnavailable": "50%"},
        )
    )
    return f"pool {pool['name']} rollingUpdate: {pool['rollingUpdate']}"


def replace_machines(life: Life, documents: list[Raw]) -> str:
    found = _annotations(documents)
    if found.pop(STRATEGY, None) is None:
        found[STRATEGY] = "replace"
    return f"strategy: {found.get(STRATEGY)}"


def request_snapshot(life: Life, documents: list[Raw]) -> str:
    life.snapshots += 1
    _rke(documents)["etcdSnapshotCreate"] = {"generation": life.snapshots}
    return f"etcdSnapshotCreate: {life.snapshots}"


def rotate(life: Life, documents: list[Raw], field: str) -> str:
    """Not where it waits until the cluster is resumed, and is a request of another step then."""
    if _is_held(documents):
        return ""
    before = _rke(documents).get(field, {}).get("generation", 0)
    _rke(documents)[field] = {"generation": before + 1}
    return f"{field}: {before + 1}"


def renew_certificates(life: Life, documents: list[Raw]) -> str:
    return rotate(life, documents, "rotateCertificates")


def rotate_keys(life: Life, documents: list[Raw]) -> str:
    """K3s has none unless it is told to."""
    return rotate(life, documents, "rotateEncryptionKeys") if life.topology.distribution == "rke2" else ""


def rotate_token(life: Life, documents: list[Raw]) -> str:
    """Not where a server without etcd is among them: it starts by what another server gives it for the new token, and which of them
    takes that already is not waited for."""
    if any(pool.roles == "c" for pool in life.topology.pools):
        return ""
    return rotate(life, documents, "rotateToken")


def pause(life: Life, documents: list[Raw]) -> str:
    if _is_rotated(life, documents):
        return ""
    _spec(documents)["paused"] = True
    return "paused"


def _is_rotated(life: Life, documents: list[Raw]) -> bool:
    """Whether this step asks for a rotation."""
    return any(_rke(documents).get(field) != _rke(life.at_rest).get(field) for field in ROTATIONS)


def set_canary(life: Life, documents: list[Raw]) -> str:
    if _is_rotated(life, documents):
        return ""
    _annotations(documents)[CANARY] = "1"
    return "canary: 1"


CHART = {"rke2": "rke2-coredns", "k3s": "harvester-cloud-provider"}
EDITS: tuple[Edit, ...] = (
    *(upgrade, upgrade, upgrade_wrongly),
    *(set_kubelet_arg, set_kubelet_arg, set_server_key, set_selected, set_registries, set_environment),
    *(set_chart_values, set_manifest, set_labels, set_taints, set_etcd),
    *(set_cpus, set_memory, set_affinity, grow_disk),
    *(set_image, shrink_disk, set_firmware, set_model),
    *(scale, scale, set_strategy, set_rolling_update, replace_machines),
    *(request_snapshot, renew_certificates, rotate_keys, rotate_token, pause, set_canary),
)
ROTATIONS = ("rotateCertificates", "rotateEncryptionKeys", "rotateToken")


def draw_edits(life: Life, count: int) -> tuple[list[Raw], list[str]]:
    """The documents with so many edits more, of different kinds; what was held or refused before is let go first."""
    documents = deepcopy(life.documents)
    told = _let_go(life, documents)
    while len(told) < count:
        edit = life.pick(EDITS)
        if what := edit(life, documents):
            told.append(what)
            life.seen[f"edit {edit.__name__}"] += 1
    return documents, told


def _let_go(life: Life, documents: list[Raw]) -> list[str]:
    told = []
    if _spec(documents).pop("paused", None):
        told.append("no longer paused")
    if _annotations(documents).pop(CANARY, None):
        told.append("no canary any more")
    version = f"{life.version}{life.suffix}"
    if _is_refused(life, documents):
        _spec(documents)["kubernetesVersion"] = version
        told.append(f"kubernetesVersion: {version} again")
    life.seen.update(f"edit back: {one.partition(':')[0]}" for one in told)
    return told


def _is_refused(life: Life, documents: list[Raw]) -> bool:
    """Whether the version is one that no machine goes to, or one that some of them may have left already."""
    return bool(_spec(documents)["kubernetesVersion"] != f"{life.version}{life.suffix}")


def _is_held(documents: list[Raw]) -> bool:
    return bool(_spec(documents).get("paused") or _annotations(documents).get(CANARY))


# -- one step ------------------------------------------------------------------------------------------------------------


async def _step(life: Life) -> list[str]:
    """Edits under a storm; then its end, rest, and what is wrong."""
    life.asked.clear()
    life.struck.clear()
    life.undone.clear()
    life.steps.clear()
    life.history.deleted.clear()
    life.instants.quorum_excused = False
    life.at_rest = life.documents
    before = await take_inventory(life.sim, life.stage, life.consoles)
    snapshot = "" if life.rng.below(4) else await _pick_snapshot(life)
    plans = [await _edit(life, snapshot=snapshot)]
    life.deaths.each, life.deaths.happen = life.pick((10, 25, 60)), bool(life.rng.below(4))
    life.squalls.each, life.squalls.blow = life.pick((8, 25, 60)), bool(life.rng.below(4))
    while not snapshot and not life.rng.below(3) and len(plans) < 3:
        await life.sim.advance(seconds=life.pick((1, 10, 45, 120, 300)))
        plans.append(await _edit(life, life.pick((True, False, False))))
    if not snapshot and not life.rng.below(4):
        await life.sim.advance(seconds=life.pick((5, 30, 90)))
        await _strike(life)
    await life.sim.advance(seconds=life.pick((60, 200, 600)))
    life.deaths.happen = life.squalls.blow = False
    life.log("all troubles are over")
    await life.sim.advance(seconds=TOLD_WITHIN_S)
    faults = await _silent(life)
    await _retry(life)
    held = _is_held(life.documents)
    try:
        await until_rest(life.sim, life.stage, PATIENCE, holds=lambda: held)
    except NoRest as unrest:
        await _log_unrest(life)
        return [*faults, f"no rest: {unrest}"]
    life.log("at rest")
    _remember_applied(life, before)
    after = await take_inventory(life.sim, life.stage, life.consoles)
    if snapshot:
        faults += await _check_restore(life, plans, before)
    else:
        faults += _compare(life, plans, before, after)
    if not held:
        faults += await find_not_running(life)
    return faults


# What is asked for once, and not taken back.
_REQUESTS = {*ROTATIONS, "etcdSnapshotCreate", "etcdSnapshotRestore"}


async def _log_unrest(life: Life) -> None:
    """What the machines, their consoles and the Nodes say."""
    life.log(f"    Cluster: {nested(await life.stage.get_cluster(), 'status', 'waiting')}")
    for raw in await life.stage.list_machines():
        life.log(
            f"    {name_of(raw)} joined through {raw['spec']['joinServer']}: {raw['status'].get('waiting')}"
        )
        life.lines += [f"        {one}" for one in life.sim.harvester.console("default", name_of(raw))[-6:]]
    with suppress(KubeError):
        for raw in await (await life.stage.guest_client()).list(NODE):
            ready = find_condition(nested(raw, "status", "conditions", default=()), "Ready")
            life.log(f"    Node {name_of(raw)}: {ready}")


async def _pick_snapshot(life: Life) -> str:
    """One of the cluster, on the disk of a machine that is there; "" for none. A Node that is not in its data would not be
    registered anew before its machine restarts, so all have to be older."""
    names = {name_of(raw) for raw in await life.stage.list_machines()}
    nodes = await (await life.stage.guest_client()).list(NODE)
    since = max(raw["metadata"]["creationTimestamp"] for raw in nodes)
    found = []
    for raw in await life.sim.management_client.list(ETCD_SNAPSHOT, NAMESPACE):
        file = raw["snapshotFile"]
        is_fit = file["nodeName"] in names and str(file.get("createdAt", "")) > since
        if is_fit and nested(raw, "status", "openable") == "True":
            found.append(name_of(raw))
    return str(life.pick(sorted(found))) if found else ""


async def _edit(life: Life, is_back: bool = False, snapshot: str = "") -> ClusterPlan:
    former = life.documents
    if snapshot:
        life.restores += 1
        life.instants.quorum_excused = True
        documents = deepcopy(life.documents)
        _rke(documents)["etcdSnapshotRestore"] = {"name": snapshot, "generation": life.restores}
        told = [*_let_go(life, documents), f"etcdSnapshotRestore: {snapshot}"]
        life.seen["edit restore"] += 1
    elif is_back and former is not life.at_rest:
        documents, told = deepcopy(life.at_rest), ["everything back"]
        requested = _REQUESTS & _rke(former).keys()
        _rke(documents).update({field: _rke(former)[field] for field in requested})
        if _is_rotated(life, documents):  # which would wait until the cluster is resumed
            told += _let_go(life, documents)
        life.seen["edit back"] += 1
    else:
        documents, told = draw_edits(life, 1 + life.rng.below(8))
    life.edits += len(told)
    await stock(life.sim, documents)
    plan = await plan_documents(life.sim, documents)
    life.log(f"{'; '.join(told)}")
    for line in _told(plan):
        life.log(f"    {line}")
    _limit(life, documents)
    if former is not life.at_rest:
        await _count_turns(life, documents)
    life.documents = documents
    life.steps.append(documents)
    await apply_documents(life.sim, documents)
    return plan


async def _count_turns(life: Life, documents: list[Raw]) -> None:
    """A turn whose Job may run goes on to its end, and the edit may ask for what the machine was before it: its Machine records that
    until then, so that no plan shows the turn back."""
    for raw in await life.stage.list_machines():
        update = nested(raw, "status", "update", default={})
        if update.get("change") == "service restart" and update.get("step") == "Apply":
            back: Change = "replace" if _annotations(documents).get(STRATEGY) else "service restart"
            life.undone.setdefault(name_of(raw), Counter())[back] += 1


def _told(plan: ClusterPlan) -> Iterator[str]:
    for one in plan.pending.machines:
        yield f"{one.order or '-'} {one.machine}: {one.change} ({one.changed})"
    for request in plan.requests:
        yield f"request: {request.path}"
    if plan.held:
        yield f"held: {plan.held}"


def _limit(life: Life, documents: list[Raw]) -> None:
    """No pool may have more machines than its quantity, then or now, and those of its rollout."""
    quantities = [
        {pool["name"]: pool["quantity"] for pool in _rke(one)["machinePools"]}
        for one in (life.documents, documents)
    ]
    limits = dict(life.history.limits)
    for each in quantities:
        for name, quantity in each.items():
            limits[name] = max(limits.get(name, 0), quantity + 2)
    life.history.limits = limits


async def _strike(life: Life) -> None:
    """A machine that others can do without is lost, stopped, or away for a while."""
    machines = [raw for raw in await life.stage.list_machines() if not is_deleting(raw) and is_ready(raw)]
    members = sum("etcd" in raw["spec"]["roles"] for raw in machines)
    may = [raw for raw in machines if raw["spec"]["roles"] == ["worker"] or members >= 3]
    may = [
        raw for raw in may if "control-plane" not in raw["spec"]["roles"] or "etcd" in raw["spec"]["roles"]
    ]
    if any(nested(raw, "status", "update") for raw in machines if raw["spec"]["roles"] != ["worker"]):
        may = [raw for raw in may if raw["spec"]["roles"] == ["worker"]]
    if not may:
        return
    name = name_of(life.pick(may))
    vm = await life.sim.harvester_client.find(VM.ref(name, "default"))
    if vm is None:
        return
    life.struck.add(name)
    life.ever_struck.add(name)
    life.instants.quorum_excused = members < 5
    kind = life.pick(("lost", "stopped", "away"))
    life.seen[f"machine {kind}"] += 1
    life.log(f"VirtualMachine {name} is {kind}")
    if kind == "lost":
        life.asked.add(uid_of(vm))
        life.instants.named.add(uid_of(vm))
        await life.sim.harvester_client.delete(VM.ref(name, "default"), "Foreground")
        return
    with suppress(KubeError):
        await life.sim.harvester_client.call(put_subresource(VM_ACTIONS.ref(name, "default"), "stop"))
    if kind == "away":
        fault = life.sim.harvester.faults.add(Fault(INTERNAL_ERROR, WRITES, name=name))
        await life.sim.advance(minutes=life.pick((2, 4, 8)))
        life.sim.harvester.faults.end(fault)


async def _retry(life: Life) -> None:
    """A turn fails where its machine is struck meanwhile, and goes on as the status says."""
    for raw in await life.stage.list_machines():
        if name_of(raw) in life.struck and nested(raw, "status", "update", "failure"):
            life.log(f"the turn of {name_of(raw)} is tried again")
            change = {"metadata": {"annotations": {RETRY_UPDATE: ""}}}
            await life.sim.management_client.patch(MACHINE.ref(name_of(raw), NAMESPACE), change)


async def _silent(life: Life) -> list[str]:
    raws = [await life.stage.get_cluster(), *await life.stage.list_machines()]
    return find_silent_waits([(name_of(raw), is_ready(raw), raw.get("status") or {}) for raw in raws])


# -- predicted = done ----------------------------------------------------------------------------------------------------


def _compare(life: Life, plans: list[ClusterPlan], before: Inventory, after: Inventory) -> list[str]:
    done = find_done(before, after, life.consoles)
    for name, was in done.items():
        life.log(f"    {name}: {was}")
        life.seen.update(f"done: {one}" for one in was.times)
    undone = {name for name, turns in life.undone.items() if turns["replace"]}
    may_go = life.struck | undone
    faults = _explain(life, Causes(plans, life.asked, may_go, life.instants.machines, set(before.vms)))
    if len(plans) == 1 and not _is_held(life.documents):
        life.seen["compared whole"] += 1
        faults += find_differences(plans[0], before, done, life.struck)
        # Which server joins are made through, which has its turn last, changes where one is replaced meanwhile.
        is_rolled = any(one.change == "replace" for one in plans[0].pending.machines)
        if not life.struck and not is_rolled:
            concurrency = 2 if _rke(life.documents).get("upgradeStrategy") else 1
            faults += find_disorder(plans[0], done, before.servers, concurrency)
        return faults
    life.seen["compared by excess"] += 1
    if len(plans) == 1 and _spec(life.documents).get("paused"):
        plans = [replace(plans[0], pending=replace(plans[0].pending, machines=()), requests=())]
    elif len(plans) == 1:
        faults += _find_beyond_canary(life, plans[0], before, done)
    return faults + find_excess(plans, before, done, life.struck, life.undone)


def _explain(life: Life, causes: Causes) -> list[str]:
    explained, faults = explain_deletions(life.history.deleted, causes)
    for name, cause in explained.items():
        life.log(f"    {name} was deleted: {cause.value}")
        life.seen[f"deleted: {cause.value}"] += 1
    return faults


async def _check_restore(life: Life, plans: list[ClusterPlan], before: Inventory) -> list[str]:
    """The servers are those of the snapshot's data or were made anew; no worker was, but where a plan says so."""
    status = (await life.stage.get_cluster())["status"]
    phase, run = status.get("etcdSnapshotRestorePhase"), status.get("etcdSnapshotRestoreRun") or {}
    life.log(f"    the restore is {phase} {run.get('message', '')}")
    life.seen[f"restore {phase}"] += 1
    may_go = before.servers if phase == "Finished" else frozenset[str]()
    machines, names = life.instants.machines, set(before.vms)
    faults = _explain(life, Causes(plans, life.asked, may_go, machines, names, is_restored=True))
    if nested(status, "etcdSnapshotRestore", "generation") != life.restores:
        faults.append(
            f"restore {life.restores} was asked for, and {status.get('etcdSnapshotRestore')} is told"
        )
    if phase not in ("Finished", "Failed") or (phase == "Failed" and not run.get("message")):
        faults.append(f"the restore is {phase}: {run.get('message')}")
    return faults


def _remember_applied(life: Life, before: Inventory) -> None:
    """A server that came in this step and went again has applied what it was made with, which stays until another one starts."""
    life.applied.clear()
    gone = {vm.name for vm in life.history.deleted} - set(before.vms)
    machines = [life.instants.machines.get(name) or {} for name in gone]
    if any("control-plane" in nested(one, "spec", "roles", default=()) for one in machines):
        life.applied = [_rke(documents) for documents in life.steps]


def _find_beyond_canary(
    life: Life, plan: ClusterPlan, before: Inventory, done: Mapping[str, Done]
) -> list[str]:
    """A canary is one machine of the pools that still have outdated ones: a pool that is done counts no more."""
    turns = {one.machine for one in plan.pending.turns}
    changed = [name for name in turns if done[name].times and name not in life.struck]
    pools = {before.pools[name] for name in turns - set(changed)}
    changed = [name for name in changed if before.pools[name] in pools]
    if len(changed) > 1 and not plan.requests and not plan.pools:
        return [f"{changed} were changed, and the canary is 1 machine"]
    return []


# What a machine may have as it was made, where it is refused another in its place.
OF_NEW_MACHINES = ("CPUs", "memory", "EFI", "disk", "kubelet-arg")


async def _list_refused(life: Life) -> frozenset[str]:
    """The machines of which a change is refused: with maxSurge 0, the servers that the cluster cannot do without."""
    plan = await plan_existing(
        await life.stage.get_cluster(), life.sim.management_client, life.sim.clock.now()
    )
    found = [
        one.machine for one in plan.pending.machines if any(each.change == "refused" for each in one.fields)
    ]
    life.seen["at rest with a refused change"] += bool(found)
    return frozenset(found)


async def find_not_running(life: Life) -> list[str]:
    """What the machines, their Nodes and the guest do not have of the user's files."""
    faults: list[str] = []
    guest = await life.stage.guest_client()
    nodes = {name_of(raw): raw for raw in await guest.list(NODE)}
    vms = {name_of(raw): raw for raw in await life.sim.harvester_client.list(VM)}
    claims = {name_of(raw): raw for raw in await life.sim.harvester_client.list(PVC)}
    pools = {pool["name"]: pool for pool in _rke(life.documents)["machinePools"]}
    configs = {name_of(raw).removeprefix("nc-"): raw for raw in life.documents[:-1]}
    refused = await _list_refused(life)
    for machine in await life.stage.list_machines():
        name, pool = name_of(machine), machine["spec"]["pool"]
        config, node, vm = configs[pool], nodes[name], vms[name]
        domain = nested(vm, "spec", "template", "spec", "domain")
        [claim] = machine["status"]["driverConfig"]["WindrowClaims"]
        args = next(text for key, text in annotations_of(node).items() if key.endswith("/node-args"))
        labels = {key: value for key, value in labels_of(node).items() if key in ("tier", "team")}
        taints = [one["value"] for one in nested(node, "spec", "taints", default=()) if one["key"] == "db"]
        if life.restores:  # Nodes have those of the snapshot, and no record tells that
            labels = pools[pool].get("labels", {})
            taints = [one["value"] for one in pools[pool].get("taints", ())]
            args = str(_rke(life.documents)["machineGlobalConfig"].get("kubelet-arg"))
        found = {
            "version": nested(node, "status", "nodeInfo", "kubeletVersion"),
            "CPUs": str(domain["cpu"]["cores"]),
            "memory": domain["resources"]["limits"]["memory"],
            "EFI": bool(nested(domain, "firmware", "bootloader", "efi")),
            "disk": nested(claims[claim], "spec", "resources", "requests", "storage"),
            "labels": labels,
            "taints": taints,
            "kubelet-arg": [
                one
                for one in _rke(life.documents)["machineGlobalConfig"].get("kubelet-arg", ())
                if one not in args
            ],
        }
        wanted = {
            "version": found["version"]
            if _is_refused(life, life.documents)
            else f"{life.version}{life.suffix}",
            "CPUs": config["cpuCount"],
            "memory": f"{config['memorySize']}Gi",
            "EFI": config.get("enableEfi", False),
            "disk": f"{_disk(config)[1]}Gi",
            "labels": pools[pool].get("labels", {}),
            "taints": [one["value"] for one in pools[pool].get("taints", ())],
            "kubelet-arg": [],
        }
        faults += [
            f"{name} has {key} {found[key]}, and {wanted[key]} is asked for"
            for key in wanted
            if found[key] != wanted[key] and not (name in refused and key in OF_NEW_MACHINES)
        ]
    if manifest := _rke(life.documents).get("additionalManifest"):
        site = await guest.find(CONFIG_MAP.ref("site", "default"))
        manifests = [manifest, *(str(one.get("additionalManifest")) for one in life.applied)]
        if site is None or not any(f'"{site["data"]["motto"]}"' in one for one in manifests):
            faults.append(f"ConfigMap site is {site and site['data']}, and the manifest is {manifest}")
    charts = _rke(life.documents).get("chartValues") if life.topology.distribution == "rke2" else {}
    for chart, values in (charts or {}).items():
        raw = await guest.find(HELM_CHART_CONFIG.ref(chart, "kube-system"))
        mottos = [values["motto"], *(nested(one, "chartValues", chart, "motto") for one in life.applied)]
        if raw is None or not any(f"motto: {one}" in raw["spec"]["valuesContent"] for one in mottos):
            faults.append(f"HelmChartConfig {chart} is {raw and raw['spec']}, and {values} are asked for")
    if life.snapshots:
        status = (await life.stage.get_cluster())["status"]
        made = nested(status, "etcdSnapshotCreate", "generation"), status.get("etcdSnapshotCreatePhase")
        run = status.get("etcdSnapshotCreateRun")
        if made != (life.snapshots, "Finished") and not _is_failed_by_squalls(made, life, run or {}):
            faults.append(f"snapshot {life.snapshots} was asked for, and {made} is told: {run}")
    return faults


def _is_failed_by_squalls(made: tuple[int, str], life: Life, run: Raw) -> bool:
    """Whether each member that made none was struck itself, or has had as many refusals as it may, of the squalls' making."""
    failed = {name: node for name, node in (run.get("nodes") or {}).items() if not node.get("snapshot")}
    return made == (life.snapshots, "Failed") and all(
        name in life.ever_struck
        or (node["tries"] >= MAX_TRIES and any(one in node["message"] for one in SQUALL_WORDS))
        for name, node in failed.items()
    )


# -- a whole life --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    seed: int
    lines: tuple[str, ...]
    faults: tuple[str, ...]
    edits: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)


def draw_shape(rng: Rng) -> Topology:
    """A small cluster."""
    shape = SHAPES[rng.below(len(SHAPES))]
    parts = [one.split() for one in shape.split(", ")]
    drains = bool(rng.below(2))
    pools = [Pool(f"p{place}", roles, int(count), drains) for place, (count, roles) in enumerate(parts)]
    distribution = list(DISTRIBUTIONS)[rng.below(len(DISTRIBUTIONS))]
    addresses = ("dhcp", "static")[rng.below(2)]
    endpoint = ("firstServer", "firstServer", "loadBalancer")[rng.below(3)]
    if any(pool.roles == "c" for pool in pools):
        endpoint = "loadBalancer"  # a server without etcd asks at each start, and the one that it asked may be replaced
    return Topology(distribution, endpoint, addresses, tuple(pools))


def live(seed: int) -> Outcome:
    """The life of this seed. The same seed gives the same life."""
    return run_driven(_live(seed))


class SquallyLives(Lives):
    """Lives whose lines lead through squalls."""

    squalls: Squalls

    def through(self, inner: Transport) -> Transport:
        return SquallyTransport(inner, self.squalls)


class SquallyRivals(Rivals):
    """Two managers whose lines lead through squalls."""

    squalls: Squalls

    def through(self, inner: Transport) -> Transport:
        return SquallyTransport(inner, self.squalls)


async def _live(seed: int) -> Outcome:
    rng = Rng(f"edits/{seed}")
    topology = draw_shape(rng)
    async with simulation(seed=seed, with_manager=False) as sim:
        consoles = watch_consoles(sim)
        documents = render(topology)
        for mode in topology.modes:
            if mode.prepare is not None:
                await mode.prepare(sim)
        founded = Founded(sim)
        other = deepcopy(documents)
        for config in other[:-1]:
            _set_disk(config, IMAGES[1], 40)
        await stock(sim, [*documents, *other[:-1]])
        before = await inventory(sim.harvester.api)
        history = History(NAME)
        instants = RecordingInstants(sim, founded, topology.ranges, topology.drains)
        instants.machines, instants.history = {}, history
        deaths, squalls = Deaths(rng), Squalls(rng)
        stage = sim.cluster(NAME, NAMESPACE, PATIENCE)
        life = Life(sim, rng, topology, stage, history, instants, consoles, deaths, squalls, documents)
        life.version = VERSIONS[0]
        life.log(str(topology))
        _limit(life, documents)
        down_s, is_one = rng.uniform(0, MOST_DOWN_S), bool(seed % 2)
        lives: SquallyLives | SquallyRivals
        lives = (
            SquallyLives(sim, [deaths] * 1000, down_s)
            if is_one
            else SquallyRivals(sim, deaths, deaths, sim.rng, down_s)
        )
        lives.squalls = squalls
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(follow(sim, history, instants, kind))
                for kind in (kinds.VM, kinds.VMI, kinds.LOAD_BALANCER, PVC, MACHINE, IP_ADDRESS)
            ]
            tasks.append(group.create_task(lives.run()))
            await apply_documents(sim, documents)
            await stage.wait_for_settled()
            faults = await _steps(life, before, founded)
            for task in tasks:
                task.cancel()
        life.log(f"the manager died {len(lives.deaths)} times")
        if isinstance(lives, Rivals):
            life.log(f"it was cut off {len(lives.cut)} times; late were {', '.join(map(str, lives.late))}")
            life.seen.update(f"arrived late: {one.what} -> {one.status}" for one in lives.late)
            life.seen["arrived while another led"] += sum(one.is_stale for one in lives.late)
        found = dict.fromkeys([*history.faults, *instants.faults, *faults])
        seen = life.seen + squalls.seen + deaths.seen
        seen += Counter({"death of the manager": len(lives.deaths), f"{2 - is_one} managers": 1})
        return Outcome(seed, tuple(life.lines), tuple(found), life.edits, seen + Counter(topology.words))


async def _steps(life: Life, before: frozenset[Item], founded: Founded) -> list[str]:
    await until_rest(life.sim, life.stage, PATIENCE)
    for _ in range(3 + life.rng.below(4)):
        faults = await _step(life)
        if not faults and not _is_held(life.documents):
            faults += await find_faults(life.sim, life.stage, before, founded)
            machines = await life.stage.list_machines()
            faults += await find_claim_faults(life.sim, machines, life.topology.claims_each)
        if faults or life.history.faults or life.instants.faults:
            return faults
    return []


def main(first: int, end: int | None) -> int:
    logging.disable(logging.CRITICAL)
    if end is None:
        outcome = live(first)
        print("\n".join((*outcome.lines, "", *(outcome.faults or ("all is well",)))))
        return bool(outcome.faults)
    gc.freeze()
    gc.set_threshold(50_000)
    lived, broken, edits, seen = 0, 0, 0, Counter[str]()
    for seed in range(first, end):
        outcome = live(seed)
        lived, broken, edits = lived + 1, broken + bool(outcome.faults), edits + outcome.edits
        seen += Counter(outcome.seen)
        if outcome.faults:
            print("\n".join((*outcome.lines, f"seed {seed}: {'; '.join(outcome.faults)}")), flush=True)
        if lived % TELL_EACH == 0:
            print(
                f"seeds {first} to {seed} were lived: {edits} edits, {broken} lives with faults", flush=True
            )
    print("\n".join(f"{seen[what]:8}  {what}" for what in sorted(seen)))
    print(f"{lived} lives with {edits} edits, {broken} with faults")
    return bool(broken)


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    sys.exit(main(numbers[0], numbers[1] if len(numbers) > 1 else None))
