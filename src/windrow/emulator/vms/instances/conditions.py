"""Edits of an instance's status: phase, conditions, agent, topology. Pure."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator import names
from windrow.emulator.guest_os.hardware import AgentReport
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.vm_readings import host_devices_of, is_hotpluggable
from windrow.emulator.vms.instances import interfaces
from windrow.emulator.vms.instances.devices import list_targets
from windrow.emulator.vms.status import render_conditions
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import Raw, labels_of, nested

NOT_SCHEDULED = Condition("Ready", "False", "PodNotExists", "virt-launcher pod has not yet been scheduled")
NOT_RUNNING = Condition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running")
POD_NOT_READY = Condition(
    "Ready", "False", "PodConditionMissing", "virt-launcher pod is not ready: its node is not"
)
READY = Condition("Ready", "True")
BOUND_TO_ITS_HOST = Condition(
    "LiveMigratable", "False", "HostDeviceNotLiveMigratable", "VMI uses a PCI host devices"
)


def immovable(claim: str) -> Condition:
    """A disk of the instance is on its host alone."""
    why = (
        f"cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared "
        "(using ReadWriteMany access mode)"
    )
    return Condition("LiveMigratable", "False", "DisksNotLiveMigratable", why)


def set_conditions(raw: Raw, now: datetime, *new: Condition) -> None:
    """Set the conditions; lastTransitionTime changes only with the status."""
    conditions = nested(raw, "status", "conditions", default=[])
    for one in new:
        conditions = set_condition(conditions, one, now)
    raw.setdefault("status", {})["conditions"] = render_conditions(conditions)


def remove_conditions(raw: Raw, *types: str) -> None:
    conditions = nested(raw, "status", "conditions", default=[])
    raw["status"]["conditions"] = [one for one in conditions if one["type"] not in types]


def unschedulable(problem: str) -> Condition:
    return Condition("PodScheduled", "False", "Unschedulable", problem)


def migratable(raw: Raw) -> tuple[Condition, Condition]:
    """Whether the instance could run on another host."""
    live = BOUND_TO_ITS_HOST if host_devices_of(raw["spec"]) else Condition("LiveMigratable", "True")
    return live, Condition("StorageLiveMigratable", "True")


def set_agent(raw: Raw, report: AgentReport | None, now: datetime) -> None:
    """AgentConnected exists while the agent is connected, and is never False (reference 05 §2.4)."""
    if report is None:
        remove_conditions(raw, "AgentConnected")
        return
    set_conditions(raw, now, Condition("AgentConnected", "True"))
    raw["status"]["guestOSInfo"] = interfaces.render_guest_os(report)


def set_host(raw: Raw, pod_uid: str, host: str) -> None:
    raw["status"].update(nodeName=host, activePods={pod_uid: host})
    raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = host


def set_topology(raw: Raw, node: Raw | None) -> None:
    """Annotations with the host's region, zone and hostname, for machines of the node driver only (reference 05 §5.2)."""
    if node is not None and labels_of(raw).get(names.CREATOR) == names.NODE_DRIVER:
        annotate(raw, {key: labels_of(node).get(key) or None for key in names.TOPOLOGY})


def set_domain(raw: Raw) -> None:
    """The fields that virt-handler writes once QEMU runs."""
    cpu = nested(raw, "spec", "domain", "cpu", default={})
    guest = nested(raw, "spec", "domain", "memory", "guest", default="")
    targets = list_targets(raw["spec"])
    raw["status"].update(
        migrationMethod="BlockMigration",
        migrationTransport="Unix",
        currentCPUTopology={key: cpu.get(key, 1) for key in ("sockets", "cores", "threads")},
        memory=dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), guest),
        machine={"type": "pc-q35-9.2"},
        volumeStatus=[
            {"name": volume["name"], "target": targets.get(volume["name"], "")}
            for volume in raw["spec"].get("volumes") or ()
            if not is_hotpluggable(volume)
        ],
    )
