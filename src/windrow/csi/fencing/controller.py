"""The controller that fences Nodes, in the process that holds the Lease of the Go driver's: so the two never act at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.leader_election import LeaderElector, LeadershipLost
from windrow.client.transport import Transport
from windrow.controller.controller import Controller
from windrow.controller.outcomes import Outcome, Settled, Waiting
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.csi import names
from windrow.csi.fencing.planning import (
    describe_doubt,
    is_running,
    plan_reads,
    render_node,
)
from windrow.csi.harvester.attachments.records import read_records
from windrow.csi.nodes import GuestNode, NodeVm, read_node
from windrow.harvester.resources import VM, VMI
from windrow.harvester.shutdown import LAUNCHERS, Shutdown, read_shutdown, select_launchers
from windrow.kubernetes.objects import Raw, annotations_of, nested
from windrow.kubernetes.resources import NODE, PERSISTENT_VOLUME, POD, PVC, VOLUME_ATTACHMENT

LEASE_NAMESPACE, LEASE_NAME = "kube-system", "harvester-csi-node-monitor"
# A Node that is not Ready is asked about again: what proves its shutdown on Harvester is watched by no one here.
RECHECK = timedelta(seconds=10)
RECHECK_WITHOUT_VOLUME = timedelta(seconds=30)
NO_VOLUME = Shutdown(False, "no volume of this driver is attached to it")


class NodeVms(Protocol):
    """Which VM each Node runs in, as volumes are attached."""

    async def find_vm(self, node_id: str) -> NodeVm | None:
        """The VM that the node runs in, or ran in when it was last there; None where neither is known."""
        ...


class NodeFencing:
    """Its owner runs it while it is used. `namespace` is that of the VMs on Harvester, which `host` reads."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        vms: NodeVms,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
    ) -> None:
        self._guest, self._host, self._namespace = Client(guest), Client(host), namespace
        self._transport, self._clock, self._rng, self._log = guest, clock, rng, log
        self._vms = vms
        # By Node, what was last logged of it, and since when that is waited for.
        self._logged: dict[str, tuple[str, datetime]] = {}

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
        nodes: Informer[GuestNode] = Informer(self._transport, NODE, "", read_node, self._clock, self._rng)
        controller: Controller[str] = Controller("node-fencing", self._reconcile, self._clock, self._rng)

        async def follow() -> None:
            async for before, after in nodes.changes():
                node = after or before
                assert node is not None
                controller.queue.add(node.name)

        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(follow())
            group.create_task(controller.run())

    async def _reconcile(self, name: str) -> Outcome:
        """Raises KubeError; then it is tried again, later each time.

        The Node is read first and written with the version that was read, so a Node that has changed since, before or behind the
        proof, is not written.
        """
        raw = await self._guest.find(NODE.ref(name))
        node = read_node(raw) if raw is not None else None
        if raw is None or node is None:
            self._logged.pop(name, None)
            return Settled()
        match plan_reads(node):
            case "shutdown":
                found = await self._prove_shutdown(node)
                if found.is_proven:
                    await self._write(raw, fenced=True, because=found.because)
                    return Settled()
                return self._wait(node, "not tainted", found)
            case "running":
                known = await self._vms.find_vm(name)
                vmi = await self._host.find(VMI.ref(known.name, self._namespace)) if known else None
                if is_running(known, vmi):
                    await self._write(raw, fenced=False, because="its VM runs and it is Ready")
                    return Settled()
                because = (
                    f"VirtualMachine {self._namespace}/{known.name} does not run"
                    if known
                    else "it is not known which VirtualMachine it runs in"
                )
                return self._wait(node, "out of service yet", Shutdown(False, because))
            case _:
                if node.other_provider and not node.is_ready:
                    self._log_once(name, f"never tainted: its providerID is {node.other_provider}")
                else:
                    self._logged.pop(name, None)
                return Settled()

    def _wait(self, node: GuestNode, state: str, found: Shutdown) -> Waiting:
        since, now = self._log_once(node.name, f"{state}: {found.because}"), self._clock.now()
        pause = RECHECK_WITHOUT_VOLUME if found is NO_VOLUME else RECHECK
        return Waiting(f"Node {node.name}, {state}: {found.because}", since, "it is asked again", now + pause)

    def _log_once(self, name: str, what: str) -> datetime:
        """Log what is new. Since when it is so."""
        logged, since = self._logged.get(name, ("", self._clock.now()))
        if logged != what:
            since = self._clock.now()
            self._logged[name] = what, since
            self._log.info("Node %s is %s", name, what)
        return since

    async def _prove_shutdown(self, node: GuestNode) -> Shutdown:
        claims = await self._claims_of(node)
        if not claims:
            return NO_VOLUME
        known = await self._vms.find_vm(node.name)
        name = known.name if known is not None else node.name
        refs = (kind.ref(name, self._namespace) for kind in (VM, VMI))
        vm, vmi = await asyncio.gather(*map(self._host.find, refs))
        attached_to = {key for claim in claims for key in read_records(annotations_of(claim))}
        if doubt := describe_doubt(known, vm, attached_to):
            return Shutdown(False, doubt)
        pods = select_launchers(name, await self._host.list(POD, self._namespace, LAUNCHERS))
        return read_shutdown(f"VirtualMachine {self._namespace}/{name}", vm, vmi, pods)

    async def _claims_of(self, node: GuestNode) -> Collection[Raw]:
        """The claims in the namespace that are volumes of this driver which are attached to the Node."""
        claims = []
        for raw in await self._guest.list(VOLUME_ATTACHMENT):
            if (
                nested(raw, "spec", "attacher") != names.DRIVER
                or nested(raw, "spec", "nodeName") != node.name
            ):
                continue
            volume = str(nested(raw, "spec", "source", "persistentVolumeName", default=""))
            found = await self._guest.find(PERSISTENT_VOLUME.ref(volume)) if volume else None
            handle = str(nested(found or {}, "spec", "csi", "volumeHandle", default=""))
            claim = await self._host.find(PVC.ref(handle, self._namespace)) if handle else None
            if claim is not None:
                claims.append(claim)
        return claims

    async def _write(self, raw: Raw, *, fenced: bool, because: str) -> None:
        """Raises Conflict where the Node was changed since it was read."""
        node = read_node(raw)
        changed = render_node(raw, fenced=fenced, now=self._clock.now())
        if changed is None:
            return
        await self._guest.update(NODE, changed)
        self._logged.pop(node.name, None)
        verb = "tainted as out of service" if fenced else "is in service again"
        self._log.warning("Node %s %s: %s", node.name, verb, because)
