"""What the CSI driver reads of a Node of the guest cluster."""

from __future__ import annotations

from windrow.csi.nodes import GuestNode, read_node


def test_a_node_says_what_it_is_in_lower_case() -> None:
    raw = {
        "metadata": {"name": "w"},
        "spec": {"providerID": "harvester://ABC"},
        "status": {
            "nodeInfo": {"systemUUID": "DEF"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }

    assert read_node(raw) == GuestNode("w", "abc", "def", is_ready=True)


def test_a_node_of_another_cloud_names_its_provider_and_no_vm() -> None:
    raw = {"metadata": {"name": "w"}, "spec": {"providerID": "aws:///i-1"}}

    assert read_node(raw) == GuestNode("w", other_provider="aws:///i-1")


def test_a_node_without_status_is_not_ready() -> None:
    assert read_node({"metadata": {"name": "w"}}) == GuestNode("w", is_ready=False)


def test_of_the_taint_out_of_service_its_values_are_read() -> None:
    key = "node.kubernetes.io/out-of-service"
    taints = [
        {"key": "node.kubernetes.io/unreachable", "value": "x", "effect": "NoExecute"},
        {"key": key, "value": "by-one", "effect": "NoExecute"},
        {"key": key, "effect": "NoSchedule"},
    ]

    found = read_node({"metadata": {"name": "w"}, "spec": {"taints": taints}})

    assert found.out_of_service == ("by-one", "")
