"""The virtual machine controllers: Harvester's own, and KubeVirt's virt-controller.

One reconcile reads once, executes at most one step of `run_strategies`, and derives the status at the end, also
without a step. Everything may be repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from windrow.core.clock import format_time
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.core.rng import Rng
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.vm_readings import Vm, read_instance, read_strategy, read_vm
from windrow.emulator.release import Release
from windrow.emulator.vms import quotas
from windrow.emulator.vms.claims import VolumeClaims
from windrow.emulator.vms.declared_volumes import declare_volumes, takes_volumes
from windrow.emulator.vms.run_strategies import (
    CreateInstance,
    DeleteInstance,
    WaitUntil,
    backoff,
    plan_instance,
)
from windrow.emulator.vms.status import derive_status
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.errors import AlreadyExists, KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import ref_of

# Of objects that KubeVirt's controllers have seen.
OBSERVED_VERSIONS = {
    "kubevirt.io/latest-observed-api-version": "v1",
    "kubevirt.io/storage-observed-api-version": "v1",
}
VM_FINALIZERS = (names.CLEANUP_FINALIZER, names.BACKEND_FINALIZER, names.LB_FINALIZER, names.VM_FINALIZER)


class VmController:
    """The VM controller. `on_removed` is called with each VM that is deleted, before its finalizers are removed."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        clock: ScaledClock,
        delays: Delays,
        rng: Rng,
        recorder: EventRecorder,
        on_removed: Callable[[Raw], Awaitable[None]],
        finalizers: tuple[str, ...],
        release: Release,
    ) -> None:
        self._client = client
        self._listers = listers
        self._clock = clock
        self._delays = delays
        self._rng = rng
        self._recorder = recorder
        self._on_removed = on_removed
        self._finalizers = finalizers
        self._release = release
        self._claims = VolumeClaims(client, listers)
        # By uid: the end of a start back-off as the status has it, and by the monotonic clock.
        self._retries: dict[str, tuple[datetime, timedelta]] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        vm = await self._client.find(kinds.VM.ref(key[1], key[0]))
        if vm is None:
            return None
        vmi = await self._client.find(kinds.VMI.ref(key[1], key[0]))
        if vmi is not None and not _owns(vm, vmi):
            vmi = None
        if is_deleting(vm):
            due = await self._remove(vm, vmi)
            await self._update_status(vm, vmi)
            return due
        vm = await self._ensure_finalizers(vm, vmi)
        if vm is None:
            return None
        refused = await self._ensure_claims(vm)
        if await self._halt_over_quota(vm, vmi):
            return self._clock.after(self._delays.controller)
        await self._declare_volumes(vm, vmi)
        due, failure = await self._apply_strategy(vm, vmi)
        await self._update_status(vm, vmi, failure)
        return due or refused

    # --- Harvester ----------------------------------------------------------------------------------------------

    async def _ensure_finalizers(self, vm: Raw, vmi: Raw | None) -> Raw | None:
        """Add finalizers and the annotations of run strategy and, once it has run, of the MAC addresses."""

        def edit(raw: Raw) -> None:
            add_finalizers(*self._finalizers)(raw)
            strategy = read_strategy(raw)
            if strategy != "Halted":
                annotate(raw, {names.RUN_STRATEGY: strategy, names.QUOTA_HALT: None})
            annotate(raw, OBSERVED_VERSIONS)
            if macs := render_mac_annotation(vmi):
                annotate(raw, {names.MAC_ADDRESSES: macs})

        return await self._mutate(vm, edit)

    async def _ensure_claims(self, vm: Raw) -> timedelta | None:
        """A PVC that is refused is retried later; KubeVirt continues meanwhile without it."""
        try:
            await self._claims.ensure(vm)
        except KubeError:
            return self._clock.after(self._delays.claim_retry)
        return None

    async def _halt_over_quota(self, vm: Raw, vmi: Raw | None) -> bool:
        """Harvester halts a VM that exceeds its namespace's quota (reference 05 §2.5 K)."""
        if read_strategy(vm) == "Halted":
            return False
        problem = quotas.find_exceeded_quota(vm, vmi, self._listers)
        if not problem:
            return False

        def edit(raw: Raw) -> None:
            set_strategy(raw, "Halted")
            annotate(raw, {names.QUOTA_HALT: problem})

        await self._mutate(vm, edit)
        text = f"Set runStrategy to Halted: {problem}"
        await self._recorder.record(
            vm, "InsufficientResourceQuota", text, names.HARVESTER_CONTROLLER, "Warning"
        )
        return True

    # --- KubeVirt -----------------------------------------------------------------------------------------------

    async def _apply_strategy(self, vm: Raw, vmi: Raw | None) -> tuple[timedelta | None, Condition | None]:
        now = self._clock.now()
        await self._count_failure(vm, vmi)
        reading, retry_at = self._read(vm, now), None
        if reading.retry_at is not None:
            retry_at = self._clock.monotonic() + (reading.retry_at - now)
        step = plan_instance(reading, read_instance(vmi), now)
        failure = None
        match step:
            case WaitUntil():
                return retry_at, None
            case CreateInstance():
                failure = await self._start(vm)
            case DeleteInstance(then_start=then_start):
                assert vmi is not None
                if then_start:
                    await self._mutate(vm, _request_start, "status")
                await self._stop(vm, vmi)
        if failure is not None:
            return self._clock.after(1.0), failure
        acted_on = read_strategy(vm)
        await self._mutate(
            vm,
            lambda raw: raw.setdefault("status", {}).update(runStrategy=acted_on),
            "status",
        )
        # The back-off is in the status until it is over, also while nothing is to be started.
        is_held = reading.retry_at is not None and now < reading.retry_at
        return (retry_at if is_held else None), None

    async def _declare_volumes(self, vm: Raw, vmi: Raw | None) -> None:
        """The running instance takes over hot-pluggable volumes of the template."""
        if vmi is None or not takes_volumes(vmi) or not self._release.has_declarative_hotplug:
            return
        template = nested(vm, "spec", "template", "spec", default={})
        await self._client.mutate(
            ref_of(kinds.VMI, vmi), lambda raw: declare_volumes(raw, template), uid=uid_of(vmi)
        )

    def _read(self, vm: Raw, now: datetime) -> Vm:
        """The VM, with the end of its back-off as the wall clock of `now` would have written it."""
        reading = read_vm(vm)
        if reading.retry_at is None:
            self._retries.pop(uid_of(vm), None)
            return reading
        known = self._retries.get(uid_of(vm))
        if known is None or known[0] != reading.retry_at:
            due = self._clock.monotonic() + (reading.retry_at - now)
            known = self._retries[uid_of(vm)] = reading.retry_at, due
        return replace(reading, retry_at=now + (known[1] - self._clock.monotonic()))

    async def _start(self, vm: Raw) -> Condition | None:
        name = name_of(vm)
        try:
            await self._client.create(kinds.VMI, render_instance(vm))
        except AlreadyExists:
            return None
        except KubeError as error:
            text = f"Error creating virtual machine instance: {error.message}"
            await self._recorder.record(vm, "FailedCreate", text, names.VIRT_CONTROLLER, "Warning")
            return Condition("Failure", "True", "FailedCreate", error.message)
        text = f"Started the virtual machine by creating the new virtual machine instance {name}"
        await self._recorder.record(vm, "SuccessfulCreate", text, names.VIRT_CONTROLLER)
        return None

    async def _stop(self, vm: Raw, vmi: Raw) -> None:
        if is_deleting(vmi):
            return
        await self._client.delete(kinds.VMI, vmi)
        # The UID, not the name: as shipped.
        text = f"Stopped the virtual machine by deleting the virtual machine instance {uid_of(vmi)}"
        await self._recorder.record(vm, "SuccessfulDelete", text, names.VIRT_CONTROLLER)

    async def _count_failure(self, vm: Raw, vmi: Raw | None) -> None:
        """Count consecutive early failures, for the back-off; a running instance resets them."""
        reading, instance = read_vm(vm), read_instance(vmi)
        if instance is None:
            return
        if instance.phase == "Running" and reading.failures:
            await self._mutate(vm, lambda raw: raw["status"].pop("startFailure", None), "status")
            vm.get("status", {}).pop("startFailure", None)
        if instance.phase != "Failed" or instance.has_run or reading.counted_failure == instance.uid:
            return
        wait = backoff(
            reading.failures + 1,
            self._delays.start_backoff,
            self._delays.start_backoff_cap,
            self._rng.uniform(0, 0.5),
        )
        failure = {
            "consecutiveFailCount": reading.failures + 1,
            "lastFailedVMIUID": instance.uid,
            "retryAfterTimestamp": format_time(self._clock.now() + wait / self._clock.time_scale),
        }
        vm.setdefault("status", {})["startFailure"] = failure
        await self._mutate(
            vm,
            lambda raw: raw.setdefault("status", {}).update(startFailure=failure),
            "status",
        )

    async def _update_status(self, vm: Raw, vmi: Raw | None, failure: Condition | None = None) -> None:
        now = self._clock.now()

        def edit(raw: Raw) -> None:
            raw["status"] = derive_status(raw, vmi, now, failure)

        await self._mutate(vm, edit, "status")

    # --- deletion -----------------------------------------------------------------------------------------------

    async def _remove(self, vm: Raw, vmi: Raw | None) -> timedelta | None:
        """Deletion, in the order of reference 05 §2.5 H. Foreground dependents are deleted by the garbage collector."""
        if vmi is not None:
            await self._stop(vm, vmi)
            return None
        if names.VM_FINALIZER in finalizers_of(vm):
            await self._mutate(vm, remove_finalizer(names.VM_FINALIZER))
            return self._clock.after(self._delays.controller)
        if names.CLEANUP_FINALIZER in finalizers_of(vm):
            await self._claims.remove(vm)
            await self._mutate(vm, remove_finalizer(names.CLEANUP_FINALIZER))
        if names.LB_FINALIZER in finalizers_of(vm):
            await self._on_removed(vm)
        for finalizer in (names.BACKEND_FINALIZER, names.LB_FINALIZER):
            await self._mutate(vm, remove_finalizer(finalizer))
        return None

    async def _mutate(self, vm: Raw, edit: Callable[[Raw], None], subresource: str = "") -> Raw | None:
        return await self._client.mutate(ref_of(kinds.VM, vm), edit, subresource)


