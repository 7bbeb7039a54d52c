"""From the start of the domain on: phases Scheduled and Running."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator import names
from windrow.emulator.guests.hardware import Hardware
from windrow.emulator.images import has_agent, modules_missing
from windrow.emulator.power import Plug
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.vms import interfaces, words
from windrow.emulator.vms.cloud_init import read_cloud_init
from windrow.emulator.vms.control import Control, Memory
from windrow.emulator.vms.ending import end, stand_on_dead_host
from windrow.emulator.vms.readings import root_claim_of
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, uid_of

SOME_MEMORY = 4 << 30


async def define(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """virt-handler defines and starts the domain: the machine has power."""
    if not control.hosts.has_power(memory.host):
        return await stand_on_dead_host(control, vmi, memory)
    if look := control.wait(memory, "domain", control.delays.domain_define + control.delays.domain_start):
        return look
    hardware = read_hardware(control, vmi)
    control.power.on((namespace_of(vmi), name_of(vmi)), hardware)

    def edit(raw: Raw) -> None:
        words.enter(raw, "Running", control.pace.now())
        words.tell_domain(raw)
        words.say(raw, control.pace.now(), words.READY, *words.MIGRATABLE)
        raw["status"]["interfaces"] = interfaces.started(hardware.nics, memory.pod_address, None)

    await control.change(vmi, edit)
    tell = control.recorder.tell
    await tell(vmi, "Created", "VirtualMachineInstance defined.", names.VIRT_HANDLER)
    await tell(vmi, "Started", "VirtualMachineInstance started.", names.VIRT_HANDLER)
    return None


async def watch_over(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """As long as the domain runs, say what it and its agent report."""
    if not control.hosts.has_power(memory.host):
        control.power.off(uid_of(vmi))
        return await stand_on_dead_host(control, vmi, memory)
    plug = control.power.find(uid_of(vmi))
    # Without a plug the host lost power and has it again, or this emulator was restarted: the domain is no more.
    match plug.ending if plug is not None else "crash":
        case "crash":
            await end(control, vmi, "Failed", "The VirtualMachineInstance crashed.", "Warning")
            return None
        case "poweroff":
            await end(control, vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
            return None
    assert plug is not None
    return await _hear(control, vmi, memory, plug)


async def _hear(control: Control, vmi: Raw, memory: Memory, plug: Plug) -> datetime | None:
    report = plug.report
    if report is not None and report != memory.shown:
        # A new agent is polled fast; what it says later waits for the next ordinary poll.
        poll = control.delays.agent_connect if memory.shown is None else control.delays.agent_poll
        if look := control.wait(memory, "agent", poll):
            return look
    memory.since.pop("agent", None)
    memory.shown = report

    def edit(raw: Raw) -> None:
        raw["status"]["interfaces"] = interfaces.started(plug.hardware.nics, memory.pod_address, report)
        words.say(raw, control.pace.now(), words.READY)
        words.tell_agent(raw, report, control.pace.now())
        words.tell_topology(raw, control.node_of(raw))

    await control.change(vmi, edit)
    return None


def read_hardware(control: Control, vmi: Raw) -> Hardware:
    """What the machine finds when it is switched on. Its disk is the root claim's, the same at every start."""
    namespace = namespace_of(vmi)
    claim = control.world.claims.get((namespace, root_claim_of(vmi["spec"])))
    image_id = annotations_of(claim).get(names.IMAGE_ID, "") if claim else ""
    image_namespace, _, image_name = image_id.partition("/")
    cloud_init = read_cloud_init(vmi, control.world.secrets, namespace)
    image = control.world.images.get((image_namespace, image_name))
    owner: Raw = next(iter(vmi["metadata"].get("ownerReferences") or ()), {})
    return Hardware(
        namespace=namespace,
        name=name_of(vmi),
        vm_uid=owner.get("uid", ""),
        vmi_uid=uid_of(vmi),
        user_data=cloud_init.user_data,
        network_data=cloud_init.network_data,
        nics=interfaces.nics_of(vmi, namespace),
        root=control.power.disk(uid_of(claim) if claim else uid_of(vmi)),
        image=image_id,
        image_has_agent=has_agent(image),
        image_lacks=modules_missing(image),
        cores=int(nested(vmi, "spec", "domain", "cpu", "cores", default=1)),
        memory_bytes=int(quantity_or_zero(nested(vmi, "spec", "domain", "memory", "guest"))) or SOME_MEMORY,
        system_uuid=nested(vmi, "spec", "domain", "firmware", "uuid", default=""),
    )
