"""Phases of an instance, one handler each: from creation over a running domain to its end.

A handler either advances the instance or returns when to reconcile again; None means at the next change.
"""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Address

from windrow.emulator import names
from windrow.emulator.host.hypervisor import PowerSession
from windrow.emulator.host.persistent_volumes import attach_problem
from windrow.emulator.host.volumes import is_local, needs_consumer, waits_for_consumer
from windrow.emulator.kit.edits import annotate, remove_finalizer
from windrow.emulator.kit.vm_readings import fixed_claims_of, grace_of, host_devices_of, networks_of, phase_of
from windrow.emulator.vms.instances import conditions, interfaces
from windrow.emulator.vms.instances.context import InstanceContext, InstanceRecord
from windrow.emulator.vms.instances.hardware import list_secrets, read_hardware
from windrow.emulator.vms.instances.hotplug import HotplugPass
from windrow.emulator.vms.instances.launcher_pods import LAUNCHER_IMAGE
from windrow.emulator.vms.scheduler import find_host, list_devices
from windrow.emulator.vms.status import set_phase
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import POD, PVC, ref_of

FIRST_POD_ADDRESS = IPv4Address("10.52.0.10")


async def accept(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """virt-controller has observed the instance."""

    def edit(raw: Raw) -> None:
        set_phase(raw, "Pending", context.clock.now())
        conditions.set_conditions(raw, context.clock.now(), conditions.NOT_SCHEDULED)
        raw["status"]["runtimeUser"] = 107
        raw["status"]["guestOSInfo"] = {}

    await context.update(vmi, edit)
    return None


async def create_pod(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """Create the launcher pod once every PVC exists."""
    namespace = namespace_of(vmi)
    missing = [
        claim for claim in fixed_claims_of(vmi["spec"]) if (namespace, claim) not in context.listers.claims
    ]
    if missing:
        context.timers.restart(uid_of(vmi), "pod")
        await _report_missing_claim(context, vmi, f"{namespace}/{missing[0]}")
        return None
    if due := context.timers.due(uid_of(vmi), "pod", context.delays.pod_create):
        return due
    if problem := _find_forbidden_devices(context, vmi):
        synchronized = Condition("Synchronized", "False", "FailedCreate", problem)
        await context.set_conditions(vmi, synchronized)
        await context.recorder.record(vmi, "FailedCreate", problem, names.VIRT_CONTROLLER, "Warning")
        return None
    await context.create_pod(vmi, record)
    record.pod_address = str(FIRST_POD_ADDRESS + next(context.pod_numbers))

    def edit(raw: Raw) -> None:
        set_phase(raw, "Scheduling", context.clock.now())
        raw["status"]["activePods"] = {record.pod_uid: ""}
        raw["status"]["qosClass"] = "Burstable"
        raw["status"]["interfaces"] = interfaces.render_planned(interfaces.nics_of(raw, namespace))
        conditions.remove_conditions(raw, "Synchronized", "PodScheduled")
        conditions.set_conditions(raw, context.clock.now(), conditions.NOT_RUNNING)

    await context.update(vmi, edit)
    text = f"Created virtual machine pod {record.pod}"
    await context.recorder.record(vmi, "SuccessfulCreate", text, names.VIRT_CONTROLLER)
    return None


def _find_forbidden_devices(context: InstanceContext, vmi: Raw) -> str:
    """KubeVirt's words against devices that no host has given it, "" where all are permitted.

    Harvester lists the devices that hosts have in KubeVirt's configuration. While none has any there is no list, and
    nothing is checked.
    """
    permitted = {name for node in context.listers.nodes.values() for name in list_devices(node)}
    wrong = [
        f"{kind} {name} is not permitted in permittedHostDevices configuration"
        for kind, name in host_devices_of(vmi["spec"])
        if name not in permitted
    ]
    return f"failed to render launch manifest: {' '.join(wrong)}" if wrong and permitted else ""


async def _report_missing_claim(context: InstanceContext, vmi: Raw, claim: str) -> None:
    text = f"PVC {claim} does not exist, waiting for it to appear"
    scheduled = conditions.unschedulable(f"failed to find PVC {claim}")
    synchronized = Condition("Synchronized", "False", "FailedPvcNotFound", text)
    await context.set_conditions(vmi, scheduled, synchronized)
    await context.recorder.record(vmi, "FailedPvcNotFound", text, names.VIRT_CONTROLLER, "Warning")


async def schedule(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """Schedule the pod, wait for what it mounts, start its containers."""
    if not record.host:
        if problem := _assign_host(context, vmi, record):
            await context.set_conditions(vmi, conditions.unschedulable(problem))
            return None
        await context.update(vmi, lambda raw: conditions.remove_conditions(raw, "PodScheduled"))
        waiting = [claim for claim in _claims(context, vmi) if needs_consumer(claim, context.listers)]
        for claim in [*_local_claims(context, vmi), *waiting]:
            await context.client.mutate(
                ref_of(PVC, claim), lambda raw: annotate(raw, {names.SELECTED_NODE: record.host})
            )
    if _unbound(context, vmi):
        return None  # volumes of a class that waits for its first consumer are made now
    if not record.pod_is_bound:
        await context.bind_pod(vmi, record)
        record.pod_is_bound = True
    if not context.hosts.has_power(record.host):
        return await handle_host_down(context, vmi, record)
    await _report_attach_problems(context, vmi, record)
    if _is_container_creating(context, vmi):
        context.timers.restart(uid_of(vmi), "start")
        return None
    if due := context.timers.due(uid_of(vmi), "start", context.delays.pod_start):
        return due
    await context.run_pod(vmi, record)

    def edit(raw: Raw) -> None:
        set_phase(raw, "Scheduled", context.clock.now())
        raw["status"]["launcherContainerImageVersion"] = LAUNCHER_IMAGE
        conditions.set_host(raw, record.pod_uid, record.host)
        conditions.set_topology(raw, context.node_of(raw))

    await context.update(vmi, edit)
    return None


def _is_container_creating(context: InstanceContext, vmi: Raw) -> bool:
    """ContainerCreating: the kubelet waits for a Secret or a volume, or multus for a network."""
    namespace = namespace_of(vmi)
    lacks_secret = any((namespace, secret) not in context.listers.secrets for secret in list_secrets(vmi))
    nads = [nad for nad in networks_of(vmi["spec"], namespace).values() if nad]
    if any(attach_problem(claim, context.listers) for claim in _claims(context, vmi)):
        return True
    return lacks_secret or any(tuple(nad.split("/", 1)) not in context.listers.networks for nad in nads)


async def _report_attach_problems(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> None:
    """An event of the launcher pod for each of its volumes that cannot be attached."""
    problems = [attach_problem(claim, context.listers) for claim in _claims(context, vmi)]
    pod = await context.client.find(POD.ref(record.pod, namespace_of(vmi))) if any(problems) else None
    for problem in filter(None, problems if pod is not None else ()):
        assert pod is not None
        await context.recorder.record(
            pod, "FailedAttachVolume", problem, "attachdetach-controller", "Warning"
        )


def _claims(context: InstanceContext, vmi: Raw) -> list[Raw]:
    claims = (context.listers.claims.get((namespace_of(vmi), name)) for name in fixed_claims_of(vmi["spec"]))
    return [claim for claim in claims if claim is not None]


def _unbound(context: InstanceContext, vmi: Raw) -> list[Raw]:
    return [one for one in _claims(context, vmi) if nested(one, "status", "phase") != "Bound"]


def _local_claims(context: InstanceContext, vmi: Raw) -> list[Raw]:
    return [claim for claim in _claims(context, vmi) if is_local(claim, context.listers)]


def _assign_host(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> str:
    """Assign a host; the scheduler's message without one."""
    nodes = list(context.listers.nodes.values())
    missing = len(fixed_claims_of(vmi["spec"])) - len(_claims(context, vmi))
    if missing or any(not waits_for_consumer(one, context.listers) for one in _unbound(context, vmi)):
        count = len(nodes)
        return (
            f"0/{count} nodes are available: pod has unbound immediate PersistentVolumeClaims. "
            f"preemption: 0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
        )
    volume_hosts = {annotations_of(claim).get(names.SELECTED_NODE) for claim in _local_claims(context, vmi)}
    hosts = [context.allocations.read_host(node) for node in nodes]
    found = find_host(vmi, hosts, [host for host in volume_hosts if host])
    if found.node:
        record.host = found.node
        context.allocations.assign(vmi, found.node)
    return found.message


# --- domain ----------------------------------------------------------------------------------------------------


async def define(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """Define and start the domain: the machine is powered on."""
    if not context.hosts.has_power(record.host):
        return await handle_host_down(context, vmi, record)
    if due := context.timers.due(
        uid_of(vmi), "domain", context.delays.domain_define + context.delays.domain_start
    ):
        return due
    session = context.power.power_on((namespace_of(vmi), name_of(vmi)), read_hardware(context, vmi))
    nics = session.hardware.nics
    local = [name_of(claim) for claim in _local_claims(context, vmi)]

    def edit(raw: Raw) -> None:
        set_phase(raw, "Running", context.clock.now())
        conditions.set_domain(raw)
        movable = (conditions.immovable(local[0]),) if local else conditions.migratable(raw)
        conditions.set_conditions(raw, context.clock.now(), conditions.READY, *movable)
        raw["status"]["interfaces"] = interfaces.render_running(nics, record.pod_address, None)

    await context.update(vmi, edit)
    emit = context.recorder.record
    await emit(vmi, "Created", "VirtualMachineInstance defined.", names.VIRT_HANDLER)
    await emit(vmi, "Started", "VirtualMachineInstance started.", names.VIRT_HANDLER)
    return None


async def sync(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """Write the state of the domain and the guest agent's report."""
    if not context.hosts.has_power(record.host):
        context.power.power_off(uid_of(vmi))
        return await handle_host_down(context, vmi, record)
    session = context.power.find(uid_of(vmi))
    # Without a power session the host lost power meanwhile, or this emulator was restarted: the domain is gone.
    match session.ending if session is not None else "crash":
        case "crash":
            await finish(context, vmi, "Failed", "The VirtualMachineInstance crashed.", "Warning")
            return None
        case "poweroff":
            await finish(context, vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
            return None
    assert session is not None
    dues = [await _sync_agent(context, vmi, record, session), await HotplugPass(context, vmi, record).run()]
    return min((due for due in dues if due is not None), default=None)


async def _sync_agent(
    context: InstanceContext, vmi: Raw, record: InstanceRecord, session: PowerSession
) -> timedelta | None:
    report = session.report
    if report is not None and report != record.written_report:
        # A new agent is polled fast; later reports are read at the ordinary poll interval.
        poll = context.delays.agent_connect if record.written_report is None else context.delays.agent_poll
        if due := context.timers.due(uid_of(vmi), "agent", poll):
            return due
    context.timers.restart(uid_of(vmi), "agent")
    record.written_report = report

    def edit(raw: Raw) -> None:
        raw["status"]["interfaces"] = interfaces.render_running(
            session.hardware.nics, record.pod_address, report
        )
        conditions.set_conditions(raw, context.clock.now(), conditions.READY)
        conditions.set_agent(raw, report, context.clock.now())
        conditions.set_topology(raw, context.node_of(raw))

    await context.update(vmi, edit)
    return None


# --- end -------------------------------------------------------------------------------------------------------


async def shut_down(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """Deletion of a running instance: power button, grace period, power cut."""
    if record.host and not context.hosts.has_power(record.host):
        context.power.power_off(uid_of(vmi))
        return await handle_host_down(context, vmi, record)
    session = context.power.find(uid_of(vmi))
    if session is None:
        await finish(context, vmi, "Failed")
        return None
    if session.ending is not None:
        await finish(context, vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
        return None
    emit = context.recorder.record
    if not session.shutdown_requested:
        await emit(vmi, "ShuttingDown", "Signaled Graceful Shutdown", names.VIRT_HANDLER)
    context.power.press_power_button(uid_of(vmi))
    if due := context.timers.due(uid_of(vmi), "grace", grace_of(vmi).total_seconds()):
        return due
    await emit(vmi, "Deleted", "Signaled Deletion", names.VIRT_HANDLER)
    await finish(context, vmi, "Failed", "The VirtualMachineInstance was shut down.")
    return None


async def finish(
    context: InstanceContext, vmi: Raw, phase: str, text: str = "", type: str = "Normal", reason: str = ""
) -> None:
    """Write the final phase; `text` is the message of the event."""
    context.power.power_off(uid_of(vmi))
    context.allocations.release(uid_of(vmi))

    def edit(raw: Raw) -> None:
        set_phase(raw, phase, context.clock.now())
        if reason:
            raw["status"]["reason"] = reason
        raw["status"]["interfaces"] = []
        conditions.remove_conditions(raw, "AgentConnected")
        conditions.set_conditions(raw, context.clock.now(), conditions.NOT_RUNNING)

    await context.update(vmi, edit)
    if text:
        await context.recorder.record(vmi, "Stopped", text, names.VIRT_HANDLER, type)


async def clean_up(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """An instance in a final phase keeps its object until it is deleted and its pod is gone."""
    context.power.power_off(uid_of(vmi))
    context.allocations.release(uid_of(vmi))
    if not is_deleting(vmi):
        return None
    if due := context.timers.due(uid_of(vmi), "stopped", context.delays.pod_stop if record.pod else 0.0):
        return due
    await context.remove_pod(vmi, record)
    await context.update(vmi, remove_finalizer(names.VMI_FINALIZER))
    context.forget(uid_of(vmi))
    return None


async def handle_host_down(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> timedelta | None:
    """The host has no power. Nothing changes until its Node is Unknown, and nothing is deleted until the Node is cleared."""
    health, due = context.hosts.health(record.host)
    if health.cleared:
        text = f"virt-handler on node {record.host} is not responsive, marking VMI as failed"
        await context.recorder.record(vmi, "NodeUnresponsive", text, names.VIRT_CONTROLLER, "Warning")
        await finish(context, vmi, "Failed", reason="NodeUnresponsive")
        return None
    if not health.ready and phase_of(vmi) == "Running":
        await context.set_conditions(vmi, conditions.POD_NOT_READY)
    return due
