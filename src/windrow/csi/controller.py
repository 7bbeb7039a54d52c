"""The service Controller: translates between messages of CSI and the port `Volumes`, and nothing else.

What each method promises beyond that is the port's; that it may be repeated is `idempotency`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from windrow.csi import names, requests
from windrow.csi.errors import InvalidArgument
from windrow.csi.nodes import NodeIds, VmNames
from windrow.csi.sizes import MAX_BYTES
from windrow.csi.volumes import (
    Snapshot,
    SnapshotNotFound,
    SnapshotRequest,
    SnapshotSource,
    Volume,
    VolumeKind,
    VolumeRequest,
    Volumes,
    VolumeSource,
)
from windrow.protocols.csi import csi_pb2 as csi

T = TypeVar("T", Volume, Snapshot)

_RPC = csi.ControllerServiceCapability.RPC
CAPABILITIES = (
    _RPC.CREATE_DELETE_VOLUME,
    _RPC.PUBLISH_UNPUBLISH_VOLUME,
    _RPC.LIST_VOLUMES,
    _RPC.LIST_VOLUMES_PUBLISHED_NODES,
    _RPC.GET_VOLUME,
    _RPC.VOLUME_CONDITION,
    _RPC.CREATE_DELETE_SNAPSHOT,
    _RPC.LIST_SNAPSHOTS,
    _RPC.GET_SNAPSHOT,
    _RPC.CLONE_VOLUME,
    _RPC.EXPAND_VOLUME,
    _RPC.PUBLISH_READONLY,
    _RPC.SINGLE_NODE_MULTI_WRITER,
)


class ControllerService:
    """Implements Controller over any Volumes whose verbs may be repeated."""

    def __init__(self, volumes: Volumes, log: logging.Logger, nodes: NodeIds | None = None) -> None:
        self._volumes = volumes
        self._log = log
        self._nodes = nodes or VmNames()

    async def ControllerGetCapabilities(
        self, request: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        found = [
            csi.ControllerServiceCapability(rpc=csi.ControllerServiceCapability.RPC(type=one))
            for one in CAPABILITIES
        ]
        return csi.ControllerGetCapabilitiesResponse(capabilities=found)

    # --- volumes ----------------------------------------------------------------------------------------------------

    async def CreateVolume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        wanted = VolumeRequest(
            name=requests.read_name(request.name),
            size=requests.read_range(request.capacity_range),
            kind=self._kind(request.volume_capabilities),
            parameters=requests.read_volume_parameters(request.parameters),
            source=requests.read_source(request),
        )
        if request.mutable_parameters:
            raise InvalidArgument("mutable_parameters", "volumes cannot be modified")
        if wanted.source is not None and wanted.kind == "shared":
            raise InvalidArgument("volume_content_source", "a shared volume cannot be made of another")
        known = (names.HOST_STORAGE_CLASS, names.HOST_VOLUME_MODE)
        if ignored := requests.ignored_parameters(wanted.parameters, known):
            self._log.warning("volume %r: parameters without effect: %s", wanted.name, ", ".join(ignored))
        return csi.CreateVolumeResponse(volume=_volume(await self._volumes.create(wanted)))

    async def DeleteVolume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        await self._volumes.delete(requests.read_handle(request.volume_id, "volume_id"))
        return csi.DeleteVolumeResponse()

    async def ControllerExpandVolume(
        self, request: csi.ControllerExpandVolumeRequest
    ) -> csi.ControllerExpandVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        if not request.HasField("capacity_range"):
            raise InvalidArgument("capacity_range", "it is missing")
        is_block = False
        if request.HasField("volume_capability"):
            self._kind([request.volume_capability], "volume_capability")
            is_block = request.volume_capability.HasField("block")
        volume = await self._volumes.ensure_expanded(volume_id, requests.read_range(request.capacity_range))
        return csi.ControllerExpandVolumeResponse(
            capacity_bytes=volume.size, node_expansion_required=volume.kind == "disk" and not is_block
        )

    async def ValidateVolumeCapabilities(
        self, request: csi.ValidateVolumeCapabilitiesRequest
    ) -> csi.ValidateVolumeCapabilitiesResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        wanted = request.volume_capabilities
        if not wanted:
            raise InvalidArgument("volume_capabilities", "it is missing")
        volume = await self._volumes.get(volume_id)
        try:
            kind = self._kind(wanted)
        except InvalidArgument as error:
            return csi.ValidateVolumeCapabilitiesResponse(message=str(error))
        if kind != volume.kind:
            return csi.ValidateVolumeCapabilitiesResponse(message=f"it is a {volume.kind} volume")
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context, volume_capabilities=wanted, parameters=request.parameters
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    async def ListVolumes(self, request: csi.ListVolumesRequest) -> csi.ListVolumesResponse:
        most, after = requests.read_page(request.max_entries, request.starting_token)
        page, token = _page(await self._volumes.list_volumes(), most, after)
        ids = await self._nodes.list_ids()
        entries = [
            csi.ListVolumesResponse.Entry(
                volume=_volume(one),
                status=csi.ListVolumesResponse.VolumeStatus(
                    published_node_ids=[ids.get(vm, vm) for vm in one.nodes], volume_condition=_condition(one)
                ),
            )
            for one in page
        ]
        return csi.ListVolumesResponse(entries=entries, next_token=token)

    async def ControllerGetVolume(
        self, request: csi.ControllerGetVolumeRequest
    ) -> csi.ControllerGetVolumeResponse:
        volume = await self._volumes.get(requests.read_handle(request.volume_id, "volume_id"))
        ids = await self._nodes.list_ids()
        status = csi.ControllerGetVolumeResponse.VolumeStatus(
            published_node_ids=[ids.get(vm, vm) for vm in volume.nodes], volume_condition=_condition(volume)
        )
        return csi.ControllerGetVolumeResponse(volume=_volume(volume), status=status)

    def _kind(self, found: Sequence[csi.VolumeCapability], field: str = "volume_capabilities") -> VolumeKind:
        return requests.read_kind(found, field)

    # --- attachments ------------------------------------------------------------------------------------------------

    async def ControllerPublishVolume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        node_id = requests.read_handle(request.node_id, "node_id")
        if not request.HasField("volume_capability"):
            raise InvalidArgument("volume_capability", "it is missing")
        kind = self._kind([request.volume_capability], "volume_capability")
        read_only = request.readonly or requests.is_read_only(request.volume_capability)
        vm = await self._nodes.get_vm(node_id)
        attachment = await self._volumes.ensure_attached(volume_id, vm, read_only, kind)
        return csi.ControllerPublishVolumeResponse(publish_context=attachment.context)

    async def ControllerUnpublishVolume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        volume_id = requests.read_handle(request.volume_id, "volume_id")
        node_id = requests.read_handle(request.node_id, "node_id") if request.node_id else ""
        vms = await self._nodes.list_vms_to_free(node_id, volume_id) if node_id else [""]
        for vm in vms:
            await self._volumes.ensure_detached(volume_id, vm)
        return csi.ControllerUnpublishVolumeResponse()

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def CreateSnapshot(self, request: csi.CreateSnapshotRequest) -> csi.CreateSnapshotResponse:
        wanted = SnapshotRequest(
            name=requests.read_name(request.name),
            volume_id=requests.read_handle(request.source_volume_id, "source_volume_id"),
            parameters=requests.read_snapshot_parameters(request.parameters),
        )
        if ignored := requests.ignored_parameters(wanted.parameters, (names.SNAPSHOT_TYPE,)):
            self._log.warning("snapshot %r: parameters without effect: %s", wanted.name, ", ".join(ignored))
        return csi.CreateSnapshotResponse(snapshot=_snapshot(await self._volumes.create_snapshot(wanted)))

    async def DeleteSnapshot(self, request: csi.DeleteSnapshotRequest) -> csi.DeleteSnapshotResponse:
        await self._volumes.delete_snapshot(requests.read_handle(request.snapshot_id, "snapshot_id"))
        return csi.DeleteSnapshotResponse()

    async def GetSnapshot(self, request: csi.GetSnapshotRequest) -> csi.GetSnapshotResponse:
        found = await self._volumes.get_snapshot(requests.read_handle(request.snapshot_id, "snapshot_id"))
        return csi.GetSnapshotResponse(snapshot=_snapshot(found))

    async def ListSnapshots(self, request: csi.ListSnapshotsRequest) -> csi.ListSnapshotsResponse:
        most, after = requests.read_page(request.max_entries, request.starting_token)
        found = await self._wanted_snapshots(request.snapshot_id, request.source_volume_id)
        page, token = _page(found, most, after)
        entries = [csi.ListSnapshotsResponse.Entry(snapshot=_snapshot(one)) for one in page]
        return csi.ListSnapshotsResponse(entries=entries, next_token=token)

    async def _wanted_snapshots(self, snapshot_id: str, volume_id: str) -> Sequence[Snapshot]:
        """Those of the volume, or with the id; an id that is unknown has none."""
        if snapshot_id:
            try:
                found: Sequence[Snapshot] = [await self._volumes.get_snapshot(snapshot_id)]
            except SnapshotNotFound:
                return []
        else:
            found = await self._volumes.list_snapshots()
        return [one for one in found if not volume_id or one.volume_id == volume_id]


def _page(found: Sequence[T], most: int, after: str) -> tuple[Sequence[T], str]:
    """The next entries, and the token for those that follow; "" where none do. `found` is in the order of ids."""
    rest = [one for one in found if one.id > after]
    if not most or len(rest) <= most:
        return rest, ""
    return rest[:most], requests.next_token(rest[most - 1].id)


def _volume(found: Volume) -> csi.Volume:
    """One object on Harvester that CSI cannot express must not fail the list of all."""
    return csi.Volume(
        volume_id=found.id,
        capacity_bytes=min(found.size, MAX_BYTES),
        volume_context={_text(key): _text(value) for key, value in (found.parameters or {}).items()},
        content_source=_source(found),
    )


def _text(found: str) -> str:
    """Without what UTF-8 cannot have: JSON can escape half of a surrogate pair."""
    return found.encode(errors="replace").decode()


def _source(found: Volume) -> csi.VolumeContentSource | None:
    match found.source:
        case SnapshotSource(snapshot_id):
            return csi.VolumeContentSource(
                snapshot=csi.VolumeContentSource.SnapshotSource(snapshot_id=_text(snapshot_id))
            )
        case VolumeSource(volume_id):
            return csi.VolumeContentSource(
                volume=csi.VolumeContentSource.VolumeSource(volume_id=_text(volume_id))
            )
        case None:
            return None


def _condition(found: Volume) -> csi.VolumeCondition:
    return csi.VolumeCondition(
        abnormal=bool(found.problem), message=_text(found.problem) or "as it should be"
    )


def _snapshot(found: Snapshot) -> csi.Snapshot:
    created = Timestamp()
    created.FromDatetime(found.created)
    return csi.Snapshot(
        snapshot_id=found.id,
        source_volume_id=found.volume_id,
        size_bytes=min(found.size, MAX_BYTES),
        creation_time=created,
        ready_to_use=found.is_ready,
    )
