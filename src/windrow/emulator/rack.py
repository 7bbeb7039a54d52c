"""The rack's network: which simulated address and port is answered by whom.

VMs get realistic private addresses that no laptop can route. Everything that listens in the simulated rack
(Harvester's VIP, guest APIs on 6443, supervisors on 9345) is a `Door` registered here. In one process, doors are
called directly; for other processes `emulator.proxy` leads to them through one HTTP CONNECT proxy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from windrow.kube.requests import Event, Reply, Request


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is on the other end: the verified client certificate (PEM) if one was shown, and the address."""

    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a TLS door shows and asks: its chain and key (PEM), and the CA (PEM) of clients it would recognise."""

    chain: str
    key: str
    client_ca: str = ""


class Door(Protocol):
    """One HTTP service at one address and port."""

    def identity(self) -> Identity | None:
        """TLS identity, read anew for each connection; None for plain HTTP."""
        ...

    async def send(self, request: Request, peer: Peer) -> Reply: ...

    def stream(self, request: Request, peer: Peer) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...


class Rack:
    """The registry of doors."""

    def __init__(self) -> None:
        self._doors: dict[tuple[str, int], Door] = {}

    def open(self, address: str, port: int, door: Door) -> None:
        """Let `door` answer at the address. Raises ValueError when another one does."""
        if self._doors.get((address, port), door) is not door:
            raise ValueError(f"{address}:{port} is already answered by another service")
        self._doors[(address, port)] = door

    def close(self, address: str, port: int) -> None:
        """Nobody answers there any more. May be repeated."""
        self._doors.pop((address, port), None)

    def find(self, address: str, port: int) -> Door | None:
        return self._doors.get((address, port))

    def doors(self) -> dict[tuple[str, int], Door]:
        return dict(self._doors)
