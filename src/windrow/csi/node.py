"""The service Node: translates between messages of CSI and the port `Mounts`, and nothing else.

It asks neither Harvester nor the guest's API server, and has no credential for them: what has to be known about a volume's
disk comes with the call, in `publish_context`. The context of a volume that the Go driver attached is empty; its disk is
found by the name that such disks have. A shared volume has no disk: its context tells the server that it is mounted from.

A block volume is not staged: its disk is found and verified, and published from where it is.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Mapping

from windrow.csi import names, requests
from windrow.csi.errors import FailedPrecondition, InvalidArgument, Unavailable
from windrow.csi.mounts.port import FilesystemMount, Mounts, NetworkShare, NotMounted, Usage, VolumeDevice
from windrow.csi.operations import VolumeOperations
from windrow.csi.sizes import MAX_BYTES
from windrow.protocols.csi import csi_pb2 as csi

_RPC = csi.NodeServiceCapability.RPC
_Mode = csi.VolumeCapability.AccessMode
CAPABILITIES = (
    _RPC.STAGE_UNSTAGE_VOLUME,
    _RPC.GET_VOLUME_STATS,
    _RPC.EXPAND_VOLUME,
    _RPC.VOLUME_CONDITION,
    _RPC.SINGLE_NODE_MULTI_WRITER,
)
# KubeVirt gives a VM this many disks, those that the VM has from its start included.
VM_DISKS = 256
# The kernel's PATH_MAX, without the byte that ends a path.
MAX_PATH = 4095
# SCSI gives a serial up to 252 characters; the controller gives 36.
_MAX_SERIAL = 252


class DiskNotGrown(Unavailable):
    """The node does not see the new size of the disk yet."""


class NodeService:
    """Implements Node. `count_own_disks` says how many of the VM's disks no CSI driver plugged in; the others may be volumes."""

    def __init__(
        self, mounts: Mounts, node_id: str, count_own_disks: Callable[[], int], log: logging.Logger
    ) -> None:
        self._mounts = mounts
        self._node_id = node_id
        self._count_own_disks = count_own_disks
        self._operations = VolumeOperations(log)

    async def aclose(self) -> None:
        """End the operations that outlived their callers."""
        await self._operations.aclose()

    async def NodeGetCapabilities(
        self, request: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        found = [
            csi.NodeServiceCapability(rpc=csi.NodeServiceCapability.RPC(type=one)) for one in CAPABILITIES
        ]
        return csi.NodeGetCapabilitiesResponse(capabilities=found)

    async def NodeGetInfo(self, request: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        # 0 would say that there is no limit.
        limit = max(VM_DISKS - self._count_own_disks(), 1)
        return csi.NodeGetInfoResponse(node_id=self._node_id, max_volumes_per_node=limit)

    async def NodeStageVolume(self, request: csi.NodeStageVolumeRequest) -> csi.NodeStageVolumeResponse:
        share = _read_share(request.volume_id, request.publish_context, request.volume_capability)
        if share is not None:
            return await self._stage_share(share, request)
        device = _read_device(request.volume_id, request.publish_context)
        path = read_path(request.staging_target_path, "staging_target_path")
        mount = _read_mount(request.volume_capability)
        staged = self._mounts.find(device) if mount is None else self._mounts.stage(device, path, mount)
        await self._operations.run(device.volume_id, "NodeStageVolume", staged)
        return csi.NodeStageVolumeResponse()

    async def _stage_share(
        self, share: NetworkShare, request: csi.NodeStageVolumeRequest
    ) -> csi.NodeStageVolumeResponse:
        path = read_path(request.staging_target_path, "staging_target_path")
        staged = self._mounts.stage_share(share, path, _read_share_mount(request.volume_capability))
        await self._operations.run(share.volume_id, "NodeStageVolume", staged)
        return csi.NodeStageVolumeResponse()

    async def NodeUnstageVolume(self, request: csi.NodeUnstageVolumeRequest) -> csi.NodeUnstageVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        path = read_path(request.staging_target_path, "staging_target_path")
        await self._operations.run(volume_id, "NodeUnstageVolume", self._mounts.unstage(path))
        return csi.NodeUnstageVolumeResponse()

    async def NodePublishVolume(self, request: csi.NodePublishVolumeRequest) -> csi.NodePublishVolumeResponse:
        share = _read_share(request.volume_id, request.publish_context, request.volume_capability)
        if share is not None:
            return await self._publish_share(share, request)
        device = _read_device(request.volume_id, request.publish_context)
        target = read_path(request.target_path, "target_path")
        mount = _read_mount(request.volume_capability)
        staging = _read_staging(request.staging_target_path)
        if staging == target:
            raise InvalidArgument("target_path", "it is the staging_target_path")
        read_only = request.readonly or requests.is_read_only(request.volume_capability)
        # ReadWriteOncePod: one pod alone, so one target.
        exclusive = request.volume_capability.access_mode.mode == _Mode.SINGLE_NODE_SINGLE_WRITER
        published = (
            self._mounts.publish_block(device, target, read_only=read_only, exclusive=exclusive)
            if mount is None
            else self._mounts.publish(
                device, staging, target, mount, read_only=read_only, exclusive=exclusive
            )
        )
        await self._operations.run(device.volume_id, "NodePublishVolume", published)
        return csi.NodePublishVolumeResponse()

    async def _publish_share(
        self, share: NetworkShare, request: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        target = read_path(request.target_path, "target_path")
        staging = _read_staging(request.staging_target_path)
        if staging == target:
            raise InvalidArgument("target_path", "it is the staging_target_path")
        mount = _read_share_mount(request.volume_capability)
        published = self._mounts.publish_share(share, staging, target, mount, read_only=request.readonly)
        await self._operations.run(share.volume_id, "NodePublishVolume", published)
        return csi.NodePublishVolumeResponse()

    async def NodeUnpublishVolume(
        self, request: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        target = read_path(request.target_path, "target_path")
        await self._operations.run(volume_id, "NodeUnpublishVolume", self._mounts.unpublish(target))
        return csi.NodeUnpublishVolumeResponse()

    async def NodeGetVolumeStats(
        self, request: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        requests.read_handle(request.volume_id, "volume_id")
        found = await self._mounts.stats(_read_volume_path(request.volume_path))
        usage = [_usage(found.capacity, csi.VolumeUsage.BYTES)]
        if found.inodes is not None:
            usage.append(_usage(found.inodes, csi.VolumeUsage.INODES))
        condition = csi.VolumeCondition(
            abnormal=bool(found.problem), message=found.problem or "the volume is mounted and answers"
        )
        return csi.NodeGetVolumeStatsResponse(usage=usage, volume_condition=condition)

    async def NodeExpandVolume(self, request: csi.NodeExpandVolumeRequest) -> csi.NodeExpandVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        wanted = requests.read_range(request.capacity_range)
        if request.HasField("volume_capability"):
            _read_mount(request.volume_capability)
        path = _read_volume_path(request.volume_path)
        size = await self._operations.run(volume_id, "NodeExpandVolume", self._mounts.grow(path))
        if size < wanted.required:
            raise DiskNotGrown(
                f"volume {volume_id!r}: its disk has {size} bytes on this node, {wanted.required} are asked for",
                "the node sees the new size once Harvester has resized the disk; the call is repeated",
            )
        return csi.NodeExpandVolumeResponse(capacity_bytes=size)


def read_path(text: str, field: str) -> str:
    """An absolute path as it is written in mountinfo, below the root and without steps up. Raises InvalidArgument."""
    if not text:
        raise InvalidArgument(field, "it is missing")
    if len(text.encode(errors="surrogateescape")) > MAX_PATH:
        raise InvalidArgument(field, f"it is longer than {MAX_PATH} bytes")
    if not text.startswith("/"):
        raise InvalidArgument(field, "it is no absolute path")
    if "\0" in text or ".." in text.split("/"):
        raise InvalidArgument(field, "it holds a step up (..) or a NUL")
    # POSIX lets two slashes at the beginning mean something else; Linux does not.
    path = "/" + posixpath.normpath(text).lstrip("/")
    if path == "/":
        raise InvalidArgument(field, "it is the root of the node")
    return path


def _read_staging(text: str) -> str:
    if not text:
        raise FailedPrecondition("staging_target_path is missing", "stage the volume first, and name where")
    return read_path(text, "staging_target_path")


def _read_volume_path(text: str) -> str:
    """Where a volume is said to be mounted. Nothing is mounted at a relative path. Raises InvalidArgument, NotMounted."""
    if text and not text.startswith("/"):
        raise NotMounted(f"nothing is mounted at {text[:MAX_PATH]!r}", "give the absolute path of the mount")
    return read_path(text, "volume_path")


def _read_device(volume_id: str, context: Mapping[str, str]) -> VolumeDevice:
    """How the disk is recognised; see `names` for the context. Raises InvalidArgument."""
    volume_id = requests.read_handle(volume_id, "volume_id")
    found = requests.read_map(context, "publish_context")
    serial, size = found.get(names.PUBLISH_SERIAL, ""), found.get(names.PUBLISH_CAPACITY, "0")
    # It is compared with names of files and never becomes one, so that it may hold a slash.
    if (
        len(serial) > _MAX_SERIAL
        or not serial.isascii()
        or not serial.isprintable()
        or serial != serial.strip()
    ):
        raise InvalidArgument(f"publish_context[{names.PUBLISH_SERIAL}]", "it is no serial of a disk")
    if not (
        size.isascii() and size.isdigit() and len(size) <= len(str(MAX_BYTES)) and int(size) <= MAX_BYTES
    ):
        raise InvalidArgument(f"publish_context[{names.PUBLISH_CAPACITY}]", "it is no number of bytes")
    return VolumeDevice(volume_id, serial, int(size))


def _read_share(
    volume_id: str, context: Mapping[str, str], capability: csi.VolumeCapability
) -> NetworkShare | None:
    """How a shared volume is reached; None for a disk. Raises InvalidArgument, and FailedPrecondition where the controller told
    nothing, as of a volume that the Go driver attached."""
    volume_id = requests.read_handle(volume_id, "volume_id")
    found = requests.read_map(context, "publish_context")
    kind = requests.read_capability(capability, "volume_capability")
    if names.PUBLISH_SHARE_SERVER in found:
        return NetworkShare(
            volume_id,
            found[names.PUBLISH_SHARE_SERVER],
            found.get(names.PUBLISH_SHARE_EXPORT, ""),
            found.get(names.PUBLISH_SHARE_OPTIONS, ""),
        )
    if kind == "shared":
        raise FailedPrecondition(
            f"publish_context[{names.PUBLISH_SHARE_SERVER}] of volume {volume_id[:128]!r} is missing, so its server is not known",
            "the Go driver attached it: the attacher attaches it once more by itself within minutes, or when its "
            "VolumeAttachment is deleted",
        )
    return None


def _read_share_mount(capability: csi.VolumeCapability) -> FilesystemMount:
    """Raises InvalidArgument for a block device."""
    mount = _read_mount(capability)
    if mount is None:
        raise InvalidArgument("volume_capability", "a shared volume is a filesystem, no block device")
    return mount


def _read_mount(capability: csi.VolumeCapability) -> FilesystemMount | None:
    """How the filesystem is to be mounted, None for a block device. Raises InvalidArgument."""
    requests.read_capability(capability, "volume_capability")
    if capability.WhichOneof("access_type") == "block":
        return None
    mount = capability.mount
    if mount.volume_mount_group:
        raise InvalidArgument(
            "volume_capability.mount.volume_mount_group",
            "it is not supported",
            "kubelet sets the group of files",
        )
    return FilesystemMount(mount.fs_type, tuple(mount.mount_flags), requests.is_read_only(capability))


def _usage(found: Usage, unit: csi.VolumeUsage.Unit) -> csi.VolumeUsage:
    return csi.VolumeUsage(total=found.total, available=found.available, used=found.used, unit=unit)
