"""The service Node over the double of Mounts: what each call does, which code each fault has, and that calls may be repeated."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.support.memory_mounts import MemoryMounts

from windrow.csi import names
from windrow.csi.errors import CsiError, InvalidArgument
from windrow.csi.mounts.port import (
    DamagedFilesystem,
    DeviceBusy,
    NetworkShare,
    NotAnswering,
    ToolFailed,
    VolumeDevice,
    VolumeStats,
)
from windrow.csi.node import MAX_PATH, NodeService, read_path
from windrow.csi.server import status_code
from windrow.protocols.csi import csi_pb2 as csi

MIB = 1 << 20
SIZE = 64 * MIB
UUID = "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001"
VOLUME = f"pvc-{UUID}"
DEVICE = VolumeDevice(VOLUME, UUID, SIZE)
CONTEXT = {names.PUBLISH_SERIAL: UUID, names.PUBLISH_CAPACITY: str(SIZE), names.PUBLISH_BUS: "scsi"}
Mode = csi.VolumeCapability.AccessMode
LOG = logging.getLogger("test")
exists = os.path.lexists


def capability(mode: Any = Mode.SINGLE_NODE_WRITER, **mount: Any) -> csi.VolumeCapability:
    return csi.VolumeCapability(
        mount=csi.VolumeCapability.MountVolume(**mount),
        access_mode=csi.VolumeCapability.AccessMode(mode=mode),
    )


BLOCK = csi.VolumeCapability(
    block=csi.VolumeCapability.BlockVolume(),
    access_mode=csi.VolumeCapability.AccessMode(mode=Mode.SINGLE_NODE_WRITER),
)


class Node:
    """The service, its mounts, and well-formed requests of which a test changes some fields."""

    def __init__(self, folder: Path) -> None:
        self.mounts = MemoryMounts()
        self.service = NodeService(self.mounts, "vm-1", lambda: 2, LOG)
        self.staging, self.target = f"{folder}/globalmount", f"{folder}/pods/mount"
        self.mounts.attach(DEVICE, SIZE)

    def stage_request(self, **changes: Any) -> csi.NodeStageVolumeRequest:
        fields = {
            "volume_id": VOLUME,
            "publish_context": CONTEXT,
            "staging_target_path": self.staging,
            "volume_capability": capability(),
        }
        return csi.NodeStageVolumeRequest(**fields | changes)

    def publish_request(self, **changes: Any) -> csi.NodePublishVolumeRequest:
        fields = {
            "volume_id": VOLUME,
            "publish_context": CONTEXT,
            "staging_target_path": self.staging,
            "target_path": self.target,
            "volume_capability": capability(),
        }
        return csi.NodePublishVolumeRequest(**fields | changes)

    async def stage(self, **changes: Any) -> None:
        await self.service.NodeStageVolume(self.stage_request(**changes))

    async def publish(self, **changes: Any) -> None:
        await self.service.NodePublishVolume(self.publish_request(**changes))

    async def unpublish(self, volume_id: str = VOLUME, target: str | None = None) -> None:
        path = self.target if target is None else target
        await self.service.NodeUnpublishVolume(
            csi.NodeUnpublishVolumeRequest(volume_id=volume_id, target_path=path)
        )

    async def unstage(self, volume_id: str = VOLUME, path: str | None = None) -> None:
        await self.service.NodeUnstageVolume(
            csi.NodeUnstageVolumeRequest(
                volume_id=volume_id, staging_target_path=self.staging if path is None else path
            )
        )

    async def stats(self, volume_id: str = VOLUME, path: str | None = None) -> csi.NodeGetVolumeStatsResponse:
        return await self.service.NodeGetVolumeStats(
            csi.NodeGetVolumeStatsRequest(
                volume_id=volume_id, volume_path=self.target if path is None else path
            )
        )

    async def expand(self, **changes: Any) -> csi.NodeExpandVolumeResponse:
        fields = {"volume_id": VOLUME, "volume_path": self.target}
        return await self.service.NodeExpandVolume(csi.NodeExpandVolumeRequest(**fields | changes))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path.resolve())


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    """The code and the field or message of the error."""
    with pytest.raises(CsiError) as raised:
        await call
    error = raised.value
    return status_code(error).name, error.field if isinstance(error, InvalidArgument) else error.message


async def code(call: Awaitable[Any]) -> str:
    return (await refusal(call))[0]


async def test_a_volume_is_staged_once_and_published_to_each_pod(node):
    await node.stage()
    await node.publish()
    await node.publish(target_path=f"{node.target}2")

    disk = node.mounts.disks[UUID]
    assert disk.content == "ext4"
    assert [node.mounts.top(path).disk for path in (node.staging, node.target, f"{node.target}2")] == [
        disk
    ] * 3
    assert exists(node.target)


async def test_each_call_may_be_made_ten_times(node):
    for call in (node.stage, node.publish):
        for _ in range(10):
            await call()
    assert len(node.mounts.mounts[node.target]) == 1

    for call in (node.unpublish, node.unstage):
        for _ in range(10):
            await call()

    assert not any(node.mounts.mounts.values())
    assert not exists(node.target)


async def test_each_answer_is_of_its_call(node):
    volume = {"volume_id": VOLUME}
    answers = [
        await node.service.NodeStageVolume(node.stage_request()),
        await node.service.NodePublishVolume(node.publish_request()),
        await node.service.NodeUnpublishVolume(
            csi.NodeUnpublishVolumeRequest(target_path=node.target, **volume)
        ),
        await node.service.NodeUnstageVolume(
            csi.NodeUnstageVolumeRequest(staging_target_path=node.staging, **volume)
        ),
    ]

    assert [type(one) for one in answers] == [
        csi.NodeStageVolumeResponse,
        csi.NodePublishVolumeResponse,
        csi.NodeUnpublishVolumeResponse,
        csi.NodeUnstageVolumeResponse,
    ]


async def test_the_type_the_flags_and_the_mode_reach_the_mount(node):
    await node.publish(volume_capability=capability(fs_type="xfs", mount_flags=["noatime"]), readonly=True)

    assert node.mounts.disks[UUID].content == "xfs"
    assert node.mounts.top(node.target).read_only
    assert not node.mounts.top(node.staging).read_only


async def test_a_volume_that_may_only_be_read_is_staged_read_only(node):
    node.mounts.disks[UUID].content = "ext4"

    await node.stage(volume_capability=capability(Mode.SINGLE_NODE_READER_ONLY))
    await node.publish(volume_capability=capability(Mode.SINGLE_NODE_READER_ONLY))

    assert node.mounts.top(node.staging).read_only
    assert node.mounts.top(node.target).read_only


async def test_a_block_volume_is_published_from_its_disk_and_nothing_is_staged(node):
    await node.stage(volume_capability=BLOCK)
    await node.publish(volume_capability=BLOCK)

    assert node.mounts.top(node.staging) is None
    assert node.mounts.top(node.target).block
    assert node.mounts.disks[UUID].content == ""
    assert (await node.stats()).usage[0].total == SIZE
    assert (await node.expand()).capacity_bytes == SIZE


async def test_a_block_volume_that_may_only_be_read_is_published_read_only(node):
    one = capability(Mode.SINGLE_NODE_READER_ONLY)
    one.block.SetInParent()

    await node.publish(volume_capability=one)

    assert node.mounts.top(node.target).read_only


async def test_staging_a_block_volume_without_its_disk_fails(node):
    node.mounts.detach(DEVICE)

    assert await code(node.stage(volume_capability=BLOCK)) == "NOT_FOUND"


async def test_a_volume_of_the_go_driver_has_an_empty_context(node):
    node.mounts.detach(DEVICE)
    node.mounts.attach(VolumeDevice(VOLUME), SIZE)

    await node.publish(publish_context={})

    assert node.mounts.top(node.target) is not None


async def test_a_read_only_target_is_not_made_writable(node):
    await node.publish(readonly=True)

    assert await code(node.publish()) == "ALREADY_EXISTS"


@pytest.mark.parametrize("access", ["mount", "block"])
async def test_a_volume_for_one_pod_alone_is_not_published_to_a_second(node, access):
    one = capability(Mode.SINGLE_NODE_SINGLE_WRITER)
    if access == "block":
        one.block.SetInParent()
    await node.publish(volume_capability=one)
    await node.publish(volume_capability=one)

    assert (
        await code(node.publish(volume_capability=one, target_path=f"{node.target}2"))
        == "FAILED_PRECONDITION"
    )


async def test_the_node_says_who_it_is_and_how_many_volumes_it_takes(node):
    found = await node.service.NodeGetInfo(csi.NodeGetInfoRequest())

    assert (found.node_id, found.max_volumes_per_node) == ("vm-1", 254)


async def test_a_vm_without_room_takes_one_volume_and_not_any_number(node):
    full = NodeService(node.mounts, "vm-1", lambda: 300, LOG)

    assert (await full.NodeGetInfo(csi.NodeGetInfoRequest())).max_volumes_per_node == 1


async def test_each_capability_is_told_once(node):
    found = await node.service.NodeGetCapabilities(csi.NodeGetCapabilitiesRequest())

    told = [csi.NodeServiceCapability.RPC.Type.Name(one.rpc.type) for one in found.capabilities]
    assert told == [
        "STAGE_UNSTAGE_VOLUME",
        "GET_VOLUME_STATS",
        "EXPAND_VOLUME",
        "VOLUME_CONDITION",
        "SINGLE_NODE_MULTI_WRITER",
    ]


async def test_stats_have_bytes_inodes_and_a_condition(node):
    await node.publish()

    found = await node.stats()

    assert [(one.unit, one.total, one.available, one.used) for one in found.usage] == [
        (csi.VolumeUsage.BYTES, SIZE, SIZE, 0),
        (csi.VolumeUsage.INODES, 65536, 65536, 0),
    ]
    assert not found.volume_condition.abnormal
    assert found.volume_condition.message


async def test_a_volume_with_a_problem_is_abnormal(node, monkeypatch):
    await node.publish()
    healthy = await node.mounts.stats(node.target)

    async def stats(path: str) -> VolumeStats:
        return VolumeStats(healthy.capacity, healthy.inodes, "the kernel has made the filesystem read-only")

    monkeypatch.setattr(node.mounts, "stats", stats)

    condition = (await node.stats()).volume_condition
    assert condition.abnormal
    assert condition.message == "the kernel has made the filesystem read-only"


async def test_a_volume_grows_to_the_size_of_its_disk(node):
    await node.publish()
    node.mounts.disks[UUID].size = 2 * SIZE

    grown = await node.expand(capacity_range=csi.CapacityRange(required_bytes=2 * SIZE))

    assert grown.capacity_bytes == 2 * SIZE
    assert node.mounts.disks[UUID].filesystem_size == 2 * SIZE


async def test_a_disk_that_has_not_grown_yet_is_waited_for_by_the_caller(node):
    await node.publish()

    assert (await node.expand(capacity_range=csi.CapacityRange(required_bytes=SIZE))).capacity_bytes == SIZE
    found = await refusal(node.expand(capacity_range=csi.CapacityRange(required_bytes=SIZE + 1)))

    assert found[0] == "UNAVAILABLE"
    assert str(SIZE + 1) in found[1]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"volume_id": ""}, "volume_id"),
        ({"volume_id": "x" * 5000}, "volume_id"),
        ({"volume_id": "a\nb"}, "volume_id"),
        ({"staging_target_path": ""}, "staging_target_path"),
        ({"staging_target_path": "some/path"}, "staging_target_path"),
        ({"staging_target_path": "/a/../../etc"}, "staging_target_path"),
        ({"staging_target_path": "/"}, "staging_target_path"),
        ({"staging_target_path": "/a\0b"}, "staging_target_path"),
        ({"staging_target_path": "/" + "x" * MAX_PATH}, "staging_target_path"),
        ({"volume_capability": None}, "volume_capability"),
        ({"volume_capability": csi.VolumeCapability()}, "volume_capability"),
        ({"volume_capability": csi.VolumeCapability(mount={})}, "volume_capability.access_mode"),
        ({"volume_capability": capability(Mode.MULTI_NODE_SINGLE_WRITER)}, "volume_capability.access_mode"),
        ({"volume_capability": capability(99)}, "volume_capability.access_mode"),
        (
            {"volume_capability": capability(volume_mount_group="1000")},
            "volume_capability.mount.volume_mount_group",
        ),
        ({"volume_capability": capability(fs_type="btrfs")}, "volume_capability.mount.fs_type"),
        ({"volume_capability": capability(mount_flags=["remount"])}, "volume_capability.mount.mount_flags"),
        ({"publish_context": {"serial": "a/../b\n"}}, "publish_context[serial]"),
        ({"publish_context": {"serial": " a"}}, "publish_context[serial]"),
        ({"publish_context": {"serial": "ä"}}, "publish_context[serial]"),
        ({"publish_context": {"serial": "x" * 253}}, "publish_context[serial]"),
        ({"publish_context": {"capacityBytes": "-1"}}, "publish_context[capacityBytes]"),
        ({"publish_context": {"capacityBytes": "1Gi"}}, "publish_context[capacityBytes]"),
        ({"publish_context": {"capacityBytes": "٣"}}, "publish_context[capacityBytes]"),
        ({"publish_context": {"capacityBytes": "9" * 5000}}, "publish_context"),
        ({"publish_context": {"capacityBytes": "9" * 19}}, "publish_context[capacityBytes]"),
    ],
)
async def test_a_malformed_field_of_a_stage_is_named_and_nothing_is_touched(node, changes, field):
    assert await refusal(node.stage(**changes)) == ("INVALID_ARGUMENT", field)
    assert not any(node.mounts.mounts.values())
    assert node.mounts.disks[UUID].content == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"volume_id": ""}, "volume_id"),
        ({"target_path": ""}, "target_path"),
        ({"target_path": "pods/mount"}, "target_path"),
        ({"target_path": "/var/../etc"}, "target_path"),
        ({"staging_target_path": "relative"}, "staging_target_path"),
        ({"volume_capability": None}, "volume_capability"),
        ({"publish_context": {"capacityBytes": "x"}}, "publish_context[capacityBytes]"),
    ],
)
async def test_a_malformed_field_of_a_publish_is_named_and_nothing_is_touched(node, changes, field):
    assert await refusal(node.publish(**changes)) == ("INVALID_ARGUMENT", field)
    assert not exists(node.target)


async def test_a_publish_needs_a_staging_path_of_its_own(node):
    assert await code(node.publish(staging_target_path="")) == "FAILED_PRECONDITION"
    assert await refusal(node.publish(target_path=f"{node.staging}/")) == ("INVALID_ARGUMENT", "target_path")


async def test_missing_ids_and_paths_are_named_by_every_call(node):
    assert await refusal(node.unpublish(volume_id="")) == ("INVALID_ARGUMENT", "volume_id")
    assert await refusal(node.unpublish(target="")) == ("INVALID_ARGUMENT", "target_path")
    assert await refusal(node.unstage(volume_id="")) == ("INVALID_ARGUMENT", "volume_id")
    assert await refusal(node.unstage(path="")) == ("INVALID_ARGUMENT", "staging_target_path")
    assert await refusal(node.stats(volume_id="")) == ("INVALID_ARGUMENT", "volume_id")
    assert await refusal(node.stats(path="")) == ("INVALID_ARGUMENT", "volume_path")
    assert await refusal(node.expand(volume_id="")) == ("INVALID_ARGUMENT", "volume_id")
    assert await refusal(node.expand(volume_path="")) == ("INVALID_ARGUMENT", "volume_path")
    assert await refusal(node.expand(volume_path="/a/..")) == ("INVALID_ARGUMENT", "volume_path")
    wanted = csi.CapacityRange(required_bytes=-1)
    assert await refusal(node.expand(capacity_range=wanted)) == (
        "INVALID_ARGUMENT",
        "capacity_range.required_bytes",
    )


@pytest.mark.parametrize("path", ["some/path", "/not/mounted"])
async def test_what_is_not_mounted_is_not_found(node, path):
    assert await code(node.stats(path=path)) == "NOT_FOUND"
    assert await code(node.expand(volume_path=path)) == "NOT_FOUND"


async def test_a_volume_that_is_not_attached_is_not_found(node):
    node.mounts.detach(DEVICE)

    assert await code(node.stage()) == "NOT_FOUND"
    assert await code(node.publish()) == "NOT_FOUND"


async def test_a_disk_with_something_else_is_a_failed_precondition(node):
    node.mounts.disks[UUID].content = "dos"

    assert await code(node.stage()) == "FAILED_PRECONDITION"
    assert node.mounts.disks[UUID].content == "dos"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DeviceBusy("a", "b"), "ABORTED"),
        (DamagedFilesystem("a", "b"), "FAILED_PRECONDITION"),
        (NotAnswering("a", "b"), "UNAVAILABLE"),
        (ToolFailed("a", "b"), "INTERNAL"),
    ],
)
async def test_what_goes_wrong_on_the_node_has_its_code(tmp_path, error, expected):
    def fail(verb: str, path: str) -> None:
        raise error

    node = Node(tmp_path)
    node.service = NodeService(MemoryMounts(fail), "vm-1", lambda: 2, LOG)

    assert await code(node.stage()) == expected
    assert await code(node.unstage()) == expected


class SlowMounts(MemoryMounts):
    """Staging takes until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def stage(self, *args: Any) -> None:
        self.begun.set()
        await self.goes_on.wait()
        await super().stage(*args)


