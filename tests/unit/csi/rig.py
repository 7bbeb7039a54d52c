"""A controller over volumes in memory, and requests that are well formed but for what a test changes."""

from __future__ import annotations

import logging

from tests.support.memory_volumes import MemoryVolumes

from windrow.csi.controller import ControllerService
from windrow.csi.idempotency import IdempotentVolumes
from windrow.protocols.csi import csi_pb2 as csi

GIB = 2**30
Mode = csi.VolumeCapability.AccessMode


def capability(mode: int = Mode.SINGLE_NODE_WRITER, *, block: bool = False) -> csi.VolumeCapability:
    access = csi.VolumeCapability.AccessMode(mode=mode)  # type: ignore[arg-type]
    if block:
        return csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=access)
    return csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type="ext4"), access_mode=access)


def a_controller(volumes: MemoryVolumes | None = None) -> ControllerService:
    return ControllerService(IdempotentVolumes(volumes or MemoryVolumes()), logging.getLogger("csi-test"))


def create_volume(name: str = "pvc-1", size: int = GIB) -> csi.CreateVolumeRequest:
    return csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=size),
        volume_capabilities=[capability()],
    )


def publish_volume(volume_id: str = "pvc-1", node_id: str = "node-1") -> csi.ControllerPublishVolumeRequest:
    return csi.ControllerPublishVolumeRequest(
        volume_id=volume_id, node_id=node_id, volume_capability=capability()
    )
