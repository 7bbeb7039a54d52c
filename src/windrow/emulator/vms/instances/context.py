"""What every stage of an instance's life works with: the cluster, time, and what is known beyond the objects."""

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
    """What the control plane knows of one instance beyond the object: exact instants, and its pod."""

    pod: str = ""
    pod_uid: str = ""
    pod_address: str = ""
    host: str = ""
    written_report: AgentReport | None = None  # what of the agent's words the object tells
    began: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """The hands and eyes that all stages share."""

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
        """What is known of the instance; its host is read from the object where nothing is remembered."""
        found = self.records.setdefault(uid_of(vmi), InstanceRecord())
        found.host = found.host or nested(vmi, "status", "nodeName", default="")
        return found

    def forget(self, uid: str) -> None:
        """The instance is no more. May be repeated."""
        self.power.power_off(uid)
        self.allocations.release(uid)
        self.records.pop(uid, None)

    def due(self, record: InstanceRecord, step: str, seconds: float) -> datetime | None:
        """The end of `what`, which began when it was first asked about; None when it has come."""
        now = self.pace.now()
        due = self.pace.after(seconds, record.began.setdefault(step, now))
        return due if now < due else None

    async def update(self, vmi: Raw, edit: Callable[[Raw], None]) -> None:
        await self.client.mutate(ref_of_instance(vmi), edit)

    def node_of(self, vmi: Raw) -> Raw | None:
        return self.listers.nodes.get(("", nested(vmi, "status", "nodeName", default="")))


def ref_of_instance(vmi: Raw) -> ObjectRef:
    return kinds.VMI.ref(name_of(vmi), namespace_of(vmi))
