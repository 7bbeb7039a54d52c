"""The next step of a host towards maintenance mode."""

from __future__ import annotations

import pytest

from windrow.emulator.host.maintenance import Drain, Refuse, plan_drain

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": "true"}


def a_node(name="a", labels=CONTROL_PLANE, **annotations):
    keys = {"forced": "harvesterhci.io/drain-forced", "status": "harvesterhci.io/maintain-status"}
    found = {keys[key]: value for key, value in annotations.items()}
    return {"metadata": {"name": name, "labels": labels, "annotations": found}}


NODES = [a_node("a"), a_node("b"), a_node("c")]


def a_vmi(name, host="a", mode="", migratable=True, phase="Running"):
    conditions = (
        []
        if migratable
        else [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]
    )
    labels = {"harvesterhci.io/maintain-mode-strategy": mode} if mode else {}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "status": {"nodeName": host, "phase": phase, "conditions": conditions},
    }


def a_migration(name, phase="Running"):
    return {"metadata": {"namespace": "ns"}, "spec": {"vmiName": name}, "status": {"phase": phase}}


def test_two_machines_migrate_at_a_time_and_those_elsewhere_stay():
    machines = [a_vmi("x"), a_vmi("y"), a_vmi("z"), a_vmi("other", "b"), a_vmi("over", phase="Succeeded")]

    assert plan_drain(NODES[0], NODES, machines, []) == Drain(migrate=(("ns", "x"), ("ns", "y")))
    under_way = [a_migration("x"), a_migration("y", "Succeeded")]
    assert plan_drain(NODES[0], NODES, machines, under_way) == Drain(migrate=(("ns", "y"),))


def test_a_host_without_machines_is_done():
    assert plan_drain(NODES[0], NODES, [a_vmi("x", "b")], []) == Drain(is_done=True)


def test_a_machine_that_cannot_migrate_refuses_maintenance_unless_it_is_forced():
    machines = [a_vmi("x"), a_vmi("stuck", migratable=False)]

    assert plan_drain(NODES[0], NODES, machines, []) == Refuse(
        "Non-migratable VMs found: ns/stuck cannot be migrated due to DisksNotLiveMigratable. "
        "Use 'force drain' to perform a collective shutdown"
    )
    forced = a_node(forced="true")
    assert plan_drain(forced, NODES, machines, []) == Drain(stop=(("ns", "stuck"),), migrate=(("ns", "x"),))


def test_machines_that_ask_for_it_are_shut_down_and_two_kinds_of_them_start_again():
    modes = ("Migrate", "Shutdown", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable")
    machines = [a_vmi(f"{place}", mode=mode) for place, mode in enumerate(modes)]

    assert plan_drain(NODES[0], NODES, machines, []) == Drain(
        stop=(("ns", "1"), ("ns", "2"), ("ns", "3")),
        start_later=(("ns", "2"), ("ns", "3")),
        migrate=(("ns", "0"),),
    )
    assert plan_drain(a_node(forced="true"), NODES, machines[1:2], []) == Drain(migrate=(("ns", "1"),))


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([a_node("a")], "single controlplane cluster"),
        (
            [a_node("a"), a_node("b", status="completed"), a_node("c")],
            "another controlplane is already in maintenance",
        ),
    ],
)
def test_the_control_plane_of_harvester_loses_one_host_at_a_time(nodes, why):
    found = plan_drain(nodes[0], nodes, [], [])

    assert isinstance(found, Refuse)
    assert why in found.because
    assert plan_drain(a_node("w", labels={}), nodes, [], []) == Drain(is_done=True)
