"""The truth table of the diagnosis, row by row, and what each finding means for a machine."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from tests.unit.clusters.builders import (
    NOON,
    a_cluster,
    a_machine,
    a_pool,
    diagnoses_of,
    look,
    minutes,
    missing,
    nodeless,
    sighted,
    some,
    stopped,
    unknown,
    unready,
)

from windrow.clusters.plan.diagnosis import (
    RULES,
    Finding,
    HostCondition,
    NodeReadiness,
    VmCondition,
    find_rule,
)

POOL = a_pool("workers", 3)
OTHERS = some("w", 3, POOL)[1:]
W1 = a_machine("w1", POOL)

# Node, VM, host -> finding: every combination, written out.
TABLE = """
Ready       unknown   any     healthy
Ready       missing   any     stale-node
Ready       stopped   any     stale-node
Ready       changing  any     healthy
Ready       running   any     healthy
NotReady    unknown   any     unknown-vm
NotReady    missing   any     missing-vm
NotReady    stopped   any     stopped-vm
NotReady    changing  any     changing-vm
NotReady    running   failed  failed-host
NotReady    running   ok      unready-node
NeverReady  unknown   any     unknown-vm
NeverReady  missing   any     missing-vm
NeverReady  stopped   any     stopped-vm
NeverReady  changing  any     changing-vm
NeverReady  running   any     starting-up
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]


@pytest.mark.parametrize(("node", "vm", "host", "finding"), ROWS)
def test_each_combination_has_its_finding(node, vm, host, finding):
    hosts = get_args(HostCondition) if host == "any" else [host]

    assert {find_rule(node, vm, one).finding for one in hosts} == {finding}


def test_the_table_is_complete_and_every_rule_is_used():
    combinations = list(product(get_args(NodeReadiness), get_args(VmCondition), get_args(HostCondition)))

    assert len(combinations) == sum(2 if host == "any" else 1 for _, _, host, _ in ROWS)
    assert {find_rule(*combination) for combination in combinations} == set(RULES)
    assert {rule.finding for rule in RULES} == set(get_args(Finding))


# The machine, and its phase, health and sentence by the finding.
CASES = {
    "healthy": (W1, "Ready", "healthy", ""),
    "stale-node": (
        sighted(W1, state="stopped"),
        "Stopped",
        "waiting",
        "Node w1 to become NotReady (VirtualMachine default/w1 is stopped)",
    ),
    "unknown-vm": (
        unknown(unready(W1), "401"),
        "Unknown",
        "waiting",
        "Harvester to report the state of VirtualMachine default/w1 (401)",
    ),
    "missing-vm": (missing(W1), "Missing", "unhealthy", "VirtualMachine default/w1 not found"),
    "stopped-vm": (stopped(W1), "Stopped", "stopped", "VirtualMachine default/w1 to run (now stopped)"),
    "changing-vm": (
        sighted(unready(W1), state="migrating"),
        "Migrating",
        "waiting",
        "VirtualMachine default/w1 to run (now migrating)",
    ),
    "failed-host": (
        sighted(unready(W1, NOON - minutes(1)), host_ready=False),
        "NotReady",
        "waiting",
        "Harvester to move VirtualMachine default/w1 off host host-1 (host NotReady)",
    ),
    "unready-node": (
        unready(W1, NOON - minutes(1)),
        "NotReady",
        "waiting",
        "Node w1 to become Ready again (kubelet stopped posting)",
    ),
    "starting-up": (
        nodeless(W1),
        "Provisioning",
        "waiting",
        "VirtualMachine default/w1 (10.0.0.1) to join the cluster",
    ),
}


def test_there_is_a_case_for_every_finding():
    assert set(CASES) == set(get_args(Finding))


@pytest.mark.parametrize("finding", CASES)
def test_a_finding_gives_phase_health_and_sentence(finding):
    machine, phase, health, waiting_for = CASES[finding]
    found = diagnoses_of(look(a_cluster(POOL), [machine, *OTHERS]), machine)["w1"]

    assert (found.phase, found.health, found.waiting_for) == (phase, health, waiting_for)
