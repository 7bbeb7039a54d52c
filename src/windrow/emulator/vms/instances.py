"""The instance controllers: virt-controller's pod, the scheduler, virt-handler's domain, and Harvester's touches.

A phase is a small function that looks once and either moves the instance on or says when to look again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address

from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.guests.hardware import AgentReport, Hardware
from windrow.emulator.hand import Hand
from windrow.emulator.hosts import Hosts
from windrow.emulator.images import has_agent
from windrow.emulator.power import Plug, Power
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.recorder import Recorder
from windrow.emulator.vms import interfaces
from windrow.emulator.vms.cloud_init import read_cloud_init, secrets_of
from windrow.emulator.vms.placing import Placed, Tenants, Unschedulable, place
from windrow.emulator.vms.pods import LAUNCHER, Pods
from windrow.emulator.vms.readings import FINAL, claims_of, grace_of, networks_of, phase_of, root_claim_of
from windrow.emulator.vms.status import enter_phase
from windrow.emulator.world import Key, World
from windrow.kube.conditions import Condition, set_condition
from windrow.kube.objects import (
    Raw,
    annotations_of,
    dig,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from windrow.kube.refs import Ref
from windrow.values.chance import Chance


@dataclass(slots=True)
class Memory:
    """What the control plane knows of an instance beyond the object: exact instants, and the pod's placement."""

    pod: str = ""
    pod_uid: str = ""
    pod_address: str = ""
    host: str = ""
    shown: AgentReport | None = None  # what of the agent's words the object tells
    since: dict[str, datetime] = field(default_factory=dict)


