"""The plan of a rotation of encryption keys: what each phase does, and what it waits for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    look,
    minutes,
    nodeless,
    record_of,
    sighted,
    silent,
    some,
    unready,
)

from windrow.clusters.api.operations.recorded import Operations, read_recorded_operations
from windrow.clusters.api.updates.turn import SERVICE_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import key_rotation, rotation
from windrow.clusters.state import ClusterState, GuestState, MachineState
from windrow.core.clock import format_time

SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 1)
S1, S2, S3 = some("s", 3, SERVERS)
W1 = a_machine("w1", WORKERS)
AT_ONCE = timedelta()
INTERRUPTED = GuestState("reachable", interruption="reset")


def a_state(
    *machines: MachineState, wanted: int = 1, phase: str = "", now: timedelta = AT_ONCE, **rest: Any
) -> ClusterState:
    """A cluster whose rotation is at `phase`, which began at noon; `run` are fields of its record."""
    run = {"id": "1-7", "activeKey": "a", "snapshot": "s", "since": format_time(NOON), **rest.pop("run", {})}
    status: dict[str, Any] = {
        "rotateEncryptionKeys": {"generation": 1},
        "rotateEncryptionKeysPhase": phase,
        "rotateEncryptionKeysLeader": "s1",
        "rotateEncryptionKeysRun": run,
    }
    operations = read_recorded_operations((status if phase else {}) | rest.pop("status", {}))
    cluster = a_cluster(
        SERVERS, WORKERS, operations=Operations(rotate_keys=wanted), **rest.pop("cluster", {})
    )
    recorded = replace(cluster.recorded, operations=operations, **rest.pop("recorded", {}))
    return look(replace(cluster, recorded=recorded), machines or (S1, S2, S3, W1), now=NOON + now, **rest)


def steps(state: ClusterState) -> tuple[list[Any], list[str]]:
    plan = rotation.plan(state)
    return list(plan.actions), [wait.what for wait in plan.waits]


def acts(state: ClusterState) -> list[type]:
    return [type(one) for one in steps(state)[0]]


def shows(machine: MachineState, digest: str) -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, encryption_hash=digest))


def addressless(machine: MachineState) -> MachineState:
    assert machine.node is not None
    return replace(sighted(machine, addresses=()), node=replace(machine.node, addresses=()))


def restarted(machine: MachineState, order: str = "1-7") -> MachineState:
    return record_of(machine, status={**machine.record.status, "restarted": order})


# -- begin -------------------------------------------------------------------------------------------------------


def test_the_oldest_server_with_an_api_leads() -> None:
    older = record_of(S2, created=NOON - minutes(90))
    worker = record_of(W1, created=NOON - minutes(120))
    begin = do.BeginKeyRotation("rotateEncryptionKeys.generation is 1", 1, "s2")
    assert steps(a_state(S1, older, S3, worker)) == ([begin], [])
    assert steps(a_state(S1, unready(older), S3)) == ([replace(begin, leader="s1")], [])


def test_what_was_carried_out_is_not_begun_again_and_a_higher_generation_is() -> None:
    assert steps(a_state(phase="Done")) == ([], [])
    assert steps(a_state(phase="Failed")) == ([], [])
    assert acts(a_state(phase="Done", wanted=2)) == [do.BeginKeyRotation]
    assert steps(a_state(wanted=0)) == ([], [])


@pytest.mark.parametrize("phase", ["Prepare", "Rotate", "PostRotateRestart"])
def test_a_higher_generation_waits_for_the_rotation_under_way(phase: str) -> None:
    assert do.BeginKeyRotation not in acts(a_state(phase=phase, wanted=2))


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        ({"guest": silent()}, "a server to be Ready, and the guest API to answer"),
        ({"guest": INTERRUPTED}, "a server to be Ready, and the guest API to answer"),
        ({"cluster": {"paused": True}}, "spec.paused to be unset"),
        ({"recorded": {"provisioned": False}}, "all machines to join to end"),
    ],
)
def test_a_rotation_begins_when_the_cluster_is_whole(rest: dict[str, Any], what: str) -> None:
    actions, waits = steps(a_state(**rest))
    assert actions == []
    assert [wait.removesuffix(" to end") for wait in waits] == [what.removesuffix(" to end")]


def test_a_rotation_begins_after_the_turns_of_machines() -> None:
    update = MachineUpdate("digest", SERVICE_RESTART, "v1.35.4+rke2r1", "", "Apply")
    busy = record_of(W1, status={"update": render_machine_update(update)})
    assert steps(a_state(S1, S2, S3, busy)) == ([], ["the turn of Machine w1 to end"])


@pytest.mark.parametrize("version", ["v1.30.0+rke2r1", "v1.29.15+rke2r1", "odd"])
def test_a_release_that_does_not_rotate_in_one_step_is_refused(version: str) -> None:
    (failed,) = steps(a_state(S1, record_of(S2, version=version), S3))[0]
    assert failed.generation == 1
    assert failed.because.startswith(f"Machine s2 runs {version}, and releases before v1.30.1 do not")
    for newer in ("v1.30.1", "v1.30.1+rke2r1", "v1.36.0+k3s1"):
        assert acts(a_state(S1, record_of(S2, version=newer), S3)) == [do.BeginKeyRotation]
    assert acts(a_state(S1, S2, S3, record_of(W1, version=version))) == [do.BeginKeyRotation]


@pytest.mark.parametrize(
    "rest",
    [
        {"recorded": {"initialized": False}},
        {"status": {"etcdSnapshotRestorePhase": "Shutdown"}},
    ],
)
@pytest.mark.parametrize("phase", ["", "Prepare", "Rotate", "PostRotateRestart"])
def test_nothing_is_rotated_before_the_cluster_starts_and_while_it_is_restored(
    rest: dict[str, Any], phase: str
) -> None:
    assert steps(a_state(phase=phase, **rest)) == ([], [])


@pytest.mark.parametrize(
    ("phase", "holds"),
    [("", False), ("Prepare", True), ("Rotate", True), ("PostRotateRestart", False), ("Done", False)],
)
def test_no_turn_begins_while_keys_are_made(phase: str, holds: bool) -> None:
    assert rotation.holds_turns(a_state(phase=phase)) is holds


# -- the snapshot before -----------------------------------------------------------------------------------------


def test_an_etcd_member_that_is_well_makes_a_snapshot_first() -> None:
    save = do.SaveRotationSnapshot("Secrets cannot be read without their key", "s1", "rotate-keys-1-7")
    assert steps(a_state(phase="Prepare")) == ([save], [])
    for lost in (unready(S1), addressless(S1)):
        assert steps(a_state(lost, S2, S3, phase="Prepare")) == ([replace(save, member="s2")], [])


@pytest.mark.parametrize(
    "state",
    [
        a_state(*map(unready, (S1, S2, S3)), phase="Prepare"),
        a_state(phase="Prepare", guest=silent()),
        a_state(phase="Prepare", guest=INTERRUPTED),
    ],
)
def test_without_a_member_that_answers_there_is_no_snapshot(state: ClusterState) -> None:
    assert steps(state) == ([], ["an etcd member that answers"])


def test_a_snapshot_that_is_being_made_is_waited_for_and_one_that_was_not_is_asked_for_later() -> None:
    under_way = a_state(phase="Prepare", requests=frozenset({key_rotation.SNAPSHOT_REQUEST}))
    assert steps(under_way) == ([], ["an etcd snapshot to be made"])

    due = NOON + timedelta(seconds=10)
    silent_once = {"snapshot": None, "retryAt": format_time(due)}
    plan = rotation.plan(a_state(phase="Prepare", run=silent_once))
    assert (plan.actions, plan.waits[0].until) == ([], due)
    assert acts(a_state(phase="Prepare", run=silent_once, now=timedelta(seconds=10))) == [
        do.SaveRotationSnapshot
    ]
    assert acts(a_state(phase="Prepare", run={"retryAt": format_time(due)})) == [do.SaveRotationSnapshot]


def test_without_a_snapshot_no_key_is_made() -> None:
    refused = {"snapshot": None, "message": "no etcd snapshot could be made: no space; nothing was touched"}
    (failed,) = steps(a_state(phase="Prepare", run=refused))[0]
    assert failed == do.FailKeyRotation(refused["message"], 1)


# -- the keys ----------------------------------------------------------------------------------------------------


def test_the_leader_is_asked_and_asked_again_at_the_recorded_time() -> None:
    ask = do.RotateKeys("the etcd snapshot before it is s", "s1")
    run = {"retryAt": format_time(NOON + timedelta(seconds=15)), "message": "stage reencrypt"}
    early = a_state(phase="Rotate", run=run)
    assert steps(a_state(phase="Rotate")) == ([ask], [])
    assert steps(early) == (
        [],
        ["Machine s1 to encrypt every Secret with the new key (stage reencrypt)"],
    )
    assert rotation.plan(early).waits[0].until == NOON + timedelta(seconds=15)
    assert steps(a_state(phase="Rotate", run=run, now=timedelta(seconds=15))) == ([ask], [])


def test_while_the_leader_encrypts_it_is_not_asked_again() -> None:
    under_way = a_state(phase="Rotate", requests=frozenset({key_rotation.ROTATION_REQUEST}))
    assert steps(under_way) == ([], ["Machine s1 to encrypt every Secret with the new key"])


@pytest.mark.parametrize(
    "rest",
    [{"guest": silent()}, {"guest": INTERRUPTED}, {"leader": unready(S1)}, {"leader": addressless(S1)}],
)
def test_a_leader_that_does_not_answer_is_waited_for_half_an_hour(rest: dict[str, Any]) -> None:
    leader = rest.pop("leader", S1)
    early = a_state(leader, S2, S3, phase="Rotate", now=minutes(29), **rest)
    late = a_state(leader, S2, S3, phase="Rotate", now=minutes(30), **rest)
    assert steps(early) == ([], ["Machine s1 to be Ready"])
    assert rotation.plan(early).waits[0].until == NOON + minutes(30)
    (failed,) = steps(late)[0]
    assert (
        "Machine s1, which rotates the keys, did not finish within 30m; the snapshot before is s"
        in failed.because
    )


def test_a_leader_that_answers_after_half_an_hour_is_asked_once_more_before_it_fails() -> None:
    """The manager may have been away, and the keys made long ago."""
    assert acts(a_state(phase="Rotate", now=minutes(45))) == [do.RotateKeys]
    before = {"retryAt": format_time(NOON + minutes(29))}
    assert acts(a_state(phase="Rotate", now=minutes(45), run=before)) == [do.RotateKeys]
    after = {"retryAt": format_time(NOON + minutes(46)), "message": "stage reencrypt"}
    (failed,) = steps(a_state(phase="Rotate", now=minutes(46), run=after))[0]
    assert "did not finish within 30m (stage reencrypt); " in failed.because
    at_once = {"retryAt": format_time(NOON + minutes(30))}
    assert acts(a_state(phase="Rotate", now=minutes(30), run=at_once)) == [do.FailKeyRotation]


def test_a_leader_that_is_gone_ends_the_rotation() -> None:
    (failed,) = steps(a_state(S2, S3, phase="Rotate"))[0]
    assert failed.generation == 1
    assert failed.because.startswith("Machine s1, which rotates the keys, is gone; the snapshot before is s;")


# -- the restarts ------------------------------------------------------------------------------------------------


def test_every_server_restarts_once_and_no_worker() -> None:
    some_left = a_state(restarted(S1), S2, restarted(S3, "0-1"), W1, phase="PostRotateRestart")
    assert steps(some_left) == ([], ["2 servers to restart (s2, s3)"])
    more = some("s", 5, SERVERS)
    assert steps(a_state(*more, phase="PostRotateRestart"))[1] == [
        "5 servers to restart (s1, s2, s3 and 2 more)"
    ]
    assert steps(a_state(*more[:3], phase="PostRotateRestart"))[1] == ["3 servers to restart (s1, s2, s3)"]


def test_a_server_that_was_made_since_or_has_not_joined_or_goes_has_nothing_to_restart() -> None:
    later = record_of(S2, created=NOON + minutes(1))
    others = [restarted(S1), nodeless(S3), leaving(a_machine("s4", SERVERS))]
    waits = "the Nodes of all servers to report the same encryption keys"
    assert steps(a_state(*others, later, phase="PostRotateRestart")) == ([], [waits])
    assert steps(a_state(*others, record_of(S2, created=NOON), phase="PostRotateRestart"))[1] == [
        "1 servers to restart (s2)"
    ]


def test_the_rotation_ends_when_all_servers_report_the_same_keys() -> None:
    servers = [restarted(shows(one, "reencrypt_finished-1")) for one in (S1, S2, S3)]
    done = do.FinishKeyRotation("every server reports the same keys")
    assert steps(a_state(*servers, shows(W1, "other"), phase="PostRotateRestart")) == ([done], [])
    for odd in ("", "start-0"):
        mixed = a_state(*servers[:2], shows(servers[2], odd), phase="PostRotateRestart")
        assert steps(mixed) == ([], ["the Nodes of all servers to report the same encryption keys"])
    mute = [shows(one, "") for one in servers]
    assert acts(a_state(*mute, phase="PostRotateRestart")) == []
