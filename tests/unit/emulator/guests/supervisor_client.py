"""Requests to the supervisor of a server, by a client that has a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windrow.core.formats.json import dumps, loads
from windrow.core.text import encode_base64
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Reply, Request

from .testbed import ClusterFixture, MachineTestbed


@dataclass(frozen=True)
class SupervisorClient:
    """One server's supervisor, asked as `user`."""

    testbed: MachineTestbed
    cluster: ClusterFixture
    address: str = "10.0.0.11"
    port: int = 9345
    user: str = "server"
    password: str = ""

    async def send(
        self, method: str, path: str, body: bytes = b"", authorization: str | None = None
    ) -> Reply:
        door = self.testbed.network.find(self.address, self.port)
        if door is None:
            raise ConnectionRefusedError(f"{self.address}:{self.port}")
        pair = encode_base64(f"{self.user}:{self.password or self.cluster.server_password}")
        header = f"Basic {pair}" if authorization is None else authorization
        headers = (("Authorization", header),) if header else ()
        return await door.send(Request(method, path, body=body, headers=headers), Peer())

    async def ask(self, operation: str, status: int = 200, **more: Any) -> Any:
        """The answer to a snapshot request."""
        reply = await self.send("POST", "/db/snapshot", dumps({"operation": operation, **more}))
        assert reply.status == status, reply.body.decode()
        return loads(reply.body)

    async def save(self, *name: str, **more: Any) -> str:
        """Make a snapshot; its name."""
        made = await self.ask("save", name=list(name), **more) if name else await self.ask("save", **more)
        return str(made["created"][0])

    async def names(self, **more: Any) -> list[str]:
        """The names of all snapshots that the server lists."""
        found = await self.ask("list", **more)
        return sorted(one["spec"]["snapshotName"] for one in found["items"] or ())
