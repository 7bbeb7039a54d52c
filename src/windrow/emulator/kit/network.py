"""The simulated network: handlers by address and port.

VMs get realistic private addresses that no laptop can route. Everything that listens on one (Harvester's VIP, guest
APIs on 6443, supervisors on 9345) is a `Handler` registered here. In one process, handlers are called directly; other
processes reach them through the HTTP proxy of `emulator.proxy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from windrow.emulator.storage.nfs import NfsServers
from windrow.kubernetes.handler import Handler

Change = Callable[[str, int], None]


def bracketed(address: str) -> str:
    """The address as URLs have it."""
    return f"[{address}]" if ":" in address else address


@dataclass
class Internet:
    """What the site's machines reach beyond the simulated network: downloads and registries of images.

    In an air gap (`is_reachable` False) only the hosts in `registries` answer. `missing_images` are those that no registry
    has, as containers name them. All may be changed at any time.
    """

    is_reachable: bool = True
    registries: set[str] = field(default_factory=set)
    missing_images: set[str] = field(default_factory=set)

    @property
    def has_every_image(self) -> bool:
        return self.is_reachable and not self.missing_images


class Network:
    """The registry of handlers and of NFS servers, and the way to the internet."""

    def __init__(self) -> None:
        self.internet = Internet()
        self.nfs = NfsServers()
        self._handlers: dict[tuple[str, int], Handler] = {}
        self._listeners: list[Change] = []
        self._claimed: set[str] = set()

    def on_change(self, change: Change) -> Callable[[], None]:
        """Call `change` with each address and port that is opened or closed; the returned function ends that."""
        self._listeners.append(change)
        return lambda: self._listeners.remove(change)

    def listen(self, address: str, port: int, handler: Handler) -> None:
        """Register `handler` at the address. Raises ValueError when another one is registered."""
        if self._handlers.get((address, port), handler) is not handler:
            raise ValueError(f"{address}:{port} is in use by another service")
        if (address, port) not in self._handlers:
            self._handlers[(address, port)] = handler
            self._notify(address, port)

    def close(self, address: str, port: int) -> None:
        """Remove the handler at the address. May be repeated."""
        if self._handlers.pop((address, port), None) is not None:
            self._notify(address, port)

    def _notify(self, address: str, port: int) -> None:
        for listener in tuple(self._listeners):
            listener(address, port)

    def claim(self, host: str) -> None:
        """The address or DNS name exists from now on, also while nothing listens there. May be repeated."""
        self._claimed.add(host)

    def has_host(self, host: str) -> bool:
        """Whether there is a machine, or something else, with the address or name."""
        return host in self._claimed or any(address == host for address, _ in self._handlers)

    def find(self, address: str, port: int) -> Handler | None:
        return self._handlers.get((address, port))

    def listeners(self) -> dict[tuple[str, int], Handler]:
        return dict(self._handlers)
