"""The status of a Cluster and its Machines for each trouble: what it says that it does not say of a cluster that is well.

The texts are in statuses.txt; `WINDROW_RENEW=1 pytest -n0` of this file writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    leaving,
    look,
    minutes,
    missing,
    nodeless,
    record_of,
    silent,
    some,
    stopped,
    unknown,
    unordered,
    unready,
)
from tests.unit.clusters.test_addresses import a_claim

from windrow.clusters.api.status import Breaker, GuestServiceAccount, RecordedStatus
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.orphans import MachineClaim, Orphans, OrphanVm
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import (
    ActionFailure,
    ClusterState,
    ContestedAddress,
    CredentialProblem,
    MachineState,
    ManagerLease,
)
from windrow.clusters.status import derive_cluster, derive_machine, find_wait
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.machines.port import Problem

SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 2)
TRIO, (W1, W2) = some("s", 3, SERVERS), some("w", 2, WORKERS)
REJECTED = CredentialProblem("Harvester rejects it", "renew it", is_rejected=True)
AWAY = CredentialProblem("no answer from https://hv", "see the network", is_rejected=False)
NOT_ALLOWED = replace(REJECTED, is_allowed=False)
ELSEWHERE = replace(REJECTED, is_for_another_harvester=True)
BROKEN, WARNED = Problem("no such image", "name another"), Problem("odd", "think", severity="warning")
FAILED = ActionFailure("Harvester refused it", "look there")
QUOTA = ActionFailure("no room", "make some", waits_for="room in the quota")
TAKEN = ManagerLease("taken", "default/windrow-1", "another-host")
LATE = MachineClaim("default", "disk-1", "uid-gone", "cluster-uid")
STRANGE = OrphanVm("default", "w9", "vm-9", "uid-9", cluster_uid="cluster-uid", unproven="it may be a copy")
CONTESTED = ContestedAddress("VirtualMachine default/w1", "uid-w1", a_claim("10.0.0.9"))

Case = tuple[ClusterState, Mapping[str, ActionFailure]]


def told(
    *machines: MachineState,
    pools: Iterable[Any] = (SERVERS, WORKERS),
    failures: Mapping[str, ActionFailure] | None = None,
    cluster: dict[str, Any] | None = None,
    had: Iterable[Condition] = (),
    recorded: dict[str, Any] | None = None,
    **rest: Any,
) -> Case:
    """Three servers and two workers, where `machines` take the places of those of their names; `had` are conditions of before."""
    usual = {one.name: one for one in (*TRIO, W1, W2)} if not rest.pop("alone", False) else {}
    all_machines = {**usual, **{one.name: one for one in machines}}
    state = look(a_cluster(*pools, **(cluster or {})), all_machines.values(), **rest)
    conditions: Any = ()
    for one in had:
        conditions = set_condition(conditions, one, NOON - minutes(9))
    raw = {**state.recorded.raw, "conditions": list(conditions)}
    status = replace(state.recorded, raw=raw, **(recorded or {}))
    return replace(state, cluster=replace(state.cluster, recorded=status)), failures or {}


def newborn(*machines: MachineState, recorded: RecordedStatus | None = None, **rest: Any) -> Case:
    """Of a cluster whose API has never answered."""
    given = replace(a_newborn(SERVERS, WORKERS), recorded=recorded or RecordedStatus())
    rest.setdefault("guest", silent("refused"))
    return look(given, machines, **rest), {}


GOING: dict[str, Any] = {"deletion_timestamp": NOON - minutes(1)}
BEGUN = RecordedStatus(init_server_uid="uid-s1", init_server_name="s1", preflight_passed=True)
ACCOUNT = GuestServiceAccount("default", "prod", "ns:cc")
FEWER = replace(WORKERS, quantity=1)
SINGLE = a_pool("servers", 1, SERVER)

CASES: dict[str, Case] = {
    "well": told(),
    "no pools": told(pools=(), alone=True),
    "accepted with warnings": told(problems=(WARNED,)),
    # before it runs
    "new": newborn(),
    "preflight passed": newborn(preflight=()),
    "preflight passed with warnings": newborn(preflight=(WARNED,)),
    "preflight failed": newborn(preflight=(BROKEN, WARNED)),
    "invalid": newborn(problems=(BROKEN, WARNED)),
    "first server boots": newborn(
        record_of(nodeless(TRIO[0]), is_init_server=True, join_server=""), recorded=BEGUN
    ),
    "started": newborn(
        TRIO[0],
        nodeless(TRIO[1]),
        recorded=replace(BEGUN, initialized=True),
        guest=look(a_cluster()).guest,
    ),
    # Harvester and its credential
    "credential valid": told(credential_problems=()),
    "credential rejected": told(credential_problems=(REJECTED,)),
    "credential rejected, worker lost": told(missing(W1), credential_problems=(REJECTED,)),
    "credential not allowed": told(credential_problems=(NOT_ALLOWED, AWAY)),
    "on another Harvester": told(credential_problems=(ELSEWHERE,)),
    "Harvester away": told(unknown(W1), credential_problems=(AWAY,)),
    "Harvester and guest away": told(credential_problems=(AWAY,), guest=silent("refused")),
    "watch behind": told(stale_watch="VirtualMachine default/s2 is missing on Harvester"),
    "watch caught up": told(had=(Condition("WatchesCurrent", "False", "WatchBehind"),)),
    "another manager": told(missing(W1), lease=TAKEN),
    "no Lease allowed": told(lease=ManagerLease("unguarded", "default/windrow-1", because="forbidden")),
    "Lease again": told(had=(Condition("LeaseHeld", "False", "AnotherManager"),)),
    # the guest
    "guest silent": told(guest=silent("refused")),
    "guest silent for no known reason": told(guest=silent("")),
    "token void": told(recorded={"service_account": replace(ACCOUNT, earlier_token=("w1", "gone"))}),
    "token valid again": told(recorded={"service_account": replace(ACCOUNT, earlier_token=("gone",))}),
    "versions": told(version_problems=()),
    "versions with warnings": told(version_problems=(WARNED,)),
    "versions not supported": told(version_problems=(BROKEN,)),
    # machines
    "worker lost": told(missing(W1)),
    "worker lost, failure": told(missing(W1), failures={"w1": FAILED}),
    "worker not made, failure": told(unordered(W1), failures={"w1": FAILED}),
    "worker not made, failure of another kind": told(unordered(W1), failures={"w1": QUOTA}),
    "failure of the Cluster": told(missing(W1), failures={"": FAILED}),
    "failure of the Cluster of another kind": told(failures={"": QUOTA}),
    "two workers not Ready, breaker tripped": told(
        unready(W1, NOON - minutes(1)), unready(W2, NOON - minutes(2))
    ),
    "server and worker lost": told(missing(TRIO[1]), unready(W1, NOON - minutes(1))),
    "worker stopped": told(stopped(W1)),
    "too many workers": told(pools=(SERVERS, FEWER)),
    "worker leaves": told(leaving(W1), pools=(SERVERS, FEWER)),
    "pool paused": told(pools=(SERVERS, replace(WORKERS, quantity=3, paused=True))),
    "config missing": told(pools=(SERVERS, replace(WORKERS, quantity=3, options=None))),
    "config gone, pool complete": told(pools=(SERVERS, replace(WORKERS, options=None))),
    "last etcd member lost": told(missing(a_machine("s1", SINGLE)), pools=(SINGLE,), alone=True),
    "last etcd member deleted": told(leaving(a_machine("s1", SINGLE)), pools=(SINGLE,), alone=True),
    "two of three members lost": told(missing(TRIO[0]), missing(TRIO[1])),
    "two of three members lost, guest silent": told(
        missing(TRIO[0]), missing(TRIO[1]), guest=silent("refused")
    ),
    "remediation disabled": told(missing(W1), cluster={"remediation_disabled": True}),
    "one replacement at a time": told(
        missing(W1),
        missing(W2),
        pools=(SERVERS, replace(WORKERS, max_unhealthy=IntOrPercent(None, 1))),
    ),
    "breaker released": told(recorded={"breakers": {"workers": Breaker(None)}}),
    "breaker released before": told(recorded={"breakers": {"workers": Breaker(NOON - minutes(5))}}),
    "breaker, guest silent": told(recorded={"breakers": {"workers": Breaker(None)}}, guest=silent("refused")),
    # what no Machine records
    "VM that may be a copy": told(unrecorded=(STRANGE,)),
    "disk of no machine": told(unrecorded_claims=(LATE,), unrecorded=()),
    "VMs recorded again": told(unrecorded=(), had=(Condition("VMsRecorded", "False", "UnrecordedVMs"),)),
    "VMs unknown": told(had=(Condition("VMsRecorded", "False", "UnrecordedVMs"),), unrecorded=None),
    "address given twice": told(contested=(CONTESTED,)),
    "addresses given twice": told(
        contested=tuple(replace(CONTESTED, machine_uid=f"uid-{place}") for place in range(7))
    ),
    # its end
    "deleted": told(cluster=GOING),
    "deleted, machines gone": told(cluster=GOING, alone=True, orphans=Orphans()),
    "deleted, machines leave": told(*map(leaving, TRIO), leaving(W1), leaving(W2), cluster=GOING),
    "deleted, credential rejected": told(cluster=GOING, credential_problems=(REJECTED,)),
    "deleted, machines gone, credential rejected": told(
        cluster=GOING, alone=True, credential_problems=(REJECTED,)
    ),
}


def render(state: ClusterState, failures: Mapping[str, ActionFailure]) -> str:
    plan = plan_cluster(state)
    found = derive_cluster(state, plan, find_wait(state, plan, failures))
    wait = found["waiting"] or {}
    lines = [f"{found['phase']}, {'ready' if found['ready'] else 'not ready'}"]
    lines += [f"  waits for {wait['for']}"] if wait else []
    lines += [f"  then {wait['next']}"] if wait.get("next") else []
    counts = (
        f"{found[f'ready{kind}']}/{found[f'desired{kind}']} {kind.lower()}" for kind in ("Servers", "Workers")
    )
    lines.append(f"  {', '.join(counts)}; endpoint {found['endpoint']}; Secret {found['clientSecretName']}")
    lines += [f"  pool {pool}" for pool in found["pools"]]
    lines += [
        f"  {one['type']}={one['status']} {one['reason']}: {one.get('message', '')}".rstrip(": ")
        for one in found["conditions"]
    ]
    lines += [f"  warning {one}" for one in found["warnings"] or ()]
    for machine in state.machines:
        status = derive_machine(machine, state, plan, failures)
        if status["phase"] != "Ready":
            said = status["waiting"] or {}
            lines.append(
                f"  Machine {machine.name} {status['phase']}: {said.get('for')}; then {said.get('next')}"
            )
            lines += [
                f"    {one['type']}={one['status']} {one['reason']}: {one.get('message', '')}".rstrip(": ")
                for one in status["conditions"]
                if one["type"] not in ("BootstrapDataScrubbed", "Joined")
            ]
    return "\n".join(lines)


def render_difference(name: str) -> str:
    """The lines that are not those of a cluster that is well."""
    usual = render(*CASES["well"]).splitlines() if name != "well" else []
    lines = [line for line in render(*CASES[name]).splitlines() if line not in usual]
    return "\n".join(lines or ["  nothing else"])


GOLDEN = Path(__file__).with_name("statuses.txt")


def read_golden() -> dict[str, str]:
    sections = (part.partition("\n") for part in GOLDEN.read_text().split("\n\n"))
    return {name.removeprefix("# "): text.rstrip("\n") for name, _, text in sections}


def test_each_status_is_written_down() -> None:
    if os.environ.get("WINDROW_RENEW"):
        texts = [f"# {name}\n{render_difference(name)}" for name in CASES]
        GOLDEN.write_text("\n\n".join(texts) + "\n")
    assert read_golden().keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_cluster_says_how_it_is_and_what_it_waits_for(name: str) -> None:
    assert render_difference(name) == read_golden()[name]
