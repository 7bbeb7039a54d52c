"""`windrow rotate`: what it asks for, and what it waits for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow

from windrow.app.clock import SystemClock
from windrow.client.informer import make_watcher, watching
from windrow.clusters.api.kinds import CLUSTER

ORCHARD = CLUSTER.ref("orchard", "fleet-default")
FIELDS = {
    "certificates": "rotateCertificates",
    "encryption-keys": "rotateEncryptionKeys",
    "token": "rotateToken",
}


def asked(manager: Manager, field: str) -> Any:
    async def get(api: Any) -> Any:
        return (await api.get(ORCHARD))["spec"]["rkeConfig"].get(field)

    return manager.do(get)


@pytest.mark.parametrize(("kind", "field"), FIELDS.items())
def test_each_rotation_raises_its_generation(
    windrow: Windrow, manager: Manager, kind: str, field: str
) -> None:
    windrow("apply", "-f", "cluster.yaml")

    first = windrow("rotate", kind, "orchard")
    assert first.code == 0
    assert first.out.startswith("fleet-default/orchard: rotation 1 of ")
    assert windrow("rotate", kind, "orchard").code == 0
    assert asked(manager, field) == {"generation": 2}


def test_services_are_named_for_certificates_alone(windrow: Windrow, manager: Manager) -> None:
    windrow("apply", "-f", "cluster.yaml")

    assert windrow("rotate", "certificates", "orchard", "--service", "etcd", "--service", "kubelet").code == 0
    assert asked(manager, "rotateCertificates") == {"generation": 1, "services": ["etcd", "kubelet"]}
    assert windrow("rotate", "certificates", "orchard", "--service", "mail").code == 2
    assert windrow("rotate", "certificates", "orchard").code == 0
    assert asked(manager, "rotateCertificates") == {"generation": 2}


def test_of_a_paused_cluster_it_is_said_that_nothing_begins(windrow: Windrow, manager: Manager) -> None:
    assert manager
    windrow("apply", "-f", "cluster.yaml")
    windrow("pause", "orchard")

    assert "windrow resume fleet-default/orchard" in windrow("rotate", "token", "orchard").err


def wait_for(manager: Manager, windrow: Windrow, kind: str, change: dict[str, Any]) -> Any:
    """`rotate --wait`, which is carried out so."""
    windrow("apply", "-f", "cluster.yaml")

    async def play(api: Any) -> None:
        clusters = make_watcher(api, CLUSTER, lambda raw: raw["spec"]["rkeConfig"], SystemClock())
        async with watching(clusters) as changed:
            while FIELDS[kind] not in (clusters.get(ORCHARD) or {}):
                changed.clear()
                await changed.wait()
        await api.patch(ORCHARD, {"status": change}, "status")

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(manager.do, play)
        answer = windrow("rotate", kind, "orchard", "--timeout", "20s")
        playing.result()
    return answer


def test_with_wait_it_says_that_it_is_done(windrow: Windrow, manager: Manager) -> None:
    change = {"rotateToken": {"generation": 1}, "rotateTokenPhase": "Done"}
    answer = wait_for(manager, windrow, "token", change)

    assert (answer.code, answer.out.splitlines()[-1]) == (
        0,
        "Cluster fleet-default/orchard: the server token rotated",
    )


def test_with_wait_certificates_are_done_with_their_generation(windrow: Windrow, manager: Manager) -> None:
    assert wait_for(manager, windrow, "certificates", {"certificateRotationGeneration": 1}).code == 0


def test_with_wait_a_failure_is_told_with_what_to_do(windrow: Windrow, manager: Manager) -> None:
    run = {"message": "Machine s1 is gone; raise it"}
    change = {
        "rotateEncryptionKeys": {"generation": 1},
        "rotateEncryptionKeysPhase": "Failed",
        "rotateEncryptionKeysRun": run,
    }
    answer = wait_for(manager, windrow, "encryption-keys", change)

    assert (answer.code, answer.err.splitlines()[-2:]) == (
        1,
        [
            "Cluster fleet-default/orchard: encryption keys failed: Machine s1 is gone.",
            "→ Raise it",
        ],
    )
