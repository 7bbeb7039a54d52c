"""Volumes that several nodes mount over the network: NetworkFilesystems, on an emulated Harvester."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.volumes_rig import GUEST, RWX_CLASS, VolumesRig, volumes_rig
from tests.support.clock import run_driven

from windrow.client.in_process import InProcessTransport
from windrow.core.clock import sleep
from windrow.core.formats.json import Raw
from windrow.core.rng import Rng
from windrow.csi.errors import FailedPrecondition, Unavailable
from windrow.csi.harvester.claims import read_claim
from windrow.csi.harvester.disks import DiskChange, plan_patch
from windrow.csi.harvester.shared.filesystems import (
    plan_publish,
    plan_unpublish,
    read_filesystem,
    render_filesystem,
)
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.sizes import SizeRange
from windrow.csi.volumes import (
    AttachedDifferently,
    PermissionMissing,
    Unfinished,
    UnknownParameter,
    VolumeInUse,
    VolumeNotFound,
    VolumeRequest,
    WrongKind,
)
from windrow.emulator.faults import CONFLICT, Fault, Refuse
from windrow.harvester.resources import NETWORK_FILESYSTEM, VM
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.resources import PVC, STORAGE_CLASS

GIB = 2**30
ONE = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"
SYSTEM = "harvester-system"
SHARED = VolumeRequest(ONE, SizeRange(GIB), "shared", {"hostStorageClass": "longhorn-rwx"})
FILES = frozenset({"networkfilesystems"})
FORBIDDEN = Refuse(403, "Forbidden", "networkfilesystems.harvesterhci.io is forbidden")


def live(story: Callable[[VolumesRig], Awaitable[None]], **options: Any) -> None:
    async def alive() -> None:
        async with volumes_rig(**options) as rig:
            await story(rig)

    run_driven(alive())


async def pause(rig: VolumesRig, seconds: float) -> None:
    await sleep(rig.harvester.clock.base, timedelta(seconds=seconds))


async def share(rig: VolumesRig, *nodes: str) -> None:
    """The shared volume, on these nodes."""
    await rig.volumes.create(SHARED)
    for node in nodes:
        await rig.volumes.ensure_attached(ONE, node, False, "shared")


@asynccontextmanager
async def restarted(rig: VolumesRig) -> AsyncIterator[HarvesterVolumes]:
    """The driver after a restart: another process, on the same Harvester."""
    harvester, clock = rig.harvester, rig.harvester.clock.base
    access = parse_kubeconfig(harvester.token_kubeconfig(harvester.new_token(), ""))
    transport = InProcessTransport(access, harvester.network.find, clock)
    options = HostOptions("default", guest_uid=GUEST)
    volumes = HarvesterVolumes(transport, options, clock, Rng(8), logging.getLogger("csi-test"))
    running = asyncio.create_task(volumes.run())
    try:
        yield volumes
    finally:
        running.cancel()


async def export(rig: VolumesRig) -> Raw | None:
    found = await rig.line.list(NETWORK_FILESYSTEM, SYSTEM)
    assert len(found) < 2
    return found[0] if found else None


async def state(rig: VolumesRig) -> tuple[str, str]:
    """What the export is to be, and the nodes that are recorded."""
    found = await export(rig)
    assert found is not None
    return found["spec"]["desiredState"], found["metadata"].get("annotations", {}).get(
        "windrow.io/csi-nodes", "none"
    )


async def by_go(rig: VolumesRig, desired: str = "Enabled") -> None:
    """A shared volume, and its export, as the Go driver makes them."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Filesystem",
        "storageClassName": "longhorn-rwx",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await rig.line.create(PVC, {"metadata": {"name": ONE}, "spec": spec}, "default")
    await pause(rig, 20)
    name = read_claim(await rig.line.get(PVC.ref(ONE, "default"))).volume_name
    files = {"networkFSName": name, "desiredState": desired, "provisioner": "Longhorn"}
    await rig.line.create(NETWORK_FILESYSTEM, {"metadata": {"name": name}, "spec": files}, SYSTEM)
    await pause(rig, 10)


# --- what is planned --------------------------------------------------------------------------------------------------


