"""Maintenance mode of hosts, as Harvester's controllers do it: cordoned, VMs migrated or shut down, then `completed`.

The annotation `harvesterhci.io/drain-requested` on a Node asks for it. It is refused, by removing the annotation, while a VM
there cannot migrate, unless `harvesterhci.io/drain-forced` says that such VMs are shut down. VMs whose label
`harvesterhci.io/maintain-mode-strategy` asks for a shutdown get one, and are started again when the host is in maintenance mode
(`…AfterEnable`) or has left it (`…AfterDisable`). `harvesterhci.io/maintain-status` is `running`, then `completed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from windrow.emulator import kinds, names
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import NODE

PARALLEL_MIGRATIONS = 2  # from one host: setting kubevirt-migration, parallelOutboundMigrationsPerNode
AFTER_ENABLE, AFTER_DISABLE = "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable"
SHUTDOWNS = ("Shutdown", AFTER_ENABLE, AFTER_DISABLE)
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd")


@dataclass(frozen=True, slots=True)
class Refuse:
    """The host does not enter maintenance mode."""

    because: str


@dataclass(frozen=True, slots=True)
class Drain:
    """One step: VMs to shut down, those of them to start again later, instances to migrate now. `is_done` where none is left."""

    stop: tuple[Key, ...] = ()
    start_later: tuple[Key, ...] = ()
    migrate: tuple[Key, ...] = ()
    is_done: bool = False


def instances_on(host: str, instances: Iterable[Raw]) -> list[Raw]:
    """The instances on a host, in the order of their keys."""
    found = [
        one for one in instances if nested(one, "status", "nodeName") == host and phase_of(one) not in FINAL
    ]
    return sorted(found, key=key_of)


def plan_drain(
    node: Raw, nodes: Iterable[Raw], instances: Iterable[Raw], migrations: Iterable[Raw]
) -> Refuse | Drain:
    """The next step towards maintenance mode of the host."""
    if why := _find_control_plane_obstacle(node, nodes):
        return Refuse(why)
    here = instances_on(name_of(node), instances)
    if not here:
        return Drain(is_done=True)
    is_forced = names.DRAIN_FORCED in annotations_of(node)
    stuck = {key_of(one): why for one in here if (why := why_stuck(one))}
    if stuck and not is_forced:
        listed = "; ".join(f"{'/'.join(key)} cannot be migrated due to {why}" for key, why in stuck.items())
        return Refuse(
            f"Non-migratable VMs found: {listed}. Use 'force drain' to perform a collective shutdown"
        )
    # A forced drain shuts down what cannot migrate and heeds no label.
    modes = {} if is_forced else {key_of(one): labels_of(one).get(names.MAINTAIN_MODE, "") for one in here}
    asked = [key for key, mode in modes.items() if mode in SHUTDOWNS]
    stop = tuple(stuck) if is_forced else tuple(asked)
    moving = {
        (one["metadata"]["namespace"], nested(one, "spec", "vmiName"))
        for one in migrations
        if phase_of(one) not in FINAL
    }
    waiting = [key for key in map(key_of, here) if key not in stop]
    under_way = [key for key in waiting if key in moving]
    free = max(PARALLEL_MIGRATIONS - len(under_way), 0)
    return Drain(
        stop,
        tuple(key for key in asked if modes[key] in (AFTER_ENABLE, AFTER_DISABLE)),
        tuple(key for key in waiting if key not in moving)[:free],
    )


def _find_control_plane_obstacle(node: Raw, nodes: Iterable[Raw]) -> str:
    """Why the control plane of the Harvester cannot spare the host, "" where it can."""
    if not any(label in labels_of(node) for label in CONTROL_PLANE_LABELS):
        return ""
    members = [one for one in nodes if any(label in labels_of(one) for label in CONTROL_PLANE_LABELS)]
    prefix = "draining of this node is not possible"
    if len(members) == 1:
        return f"{prefix}: single controlplane cluster, cannot place controlplane in maintenance mode"
    if any(names.MAINTAIN_STATUS in annotations_of(one) for one in members):
        return (
            f"{prefix}: another controlplane is already in maintenance mode, cannot place current node in "
            "maintenance mode"
        )
    return ""


def why_stuck(vmi: Raw) -> str:
    """The reason why the instance cannot migrate, "" where it can."""
    found = find_condition(nested(vmi, "status", "conditions"), "LiveMigratable")
    return found.reason if found is not None and found.status == "False" else ""


def concerns(node: Raw) -> bool:
    """Whether a change of machines may be what the host's maintenance waits for."""
    marks = annotations_of(node)
    return names.DRAIN_REQUESTED in marks or marks.get(names.MAINTAIN_STATUS) == "running"


