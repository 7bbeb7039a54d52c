"""The reference page names the events and annotations that the code knows, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from windrow.cloudprovider import names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "cloud-provider.md").read_text()
SOURCES = [
    ast.parse(path.read_text()) for path in sorted((ROOT / "src" / "windrow" / "cloudprovider").rglob("*.py"))
]
TYPES = {"Normal", "Warning"}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def reasons() -> set[str]:
    """Each single word in capitals that is said where an event is made, be it by a constant of some module."""
    nodes = [node for tree in SOURCES for node in ast.walk(tree)]
    constants = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    said = [
        constants.get(one.id) if isinstance(one, ast.Name) else getattr(one, "value", None)
        for call in calls
        if getattr(call.func, "id", "") in ("EventNote", "EventNote", "EmitEvent")
        for one in (*call.args, *(keyword.value for keyword in call.keywords))
    ]
    return {one for one in said if isinstance(one, str) and re.fullmatch(r"[A-Z][A-Za-z]+", one)} - TYPES


def test_every_reason_of_an_event_is_listed_once() -> None:
    listed = re.findall(r"`([A-Z]\w+)`", section("Events"))

    assert sorted(listed) == sorted(reasons())


def test_every_annotation_that_users_meet_is_listed() -> None:
    listed = re.findall(r"`([a-z.-]+\.(?:io|local)/[\w-]+)`", section("Annotations on services"))

    assert set(listed) == {
        names.IPAM,
        names.NETWORK,
        names.PROJECT,
        names.NAMESPACE,
        names.PRIMARY_SERVICE,
        names.IP_POOL,
        names.VIP_IGNORE,
        names.AWAITS_ADDRESS,
        names.VIP_ADDRESSES,
        names.VIP_INTERFACE,
        names.VIP_LEASE,
        names.TOPOLOGY_RECORD,
    }
