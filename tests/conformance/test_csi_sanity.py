"""csi-sanity, the suite of kubernetes-csi for drivers, on our services over the doubles of Volumes and Mounts: no privileges."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.memory_mounts import MemoryMounts
from tests.support.memory_volumes import MemoryVolumes

from windrow.app.clock import SystemClock
from windrow.csi import names
from windrow.csi.controller import ControllerService
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.identity import IdentityService
from windrow.csi.mounts.port import VolumeDevice
from windrow.csi.node import VM_DISKS, NodeService
from windrow.csi.server import UnixEndpoint, serving
from windrow.csi.volumes import Attachment, VolumeKind
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, NODE

pytestmark = pytest.mark.go

LOG = logging.getLogger("csi-sanity")
NODE_ID = "node-1"
# So few that the suite reaches the limit.
MAX_VOLUMES = 6
# Each reason for which the suite skips a case; what is not here has to run, and to pass.
NOT_OFFERED = {
    "ControllerGetVolumeHealth not supported": "alpha; VOLUME_CONDITION tells the same",
    "ControllerListVolumeHealth not supported": "alpha",
    "ControllerModifyVolume not supported": "Harvester has nothing to modify on a volume but its size",
    "GetCapacity not supported": "Harvester does not tell a guest how much room its storage has",
    "GroupControllerService not supported": "Harvester has no snapshots of several volumes at one instant",
    "Modify Volume not supported": "as ControllerModifyVolume",
    "Modify volume not supported": "as ControllerModifyVolume",
    "NodeGetStorageHealth not supported": "alpha",
    "NodeGetVolumeHealth not supported": "alpha; VOLUME_CONDITION tells the same",
    "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported": "snapshots are where all nodes of the cluster are",
}


class AttachingVolumes(MemoryVolumes):
    """Attached volumes appear on the node as disks, as Harvester has it."""

    def __init__(self, mounts: MemoryMounts) -> None:
        super().__init__(nodes=(NODE_ID,), disks_per_node=MAX_VOLUMES)
        self._mounts = mounts

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        attached = await super().ensure_attached(volume_id, node_id, read_only, kind)
        context = attached.context
        device = VolumeDevice(volume_id, context[names.PUBLISH_SERIAL])
        self._mounts.attach(device, int(context[names.PUBLISH_CAPACITY]))
        return attached


@pytest.mark.parametrize("access", ["mount", "block"])
async def test_csi_sanity_passes(
    access: str, tmp_path: Path, reference_program: Callable[[str], str]
) -> None:
    program, mounts = reference_program("csi_sanity"), MemoryMounts()
    services = {
        IDENTITY: IdentityService("v1", True),
        CONTROLLER: ControllerService(IdempotentVolumes(AttachingVolumes(mounts)), LOG),
        NODE: NodeService(mounts, NODE_ID, lambda: VM_DISKS - MAX_VOLUMES, LOG),
    }
    async with serving(UnixEndpoint(f"{tmp_path}/csi.sock"), services, SystemClock(), LOG):
        suite = await asyncio.create_subprocess_exec(
            program,
            *("--csi.endpoint", f"unix://{tmp_path}/csi.sock", "--csi.testvolumeaccesstype", access),
            *("--csi.mountdir", f"{tmp_path}/mount", "--csi.stagingdir", f"{tmp_path}/staging"),
            *("--csi.testnodevolumeattachlimit", "--ginkgo.no-color", "--ginkgo.v"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        raw, _ = await suite.communicate()
    output = raw.decode()

    assert suite.returncode == 0, "\n".join(line for line in output.splitlines() if "[FAIL]" in line)
    skipped = set(re.findall(r"^  \[SKIPPED\] ([^\[\]\n]+)$", output, re.MULTILINE))
    assert skipped == set(NOT_OFFERED)
    assert re.search(r"Ran 80 of \d+ Specs", output)
    assert not any(mounts.mounts.values())