def set_strategy(raw: Raw, strategy: str) -> None:
    """Set the run strategy; the deprecated `running` excludes it."""
    raw["spec"].pop("running", None)
    raw["spec"]["runStrategy"] = strategy


def _owns(vm: Raw, vmi: Raw) -> bool:
    return any(one.get("uid") == uid_of(vm) for one in vmi["metadata"].get("ownerReferences") or ())


def _request_start(raw: Raw) -> None:
    raw.setdefault("status", {}).setdefault("stateChangeRequests", []).append({"action": "Start"})


def render_instance(vm: Raw) -> Raw:
    """The instance of a VM: its template, under the VM's own name, owned by it."""
    template = copy.deepcopy(vm["spec"]["template"])
    metadata = template.get("metadata") or {}
    annotations = {
        **(metadata.get("annotations") or {}),
        **OBSERVED_VERSIONS,
        "kubevirt.io/vm-generation": str(nested(vm, "metadata", "generation", default=1)),
    }
    return new_object(
        kinds.VMI,
        name_of(vm),
        namespace_of(vm),
        labels=metadata.get("labels"),
        annotations=annotations,
        finalizers=[names.VMI_FINALIZER],
        owners=[owner_reference(kinds.VM, vm, controller=True, block=True)],
        spec=_with_observed_addresses(vm, template.get("spec") or {}),
    )


def _with_observed_addresses(vm: Raw, spec: Raw) -> Raw:
    """What Harvester's mutator of instances does: an interface without a MAC gets the one that was seen on it."""
    try:
        observed = loads(annotations_of(vm).get(names.MAC_ADDRESSES, "{}"))
    except NotJson:
        return spec
    interfaces = nested(spec, "domain", "devices", "interfaces", default=[])
    missing = [
        one for one in interfaces if not one.get("macAddress") and nested(observed, one.get("name", ""))
    ]
    if not missing:
        return spec
    made = copy.deepcopy(spec)
    for one in made["domain"]["devices"]["interfaces"]:
        one["macAddress"] = one.get("macAddress") or nested(observed, one.get("name", ""), default="")
    return made


def render_mac_annotation(vmi: Raw | None) -> str:
    """The annotation's text: each interface of a running instance with its MAC. "" where it is to stay as it is."""
    if vmi is None or is_deleting(vmi) or nested(vmi, "status", "phase") != "Running":
        return ""
    interfaces = nested(vmi, "status", "interfaces", default=[])
    macs = {one["name"]: one["mac"] for one in interfaces if one.get("name") and one.get("mac")}
    return dumps(dict(sorted(macs.items()))).decode() if interfaces else ""
