"""What is read of a Machine, and that it is what was written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, OPTIONS, SERVER, a_cluster, a_pool, minutes

from windrow.clusters.api.machine import Machine, read_machine, render_machine
from windrow.machines.port import HARVESTER

GIVEN: dict[str, Any] = {"clusterName": "prod", "clusterUID": "cluster-uid", "pool": "servers"}
HEAD = {
    "name": "w1",
    "namespace": "fleet-default",
    "uid": "uid-w1",
    "creationTimestamp": "2026-01-01T12:00:00Z",
}
BARE = Machine(
    namespace="fleet-default",
    name="w1",
    uid="uid-w1",
    cluster="prod",
    cluster_uid="cluster-uid",
    pool="servers",
    roles=frozenset(),
    created=NOON,
    has_finalizer=False,
    object_uid="uid-w1",
)


@pytest.mark.parametrize(
    "nothing",
    [
        {},
        {
            "spec": dict.fromkeys(
                ("machineUID", "roles", "options", "credential", "driver", "version", "joinServer")
            )
        },
        {
            "status": dict.fromkeys(
                ("conditions", "driverConfig", "restartCount", "lastRestartTime", "addresses")
            )
        },
    ],
)
def test_what_is_not_set_is_read_as_what_a_machine_has_that_was_not_requested(
    nothing: dict[str, Any],
) -> None:
    raw = {"metadata": HEAD, **nothing, "spec": {**nothing.get("spec", {}), **GIVEN}}

    machine = read_machine(raw)

    assert replace(machine, status={}) == BARE
    assert (machine.was_requested, machine.was_created, machine.has_joined, machine.was_ready) == (False,) * 4
    assert (machine.driver, machine.vm_namespace, machine.vm_uid) == (HARVESTER, "default", "")
    assert machine.last_addresses == ()


def test_a_machine_is_read_as_it_was_written() -> None:
    given = {"labels": {"tier": "db"}, "taints": ("dedicated=db:NoSchedule",)}
    pool = a_pool("servers", 1, SERVER, driver="fake", machine_annotations={"team/x": "y"}, **given)
    cluster = a_cluster(pool, raw={"metadata": {"name": "prod", "uid": "cluster-uid"}})

    raw = render_machine(
        cluster,
        pool,
        "w1",
        version="v1.35.1+rke2r1",
        config_hash="1d67",
        join_server="https://10.0.0.1:9345",
        is_init_server=True,
    )
    read = read_machine({**raw, "metadata": {**raw["metadata"], **HEAD}})

    assert read == replace(
        BARE,
        roles=SERVER,
        has_finalizer=True,
        options=OPTIONS,
        credential="ns:cc",
        driver="fake",
        version="v1.35.1+rke2r1",
        config_hash="1d67",
        join_server="https://10.0.0.1:9345",
        is_init_server=True,
        **given,
    )
    assert raw["spec"]["roles"] == ["etcd", "control-plane"]
    assert raw["metadata"]["annotations"] == {"team/x": "y", "windrow.io/cluster-uid": "cluster-uid"}
    (owner,) = raw["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("cluster-uid", True, True)


def test_the_machine_of_a_vm_that_is_adopted_has_the_uid_that_its_vm_carries() -> None:
    pool = a_pool("servers", 1, SERVER)
    cluster = a_cluster(pool, raw={"metadata": {"name": "prod", "uid": "cluster-uid"}})
    raw = render_machine(
        cluster,
        pool,
        "w1",
        version="",
        config_hash="",
        join_server="",
        is_init_server=False,
        machine_uid="first",
    )

    read = read_machine({**raw, "metadata": {**raw["metadata"], **HEAD}})

    assert (read.uid, read.object_uid, read.was_adopted) == ("first", "uid-w1", True)
    assert not BARE.was_adopted
    assert not replace(BARE, object_uid="").was_adopted


def test_what_is_recorded_of_a_machine_is_read_from_its_status() -> None:
    later = "2026-01-01T12:05:00Z"
    status = {
        "conditions": [
            {"type": "InfrastructureReady", "status": "True", "lastTransitionTime": later},
            {"type": "Joined", "status": "True", "lastTransitionTime": later},
        ],
        "driverConfig": {"MachineName": "w1", "VMNamespace": "shop", "WindrowVMUID": "vm-1"},
        "nodeRef": {"name": "w1", "uid": "node-1"},
        "restartCount": 2,
        "lastRestartTime": later,
        "addresses": ["10.0.0.9"],
    }

    machine = read_machine({"metadata": HEAD, "spec": GIVEN, "status": status})

    assert (machine.provisioned, machine.last_restart) == (NOON + minutes(5),) * 2
    assert (machine.restart_count, machine.node, machine.last_addresses) == (2, "w1", ("10.0.0.9",))
    assert (machine.was_requested, machine.was_created, machine.has_joined, machine.was_ready) == (True,) * 4
    assert (machine.vm_namespace, machine.vm_uid) == ("shop", "vm-1")


@pytest.mark.parametrize(
    ("annotation", "asked"),
    [
        ("cluster.x-k8s.io/delete-machine", (True, False)),
        ("cluster.x-k8s.io/remediate-machine", (False, True)),
        ("other", (False, False)),
    ],
)
def test_annotations_order_a_machine_to_go(annotation: str, asked: tuple[bool, bool]) -> None:
    machine = read_machine({"metadata": {**HEAD, "annotations": {annotation: ""}}, "spec": GIVEN})

    assert (machine.delete_first, machine.replace_now) == asked
