from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from windrow.core.formats.json import dumps
from windrow.harvester.identity import IDENTITY
from windrow.harvester.problems import Problem
from windrow.kubernetes import requests
from windrow.kubernetes.errors import NotFound, Unreachable
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.machines.harvester.connections import Connections
from windrow.machines.port import InfrastructureUnknown, MachineRefused
from windrow.nodedriver.effects import Call
from windrow.nodedriver.errors import Busy, Refused


class FakeHarvester:
    """Answers for its identity, and counts who is let go."""

    def __init__(self) -> None:
        self.identity_reads = 0
        self.closed: list[str] = []
        self.reply: Reply | Exception = Reply(
            200, dumps({"metadata": {"name": "kube-system", "uid": "harvester-1"}})
        )

    def connect(self, access: ClientConfig) -> Any:
        return _FakeTransport(self, access)


class _FakeTransport:
    def __init__(self, harvester: FakeHarvester, access: ClientConfig) -> None:
        self._harvester, self._access = harvester, access

    async def send(self, request: Request) -> Reply:
        self._harvester.identity_reads += 1
        if isinstance(self._harvester.reply, Exception):
            raise self._harvester.reply
        return self._harvester.reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        raise AssertionError("there is no watch here")
        yield

    async def aclose(self) -> None:
        self._harvester.closed.append(self._access.token)


class FakeSecret:
    """The credential Secret: a text, or the failure of reading it."""

    def __init__(self, held: str | Exception) -> None:
        self.held = held

    async def __call__(self, name: str) -> str:
        if isinstance(self.held, Exception):
            raise self.held
        return self.held


def a_kubeconfig(token: str = "t", ca: str = "") -> str:
    pem = f"-----BEGIN CERTIFICATE-----\n{ca}\n-----END CERTIFICATE-----\n" if ca else ""
    return render_kubeconfig(ClientConfig("https://harvester:6443", ca=pem, token=token), "harvester")


async def test_a_connection_is_shared_while_its_kubeconfig_stays() -> None:
    connections = Connections(FakeSecret(a_kubeconfig()), FakeHarvester().connect)
    assert await connections.get("ns:cc") is await connections.get("ns:cc")


async def test_a_new_kubeconfig_retires_the_old_connection_at_once() -> None:
    harvester, secret = FakeHarvester(), FakeSecret(a_kubeconfig("old"))
    connections = Connections(secret, harvester.connect)
    old = await connections.get("ns:cc")
    secret.held = a_kubeconfig("new")
    new = await connections.get("ns:cc")
    assert (old.retired.is_set(), new.retired.is_set()) == (True, False)
    assert harvester.closed == ["old"]


async def test_the_identity_is_asked_once() -> None:
    harvester = FakeHarvester()
    connection = await Connections(FakeSecret(a_kubeconfig()), harvester.connect).get("ns:cc")
    assert [await connection.verify_identity(""), await connection.verify_identity("harvester-1")] == [
        "harvester-1",
        "harvester-1",
    ]
    assert harvester.identity_reads == 1


async def test_a_failed_question_is_asked_again() -> None:
    harvester = FakeHarvester()
    harvester.reply, answer = Unreachable("no route"), harvester.reply
    connection = await Connections(FakeSecret(a_kubeconfig()), harvester.connect).get("ns:cc")
    with pytest.raises(InfrastructureUnknown, match="https://harvester:6443"):
        await connection.identity()
    harvester.reply = answer
    assert await connection.identity() == "harvester-1"


async def test_another_harvester_is_named_with_both_identities() -> None:
    connection = await Connections(FakeSecret(a_kubeconfig()), FakeHarvester().connect).get("ns:cc")
    with pytest.raises(InfrastructureUnknown, match=r"Harvester harvester-1; .* on Harvester harvester-0"):
        await connection.verify_identity("harvester-0")


