"""Heartbeats keep a plugin alive, and only while its host may run it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.clock import run_driven

from windrow.machines.plugin.process.client import PluginUnusable, open_plugin
from windrow.machines.plugin.process.rpc_connection import RpcConnection


class CountingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: object) -> None:
        self.writes += bool(data)

    def abort(self) -> None:
        pass


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


def test_no_plugin_is_started_by_a_manager_that_does_not_lead(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(PluginUnusable, match="does not lead any more"):
            async with open_plugin(tmp_path / "absent", "noop", env={}, may_run=lambda: False):
                pass

    asyncio.run(run())
