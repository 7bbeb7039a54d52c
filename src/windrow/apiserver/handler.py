"""Something that answers HTTP at an address: the seam between servers and the network they stand in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from windrow.kubernetes.requests import Reply, Request, WatchEvent


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is on the other end: the client certificate shown (PEM, "" for none; already verified against the
    door's client CA) and the address."""

    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """What a TLS door shows and asks: its chain and key (PEM), and the CA (PEM) of clients it would recognise."""

    chain: str
    key: str = field(repr=False)
    client_ca: str = ""


class Handler(Protocol):
    """One HTTP service at one address and port."""

    def identity(self) -> TlsIdentity | None:
        """TLS identity, read anew for each connection; None for plain HTTP."""
        ...

    async def send(self, request: Request, peer: Peer) -> Reply: ...

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Raises the KubeError of a refusal on entry."""
        ...
