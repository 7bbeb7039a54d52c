"""The kubelet's volume manager on one node: calls the CSI driver that is registered there to mount what pods need.

A volume is staged once, when it is attached and named in the Node's `status.volumesInUse`, and published for each pod;
what no pod needs is unpublished and unstaged, and then named no more. Calls for one volume are made one at a time, and
repeated with the kubelet's back-off; the pods are told by events. What is mounted is lost with the machine's power, and
known to a kubelet that is started again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.capabilities import render_volume_capability, storage_bytes
from windrow.emulator.guest_cluster.csi.port import CsiCall, CsiFailed
from windrow.emulator.guest_os.notifier import Notifier, result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.storage import MountedVolume
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import key_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, name_of, nested, uid_of
from windrow.kubernetes.resources import NODE, PVC

_PLUGINS = "/var/lib/kubelet/plugins/kubernetes.io/csi"
_PODS = "/var/lib/kubelet/pods"
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 122.0
_STATUS_RETRY_S = 10.0
_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"
_CAPABILITIES = ("STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", _MULTI_WRITER)


@dataclass(frozen=True, slots=True)
class VolumeToMount:
    """One volume of one pod. `attached` is its publish context; None while it is not attached."""

    pod: Raw = field(repr=False, compare=False)
    name: str
    unique_name: str
    volume: Raw = field(repr=False)
    claim: Raw = field(repr=False)
    read_only: bool
    attached: Mapping[str, str] | None

    @property
    def driver(self) -> str:
        return str(nested(self.volume, "spec", "csi", "driver"))

    @property
    def handle(self) -> str:
        return str(nested(self.volume, "spec", "csi", "volumeHandle"))

    @property
    def is_block(self) -> bool:
        return bool(nested(self.volume, "spec", "volumeMode") == "Block")

    @property
    def staging(self) -> str:
        """Where the driver stages it."""
        if self.is_block:
            return f"{_PLUGINS}/volumeDevices/staging/{name_of(self.volume)}"
        return f"{_PLUGINS}/{self.driver}/{hashlib.sha256(self.handle.encode()).hexdigest()}/globalmount"

    @property
    def target(self) -> str:
        """Where the driver publishes it for the pod."""
        if self.is_block:
            return f"{_PLUGINS}/volumeDevices/publish/{name_of(self.volume)}/{uid_of(self.pod)}"
        return f"{_PODS}/{uid_of(self.pod)}/volumes/kubernetes.io~csi/{name_of(self.volume)}/mount"


@dataclass(slots=True)
class MountedState:
    """What the driver was asked for and has not been asked to undo, as a kubelet finds it on its node."""

    volume: VolumeToMount
    staged: bool = False
    size: int = 0
    published: dict[str, VolumeToMount] = field(default_factory=dict)  # by the uid of the pod

    @property
    def is_idle(self) -> bool:
        return not self.staged and not self.published


class MountFailed(Exception):
    """An operation of the kubelet failed; the message is that of the event."""


class VolumeManager:
    """The volume manager of one kubelet. What it has mounted or unmounted for a pod is told to `cluster.on_pod_volumes`."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, node: str) -> None:
        self._guest, self._cluster, self._node = guest, cluster, node
        self._client = AdminClient(cluster.client(f"system:node:{node}", ("system:nodes", "system:masters")))
        self._events = EventRecorder(self._client, guest.host.clock, guest.host.rng)
        self._wanted: dict[str, dict[str, VolumeToMount]] = {}  # by pod's uid, by unique name
        self._refused: dict[str, tuple[Raw, Mapping[str, str]]] = {}  # pods, and why, by pod's uid and volume
        self._told: dict[str, Mapping[str, str]] = {}  # what was refused, and is told in an event
        self._mounted: dict[str, MountedState] = guest.storage.kubelet_volumes
        self._in_use: tuple[str, ...] | None = None
        self._capabilities: dict[str, tuple[CsiCall, frozenset[str]]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._changed = Notifier()
        self._version = 0
        self.is_synced = False

    # -- what the pods need

    def want(self, pod: Raw, volumes: Sequence[VolumeToMount]) -> None:
        """The pod needs these volumes. May be repeated."""
        made = {one.unique_name: one for one in volumes}
        if self._wanted.get(uid_of(pod)) != made:
            self._wanted[uid_of(pod)] = made
            self._notify()

    def refuse(self, pod: Raw, problems: Mapping[str, str]) -> None:
        """These volumes of the pod cannot be set up, by their names: it does not start. May be repeated."""
        if problems:
            self._refused[uid_of(pod)] = pod, problems
        else:
            self._refused.pop(uid_of(pod), None)

    def release(self, uid: str) -> None:
        """The pod needs no volume, since its containers have ended or it is gone. May be repeated."""
        self._refused.pop(uid, None)
        self._told.pop(uid, None)
        if self._wanted.pop(uid, None) is not None:
            self._notify()

    def synced(self, uids: frozenset[str]) -> None:
        """All pods of the node have said what they need, and there are only these. Until then nothing is unmounted."""
        for uid in [*self._wanted]:
            if uid not in uids:
                self.release(uid)
        self.is_synced = True
        self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify()

    async def _wait_for_change(self, seen: int) -> None:
        """Return once something has changed since version `seen`."""
        await self._changed.wait_for(lambda: self._version != seen)

    def is_mounted(self, pod: Raw) -> bool:
        """Whether all volumes that the pod needs are published for it."""
        uid = uid_of(pod)
        wanted = self._wanted.get(uid)
        return (uid not in self._refused and wanted is not None) and all(
            name in self._mounted and uid in self._mounted[name].published for name in wanted
        )

    def has_mounts(self, pod: Raw) -> bool:
        """Whether any volume is still published for the pod."""
        return any(uid_of(pod) in state.published for state in self._mounted.values())

    def mounts_of(self, pod: Raw) -> dict[str, MountedVolume]:
        """What is mounted for the pod, by the names of its volumes."""
        published = (state.published.get(uid_of(pod)) for state in self._mounted.values())
        found = {one.name: self._guest.storage.mounts.find(one.target) for one in published if one}
        return {name: mounted for name, mounted in found.items() if mounted is not None}

    # -- the workers

    async def run(self) -> None:
        """Mount and unmount until cancelled."""
        await self._changed.wait_for(lambda: self.is_synced)
        async with asyncio.TaskGroup() as group:
            while True:
                seen = self._version
                try:
                    await self._report_in_use()
                    await self._report_refused()
                except KubeError as error:
                    self._guest.log("kubelet", f"Unable to update node status: {error}")
                    await self._guest.sleep(_STATUS_RETRY_S)
                    continue
                for name in self._names():
                    running = self._workers.get(name)
                    if running is None or running.done():
                        self._workers[name] = group.create_task(self._serve(name), name=f"volume {name}")
                await self._wait_for_change(seen)

    def _names(self) -> list[str]:
        wanted = {name for volumes in self._wanted.values() for name in volumes}
        return sorted(wanted | {name for name, state in self._mounted.items() if not state.is_idle})

    async def _report_in_use(self) -> None:
        names = tuple(self._names())
        if names == self._in_use:
            return

        def edit(raw: Raw) -> None:
            status = raw.setdefault("status", {})
            if names:
                status["volumesInUse"] = list(names)
            else:
                status.pop("volumesInUse", None)

        await self._cluster.edit(NODE.ref(self._node), edit, subresource="status")
        self._in_use = names
        self._notify()

    async def _report_refused(self) -> None:
        for uid, (pod, problems) in [*self._refused.items()]:
            if self._told.get(uid) == problems:
                continue
            self._told[uid] = problems
            names = f"[{' '.join(problems)}]"
            message = (
                f"Unable to attach or mount volumes: unmounted volumes={names}, unattached volumes=[], "
                f"failed to process volumes={names}: {'; '.join(problems.values())}"
            )
            self._guest.log("kubelet", message)
            await self._events.record(pod, "FailedMount", message, "kubelet", "Warning")

    async def _serve(self, name: str) -> None:
        """Bring one volume to what pods need, until none does."""
        backoff = _FIRST_BACKOFF_S
        while True:
            seen = self._version
            try:
                is_done = await self._step(name)
                backoff = _FIRST_BACKOFF_S
                if is_done and name not in self._names():
                    self._mounted.pop(name, None)
                    self._notify()
                    return
                if is_done:
                    await self._wait_for_change(seen)
            except (MountFailed, KubeError) as error:
                await self._report(name, str(error))
                await result_unless(self._guest.sleep(backoff), self._is_unwanted(name))
                backoff = min(backoff * 2, _MAX_BACKOFF_S)

    async def _is_unwanted(self, name: str) -> None:
        """Return when other pods want the volume than at the call: then the back-off is over."""
        before = self._pods_of(name).keys()
        await self._changed.wait_for(lambda: self._pods_of(name).keys() != before)

    def _pods_of(self, name: str) -> dict[str, VolumeToMount]:
        return {uid: volumes[name] for uid, volumes in self._wanted.items() if name in volumes}

    async def _step(self, name: str) -> bool:
        """Carry out the next operation on the volume; True where there is none to do."""
        wanted = self._pods_of(name)
        state = self._mounted.get(name)
        for uid, volume in list(state.published.items()) if state is not None else []:
            if state is not None and uid not in wanted:
                await self._unpublish(state, uid, volume)
                return False
        if not wanted:
            if state is not None and state.staged:
                await self._unstage(state)
                return False
            return True
        first = next(iter(wanted.values()))
        if first.attached is None or name not in (self._in_use or ()):
            return True  # attached later, which is told by a change
        state = self._mounted.setdefault(name, MountedState(first))
        state.volume = first
        if not state.staged:
            await self._stage(state, first)
            return False
        if await self._expand(state, first):
            return False
        for uid, volume in wanted.items():
            if uid not in state.published:
                await self._publish(state, uid, volume)
                return False
        return True

    # -- operations

    async def _stage(self, state: MountedState, volume: VolumeToMount) -> None:
        what = "MapVolume.SetUpDevice" if volume.is_block else "MountVolume.MountDevice"
        call, capabilities = await self._connect(volume, what, "attacher.MountDevice")
        if "STAGE_UNSTAGE_VOLUME" in capabilities:
            request = {**self._request(volume, capabilities), "staging_target_path": volume.staging}
            await self._call(call, "NodeStageVolume", request, volume, what)
        state.staged = True
        state.size = _capacity(volume.claim)

    async def _publish(self, state: MountedState, uid: str, volume: VolumeToMount) -> None:
        what = "MapVolume.MapPodDevice" if volume.is_block else "MountVolume.SetUp"
        call, capabilities = await self._connect(volume, what, "mounter.SetUpAt")
        request: Raw = {**self._request(volume, capabilities), "target_path": volume.target}
        if "STAGE_UNSTAGE_VOLUME" in capabilities:
            request["staging_target_path"] = volume.staging
        if volume.read_only:
            request["readonly"] = True
        state.published[uid] = volume  # uncertain until it has succeeded, so it is undone in any case
        try:
            await self._call(call, "NodePublishVolume", request, volume, what)
        except MountFailed:
            del state.published[uid]
            raise
        self._on_change(volume)

    async def _unpublish(self, state: MountedState, uid: str, volume: VolumeToMount) -> None:
        what = "UnmapVolume.UnmapPodDevice" if volume.is_block else "UnmountVolume.TearDown"
        call, _ = await self._connect(volume, what, "unmounter.TearDownAt")
        request = {"volume_id": volume.handle, "target_path": volume.target}
        await self._call(call, "NodeUnpublishVolume", request, volume, what)
        del state.published[uid]
        self._on_change(volume)

    async def _unstage(self, state: MountedState) -> None:
        volume = state.volume
        what = "UnmapDevice" if volume.is_block else "UnmountDevice"
        call, capabilities = await self._connect(volume, what, "attacher.UnmountDevice")
        if "STAGE_UNSTAGE_VOLUME" in capabilities:
            request = {"volume_id": volume.handle, "staging_target_path": volume.staging}
            await self._call(call, "NodeUnstageVolume", request, volume, what)
        state.staged = False

    async def _expand(self, state: MountedState, volume: VolumeToMount) -> bool:
        """Grow the filesystem to what the PersistentVolume has, where the claim says that it is pending."""
        wanted = storage_bytes(volume.volume, "spec", "capacity")
        if wanted <= max(state.size, _capacity(volume.claim)) or not _is_pending(volume.claim):
            return False
        call, capabilities = await self._connect(volume, "MountVolume.NodeExpandVolume", "NodeExpand")
        if "EXPAND_VOLUME" in capabilities:
            request = {
                "volume_id": volume.handle,
                "volume_path": volume.staging,
                "staging_target_path": volume.staging,
                "capacity_range": {"required_bytes": wanted},
                "volume_capability": self._request(volume, capabilities)["volume_capability"],
            }
            await self._call(call, "NodeExpandVolume", request, volume, "MountVolume.NodeExpandVolume")
        await self._write_size(volume)
        state.size = wanted
        message = f'MountVolume.NodeExpandVolume succeeded for volume "{name_of(volume.volume)}" '
        await self._events.record(volume.pod, "FileSystemResizeSuccessful", message, "kubelet")
        return True

    async def _write_size(self, volume: VolumeToMount) -> None:
        size = nested(volume.volume, "spec", "capacity", "storage")

        def edit(raw: Raw) -> None:
            status = raw.setdefault("status", {})
            status["capacity"] = {**(status.get("capacity") or {}), "storage": size}
            kept = [one for one in status.get("conditions") or () if one["type"] not in _RESIZE_CONDITIONS]
            status["conditions"] = kept
            if not kept:
                del status["conditions"]
            status.pop("allocatedResourceStatuses", None)

        namespace, name = key_of(volume.claim)
        await self._cluster.edit(PVC.ref(name, namespace), edit, subresource="status")

    def _request(self, volume: VolumeToMount, capabilities: frozenset[str]) -> Raw:
        request: Raw = {
            "volume_id": volume.handle,
            "volume_capability": render_volume_capability(
                volume.volume, multi_writer=_MULTI_WRITER in capabilities
            ),
        }
        if volume.attached:
            request["publish_context"] = dict(volume.attached)
        if attributes := nested(volume.volume, "spec", "csi", "volumeAttributes"):
            request["volume_context"] = dict(attributes)
        return request

    async def _connect(
        self, volume: VolumeToMount, what: str, function: str
    ) -> tuple[CsiCall, frozenset[str]]:
        """The driver's socket, and which of the capabilities it has. Raises MountFailed."""
        call = self._cluster.csi.find(self._node, volume.driver)
        if call is None:
            raise self._failed(
                what,
                volume,
                f"kubernetes.io/csi: {function} failed to create newCsiDriverClient: "
                f"driver name {volume.driver} not found in the list of registered CSI drivers",
            )
        known = self._capabilities.get(volume.driver)
        if known is not None and known[0] is call:
            return known
        reply = await self._call(call, "NodeGetCapabilities", {}, volume, what)
        types = {nested(one, "rpc", "type") for one in reply.get("capabilities") or ()}
        found = call, frozenset(one for one in _CAPABILITIES if one in types)
        self._capabilities[volume.driver] = found
        return found

    async def _call(self, call: CsiCall, method: str, request: Raw, volume: VolumeToMount, what: str) -> Raw:
        try:
            return await call(method, request)
        except CsiFailed as error:
            raise self._failed(what, volume, str(error)) from error

    def _failed(self, what: str, volume: VolumeToMount, why: str) -> MountFailed:
        return MountFailed(f'{what} failed for volume "{name_of(volume.volume)}" : {why}')

    # -- who is told

    def _on_change(self, volume: VolumeToMount) -> None:
        self._cluster.on_pod_volumes(key_of(volume.pod))
        self._notify()

    async def _report(self, name: str, message: str) -> None:
        self._guest.log("kubelet", message)
        for volume in self._pods_of(name).values():
            reason = "FailedMapVolume" if volume.is_block else "FailedMount"
            await self._events.record(volume.pod, reason, message, "kubelet", "Warning")


_RESIZE_CONDITIONS = ("FileSystemResizePending", "Resizing")


def _is_pending(claim: Raw) -> bool:
    conditions = nested(claim, "status", "conditions", default=[])
    return any(one.get("type") == "FileSystemResizePending" for one in conditions)


def _capacity(claim: Raw) -> int:
    return storage_bytes(claim, "status", "capacity")
