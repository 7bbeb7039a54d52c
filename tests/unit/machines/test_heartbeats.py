"""Heartbeats keep a plugin alive, and only while its host may run it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.launcher import PluginLauncher
from windrow.machines.plugin.process.client import PluginUnusable, Timeouts, open_plugin
from windrow.machines.plugin.process.rpc_connection import ConnectionLost, RpcConnection
from windrow.machines.plugin.tracked_machine import load_tracked_machine
from windrow.machines.port import DRIVER_KEY, HARVESTER
from windrow.protocols.gob import EMPTY


class CountingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.aborted = False

    def write(self, data: object) -> None:
        self.writes += bool(data)

    def abort(self) -> None:
        self.aborted = True


def test_a_host_that_may_not_run_the_plugin_sends_no_heartbeat_and_goes_on_when_it_may() -> None:
    async def run() -> list[int]:
        allowed = True
        transport, connection = CountingTransport(), RpcConnection()
        connection.connection_made(transport)
        connection.data_received(b"HTTP/1.0 200 Connected to Go RPC\n\n")
        connection.start_heartbeat("RPCServerDriver.Heartbeat", 5, 10**6, lambda: allowed)
        counts = []
        for now_allowed in (True, False, True):
            allowed, before = now_allowed, transport.writes
            connection._last_heartbeat = None  # as if it had been answered
            await asyncio.sleep(6)
            counts.append(transport.writes - before)
        connection.abort()
        return counts

    sent = run_driven(run())
    assert sent[0] > 0
    assert sent[1] == 0
    assert sent[2] > 0


def test_a_connection_that_is_aborted_is_closed_and_calls_fail_from_then_on() -> None:
    async def run() -> None:
        transport, connection = CountingTransport(), RpcConnection()
        connection.abort()  # before there is one
        connection = RpcConnection()
        connection.connection_made(transport)
        waiting = connection.call("RPCServerDriver.GetState", EMPTY, {})
        connection.abort()
        assert transport.aborted
        sent = transport.writes
        for call in (waiting, connection.call("RPCServerDriver.GetState", EMPTY, {})):
            with pytest.raises(ConnectionLost, match="the connection is closed"):
                await call
        assert transport.writes == sent

    asyncio.run(run())


def test_the_end_of_a_connection_says_why_and_the_first_reason_stays() -> None:
    async def run() -> list[str]:
        said = []
        for error in (None, OSError("reset by peer")):
            connection = RpcConnection()
            connection.connection_made(CountingTransport())
            waiting = connection.call("RPCServerDriver.GetState", EMPTY, {})
            connection.connection_lost(error)
            connection.abort()
            for call in (waiting, connection.call("RPCServerDriver.GetState", EMPTY, {})):
                with pytest.raises(ConnectionLost) as raised:
                    await call
                said.append(str(raised.value))
        return said

    assert asyncio.run(run()) == [
        *["the connection ended"] * 2,
        *["the connection broke (reset by peer)"] * 2,
    ]


def test_a_plugin_that_sends_anything_else_is_cut_off() -> None:
    async def run() -> None:
        transport, connection = CountingTransport(), RpcConnection()
        connection.connection_made(transport)
        waiting = connection.call("RPCServerDriver.GetState", EMPTY, {})
        connection.data_received(b"SSH-2.0-OpenSSH_9.2\r\n\n")
        connection.data_received(b"and more\n")
        assert transport.aborted
        with pytest.raises(ConnectionLost, match="it sent data that is not the plugin protocol"):
            await waiting

    asyncio.run(run())


def test_no_plugin_is_started_by_a_manager_that_does_not_lead(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(PluginUnusable, match="does not hold its Lease"):
            async with open_plugin(tmp_path / "absent", "noop", env={}, may_run=lambda: False):
                pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("driver", "writes", "said"),
    [
        (HARVESTER, True, "does not hold its Lease"),
        (HARVESTER, False, "cannot be started"),
        ("digitalocean", True, "cannot be started"),
    ],
)
def test_a_plugin_that_writes_to_harvester_asks_for_the_lease_there(
    tmp_path: Path, driver: str, writes: bool, said: str
) -> None:
    asked = []

    def may_write(credential: str, namespace: str) -> bool:
        asked.append((credential, namespace))
        return False

    unused: Any = None
    launcher = PluginLauncher(
        lambda name: tmp_path / "absent", unused, {}, Timeouts(), *(unused,) * 3, may_write=may_write
    )
    config = {
        "MachineName": "m",
        "WindrowMachineUID": "u",
        "VMNamespace": "vms",
        "WindrowCredential": "ns:cc",
    }
    machine = load_tracked_machine(tmp_path, {**config, DRIVER_KEY: driver})

    async def run() -> None:
        with pytest.raises(PluginUnusable, match=said):
            async with launcher.open(machine, ResolvedCredential("ns:cc", {}, {}), None, writes=writes):
                pass

    asyncio.run(run())
    assert asked == [("ns:cc", "vms")] * (said != "cannot be started")
