"""Phases Scheduled and Running of an instance."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator import names
from windrow.emulator.guest_os.hardware import Hardware
from windrow.emulator.host.hypervisor import PowerSession
from windrow.emulator.host.images import has_agent, missing_modules
from windrow.emulator.kit.vm_readings import root_claim_of
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.vms.instances import conditions, interfaces
from windrow.emulator.vms.instances.cloud_init import read_cloud_init
from windrow.emulator.vms.instances.context import InstanceContext, InstanceRecord
from windrow.emulator.vms.instances.ending import finish, handle_host_down
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, uid_of

DEFAULT_MEMORY = 4 << 30


async def define(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """Define and start the domain: the machine is powered on."""
    if not context.hosts.has_power(record.host):
        return await handle_host_down(context, vmi, record)
    if due := context.due(record, "domain", context.delays.domain_define + context.delays.domain_start):
        return due
    hardware = read_hardware(context, vmi)
    context.power.power_on((namespace_of(vmi), name_of(vmi)), hardware)

    def edit(raw: Raw) -> None:
        conditions.set_phase(raw, "Running", context.pace.now())
        conditions.set_domain(raw)
        conditions.set_conditions(raw, context.pace.now(), conditions.READY, *conditions.MIGRATABLE)
        raw["status"]["interfaces"] = interfaces.render_running(hardware.nics, record.pod_address, None)

    await context.update(vmi, edit)
    emit = context.recorder.record
    await emit(vmi, "Created", "VirtualMachineInstance defined.", names.VIRT_HANDLER)
    await emit(vmi, "Started", "VirtualMachineInstance started.", names.VIRT_HANDLER)
    return None


async def sync(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
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
    return await _sync_agent(context, vmi, record, session)


async def _sync_agent(
    context: InstanceContext, vmi: Raw, record: InstanceRecord, session: PowerSession
) -> datetime | None:
    report = session.report
    if report is not None and report != record.written_report:
        # A new agent is polled fast; later reports are read at the ordinary poll interval.
        poll = context.delays.agent_connect if record.written_report is None else context.delays.agent_poll
        if due := context.due(record, "agent", poll):
            return due
    record.began.pop("agent", None)
    record.written_report = report

    def edit(raw: Raw) -> None:
        raw["status"]["interfaces"] = interfaces.render_running(
            session.hardware.nics, record.pod_address, report
        )
        conditions.set_conditions(raw, context.pace.now(), conditions.READY)
        conditions.set_agent(raw, report, context.pace.now())
        conditions.set_topology(raw, context.node_of(raw))

    await context.update(vmi, edit)
    return None


def read_hardware(context: InstanceContext, vmi: Raw) -> Hardware:
    """The hardware of the machine. Its disk is that of the root PVC, the same at every start."""
    namespace = namespace_of(vmi)
    claim = context.listers.claims.get((namespace, root_claim_of(vmi["spec"])))
    image_id = annotations_of(claim).get(names.IMAGE_ID, "") if claim else ""
    image_namespace, _, image_name = image_id.partition("/")
    cloud_init = read_cloud_init(vmi, context.listers.secrets, namespace)
    image = context.listers.images.get((image_namespace, image_name))
    owner: Raw = next(iter(vmi["metadata"].get("ownerReferences") or ()), {})
    return Hardware(
        namespace=namespace,
        name=name_of(vmi),
        vm_uid=owner.get("uid", ""),
        vmi_uid=uid_of(vmi),
        user_data=cloud_init.user_data,
        network_data=cloud_init.network_data,
        nics=interfaces.nics_of(vmi, namespace),
        root=context.power.disk(uid_of(claim) if claim else uid_of(vmi)),
        image=image_id,
        image_has_agent=has_agent(image),
        missing_modules=missing_modules(image),
        cores=int(nested(vmi, "spec", "domain", "cpu", "cores", default=1)),
        memory_bytes=int(quantity_or_zero(nested(vmi, "spec", "domain", "memory", "guest")))
        or DEFAULT_MEMORY,
        system_uuid=nested(vmi, "spec", "domain", "firmware", "uuid", default=""),
    )
