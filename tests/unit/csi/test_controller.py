"""The service Controller: what each message becomes, and which requests are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from tests.support.memory_volumes import NOON, MemoryVolumes
from tests.unit.csi.rig import GIB, Mode, a_controller, capability, create_volume, publish_volume

from windrow.csi import names
from windrow.csi.errors import Aborted, CsiError, InvalidArgument
from windrow.csi.sizes import MAX_BYTES
from windrow.csi.volumes import (
    SnapshotNotFound,
    Volume,
    VolumeExists,
    VolumeNotFound,
    VolumeRequest,
    VolumeSource,
)
from windrow.protocols.csi import csi_pb2 as csi

Range = csi.CapacityRange


def changed(message: Message, change: Callable[[object], object]) -> Message:
    change(message)
    return message


def create_with(change: Callable[[csi.CreateVolumeRequest], object]) -> Message:
    return changed(create_volume(), change)  # type: ignore[arg-type]


def source(**parts: object) -> csi.VolumeContentSource:
    return csi.VolumeContentSource(**parts)  # type: ignore[arg-type]


SHARED = Mode.MULTI_NODE_MULTI_WRITER
SNAPSHOT, VOLUME = csi.VolumeContentSource.SnapshotSource, csi.VolumeContentSource.VolumeSource

# Each malformed request, and the field that the error begins with.
MALFORMED: list[tuple[str, Message]] = [
    ("name", csi.CreateVolumeRequest()),
    ("name", create_volume(name="x" * 129)),
    ("name", create_volume(name="ä" * 65)),
    ("name", create_volume(name="a\nb")),
    ("volume_capabilities", csi.CreateVolumeRequest(name="a")),
    ("volume_capabilities", csi.CreateVolumeRequest(name="a", volume_capabilities=[capability()] * 65)),
    (
        "volume_capabilities[0]",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[csi.VolumeCapability()]),
    ),
    (
        "volume_capabilities[0].access_mode",
        csi.CreateVolumeRequest(
            name="a", volume_capabilities=[csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume())]
        ),
    ),
    (
        "volume_capabilities[1].access_mode",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(), capability(Mode.UNKNOWN)]),
    ),
    (
        "volume_capabilities[0].access_mode",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(Mode.MULTI_NODE_SINGLE_WRITER)]),
    ),
    (
        "volume_capabilities[0].access_mode",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(Mode.MULTI_NODE_READER_ONLY)]),
    ),
    (
        "volume_capabilities[0].access_mode",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(99)]),
    ),
    (
        "volume_capabilities[0]",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(SHARED, block=True)]),
    ),
    (
        "volume_capabilities",
        csi.CreateVolumeRequest(name="a", volume_capabilities=[capability(), capability(SHARED)]),
    ),
    (
        "volume_capabilities[0].mount.mount_flags",
        create_with(lambda r: r.volume_capabilities[0].mount.mount_flags.append("x" * 4097)),
    ),
    ("capacity_range.required_bytes", create_volume(size=-1)),
    ("capacity_range.required_bytes", create_volume(size=2**62 + 1)),
    ("capacity_range.limit_bytes", create_with(lambda r: r.capacity_range.CopyFrom(Range(limit_bytes=-1)))),
    (
        "capacity_range.limit_bytes",
        create_with(lambda r: r.capacity_range.CopyFrom(Range(required_bytes=2, limit_bytes=1))),
    ),
    ("parameters", create_with(lambda r: r.parameters.update({"a": "x" * 4096}))),
    (
        "parameters[hostVolumeMode]",
        create_with(lambda r: r.parameters.update({"hostVolumeMode": "Filesystem"})),
    ),
    ("parameters[hostStorageClass]", create_with(lambda r: r.parameters.update({"hostStorageClass": ""}))),
    *(
        (f"parameters[{key}]", create_with(lambda r, key=key: r.parameters.update({key: "longhorn"})))
        for key in ("hostStorageClas", "HostStorageClass", "storageClass", "hostvolumemode")
    ),
    ("mutable_parameters", create_with(lambda r: r.mutable_parameters.update({"a": "b"}))),
    ("volume_content_source", create_with(lambda r: r.volume_content_source.CopyFrom(source()))),
    (
        "volume_content_source.snapshot.snapshot_id",
        create_with(lambda r: r.volume_content_source.CopyFrom(source(snapshot=SNAPSHOT()))),
    ),
    (
        "volume_content_source.volume.volume_id",
        create_with(lambda r: r.volume_content_source.CopyFrom(source(volume=VOLUME()))),
    ),
    ("volume_id", csi.DeleteVolumeRequest()),
    ("volume_id", csi.DeleteVolumeRequest(volume_id="a" * 513)),
    ("volume_id", csi.ControllerGetVolumeRequest()),
    ("volume_id", csi.ValidateVolumeCapabilitiesRequest()),
    ("volume_capabilities", csi.ValidateVolumeCapabilitiesRequest(volume_id="a")),
    ("volume_id", csi.ControllerPublishVolumeRequest()),
    ("node_id", csi.ControllerPublishVolumeRequest(volume_id="a")),
    ("volume_capability", csi.ControllerPublishVolumeRequest(volume_id="a", node_id="b")),
    (
        "volume_capability[0]",
        csi.ControllerPublishVolumeRequest(
            volume_id="a", node_id="b", volume_capability=csi.VolumeCapability()
        ),
    ),
    ("volume_id", csi.ControllerUnpublishVolumeRequest()),
    ("node_id", csi.ControllerUnpublishVolumeRequest(volume_id="a", node_id="b\0c")),
    ("volume_id", csi.ControllerExpandVolumeRequest()),
    ("capacity_range", csi.ControllerExpandVolumeRequest(volume_id="a")),
    (
        "capacity_range.required_bytes",
        csi.ControllerExpandVolumeRequest(volume_id="a", capacity_range=Range(required_bytes=-5)),
    ),
    ("name", csi.CreateSnapshotRequest()),
    ("source_volume_id", csi.CreateSnapshotRequest(name="a")),
    (
        "parameters[type]",
        csi.CreateSnapshotRequest(name="a", source_volume_id="b", parameters={"type": "tape"}),
    ),
    (
        "parameters[typ]",
        csi.CreateSnapshotRequest(name="a", source_volume_id="b", parameters={"typ": "backup"}),
    ),
    ("snapshot_id", csi.DeleteSnapshotRequest()),
    ("snapshot_id", csi.GetSnapshotRequest()),
    ("max_entries", csi.ListVolumesRequest(max_entries=-1)),
    ("max_entries", csi.ListSnapshotsRequest(max_entries=-1)),
]


def call(controller: object, request: Message) -> object:
    name = type(request).__name__.removesuffix("Request")
    return getattr(controller, name)(request)


@pytest.mark.parametrize(("field", "request_"), MALFORMED)
async def test_a_malformed_request_is_refused_with_its_field(field: str, request_: Message):
    volumes = MemoryVolumes()

    with pytest.raises(InvalidArgument) as error:
        await call(a_controller(volumes), request_)  # type: ignore[misc]

    assert error.value.field == field
    assert error.value.message.startswith(f"{field}: ")
    assert await volumes.list_volumes() == []


async def test_a_created_volume_carries_its_parameters_as_context():
    request = create_volume()
    request.parameters[names.HOST_STORAGE_CLASS] = "fast"
    volume = (await a_controller().CreateVolume(request)).volume

    assert (volume.volume_id, volume.capacity_bytes) == ("pvc-1", GIB)
    assert dict(volume.volume_context) == {names.HOST_STORAGE_CLASS: "fast"}
    assert not volume.HasField("content_source")


async def test_a_misspelt_parameter_is_told_with_the_one_that_is_meant():
    request = create_volume()
    request.parameters.update({"hostStorageClas": "foo"})
    with pytest.raises(InvalidArgument) as error:
        await a_controller().CreateVolume(request)

    assert (error.value.field, error.value.hint) == ("parameters[hostStorageClas]", "write hostStorageClass")


async def test_a_mode_that_is_not_supported_is_told_with_those_that_are():
    request = create_volume()
    request.volume_capabilities[0].access_mode.mode = Mode.MULTI_NODE_READER_ONLY
    with pytest.raises(InvalidArgument, match="MULTI_NODE_READER_ONLY is not supported") as error:
        await a_controller().CreateVolume(request)

    assert "ReadWriteOncePod" in error.value.hint


async def test_a_parameter_without_effect_is_logged(caplog: pytest.LogCaptureFixture):
    request = create_volume()
    request.parameters.update({"fstype": "xfs", "csi.storage.k8s.io/pvc/name": "data"})
    await a_controller().CreateVolume(request)

    assert "volume 'pvc-1': parameters without effect: fstype" in caplog.text


async def test_the_same_creation_again_answers_the_same():
    controller = a_controller()
    first = await controller.CreateVolume(create_volume())

    assert await controller.CreateVolume(create_volume()) == first


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.capacity_range.CopyFrom(Range(required_bytes=2 * GIB)),
        lambda r: r.capacity_range.CopyFrom(Range(limit_bytes=20 * 2**20)),
        lambda r: r.parameters.update({"hostVolumeMode": "block"}),
        lambda r: r.volume_content_source.CopyFrom(source(volume=VOLUME(volume_id="other"))),
    ],
)
async def test_another_creation_with_the_name_is_refused(change: Callable[[object], object]):
    controller = a_controller()
    await controller.CreateVolume(create_volume("other"))
    await controller.CreateVolume(create_volume())

    with pytest.raises(VolumeExists):
        await controller.CreateVolume(changed(create_volume(), change))  # type: ignore[arg-type]


async def test_a_size_within_the_first_one_is_no_other_creation():
    controller = a_controller()
    first = await controller.CreateVolume(create_volume(size=GIB))
    request = create_volume(size=GIB - 5)
    request.capacity_range.limit_bytes = GIB

    assert await controller.CreateVolume(request) == first


async def test_deletions_and_detachments_of_nothing_succeed():
    controller = a_controller()
    await controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id="none"))
    await controller.DeleteSnapshot(csi.DeleteSnapshotRequest(snapshot_id="none"))
    await controller.ControllerUnpublishVolume(
        csi.ControllerUnpublishVolumeRequest(volume_id="none", node_id="none")
    )


async def test_a_published_volume_tells_the_node_its_serial():
    controller = a_controller()
    await controller.CreateVolume(create_volume())
    answer = await controller.ControllerPublishVolume(publish_volume())

    assert answer.publish_context[names.PUBLISH_BUS] == "scsi"
    assert len(answer.publish_context[names.PUBLISH_SERIAL]) == 32
    assert answer.publish_context[names.PUBLISH_CAPACITY] == str(GIB)


@pytest.mark.parametrize("by_mode", [True, False])
async def test_a_reader_gets_the_volume_read_only(by_mode: bool):
    volumes = MemoryVolumes()
    controller = a_controller(volumes)
    await controller.CreateVolume(create_volume())
    request = publish_volume()
    if by_mode:
        request.volume_capability.CopyFrom(capability(Mode.SINGLE_NODE_READER_ONLY))
    else:
        request.readonly = True
    await controller.ControllerPublishVolume(request)

    assert (await volumes.ensure_attached("pvc-1", "node-1", True)).read_only


async def test_a_volume_is_listed_with_its_nodes():
    controller = a_controller()
    await controller.CreateVolume(create_volume("pvc-1"))
    await controller.CreateVolume(create_volume("pvc-2"))
    await controller.ControllerPublishVolume(publish_volume("pvc-2"))
    answer = await controller.ListVolumes(csi.ListVolumesRequest())

    assert [(one.volume.volume_id, list(one.status.published_node_ids)) for one in answer.entries] == [
        ("pvc-1", []),
        ("pvc-2", ["node-1"]),
    ]
    assert not answer.entries[0].status.volume_condition.abnormal
    one = await controller.ControllerGetVolume(csi.ControllerGetVolumeRequest(volume_id="pvc-2"))
    assert list(one.status.published_node_ids) == ["node-1"]


async def test_a_list_is_read_page_by_page_while_volumes_come_and_go():
    controller = a_controller()
    for name in ("b", "d", "f"):
        await controller.CreateVolume(create_volume(name))
    first = await controller.ListVolumes(csi.ListVolumesRequest(max_entries=2))
    await controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id="d"))
    for name in ("a", "e"):
        await controller.CreateVolume(create_volume(name))
    rest = await controller.ListVolumes(csi.ListVolumesRequest(starting_token=first.next_token))

    assert [one.volume.volume_id for one in first.entries] == ["b", "d"]
    assert [one.volume.volume_id for one in rest.entries] == ["e", "f"]
    assert rest.next_token == ""


async def test_a_page_that_holds_the_rest_is_the_last():
    controller = a_controller()
    await controller.CreateVolume(create_volume())

    assert (await controller.ListVolumes(csi.ListVolumesRequest(max_entries=1))).next_token == ""


@pytest.mark.parametrize("token", ["x", "after", "after:" + "a" * 513])
async def test_a_foreign_token_is_aborted(token: str):
    with pytest.raises(Aborted):
        await a_controller().ListVolumes(csi.ListVolumesRequest(starting_token=token))


async def test_capabilities_that_the_volume_has_are_confirmed():
    controller = a_controller()
    await controller.CreateVolume(create_volume())
    request = csi.ValidateVolumeCapabilitiesRequest(
        volume_id="pvc-1", volume_capabilities=[capability(block=True)], volume_context={"a": "b"}
    )
    answer = await controller.ValidateVolumeCapabilities(request)

    assert answer.confirmed.volume_capabilities == [capability(block=True)]
    assert dict(answer.confirmed.volume_context) == {"a": "b"}


async def test_capabilities_that_no_volume_has_are_not_confirmed():
    controller = a_controller()
    await controller.CreateVolume(create_volume())
    request = csi.ValidateVolumeCapabilitiesRequest(
        volume_id="pvc-1", volume_capabilities=[capability(Mode.MULTI_NODE_MULTI_WRITER)]
    )
    answer = await controller.ValidateVolumeCapabilities(request)

    assert not answer.HasField("confirmed")
    assert answer.message == "it is a disk volume"


async def test_a_volume_that_is_unknown_is_not_validated():
    request = csi.ValidateVolumeCapabilitiesRequest(volume_id="x", volume_capabilities=[capability()])

    with pytest.raises(VolumeNotFound):
        await a_controller().ValidateVolumeCapabilities(request)


@pytest.mark.parametrize(("block", "by_node"), [(False, True), (True, False)])
async def test_the_node_grows_file_systems_and_no_devices(block: bool, by_node: bool):
    controller = a_controller()
    await controller.CreateVolume(create_volume())
    request = csi.ControllerExpandVolumeRequest(
        volume_id="pvc-1",
        capacity_range=Range(required_bytes=2 * GIB),
        volume_capability=capability(block=block),
    )
    answer = await controller.ControllerExpandVolume(request)

    assert (answer.capacity_bytes, answer.node_expansion_required) == (2 * GIB, by_node)


async def test_a_snapshot_is_created_once_and_restored():
    controller = a_controller()
    await controller.CreateVolume(create_volume())
    request = csi.CreateSnapshotRequest(name="snap-1", source_volume_id="pvc-1")
    first = (await controller.CreateSnapshot(request)).snapshot
    again = (await controller.CreateSnapshot(request)).snapshot
    restored = create_volume("pvc-2")
    restored.volume_content_source.snapshot.snapshot_id = first.snapshot_id
    volume = (await controller.CreateVolume(restored)).volume

    assert first == again
    assert (first.source_volume_id, first.size_bytes, first.ready_to_use) == ("pvc-1", GIB, True)
    assert first.creation_time.ToDatetime(NOON.tzinfo) == NOON
    assert volume.content_source.snapshot.snapshot_id == "snap-1"


async def test_snapshots_are_listed_by_volume_and_by_id():
    controller = a_controller()
    for volume in ("pvc-1", "pvc-2"):
        await controller.CreateVolume(create_volume(volume))
        await controller.CreateSnapshot(
            csi.CreateSnapshotRequest(name=f"of-{volume}", source_volume_id=volume)
        )

    async def listed(**filters: str) -> list[str]:
        answer = await controller.ListSnapshots(csi.ListSnapshotsRequest(**filters))  # type: ignore[arg-type]
        return [one.snapshot.snapshot_id for one in answer.entries]

    assert await listed() == ["of-pvc-1", "of-pvc-2"]
    assert await listed(source_volume_id="pvc-2") == ["of-pvc-2"]
    assert await listed(snapshot_id="of-pvc-1") == ["of-pvc-1"]
    assert await listed(snapshot_id="of-pvc-1", source_volume_id="pvc-2") == []
    assert await listed(snapshot_id="none") == []
    with pytest.raises(SnapshotNotFound):
        await controller.GetSnapshot(csi.GetSnapshotRequest(snapshot_id="none"))


async def test_every_capability_has_its_methods():
    answer = await a_controller().ControllerGetCapabilities(csi.ControllerGetCapabilitiesRequest())
    found = {csi.ControllerServiceCapability.RPC.Type.Name(one.rpc.type) for one in answer.capabilities}

    assert found == {
        "CREATE_DELETE_VOLUME",
        "PUBLISH_UNPUBLISH_VOLUME",
        "LIST_VOLUMES",
        "LIST_VOLUMES_PUBLISHED_NODES",
        "GET_VOLUME",
        "VOLUME_CONDITION",
        "CREATE_DELETE_SNAPSHOT",
        "LIST_SNAPSHOTS",
        "GET_SNAPSHOT",
        "CLONE_VOLUME",
        "EXPAND_VOLUME",
        "PUBLISH_READONLY",
        "SINGLE_NODE_MULTI_WRITER",
    }


async def test_an_error_of_the_port_passes_as_it_is():
    volumes = MemoryVolumes()
    volumes.refuse["create"] = error = CsiError("a", "b")

    with pytest.raises(CsiError) as raised:
        await a_controller(volumes).CreateVolume(create_volume())
    assert raised.value is error


async def test_what_csi_cannot_express_does_not_fail_the_list_of_all_volumes():
    volumes = MemoryVolumes()
    for name in ("pvc-1", "pvc-2"):
        await volumes.create(VolumeRequest(name))
    odd = Volume(
        "pvc-1", 10**20, parameters={"a\ud800": "\ud800"}, source=VolumeSource("\udfff"), problem="\ud800"
    )
    volumes._volumes["pvc-1"] = odd
    found = await a_controller(volumes).ListVolumes(csi.ListVolumesRequest())

    assert [one.volume.volume_id for one in found.entries] == ["pvc-1", "pvc-2"]
    assert found.entries[0].volume.capacity_bytes == MAX_BYTES
    assert found.entries[0].volume.volume_context == {"a?": "?"}


async def test_a_shared_volume_is_published_to_several_nodes_and_grows_without_them():
    controller = a_controller()
    request = create_volume()
    request.volume_capabilities[0].CopyFrom(capability(SHARED))
    await controller.CreateVolume(request)
    for node in ("node-1", "node-2"):
        publish = publish_volume(node_id=node)
        publish.volume_capability.CopyFrom(capability(SHARED))
        context = (await controller.ControllerPublishVolume(publish)).publish_context
        assert context["nfsServer"] == "10.53.200.10"

    listed = (await controller.ListVolumes(csi.ListVolumesRequest())).entries
    assert [list(one.status.published_node_ids) for one in listed] == [["node-1", "node-2"]]
    with pytest.raises(InvalidArgument, match="is shared by nodes over the network") as error:
        await controller.ControllerPublishVolume(publish_volume())
    assert error.value.field == "volume_capability.access_mode"
    for node in ("node-1", "node-2"):
        unpublish = csi.ControllerUnpublishVolumeRequest(volume_id="pvc-1", node_id=node)
        await controller.ControllerUnpublishVolume(unpublish)
    capacity = csi.CapacityRange(required_bytes=2 * GIB)
    expand = csi.ControllerExpandVolumeRequest(
        volume_id="pvc-1", capacity_range=capacity, volume_capability=capability(SHARED)
    )
    grown = await controller.ControllerExpandVolume(expand)
    assert (grown.capacity_bytes, grown.node_expansion_required) == (2 * GIB, False)


async def test_a_shared_volume_is_not_made_of_another():
    request = create_volume()
    request.volume_capabilities[0].CopyFrom(capability(SHARED))
    request.volume_content_source.volume.volume_id = "pvc-2"
    with pytest.raises(InvalidArgument) as error:
        await a_controller().CreateVolume(request)
    assert error.value.field == "volume_content_source"
