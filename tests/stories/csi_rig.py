"""The service Controller of the CSI driver over an emulated Harvester with VMs, in processes that can be killed.

What a process had sent is carried out although it dies, or its caller gives up: requests under way live in tasks of the rig.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message

from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until
from windrow.csi.cmd.connection import host_transport
from windrow.csi.controller import ControllerService
from windrow.csi.errors import CsiError
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.server import CALL_TIMEOUT, status_code
from windrow.csi.waits import begin_call
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import PVC
from windrow.protocols.csi import csi_pb2 as csi

from .harvester_rig import NAMESPACE, a_harvester, boot

NODES = ("node-1", "node-2", "node-3")
GUEST = "0f1e2d3c-guest"
GIB = 2**30
LOG = logging.getLogger("csi-stories")
READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to: the code's name, its response or the error's text, and how long it took."""

    code: str
    response: Any
    text: str
    took_s: float

    @property
    def is_ok(self) -> bool:
        return self.code == "OK"


class Line(TransportMiddleware):
    """What lies between one process and Harvester."""

    def __init__(self, inner: Transport, rig: CsiRig) -> None:
        super().__init__(inner)
        self._rig = rig
        self.is_dead = False

    async def send(self, request: Request) -> Reply:
        self._require_up()
        self._rig.requests.append(request)
        task = asyncio.create_task(self._inner.send(request))
        if request.method not in READS:
            self._rig.under_way.add(task)
            task.add_done_callback(self._rig.on_written)
        return await asyncio.shield(task)

    def stream(self, request: Request) -> Any:
        self._require_up()
        return self._inner.stream(request)

    def _require_up(self) -> None:
        if self.is_dead or self._rig.is_down:
            raise Unreachable("connection refused: Harvester is down")


@dataclass
class Process:
    line: Line
    controller: ControllerService
    running: asyncio.Task[None]
    calls: dict[asyncio.Task[Any], None]


class CsiRig:
    """One driver, restarted as often as wished, and the Harvester behind it."""

    def __init__(self, harvester: Harvester, tasks: asyncio.TaskGroup, seed: int = 5) -> None:
        self.harvester, self._tasks, self._seed = harvester, tasks, seed
        self.client = harvester.api.local()
        self.clock = harvester.clock.base
        self.requests: list[Request] = []
        # Writes that Harvester is still to carry out, and those of them whose process has died.
        self.under_way: set[asyncio.Task[Any]] = set()
        self.orphaned: set[asyncio.Task[Any]] = set()
        self.is_down = False
        self.after_write: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.process = self._start()

    @property
    def now_s(self) -> float:
        return self.clock.monotonic().total_seconds()

    def _start(self) -> Process:
        harvester, clock, rng = self.harvester, self.clock, Rng(self._seed)
        access = parse_kubeconfig(harvester.token_kubeconfig(harvester.new_token(), ""))
        line = Line(InProcessTransport(access, harvester.network.find, clock), self)
        volumes = HarvesterVolumes(
            host_transport(line, clock, rng), HostOptions(NAMESPACE, guest_uid=GUEST), clock, rng, LOG
        )
        running = self._tasks.create_task(volumes.run())
        return Process(line, ControllerService(IdempotentVolumes(volumes), LOG), running, {})

    def kill(self) -> None:
        """The process dies; its callers are told nothing but that it is gone."""
        self.process.line.is_dead = True
        self.process.running.cancel()
        for call in list(self.process.calls):
            call.cancel()
        self.orphaned |= self.under_way

    def restart(self) -> None:
        self.kill()
        self.process = self._start()

    def on_written(self, task: asyncio.Task[Any]) -> None:
        self.under_way.discard(task)
        self.orphaned.discard(task)
        if not task.cancelled():
            task.exception()  # read, also where its sender has gone
        if self.after_write is not None:
            self._tasks.create_task(self.after_write())

    async def lose_host(self, seconds: float) -> None:
        self.is_down = True
        self.harvester.faults.cut_watches()
        await sleep(self.clock, timedelta(seconds=seconds))
        self.is_down = False

    async def call(self, method: str, request: Message, limit: timedelta = CALL_TIMEOUT) -> Answer:
        """One call, as the socket's server guards it. CANCELLED where its caller gave up, or the process died."""
        began, process = self.now_s, self.process
        wait = begin_call()

        async def guarded() -> Any:
            work: Awaitable[Any] = getattr(process.controller, method)(request)
            return await run_until(work, sleep(self.clock, limit))

        task = asyncio.create_task(guarded())
        process.calls[task] = None
        response, text = None, ""
        try:
            response, code = await task, "OK"
        except CsiError as error:
            code, text = status_code(error).name, str(error)
        except Stopped:
            code, text = "ABORTED", f"out of time while waiting for {wait.what}"
        except asyncio.CancelledError:
            if not task.done():
                await cancel(task)
            code = "CANCELLED"
        finally:
            del process.calls[task]
        return Answer(code, response, text, self.now_s - began)

    async def until_done(self, method: str, request: Message, patience_s: float = 1800) -> list[Answer]:
        """The call, repeated with the back-off of a side-car until it is OK; what each came to."""
        answers, pause, end = [], 1.0, self.now_s + patience_s
        while True:
            answers.append(await self.call(method, request))
            if answers[-1].is_ok or self.now_s > end:
                return answers
            await sleep(self.clock, timedelta(seconds=pause))
            pause = min(pause * 2, 30.0)

    # --- what is there ----------------------------------------------------------------------------------------------

    async def claims(self) -> dict[str, Raw]:
        return {name_of(raw): raw for raw in await self.client.list(PVC, NAMESPACE)}

    async def snapshots(self) -> dict[str, Raw]:
        return {name_of(raw): raw for raw in await self.client.list(kinds.SNAPSHOT, NAMESPACE)}

    async def exports(self) -> list[tuple[str, dict[str, str]]]:
        """Of each shared volume whether it is to be exported, and the nodes that are recorded."""
        found = await self.client.list(kinds.NETWORK_FILE_SYSTEM, "harvester-system")
        return [
            (raw["spec"]["desiredState"], json.loads(annotations_of(raw)["windrow.io/csi-nodes"]))
            for raw in found
        ]

    async def vm_claims(self) -> dict[str, list[str]]:
        """The claims in the template of each VM, but for its root disk."""
        return {name_of(raw): _claims(raw) for raw in await self.client.list(kinds.VM, NAMESPACE)}

    async def observe(self) -> dict[str, str]:
        """What an administrator sees of the driver's volumes."""
        found = {}
        for name, raw in (await self.claims()).items():
            if "-disk-0" not in name:
                size = nested(raw, "status", "capacity", "storage", default="no capacity")
                going = ", deleting" if "deletionTimestamp" in raw["metadata"] else ""
                found[f"claim {name}"] = f"{nested(raw, 'status', 'phase', default='Pending')} {size}{going}"
        for name, raw in (await self.snapshots()).items():
            found[f"snapshot {name}"] = f"ready {nested(raw, 'status', 'readyToUse', default=False)}"
        for name, claims in (await self.vm_claims()).items():
            found[f"VM {name}"] = ", ".join(claims) or "no volume"
        for raw in await self.client.list(kinds.VMI, NAMESPACE):
            plugged = [
                f"{one['name']} {one.get('phase', '')}"
                for one in nested(raw, "status", "volumeStatus", default=[])
                if "hotplugVolume" in one
            ]
            found[f"VMI {name_of(raw)}"] = ", ".join(plugged) or "no volume"
        return found