@pytest.fixture
async def slow(node: Node) -> Node:
    node.mounts = SlowMounts()
    node.service = NodeService(node.mounts, "vm-1", lambda: 2, LOG)
    node.mounts.attach(DEVICE, SIZE)
    return node


async def test_a_second_call_for_a_volume_is_aborted_and_names_the_first(slow):
    first = asyncio.create_task(slow.stage())
    await slow.mounts.begun.wait()

    for call in (slow.stage, slow.publish, slow.unpublish, slow.unstage, slow.expand):
        assert await refusal(call()) == ("ABORTED", f"volume {VOLUME!r}: NodeStageVolume is under way")
    await slow.unpublish(volume_id="another")
    slow.mounts.goes_on.set()
    await first

    await slow.stage()


async def test_an_operation_goes_on_when_its_caller_has_gone(slow, caplog):
    caplog.set_level(logging.INFO)
    call = asyncio.create_task(slow.stage())
    await slow.mounts.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await code(slow.stage()) == "ABORTED"

    slow.mounts.goes_on.set()
    while await _is_aborted(slow):
        pass

    assert slow.mounts.top(slow.staging) is not None
    assert "NodeStageVolume of volume" in caplog.text
    assert "is done" in caplog.text


async def _is_aborted(node: Node) -> bool:
    try:
        await node.stage()
    except CsiError:
        await asyncio.sleep(0)
        return True
    return False


