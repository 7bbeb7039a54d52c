"""The controller that fences Nodes, in the process that holds the Lease of the Go driver's: so the two never act at once."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.leader_election import LeaderElector, LeadershipLost
from windrow.client.transport import Transport
from windrow.controller.controller import Controller
from windrow.controller.outcomes import Outcome, Settled, Waiting
from windrow.core.clock import Clock, format_time, sleep
from windrow.core.rng import Rng
from windrow.csi import names
from windrow.csi.fencing.planning import FencedNode, is_vm_of, plan_reads, read_node, render_node
from windrow.harvester.resources import VM, VMI
from windrow.harvester.shutdown import LAUNCHERS, Shutdown, read_shutdown, select_launchers
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import NODE, PERSISTENT_VOLUME, POD, PVC, VOLUME_ATTACHMENT

LEASE_NAMESPACE, LEASE_NAME = "kube-system", "harvester-csi-node-monitor"
# A Node that is not Ready is asked about again: what proves its shutdown on Harvester is watched by no one here.
RECHECK = timedelta(seconds=10)
RECHECK_WITHOUT_VOLUME = timedelta(seconds=30)
NO_VOLUME = Shutdown(False, "no volume of this driver is attached to it")


class NodeFencing:
    """Its owner runs it while it is used. `namespace` is that of the VMs on Harvester, which `host` reads."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
    ) -> None:
        self._guest, self._host, self._namespace = Client(guest), Client(host), namespace
        self._transport, self._clock, self._rng, self._log = guest, clock, rng, log

    async def run(self) -> None:
        """Compete for the Lease, and fence while it is held, until cancelled."""
        identity = f"{names.DRIVER}-{self._rng.uid()}"
        while True:
            elector = LeaderElector(
                self._guest, LEASE_NAMESPACE, LEASE_NAME, identity, self._clock, self._rng
            )
            try:
                await elector.run(self.fence)
            except LeadershipLost as lost:
                self._log.warning("%s", lost)
            await sleep(self._clock, RECHECK)

    async def fence(self) -> None:
        """Fence until cancelled; only the holder of the Lease does."""
        nodes: Informer[FencedNode] = Informer(self._transport, NODE, "", read_node, self._clock, self._rng)
        controller: Controller[str] = Controller(
            "node-fencing", lambda name: self._reconcile(nodes.get(NODE.ref(name))), self._clock, self._rng
        )

        async def follow() -> None:
            async for before, after in nodes.changes():
                node = after or before
                assert node is not None
                controller.queue.add(node.name)

        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(follow())
            group.create_task(controller.run())

    async def _reconcile(self, node: FencedNode | None) -> Outcome:
        """Raises KubeError; then it is tried again, later each time."""
        match plan_reads(node) if node is not None else "":
            case "shutdown" if node is not None:
                found = await self._prove_shutdown(node)
                if found.is_proven:
                    await self._write(node, fenced=True, because=found.because)
                    return Settled()
                pause = RECHECK_WITHOUT_VOLUME if found is NO_VOLUME else RECHECK
                now = self._clock.now()
                return Waiting(
                    f"proof that the VM of Node {node.name} was shut down", now, "it is tainted", now + pause
                )
            case "running" if node is not None:
                raw = await self._host.find(VMI.ref(node.name, self._namespace))
                if raw is not None and nested(raw, "status", "phase") == "Running":
                    await self._write(node, fenced=False, because="its VM runs and it is Ready")
                    return Settled()
                now = self._clock.now()
                return Waiting(
                    f"the VM of Node {node.name} to run", now, "its taint is removed", now + RECHECK
                )
            case _:
                return Settled()

    async def _prove_shutdown(self, node: FencedNode) -> Shutdown:
        if not await self._has_volume(node):
            return NO_VOLUME
        refs = (kind.ref(node.name, self._namespace) for kind in (VM, VMI))
        vm, vmi = await asyncio.gather(*map(self._host.find, refs))
        if not is_vm_of(node, vm):
            return Shutdown(False, f"VirtualMachine {self._namespace}/{node.name} is another's")
        pods = select_launchers(node.name, await self._host.list(POD, self._namespace, LAUNCHERS))
        return read_shutdown(f"VirtualMachine {self._namespace}/{node.name}", vm, vmi, pods)

    async def _has_volume(self, node: FencedNode) -> bool:
        """Whether a volume of this driver is attached to the Node whose claim is in the namespace."""
        for raw in await self._guest.list(VOLUME_ATTACHMENT):
            if (
                nested(raw, "spec", "attacher") != names.DRIVER
                or nested(raw, "spec", "nodeName") != node.name
            ):
                continue
            volume = str(nested(raw, "spec", "source", "persistentVolumeName", default=""))
            found = await self._guest.find(PERSISTENT_VOLUME.ref(volume)) if volume else None
            handle = str(nested(found or {}, "spec", "csi", "volumeHandle", default=""))
            if handle and await self._host.find(PVC.ref(handle, self._namespace)) is not None:
                return True
        return False

    async def _write(self, node: FencedNode, *, fenced: bool, because: str) -> None:
        """Raises Conflict where the Node was changed meanwhile."""
        raw = await self._guest.find(NODE.ref(node.name))
        if raw is None or read_node(raw).uid != node.uid:
            return
        changed = render_node(raw, fenced=fenced, now=format_time(self._clock.now()))
        if changed is not None:
            await self._guest.update(NODE, changed)
            verb = "tainted as out of service" if fenced else "is in service again"
            self._log.warning("Node %s %s: %s", node.name, verb, because)
