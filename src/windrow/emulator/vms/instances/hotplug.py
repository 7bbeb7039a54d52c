"""Volumes that are plugged into a running instance and unplugged from it: `status.volumeStatus` and the attachment pod.

A volume of the spec goes Pending → Bound → AttachedToNode → MountedToPod → Ready, each phase after a stated delay; one that
the spec has no more goes Detaching → UnMountedFromPod and is gone. Two parts of KubeVirt share the work: virt-controller
follows the claim and runs one attachment pod with all volumes of the instance, another for each change; virt-handler mounts
them and plugs them into the domain. All volumes advance side by side, in one write of the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windrow.emulator import names
from windrow.emulator.host.persistent_volumes import attach_problem
from windrow.emulator.host.volumes import needs_consumer
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.vm_readings import is_hotpluggable
from windrow.emulator.vms.instances.context import AttachmentPod, InstanceContext, InstanceRecord
from windrow.emulator.vms.instances.devices import find_free_target, read_disks
from windrow.emulator.vms.instances.hardware import claims_by_name
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import PVC, ref_of

BEFORE_ATTACHMENT = ("", "Pending", "Bound")
ON_POD = frozenset({"AttachedToNode", "MountedToPod", "Ready", "Detaching"})


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a hot-plugged volume: its reason, its message, and who records it as an event."""

    name: str
    reason: str
    message: str
    component: str = ""


def _phases(volume: str) -> dict[str, Phase]:
    """The phases of a volume whose texts are of its name alone."""
    known = (
        Phase("MountedToPod", "VolumeMountedToPod", f"Volume {volume} has been mounted in virt-launcher pod", names.VIRT_HANDLER),
        Phase("Ready", "VolumeReady", f"Successfully attach hotplugged volume {volume} to VM", names.VIRT_HANDLER),
        Phase("UnMountedFromPod", "VolumeUnMountedFromPod", f"Volume {volume} has been unmounted from virt-launcher pod", names.VIRT_HANDLER),
    )  # fmt: skip
    return {one.name: one for one in known}


def phase_of_claim(claim: Raw | None, namespace: str, name: str) -> Phase:
    """The phase of a volume that is not attached yet, which is that of its claim."""
    if claim is None:
        return Phase("Pending", "FailedPvcNotFound", f"PVC {namespace}/{name} not found")
    phase = "Bound" if nested(claim, "status", "phase") == "Bound" else "Pending"
    return Phase(phase, "PVCNotReady", f"PVC is in phase {phase}")


def is_finished(vmi: Mapping[str, Any]) -> bool:
    """Whether each hot-plugged volume of the spec is Ready, and no other one is left in the status."""
    wanted = {str(one["name"]) for one in nested(vmi, "spec", "volumes", default=[]) if is_hotpluggable(one)}
    found = {
        str(one["name"]): one.get("phase")
        for one in nested(vmi, "status", "volumeStatus", default=[])
        if "hotplugVolume" in one
    }
    return found.keys() == wanted and all(phase == "Ready" for phase in found.values())


