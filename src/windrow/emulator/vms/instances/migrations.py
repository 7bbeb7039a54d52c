"""Live migration controller: an instance moves to another host and keeps its uid (reference 05 §2.5 G)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from windrow.core.clock import format_time
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.vm_readings import phase_of
from windrow.emulator.vms.instances.controller import InstanceController
from windrow.emulator.vms.scheduler import Unschedulable
from windrow.emulator.vms.status import enter_phase
from windrow.kubernetes.objects import Raw, finalizers_of, is_deleting, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import ObjectRef

FINALIZER = "kubevirt.io/migrationJobFinalize"
FINAL_PHASES = frozenset({"Succeeded", "Failed"})
# The phases that pass at once when the target pod is up.
PREPARATION_PHASES = ("Scheduled", "PreparingTarget", "TargetReady", "Running")


class MigrationController:
    """The controller of VirtualMachineInstanceMigrations."""

    def __init__(
        self,
        client: AdminClient,
        pace: ScaledClock,
        delays: Delays,
        recorder: EventRecorder,
        instances: InstanceController,
    ) -> None:
        self._client = client
        self._pace = pace
        self._delays = delays
        self._recorder = recorder
        self._instances = instances
        self._began: dict[tuple[str, str], datetime] = {}
        self._targets: dict[str, str] = {}

    async def reconcile(self, key: Key) -> datetime | None:
        order = await self._client.find(kinds.MIGRATION.ref(key[1], key[0]))
        if order is None:
            return None
        vmi = await self._client.find(kinds.VMI.ref(nested(order, "spec", "vmiName", default=""), key[0]))
        phase = phase_of(order)
        if is_deleting(order):
            await self._abort(order, vmi, phase)
            return None
        if phase in FINAL_PHASES:
            await self._update(order, _remove_finalizer)
            return None
        if vmi is None or phase_of(vmi) != "Running" or is_deleting(vmi):
            await self._fail(order, vmi, "the instance does not run")
            return None
        return await self._advance(order, vmi, phase)

    async def _advance(self, order: Raw, vmi: Raw, phase: str) -> datetime | None:
        match phase:
            case "":
                await self._update(order, _add_finalizer)
                await self._enter(order, "Pending")
                await self._annotate(vmi, uid_of(order), "Pending migration")
                return None
            case "Pending":
                found = self._instances.find_target(vmi)
                if isinstance(found, Unschedulable):
                    return (
                        None  # waits for capacity; a change of Nodes or instances triggers the next reconcile
                    )
                self._targets[uid_of(order)] = found.host
                await self._enter(order, "Scheduling")
                return None
            case "Scheduling":
                due = self._due(order, "target", self._delays.pod_start)
                if due is None:
                    await self._begin(order, vmi)
                return due
            case "Running":
                due = self._due(order, "copy", self._delays.migration)
                if due is None:
                    await self._finish(order, vmi)
                return due
            case _:
                return None

    def _due(self, order: Raw, what: str, seconds: float) -> datetime | None:
        """The instant at which the step is done; None when it has passed."""
        began = self._began.setdefault((uid_of(order), what), self._pace.now())
        due = self._pace.after(seconds, began)
        return due if self._pace.now() < due else None

    async def _begin(self, order: Raw, vmi: Raw) -> None:
        target = self._targets.get(uid_of(order), "")
        state = {
            "migrationUid": uid_of(order),
            "sourceNode": nested(vmi, "status", "nodeName"),
            "targetNode": target,
            "targetPod": f"virt-launcher-{name_of(vmi)}-target",
            "startTimestamp": format_time(self._pace.now()),
            "mode": "PreCopy",
        }

        def edit(raw: Raw) -> None:
            raw["status"]["migrationState"] = state
            raw["metadata"].setdefault("annotations", {})[names.MIGRATION_STATE] = "Migrating"

        await self._client.mutate(_vmi_ref(vmi), edit)
        await self._enter(order, *PREPARATION_PHASES)

    async def _finish(self, order: Raw, vmi: Raw) -> None:
        target = self._targets.pop(uid_of(order), "")
        if not target or not self._instances.can_move(vmi, target):
            await self._fail(order, vmi, "source or target host is gone")
            return
        await self._instances.move(vmi, target, _complete_state(self._pace.now()))
        await self._client.mutate(
            kinds.VM.ref(name_of(vmi), namespace_of(vmi)),
            lambda raw: (
                raw["metadata"]
                .setdefault("annotations", {})
                .update({names.TOUCHED: format_time(self._pace.now())})
            ),
        )
        await self._enter(order, "Succeeded")
        text = "Source node reported migration succeeded"
        await self._recorder.record(order, "SuccessfulMigration", text, names.VIRT_CONTROLLER)

    async def _fail(self, order: Raw, vmi: Raw | None, problem: str) -> None:
        await self._clear_state(vmi, failed=True)
        await self._enter(order, "Failed")
        text = f"Source node reported migration failed: {problem}"
        await self._recorder.record(order, "FailedMigration", text, names.VIRT_CONTROLLER, "Warning")

    async def _abort(self, order: Raw, vmi: Raw | None, phase: str) -> None:
        """Abort the migration of a deleted object, unless it is final."""
        if phase not in FINAL_PHASES:
            await self._clear_state(vmi, failed=True)
        await self._update(order, _remove_finalizer)

    async def _annotate(self, vmi: Raw, uid: str, state: str) -> None:
        wanted = {names.MIGRATION_UID: uid, names.MIGRATION_STATE: state}

        def edit(raw: Raw) -> None:
            raw["metadata"].setdefault("annotations", {}).update(wanted)

        await self._client.mutate(_vmi_ref(vmi), edit)

    async def _clear_state(self, vmi: Raw | None, *, failed: bool) -> None:
        if vmi is None:
            return

        def edit(raw: Raw) -> None:
            _remove_annotations(raw)
            state = nested(raw, "status", "migrationState")
            if state is not None and not state.get("completed"):
                ended = {"endTimestamp": format_time(self._pace.now()), "completed": True, "failed": failed}
                raw["status"]["migrationState"] = {**state, **ended}

        await self._client.mutate(_vmi_ref(vmi), edit)

    async def _enter(self, order: Raw, *phases: str) -> None:
        def edit(raw: Raw) -> None:
            for phase in phases:
                raw["status"] = enter_phase(raw.get("status") or {}, phase, self._pace.now())

        await self._client.mutate(_ref(order), edit, "status")

    async def _update(self, order: Raw, edit: Callable[[Raw], None]) -> None:
        await self._client.mutate(_ref(order), edit)


def _complete_state(now: datetime) -> Callable[[Raw], None]:
    def edit(raw: Raw) -> None:
        _remove_annotations(raw)
        state = nested(raw, "status", "migrationState", default={})
        raw["status"]["migrationState"] = {**state, "endTimestamp": format_time(now), "completed": True}

    return edit


def _remove_annotations(raw: Raw) -> None:
    for name in (names.MIGRATION_UID, names.MIGRATION_STATE):
        (raw["metadata"].get("annotations") or {}).pop(name, None)


def _add_finalizer(raw: Raw) -> None:
    if FINALIZER not in finalizers_of(raw):
        raw["metadata"]["finalizers"] = [*finalizers_of(raw), FINALIZER]


def _remove_finalizer(raw: Raw) -> None:
    raw["metadata"]["finalizers"] = [one for one in finalizers_of(raw) if one != FINALIZER]


def _ref(order: Raw) -> ObjectRef:
    return kinds.MIGRATION.ref(name_of(order), namespace_of(order))


def _vmi_ref(vmi: Raw) -> ObjectRef:
    return kinds.VMI.ref(name_of(vmi), namespace_of(vmi))
