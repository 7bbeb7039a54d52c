"""What the label of a Node says of its kernel, to the cluster manager and to the cloud provider."""

from __future__ import annotations

import pytest

from windrow.cloudprovider.nodes import readings
from windrow.clusters import state

SERVER = {"node-role.kubernetes.io/control-plane": "true"}


@pytest.mark.parametrize(
    ("told", "known"),
    [("available", "available"), ("missing", "missing"), ("", ""), ("MISSING", ""), ("x" * 63, "")],
)
def test_only_the_two_results_of_the_probe_mean_anything(told, known):
    raw = {"metadata": {"name": "one", "labels": SERVER | {"windrow.io/macvlan": told}}}

    assert state.read_node(raw).macvlan == known
    assert readings.read_node(raw).cannot_ask_dhcp is (known == "missing")


def test_a_node_without_kube_vip_need_not_ask_for_leases():
    raw = {"metadata": {"name": "one", "labels": {"windrow.io/macvlan": "missing"}}}

    assert readings.read_node(raw).cannot_ask_dhcp is False
    assert state.read_node({"metadata": {"name": "one"}}).macvlan == ""