def _claims(vm: Raw) -> list[str]:
    volumes = nested(vm, "spec", "template", "spec", "volumes", default=[])
    found = [nested(one, "persistentVolumeClaim", "claimName", default="") for one in volumes]
    return [one for one in found if one and "-disk-0" not in one]


async def cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


@asynccontextmanager
async def a_csi_rig(seed: int = 5, nodes: tuple[str, ...] = NODES, **options: Any) -> AsyncIterator[CsiRig]:
    async with a_harvester(seed, **options) as harvester:
        for name in nodes:
            await boot(harvester, name=name)
        async with asyncio.TaskGroup() as tasks:
            rig = CsiRig(harvester, tasks, seed)
            yield rig
            rig.kill()


# --- requests -------------------------------------------------------------------------------------------------------

CAPABILITY = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode=csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER),
)


SHARED = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=csi.VolumeCapability.AccessMode(mode=csi.VolumeCapability.AccessMode.MULTI_NODE_MULTI_WRITER),
)


def create(
    name: str,
    gib: float = 1,
    snapshot: str = "",
    host_class: str = "",
    capability: csi.VolumeCapability = CAPABILITY,
) -> csi.CreateVolumeRequest:
    request = csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=int(gib * GIB)),
        volume_capabilities=[capability],
        parameters={"hostStorageClass": host_class} if host_class else {},
    )
    if snapshot:
        request.volume_content_source.snapshot.snapshot_id = snapshot
    return request


def delete(volume_id: str) -> csi.DeleteVolumeRequest:
    return csi.DeleteVolumeRequest(volume_id=volume_id)


def publish(
    volume_id: str, node_id: str, capability: csi.VolumeCapability = CAPABILITY
) -> csi.ControllerPublishVolumeRequest:
    return csi.ControllerPublishVolumeRequest(
        volume_id=volume_id, node_id=node_id, volume_capability=capability
    )


def unpublish(volume_id: str, node_id: str = "") -> csi.ControllerUnpublishVolumeRequest:
    return csi.ControllerUnpublishVolumeRequest(volume_id=volume_id, node_id=node_id)


def expand(volume_id: str, gib: float) -> csi.ControllerExpandVolumeRequest:
    capacity = csi.CapacityRange(required_bytes=int(gib * GIB))
    return csi.ControllerExpandVolumeRequest(
        volume_id=volume_id, capacity_range=capacity, volume_capability=CAPABILITY
    )


def create_snapshot(name: str, volume_id: str) -> csi.CreateSnapshotRequest:
    return csi.CreateSnapshotRequest(name=name, source_volume_id=volume_id)


def delete_snapshot(snapshot_id: str) -> csi.DeleteSnapshotRequest:
    return csi.DeleteSnapshotRequest(snapshot_id=snapshot_id)


METHODS = {
    csi.CreateVolumeRequest: "CreateVolume",
    csi.DeleteVolumeRequest: "DeleteVolume",
    csi.ControllerPublishVolumeRequest: "ControllerPublishVolume",
    csi.ControllerUnpublishVolumeRequest: "ControllerUnpublishVolume",
    csi.ControllerExpandVolumeRequest: "ControllerExpandVolume",
    csi.CreateSnapshotRequest: "CreateSnapshot",
    csi.DeleteSnapshotRequest: "DeleteSnapshot",
    csi.ListVolumesRequest: "ListVolumes",
    csi.ListSnapshotsRequest: "ListSnapshots",
}


def describe(request: Message) -> str:
    """`ControllerPublishVolume data-1 node-1`."""
    fields = ("name", "snapshot_id", "source_volume_id", "volume_id", "node_id")
    words = [str(getattr(request, one, "")) for one in fields]
    return " ".join([METHODS[type(request)], *(one for one in words if one)])
