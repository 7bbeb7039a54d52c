"""From an instance's birth to a pod that runs on a host: phases "", Pending and Scheduling.

Each stage looks once and either moves the instance on or says when to look again; None means: when something changes.
"""

from __future__ import annotations

from datetime import datetime
from ipaddress import IPv4Address

from windrow.emulator import names
from windrow.emulator.vms import interfaces, words
from windrow.emulator.vms.cloud_init import secrets_of
from windrow.emulator.vms.control import Control, Memory
from windrow.emulator.vms.ending import stand_on_dead_host
from windrow.emulator.vms.placing import Unschedulable, place
from windrow.emulator.vms.pods import LAUNCHER
from windrow.emulator.vms.readings import claims_of, networks_of
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested

FIRST_POD_ADDRESS = IPv4Address("10.52.0.10")


async def accept(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """virt-controller has seen the instance."""

    def edit(raw: Raw) -> None:
        words.enter(raw, "Pending", control.pace.now())
        words.say(raw, control.pace.now(), words.NOT_SCHEDULED)
        raw["status"]["runtimeUser"] = 107
        raw["status"]["guestOSInfo"] = {}

    await control.change(vmi, edit)
    return None


async def make_pod(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """The launcher pod is made once every claim exists."""
    namespace = namespace_of(vmi)
    missing = [claim for claim in claims_of(vmi["spec"]) if (namespace, claim) not in control.world.claims]
    if missing:
        memory.since.pop("pod", None)
        await _lack(control, vmi, f"{namespace}/{missing[0]}")
        return None
    if look := control.wait(memory, "pod", control.delays.pod_create):
        return look
    memory.pod = f"virt-launcher-{name_of(vmi)}-{control.rng.name_suffix()}"
    memory.pod_uid = await control.pods.create(vmi, memory.pod)
    memory.pod_address = str(FIRST_POD_ADDRESS + next(control.pod_numbers))

    def edit(raw: Raw) -> None:
        words.enter(raw, "Scheduling", control.pace.now())
        raw["status"]["activePods"] = {memory.pod_uid: ""}
        raw["status"]["qosClass"] = "Burstable"
        raw["status"]["interfaces"] = interfaces.planned(interfaces.nics_of(raw, namespace))
        words.unsay(raw, "Synchronized", "PodScheduled")
        words.say(raw, control.pace.now(), words.NOT_RUNNING)

    await control.change(vmi, edit)
    text = f"Created virtual machine pod {memory.pod}"
    await control.recorder.tell(vmi, "SuccessfulCreate", text, names.VIRT_CONTROLLER)
    return None


async def _lack(control: Control, vmi: Raw, claim: str) -> None:
    text = f"PVC {claim} does not exist, waiting for it to appear"
    scheduled = words.unschedulable(f"failed to find PVC {claim}")
    synchronized = Condition("Synchronized", "False", "FailedPvcNotFound", text)
    await control.change(vmi, lambda raw: words.say(raw, control.pace.now(), scheduled, synchronized))
    await control.recorder.tell(vmi, "FailedPvcNotFound", text, names.VIRT_CONTROLLER, "Warning")


async def schedule(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """The pod finds a host, the kubelet finds what it mounts, the containers start."""
    if not memory.host:
        why = _find_host(control, vmi, memory)
        if why:
            said = words.unschedulable(why)
            await control.change(vmi, lambda raw: words.say(raw, control.pace.now(), said))
            return None
        await control.change(vmi, lambda raw: words.unsay(raw, "PodScheduled"))
        await control.pods.bind(vmi, memory.pod, memory.host)
    if not control.hosts.has_power(memory.host):
        return await stand_on_dead_host(control, vmi, memory)
    if _is_creating(control, vmi):
        memory.since.pop("start", None)
        return None
    if look := control.wait(memory, "start", control.delays.pod_start):
        return look
    await control.pods.run(vmi, memory.pod, memory.pod_address, control.pace.now())

    def edit(raw: Raw) -> None:
        words.enter(raw, "Scheduled", control.pace.now())
        raw["status"]["nodeName"] = memory.host
        raw["status"]["activePods"] = {memory.pod_uid: memory.host}
        raw["status"]["launcherContainerImageVersion"] = LAUNCHER
        raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = memory.host
        words.tell_topology(raw, control.node_of(raw))

    await control.change(vmi, edit)
    return None


def _is_creating(control: Control, vmi: Raw) -> bool:
    """ContainerCreating: the kubelet waits for a Secret, or multus for a network."""
    namespace = namespace_of(vmi)
    lacks_secret = any((namespace, secret) not in control.world.secrets for secret in secrets_of(vmi))
    nads = [nad for nad in networks_of(vmi["spec"], namespace).values() if nad]
    return lacks_secret or any(tuple(nad.split("/", 1)) not in control.world.networks for nad in nads)


def _find_host(control: Control, vmi: Raw, memory: Memory) -> str:
    """Choose a host; the scheduler's text where there is none."""
    nodes = list(control.world.nodes.values())
    claims = [control.world.claims.get((namespace_of(vmi), claim)) for claim in claims_of(vmi["spec"])]
    if any(nested(claim, "status", "phase") != "Bound" for claim in claims):
        count = len(nodes)
        return (
            f"0/{count} nodes are available: pod has unbound immediate PersistentVolumeClaims. "
            f"preemption: 0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
        )
    found = place(vmi, [control.tenants.host(node) for node in nodes])
    if isinstance(found, Unschedulable):
        return found.message
    memory.host = found.host
    control.tenants.enter(vmi, found.host)
    return ""