def a_filesystem(nodes: str | None = None, desired: str = "Enabled", **status: str) -> Raw:
    raw = render_filesystem("pvc-9", ONE, {}, GUEST)
    annotations = raw["metadata"]["annotations"]
    del annotations["windrow.io/csi-nodes"]
    if nodes is not None:
        annotations["windrow.io/csi-nodes"] = nodes
    raw["metadata"]["resourceVersion"] = "7"
    raw["spec"]["desiredState"] = desired
    return {**raw, "status": status}


def test_an_export_is_made_as_the_go_driver_makes_it_with_its_first_node():
    raw = render_filesystem("pvc-9", ONE, {"b": "rw", "a": "ro"}, GUEST)

    assert raw["spec"] == {"networkFSName": "pvc-9", "desiredState": "Enabled", "provisioner": "Longhorn"}
    assert raw["metadata"]["namespace"] == SYSTEM
    assert raw["metadata"]["labels"] == {"windrow.io/csi-driver": "driver.harvesterhci.io"}
    assert raw["metadata"]["annotations"] == {
        "windrow.io/csi-volume-id": ONE,
        "windrow.io/csi-nodes": '{"a":"ro","b":"rw"}',
        "windrow.io/guest-uid": GUEST,
    }
    assert "windrow.io/guest-uid" not in render_filesystem("pvc-9", ONE, {}, "")["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("before", "desired", "after"),
    [
        (None, "Disabled", '{"a":"rw"}'),
        (None, "Enabled", '{"*":"rw","a":"rw"}'),
        ("{}", "Disabled", '{"a":"rw"}'),
        ("{}", "Enabled", '{"a":"rw"}'),
        ('{"b":"ro"}', "Enabled", '{"a":"rw","b":"ro"}'),
        ('{"a":"rw"}', "Disabled", '{"a":"rw"}'),
        ("no json", "Enabled", '{"*":"rw","a":"rw"}'),
        ("[]", "Enabled", '{"*":"rw","a":"rw"}'),
    ],
)
def test_a_node_is_recorded_and_the_export_turned_on_in_one_guarded_change(
    before: Any, desired: str, after: str
):
    change = plan_publish(read_filesystem(a_filesystem(before, desired)), ONE, "a", "rw", GUEST)

    assert change is not None
    assert change["spec"] == {"desiredState": "Enabled"}
    assert change["metadata"]["resourceVersion"] == "7"
    assert change["metadata"]["annotations"]["windrow.io/csi-nodes"] == after
    assert change["metadata"]["annotations"]["windrow.io/csi-volume-id"] == ONE


def test_a_node_that_has_it_needs_no_change():
    assert plan_publish(read_filesystem(a_filesystem('{"a":"rw"}')), ONE, "a", "rw", GUEST) is None


@pytest.mark.parametrize(
    ("before", "desired", "node", "after"),
    [
        ('{"a":"rw"}', "Enabled", "a", ("{}", "Disabled")),
        ('{"a":"rw","b":"ro"}', "Enabled", "a", ('{"b":"ro"}', "Enabled")),
        ('{"a":"rw","b":"ro"}', "Enabled", "", ("{}", "Disabled")),
        ('{"*":"rw","a":"rw"}', "Enabled", "a", ('{"*":"rw"}', "Enabled")),
        ('{"*":"rw"}', "Enabled", "", ("{}", "Disabled")),
        (None, "Enabled", "", ("{}", "Disabled")),
        (None, "Enabled", "a", None),
        (None, "Disabled", "", None),
        ("{}", "Disabled", "a", None),
        ("{}", "Enabled", "a", ("{}", "Disabled")),
        ('{"b":"ro"}', "Enabled", "a", None),
    ],
)
def test_behind_the_last_node_that_may_have_it_the_export_is_turned_off(
    before: Any, desired: str, node: str, after: Any
):
    change = plan_unpublish(read_filesystem(a_filesystem(before, desired)), node)

    found = change and (
        change["metadata"]["annotations"]["windrow.io/csi-nodes"],
        change["spec"]["desiredState"],
    )
    assert found == after
    assert change is None or change["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("desired", "status", "ready"),
    [
        ("Enabled", {"state": "Enabled", "status": "Ready", "endpoint": "10.0.0.1"}, True),
        ("Disabled", {"state": "Enabled", "status": "Ready", "endpoint": "10.0.0.1"}, False),
        ("Enabled", {"state": "Enabling", "status": "Ready", "endpoint": "10.0.0.1"}, False),
        ("Enabled", {"state": "Enabled", "status": "Reconciling", "endpoint": "10.0.0.1"}, False),
        ("Enabled", {"state": "Enabled", "status": "Ready", "endpoint": ""}, False),
        ("Enabled", {}, False),
    ],
)
def test_an_export_is_ready_when_it_has_an_endpoint_that_answers(desired: str, status: Any, ready: bool):
    found = read_filesystem(a_filesystem("{}", desired, **status))

    assert found.is_ready is ready
    assert found.context()["nfsMountOptions"] == "vers=4"
    assert read_filesystem(a_filesystem(mountOpts="vers=4.2")).context() == {
        "nfsServer": "",
        "nfsExport": "/pvc-9",
        "nfsMountOptions": "vers=4.2",
    }


