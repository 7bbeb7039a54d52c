"""The steps of a rotation of the server token: what is kept of the tokens, and which can be told from a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, SECRETS, a_cluster, a_machine, a_pool, look, record_of
from tests.unit.clusters.test_snapshots import RAW

from windrow.bootstrap.spec import Role
from windrow.clusters.api.operations.recorded import RecordedOperations, read_recorded_operations
from windrow.clusters.api.operations.rotations import RecordedTokenRotation
from windrow.clusters.api.operations.snapshot import SnapshotFile, find_openable, find_password, token_hash
from windrow.clusters.api.secrets import (
    MAX_FORMER,
    SecretData,
    read_secrets,
    render_next_password,
    render_secrets,
    render_server_password,
)
from windrow.clusters.api.updates.turn import LIVE, SERVICE_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restarts, token_rotation
from windrow.clusters.plan.operations.actions import BeginTokenRotation, FinishTokenRotation
from windrow.clusters.plan.updates.wanted import list_wanted
from windrow.clusters.state import ClusterState, GuestState
from windrow.core.text import decode_base64

UID = "cluster-1"
RUN = "token-2-17"
SERVERS = a_pool("servers", 3, frozenset({Role.ETCD, Role.CONTROL_PLANE}))
WORKERS = a_pool("workers", 1)


def read_after(change: dict[str, str | None], held: dict[str, str]) -> Any:
    data = held | {key: decode_base64(text) for key, text in change.items() if text is not None}
    data = {key: text for key, text in data.items() if change.get(key, "") is not None}
    return read_secrets(SecretData("fleet-default", "prod-windrow-secrets", UID, data=data), UID), data


def held() -> dict[str, str]:
    raw = render_secrets(a_cluster(raw=RAW), SECRETS)
    return {key: decode_base64(text) for key, text in raw["data"].items()}


def test_the_next_password_is_kept_beside_the_present_one_and_then_takes_its_place() -> None:
    before, data = read_after({}, held())
    assert before.server_passwords == ("server",)

    both, data = read_after(render_next_password("next"), data)
    assert (both.server_password, both.next_server_password) == ("server", "next")
    assert both.server_passwords == ("server", "next")

    after, data = read_after(render_server_password(both, "next", "token-1-2"), data)
    assert (after.server_password, after.next_server_password, after.rotation) == ("next", "", "token-1-2")
    assert after.server_passwords == ("next", "server")
    again, data = read_after(render_server_password(after, "server", ""), data)
    assert again.server_passwords == ("server", "next")
    assert read_after(render_next_password(None), data)[0] == again


def test_no_text_of_the_secrets_shows_a_password() -> None:
    shown = repr(replace(SECRETS, next_server_password="n3xt", former_server_passwords=("0ld",)))
    assert "n3xt" not in shown
    assert "0ld" not in shown


def test_of_former_passwords_the_last_are_kept() -> None:
    many = replace(SECRETS, former_server_passwords=tuple(f"p{n}" for n in range(MAX_FORMER)))
    change = render_server_password(many, "new", "id")
    former = decode_base64(change["server-passwords-former"] or "").split()
    assert former == ["server", *(f"p{n}" for n in range(MAX_FORMER - 1))]


def test_a_snapshot_opens_with_any_token_that_is_kept() -> None:
    file = SnapshotFile("a", "a", "s1", token_hash=token_hash("then"))
    assert find_openable(file, "now", "then") == "True"
    assert find_openable(file, "now") == "False"
    assert find_openable(file) == "Unknown"
    assert find_password(token_hash("then"), ("", "now", "then")) == "then"
    assert find_password(token_hash(""), ("",)) == ""


@pytest.mark.parametrize(
    ("phase", "is_under_way"),
    [
        ("", False),
        ("Prepare", True),
        ("Rotate", True),
        ("PostRotateRestart", True),
        ("Done", False),
        ("?", False),
    ],
)
def test_a_recorded_rotation_is_read_and_what_someone_else_wrote_is_none(
    phase: str, is_under_way: bool
) -> None:
    status = {
        "rotateToken": {"generation": 2},
        "rotateTokenPhase": phase,
        "rotateTokenLeader": "servers-1",
        "rotateTokenRun": {"id": "token-2-17", "message": "m", "since": "2026-01-02T03:04:05Z"},
    }
    found = read_recorded_operations(status).token
    assert (found.generation, found.leader, found.id, found.message) == (2, "servers-1", "token-2-17", "m")
    assert found.is_under_way is is_under_way
    assert read_recorded_operations({"rotateTokenRun": [], "rotateToken": 3}).token.id == ""


def rotating(*restarted: str, phase: Any = "PostRotateRestart", turn: str = "", **pool: Any) -> ClusterState:
    """A server for each of the requests that one has followed, and a worker; the first has the turn of a request."""
    servers = replace(SERVERS, **pool)
    cluster = a_cluster(servers, WORKERS)
    token = RecordedTokenRotation(generation=2, phase=phase, leader="s0", id=RUN, since=NOON)
    recorded = replace(
        cluster.recorded, initialized=True, provisioned=True, operations=RecordedOperations(token=token)
    )
    machines = [a_machine("w1", WORKERS)]
    for number, request in enumerate(restarted):
        machine = a_machine(f"s{number}", servers)
        status = {**machine.record.status, "restarted": request or None}
        if turn and not number:
            update = MachineUpdate("abc", SERVICE_RESTART, "v1", "", "Apply", restart=turn)
            status["update"] = render_machine_update(update)
        machines.append(record_of(machine, status=status))
    return look(replace(cluster, recorded=recorded), machines, guest=GuestState("reachable"))


def requests_of(state: ClusterState) -> dict[str, tuple[str, str]]:
    return {one.machine: (one.change, one.restart) for one in list_wanted(state) if one.restart}


def test_all_servers_have_the_files_with_the_new_token_before_the_first_one_restarts() -> None:
    files = (LIVE, f"{RUN}-files")
    assert requests_of(rotating("", "certificates-1-7", "")) == dict.fromkeys(("s0", "s1", "s2"), files)
    assert requests_of(rotating(f"{RUN}-files", f"{RUN}-files", "")) == {"s2": files}
    written = rotating(f"{RUN}-files", f"{RUN}-files", f"{RUN}-files")
    assert requests_of(written) == dict.fromkeys(("s0", "s1", "s2"), (SERVICE_RESTART, RUN))


def test_a_server_that_has_restarted_needs_no_files_any_more() -> None:
    assert requests_of(rotating(RUN, f"{RUN}-files")) == {"s1": (SERVICE_RESTART, RUN)}
    assert requests_of(rotating(RUN, "")) == {"s1": (LIVE, f"{RUN}-files")}


def test_restarts_that_an_earlier_release_has_begun_go_on() -> None:
    request = restarts.find_request(rotating("", "", turn=RUN))
    assert request is not None
    assert (request.id, request.restarts, request.writes_files) == (RUN, True, True)


@pytest.mark.parametrize(
    ("restarted", "waiting"),
    [
        (("", ""), "2 servers to have the new token on their disks (s0, s1)"),
        ((f"{RUN}-files", ""), "1 servers to have the new token on their disks (s1)"),
        ((f"{RUN}-files", RUN), "1 servers to restart (s0)"),
    ],
)
def test_what_a_rotation_waits_for_is_said(restarted: tuple[str, ...], waiting: str) -> None:
    partial = PartialPlan()
    token_rotation.go_on(rotating(*restarted), partial)
    assert partial.waits[0].what == waiting
    assert not partial.actions


def test_a_rotation_is_done_once_all_servers_have_restarted() -> None:
    partial = PartialPlan()
    token_rotation.go_on(rotating(RUN, RUN), partial)
    assert [type(one) for one in partial.actions] == [FinishTokenRotation]


def test_no_rotation_begins_while_a_pool_of_servers_is_paused() -> None:
    paused, running = PartialPlan(), PartialPlan()
    token_rotation.begin(rotating("", phase="Done", paused=True), paused)
    token_rotation.begin(rotating("", phase="Done"), running)
    assert not paused.actions
    assert paused.waits[0].what == "pool servers not to be paused, whose servers get another configuration"
    assert [type(one) for one in running.actions] == [BeginTokenRotation]
