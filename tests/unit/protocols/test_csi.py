"""The messages of CSI on the wire, and the methods by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, NODE, SERVICES, methods_of

ROOT = Path(__file__).resolve().parents[3]


def test_the_services_have_the_methods_of_the_specification():
    assert {service: len(methods_of(service)) for service in SERVICES} == {
        IDENTITY: 3,
        CONTROLLER: 15,
        NODE: 8,
    }


def test_a_method_is_called_under_the_path_of_the_specification():
    method = methods_of(NODE)["NodeGetInfo"]

    assert method.path == "/csi.v1.Node/NodeGetInfo"
    assert method.request is csi.NodeGetInfoRequest
    assert method.response is csi.NodeGetInfoResponse


def test_field_numbers_are_those_of_the_specification():
    """Bytes written by hand: tag (number << 3 | type), length, value."""
    request = csi.ControllerPublishVolumeRequest.FromString(b"\x0a\x01v\x12\x01n\x20\x01")

    assert (request.volume_id, request.node_id, request.readonly) == ("v", "n", True)


def test_a_field_of_a_later_version_is_no_error():
    assert csi.NodeUnstageVolumeRequest.FromString(b"\x0a\x01v\xc2\x3e\x01x").volume_id == "v"


def test_the_messages_in_the_repository_are_made_from_the_description():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "stubs.py", "--check"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout
