"""A Kubernetes API over plain HTTP and JSON, as its administrator. Nothing here imports Windrow's product."""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.chaos.inventory import PATHS, Inventory, read_inventory

MERGE_PATCH = "application/merge-patch+json"


class Unanswered(Exception):
    """No answer: whether the request was executed is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return self.status < 300


def read_kubeconfig(path: Path) -> dict[str, Any]:
    """The kubeconfig's only cluster and user, as one mapping: server, proxy-url, …-data, token."""
    raw = yaml.safe_load(path.read_text())
    return {**raw["clusters"][0]["cluster"], **raw["users"][0]["user"]}


def _context(access: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=b64decode(access["certificate-authority-data"]).decode())
    if "client-certificate-data" in access:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(b64decode(access["client-key-data"]) + b64decode(access["client-certificate-data"]))
            file.flush()
            context.load_cert_chain(file.name)
    return context


@dataclass
class Api:
    """The API server that a kubeconfig leads to, not through its proxy. The file is read again by `reload`."""

    kubeconfig: Path
    _session: aiohttp.ClientSession | None = None
    _access: dict[str, Any] = field(default_factory=dict)
    _tls: ssl.SSLContext | None = None

    def reload(self) -> None:
        self._access = read_kubeconfig(self.kubeconfig)
        self._tls = _context(self._access)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _send(self, method: str, path: str, **options: Any) -> Any:
        if self._tls is None:
            self.reload()
        if self._session is None:
            self._session = aiohttp.ClientSession(read_bufsize=2**24)
        assert self._tls is not None
        headers = {"Accept": "application/json", **options.pop("headers", {})}
        if token := self._access.get("token"):
            headers["Authorization"] = f"Bearer {token}"
        return self._session.request(
            method, self._access["server"] + path, ssl=self._tls, headers=headers, **options
        )

    async def call(
        self, method: str, path: str, body: Any = None, content: str = "application/json", within: float = 10
    ) -> Answer:
        """The answer, whatever its status. Raises Unanswered."""
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._send(
                method,
                path,
                data=data,
                headers={"Content-Type": content},
                timeout=aiohttp.ClientTimeout(total=within),
            ) as response:
                text = await response.read()
                return Answer(response.status, json.loads(text) if text else None)
        except (aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError) as error:
            raise Unanswered(f"{method} {path}: {error or type(error).__name__}") from error

    async def text(self, path: str) -> str:
        """What is at a path that is no part of the Kubernetes API. Raises Unanswered."""
        try:
            async with self._send("GET", path, timeout=aiohttp.ClientTimeout(total=10)) as response:
                return str(await response.text())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unanswered(f"GET {path}: {error}") from error

    async def demand(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Any:
        """The body of a successful answer, however often it takes: for a program that is being restarted."""
        for attempt in range(1, 200):
            try:
                answer = await self.call(method, path, body, content)
            except Unanswered as error:
                last = str(error)
            else:
                repeated = attempt > 1 and (method, answer.status) in (("POST", 409), ("DELETE", 404))
                if answer.ok or repeated:
                    return answer.body
                last = f"{answer.status} {answer.body}"
                if answer.status < 500 and answer.status != 429:
                    break
            await asyncio.sleep(0.2)
        raise Unanswered(f"{method} {path}: {last}")

    async def list(self, path: str) -> list[dict[str, Any]]:
        return list((await self.demand("GET", path))["items"])

    async def find(self, path: str) -> dict[str, Any] | None:
        """The object, or None when the server says that there is none."""
        while True:
            try:
                answer = await self.call("GET", path)
            except Unanswered:
                await asyncio.sleep(0.2)
                continue
            if answer.status == 404:
                return None
            if answer.ok:
                return dict(answer.body)
            await asyncio.sleep(0.2)

    async def inventory(self) -> Inventory:
        lists: dict[str, Sequence[Mapping[str, Any]]] = {
            kind: await self.list(path) for kind, path in PATHS.items()
        }
        return read_inventory(lists)

    async def watch(self, path: str, version: str) -> AsyncIterator[dict[str, Any]]:
        """The events after `version`, until the watch ends. Raises Unanswered."""
        query = f"?watch=1&resourceVersion={version}&timeoutSeconds=3000"
        try:
            async with self._send("GET", path + query, timeout=aiohttp.ClientTimeout(total=None)) as response:
                async for line in response.content:
                    yield json.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unanswered(f"WATCH {path}: {error}") from error