def test_what_waits_for_an_export_says_its_state():
    assert read_filesystem(a_filesystem(state="Enabling", status="NotReady")).describe() == (
        "state: Enabling, status: NotReady, endpoint: none"
    )
    assert read_filesystem(a_filesystem()).describe() == "state: none, status: none, endpoint: none"


# --- on a Harvester ---------------------------------------------------------------------------------------------------


def test_a_shared_volume_is_a_filesystem_of_many_and_its_export_lives_while_nodes_have_it():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node, rig.other_node)
        claim = await rig.line.get(PVC.ref(ONE, "default"))
        assert (claim["spec"]["accessModes"], claim["spec"]["volumeMode"]) == (
            ["ReadWriteMany"],
            "Filesystem",
        )
        assert claim["metadata"]["annotations"]["windrow.io/csi-kind"] == "shared"
        assert await state(rig) == ("Enabled", '{"node-1":"rw","node-2":"rw"}')
        for vm in await rig.line.list(VM, "default"):
            assert ONE not in str(vm)

        await rig.volumes.ensure_detached(ONE, rig.node)
        assert await state(rig) == ("Enabled", '{"node-2":"rw"}')
        await rig.volumes.ensure_detached(ONE, rig.other_node)
        assert await state(rig) == ("Disabled", "{}")
        again = await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        assert again.context["nfsServer"] == "10.53.200.10"
        await rig.volumes.ensure_detached(ONE, "")
        await rig.volumes.delete(ONE)
        assert await export(rig) is None

    live(story)


def test_nodes_that_come_and_go_at_once_leave_no_other_without_its_export():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        rig.harvester.faults.add(Fault(CONFLICT, frozenset({"patch"}), FILES, times=3))
        await asyncio.gather(
            rig.volumes.ensure_detached(ONE, rig.node),
            rig.volumes.ensure_attached(ONE, rig.other_node, False, "shared"),
        )
        assert await state(rig) == ("Enabled", '{"node-2":"rw"}')
        await pause(rig, 20)
        rig.harvester.faults.add(Fault(CONFLICT, frozenset({"patch"}), FILES, times=6))
        with pytest.raises(Unfinished, match="was changed by others 6 times meanwhile"):
            await rig.volumes.ensure_detached(ONE, rig.other_node)

    live(story)


def test_an_export_of_the_go_driver_stays_on_while_nodes_that_it_knows_may_have_it():
    async def story(rig: VolumesRig) -> None:
        await by_go(rig)
        await rig.volumes.ensure_detached(ONE, rig.node)
        assert await state(rig) == ("Enabled", "none")
        with pytest.raises(VolumeInUse):
            await rig.volumes.ensure_attached(ONE, rig.node, False)  # as a disk
        with pytest.raises(VolumeInUse, match="nodes that the Go driver knows"):
            await rig.volumes.ensure_expanded(ONE, SizeRange(2 * GIB))
        await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        assert (await rig.volumes.get(ONE)).nodes == (rig.node,)
        await rig.volumes.ensure_detached(ONE, rig.node)
        assert await state(rig) == ("Enabled", '{"*":"rw"}')
        assert (await rig.volumes.get(ONE)).nodes == ()
        await rig.volumes.delete(ONE)
        assert await export(rig) is None

    live(story)