async def test_how_an_operation_failed_without_its_caller_is_logged(slow, caplog):
    caplog.set_level(logging.INFO)
    call = asyncio.create_task(slow.stage())
    await slow.mounts.begun.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    slow.mounts.detach(DEVICE)
    slow.mounts.goes_on.set()
    for _ in range(10):
        await asyncio.sleep(0)

    assert "no disk on this node" in caplog.text
    assert "is done" not in caplog.text


async def test_an_ending_driver_ends_its_operations(slow):
    call = asyncio.create_task(slow.stage())
    await slow.mounts.begun.wait()

    await slow.service.aclose()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert slow.mounts.top(slow.staging) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [("/a//b/./c/", "/a/b/c"), ("//a", "/a"), ("/a b/ü", "/a b/ü"), ("/a..b/...", "/a..b/...")],
)
def test_a_path_is_taken_as_mountinfo_writes_it(text, path):
    assert read_path(text, "target_path") == path


def test_a_path_may_be_as_long_as_the_kernel_takes_it():
    longest = "/" + "x" * (MAX_PATH - 1)

    assert read_path(longest, "target_path") == longest


# --- shared volumes ---------------------------------------------------------------------------------------------------

SHARED = capability(Mode.MULTI_NODE_MULTI_WRITER)
SHARE = NetworkShare(VOLUME, "10.53.200.10", "/pvc-9f0e", "vers=4.1")
SHARE_CONTEXT = {"nfsServer": "10.53.200.10", "nfsExport": "/pvc-9f0e", "nfsMountOptions": "vers=4.1"}


