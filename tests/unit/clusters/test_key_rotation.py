"""The steps of a rotation of encryption keys: when each is taken, and what is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON
from tests.unit.clusters.test_operation_actions import Site, on_a_site

from windrow.clusters.api.operations.recorded import read_recorded_operations
from windrow.clusters.context import StalePlan
from windrow.clusters.execute.rotations.keys import why_not
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.sources.servers.supervisor import EncryptionStatus, ServerUnreachable
from windrow.core.clock import format_time, sleep
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.requests import Reply, Request


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (EncryptionStatus(), "Secrets are not encrypted"),
        (EncryptionStatus("start", False, True), "Secrets are not encrypted"),
        (
            EncryptionStatus("start", True, False, "hash does not match"),
            "different keys (hash does not match)",
        ),
        (EncryptionStatus("start", True, False), "different keys (no hash)"),
        (EncryptionStatus("prepare", True, True), "someone else began is at stage prepare"),
        (EncryptionStatus("start", True, True), ""),
        (EncryptionStatus("reencrypt_finished", True, True), ""),
    ],
)
def test_keys_are_rotated_where_all_servers_use_the_same_and_no_rotation_is_under_way(
    status: EncryptionStatus, words: str
) -> None:
    found = why_not(status)
    assert words in found
    assert bool(found) is bool(words)
    assert not found or "nothing was touched" in found


def test_a_recorded_rotation_is_read_and_what_someone_else_wrote_is_none() -> None:
    status = {
        "rotateEncryptionKeys": {"generation": 2},
        "rotateEncryptionKeysPhase": "Rotate",
        "rotateEncryptionKeysLeader": "servers-1",
        "rotateEncryptionKeysRun": {
            "id": "2-17",
            "activeKey": "AES-CBC a",
            "snapshot": "s",
            "message": "m",
            "since": "2026-01-02T03:04:05Z",
        },
    }
    found = read_recorded_operations(status).rotation
    assert (found.generation, found.phase, found.leader, found.id) == (2, "Rotate", "servers-1", "2-17")
    assert (found.active_key, found.snapshot, found.message, found.retry_at) == ("AES-CBC a", "s", "m", None)
    assert found.since is not None
    bad = read_recorded_operations({"rotateEncryptionKeysPhase": "Shutdown", "rotateEncryptionKeysRun": []})
    assert (bad.rotation.phase, bad.rotation.id, bad.rotation.generation) == ("", "", 0)


# -- carried out -------------------------------------------------------------------------------------------------

BEGIN = do.BeginKeyRotation("rotateEncryptionKeys.generation is 2", 2, "s1")
ROTATE = do.RotateKeys("the etcd snapshot before it is s", "s1")


def answers(site: Site, *said: Any) -> None:
    """Of the supervisor: (stage, active key) of its keys, an error, or None for a request that it takes."""

    def reply(stage: str, key: str) -> Any:
        body = {"enable": True, "hashmatch": True, "stage": stage, "activekey": key}
        return lambda request: Reply(200, dumps(body))

    site.supervisors.answers = [
        one if isinstance(one, Exception) else _taken if one is None else reply(*one) for one in said
    ]


def _taken(request: Request) -> Reply:
    return Reply(200, b"")


def refused(request: Request) -> Reply:
    return Reply(500, b"not now")


def asked(site: Site) -> list[str]:
    return [request for _, request, _ in site.supervisors.asked]


def run_of(status: dict[str, Any]) -> dict[str, Any]:
    return dict(status["rotateEncryptionKeysRun"])


GET, PUT = "GET /v1-rke2/encrypt/status", "PUT /v1-rke2/encrypt/config"


def test_a_rotation_is_recorded_with_the_key_before_it_and_what_was_said_of_a_former_one_is_forgotten() -> (
    None
):
    async def story(site: Site) -> None:
        await site.execute(do.FailKeyRotation("no", 1))
        answers(site, ("start", "AES-CBC a"))
        status = await site.execute(BEGIN)
        assert status["rotateEncryptionKeys"] == {"generation": 2}
        assert (status["rotateEncryptionKeysPhase"], status["rotateEncryptionKeysLeader"]) == (
            "Prepare",
            "s1",
        )
        assert run_of(status) == {
            "id": f"2-{int(NOON.timestamp())}",
            "activeKey": "AES-CBC a",
            "since": format_time(NOON),
        }
        assert asked(site) == [GET]

    on_a_site(story)


def test_what_keeps_keys_from_being_rotated_is_recorded_as_the_end_of_the_generation() -> None:
    async def story(site: Site) -> None:
        answers(site, ("prepare", "a"))
        status = await site.execute(BEGIN)
        assert (status["rotateEncryptionKeys"], status["rotateEncryptionKeysPhase"]) == (
            {"generation": 2},
            "Failed",
        )
        assert run_of(status)["message"].endswith(
            "is at stage prepare; nothing was touched; finish it; then raise spec.rkeConfig.rotateEncryptionKeys.generation"
        )
        site.supervisors.answers = [refused]
        status = await site.execute(do.BeginKeyRotation("asked", 3, "s1"))
        assert (status["rotateEncryptionKeys"], status["rotateEncryptionKeysPhase"]) == (
            {"generation": 3},
            "Failed",
        )
        assert run_of(status)["message"].endswith("; nothing was touched")

    on_a_site(story)


def test_a_server_that_is_not_reached_is_asked_again_and_nothing_is_recorded() -> None:
    async def story(site: Site) -> None:
        answers(site, Unreachable("refused"))
        with pytest.raises(ServerUnreachable):
            await site.execute(BEGIN)
        assert (await site.state()).recorded.operations.rotation.phase == ""

    on_a_site(story)


def test_a_rotation_says_nothing_of_the_one_before() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        site.supervisors.answers = [refused]
        assert "retryAt" in run_of(await site.execute(ROTATE))
        answers(site, ("start", "c"))
        assert run_of(await site.execute(do.BeginKeyRotation("asked", 3, "s1"))) == {
            "id": f"3-{int(NOON.timestamp())}",
            "activeKey": "c",
            "since": format_time(NOON),
        }
        site.supervisors.answers = [refused]
        await site.execute(ROTATE)
        assert run_of(await site.execute(do.FailKeyRotation("no", 3))) == {
            "id": f"3-{int(NOON.timestamp())}",
            "activeKey": "c",
            "since": format_time(NOON),
            "message": "no",
        }

    on_a_site(story)


async def rotating(site: Site) -> None:
    """A rotation that has begun with key a, and is about to make another."""
    answers(site, ("start", "a"))
    await site.execute(BEGIN)
    site.supervisors.asked.clear()


SAVE = do.SaveRotationSnapshot("Secrets cannot be read without their key", "s1", "rotate-keys-2-7")


def test_the_snapshot_before_is_recorded_and_then_keys_are_made() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        status = await site.execute(SAVE)
        assert run_of(status)["snapshot"] == "rotate-keys-2-7-s1-1767268800"
        assert status["rotateEncryptionKeysPhase"] == "Prepare"
        before = len(site.supervisors.asked)
        status = await site.execute(SAVE)
        assert (status["rotateEncryptionKeysPhase"], len(site.supervisors.asked)) == ("Rotate", before)
        assert run_of(status)["snapshot"] == "rotate-keys-2-7-s1-1767268800"

        await site.execute(do.FailKeyRotation("no", 2))
        answers(site, ("start", "b"))
        begun = await site.execute(do.BeginKeyRotation("asked", 3, "s1"))
        assert "snapshot" not in run_of(begun)  # it has its own

    on_a_site(story)


def test_a_member_without_an_answer_is_asked_later_and_a_refusal_is_told() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        answers(site, Unreachable("refused"))
        run = run_of(await site.execute(SAVE))
        assert (run["retryAt"], "message" in run) == ("2026-01-01T12:00:10Z", False)
        site.supervisors.answers = [refused]
        message = run_of(await site.execute(SAVE))["message"]
        assert message.startswith("no etcd snapshot could be made: ")
        assert message.endswith("; nothing was touched")

    on_a_site(story)


def test_keys_are_asked_for_once_and_the_servers_restart_when_they_are_made() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        site.supervisors.answers = [refused]
        assert "message" in run_of(await site.execute(ROTATE))
        await sleep(site.clock, timedelta(minutes=1))
        site.supervisors.asked.clear()
        answers(site, ("start", "a"), None, *[("reencrypt_finished", "b")] * 2)
        assert (await site.execute(ROTATE))["rotateEncryptionKeysPhase"] == "Prepare"
        assert asked(site) == [GET, PUT, GET]
        status = await site.execute(ROTATE)
        assert asked(site) == [GET, PUT, GET, GET]
        assert status["rotateEncryptionKeysPhase"] == "PostRotateRestart"
        assert run_of(status) == {
            "id": f"2-{int(NOON.timestamp())}",
            "activeKey": "a",
            "since": format_time(NOON + timedelta(minutes=1)),
        }

    on_a_site(story)


@pytest.mark.parametrize(
    ("said", "requests", "phase"),
    [
        ([("reencrypt_finished", "b")], [GET], "PostRotateRestart"),
        ([("reencrypt_active", "b")], [GET], "Prepare"),
        ([("reencrypt_active", "a")], [GET], "Prepare"),
        ([("reencrypt_finished", "a"), None, ("reencrypt_active", "b")], [GET, PUT, GET], "Prepare"),
        ([("start", "a"), None, ("reencrypt_finished", "a")], [GET, PUT, GET], "Prepare"),
    ],
)
def test_what_was_asked_for_already_is_awaited(said: list[Any], requests: list[str], phase: str) -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        answers(site, *said)
        status = await site.execute(ROTATE)
        assert (asked(site), status["rotateEncryptionKeysPhase"]) == (requests, phase)
        if phase == "Prepare":
            assert run_of(status)["message"] == f"stage {said[-1][0]}"
            assert run_of(status)["retryAt"] == "2026-01-01T12:00:15Z"

    on_a_site(story)


def test_a_refusal_is_recorded_with_the_time_of_the_next_try() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        site.supervisors.answers = [refused]
        status = await site.execute(ROTATE)
        assert status["rotateEncryptionKeysPhase"] == "Prepare"
        assert "not now" in run_of(status)["message"]
        assert run_of(status)["retryAt"] == "2026-01-01T12:00:15Z"
        site.supervisors.answers = [lambda request: Reply(500, b"x" * 2000)]
        assert len(run_of(await site.execute(ROTATE))["message"]) <= 400

    on_a_site(story)


def test_the_end_is_recorded_for_the_generation_that_was_begun() -> None:
    async def story(site: Site) -> None:
        await rotating(site)
        status = await site.execute(do.FinishKeyRotation("every server reports the same keys"))
        assert (status["rotateEncryptionKeys"], status["rotateEncryptionKeysPhase"]) == (
            {"generation": 2},
            "Done",
        )
        status = await site.execute(do.FailKeyRotation("m" * 2000, 2))
        assert status["rotateEncryptionKeysPhase"] == "Failed"
        assert run_of(status)["message"] == "m" * 800

    on_a_site(story)


def test_of_two_managers_one_begins_a_rotation() -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        answers(site, ("start", "a"), ("start", "a"))
        await site.actions.execute(BEGIN, before)
        with pytest.raises(StalePlan):
            await site.actions.execute(BEGIN, before)

    on_a_site(story)