def test_a_claim_of_the_go_driver_that_could_be_either_is_used_as_it_is_asked_for():
    async def story(rig: VolumesRig) -> None:
        await by_go(rig, "Disabled")
        raw = await rig.line.get(VM.ref(rig.node, "default"))
        await rig.line.json_patch(VM.ref(rig.node, "default"), plan_patch(raw, [DiskChange(ONE, "attach")]))
        await pause(rig, 20)
        assert (await rig.volumes.get(ONE)).nodes == (rig.node,)
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        with pytest.raises(VolumeInUse, match="it is a disk there"):
            await rig.volumes.ensure_attached(ONE, rig.other_node, False, "shared")
        await rig.volumes.ensure_detached(ONE, rig.node)
        await rig.volumes.ensure_attached(ONE, rig.other_node, False, "shared")

    live(story)


def test_where_the_role_forbids_exports_the_right_is_named_before_anything_is_made():
    async def story(rig: VolumesRig) -> None:
        await rig.volumes.create(VolumeRequest("disk", SizeRange(GIB)))
        rig.harvester.faults.add(Fault(FORBIDDEN, plurals=FILES))
        with pytest.raises(
            PermissionMissing, match=r"networkfilesystems\.harvesterhci\.io is forbidden"
        ) as error:
            await rig.volumes.create(SHARED)
        assert (
            "all rights on networkfilesystems.harvesterhci.io in namespace harvester-system"
            in error.value.hint
        )
        assert await rig.line.find(PVC.ref(ONE, "default")) is None
        assert [one.id for one in await rig.volumes.list_volumes()] == ["disk"]
        assert rig.volumes.state.problem() == ""

    live(story)


def test_disks_of_the_go_driver_that_could_be_shared_need_no_right_on_exports():
    async def story(rig: VolumesRig) -> None:
        await by_go(rig, "Disabled")
        rig.harvester.faults.add(Fault(FORBIDDEN, plurals=FILES))
        await rig.volumes.ensure_attached(ONE, rig.node, False)
        (found,) = await rig.volumes.list_volumes()
        assert (found.nodes, found.problem) == ((rig.node,), "")
        await rig.volumes.ensure_detached(ONE, rig.node)
        (found,) = await rig.volumes.list_volumes()
        assert "networkfilesystems.harvesterhci.io is forbidden" in found.problem
        with pytest.raises(PermissionMissing):
            await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        await rig.volumes.delete(ONE)

    live(story)


def test_the_exports_of_ours_are_not_left_behind_where_a_right_is_gone():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        rig.harvester.faults.add(Fault(FORBIDDEN, plurals=FILES, verbs=frozenset({"get", "patch", "delete"})))
        for call in (rig.volumes.ensure_detached(ONE, rig.node), rig.volumes.delete(ONE)):
            with pytest.raises(PermissionMissing):
                await call
        rig.harvester.faults.script.clear()
        await rig.volumes.ensure_detached(ONE, rig.node)
        await rig.volumes.delete(ONE)

    live(story)


@pytest.mark.parametrize(
    ("parameters", "field", "words"),
    [
        ({"hostStorageClass": "harvester-longhorn"}, "hostStorageClass", "has migratable true"),
        ({}, "hostStorageClass", "StorageClass 'harvester-longhorn' on Harvester has migratable true"),
        ({"hostStorageClass": "lvm"}, "hostStorageClass", "is of lvm.driver.harvesterhci.io"),
        ({"hostStorageClass": "none"}, "hostStorageClass", "Harvester has no StorageClass 'none'"),
        (
            {"hostStorageClass": "longhorn-rwx", "hostVolumeMode": "block"},
            "hostVolumeMode",
            "no block device",
        ),
    ],
)
def test_a_class_whose_volumes_are_not_shared_is_refused(parameters: dict[str, str], field: str, words: str):
    async def story(rig: VolumesRig) -> None:
        lvm = {**RWX_CLASS, "metadata": {"name": "lvm"}, "provisioner": "lvm.driver.harvesterhci.io"}
        await rig.line.create(STORAGE_CLASS, lvm)
        with pytest.raises(UnknownParameter, match=words) as error:
            await rig.volumes.create(replace(SHARED, parameters=parameters))
        assert error.value.field == f"parameters[{field}]"
        assert await rig.line.find(PVC.ref(ONE, "default")) is None

    live(story)


