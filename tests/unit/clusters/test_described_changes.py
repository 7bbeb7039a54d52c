"""What people read of a change: values that differ, and what a turn takes away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windrow.clusters.change.compare import FieldChange
from windrow.clusters.change.describe import format_values


def shown(old: Any, new: Any, limit: int = 100) -> tuple[str, str]:
    return format_values(FieldChange("f", old, new, "replace", "because"), limit)


def disks(*found: dict[str, Any]) -> str:
    return json.dumps({"disks": list(found)}, separators=(",", ":"))


LEAP, NOBLE = {"imageName": "leap", "size": 40}, {"imageName": "noble", "size": 40}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (disks(LEAP), disks(NOBLE), ("disks[0].imageName leap", "noble")),
        (disks(NOBLE, LEAP), disks(NOBLE, LEAP | {"size": 50}), ("disks[1].size 40", "50")),
        (disks(LEAP), disks({"size": 40}), ("disks[0].imageName leap", "none")),
        (
            disks(LEAP),
            disks(NOBLE | {"size": 50}),
            ("disks[0].imageName leap, disks[0].size 40", "noble, 50"),
        ),
        ('{"a":1}', '{"b":{"c":1}}', ("a 1, b none", 'none, {"c": 1}')),
    ],
)
def test_of_two_objects_in_json_the_values_that_differ_are_shown(
    old: str, new: str, told: tuple[str, str]
) -> None:
    assert shown(old, new) == told


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{not json", "{neither"),
        ("[1]", "[2]"),
        ("4", "8"),
        ('{"a":1}', "a"),
        ('{"a":1,"b":1,"c":1,"d":1}', '{"a":2,"b":2,"c":2,"d":2}'),
    ],
)
def test_other_values_are_shown_as_they_are(old: str, new: str) -> None:
    assert shown(old, new) == (old, new)


def test_three_values_that_differ_are_shown_and_no_line_is_longer_than_its_limit() -> None:
    old, new = json.dumps(dict.fromkeys("abc", 1)), json.dumps(dict.fromkeys("abc", 2))

    assert shown(old, new) == ("a 1, b 1, c 1", "2, 2, 2")
    assert shown(old, new, 6) == ("a 1, …", "2, 2,…")