async def test_a_shared_volume_is_staged_from_its_server_and_published_to_each_pod(node):
    served = node.mounts.serve(SHARE)
    changes = {"publish_context": SHARE_CONTEXT, "volume_capability": SHARED}
    staged = await node.service.NodeStageVolume(node.stage_request(**changes))
    published = await node.service.NodePublishVolume(node.publish_request(**changes))
    await node.publish(target_path=f"{node.target}2", readonly=True, **changes)

    assert (type(staged), type(published)) == (csi.NodeStageVolumeResponse, csi.NodePublishVolumeResponse)
    assert node.mounts.top(node.target).disk is served
    assert [node.mounts.top(f"{node.target}{end}").read_only for end in ("", "2")] == [False, True]
    assert (await node.stats()).volume_condition.abnormal is False


async def test_without_its_server_a_shared_volume_is_not_taken_for_a_disk(node):
    for call in (node.stage, node.publish):
        found, text = await refusal(call(volume_capability=SHARED))
        assert found == "FAILED_PRECONDITION"
        assert text.startswith(f"publish_context[nfsServer] of volume {VOLUME!r} is missing")
    assert not any(node.mounts.mounts.values())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"volume_id": ""}, "volume_id"),
        ({"volume_capability": BLOCK}, "volume_capability"),
        ({"publish_context": {**SHARE_CONTEXT, "nfsServer": "a b"}}, "publish_context[nfsServer]"),
        ({"publish_context": {"nfsServer": "10.53.200.10"}}, "publish_context[nfsExport]"),
        (
            {"publish_context": {**SHARE_CONTEXT, "nfsMountOptions": "a\nb"}},
            "publish_context[nfsMountOptions]",
        ),
        ({"staging_target_path": "relative"}, "staging_target_path"),
    ],
)
async def test_a_malformed_field_of_a_shared_volume_is_named(node, changes, field):
    node.mounts.serve(SHARE)
    given = {"publish_context": SHARE_CONTEXT, "volume_capability": SHARED} | changes
    for call in (node.stage, node.publish):
        assert await refusal(call(**given)) == ("INVALID_ARGUMENT", field)
    assert not any(node.mounts.mounts.values())


async def test_a_shared_volume_is_published_at_a_path_of_its_own(node):
    given = {"publish_context": SHARE_CONTEXT, "volume_capability": SHARED}
    assert await code(node.publish(staging_target_path="", **given)) == "FAILED_PRECONDITION"
    assert await refusal(node.publish(target_path=node.staging, **given)) == (
        "INVALID_ARGUMENT",
        "target_path",
    )
