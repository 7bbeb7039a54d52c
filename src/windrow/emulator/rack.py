"""The rack's network: which simulated address and port is answered by whom.

VMs get realistic private addresses that no laptop can route. Everything that listens in the simulated rack
(Harvester's VIP, guest APIs on 6443, supervisors on 9345) is a `Door` registered here. In one process, doors are
called directly; for other processes `emulator.proxy` leads to them through one HTTP CONNECT proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow.apiserver.doors import Door

Change = Callable[[str, int], None]


class Rack:
    """The registry of doors."""

    def __init__(self) -> None:
        self._doors: dict[tuple[str, int], Door] = {}
        self._listeners: list[Change] = []

    def listen(self, change: Change) -> Callable[[], None]:
        """Call `change` with each address and port where a door opens or closes; the returned function ends that."""
        self._listeners.append(change)
        return lambda: self._listeners.remove(change)

    def open(self, address: str, port: int, door: Door) -> None:
        """Let `door` answer at the address. Raises ValueError when another one does."""
        if self._doors.get((address, port), door) is not door:
            raise ValueError(f"{address}:{port} is already answered by another service")
        if (address, port) not in self._doors:
            self._doors[(address, port)] = door
            self._tell(address, port)

    def close(self, address: str, port: int) -> None:
        """Nobody answers there any more. May be repeated."""
        if self._doors.pop((address, port), None) is not None:
            self._tell(address, port)

    def _tell(self, address: str, port: int) -> None:
        for listener in tuple(self._listeners):
            listener(address, port)

    def find(self, address: str, port: int) -> Door | None:
        return self._doors.get((address, port))

    def doors(self) -> dict[tuple[str, int], Door]:
        return dict(self._doors)
