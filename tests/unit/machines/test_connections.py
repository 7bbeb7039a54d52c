from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from windrow.core.json import dumps
from windrow.kubernetes.errors import NotFound, Unreachable
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.machines.harvester.connections import Connections
from windrow.machines.port import InfrastructureUnknown


class Rack:
    """Answers for its identity, and counts who is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed: list[str] = []
        self.reply: Reply | Exception = Reply(
            200, dumps({"metadata": {"name": "kube-system", "uid": "rack-1"}})
        )

    def dial(self, access: ClientConfig) -> Any:
        return _Line(self, access)


class _Line:
    def __init__(self, rack: Rack, access: ClientConfig) -> None:
        self._rack, self._access = rack, access

    async def send(self, request: Request) -> Reply:
        self._rack.asked += 1
        if isinstance(self._rack.reply, Exception):
            raise self._rack.reply
        return self._rack.reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        raise AssertionError("nobody watches here")
        yield

    async def aclose(self) -> None:
        self._rack.closed.append(self._access.token)


class Shelf:
    """The credential Secret: a text, or the failure of reading it."""

    def __init__(self, held: str | Exception) -> None:
        self.held = held

    async def __call__(self, name: str) -> str:
        if isinstance(self.held, Exception):
            raise self.held
        return self.held


def a_kubeconfig(token: str = "t", ca: str = "") -> str:
    pem = f"-----BEGIN CERTIFICATE-----\n{ca}\n-----END CERTIFICATE-----\n" if ca else ""
    return render_kubeconfig(ClientConfig("https://rack:6443", ca=pem, token=token), "rack")


async def test_a_connection_is_shared_while_its_kubeconfig_stays() -> None:
    connections = Connections(Shelf(a_kubeconfig()), Rack().dial)
    assert await connections.get("ns:cc") is await connections.get("ns:cc")


async def test_a_new_kubeconfig_retires_the_old_connection_at_once() -> None:
    rack, shelf = Rack(), Shelf(a_kubeconfig("old"))
    connections = Connections(shelf, rack.dial)
    old = await connections.get("ns:cc")
    shelf.held = a_kubeconfig("new")
    new = await connections.get("ns:cc")
    assert (old.retired.is_set(), new.retired.is_set()) == (True, False)
    assert rack.closed == ["old"]


async def test_the_identity_is_asked_once() -> None:
    rack = Rack()
    connection = await Connections(Shelf(a_kubeconfig()), rack.dial).get("ns:cc")
    assert [await connection.verify_identity(""), await connection.verify_identity("rack-1")] == [
        "rack-1",
        "rack-1",
    ]
    assert rack.asked == 1


async def test_a_failed_question_is_asked_again() -> None:
    rack = Rack()
    rack.reply, answer = Unreachable("no route"), rack.reply
    connection = await Connections(Shelf(a_kubeconfig()), rack.dial).get("ns:cc")
    with pytest.raises(InfrastructureUnknown, match="https://rack:6443"):
        await connection.identity()
    rack.reply = answer
    assert await connection.identity() == "rack-1"


async def test_another_harvester_is_named_with_both_identities() -> None:
    connection = await Connections(Shelf(a_kubeconfig()), Rack().dial).get("ns:cc")
    with pytest.raises(InfrastructureUnknown, match=r"Harvester rack-1; .* on Harvester rack-0"):
        await connection.verify_identity("rack-0")


async def test_the_ca_is_the_identity_where_kube_system_may_not_be_read() -> None:
    rack = Rack()
    rack.reply = Reply(403, b"no")
    one = await Connections(Shelf(a_kubeconfig(ca="QQ==")), rack.dial).get("ns:cc")
    same = await Connections(Shelf(a_kubeconfig("other", ca="QQ==")), rack.dial).get("ns:cc")
    other = await Connections(Shelf(a_kubeconfig(ca="Qg==")), rack.dial).get("ns:cc")
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
    with pytest.raises(InfrastructureUnknown, match="credential ns:cc") as unknown:
        await Connections(Shelf(held), Rack().dial).get("ns:cc")
    assert unknown.value.hint


@pytest.mark.parametrize(
    "error", [BadKubeconfig("it wants a program", "use a token"), Unreachable("no such program")]
)
async def test_a_failed_connection_is_reported_with_a_hint(error: Exception) -> None:
    def dial(access: ClientConfig) -> Any:
        raise error

    with pytest.raises(InfrastructureUnknown, match="ns:cc") as unknown:
        await Connections(Shelf(a_kubeconfig()), dial).get("ns:cc")
    assert unknown.value.hint
