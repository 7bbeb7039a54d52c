"""Handler: the port between servers (over HTTP, or in this process) and what answers their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from windrow.kubernetes.requests import Reply, Request, WatchEvent


@dataclass(frozen=True, slots=True)
class Peer:
    """The remote side: its client certificate (PEM, "" for none; verified against the client CA) and address."""

    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """Certificate chain and key of a TLS server (PEM), and the CA (PEM) of its clients."""

    chain: str
    key: str = field(repr=False)
    client_ca: str = ""


class Handler(Protocol):
    """One HTTP service at one address and port."""

    def identity(self) -> TlsIdentity | None:
        """TLS identity, read at each connection; None for plain HTTP."""
        ...

    async def send(self, request: Request, peer: Peer) -> Reply: ...

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Raises the KubeError of a refusal on entry."""
        ...
