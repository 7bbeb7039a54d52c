"""The interface between a guest cluster and its CSI drivers: calls on a socket, and which sockets kubelets have registered.

A request and its response are plain values with the field names of the protocol: enums by name, 64-bit integers as
integers, timestamps as `seconds` and `nanos`, fields that are not set absent. What translates them to a driver is `windrow.app`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from windrow.kubernetes.objects import Raw

# `await call("NodeGetInfo", {})`: the response. Raises CsiFailed.
CsiCall = Callable[[str, Raw], Awaitable[Raw]]


class CsiFailed(Exception):
    """What a call came to: the name of gRPC's code ("NOT_FOUND"), and the text that the driver sent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {_go_name(code)} desc = {message}")
        self.code = code
        self.message = message


def _go_name(code: str) -> str:
    """The code as Go programs print it: DeadlineExceeded."""
    return "Canceled" if code == "CANCELLED" else "".join(word.capitalize() for word in code.split("_"))


class RegisteredDrivers:
    """The drivers that the registrars of a cluster's nodes have registered with their kubelets."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._calls: dict[tuple[str, str], CsiCall] = {}
        self._on_change = on_change

    def find(self, node: str, driver: str) -> CsiCall | None:
        """Calls on the driver's socket of this node; None where the node's kubelet knows no such driver."""
        return self._calls.get((node, driver))

    def nodes_of(self, driver: str) -> Iterator[str]:
        """The nodes with the driver."""
        return (node for node, name in self._calls if name == driver)

    def register(self, node: str, driver: str, call: CsiCall) -> None:
        self._calls[node, driver] = call
        self._on_change()

    def unregister(self, node: str, driver: str, call: CsiCall) -> None:
        """Forget the driver, unless another socket was registered since."""
        if self._calls.get((node, driver)) is call:
            del self._calls[node, driver]
            self._on_change()
