"""When a machine may be changed in place, may go on with that, and may go while others are changed."""

from __future__ import annotations

from dataclasses import replace
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
    missing,
    nodeless,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    unready,
)

from windrow.bootstrap.spec import Role
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.strategy import UpgradeStrategy
from windrow.clusters.api.updates.turn import (
    LIVE,
    SERVICE_RESTART,
    MachineUpdate,
    UpdateFailure,
    render_machine_update,
)
from windrow.clusters.plan.updates.gates import why_not_begin, why_not_go_on, why_not_removed
from windrow.clusters.state import ClusterState, GuestState, MachineState
from windrow.harvester.hosts.maintenance import HostMaintenance

NEW = "v1.35.4+rke2r1"
SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 3)
API = a_pool("api", 1, frozenset({Role.CONTROL_PLANE}))
S1, S2, S3 = some("s", 3, SERVERS)
W1, W2, W3 = some("w", 3, WORKERS)
INTERRUPTED = GuestState("reachable", interruption="connection reset")


def in_turn(machine: MachineState, step: str = "Drain", **rest: Any) -> MachineState:
    rest.setdefault("change", SERVICE_RESTART)
    update = MachineUpdate("digest", version=NEW, config_hash="", step=step, since=NOON, **rest)
    return record_of(machine, status={**machine.record.status, "update": render_machine_update(update)})


def failed(machine: MachineState, step: str = "Apply") -> MachineState:
    return in_turn(machine, step, failure=UpdateFailure(step, "no"))


def voteless(machine: MachineState) -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, etcd_voter=False))


def stopping(machine: MachineState) -> MachineState:
    """Its Node is shown as Ready for a while yet."""
    return sighted(machine, state="stopping")


def unjoined(machine: MachineState) -> MachineState:
    """It was never Ready."""
    return record_of(unready(machine), conditions=())


def state_of(*machines: MachineState, guest: GuestState | None = None, **rest: Any) -> ClusterState:
    cluster = a_cluster(SERVERS, API, WORKERS, version_wish=NEW, **rest)
    return look(cluster, machines, **({"guest": guest} if guest else {}))


def beginning(machine: MachineState, *others: MachineState, begun: tuple[str, ...] = (), **rest: Any) -> str:
    return why_not_begin(machine, state_of(machine, *others, **rest), begun)


def going_on(machine: MachineState, *others: MachineState, **rest: Any) -> str:
    return why_not_go_on(machine, state_of(machine, *others, **rest))


def removing(machine: MachineState, *others: MachineState) -> str:
    return why_not_removed(machine, state_of(machine, *others))


# -- begin -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "because"),
    [
        (S1, ""),
        (leaving(S1), "it is being deleted"),
        (unready(S1), "Node s1 is not Ready"),
        (stopping(S1), "VirtualMachine default/s1 is not running"),
        (voteless(S1), "its etcd member on Node s1 does not vote"),
        (W1, ""),
        (voteless(W1), ""),
    ],
)
def test_a_machine_that_is_not_well_is_not_changed(machine: MachineState, because: str) -> None:
    assert beginning(machine, S2, S3) == because


def test_no_turn_begins_while_the_guest_is_not_seen_as_it_is_now() -> None:
    assert (
        beginning(S1, S2, S3, guest=INTERRUPTED)
        == "no machine is updated while the guest API is not watched (connection reset)"
    )
    assert beginning(S1, S2, S3, guest=silent("timeout")) == "no machine is updated while timeout"


def test_the_machine_that_was_the_canary_has_the_turn_of_another_edit_and_others_wait() -> None:
    state = state_of(S1, W1, W2, W3, canary=1)
    state = replace(
        state,
        cluster=replace(state.cluster, recorded=replace(state.cluster.recorded, canaries=("w2",))),
    )
    assert why_not_begin(W2, state, ()) == ""
    assert "canary asks for 1, and 1 is changed" in why_not_begin(W1, state, ())


def test_a_canary_has_as_many_turns_as_it_says_and_one_at_a_time() -> None:
    changed = record_of(W2, version=NEW)
    assert "canary asks for 1, and 1 is changed" in beginning(W1, S1, changed, W3, canary=1)
    assert beginning(W1, S1, changed, W3, canary=2) == ""
    assert (
        beginning(W1, S1, W2, W3, canary=2, begun=("w2",)) == "one machine at a time while there is a canary"
    )
    many = UpgradeStrategy(workers=IntOrPercent(None, 2))
    assert beginning(W1, S1, W2, W3, begun=("w2",), upgrade_strategy=many) == ""


# -- servers, one at a time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "because"),
    [
        (S2, ""),
        (in_turn(S2), "one server at a time; s2 has its turn"),
        (in_turn(S2, "Apply"), "one server at a time; s2 has its turn"),
        (failed(S2), ""),
        (leaving(S2), "one server at a time; s2 is being deleted"),
        (nodeless(S2), "server s2 has not joined yet"),
        (unready(S2), "etcd member s2 is not healthy"),
        (voteless(S2), "etcd member s2 is not healthy"),
        (stopping(S2), "etcd member s2 is not healthy"),
        (a_machine("a2", API), ""),
        (unready(a_machine("a2", API)), "server a2 is not Ready"),
        (stopping(a_machine("a2", API)), "server a2 is not Ready"),
        (leaving(W2), ""),
        (unready(W2), ""),
        (in_turn(W2, "Apply"), ""),
    ],
)
def test_a_server_begins_while_every_other_server_is_well(other: MachineState, because: str) -> None:
    assert beginning(S1, other) == because


