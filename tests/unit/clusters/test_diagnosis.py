"""The truth table of the diagnosis, row by row, and what each finding means for a machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    diagnoses_of,
    look,
    minutes,
    missing,
    nodeless,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    unknown,
    unready,
)
from tests.unit.clusters.test_addresses import a_claim

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.plan.diagnosis import (
    RULES,
    HostCondition,
    NodeReadiness,
    VmCondition,
    find_rule,
)
from windrow.clusters.state import MachineState

POOL = a_pool("workers", 3)
OTHERS = [*some("w", 3, POOL)[1:], a_machine("s2", a_pool("servers", 1, SERVER))]
W1 = a_machine("w1", POOL)

# Node, VM, host -> finding: every combination, written out.
TABLE = """
Ready       unknown   any     healthy
Ready       missing   any     stale_node
Ready       stopped   any     stale_node
Ready       changing  any     healthy
Ready       running   any     healthy
NotReady    unknown   any     unknown
NotReady    missing   any     missing
NotReady    stopped   any     stopped
NotReady    changing  any     changing
NotReady    running   failed  failed_host
NotReady    running   ok      unready_node
NeverReady  unknown   any     unknown
NeverReady  missing   any     missing
NeverReady  stopped   any     stopped
NeverReady  changing  any     changing
NeverReady  running   any     starting_up
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]


@pytest.mark.parametrize(("node", "vm", "host", "finding"), ROWS)
def test_each_combination_has_its_finding(node, vm, host, finding):
    hosts = get_args(HostCondition) if host == "any" else [host]

    assert {find_rule(node, vm, one).diagnose.__name__ for one in hosts} == {f"_{finding}"}


def test_the_table_is_complete_and_every_rule_is_used():
    combinations = list(product(get_args(NodeReadiness), get_args(VmCondition), get_args(HostCondition)))

    assert len(combinations) == sum(2 if host == "any" else 1 for _, _, host, _ in ROWS)
    assert {find_rule(*combination) for combination in combinations} == set(RULES)


# The machine, and its phase, health and sentence by the finding.
CASES = {
    "healthy": (W1, "Ready", "healthy", ""),
    "stale_node": (
        sighted(W1, state="stopped"),
        "Stopped",
        "waiting",
        "Node w1 to become NotReady (VirtualMachine default/w1 is stopped)",
    ),
    "unknown": (
        unknown(unready(W1), "401"),
        "Unknown",
        "waiting",
        "Harvester to report the state of VirtualMachine default/w1 (401)",
    ),
    "missing": (missing(W1), "Missing", "unhealthy", "VirtualMachine default/w1 not found"),
    "stopped": (stopped(W1), "Stopped", "stopped", "VirtualMachine default/w1 to run (now stopped)"),
    "changing": (
        sighted(unready(W1), state="migrating"),
        "Migrating",
        "waiting",
        "VirtualMachine default/w1 to run (now migrating)",
    ),
    "failed_host": (
        sighted(unready(W1, NOON - minutes(1)), host_ready=False),
        "NotReady",
        "waiting",
        "Harvester to move VirtualMachine default/w1 off host host-1 (host NotReady)",
    ),
    "unready_node": (
        unready(W1, NOON - minutes(1)),
        "NotReady",
        "waiting",
        "Node w1 to become Ready again (kubelet stopped posting)",
    ),
    "starting_up": (
        record_of(nodeless(W1), join_server="https://10.0.0.2:9345"),
        "Provisioning",
        "waiting",
        "VirtualMachine default/w1 (10.0.0.1) to join the cluster",
    ),
}


def test_there_is_a_case_for_every_finding():
    assert {f"_{finding}" for finding in CASES} == {rule.diagnose.__name__ for rule in RULES}


@pytest.mark.parametrize("finding", CASES)
def test_a_finding_gives_phase_health_and_sentence(finding):
    machine, phase, health, waiting_for = CASES[finding]
    found = diagnoses_of(look(a_cluster(POOL), [machine, *OTHERS]), machine)["w1"]

    assert (found.phase, found.health, found.waiting_for) == (phase, health, waiting_for)


