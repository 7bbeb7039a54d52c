"""Context of the instance phase handlers: client, listers, time, and per-instance records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
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
from windrow.emulator.vms.instances.launcher_pods import LauncherPods
from windrow.emulator.vms.scheduler import HostAllocations
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import ObjectRef


@dataclass(slots=True)
class InstanceRecord:
    """In-memory record of one instance: exact instants, its pod, its host."""

    pod: str = ""
    pod_uid: str = ""
    pod_address: str = ""
    host: str = ""
    written_report: AgentReport | None = None  # the agent report that is in the status
    began: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """Dependencies of all phase handlers."""

    client: AdminClient
    listers: Listers
    pace: ScaledClock
    delays: Delays
    rng: Rng
    recorder: EventRecorder
    hosts: HostController
    power: Hypervisor
    launcher_pods: LauncherPods
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
        self.records.pop(uid, None)

    def due(self, record: InstanceRecord, step: str, seconds: float) -> datetime | None:
        """The end of `step`, counted from the first call; None when it has passed."""
        now = self.pace.now()
        due = self.pace.after(seconds, record.began.setdefault(step, now))
        return due if now < due else None

    async def update(self, vmi: Raw, edit: Callable[[Raw], None]) -> None:
        await self.client.mutate(ref_of_instance(vmi), edit)

    def node_of(self, vmi: Raw) -> Raw | None:
        return self.listers.nodes.get(("", nested(vmi, "status", "nodeName", default="")))


def ref_of_instance(vmi: Raw) -> ObjectRef:
    return kinds.VMI.ref(name_of(vmi), namespace_of(vmi))
