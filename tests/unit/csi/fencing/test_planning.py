"""What the CSI driver's fencing reads of a Node, what it has to prove, and what it writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from windrow.csi.fencing.planning import (
    describe_doubt,
    is_running,
    plan_reads,
    render_node,
)
from windrow.csi.nodes import NodeVm, read_node

KEY, VALUE = "node.kubernetes.io/out-of-service", "nodeshutdown-by-harvester-csi-driver"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OURS = {"key": KEY, "value": VALUE, "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}
THEIRS = OURS | {"value": "nodeshutdown"}


def a_node(*taints: dict[str, str], ready: bool = False, provider: str = "") -> dict[str, Any]:
    annotations = {"windrow.io/out-of-service-by": "harvester-csi-driver"}  # a kubelet may write that
    return {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", "annotations": annotations},
        "spec": {"providerID": provider, "podCIDR": "10.42.0.0/24", "taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("raw", "needed"),
    [
        (a_node(), "shutdown"),
        (a_node(OTHER), "shutdown"),
        (a_node(OURS), ""),
        (a_node(THEIRS), ""),
        (a_node(ready=True), ""),
        (a_node(OURS, ready=True), "running"),
        (a_node(THEIRS, ready=True), ""),
        (a_node(provider="aws:///i-1"), ""),
    ],
)
def test_what_has_to_be_proven(raw: dict[str, Any], needed: str) -> None:
    assert plan_reads(read_node(raw)) == needed


@pytest.mark.parametrize(
    ("known", "vm", "attached_to", "doubt"),
    [
        (None, None, ["n1"], "it is not known which VirtualMachine it runs in"),
        (NodeVm("prod", "vm-1", "providerID"), None, [], ""),
        (NodeVm("prod", "vm-1", "providerID"), "VM-1", [], ""),
        (
            NodeVm("prod", "vm-1", "providerID"),
            "vm-2",
            ["prod"],
            "VirtualMachine prod is another one by now (uid vm-2, not vm-1)",
        ),
        (
            NodeVm("prod", "", "hardware"),
            "vm-2",
            ["prod"],
            "VirtualMachine prod is another one by now (uid vm-2, not -)",
        ),
        (NodeVm("prod", "vm-1", "hardware"), None, ["prod"], ""),
        (
            NodeVm("prod", "vm-1", "hardware"),
            None,
            ["n1"],
            "it is told by its hardware alone that it runs in VirtualMachine prod",
        ),
        (
            NodeVm("n1", "vm-1", "name"),
            "vm-1",
            [],
            "it is told by its name alone that it runs in VirtualMachine n1",
        ),
    ],
)
def test_what_is_found_of_a_vm_counts_where_it_is_certainly_the_node_s(
    known: NodeVm | None, vm: str | None, attached_to: list[str], doubt: str
) -> None:
    raw = {"metadata": {"name": "prod", "uid": vm}} if vm else None

    assert describe_doubt(known, raw, [f"attach.csi.windrow.io/{one}" for one in attached_to]) == doubt


def test_an_instance_runs_as_the_vm_s_where_that_owns_it() -> None:
    known = NodeVm("prod", "vm-1", "providerID")

    def vmi(phase: str, owner: str) -> dict[str, Any]:
        return {"metadata": {"name": "prod", "ownerReferences": [{"uid": owner}]}, "status": {"phase": phase}}

    assert is_running(known, vmi("Running", "vm-1"))
    assert not is_running(known, vmi("Running", "vm-2"))
    assert not is_running(known, vmi("Scheduling", "vm-1"))
    assert not is_running(known, None)
    assert not is_running(None, vmi("Running", "vm-1"))


def test_the_taint_is_written_with_its_date_and_everything_else_as_it_was() -> None:
    raw = a_node(OTHER)

    changed = render_node(raw, fenced=True, now=NOON)

    assert changed == {
        **raw,
        "spec": {**raw["spec"], "taints": [OTHER, OURS]},
    }
    assert raw == a_node(OTHER)


def test_our_taint_is_taken_out_and_everything_else_is_as_it_was() -> None:
    assert render_node(a_node(OURS, OTHER), fenced=False, now=NOON) == a_node(OTHER)
    assert render_node(a_node(OURS, THEIRS), fenced=False, now=NOON) == a_node(THEIRS)


@pytest.mark.parametrize(
    ("raw", "fenced"),
    [
        (a_node(OURS), True),
        (a_node(THEIRS), True),
        (a_node(OTHER), False),
        (a_node(THEIRS), False),
    ],
)
def test_what_is_so_already_or_another_client_s_is_not_written(raw: dict[str, Any], fenced: bool) -> None:
    assert render_node(raw, fenced=fenced, now=NOON) is None
