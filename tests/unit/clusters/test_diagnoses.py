"""Each trouble of a machine told whole: its phase and health, what it waits for, what comes then, why, and until when.

The sentences are in diagnoses.txt; `WINDROW_RENEW=1 pytest -n0` of this file writes them anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    diagnoses_of,
    leaving,
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
    unordered,
    unready,
)

from windrow.clusters.api.names import HOST_READY, JOIN_SERVER_EXISTS
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.state import INITIALIZING, ClusterState, GuestState, MachineState
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.machines.port import MachineStatus

SERVERS, POOL = a_pool("servers", 3, SERVER), a_pool("workers", 3)
TRIO = some("s", 3, SERVERS)
W1, W2, W3 = some("w", 3, POOL)
SILENT = {"guest": silent("refused")}
BEGUN = RecordedStatus(init_server_uid="uid-s1", init_server_name="s1")
INIT = record_of(nodeless(a_machine("s1", SERVERS)), is_init_server=True, join_server="")


def within(
    machine: MachineState, *others: MachineState, cluster: dict[str, Any] | None = None, **rest: Any
) -> tuple[MachineState, ClusterState]:
    """The machine in a cluster of three servers and three workers, where `others` take the places of those of their names."""
    usual = {one.name: one for one in (*TRIO, W2, W3, *others, machine)}
    pools = rest.pop("pools", (SERVERS, POOL))
    return machine, look(a_cluster(*pools, **(cluster or {})), usual.values(), **rest)


def newborn(
    machine: MachineState, *others: MachineState, recorded: RecordedStatus = BEGUN, **rest: Any
) -> tuple[MachineState, ClusterState]:
    """The machine in a cluster whose API has never answered."""
    cluster = replace(a_newborn(SERVERS, POOL), recorded=recorded)
    rest.setdefault("guest", silent("refused"))
    return machine, look(cluster, [machine, *others], **rest)


def restarted(machine: MachineState, ago: float, count: int = 1) -> MachineState:
    return record_of(machine, last_restart=NOON - minutes(ago), restart_count=count)


def provisioned(machine: MachineState, ago: float) -> MachineState:
    return record_of(machine, created=NOON - minutes(ago), join_server="https://10.0.0.2:9345")


def noted(
    machine: MachineState, type: str, ago: float, status: Any = "False", reason: str = ""
) -> MachineState:
    """With a condition since so many minutes."""
    made = set_condition(machine.record.conditions, Condition(type, status, reason), NOON - minutes(ago))
    return record_of(machine, conditions=tuple(made))


def uninitialized(machine: MachineState) -> MachineState:
    """The cloud provider has not set the providerID of its Node."""
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, provider_id=""))


def on_lost_host(machine: MachineState) -> MachineState:
    return sighted(machine, host_ready=False)


PATIENT = replace(POOL, unhealthy_timeout=minutes(30))
TIMED = replace(POOL, startup_timeout=minutes(20))
LOST_SERVER = record_of(nodeless(W1), join_server="https://10.9.9.9:9345")
NO_ADDRESS = sighted(provisioned(nodeless(W1), 5), addresses=(), agent_connected=False)
HARVESTER = {"cloud_provider": "harvester"}
UNINITIALIZED = uninitialized(W1)
UNLABELLED = replace(W1, node=replace(W1.node, labels=frozenset())) if W1.node else W1

CASES: dict[str, tuple[MachineState, ClusterState]] = {
    "well": within(W1),
    "deleted": within(leaving(W1)),
    "not created": within(unordered(W1)),
    "just accepted": within(replace(nodeless(W1), vm=None)),
    # its VM
    "unknown": within(unknown(unready(W1), "401")),
    "never observed, and it has joined": within(replace(unready(W1), vm=None)),
    "missing": within(missing(W1)),
    "missing, guest silent": within(missing(W1), **SILENT),
    "missing, and the Node is Ready": within(replace(W1, vm=MachineStatus("uid-w1", "w1", "missing"))),
    "one of three members missing, guest silent": within(missing(TRIO[0]), **SILENT),
    "two of three members missing, guest silent": within(missing(TRIO[0]), missing(TRIO[1]), **SILENT),
    "member down, others missing, guest silent": within(
        stopped(TRIO[0]), missing(TRIO[1]), missing(TRIO[2]), **SILENT
    ),
    "stopped": within(stopped(W1)),
    "stopped, and the Node is Ready": within(sighted(W1, state="stopped")),
    "stopped long after a start that was forgiven": within(restarted(stopped(W1), 60, count=0)),
    "just started": within(restarted(stopped(W1), 1)),
    "stopped again": within(restarted(stopped(W1), 2)),
    "stopped again, guest silent": within(restarted(stopped(W1), 2), **SILENT),
    "stopped again over quota": within(
        restarted(sighted(stopped(W1), because="halted: insufficient resources due to resource quota"), 2)
    ),
    "stopped again before the cluster has started": newborn(
        restarted(sighted(nodeless(W1), state="stopped", addresses=()), 2)
    ),
    "failed": within(sighted(stopped(W1), state="failed", because="Crashed; see its log")),
    "starting": within(sighted(unready(W1), state="starting")),
    "starting for the first time": within(sighted(nodeless(W1), state="starting", addresses=())),
    "deleting": within(sighted(unready(W1), state="deleting")),
    "its disks cannot follow": within(
        sighted(unready(W1, NOON - minutes(5)), state="starting", because="1 volume node affinity conflict")
    ),
    "its disks could not follow for long": within(
        sighted(unready(W1, NOON - minutes(15)), state="starting", because="1 volume node affinity conflict")
    ),
    # its host
    "host failed": within(on_lost_host(unready(W1, NOON - minutes(14)))),
    "host failed for long": within(on_lost_host(unready(W1, NOON - minutes(15)))),
    "host failed, patient pool": within(
        on_lost_host(unready(W1, NOON - minutes(15))), pools=(SERVERS, PATIENT)
    ),
    "host failed, guest silent": within(on_lost_host(unready(W1, NOON - minutes(15))), **SILENT),
    "moved off a failed host": within(noted(unready(W1, NOON - minutes(14)), HOST_READY, 14)),
    # its Node
    "Node not Ready": within(unready(W1, NOON - minutes(4))),
    "Node not Ready for long": within(unready(W1, NOON - minutes(5))),
    "Node not Ready only now": within(unready(W1)),
    "Node not Ready since before a restart": within(restarted(unready(W1, NOON - minutes(9)), 2)),
    "Node not Ready, patient pool": within(unready(W1, NOON - minutes(5)), pools=(SERVERS, PATIENT)),
    "Node not Ready, guest silent": within(unready(W1, NOON - minutes(5)), **SILENT),
    "Node deleted": within(noted(replace(W1, node=None), "Ready", 4)),
    "Node deleted, guest silent": within(noted(replace(W1, node=None), "Ready", 4), **SILENT),
    "role label awaited": within(UNLABELLED),
    "cloud provider awaited": within(UNINITIALIZED, cluster=HARVESTER),
    "cloud provider awaited late": within(
        noted(UNINITIALIZED, "Ready", 12, reason=INITIALIZING), cluster=HARVESTER, pools=(SERVERS, TIMED)
    ),
    "cloud provider awaited by all": within(
        noted(UNINITIALIZED, "Ready", 45, reason=INITIALIZING),
        *(uninitialized(one) for one in (*TRIO, W2, W3)),
        cluster=HARVESTER,
        pools=(SERVERS, TIMED),
    ),
    "cloud provider awaited for long": within(
        noted(UNINITIALIZED, "Ready", 45, reason=INITIALIZING), cluster=HARVESTER, pools=(SERVERS, TIMED)
    ),
    # joining
    "joining": within(provisioned(nodeless(W1), 5), pools=(SERVERS, TIMED)),
    "joining late": within(provisioned(nodeless(W1), 10), pools=(SERVERS, TIMED)),
    "joining too late": within(provisioned(nodeless(W1), 20), pools=(SERVERS, TIMED)),
    "joining late after a restart": within(
        restarted(provisioned(nodeless(W1), 20), 12), pools=(SERVERS, TIMED)
    ),
    "joining for ever, no timeout": within(
        provisioned(nodeless(W1), 600), pools=(SERVERS, replace(POOL, startup_timeout=None))
    ),
    "joining, no timeout": within(
        provisioned(nodeless(W1), 1), pools=(SERVERS, replace(POOL, startup_timeout=None))
    ),
    "joining, cluster started later": within(
        provisioned(nodeless(W1), 60),
        cluster={"recorded": RecordedStatus(initialized=True, initialized_since=NOON - minutes(5))},
        pools=(SERVERS, TIMED),
    ),
    "Node never Ready": within(unready(provisioned(replace(nodeless(W1), node=W1.node), 10))),
    "Node never Ready, guest silent": within(
        unready(provisioned(replace(nodeless(W1), node=W1.node), 10)), **SILENT
    ),
    "no address": within(NO_ADDRESS),
    "no address for long": within(provisioned(NO_ADDRESS, 25), pools=(SERVERS, TIMED)),
    "no address late, others have none": within(
        provisioned(NO_ADDRESS, 12),
        sighted(nodeless(W2), addresses=()),
        sighted(nodeless(W3), addresses=()),
        pools=(SERVERS, TIMED),
    ),
    "no address late, others have one": within(provisioned(NO_ADDRESS, 12), pools=(SERVERS, TIMED)),
    "no address late, agent connected": within(
        sighted(provisioned(NO_ADDRESS, 12), agent_connected=True), pools=(SERVERS, TIMED)
    ),
    "no address, Harvester says why": within(sighted(NO_ADDRESS, because="no DHCP offer; see the NIC")),
    "its server is lost": within(LOST_SERVER),
    "its server is lost for long": within(noted(LOST_SERVER, JOIN_SERVER_EXISTS, 3)),
    "its server is lost for long, guest silent": within(noted(LOST_SERVER, JOIN_SERVER_EXISTS, 3), **SILENT),
    "its server is lost, startup timeout first": within(
        record_of(LOST_SERVER, created=NOON - minutes(18), provisioned=NOON - minutes(18)),
        pools=(SERVERS, TIMED),
    ),
    # the first server
    "init server": newborn(INIT),
    "init server late": newborn(record_of(INIT, created=NOON - minutes(7))),
    "init server too late": newborn(record_of(INIT, created=NOON - minutes(50))),
    "init server too late, just probed": newborn(
        record_of(INIT, created=NOON - minutes(50)),
        guest=GuestState("unreachable", "refused", probed_since=NOON - minutes(1)),
    ),
    "init server too late, probed for long": newborn(
        record_of(INIT, created=NOON - minutes(50)),
        guest=GuestState("unreachable", "refused", probed_since=NOON - minutes(2)),
    ),
    "init server, not probed": newborn(
        record_of(INIT, created=NOON - minutes(50)), guest=GuestState("unknown", "")
    ),
    "another server before the first": newborn(nodeless(TRIO[1]), INIT),
    # a person's
    "replacement asked for": within(record_of(W1, replace_now=True)),
    "replacement asked for, VM unknown": within(record_of(unknown(W1), replace_now=True)),
    "replacement asked for, guest silent": within(record_of(W1, replace_now=True), **SILENT),
    "missing, remediation disabled": within(missing(W1), cluster={"remediation_disabled": True}),
    "stopped, pool paused": within(stopped(W1), pools=(SERVERS, replace(POOL, paused=True))),
    "Node not Ready, pool paused": within(
        unready(W1, NOON - minutes(4)), pools=(SERVERS, replace(POOL, paused=True))
    ),
}


def render(machine: MachineState, state: ClusterState) -> str:
    found = diagnoses_of(state, machine)[machine.name]
    until = f" until {found.until - NOON}" if found.until else ""
    lines = [f"{found.phase}, {found.health}{until}"]
    lines += [f"  waits for {found.waiting_for}"] if found.waiting_for else []
    lines += [f"  then {found.next}"] if found.next else []
    lines += [f"  because {found.because}"] if found.because else []
    return "\n".join(lines)


GOLDEN = Path(__file__).with_name("diagnoses.txt")


def read_golden() -> dict[str, str]:
    sections = (part.partition("\n") for part in GOLDEN.read_text().split("\n\n"))
    return {name.removeprefix("# "): told.rstrip("\n") for name, _, told in sections}


def test_each_trouble_has_its_sentences() -> None:
    if os.environ.get("WINDROW_RENEW"):
        told = [f"# {name}\n{render(*case)}" for name, case in CASES.items()]
        GOLDEN.write_text("\n\n".join(told) + "\n")
    assert read_golden().keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_machine_in_trouble_says_what_it_waits_for_and_what_comes_then(name: str) -> None:
    assert render(*CASES[name]) == read_golden()[name]