async def test_the_ca_is_the_identity_where_kube_system_may_not_be_read() -> None:
    harvester = FakeHarvester()
    harvester.reply = Reply(403, b"no")
    one = await Connections(FakeSecret(a_kubeconfig(ca="QQ==")), harvester.connect).get("ns:cc")
    same = await Connections(FakeSecret(a_kubeconfig("other", ca="QQ==")), harvester.connect).get("ns:cc")
    other = await Connections(FakeSecret(a_kubeconfig(ca="Qg==")), harvester.connect).get("ns:cc")
    recorded = await one.identity()
    assert await same.verify_identity(recorded) == recorded
    with pytest.raises(InfrastructureUnknown):
        await other.verify_identity(recorded)


@pytest.mark.parametrize(
    "held",
    [
        NotFound("secrets cc not found", status=404),
        KeyError("cc"),
        ValueError("Incorrect padding"),
        "",
        "just text",
        "clusters: []\n",
    ],
)
async def test_an_unusable_credential_is_reported_with_a_hint(held: str | Exception) -> None:
    with pytest.raises(InfrastructureUnknown, match="credential Secret ns/cc") as unknown:
        await Connections(FakeSecret(held), FakeHarvester().connect).get("ns:cc")
    assert unknown.value.hint


@pytest.mark.parametrize(
    "error", [BadKubeconfig("it wants a program", "use a token"), Unreachable("no such program")]
)
async def test_a_failed_connection_is_reported_with_a_hint(error: Exception) -> None:
    def connect(access: ClientConfig) -> Any:
        raise error

    with pytest.raises(InfrastructureUnknown, match="ns/cc") as unknown:
        await Connections(FakeSecret(a_kubeconfig()), connect).get("ns:cc")
    assert unknown.value.hint


async def test_a_failure_that_is_told_in_the_words_of_the_port_is_passed_on() -> None:
    unknown = InfrastructureUnknown("the manager stops", "the next one does it")
    with pytest.raises(InfrastructureUnknown) as raised:
        await Connections(FakeSecret(unknown), FakeHarvester().connect).get("ns:cc")
    assert raised.value is unknown


async def test_a_retired_connection_is_closed_and_replaced_and_a_later_one_stays() -> None:
    harvester = FakeHarvester()
    connections = Connections(FakeSecret(a_kubeconfig()), harvester.connect)
    first = await connections.get("ns:cc")
    await connections.retire(first)
    assert (first.retired.is_set(), harvester.closed) == (True, ["t"])
    second = await connections.get("ns:cc")
    assert second is not first
    await connections.retire(first)
    assert await connections.get("ns:cc") is second
    await connections.close()
    assert second.retired.is_set()


async def test_a_credential_that_may_not_read_which_harvester_it_is_does_not_show_that_it_is_the_same() -> (
    None
):
    harvester = FakeHarvester()
    harvester.reply = Reply(403, b"no")
    connection = await Connections(FakeSecret(a_kubeconfig(ca="QQ==")), harvester.connect).get("ns:cc")
    with pytest.raises(
        InfrastructureUnknown, match="may not get Namespace kube-system at https://harvester:6443"
    ):
        await connection.verify_identity("harvester-1")


async def test_an_operation_has_its_result_or_an_error_of_the_port() -> None:
    harvester = FakeHarvester()
    connection = await Connections(FakeSecret(a_kubeconfig()), harvester.connect).get("ns:cc")

    def operation(error: Exception | None = None) -> Any:
        raw = yield Call(requests.get(IDENTITY), "read it")
        if error is not None:
            raise error
        return raw["metadata"]["uid"]

    other = FakeHarvester()
    other.reply = Reply(200, dumps({"metadata": {"name": "kube-system", "uid": "harvester-2"}}))
    assert await connection.run(operation()) == "harvester-1"
    assert await connection.run(operation(), other.connect(connection.client_config)) == "harvester-2"
    with pytest.raises(MachineRefused, match="no such image"):
        await connection.run(operation(Refused(Problem("no such image", "name another"))))
    with pytest.raises(InfrastructureUnknown, match="has to wait"):
        await connection.run(operation(Busy("it has to wait", "it is repeated")))
    harvester.reply = Unreachable("no route")
    with pytest.raises(InfrastructureUnknown, match="https://harvester:6443"):
        await connection.run(operation())