def test_a_server_begins_with_none_that_has_just_been_admitted() -> None:
    assert beginning(S1, S2, S3, begun=("s3",)) == "one server at a time; s3 has its turn"
    assert beginning(S1, S2, S3, begun=("w1",)) == ""


# -- workers, as many as the strategy says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (W2, False),
        (in_turn(W2, "Apply"), True),
        (failed(W2), False),
        (unready(failed(W2)), True),
        (unready(W2), True),
        (stopping(W2), True),
        (unjoined(W2), False),
        (unready(S2), False),
        (in_turn(S2, "Apply"), False),
    ],
)
def test_a_worker_that_is_away_takes_the_place_of_one_in_its_turn(other: MachineState, counts: bool) -> None:
    because = "workerConcurrency 1 allows 1 at a time; w2 is in its turn or not Ready"
    assert beginning(W1, S1, other) == (because if counts else "")


def test_a_worker_that_is_being_deleted_is_none_of_those_that_a_percentage_counts() -> None:
    half = UpgradeStrategy(workers=IntOrPercent(50))
    four = [W2, W3, a_machine("w4", WORKERS)]
    assert beginning(W1, S1, in_turn(W2, "Apply"), *four[1:], upgrade_strategy=half) == ""
    fewer = [in_turn(W2, "Apply"), W3, leaving(a_machine("w4", WORKERS))]
    assert "50% allows 1 at a time" in beginning(W1, S1, *fewer, upgrade_strategy=half)


def test_three_of_the_workers_that_are_away_are_named() -> None:
    away = [unready(a_machine(f"w{number}", WORKERS)) for number in range(9, 4, -1)]
    assert beginning(W1, S1, *away).endswith("; w5, w6, w7 is in its turn or not Ready")


# -- go on -------------------------------------------------------------------------------------------------------


def test_a_turn_goes_on_by_what_the_others_are_now() -> None:
    server, worker = in_turn(S2), in_turn(W2)
    assert going_on(server, S1, S3) == ""
    assert going_on(server, S1, unready(S3)) == "etcd member s3 is not healthy"
    assert going_on(worker, S1, W1, W3) == ""
    assert going_on(worker, S1, unready(W1), W3).endswith("; w1 is in its turn or not Ready")


def test_no_turn_goes_on_while_the_guest_is_not_watched() -> None:
    because = "the guest API to be watched again (connection reset)"
    assert going_on(in_turn(S2), S1, S3, guest=INTERRUPTED) == because


def test_a_turn_waits_for_the_host_of_its_machine_and_of_no_other() -> None:
    maintenance = HostMaintenance("host-1", "it is cordoned", has_other_host=True)
    because = f"its host to be back ({maintenance})"
    assert going_on(replace(in_turn(S2), maintenance=maintenance), S1, S3) == because
    assert going_on(in_turn(S2), S1, replace(S3, maintenance=maintenance)) == ""


def test_what_the_machine_itself_is_does_not_hold_its_turn() -> None:
    assert going_on(unready(in_turn(S2)), S1, S3) == ""
    assert going_on(unready(in_turn(W2)), S1, W1, W3) == ""
    assert going_on(in_turn(W2, "Apply"), S1, W1, W3) == ""


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        (in_turn(S1), True),
        (in_turn(S3), False),
        (in_turn(S3, "Apply"), True),
        (in_turn(S1, "Apply"), True),
        (failed(S1), False),
    ],
)
def test_of_two_turns_that_drain_the_first_by_name_goes_on_and_one_that_restarts_comes_before(
    other: MachineState, holds: bool
) -> None:
    third = S3 if other.name == "s1" else S1
    because = f"one server at a time; {other.name} has its turn"
    assert going_on(in_turn(S2), other, third) == (because if holds else "")


# -- removal -----------------------------------------------------------------------------------------------------


def asked(machine: MachineState) -> MachineState:
    """A user asks for its replacement."""
    return record_of(machine, replace_now=True)


@pytest.mark.parametrize(
    ("machine", "because"),
    [
        (W1, ""),
        (in_turn(W1), "it is being updated to v1.35.4+rke2r1"),
        (failed(W1), "its update failed; correct what it says, or annotate it to be replaced (Apply)"),
        (asked(in_turn(W1)), ""),
        (asked(failed(W1)), ""),
        (leaving(in_turn(W1)), ""),
        (missing(in_turn(W1)), ""),
        (in_turn(S1), "it is being updated to v1.35.4+rke2r1"),
        (asked(in_turn(S1)), ""),
        (leaving(in_turn(S1)), ""),
    ],
)
def test_a_machine_in_its_turn_goes_only_where_a_user_asks_for_that_or_it_is_gone(
    machine: MachineState, because: str
) -> None:
    assert removing(machine, S2, S3) == because


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        (in_turn(S2), True),
        (in_turn(S2, "Apply"), True),
        (failed(S2), False),
        (in_turn(W2), False),
        (in_turn(a_machine("a2", API), "Apply"), False),
        (leaving(in_turn(S2)), False),
    ],
)
def test_no_etcd_member_goes_while_another_one_is_changed(other: MachineState, holds: bool) -> None:
    because = "one etcd member at a time; s2 is being updated"
    assert removing(S1, other, S3) == (because if holds else "")
    assert removing(W1, other, S3) == ""


@pytest.mark.parametrize("spoil", [unready, stopping, voteless, stopped])
def test_a_member_that_is_lost_is_repaired_before_a_turn_that_waits_for_it(spoil: Any) -> None:
    lost, because = spoil(S1), "one etcd member at a time; s2 is being updated"
    assert removing(lost, in_turn(S2), S3) == ""
    assert removing(lost, in_turn(S2, "Apply"), S3) == because
    assert removing(lost, in_turn(S2, change=LIVE), S3) == because
