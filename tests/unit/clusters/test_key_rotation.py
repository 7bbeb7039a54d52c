"""The steps of a rotation of encryption keys: when each is taken, and what is waited for."""

from __future__ import annotations

import pytest

from windrow.clusters.api.operations.recorded import read_recorded_operations
from windrow.clusters.execute.key_rotation import why_not
from windrow.clusters.sources.servers.supervisor import EncryptionStatus


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
