"""The reference page names the events and annotations that the code knows, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from windrow.cloudprovider import names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "cloud-provider.md").read_text()
SOURCES = "\n".join(
    path.read_text() for path in sorted((ROOT / "src" / "windrow" / "cloudprovider").rglob("*.py"))
)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_reason_of_an_event_is_listed() -> None:
    told = set(re.findall(r'\b(?:Tell|Told|Announce)\((?:[^"()]*,)?\s*"([A-Z]\w+)"', SOURCES))
    told |= set(re.findall(r'^[A-Z_]+ = "([A-Z][a-z]+[A-Z]\w+Failed)"', SOURCES, re.M))
    listed = re.findall(r"`([A-Z]\w+)`", section("Events"))

    assert len(told) > 8
    assert told - set(listed) == set()


def test_every_annotation_that_is_listed_is_known() -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    listed = re.findall(r"`([a-z.-]+\.(?:io|local)/[\w-]+)`", section("Annotations on services"))

    assert len(listed) > 5
    assert set(listed) <= known
    assert {names.IPAM, names.NETWORK, names.PROJECT, names.PRIMARY_SERVICE, names.IP_POOL} <= set(listed)