def test_a_worker_whose_vm_is_gone_waits_for_the_guest_and_not_for_etcd_that_lost_its_members():
    servers = a_pool("servers", 3, SERVER)
    members = [missing(one) for one in some("s", 2, servers)]
    worker = missing(a_machine("w1", POOL))
    state = look(a_cluster(servers, POOL), [*members, worker], guest=silent())

    found = diagnoses_of(state, members[0], worker)

    assert found["s1"].waiting_for.startswith("etcd to have a quorum again")
    assert "etcd" not in found["w1"].waiting_for


def test_a_machine_that_never_joined_and_whose_state_cannot_be_read_is_told_as_unknown():
    seen = unknown(nodeless(W1), "401")
    unseen = replace(nodeless(a_machine("w2", POOL)), vm=None)

    found = diagnoses_of(look(a_cluster(POOL), [seen, unseen]), seen, unseen)

    assert found["w1"].waiting_for == "Harvester to report the state of VirtualMachine default/w1 (401)"
    assert found["w2"].phase != "Unknown"


@pytest.mark.parametrize("connected", [True, False])
def test_a_machine_without_an_address_says_that_its_agent_is_not_connected_only_where_it_is_not(connected):
    booting = sighted(nodeless(W1), addresses=(), agent_connected=connected)
    servers = a_pool("servers", 1, SERVER)
    state = look(a_cluster(servers, POOL), [a_machine("s1", servers), booting])

    found = diagnoses_of(state, booting)["w1"].waiting_for

    assert found.startswith("VirtualMachine default/w1 to report an IP address")
    assert ("guest agent not connected" in found) is not connected


def test_only_the_init_server_starts_the_cluster_and_the_others_join_it():
    server = record_of(nodeless(a_machine("s1", a_pool("servers", 1, SERVER))), join_server="")
    joins = record_of(nodeless(W1), join_server="https://10.0.0.2:9345")
    newborn = a_newborn(POOL, a_pool("servers", 1, SERVER))
    begun = replace(newborn, recorded=RecordedStatus(init_server_uid="uid-s1", init_server_name="s1"))
    started = replace(newborn, recorded=replace(begun.recorded, initialized=True))

    def told(machine: MachineState, cluster: Cluster) -> tuple[str, str]:
        first = record_of(server, is_init_server=True)
        machine = first if machine is server else machine
        found = diagnoses_of(look(cluster, [first, joins]), machine)[machine.name]
        return found.waiting_for, found.next

    assert told(server, begun) == (
        "VirtualMachine default/s1 (10.0.0.1) to start the cluster",
        "the other machines join",
    )
    assert told(joins, begun)[1] == "it joins once Machine s1 has started the cluster"
    assert told(replace(joins, vm=None), begun)[1] == "it joins the cluster"
    claimed = record_of(
        replace(joins, vm=None, addresses=(a_claim("10.0.0.9"),)), driver_config={"WindrowVMUID": "vm-w1"}
    )
    assert told(claimed, begun)[1] == "it takes workloads"
    assert told(server, started)[1] == "it takes workloads"


def test_the_last_member_of_etcd_that_stops_again_is_started_again():
    pool = a_pool("servers", 1, SERVER)
    again = record_of(stopped(a_machine("s1", pool)), restart_count=1, last_restart=NOON - minutes(60))

    found = diagnoses_of(look(a_cluster(pool), [again]), again)["s1"]

    assert (found.health, found.because) == (
        "stopped",
        "VirtualMachine default/s1 is stopped again after a restart",
    )


def test_a_machine_that_is_annotated_is_replaced_whatever_it_waits_for():
    machine = record_of(unready(W1, NOON - minutes(1)), replace_now=True)

    found = diagnoses_of(look(a_cluster(POOL), [machine, *OTHERS]), machine)["w1"]

    assert (found.health, found.because, found.next, found.until) == (
        "unhealthy",
        "annotation cluster.x-k8s.io/remediate-machine asks for a replacement",
        "the machine is replaced",
        None,
    )