class HotplugPass:
    """One pass over the hot-plugged volumes of an instance: the new status, and when something is due next."""

    def __init__(self, context: InstanceContext, vmi: Raw, record: InstanceRecord) -> None:
        self._context = context
        self._vmi = vmi
        self._record = record
        self._namespace = namespace_of(vmi)
        self._claims = claims_by_name(context, vmi)
        self._entries: list[Raw] = [dict(one) for one in nested(vmi, "status", "volumeStatus", default=[])]
        self._events: list[Phase] = []
        self._due: timedelta | None = None

    async def run(self) -> timedelta | None:
        """Advance every volume as far as it is due, and write what changed. May be repeated."""
        wanted = {
            str(one["name"]): one for one in self._vmi["spec"].get("volumes") or () if is_hotpluggable(one)
        }
        disks = {
            str(one["name"]): one
            for one in nested(self._vmi, "spec", "domain", "devices", "disks", default=[])
        }
        for name, volume in wanted.items():
            await self._plug(name, volume, disks.get(name))
        for entry in [one for one in self._entries if "hotplugVolume" in one and one["name"] not in wanted]:
            self._unplug(entry)
        await self._follow_pod()
        await self._write()
        return self._due

    # --- plugging in --------------------------------------------------------------------------------------------

    async def _plug(self, name: str, volume: Raw, disk: Raw | None) -> None:
        entry = self._entry(name)
        claim_name = str(nested(volume, "persistentVolumeClaim", "claimName", default=name))
        claim = self._claims.get(claim_name)
        delays = self._context.delays
        if entry.get("phase", "") in BEFORE_ATTACHMENT:
            found = phase_of_claim(claim, self._namespace, claim_name)
            _enter(entry, found)
            if claim is not None and needs_consumer(claim, self._context.listers):
                await self._select_node(claim)
            if found.name != "Bound" or disk is None or self._is_early(name, "attach", delays.hotplug_attach):
                return
            entry["phase"] = "AttachedToNode"  # with the name of the pod, once there is one
        match entry["phase"]:
            case "AttachedToNode" if nested(entry, "hotplugVolume", "attachPodName"):
                if claim is not None and attach_problem(claim, self._context.listers):
                    self._restart(name, "mount")  # its pod waits for the volume
                elif not self._is_early(name, "mount", delays.hotplug_mount):
                    self._advance(entry, "MountedToPod")
            case "MountedToPod":
                if not self._is_early(name, "ready", delays.hotplug_ready):
                    entry["target"] = find_free_target(
                        disk or {}, [one.get("target", "") for one in self._entries]
                    )
                    self._advance(entry, "Ready")

    async def _select_node(self, claim: Raw) -> None:
        chosen = {names.SELECTED_NODE: self._record.host}
        await self._context.client.mutate(ref_of(PVC, claim), lambda raw: annotate(raw, chosen))

    def _entry(self, name: str) -> Raw:
        found = next((one for one in self._entries if one["name"] == name), None)
        if found is None or "hotplugVolume" not in found:
            self._entries = [one for one in self._entries if one["name"] != name]
            found = {"name": name, "target": "", "hotplugVolume": {}}
            self._entries.append(found)
        if found.get("phase") in ("Detaching", "UnMountedFromPod"):  # it was wanted again while it left
            found.update(phase="", target="", hotplugVolume={})
            for step in ("unplug", "release"):
                self._restart(name, step)
        return found

    # --- unplugging ---------------------------------------------------------------------------------------------

    def _unplug(self, entry: Raw) -> None:
        name, delays = str(entry["name"]), self._context.delays
        for step in ("attach", "mount", "ready"):
            self._restart(name, step)
        if entry.get("phase", "") in BEFORE_ATTACHMENT:
            self._entries.remove(entry)
            return
        if entry["phase"] not in ("Detaching", "UnMountedFromPod"):
            pod = nested(entry, "hotplugVolume", "attachPodName", default="")
            text = f"Deleted hotplug attachment pod {pod}, for volume {name}"
            self._enter(entry, Phase("Detaching", "SuccessfulDelete", text, names.VIRT_CONTROLLER))
        if entry["phase"] == "Detaching" and not self._is_early(name, "unplug", delays.hotplug_unplug):
            entry["target"] = ""
            self._advance(entry, "UnMountedFromPod")
        if entry["phase"] == "UnMountedFromPod" and not self._is_early(
            name, "release", delays.hotplug_release
        ):
            self._entries.remove(entry)
            for step in ("unplug", "release"):
                self._restart(name, step)

    # --- attachment pod -----------------------------------------------------------------------------------------

    async def _follow_pod(self) -> None:
        """One pod with all volumes that are attached or to be attached; a change of them is another pod."""
        held = [one for one in self._entries if one.get("phase") in ON_POD and "hotplugVolume" in one]
        claims = tuple(sorted({self._claim_of(one) for one in held}))
        pod = self._record.attachment
        if (pod.claims if pod else ()) != claims:
            pod = await self._context.replace_attachment_pod(self._vmi, self._record, claims)
        if pod is not None:
            self._name_pod(held, pod)

    def _name_pod(self, held: list[Raw], pod: AttachmentPod) -> None:
        for entry in held:
            is_new = not nested(entry, "hotplugVolume", "attachPodName")
            entry["hotplugVolume"] = {"attachPodName": pod.name, "attachPodUID": pod.uid}
            if is_new and entry["phase"] == "AttachedToNode":
                text = f"Created hotplug attachment pod {pod.name}, for volume {entry['name']}"
                self._enter(entry, Phase("AttachedToNode", "SuccessfulCreate", text, names.VIRT_CONTROLLER))
                self._is_early(str(entry["name"]), "mount", self._context.delays.hotplug_mount)

    def _claim_of(self, entry: Raw) -> str:
        """The claim of a volume; of one that leaves, as its entry tells."""
        for one in self._vmi["spec"].get("volumes") or ():
            if one["name"] == entry["name"]:
                return str(nested(one, "persistentVolumeClaim", "claimName", default=""))
        return str(nested(entry, "persistentVolumeClaimInfo", "claimName", default=""))

    # --- writing ------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        for entry in self._entries:
            self._describe_claim(entry)
        if self._entries != nested(self._vmi, "status", "volumeStatus", default=[]):
            await self._context.update(
                self._vmi, lambda raw: raw["status"].update(volumeStatus=self._entries)
            )
        for phase in self._events:
            await self._context.recorder.record(self._vmi, phase.reason, phase.message, phase.component)
        targets = {str(one["name"]): one["target"] for one in self._entries if one.get("target")}
        disks = read_disks(self._vmi["spec"], self._claims, targets, self._context.power.disk)
        self._context.power.change_disks(uid_of(self._vmi), disks)

    def _describe_claim(self, entry: Raw) -> None:
        claim = self._claims.get(self._claim_of(entry))
        if claim is not None:
            entry["persistentVolumeClaimInfo"] = describe_claim(claim)

    # --- time ---------------------------------------------------------------------------------------------------

    def _advance(self, entry: Raw, phase: str) -> None:
        self._enter(entry, _phases(str(entry["name"]))[phase])
        # The step after it counts from here.
        following = {"MountedToPod": ("ready", self._context.delays.hotplug_ready)}.get(phase)
        if following:
            self._is_early(str(entry["name"]), *following)

    def _enter(self, entry: Raw, phase: Phase) -> None:
        _enter(entry, phase)
        self._events.append(phase)

    def _is_early(self, name: str, step: str, seconds: float) -> bool:
        """Whether the step of the volume is not due yet; it is then reconciled again when it is."""
        due = self._context.timers.due(uid_of(self._vmi), f"{step} {name}", seconds)
        if due is not None:
            self._due = due if self._due is None else min(self._due, due)
        return due is not None

    def _restart(self, name: str, step: str) -> None:
        self._context.timers.restart(uid_of(self._vmi), f"{step} {name}")


def _enter(entry: Raw, phase: Phase) -> None:
    entry.update(phase=phase.name, reason=phase.reason, message=phase.message)


def describe_claim(claim: Raw) -> Raw:
    """What KubeVirt tells of a volume's claim."""
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    made: Raw = {
        "claimName": name_of(claim),
        "accessModes": list(spec.get("accessModes") or ()),
        "capacity": dict(status.get("capacity") or {}),
        "requests": dict(nested(spec, "resources", "requests", default={})),
        "volumeMode": spec.get("volumeMode", "Filesystem"),
    }
    return {key: value for key, value in made.items() if value}
