"""The steps of a rotation of the server token: what is kept of the tokens, and which can be told from a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import SECRETS, a_cluster
from tests.unit.clusters.test_snapshots import RAW

from windrow.clusters.api.operations.recorded import read_recorded_operations
from windrow.clusters.api.operations.snapshot import SnapshotFile, find_openable, find_password, token_hash
from windrow.clusters.api.secrets import (
    MAX_FORMER,
    SecretData,
    read_secrets,
    render_next_password,
    render_secrets,
    render_server_password,
)
from windrow.core.text import decode_base64

UID = "cluster-1"


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
