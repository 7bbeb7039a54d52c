"""The mounts of the CSI driver on a simulated machine: the disks are Harvester's, and nothing of this computer is touched."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.app.csi.guest_mounts import GuestMounts
from windrow.core.clock import sleep
from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts.port import (
    DeviceMismatch,
    DeviceNotFound,
    FilesystemMount,
    ForeignFilesystem,
    MountConflict,
    NetworkShare,
    NotAnswering,
    NotMounted,
    PublishedElsewhere,
    ToolFailed,
    VolumeDevice,
)
from windrow.emulator.guest_os.hardware import BlockDevice, Disk, File
from windrow.emulator.guest_os.notifier import Notifier
from windrow.emulator.guest_os.storage import NodeStorage
from windrow.emulator.storage.nfs import NfsExport, NfsServers

GIB = 1 << 30
DATA, LOGS = VolumeDevice("data", "serial-data", GIB), VolumeDevice("logs", "serial-logs", GIB)
BY_GO = VolumeDevice("pvc-1", "", GIB)
EXT4 = FilesystemMount("ext4")


class Node:
    """A machine with the disks of both volumes."""

    def __init__(self) -> None:
        self.disks = (
            BlockDevice("sda", GIB, "data", "serial-data", disk=Disk()),
            BlockDevice("sdb", GIB, "logs", "serial-logs", disk=Disk()),
        )
        self.storage = NodeStorage(lambda: self.disks, Notifier())
        self.clock = LoopClock()
        self.servers = NfsServers()
        self.mounts = GuestMounts(self.storage, self.servers, self.clock)

    def plug(self, *disks: BlockDevice) -> None:
        self.disks = disks
        self.storage.changed.notify()


def on_node(story: Any) -> None:
    async def run() -> None:
        await story(Node())

    run_driven(run())


async def refused(kind: type[Exception], work: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(kind):
        await work


def test_what_a_pod_writes_is_on_the_disk():
    async def story(node: Node) -> None:
        await node.mounts.stage(DATA, "/staged", EXT4)
        await node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=False)
        mounted = node.storage.mounts.find("/pod")
        assert mounted is not None
        mounted.disk.files["/x"] = File(b"hello")
        assert node.disks[0].disk is not None
        assert node.disks[0].disk.files["/x"].content == b"hello"
        stats = await node.mounts.stats("/pod")
        assert (stats.capacity.total, stats.capacity.used) == (GIB, 5)
        assert stats.inodes is not None
        assert stats.inodes.used == 1
        await node.mounts.unpublish("/pod")
        await node.mounts.unstage("/staged")
        await node.mounts.unstage("/staged")
        assert node.storage.mounts.find("/pod") is None

    on_node(story)


def test_a_disk_is_waited_for_as_long_as_udev_may_take():
    async def story(node: Node) -> None:
        disks = node.disks
        node.plug()
        await refused(DeviceNotFound, node.mounts.find(DATA))
        assert node.clock.monotonic() >= timedelta(seconds=10)
        finding = asyncio.create_task(node.mounts.find(DATA))
        await sleep(node.clock, timedelta(seconds=5))
        node.plug(*disks)
        assert await finding == "/dev/sda"

    on_node(story)


def test_a_disk_without_a_serial_is_told_by_the_name_of_its_volume():
    async def story(node: Node) -> None:
        node.plug(BlockDevice("sdc", GIB, "pvc-1", disk=Disk()), *node.disks)
        assert node.mounts.count_own_disks() == 1
        assert await node.mounts.find(BY_GO) == "/dev/sdc"

    on_node(story)


def test_a_disk_that_is_too_small_is_not_the_volumes():
    on_node(lambda node: refused(DeviceMismatch, node.mounts.find(replace(DATA, size=2 * GIB))))


def test_another_filesystem_than_the_one_asked_for_is_refused():
    async def story(node: Node) -> None:
        await refused(InvalidArgument, node.mounts.stage(DATA, "/staged", FilesystemMount("btrfs")))
        await node.mounts.stage(DATA, "/staged", FilesystemMount("xfs"))
        await node.mounts.unstage("/staged")
        await refused(ForeignFilesystem, node.mounts.stage(DATA, "/staged", EXT4))
        await refused(
            ForeignFilesystem, node.mounts.stage(LOGS, "/logs", FilesystemMount("ext4", read_only=True))
        )

    on_node(story)


def test_a_disk_with_data_and_no_filesystem_is_never_formatted():
    async def story(node: Node) -> None:
        assert node.disks[0].disk is not None
        node.disks[0].disk.files["/etc/hostname"] = File(b"a root disk")
        await refused(ForeignFilesystem, node.mounts.stage(DATA, "/staged", EXT4))

    on_node(story)


def test_a_path_has_one_volume_mounted_in_one_way():
    async def story(node: Node) -> None:
        await node.mounts.stage(DATA, "/staged", EXT4)
        await node.mounts.stage(DATA, "/staged", EXT4)
        await refused(MountConflict, node.mounts.stage(LOGS, "/staged", EXT4))
        await node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=True)
        writable = node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=False)
        await refused(MountConflict, writable)
        await refused(MountConflict, node.mounts.publish_block(LOGS, "/pod", read_only=False))

    on_node(story)


def test_a_volume_for_one_pod_alone_has_one_target():
    async def story(node: Node) -> None:
        await node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=False, exclusive=True)
        await node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=False, exclusive=True)
        another = node.mounts.publish(DATA, "/staged", "/other", EXT4, read_only=False, exclusive=True)
        await refused(PublishedElsewhere, another)
        await refused(PublishedElsewhere, node.mounts.unstage("/staged"))
        await node.mounts.publish_block(LOGS, "/raw", read_only=False, exclusive=True)
        await refused(
            PublishedElsewhere, node.mounts.publish_block(LOGS, "/raw2", read_only=False, exclusive=True)
        )
        await refused(PublishedElsewhere, node.mounts.stage(LOGS, "/logs", EXT4))

    on_node(story)


def test_a_filesystem_grows_to_its_disk_and_a_block_device_has_its_size():
    async def story(node: Node) -> None:
        await refused(NotMounted, node.mounts.grow("/pod"))
        await node.mounts.publish(DATA, "/staged", "/pod", EXT4, read_only=False)
        await node.mounts.publish_block(LOGS, "/raw", read_only=False)
        node.plug(*(replace(one, size_bytes=3 * GIB) for one in node.disks))
        assert (await node.mounts.stats("/pod")).capacity.total == GIB
        assert await node.mounts.grow("/pod") == 3 * GIB
        assert (await node.mounts.stats("/pod")).capacity.total == 3 * GIB
        assert await node.mounts.grow("/raw") == 3 * GIB
        assert (await node.mounts.stats("/raw")).inodes is None

    on_node(story)


SHARE = NetworkShare("data", "10.53.200.10", "/pvc-1", "vers=4.1")


def export(node: Node, address: str = SHARE.server) -> Disk:
    """The server of the shared volume answers."""
    disk = Disk()
    node.servers.serve(address, SHARE.export, NfsExport(disk, lambda: 2 * GIB))
    return disk


def test_a_shared_volume_has_the_data_of_the_export_on_every_node():
    async def story(node: Node) -> None:
        disk = export(node)
        other = GuestMounts(NodeStorage(lambda: (), Notifier()), node.servers, node.clock)
        await node.mounts.publish_share(SHARE, "/staged", "/pod", EXT4, read_only=False)
        await node.mounts.publish_share(SHARE, "/staged", "/again", EXT4, read_only=True)
        await other.stage_share(SHARE, "/staged", EXT4)
        await other.stage_share(SHARE, "/staged", EXT4)
        first, again = node.storage.mounts.find("/pod"), node.storage.mounts.find("/again")
        assert first is not None
        assert again is not None
        assert (first.source, first.disk, first.read_only) == ("10.53.200.10:/pvc-1", disk, False)
        assert again.read_only
        disk.files["/x"] = File(b"hello")
        stats = await other.stats("/staged")
        assert (stats.capacity.total, stats.capacity.used) == (2 * GIB, 5)
        assert await node.mounts.grow("/pod") == 2 * GIB
        await refused(PublishedElsewhere, node.mounts.unstage("/staged"))

    on_node(story)


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda _: None, "mount.nfs: Connection timed out"),
        (lambda servers: servers.stop("/pvc-1"), "mount.nfs: Connection refused"),
        (
            lambda servers: servers.serve("10.53.200.10", "/pvc-2", NfsExport(Disk(), lambda: GIB)),
            "mount.nfs: mounting 10.53.200.10:/pvc-1 failed, reason given by server: No such file or directory",
        ),
    ],
    ids=["no such address", "no server", "not exported"],
)
def test_what_no_server_exports_is_not_mounted(prepare: Any, why: str):
    async def story(node: Node) -> None:
        if "refused" in why:
            export(node)
        prepare(node.servers)
        for call in (
            node.mounts.stage_share(SHARE, "/staging", EXT4),
            node.mounts.publish_share(SHARE, "/staging", "/target", EXT4, read_only=False),
        ):
            with pytest.raises(
                ToolFailed, match=re.escape(f"cannot mount 10.53.200.10:/pvc-1 at /staging: {why}")
            ):
                await call
        assert node.storage.mounts.find("/staging") is None

    on_node(story)


def test_a_server_that_has_gone_answers_no_more_and_one_that_moved_is_mounted_anew():
    async def story(node: Node) -> None:
        export(node)
        await node.mounts.stage_share(SHARE, "/staged", EXT4)
        node.servers.stop(SHARE.export)
        await refused(NotAnswering, node.mounts.stats("/staged"))
        await refused(
            NotAnswering, node.mounts.publish_share(SHARE, "/staged", "/pod", EXT4, read_only=False)
        )
        moved = replace(SHARE, server="10.52.0.7")
        disk = export(node, moved.server)
        await node.mounts.stage_share(moved, "/staged", EXT4)
        mounted = node.storage.mounts.find("/staged")
        assert mounted is not None
        assert (mounted.source, mounted.disk) == ("10.52.0.7:/pvc-1", disk)
        read_only = node.mounts.stage_share(moved, "/staged", FilesystemMount(read_only=True))
        await refused(MountConflict, read_only)
        await refused(InvalidArgument, node.mounts.stage_share(replace(moved, server="a b"), "/x", EXT4))

    on_node(story)


def test_a_pod_of_a_moved_share_keeps_it_from_being_mounted_anew():
    async def story(node: Node) -> None:
        export(node)
        await node.mounts.publish_share(SHARE, "/staged", "/pod", EXT4, read_only=False)
        moved = replace(SHARE, server="10.52.0.7")
        export(node, moved.server)
        await refused(PublishedElsewhere, node.mounts.stage_share(moved, "/staged", EXT4))

    on_node(story)
