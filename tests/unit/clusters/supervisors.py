"""A supervisor as its client meets it: it answers what it is told to, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from windrow.core.formats.json import dumps, loads
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request

Answer = Callable[[Request], Reply] | Exception


def a_file(name: str, node: str = "s1", **rest: Any) -> dict[str, Any]:
    """An ETCDSnapshotFile as a server lists it."""
    spec = {"snapshotName": name, "nodeName": node, "location": f"file:///snapshots/{name}"}
    raw = {
        "apiVersion": "k3s.cattle.io/v1",
        "kind": "ETCDSnapshotFile",
        "metadata": {"name": f"local-{name}"},
        "spec": spec | rest.pop("spec", {}),
        "status": {"creationTime": "2026-01-01T11:00:00Z", "size": "1056", "readyToUse": True}
        | rest.pop("status", {}),
    }
    raw["metadata"] |= rest
    return raw


class Supervisors:
    """The supervisors of all servers, by URL."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.credentials: list[str] = []
        self.open = 0  # connections that are not closed
        self.configs: list[ClientConfig] = []
        self.files: list[dict[str, Any]] = []
        self.answers: list[Answer] = []  # before it answers as it would
        self.held: asyncio.Event | None = None  # until which nothing is answered

    def connect(self, config: ClientConfig) -> Any:
        self.configs.append(config)
        self.open += 1
        return _Connection(self, config.server)

    def answer(self, url: str, request: Request) -> Reply:
        body = loads(request.body) if request.body else None
        self.asked.append((url, f"{request.method} {request.path}", body))
        header = dict(request.headers).get("Authorization", "").removeprefix("Basic ")
        self.credentials.append(base64.b64decode(header).decode())
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer(request)
        match (body or {}).get("operation"):
            case "list":
                return Reply(200, dumps({"kind": "List", "apiVersion": "v1", "items": self.files}))
            case "save":
                name = f"{body['name'][0]}-s1-1767268800"
                self.files.append(a_file(name))
                return Reply(200, dumps({"created": [name], "deleted": []}))
            case "delete":
                return Reply(200, dumps({"created": [], "deleted": body["name"]}))
            case _:
                return Reply(200, b"")


class _Connection:
    def __init__(self, supervisors: Supervisors, url: str) -> None:
        self._supervisors, self._url = supervisors, url

    async def send(self, request: Request) -> Reply:
        if self._supervisors.held is not None:
            await self._supervisors.held.wait()
        return self._supervisors.answer(self._url, request)

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        self._supervisors.open -= 1
