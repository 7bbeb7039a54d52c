"""A claim on Harvester as the volume that it is: what is recorded on it, and what is read from it."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.core.formats.quantity import NotQuantity
from windrow.csi.harvester.claims import (
    KIND,
    LONGHORN,
    PARAMETERS,
    SOURCE,
    VOLUME_NAME,
    read_claim,
    size_at,
)
from windrow.csi.volumes import SnapshotSource, VolumeSource
from windrow.harvester.names import MADE_BY_CSI

GIB = 2**30
GA, BETA = "volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"


def a_claim(mode: str = "Block", access: str = "ReadWriteMany", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "pvc-1", "annotations": annotations},
        "spec": {
            "accessModes": [access],
            "volumeMode": mode,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


@pytest.mark.parametrize(
    ("annotations", "provisioner"),
    [
        ({GA: "a"}, "a"),
        ({BETA: "b"}, "b"),
        ({GA: "a", BETA: "b"}, "a"),
        ({}, ""),
    ],
)
def test_the_provisioner_is_read_from_either_annotation(
    annotations: dict[str, str], provisioner: str
) -> None:
    assert read_claim(a_claim(**annotations)).provisioner == provisioner


@pytest.mark.parametrize(
    ("mode", "access", "annotations", "can_be_shared", "kind"),
    [
        # The Go driver's, which records nothing: told by the modes.
        ("Filesystem", "ReadWriteMany", {GA: LONGHORN}, True, "shared"),
        ("Filesystem", "ReadWriteMany", {BETA: LONGHORN}, True, "shared"),
        ("Filesystem", "ReadWriteMany", {GA: "lvm.driver.harvesterhci.io"}, False, "disk"),
        ("Filesystem", "ReadWriteOnce", {GA: LONGHORN}, False, "disk"),
        ("Block", "ReadWriteMany", {GA: LONGHORN}, False, "disk"),
        # Ours: as recorded.
        ("Filesystem", "ReadWriteMany", {GA: LONGHORN, VOLUME_NAME: "v"}, True, "disk"),
        ("Filesystem", "ReadWriteMany", {GA: LONGHORN, VOLUME_NAME: "v", KIND: "shared"}, True, "shared"),
        ("Block", "ReadWriteMany", {VOLUME_NAME: "v", KIND: "shared"}, False, "shared"),
        # A record without the volume's name is none of ours.
        ("Block", "ReadWriteMany", {KIND: "shared"}, False, "disk"),
    ],
)
def test_whether_a_volume_is_a_disk_or_shared(
    mode: str, access: str, annotations: dict[str, str], can_be_shared: bool, kind: str
) -> None:
    found = read_claim(a_claim(mode, access, **annotations))

    assert (found.can_be_shared, found.volume.kind) == (can_be_shared, kind)
    assert found.has_record == (VOLUME_NAME in annotations)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ('{"a": "b", "n": 1}', {"a": "b", "n": "1"}),
        ("{}", {}),
        ("", {}),
        ("{", {}),
        ("[1]", {}),
        ('"a"', {}),
    ],
)
def test_recorded_parameters_are_read_and_none_from_what_is_no_record(
    text: str, parameters: dict[str, str]
) -> None:
    assert read_claim(a_claim(**{VOLUME_NAME: "v", PARAMETERS: text})).volume.parameters == parameters
    assert read_claim(a_claim(**{PARAMETERS: text})).volume.parameters is None


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("snapshot/s-1", SnapshotSource("s-1")),
        ("volume/pvc-2", VolumeSource("pvc-2")),
        ("", None),
        ("backup/b", None),
    ],
)
def test_a_source_is_read_as_it_was_recorded(text: str, source: object) -> None:
    assert read_claim(a_claim(**{VOLUME_NAME: "v", SOURCE: text})).volume.source == source


def test_the_size_is_what_was_given_and_else_what_was_asked_for() -> None:
    raw = a_claim()
    asked = read_claim(raw)
    given = read_claim({**raw, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}})

    assert (asked.volume.size, asked.capacity, asked.requested, asked.phase) == (GIB, 0, GIB, "Pending")
    assert (given.volume.size, given.capacity, given.requested, given.phase) == (
        2 * GIB,
        2 * GIB,
        GIB,
        "Bound",
    )


@pytest.mark.parametrize(("text", "size"), [("1500m", 2), ("1", 1), (7, 7), ("1Ki", 1024), (None, 0)])
def test_a_size_is_whole_bytes_rounded_up(text: Any, size: int) -> None:
    assert size_at({"storage": text}, "storage") == size


@pytest.mark.parametrize("text", ["much", [], {}])
def test_a_size_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(NotQuantity):
        size_at({"storage": text}, "storage")


@pytest.mark.parametrize(("phase", "has_problem"), [("Lost", True), ("Bound", False), ("Pending", False)])
def test_a_claim_that_has_lost_its_volume_is_a_problem(phase: str, has_problem: bool) -> None:
    assert bool(read_claim({**a_claim(), "status": {"phase": phase}}).volume.problem) == has_problem


@pytest.mark.parametrize(
    ("owners", "restore"),
    [
        ([{"kind": "VolumeRemoteRestore", "name": "r"}], "r"),
        ([{"kind": "ConfigMap", "name": "m"}, {"kind": "VolumeRemoteRestore", "name": "r"}], "r"),
        ([{"kind": "ConfigMap", "name": "m"}], ""),
        ([], ""),
    ],
)
def test_a_restored_claim_names_the_restore_that_owns_it(owners: list[Any], restore: str) -> None:
    raw = a_claim()
    raw["metadata"]["ownerReferences"] = owners

    assert read_claim(raw).restore == restore


@pytest.mark.parametrize(
    ("name", "labels", "is_ours", "is_listed"),
    [
        ("pvc-1", {MADE_BY_CSI: "driver.harvesterhci.io"}, True, True),
        ("data", {MADE_BY_CSI: "driver.harvesterhci.io"}, True, True),
        ("data", {MADE_BY_CSI: "another"}, False, False),
        ("pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001", {}, False, True),
        ("data", {}, False, False),
    ],
)
def test_a_claim_is_listed_by_our_label_or_by_the_go_driver_s_kind_of_name(
    name: str, labels: dict[str, str], is_ours: bool, is_listed: bool
) -> None:
    raw = a_claim()
    raw["metadata"] |= {"name": name, "labels": labels}
    found = read_claim(raw)

    assert (found.is_ours, found.is_listed) == (is_ours, is_listed)
