"""The Go CSI driver and ours, given the same calls on two Harvesters that are alike; and each with the volumes of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conformance.cloud_provider_rig import Host, a_host, eventually, our_guest
from tests.conformance.csi_driver_objects import (
    BACKUP,
    BACKUP_HANDLE,
    DOCUMENT,
    FROM_BACKUP,
    GIB,
    HEADING,
    NAMESPACE,
    NODE,
    OTHER_NODE,
    RESTORED,
    SNAPSHOT,
    VOLUME,
    backup,
    create,
    delete,
    differences,
    expand,
    is_snapshot_ready,
    of_snapshot,
    publish,
    run_all,
    snapshot,
    unpublish,
)
from tests.conformance.csi_driver_rig import GO_DRIVER, Driver, a_driver, our_program
from tests.conformance.node_driver_rig import real_program
from tests.conformance.object_tables import assert_as_documented, compare, read_documented_rows

from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw, mappings_at, nested
from windrow.kubernetes.resources import PVC
from windrow.protocols.csi import csi_pb2 as csi

pytestmark = pytest.mark.timeout(900)


async def test_the_same_calls_differ_as_the_table_says_and_no_other_way(tmp_path: Path) -> None:
    go, ours = await asyncio.gather(
        run_all(real_program(GO_DRIVER), tmp_path / "go"), run_all(our_program(), tmp_path / "ours")
    )

    rows = compare(go, ours, differences)
    print("\n" + "\n".join(map(str, rows)))
    assert_as_documented(rows, DOCUMENT, HEADING)


def test_every_difference_has_a_reason() -> None:
    rows = read_documented_rows(DOCUMENT, HEADING)
    assert rows
    assert all(rows.values())


@asynccontextmanager
async def both(
    tmp_path: Path, *, go_first: bool, version: str = "v1.8.2"
) -> AsyncIterator[tuple[Host, Driver, Driver]]:
    """One Harvester with two machines, and two drivers on it: who makes, and who uses."""
    programs = [real_program(GO_DRIVER), our_program()]
    first, second = programs if go_first else reversed(programs)
    async with a_host(version=version) as host, our_guest() as guest:
        for name in (NODE, OTHER_NODE):
            await host.make_vm(name)
            await guest.register(name)
        configs = (host.kubeconfig, guest.kubeconfig, NODE)
        async with (
            a_driver(first, tmp_path / "first", *configs) as maker,
            a_driver(second, tmp_path / "second", *configs) as user,
        ):
            yield host, maker, user


async def disks_of(host: Host, node: str = NODE) -> list[str]:
    """The disks of the VM that are volumes of CSI, with the phase in which its instance has each."""
    vm = await host.api.get(kinds.VM.ref(node, NAMESPACE))
    vmi = await host.api.get(kinds.VMI.ref(node, NAMESPACE))
    phases = {one["name"]: one.get("phase", "") for one in mappings_at(vmi, "status", "volumeStatus")}
    spec = nested(vm, "spec", "template", "spec")
    names = {
        one["name"]
        for path in (("volumes",), ("domain", "devices", "disks"))
        for one in mappings_at(spec, *path)
    }
    return sorted(f"{name}: {phases.get(name)}" for name in names if name.startswith("pvc-"))


async def claim_of(host: Host, volume: str = VOLUME) -> Raw | None:
    return await host.api.find(PVC.ref(volume, NAMESPACE))


@pytest.mark.parametrize("version", ["v1.7.1", "v1.8.2"])
@pytest.mark.parametrize("go_first", [True, False], ids=["of the Go driver", "of ours"])
async def test_a_volume_is_used_and_deleted_by_the_other_driver(
    tmp_path: Path, go_first: bool, version: str
) -> None:
    """Before 1.8 volumes are plugged in by a subresource, and Harvester sets what else the disk has."""
    async with both(tmp_path, go_first=go_first, version=version) as (host, maker, user):
        await maker.done(create())
        await maker.done(publish())
        attached = await disks_of(host)

        await user.done(publish())
        assert await disks_of(host) == attached == [f"{VOLUME}: Ready"]

        await user.done(expand())
        grown = await claim_of(host)
        assert grown is not None
        assert grown["spec"]["resources"]["requests"]["storage"] in ("2Gi", str(2 * GIB))

        await user.done(snapshot(), is_snapshot_ready)
        await user.done(unpublish())
        assert await disks_of(host) == []

        await user.done(publish(node=OTHER_NODE))
        assert await disks_of(host, OTHER_NODE) == [f"{VOLUME}: Ready"]
        await maker.done(unpublish(node=OTHER_NODE))
        assert await disks_of(host, OTHER_NODE) == []

        await user.done(csi.DeleteSnapshotRequest(snapshot_id=SNAPSHOT))
        await user.done(delete())
        assert await claim_of(host) is None


@pytest.mark.parametrize("go_first", [True, False], ids=["of the Go driver", "of ours"])
async def test_a_snapshot_is_listed_restored_and_deleted_by_the_other_driver(
    tmp_path: Path, go_first: bool
) -> None:
    async with both(tmp_path, go_first=go_first) as (host, maker, user):
        await maker.done(create())
        await maker.done(snapshot(), is_snapshot_ready)

        listed = await user.done(csi.ListSnapshotsRequest(snapshot_id=SNAPSHOT))
        assert isinstance(listed, csi.ListSnapshotsResponse)
        assert [(one.snapshot.snapshot_id, one.snapshot.source_volume_id) for one in listed.entries] == [
            (SNAPSHOT, VOLUME)
        ]

        await user.done(create(RESTORED, volume_content_source=of_snapshot()))
        restored = await claim_of(host, RESTORED)
        assert restored is not None
        assert restored["spec"]["dataSource"]["name"] == SNAPSHOT
        assert restored["spec"]["volumeMode"] == "Block"
        await maker.done(publish(RESTORED))
        assert await disks_of(host) == [f"{RESTORED}: Ready"]
        await user.done(unpublish(RESTORED))

        await user.done(csi.DeleteSnapshotRequest(snapshot_id=SNAPSHOT))
        assert await host.api.find(kinds.SNAPSHOT.ref(SNAPSHOT, NAMESPACE)) is None
        for volume in (VOLUME, RESTORED):
            await user.done(delete(volume))
            assert await claim_of(host, volume) is None


@pytest.mark.parametrize("go_first", [True, False], ids=["of the Go driver", "of ours"])
async def test_a_backup_is_listed_restored_and_deleted_by_the_other_driver(
    tmp_path: Path, go_first: bool
) -> None:
    async with both(tmp_path, go_first=go_first) as (host, maker, user):
        await maker.done(create())
        await maker.done(backup(), is_snapshot_ready)

        listed = await user.done(csi.ListSnapshotsRequest(snapshot_id=BACKUP_HANDLE))
        assert isinstance(listed, csi.ListSnapshotsResponse)
        assert [one.snapshot.snapshot_id for one in listed.entries] == [BACKUP_HANDLE]

        await user.done(create(FROM_BACKUP, volume_content_source=of_snapshot(BACKUP_HANDLE)))
        await maker.done(publish(FROM_BACKUP))
        assert await disks_of(host) == [f"{FROM_BACKUP}: Ready"]
        await user.done(unpublish(FROM_BACKUP))

        await user.done(csi.DeleteSnapshotRequest(snapshot_id=BACKUP_HANDLE))
        assert await host.api.find(kinds.REMOTE_BACKUP.ref(BACKUP, NAMESPACE)) is None
        for volume in (VOLUME, FROM_BACKUP):
            await maker.done(delete(volume))
            await eventually_gone(host, volume)


async def eventually_gone(host: Host, volume: str) -> None:
    """A claim that a restore owns is deleted after it."""

    async def is_gone() -> bool:
        restore = await host.api.find(kinds.REMOTE_RESTORE.ref(volume, NAMESPACE))
        return restore is None and await claim_of(host, volume) is None

    await eventually(is_gone, f"claim {volume} is gone")
