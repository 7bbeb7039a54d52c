"""Context of the instance phase handlers: client, listers, time, and per-instance records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.guest_os.hardware import AgentReport
from windrow.emulator.host.hypervisor import Hypervisor
from windrow.emulator.host.nodes import HostController
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.vms.instances import conditions
from windrow.emulator.vms.instances.launcher_pods import render_attachment_pod, render_pod, render_running
from windrow.emulator.vms.scheduler import HostAllocations
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, new_object, uid_of
from windrow.kubernetes.resources import POD, ref_of


@dataclass(frozen=True, slots=True)
class AttachmentPod:
    """The pod that holds the hot-plugged volumes of an instance on its host."""

    name: str
    uid: str
    host: str
    claims: tuple[str, ...]


@dataclass(slots=True)
class InstanceRecord:
    """In-memory record of one instance: its pod, its host."""

    pod: str = ""
    pod_uid: str = ""
    pod_address: str = ""
    host: str = ""
    pod_is_bound: bool = False
    attachment: AttachmentPod | None = None
    written_report: AgentReport | None = None  # the agent report that is in the status


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """Dependencies of all phase handlers."""

    client: AdminClient
    listers: Listers
    clock: ScaledClock
    delays: Delays
    rng: Rng
    recorder: EventRecorder
    hosts: HostController
    power: Hypervisor
    timers: StepTimers
    allocations: HostAllocations = field(default_factory=HostAllocations)
    records: dict[str, InstanceRecord] = field(default_factory=dict)
    pod_numbers: Iterator[int] = field(default_factory=count)

    def record(self, vmi: Raw) -> InstanceRecord:
        """The record of the instance; its host is read from the object where the record has none."""
        found = self.records.setdefault(uid_of(vmi), InstanceRecord())
        found.host = found.host or nested(vmi, "status", "nodeName", default="")
        return found

    def forget(self, uid: str) -> None:
        """Drop everything of the instance. May be repeated."""
        self.power.power_off(uid)
        self.allocations.release(uid)
        self.timers.forget(uid)
        self.records.pop(uid, None)

    async def update(self, vmi: Raw, edit: Callable[[Raw], None]) -> None:
        await self.client.mutate(ref_of(kinds.VMI, vmi), edit)

    async def set_conditions(self, vmi: Raw, *new: Condition) -> None:
        await self.update(vmi, lambda raw: conditions.set_conditions(raw, self.clock.now(), *new))

    def node_of(self, vmi: Raw) -> Raw | None:
        return self.listers.nodes.get(("", nested(vmi, "status", "nodeName", default="")))

    # --- launcher pod: everything may be repeated ---------------------------------------------------------------

    async def create_pod(self, vmi: Raw, record: InstanceRecord) -> None:
        """Create the instance's launcher pod under a new name."""
        record.pod = f"virt-launcher-{name_of(vmi)}-{self.rng.name_suffix()}"
        record.pod_uid = uid_of(await self.client.ensure(POD, render_pod(vmi, record.pod)))

    async def bind_pod(self, vmi: Raw, record: InstanceRecord) -> None:
        ref = POD.ref(record.pod, namespace_of(vmi))
        await self.client.mutate(ref, lambda raw: raw["spec"].update(nodeName=record.host))

    async def run_pod(self, vmi: Raw, record: InstanceRecord) -> None:
        status = render_running(record.pod_address, self.clock.now())
        ref = POD.ref(record.pod, namespace_of(vmi))
        await self.client.mutate(ref, lambda raw: raw.update(status=status), "status")

    async def replace_attachment_pod(
        self, vmi: Raw, record: InstanceRecord, claims: tuple[str, ...]
    ) -> AttachmentPod | None:
        """Another attachment pod, with these claims; none for none. The one before is deleted."""
        before = record.attachment
        record.attachment = None
        if claims:
            name = f"hp-volume-{self.rng.name_suffix()}"
            launcher = new_object(POD, record.pod, namespace_of(vmi))
            launcher["metadata"]["uid"] = record.pod_uid
            raw = render_attachment_pod(vmi, name, launcher, record.host, claims)
            record.attachment = AttachmentPod(
                name, uid_of(await self.client.ensure(POD, raw)), record.host, claims
            )
            status = render_running("", self.clock.now(), "hotplug-disk")
            ref = POD.ref(name, namespace_of(vmi))
            await self.client.mutate(ref, lambda pod: pod.update(status=status), "status")
        if before is not None and (found := await self.client.find(POD.ref(before.name, namespace_of(vmi)))):
            await self.client.delete(POD, found)
        return record.attachment

    async def remove_pod(self, vmi: Raw, record: InstanceRecord) -> None:
        await self.replace_attachment_pod(vmi, record, ())
        found = await self.client.find(POD.ref(record.pod, namespace_of(vmi))) if record.pod else None
        if found is not None:
            await self.client.delete(POD, found)
