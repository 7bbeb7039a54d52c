"""Live migration controller: an instance moves to another host and keeps its uid (reference 05 §2.5 G)."""

from __future__ import annotations

from datetime import timedelta

from windrow.core.clock import format_time
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.emulator.vms.instances.controller import InstanceController
from windrow.emulator.vms.status import set_phase
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, uid_of
from windrow.kubernetes.resources import ref_of

FINALIZER = "kubevirt.io/migrationJobFinalize"
# The phases that pass at once when the target pod is up.
PREPARATION_PHASES = ("Scheduled", "PreparingTarget", "TargetReady", "Running")
_NO_ANNOTATIONS: dict[str, str | None] = {names.MIGRATION_UID: None, names.MIGRATION_STATE: None}


class MigrationController:
    """The controller of VirtualMachineInstanceMigrations."""

    def __init__(
        self,
        client: AdminClient,
        clock: ScaledClock,
        delays: Delays,
        recorder: EventRecorder,
        instances: InstanceController,
    ) -> None:
        self._client = client
        self._clock = clock
        self._delays = delays
        self._recorder = recorder
        self._instances = instances
        self._timers = StepTimers(clock)
        self._targets: dict[str, str] = {}  # target host by the migration's uid

    async def reconcile(self, key: Key) -> timedelta | None:
        migration = await self._client.find(kinds.MIGRATION.ref(key[1], key[0]))
        if migration is None:
            return None
        name = nested(migration, "spec", "vmiName", default="")
        vmi = await self._client.find(kinds.VMI.ref(name, key[0]))
        is_final = phase_of(migration) in FINAL
        if is_deleting(migration) or is_final:
            if not is_final:
                await self._abort(vmi)
            await self._client.mutate(ref_of(kinds.MIGRATION, migration), remove_finalizer(FINALIZER))
            return None
        if vmi is None or phase_of(vmi) != "Running" or is_deleting(vmi):
            await self._fail(migration, vmi, "the instance does not run")
            return None
        return await self._advance(migration, vmi)

    async def _advance(self, migration: Raw, vmi: Raw) -> timedelta | None:
        uid = uid_of(migration)
        match phase_of(migration):
            case "":
                await self._client.mutate(ref_of(kinds.MIGRATION, migration), add_finalizers(FINALIZER))
                await self._enter(migration, "Pending")
                wanted = {names.MIGRATION_UID: uid, names.MIGRATION_STATE: "Pending migration"}
                await self._client.mutate(ref_of(kinds.VMI, vmi), lambda raw: annotate(raw, wanted))
            case "Pending":
                # Without capacity it waits: a change of Nodes or instances triggers the next reconcile.
                if target := self._instances.find_target(vmi).node:
                    self._targets[uid] = target
                    await self._enter(migration, "Scheduling")
            case "Scheduling":
                if due := self._timers.due(uid, "target", self._delays.pod_start):
                    return due
                await self._begin(migration, vmi)
            case "Running":
                if due := self._timers.due(uid, "copy", self._delays.migration):
                    return due
                await self._finish(migration, vmi)
        return None

    async def _begin(self, migration: Raw, vmi: Raw) -> None:
        state = {
            "migrationUid": uid_of(migration),
            "sourceNode": nested(vmi, "status", "nodeName"),
            "targetNode": self._targets.get(uid_of(migration), ""),
            "targetPod": f"virt-launcher-{name_of(vmi)}-target",
            "startTimestamp": format_time(self._clock.now()),
            "mode": "PreCopy",
        }

        def edit(raw: Raw) -> None:
            raw["status"]["migrationState"] = state
            annotate(raw, {names.MIGRATION_STATE: "Migrating"})

        await self._client.mutate(ref_of(kinds.VMI, vmi), edit)
        await self._enter(migration, *PREPARATION_PHASES)

    async def _finish(self, migration: Raw, vmi: Raw) -> None:
        target = self._targets.pop(uid_of(migration), "")
        if not target or not self._instances.can_move(vmi, target):
            await self._fail(migration, vmi, "source or target host is gone")
            return
        await self._instances.move(vmi, target, self._complete)
        touched = {names.TOUCHED: format_time(self._clock.now())}
        await self._client.mutate(ref_of(kinds.VM, vmi), lambda raw: annotate(raw, touched))
        await self._enter(migration, "Succeeded")
        text = "Source node reported migration succeeded"
        await self._recorder.record(migration, "SuccessfulMigration", text, names.VIRT_CONTROLLER)

    async def _fail(self, migration: Raw, vmi: Raw | None, problem: str) -> None:
        await self._abort(vmi)
        await self._enter(migration, "Failed")
        text = f"Source node reported migration failed: {problem}"
        await self._recorder.record(migration, "FailedMigration", text, names.VIRT_CONTROLLER, "Warning")

    async def _abort(self, vmi: Raw | None) -> None:
        def edit(raw: Raw) -> None:
            annotate(raw, _NO_ANNOTATIONS)
            state = nested(raw, "status", "migrationState")
            if state is not None and not state.get("completed"):
                self._complete(raw, failed=True)

        if vmi is not None:
            await self._client.mutate(ref_of(kinds.VMI, vmi), edit)

    def _complete(self, raw: Raw, **outcome: bool) -> None:
        """Write the end of its migration into an instance."""
        annotate(raw, _NO_ANNOTATIONS)
        state = nested(raw, "status", "migrationState", default={})
        ended = {"endTimestamp": format_time(self._clock.now()), "completed": True, **outcome}
        raw["status"]["migrationState"] = {**state, **ended}

    async def _enter(self, migration: Raw, *phases: str) -> None:
        def edit(raw: Raw) -> None:
            for phase in phases:
                set_phase(raw, phase, self._clock.now())

        await self._client.mutate(ref_of(kinds.MIGRATION, migration), edit, "status")
