"""The object tree as values, which the command line and the dashboard render."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from windrow.app.describe.tree import Remark, cluster_tree
from windrow.app.describe.views import ClusterView, MachineView, PoolView, Wait

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
WAIT = Wait("the guest API server (connection refused)", NOON, "the other servers join")
MACHINE = MachineView("orchard-servers-a", "fleet-default", "orchard", "servers", phase="NotReady")
POOL = PoolView("servers", 3, ("etcd", "control plane"), (MACHINE,))
CLUSTER = ClusterView("orchard", "fleet-default", phase="Degraded", wait=WAIT, pools=(POOL,))


def test_the_tree_is_cluster_pools_and_machines_with_state_and_health():
    tree = cluster_tree(CLUSTER)

    (pool,) = tree.children
    (machine,) = pool.children
    assert (tree.kind, tree.state, tree.health) == ("Cluster", "degraded", "busy")
    assert tree.remarks == (Remark("wait", wait=WAIT),)
    assert (pool.kind, pool.state, pool.health, pool.facts) == (
        "MachinePool",
        "0 of 3 ready",
        "busy",
        ("etcd, control plane",),
    )
    assert (machine.kind, machine.namespace, machine.state, machine.health) == (
        "Machine",
        "fleet-default",
        "not ready",
        "bad",
    )


def test_equal_objects_make_equal_trees_whatever_the_time_is():
    assert cluster_tree(CLUSTER) == cluster_tree(replace(CLUSTER))


def test_a_refusal_is_its_problems_with_their_hints_and_no_wait():
    refused = replace(
        CLUSTER, phase="Refused", problem="no etcd; add one\nno credential; name one", wait=Wait("no etcd")
    )

    assert cluster_tree(refused).remarks == (
        Remark("refusal", "no etcd", "add one"),
        Remark("refusal", "no credential", "name one"),
    )


def test_a_reason_that_the_cluster_gives_is_not_repeated_below_it():
    machine = replace(MACHINE, wait=Wait("Node orchard-servers-a to become Ready again (connection refused)"))
    cluster = replace(CLUSTER, pools=(replace(POOL, machines=(machine,)),))

    (remark,) = cluster_tree(cluster).children[0].children[0].remarks
    assert remark.wait == Wait("Node orchard-servers-a to become Ready again")


def test_a_paused_pool_and_a_failed_update_are_marked_beside_the_state():
    machine = replace(MACHINE, ready=True, has_failed_update=True, address="10.0.0.1")
    pool = replace(POOL, wanted=1, paused=True, machines=(machine,))

    node = cluster_tree(replace(CLUSTER, pools=(pool,))).children[0]

    assert node.marks == (("paused", "busy"),)
    assert (node.children[0].marks, node.children[0].facts) == ((("update failed", "bad"),), ("10.0.0.1",))
    assert node.children[0].remarks == ()


def test_each_machine_has_its_version_while_machines_differ_in_it():
    done = replace(MACHINE, name="done", version="v1.35.7+rke2r1")
    old = replace(MACHINE, name="old", version="v1.34.7+rke2r1", is_outdated=True)
    new = replace(MACHINE, name="new")

    def versions(*machines: MachineView) -> list[tuple[str, ...]]:
        pools = (replace(POOL, machines=machines[:1]), replace(POOL, name="b", machines=machines[1:]))
        tree = cluster_tree(replace(CLUSTER, pools=pools))
        return [node.facts for pool in tree.children for node in pool.children]

    assert versions(done, old, new) == [("v1.35.7+rke2r1",), ("v1.34.7+rke2r1",), ()]
    assert versions(done, replace(done, name="too"), new) == [(), (), ()]