class MaintenanceController:
    """Keys are those of Nodes. Everything may be repeated."""

    def __init__(self, client: AdminClient, listers: Listers, log: Callable[[str], None]) -> None:
        self._client = client
        self._listers = listers
        self._log = log

    async def reconcile(self, key: Key) -> timedelta | None:
        node = await self._client.find(NODE.ref(key[1]))
        if node is None:
            return None
        listers = self._listers
        if names.DRAIN_REQUESTED in annotations_of(node):
            nodes, instances = listers.nodes.values(), listers.instances.values()
            match plan_drain(node, nodes, instances, listers.migrations.values()):
                case Refuse(because):
                    self._log(f"enabling maintenance mode of {key[1]} is impossible: {because}")
                    await self._annotate(key[1], {names.DRAIN_REQUESTED: None, names.DRAIN_FORCED: None})
                case Drain() as step:
                    await self._drain(key[1], step)
            return None
        is_running = annotations_of(node).get(names.MAINTAIN_STATUS) == "running"
        if is_running and not instances_on(key[1], listers.instances.values()):
            await self._start(key[1], AFTER_ENABLE)
            await self._annotate(key[1], {names.MAINTAIN_STATUS: "completed"})
        return None

    async def end(self, host: str) -> None:
        """End maintenance mode, as the action of Harvester's UI does: uncordoned, and the VMs that wait for it start."""
        await self._client.mutate(NODE.ref(host), lambda raw: raw["spec"].pop("unschedulable", None))
        await self._annotate(host, {names.MAINTAIN_STATUS: None})
        await self._start(host, AFTER_DISABLE)

    async def _drain(self, host: str, step: Drain) -> None:
        await self._client.mutate(NODE.ref(host), lambda raw: raw["spec"].update(unschedulable=True))
        for namespace, name in step.start_later:
            vm = kinds.VM.ref(name, namespace)
            await self._client.mutate(vm, lambda raw: annotate(raw, {names.MAINTAIN_HOST: host}))
        for namespace, name in step.stop:
            await self._client.mutate(kinds.VM.ref(name, namespace), halt)
        for namespace, name in step.migrate:
            raw = new_object(kinds.MIGRATION, "", namespace, spec={"vmiName": name})
            raw["metadata"] = {"generateName": "kubevirt-evacuation-", "namespace": namespace}
            await self._client.create(kinds.MIGRATION, raw)
        if step.is_done:
            done = {names.DRAIN_REQUESTED: None, names.DRAIN_FORCED: None, names.MAINTAIN_STATUS: "running"}
            await self._annotate(host, done)

    async def _start(self, host: str, mode: str) -> None:
        """Start the VMs that were shut down for the host and have this strategy."""
        for key, vm in sorted(self._listers.vms.items()):
            is_asked = labels_of(vm).get(names.MAINTAIN_MODE) == mode
            if is_asked and annotations_of(vm).get(names.MAINTAIN_HOST) == host:
                await self._client.mutate(kinds.VM.ref(key[1], key[0]), _start_again)

    async def _annotate(self, host: str, wanted: Mapping[str, str | None]) -> None:
        await self._client.mutate(NODE.ref(host), lambda raw: annotate(raw, wanted))


def halt(raw: Raw) -> None:
    """Shut the VM down, and leave it off."""
    raw["spec"].pop("running", None)
    raw["spec"]["runStrategy"] = "Halted"


def _start_again(raw: Raw) -> None:
    raw["spec"]["runStrategy"] = annotations_of(raw).get(names.RUN_STRATEGY) or "RerunOnFailure"
    annotate(raw, {names.MAINTAIN_HOST: None})
