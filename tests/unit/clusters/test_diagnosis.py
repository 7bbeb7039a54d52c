"""The truth table of the diagnosis, row by row, and what each finding means for a machine."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    diagnoses_of,
    look,
    minutes,
    missing,
    nodeless,
    record_of,
    sighted,
    some,
    stopped,
    unknown,
    unready,
)

from windrow.clusters.plan.diagnosis import (
    RULES,
    HostCondition,
    NodeReadiness,
    VmCondition,
    find_rule,
)

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
