"""What the CSI driver's fencing reads of a Node, what it has to prove, and what it writes."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.csi.fencing.planning import FencedNode, is_vm_of, plan_reads, read_node, render_node

KEY, BY = "node.kubernetes.io/out-of-service", "windrow.io/out-of-service-by"
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OURS = {"key": KEY, "value": "nodeshutdown", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}


def a_node(*taints: dict[str, str], by: str = "", ready: bool = False, provider: str = "") -> dict[str, Any]:
    annotations = {"kept": "as it is"} | ({BY: by} if by else {})
    return {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", "annotations": annotations},
        "spec": {"providerID": provider, "podCIDR": "10.42.0.0/24", "taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_a_node_as_it_is_read() -> None:
    assert read_node(a_node(OTHER)) == FencedNode("n1", "u1", is_ready=False)
    assert read_node(a_node(ready=True, provider="harvester://vm-1")) == FencedNode("n1", "u1", True, "vm-1")
    assert read_node(a_node(provider="aws:///i-1")).is_of_another_cloud
    assert read_node(a_node(OURS, by="harvester-csi-driver")) == FencedNode(
        "n1", "u1", False, is_out_of_service=True, is_fenced_by_us=True
    )
    assert not read_node(a_node(OURS, by="windrow")).is_fenced_by_us
    assert not read_node(a_node(OTHER, by="harvester-csi-driver")).is_fenced_by_us


@pytest.mark.parametrize(
    ("raw", "needed"),
    [
        (a_node(), "shutdown"),
        (a_node(OTHER), "shutdown"),
        (a_node(OURS, by="harvester-csi-driver"), ""),
        (a_node(OURS), ""),
        (a_node(ready=True), ""),
        (a_node(OURS, by="harvester-csi-driver", ready=True), "running"),
        (a_node(OURS, by="windrow", ready=True), ""),
        (a_node(OURS, ready=True), ""),
        (a_node(provider="aws:///i-1"), ""),
    ],
)
def test_what_has_to_be_proven(raw: dict[str, Any], needed: str) -> None:
    assert plan_reads(read_node(raw)) == needed


def test_a_vm_with_another_uid_than_the_provider_id_has_is_another_s() -> None:
    known, unknown = read_node(a_node(provider="harvester://vm-1")), read_node(a_node())

    assert is_vm_of(known, {"metadata": {"uid": "vm-1"}})
    assert not is_vm_of(known, {"metadata": {"uid": "vm-2"}})
    assert is_vm_of(known, None)
    assert is_vm_of(unknown, {"metadata": {"uid": "vm-2"}})


def test_the_taint_is_written_with_its_date_and_everything_else_as_it_was() -> None:
    raw = a_node(OTHER)

    changed = render_node(raw, fenced=True, now="2026-01-01T12:00:00Z")

    assert changed == {
        **raw,
        "metadata": {**raw["metadata"], "annotations": {"kept": "as it is", BY: "harvester-csi-driver"}},
        "spec": {**raw["spec"], "taints": [OTHER, OURS]},
    }
    assert raw == a_node(OTHER)


def test_our_taint_is_taken_out_and_everything_else_is_as_it_was() -> None:
    changed = render_node(a_node(OURS, OTHER, by="harvester-csi-driver"), fenced=False, now="")

    assert changed == a_node(OTHER)


@pytest.mark.parametrize(
    ("raw", "fenced"),
    [
        (a_node(OURS), True),
        (a_node(OURS, by="harvester-csi-driver"), True),
        (a_node(OTHER), False),
        (a_node(OURS), False),
        (a_node(OURS, by="windrow"), False),
    ],
)
def test_what_is_so_already_or_another_client_s_is_not_written(raw: dict[str, Any], fenced: bool) -> None:
    assert render_node(raw, fenced=fenced, now="2026-01-01T12:00:00Z") is None