def test_another_guest_cluster_neither_uses_nor_deletes_a_shared_volume():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        rig.volumes.set_guest("another")
        claim = await rig.line.get(PVC.ref(ONE, "default"))
        await rig.line.patch(
            PVC.ref(ONE, "default"), {"metadata": {"annotations": {"windrow.io/guest-uid": "another"}}}
        )
        assert claim["metadata"]["annotations"]["windrow.io/guest-uid"] == GUEST
        await pause(rig, 5)
        for call in (
            rig.volumes.ensure_attached(ONE, rig.other_node, False, "shared"),
            rig.volumes.ensure_detached(ONE, rig.node),
            rig.volumes.delete(ONE),
        ):
            with pytest.raises(
                FailedPrecondition, match="was made by the guest cluster with uid 0f1e2d3c-guest"
            ):
                await call
        assert await state(rig) == ("Enabled", '{"node-1":"rw"}')

    live(story)


def test_an_export_whose_claim_is_gone_goes_with_the_volume():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        await rig.line.delete(PVC.ref(ONE, "default"))
        await pause(rig, 20)
        with pytest.raises(VolumeInUse):
            await rig.volumes.delete(ONE)
        await rig.volumes.ensure_detached(ONE, rig.node)
        assert await state(rig) == ("Disabled", "{}")
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete(ONE)
        assert await export(rig) is None

    live(story)


@pytest.mark.parametrize("node", ["node-1", ""])
def test_an_export_whose_claim_is_gone_is_turned_off_by_a_process_that_has_just_begun(node: str):
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        await rig.line.delete(PVC.ref(ONE, "default"))
        await pause(rig, 20)
        async with restarted(rig) as volumes:
            with pytest.raises(VolumeInUse):
                await volumes.delete(ONE)
            assert await volumes.state.read_nodes_sharing(ONE) == (rig.node,)
            await volumes.ensure_detached(ONE, node)
            assert await state(rig) == ("Disabled", "{}")
            with pytest.raises(VolumeNotFound):
                await volumes.delete(ONE)
        assert await export(rig) is None

    live(story)


def test_a_process_that_has_just_begun_knows_the_nodes_of_a_shared_volume_and_asks_not_for_those_of_a_disk():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        await rig.volumes.create(VolumeRequest("disk", SizeRange(GIB)))
        async with restarted(rig) as volumes:
            assert await volumes.state.read_nodes_sharing("disk") == ()
            assert not volumes.state.filesystems.has_synced
        async with restarted(rig) as volumes:
            await rig.volumes.ensure_attached("disk", rig.node, False)
            assert await volumes.state.read_nodes_sharing("disk") == ()
            assert not volumes.state.filesystems.has_synced
            assert await volumes.state.read_nodes_sharing(ONE) == (rig.node,)
            assert await volumes.state.read_nodes_sharing("no-volume") == ()
        rig.harvester.faults.add(Fault(FORBIDDEN, plurals=FILES))
        async with restarted(rig) as volumes:
            assert await volumes.state.read_nodes_sharing(ONE) == ()

    live(story)


@pytest.mark.parametrize("fault", [FORBIDDEN, Refuse(404, "NotFound", "404 page not found")])
def test_a_detachment_of_a_volume_that_is_gone_needs_no_exports(fault: Refuse):
    async def story(rig: VolumesRig) -> None:
        rig.harvester.faults.add(Fault(fault, plurals=FILES))
        await rig.volumes.ensure_detached(ONE, rig.node)
        with pytest.raises(VolumeNotFound):
            await rig.volumes.delete(ONE)

    live(story)


def test_while_exports_cannot_be_read_the_end_of_one_is_not_said_to_be_done():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        await rig.line.delete(PVC.ref(ONE, "default"))
        await pause(rig, 20)
        rig.harvester.faults.add(
            Fault(Refuse(500, "InternalError", "no"), frozenset({"list"}), FILES, times=50)
        )
        async with restarted(rig) as volumes:
            with pytest.raises(Unavailable):
                await volumes.ensure_detached(ONE, rig.node)

    live(story)


def test_a_claim_that_is_not_bound_changes_no_export_of_the_volume_that_it_names():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        before = await export(rig)
        assert before is not None
        name = before["metadata"]["name"]
        raw = await rig.line.get(PVC.ref(ONE, "default"))
        claim = read_claim(raw | {"status": {"phase": "Pending"}})
        assert (claim.volume_name, claim.export) == (name, "")
        shared = rig.volumes._shared
        await shared.unpublish("another", claim, "")
        await shared.delete_export("another", claim)
        await shared.require_unshared(claim, "expanded")

        assert shared.seen(claim).nodes == ()
        assert await export(rig) == before
        assert read_claim(raw).export == read_claim(raw | {"status": {"phase": "Lost"}}).export == name

    live(story)