class Instances:
    """The instance controller. Keys are those of the VirtualMachineInstances."""

    def __init__(
        self,
        hand: Hand,
        world: World,
        pace: Pace,
        delays: Delays,
        chance: Chance,
        recorder: Recorder,
        hosts: Hosts,
        power: Power,
    ) -> None:
        self._hand = hand
        self._world = world
        self._pace = pace
        self._delays = delays
        self._chance = chance
        self._recorder = recorder
        self._hosts = hosts
        self._power = power
        self._pods = Pods(hand)
        self._memories: dict[str, Memory] = {}
        self._uids: dict[Key, str] = {}
        self._tenants = Tenants()
        self.waiting: set[Key] = set()  # those that want a claim, a Secret, a network or room
        self._addresses = 0

    async def reconcile(self, key: Key) -> datetime | None:
        vmi = await self._hand.find(_ref(key))
        self.waiting.discard(key)
        self._forget_others(key, uid_of(vmi) if vmi is not None else "")
        if vmi is None:
            return None
        if phase_of(vmi) in ("Pending", "Scheduling"):
            self.waiting.add(key)
        vmi = await self._sync_labels(vmi, key) or vmi
        memory = self._memories.setdefault(uid_of(vmi), Memory())
        if is_deleting(vmi) and phase_of(vmi) not in FINAL:
            return await self._take_down(vmi, memory)
        if phase_of(vmi) in FINAL:
            return await self._clear_away(vmi, memory)
        stage = self._stages().get(phase_of(vmi))
        return await stage(vmi, memory) if stage else None

    def _forget_others(self, key: Key, uid: str) -> None:
        """What is known of an earlier instance of this name ends with it, even when its finalizer was cut by hand."""
        before = self._uids.pop(key, "")
        if before and before != uid:
            self._power.off(before)
            self._tenants.leave(before)
            self._memories.pop(before, None)
        if uid:
            self._uids[key] = uid

    def _stages(self) -> dict[str, Callable[[Raw, Memory], Awaitable[datetime | None]]]:
        return {
            "": self._accept,
            "Pending": self._make_pod,
            "Scheduling": self._schedule,
            "Scheduled": self._define,
            "Running": self._watch_over,
        }

    # --- phases -------------------------------------------------------------------------------------------------

    async def _accept(self, vmi: Raw, memory: Memory) -> None:
        def edit(raw: Raw) -> None:
            raw["status"] = self._entered(raw, "Pending")
            self._say(raw, _NOT_READY)
            raw["status"]["runtimeUser"] = 107
            raw["status"]["guestOSInfo"] = {}

        await self._hand.change(_ref_of(vmi), edit)

    async def _make_pod(self, vmi: Raw, memory: Memory) -> datetime | None:
        missing = [
            claim for claim in claims_of(vmi["spec"]) if (namespace_of(vmi), claim) not in self._world.claims
        ]
        if missing:
            memory.since.pop("pod", None)
            await self._lack(vmi, f"{namespace_of(vmi)}/{missing[0]}")
            return None
        due = self._due(memory, "pod", self._delays.pod_create)
        if self._pace.now() < due:
            return due
        memory.pod = f"virt-launcher-{name_of(vmi)}-{self._chance.suffix()}"
        memory.pod_uid = await self._pods.create(vmi, memory.pod)
        self._addresses += 1
        memory.pod_address = str(IPv4Address("10.52.0.10") + self._addresses)

        def edit(raw: Raw) -> None:
            raw["status"] = self._entered(raw, "Scheduling")
            raw["status"]["activePods"] = {memory.pod_uid: ""}
            raw["status"]["qosClass"] = "Burstable"
            raw["status"]["interfaces"] = interfaces.planned(interfaces.nics_of(raw, namespace_of(raw)))
            self._unsay(raw, "Synchronized", "PodScheduled")
            self._say(raw, _NOT_RUNNING)

        await self._hand.change(_ref_of(vmi), edit)
        text = f"Created virtual machine pod {memory.pod}"
        await self._recorder.tell(vmi, "SuccessfulCreate", text, names.VIRT_CONTROLLER)
        return None

    async def _lack(self, vmi: Raw, claim: str) -> None:
        text = f"PVC {claim} does not exist, waiting for it to appear"
        scheduled = Condition("PodScheduled", "False", "Unschedulable", f"failed to find PVC {claim}")
        synchronized = Condition("Synchronized", "False", "FailedPvcNotFound", text)
        await self._hand.change(_ref_of(vmi), lambda raw: self._say(raw, scheduled, synchronized))
        await self._recorder.tell(vmi, "FailedPvcNotFound", text, names.VIRT_CONTROLLER, "Warning")

    async def _schedule(self, vmi: Raw, memory: Memory) -> datetime | None:
        if not memory.host:
            why = self._find_host(vmi, memory)
            if why:
                said = Condition("PodScheduled", "False", "Unschedulable", why)
                await self._hand.change(_ref_of(vmi), lambda raw: self._say(raw, said))
                return None
            await self._hand.change(_ref_of(vmi), lambda raw: self._unsay(raw, "PodScheduled"))
            await self._pods.bind(vmi, memory.pod, memory.host)
        if not self._hosts.has_power(memory.host):
            return await self._stand_on_dead_host(vmi, memory)
        namespace = namespace_of(vmi)
        if any((namespace, secret) not in self._world.secrets for secret in secrets_of(vmi)):
            memory.since.pop("start", None)
            return None  # ContainerCreating: the kubelet waits for the Secret
        nads = [nad for nad in networks_of(vmi["spec"], namespace).values() if nad]
        if any(tuple(nad.split("/", 1)) not in self._world.networks for nad in nads):
            return None  # the same: multus finds no such network
        due = self._due(memory, "start", self._delays.pod_start)
        if self._pace.now() < due:
            return due

        await self._pods.run(vmi, memory.pod, memory.pod_address, self._pace.now())

        def edit(raw: Raw) -> None:
            raw["status"] = self._entered(raw, "Scheduled")
            raw["status"]["nodeName"] = memory.host
            raw["status"]["activePods"] = {memory.pod_uid: memory.host}
            raw["status"]["launcherContainerImageVersion"] = LAUNCHER
            raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = memory.host
            self._tell_topology(raw)

        await self._hand.change(_ref_of(vmi), edit)
        return None

    def _find_host(self, vmi: Raw, memory: Memory) -> str:
        """Choose a host; the scheduler's text where there is none."""
        nodes = list(self._world.nodes.values())
        unbound = [
            claim
            for claim in claims_of(vmi["spec"])
            if dig(self._world.claims.get((namespace_of(vmi), claim)), "status", "phase") != "Bound"
        ]
        if unbound:
            return (
                f"0/{len(nodes)} nodes are available: pod has unbound immediate PersistentVolumeClaims. "
                f"preemption: 0/{len(nodes)} nodes are available: {len(nodes)} Preemption is not helpful for scheduling."
            )
        found = place(vmi, [self._tenants.host(node) for node in nodes])
        if isinstance(found, Unschedulable):
            return found.message
        memory.host = found.host
        self._tenants.enter(vmi, found.host)
        return ""

    # --- migration ----------------------------------------------------------------------------------------------

    def find_target(self, vmi: Raw) -> Placed | Unschedulable:
        """Another host for a running instance."""
        here = dig(vmi, "status", "nodeName")
        nodes = [node for node in self._world.nodes.values() if name_of(node) != here]
        return place(vmi, [self._tenants.host(node) for node in nodes])

    def can_move(self, vmi: Raw, target: str) -> bool:
        """Whether the instance still runs and both hosts have power."""
        here = dig(vmi, "status", "nodeName", default="")
        return (
            self._power.find(uid_of(vmi)) is not None
            and self._hosts.has_power(here)
            and self._hosts.has_power(target)
        )

    async def move(self, vmi: Raw, target: str, mark: Callable[[Raw], None]) -> None:
        """The domain runs on `target` from now on; `mark` adds what the migration wants said."""
        memory = self._memories.setdefault(uid_of(vmi), Memory())
        memory.host = target
        self._tenants.enter(vmi, target)
        await self._pods.remove(vmi, memory.pod)
        memory.pod = f"virt-launcher-{name_of(vmi)}-{self._chance.suffix()}"
        memory.pod_uid = await self._pods.create(vmi, memory.pod)
        await self._pods.bind(vmi, memory.pod, target)
        await self._pods.run(vmi, memory.pod, memory.pod_address, self._pace.now())

        def edit(raw: Raw) -> None:
            raw["status"]["nodeName"] = target
            raw["status"]["activePods"] = {memory.pod_uid: target}
            raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = target
            mark(raw)
            self._tell_topology(raw)

        await self._hand.change(_ref_of(vmi), edit)

    async def _define(self, vmi: Raw, memory: Memory) -> datetime | None:
        memory.host = memory.host or dig(vmi, "status", "nodeName", default="")
        if not self._hosts.has_power(memory.host):
            return await self._stand_on_dead_host(vmi, memory)
        due = self._due(memory, "domain", self._delays.domain_define + self._delays.domain_start)
        if self._pace.now() < due:
            return due
        hardware = self._hardware(vmi)
        self._power.on((namespace_of(vmi), name_of(vmi)), hardware)

        def edit(raw: Raw) -> None:
            raw["status"] = self._entered(raw, "Running")
            raw["status"].update(self._domain(raw, memory))
            self._say(raw, Condition("Ready", "True"), *_MIGRATABLE)
            raw["status"]["interfaces"] = interfaces.started(hardware.nics, memory.pod_address, None)

        await self._hand.change(_ref_of(vmi), edit)
        await self._recorder.tell(vmi, "Created", "VirtualMachineInstance defined.", names.VIRT_HANDLER)
        await self._recorder.tell(vmi, "Started", "VirtualMachineInstance started.", names.VIRT_HANDLER)
        return None

    async def _watch_over(self, vmi: Raw, memory: Memory) -> datetime | None:
        memory.host = memory.host or dig(vmi, "status", "nodeName", default="")
        if not self._hosts.has_power(memory.host):
            self._power.off(uid_of(vmi))
            return await self._stand_on_dead_host(vmi, memory)
        plug = self._power.find(uid_of(vmi))
        if plug is None:
            # Its host lost power and has it again, or this emulator was restarted: the domain is no more.
            await self._end(vmi, "Failed", "The VirtualMachineInstance crashed.", "Warning")
            return None
        if plug.ending == "crash":
            await self._end(vmi, "Failed", "The VirtualMachineInstance crashed.", "Warning")
            return None
        if plug.ending == "poweroff":
            await self._end(vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
            return None
        return await self._hear(vmi, memory, plug)

    async def _hear(self, vmi: Raw, memory: Memory, plug: Plug) -> datetime | None:
        """Bring the status in line with what domain and agent report."""
        report = plug.report
        if report is not None and report != memory.shown:
            # A new agent is polled fast; what it says later waits for the next ordinary poll.
            wait = self._delays.agent_connect if memory.shown is None else self._delays.agent_poll
            due = self._due(memory, "agent", wait)
            if self._pace.now() < due:
                return due
        memory.since.pop("agent", None)
        memory.shown = report

        def edit(raw: Raw) -> None:
            raw["status"]["interfaces"] = interfaces.started(plug.hardware.nics, memory.pod_address, report)
            self._say(raw, Condition("Ready", "True"))
            self._tell_agent(raw, report)
            self._tell_topology(raw)

        await self._hand.change(_ref_of(vmi), edit)
        return None

    # --- ends ---------------------------------------------------------------------------------------------------

    async def _take_down(self, vmi: Raw, memory: Memory) -> datetime | None:
        """Deletion of an instance that lives: button, grace, plug."""
        host = memory.host or dig(vmi, "status", "nodeName", default="")
        if host and not self._hosts.has_power(host):
            self._power.off(uid_of(vmi))
            return await self._stand_on_dead_host(vmi, memory)
        plug = self._power.find(uid_of(vmi))
        if plug is None:
            await self._end(vmi, "Failed", "")
            return None
        if plug.ending is not None:
            await self._end(vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
            return None
        if not plug.closing:
            await self._recorder.tell(vmi, "ShuttingDown", "Signaled Graceful Shutdown", names.VIRT_HANDLER)
        self._power.press(uid_of(vmi))
        due = self._due(memory, "grace", grace_of(vmi).total_seconds())
        if self._pace.now() < due:
            return due
        self._power.off(uid_of(vmi))
        await self._recorder.tell(vmi, "Deleted", "Signaled Deletion", names.VIRT_HANDLER)
        await self._end(vmi, "Failed", "The VirtualMachineInstance was shut down.")
        return None

    async def _end(self, vmi: Raw, phase: str, text: str, type: str = "Normal", reason: str = "") -> None:
        """The domain is no more."""
        self._power.off(uid_of(vmi))
        self._tenants.leave(uid_of(vmi))

        def edit(raw: Raw) -> None:
            raw["status"] = self._entered(raw, phase)
            if reason:
                raw["status"]["reason"] = reason
            raw["status"]["interfaces"] = []
            self._unsay(raw, "AgentConnected")
            self._say(raw, _NOT_RUNNING)

        await self._hand.change(_ref_of(vmi), edit)
        if text:
            await self._recorder.tell(vmi, "Stopped", text, names.VIRT_HANDLER, type)

    async def _clear_away(self, vmi: Raw, memory: Memory) -> datetime | None:
        """A final instance keeps its place until its pod is gone; then its object may go."""
        self._power.off(uid_of(vmi))
        self._tenants.leave(uid_of(vmi))
        if not is_deleting(vmi):
            return None
        due = self._due(memory, "stopped", self._delays.pod_stop if memory.pod else 0.0)
        if self._pace.now() < due:
            return due
        await self._pods.remove(vmi, memory.pod)
        await self._hand.change(_ref_of(vmi), _release)
        self._memories.pop(uid_of(vmi), None)
        return None

    async def _stand_on_dead_host(self, vmi: Raw, memory: Memory) -> datetime | None:
        """The host has no power. Nobody knows until its node turns Unknown; nobody acts until it is cleared."""
        health, look = self._hosts.health(memory.host)
        if health.cleared:
            text = f"virt-handler on node {memory.host} is not responsive, marking VMI as failed"
            await self._recorder.tell(vmi, "NodeUnresponsive", text, names.VIRT_CONTROLLER, "Warning")
            await self._end(vmi, "Failed", "", reason="NodeUnresponsive")
            return None
        if not health.ready and phase_of(vmi) == "Running":
            await self._hand.change(_ref_of(vmi), lambda raw: self._say(raw, _POD_NOT_READY))
        return look

    # --- words --------------------------------------------------------------------------------------------------

    def _due(self, memory: Memory, what: str, seconds: float) -> datetime:
        return self._pace.after(seconds, memory.since.setdefault(what, self._pace.now()))

    def _entered(self, raw: Raw, phase: str) -> Raw:
        return enter_phase(raw.get("status") or {}, phase, self._pace.now())

    def _say(self, raw: Raw, *said: Condition) -> None:
        conditions = dig(raw, "status", "conditions", default=[])
        for one in said:
            conditions = set_condition(conditions, one, self._pace.now())
        for condition in conditions:
            condition.setdefault("lastProbeTime", None)
            for key in ("reason", "message"):
                if not condition.get(key):
                    condition.pop(key, None)
        raw.setdefault("status", {})["conditions"] = conditions

    def _unsay(self, raw: Raw, *types: str) -> None:
        conditions = dig(raw, "status", "conditions", default=[])
        raw["status"]["conditions"] = [one for one in conditions if one["type"] not in types]

    def _tell_agent(self, raw: Raw, report: AgentReport | None) -> None:
        if report is None:
            self._unsay(raw, "AgentConnected")
            return
        self._say(raw, Condition("AgentConnected", "True"))
        raw["status"]["guestOSInfo"] = interfaces.guest_os(report)

    def _tell_topology(self, raw: Raw) -> None:
        """Region, zone and hostname of the host, for machines of the node driver alone (reference 05 §5.2)."""
        if labels_of(raw).get(names.CREATOR) != names.NODE_DRIVER:
            return
        node = self._world.nodes.get(("", dig(raw, "status", "nodeName", default="")))
        if node is None:
            return
        annotations = raw["metadata"].setdefault("annotations", {})
        for key in names.TOPOLOGY:
            value = labels_of(node).get(key)
            if value:
                annotations[key] = value
            else:
                annotations.pop(key, None)

    async def _sync_labels(self, vmi: Raw, key: Key) -> Raw | None:
        """Harvester keeps the instance's labels equal to the template's; KubeVirt's own are left alone."""
        vm = self._world.vms.get(key)
        if vm is None or is_deleting(vmi):
            return None
        wanted = dig(vm, "spec", "template", "metadata", "labels", default={})
        kept = {name: value for name, value in labels_of(vmi).items() if name.startswith("kubevirt.io/")}
        if {**wanted, **kept} == labels_of(vmi):
            return None
        return await self._hand.change(
            _ref_of(vmi), lambda raw: raw["metadata"].update(labels={**wanted, **kept})
        )

    def _domain(self, raw: Raw, memory: Memory) -> Raw:
        cpu = dig(raw, "spec", "domain", "cpu", default={})
        guest = dig(raw, "spec", "domain", "memory", "guest", default="")
        return {
            "migrationMethod": "BlockMigration",
            "migrationTransport": "Unix",
            "currentCPUTopology": {key: cpu.get(key, 1) for key in ("sockets", "cores", "threads")},
            "memory": dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), guest),
            "machine": {"type": "pc-q35-9.2"},
            "volumeStatus": [
                {"name": volume["name"], "target": f"vd{letter}"}
                for volume, letter in zip(raw["spec"].get("volumes") or (), "abcdefghijklmnop", strict=False)
            ],
        }

    def _hardware(self, vmi: Raw) -> Hardware:
        namespace = namespace_of(vmi)
        claim = self._world.claims.get((namespace, root_claim_of(vmi["spec"])))
        image_id = annotations_of(claim).get(names.IMAGE_ID, "") if claim else ""
        image = self._world.images.get(tuple(image_id.split("/", 1))) if "/" in image_id else None  # type: ignore[arg-type]
        cloud_init = read_cloud_init(vmi, self._world.secrets, namespace)
        owner: Raw = next(iter(vmi["metadata"].get("ownerReferences") or ()), {})
        return Hardware(
            namespace=namespace,
            name=name_of(vmi),
            vm_uid=owner.get("uid", ""),
            vmi_uid=uid_of(vmi),
            user_data=cloud_init.user_data,
            network_data=cloud_init.network_data,
            nics=interfaces.nics_of(vmi, namespace),
            root=self._power.disk(uid_of(claim) if claim else uid_of(vmi)),
            image=image_id,
            image_has_agent=has_agent(image),
            cores=int(dig(vmi, "spec", "domain", "cpu", "cores", default=1)),
            memory_bytes=int(quantity_or_zero(dig(vmi, "spec", "domain", "memory", "guest"))) or 4 << 30,
        )


_NOT_READY = Condition("Ready", "False", "PodNotExists", "virt-launcher pod has not yet been scheduled")
_NOT_RUNNING = Condition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running")
_POD_NOT_READY = Condition(
    "Ready", "False", "PodConditionMissing", "virt-launcher pod is not ready: its node is not"
)
_MIGRATABLE = (Condition("LiveMigratable", "True"), Condition("StorageLiveMigratable", "True"))


def _release(raw: Raw) -> None:
    finalizers = raw["metadata"].get("finalizers") or ()
    raw["metadata"]["finalizers"] = [one for one in finalizers if one != names.VMI_FINALIZER]


def _ref(key: Key) -> Ref:
    return kinds.VMI.ref(key[1], key[0])


def _ref_of(vmi: Raw) -> Ref:
    return kinds.VMI.ref(name_of(vmi), namespace_of(vmi))
