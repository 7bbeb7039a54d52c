from __future__ import annotations

import pytest
from tests.unit.harvester.objects import a_raw_image

from windrow.harvester.references import is_iso, read_image


def test_an_imported_image_with_a_class_is_ready() -> None:
    image = read_image(a_raw_image())
    assert image.is_ready
    assert image.storage_class == "lh-image-1"


@pytest.mark.parametrize(
    "status",
    [
        {"progress": 99},
        {"storageClassName": ""},
        {"conditions": [{"type": "Imported", "status": "Unknown", "reason": "Importing"}]},
        {"conditions": None},
    ],
)
def test_an_image_is_not_ready_while_anything_is_missing(status: dict[str, object]) -> None:
    assert not read_image(a_raw_image(**status)).is_ready


def test_an_image_without_status_is_not_ready() -> None:
    assert not read_image({"metadata": {"name": "i", "namespace": "d"}}).is_ready


def test_a_failed_import_tells_harvesters_words() -> None:
    failed = a_raw_image(
        conditions=[
            {"type": "Imported", "status": "False"},
            {"type": "RetryLimitExceeded", "status": "True", "message": "failed due to error: 404"},
        ]
    )
    assert read_image(failed).import_failed
    assert read_image(failed).failure == "failed due to error: 404"


@pytest.mark.parametrize(
    ("label", "url", "name", "iso"),
    [
        ("iso", "https://x/a.img", "a.img", True),
        ("raw_qcow2", "https://x/a.iso", "a.iso", False),
        ("", "https://x/a.iso", "", True),
        ("", "https://x/a.ISO", "", True),
        ("", "https://x/a.iso?token=.img", "", True),
        ("", "https://x/a.qcow2", "a.iso", False),
        ("", "", "Debian.ISO", True),
        ("", "", "jammy.raw", False),
        ("", "https://x/download", "jammy", None),
    ],
)
def test_an_iso_is_told_by_label_then_url_then_name(
    label: str, url: str, name: str, iso: bool | None
) -> None:
    raw = {
        "metadata": {"name": "i", "labels": {"harvesterhci.io/image-type": label}},
        "spec": {"url": url, "displayName": name},
    }
    assert is_iso(raw) is iso
