"""Messages of CSI as plain values."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.values import METHODS, to_message, to_values

REQUEST: dict[str, Any] = {
    "name": "pvc-1",
    "capacity_range": {"required_bytes": 2**40},
    "parameters": {"hostStorageClass": "fast"},
    "volume_capabilities": [
        {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}},
        {"mount": {"fs_type": "ext4", "mount_flags": ["noatime"]}},
    ],
    "volume_content_source": {"snapshot": {"snapshot_id": "s"}},
}


def test_values_become_the_message_and_come_back():
    message = to_message(csi.CreateVolumeRequest, REQUEST)

    assert isinstance(message, csi.CreateVolumeRequest)
    assert message.volume_capabilities[0].HasField("block")
    assert (
        message.volume_capabilities[0].access_mode.mode == csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
    )
    assert to_values(message) == REQUEST


def test_what_is_not_set_is_absent():
    assert to_values(csi.ControllerExpandVolumeResponse(capacity_bytes=5)) == {"capacity_bytes": 5}


def test_a_wrapper_is_what_it_holds():
    assert to_values(to_message(csi.ProbeResponse, {"ready": False})) == {"ready": False}


def test_a_timestamp_is_seconds_and_nanos():
    snapshot = {"snapshot_id": "s", "creation_time": {"seconds": 5, "nanos": 7}}
    assert to_values(to_message(csi.CreateSnapshotResponse, {"snapshot": snapshot})) == {"snapshot": snapshot}


def test_an_enum_that_the_description_lacks_is_its_number():
    mode = csi.VolumeCapability.AccessMode()
    mode.ParseFromString(b"\x08\x63")
    assert to_values(mode) == {"mode": 99}


def test_a_field_that_the_message_lacks_is_refused():
    with pytest.raises(ValueError, match=r"csi\.v1\.ProbeResponse has no field size"):
        to_message(csi.ProbeResponse, {"size": 5})


def test_every_method_is_known_by_its_name():
    assert METHODS["NodeGetInfo"].path == "/csi.v1.Node/NodeGetInfo"
    assert METHODS["Probe"].path == "/csi.v1.Identity/Probe"
