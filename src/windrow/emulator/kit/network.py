"""The rack's network: which simulated address and port is answered by whom.

VMs get realistic private addresses that no laptop can route. Everything that listens in the simulated rack
(Harvester's VIP, guest APIs on 6443, supervisors on 9345) is a `Door` registered here. In one process, doors are
called directly; for other processes `emulator.proxy` leads to them through one HTTP CONNECT proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow.apiserver.handler import Handler

Change = Callable[[str, int], None]


class Network:
    """The registry of doors."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, int], Handler] = {}
        self._listeners: list[Change] = []

    def on_change(self, change: Change) -> Callable[[], None]:
        """Call `change` with each address and port where a door opens or closes; the returned function ends that."""
        self._listeners.append(change)
        return lambda: self._listeners.remove(change)

    def listen(self, address: str, port: int, door: Handler) -> None:
        """Let `door` answer at the address. Raises ValueError when another one does."""
        if self._handlers.get((address, port), door) is not door:
            raise ValueError(f"{address}:{port} is already answered by another service")
        if (address, port) not in self._handlers:
            self._handlers[(address, port)] = door
            self._notify(address, port)

    def close(self, address: str, port: int) -> None:
        """Nobody answers there any more. May be repeated."""
        if self._handlers.pop((address, port), None) is not None:
            self._notify(address, port)

    def _notify(self, address: str, port: int) -> None:
        for listener in tuple(self._listeners):
            listener(address, port)

    def find(self, address: str, port: int) -> Handler | None:
        return self._handlers.get((address, port))

    def listeners(self) -> dict[tuple[str, int], Handler]:
        return dict(self._handlers)
