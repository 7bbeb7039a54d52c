"""Handles and serials."""

from __future__ import annotations

import pytest

from windrow.csi.errors import OutOfRange
from windrow.csi.handles import backup_handle, is_volume_id, parse_backup_handle, serial_of, volume_id_for
from windrow.csi.sizes import MIN_BYTES, SizeRange, choose_size

PVC = "pvc-6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"


@pytest.mark.parametrize("name", [PVC, "a", "a" * 63])
def test_a_name_that_a_disk_can_have_is_kept(name: str):
    assert volume_id_for(name) == name


@pytest.mark.parametrize("name", ["A", "a" * 64, "-a", "a.b", "../a", "ä", "a_b"])
def test_any_other_name_gets_one_that_a_disk_can_have(name: str):
    handle = volume_id_for(name)

    assert is_volume_id(handle)
    assert handle.startswith("csi-")
    assert volume_id_for(name) == handle


def test_the_serial_of_a_claim_s_volume_is_its_uid():
    assert serial_of(PVC) == "6f7c7c8e-0b3f-4b5e-9a43-1f0c8a6f0001"


@pytest.mark.parametrize("volume_id", ["data", "x" * 63, "PVC-" + PVC])
def test_a_serial_has_no_more_characters_than_qemu_keeps(volume_id: str):
    assert len(serial_of(volume_id)) == 32
    assert serial_of(volume_id) != serial_of(f"{volume_id}0")


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "backup:",
        "backup:a",
        "backup:/a",
        "backup:a/",
        "backup:a/../b",
        "backup:A/b",
        "a/b",
        "backup:a/b/c",
    ],
)
def test_what_is_no_handle_of_a_backup(handle: str):
    assert parse_backup_handle(handle) is None


def test_the_handle_of_a_backup():
    assert parse_backup_handle(backup_handle("default", "snap-1")) == ("default", "snap-1")


@pytest.mark.parametrize(
    ("wanted", "least", "size"),
    [
        (SizeRange(), MIN_BYTES, MIN_BYTES),
        (SizeRange(1), MIN_BYTES, MIN_BYTES),
        (SizeRange(MIN_BYTES + 1), MIN_BYTES, MIN_BYTES + 2 * 2**20),
        (SizeRange(MIN_BYTES, MIN_BYTES), MIN_BYTES, MIN_BYTES),
        (SizeRange(1), 2**30, 2**30),
    ],
)
def test_the_size_that_is_chosen(wanted: SizeRange, least: int, size: int):
    assert choose_size(wanted, least) == size


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (SizeRange(0, MIN_BYTES - 1), MIN_BYTES),
        (SizeRange(MIN_BYTES + 1, MIN_BYTES + 2), MIN_BYTES),
        (SizeRange(0, 2**20), 2**30),
        (SizeRange(2**62), 2**63),
    ],
)
def test_a_size_that_cannot_be_made(wanted: SizeRange, least: int):
    with pytest.raises(OutOfRange):
        choose_size(wanted, least)
