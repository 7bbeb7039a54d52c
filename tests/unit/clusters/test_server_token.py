"""Before a configuration is written onto a server, it is asked whether it takes the server token that stands in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_machine, a_pool, look
from tests.unit.clusters.supervisors import Supervisors as Servers

from windrow.bootstrap.pki import new_cluster_secrets
from windrow.clusters.api.operations.recorded import RecordedOperations
from windrow.clusters.api.operations.rotations import RecordedTokenRotation
from windrow.clusters.execute.servers.supervisors import Supervisors
from windrow.clusters.sources.servers.supervisor import TokenRejected
from windrow.clusters.state import ClusterState
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.requests import Reply

SERVERS, WORKERS = a_pool("servers", 1, SERVER), a_pool("workers", 1)
SECRETS = replace(
    new_cluster_secrets(NOON),
    server_password="present",
    next_server_password="next",
    former_server_passwords=("former",),
)
STATUS = ("https://10.0.0.1:9345", "GET /v1-rke2/encrypt/status", None)


def a_state(phase: Any = "", **rest: Any) -> ClusterState:
    cluster = a_cluster(SERVERS, WORKERS)
    operations = RecordedOperations(token=RecordedTokenRotation(phase=phase))
    cluster = replace(cluster, recorded=replace(cluster.recorded, operations=operations))
    machines = [a_machine("s1", SERVERS), a_machine("w1", WORKERS)]
    return look(cluster, machines, **{"secrets": SECRETS, **rest})


def ask(servers: Servers, machine: str = "s1", state: ClusterState | None = None) -> None:
    harvesters: Any = type("Harvesters", (), {"find_proxy": lambda *_: ""})()
    state = state or a_state()
    found = state.machines_by_name[machine]
    run_driven(Supervisors(harvesters, servers.connect).require_present_token(found, state))


def test_a_server_is_asked_with_the_present_token_alone():
    servers = Servers()
    ask(servers)

    assert [(path, body) for _, path, body in servers.asked] == [STATUS[1:]]
    assert servers.credentials == ["server:present"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_rejects_it_is_told_and_no_other_token_is_tried(status: int):
    servers = Servers()
    servers.answers = [lambda request: Reply(status, b"not authorized")]

    with pytest.raises(TokenRejected, match="rejects the server token of the cluster") as raised:
        ask(servers)
    assert "as server-password" in raised.value.hint
    assert len(servers.asked) == 1


def test_one_that_does_not_answer_or_cannot_be_asked_has_rejected_nothing():
    servers = Servers()
    servers.answers = [
        Unreachable("connection refused"),
        lambda request: Reply(404, b"404 page not found"),
        lambda request: Reply(500, b"no leader"),
    ]
    for _ in range(3):
        ask(servers)
    assert len(servers.asked) == 3


@pytest.mark.parametrize("phase", ["Prepare", "Rotate", "PostRotateRestart"])
def test_while_the_token_is_rotated_servers_may_have_another(phase: str):
    servers = Servers()
    ask(servers, state=a_state(phase))
    assert servers.asked == []


def test_workers_have_no_server_token_and_without_secrets_there_is_none_to_ask_with():
    servers = Servers()
    ask(servers, "w1")
    ask(servers, state=a_state(secrets=None))
    assert servers.asked == []
