"""Phases "", Pending and Scheduling of an instance: from creation to a running launcher pod.

Each handler either advances the instance or returns when to reconcile again; None means at the next change.
"""

from __future__ import annotations

from datetime import datetime
from ipaddress import IPv4Address

from windrow.emulator import names
from windrow.emulator.kit.vm_readings import claims_of, networks_of
from windrow.emulator.vms.instances import conditions, interfaces
from windrow.emulator.vms.instances.cloud_init import list_secrets
from windrow.emulator.vms.instances.context import InstanceContext, InstanceRecord
from windrow.emulator.vms.instances.ending import handle_host_down
from windrow.emulator.vms.instances.launcher_pods import LAUNCHER_IMAGE
from windrow.emulator.vms.scheduler import Unschedulable, find_host
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested

FIRST_POD_ADDRESS = IPv4Address("10.52.0.10")


async def accept(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """virt-controller has observed the instance."""

    def edit(raw: Raw) -> None:
        conditions.set_phase(raw, "Pending", context.pace.now())
        conditions.set_conditions(raw, context.pace.now(), conditions.NOT_SCHEDULED)
        raw["status"]["runtimeUser"] = 107
        raw["status"]["guestOSInfo"] = {}

    await context.update(vmi, edit)
    return None


async def create_pod(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """Create the launcher pod once every PVC exists."""
    namespace = namespace_of(vmi)
    missing = [claim for claim in claims_of(vmi["spec"]) if (namespace, claim) not in context.listers.claims]
    if missing:
        record.began.pop("pod", None)
        await _report_missing_claim(context, vmi, f"{namespace}/{missing[0]}")
        return None
    if due := context.due(record, "pod", context.delays.pod_create):
        return due
    record.pod = f"virt-launcher-{name_of(vmi)}-{context.rng.name_suffix()}"
    record.pod_uid = await context.launcher_pods.create(vmi, record.pod)
    record.pod_address = str(FIRST_POD_ADDRESS + next(context.pod_numbers))

    def edit(raw: Raw) -> None:
        conditions.set_phase(raw, "Scheduling", context.pace.now())
        raw["status"]["activePods"] = {record.pod_uid: ""}
        raw["status"]["qosClass"] = "Burstable"
        raw["status"]["interfaces"] = interfaces.render_planned(interfaces.nics_of(raw, namespace))
        conditions.remove_conditions(raw, "Synchronized", "PodScheduled")
        conditions.set_conditions(raw, context.pace.now(), conditions.NOT_RUNNING)

    await context.update(vmi, edit)
    text = f"Created virtual machine pod {record.pod}"
    await context.recorder.record(vmi, "SuccessfulCreate", text, names.VIRT_CONTROLLER)
    return None


async def _report_missing_claim(context: InstanceContext, vmi: Raw, claim: str) -> None:
    text = f"PVC {claim} does not exist, waiting for it to appear"
    scheduled = conditions.unschedulable(f"failed to find PVC {claim}")
    synchronized = Condition("Synchronized", "False", "FailedPvcNotFound", text)
    await context.update(
        vmi, lambda raw: conditions.set_conditions(raw, context.pace.now(), scheduled, synchronized)
    )
    await context.recorder.record(vmi, "FailedPvcNotFound", text, names.VIRT_CONTROLLER, "Warning")


async def schedule(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """Schedule the pod, wait for what it mounts, start its containers."""
    if not record.host:
        problem = _assign_host(context, vmi, record)
        if problem:
            condition = conditions.unschedulable(problem)
            await context.update(
                vmi, lambda raw: conditions.set_conditions(raw, context.pace.now(), condition)
            )
            return None
        await context.update(vmi, lambda raw: conditions.remove_conditions(raw, "PodScheduled"))
        await context.launcher_pods.bind(vmi, record.pod, record.host)
    if not context.hosts.has_power(record.host):
        return await handle_host_down(context, vmi, record)
    if _is_container_creating(context, vmi):
        record.began.pop("start", None)
        return None
    if due := context.due(record, "start", context.delays.pod_start):
        return due
    await context.launcher_pods.run(vmi, record.pod, record.pod_address, context.pace.now())

    def edit(raw: Raw) -> None:
        conditions.set_phase(raw, "Scheduled", context.pace.now())
        raw["status"]["nodeName"] = record.host
        raw["status"]["activePods"] = {record.pod_uid: record.host}
        raw["status"]["launcherContainerImageVersion"] = LAUNCHER_IMAGE
        raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = record.host
        conditions.set_topology(raw, context.node_of(raw))

    await context.update(vmi, edit)
    return None


def _is_container_creating(context: InstanceContext, vmi: Raw) -> bool:
    """ContainerCreating: the kubelet waits for a Secret, or multus for a network."""
    namespace = namespace_of(vmi)
    lacks_secret = any((namespace, secret) not in context.listers.secrets for secret in list_secrets(vmi))
    nads = [nad for nad in networks_of(vmi["spec"], namespace).values() if nad]
    return lacks_secret or any(tuple(nad.split("/", 1)) not in context.listers.networks for nad in nads)


def _assign_host(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> str:
    """Assign a host; the scheduler's message without one."""
    nodes = list(context.listers.nodes.values())
    claims = [context.listers.claims.get((namespace_of(vmi), claim)) for claim in claims_of(vmi["spec"])]
    if any(nested(claim, "status", "phase") != "Bound" for claim in claims):
        count = len(nodes)
        return (
            f"0/{count} nodes are available: pod has unbound immediate PersistentVolumeClaims. "
            f"preemption: 0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
        )
    found = find_host(vmi, [context.allocations.read_host(node) for node in nodes])
    if isinstance(found, Unschedulable):
        return found.message
    record.host = found.host
    context.allocations.assign(vmi, found.host)
    return ""