def test_a_volume_is_shared_or_a_disk_for_good():
    async def story(rig: VolumesRig) -> None:
        await share(rig)
        with pytest.raises(WrongKind, match="is shared by nodes over the network"):
            await rig.volumes.ensure_attached(ONE, rig.node, False)
        files = VolumeRequest(
            "files",
            SizeRange(GIB),
            parameters={"hostStorageClass": "longhorn-rwx", "hostVolumeMode": "filesystem"},
        )
        await rig.volumes.create(files)
        with pytest.raises(WrongKind, match="is a disk of one node at a time"):
            await rig.volumes.ensure_attached("files", rig.node, False, "shared")
        assert (await rig.volumes.get("files")).kind == "disk"

    live(story)


def test_an_attachment_waits_until_the_export_answers_and_ends_where_it_is_detached_meanwhile():
    async def story(rig: VolumesRig) -> None:
        await share(rig)
        await pause(rig, 20)
        attaching = asyncio.create_task(rig.volumes.ensure_attached(ONE, rig.node, False, "shared"))
        await pause(rig, 1.5)
        assert not attaching.done()
        await rig.volumes.ensure_detached(ONE, rig.node)
        with pytest.raises(Unfinished, match="was detached from node-1 meanwhile"):
            await attaching

    live(story)


def test_an_export_that_was_turned_off_by_hand_is_not_said_to_be_attached_and_turned_on_again():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        found = await export(rig)
        assert found is not None
        ref = NETWORK_FILESYSTEM.ref(found["metadata"]["name"], SYSTEM)
        await rig.line.patch(ref, {"spec": {"desiredState": "Disabled"}})
        await pause(rig, 10)
        assert [one.nodes for one in await rig.volumes.list_volumes()] == [()]
        await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        assert [one.nodes for one in await rig.volumes.list_volumes()] == [(rig.node,)]

    live(story)


def test_an_attachment_that_is_refused_leaves_the_record_as_it_is():
    async def story(rig: VolumesRig) -> None:
        await share(rig)
        await rig.volumes.ensure_attached(ONE, rig.node, True, "shared")
        with pytest.raises(AttachedDifferently, match="read-only"):
            await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        assert await state(rig) == ("Enabled", '{"node-1":"ro"}')

    live(story)


def test_a_shared_volume_that_no_node_ever_had_has_no_export_and_is_deleted():
    async def story(rig: VolumesRig) -> None:
        await share(rig)
        await rig.volumes.ensure_detached(ONE, rig.node)
        await pause(rig, 20)
        await rig.volumes.ensure_detached(ONE, rig.node)
        assert await export(rig) is None
        await rig.volumes.delete(ONE)
        with pytest.raises(VolumeNotFound):
            await rig.volumes.get(ONE)

    live(story)


def test_an_export_that_is_being_deleted_is_not_turned_on_again():
    async def story(rig: VolumesRig) -> None:
        await share(rig, rig.node)
        found = await export(rig)
        assert found is not None
        ref = NETWORK_FILESYSTEM.ref(found["metadata"]["name"], SYSTEM)
        await rig.line.patch(ref, {"metadata": {"finalizers": ["windrow.test/stay"]}})
        await rig.line.delete(ref)
        with pytest.raises(Unfinished, match="is being deleted"):
            await rig.volumes.ensure_attached(ONE, rig.other_node, False, "shared")
        await rig.volumes.delete(ONE)

    live(story)


def test_an_attachment_whose_export_is_deleted_by_hand_is_asked_for_again():
    async def story(rig: VolumesRig) -> None:
        await share(rig)
        await pause(rig, 20)
        attaching = asyncio.create_task(rig.volumes.ensure_attached(ONE, rig.node, False, "shared"))
        await pause(rig, 1.5)
        found = await export(rig)
        assert found is not None
        await rig.line.delete(NETWORK_FILESYSTEM.ref(found["metadata"]["name"], SYSTEM))
        with pytest.raises(Unfinished, match="was detached from node-1 meanwhile"):
            await attaching
        await rig.volumes.ensure_attached(ONE, rig.node, False, "shared")
        with pytest.raises(VolumeInUse) as error:
            await rig.volumes.ensure_expanded(ONE, SizeRange(2 * GIB))
        assert error.value.nodes == (rig.node,)

    live(story)
