"""Which VM each identified node runs in, both ways; so that news of a VM finds its node without a search."""

from __future__ import annotations

from collections.abc import Iterable


class NodeVmIndex:
    """What was last found out, by names. A VM may be the home of several nodes: of a guest that was renamed."""

    def __init__(self) -> None:
        self._vm_of: dict[str, str] = {}
        self._nodes_of: dict[str, set[str]] = {}

    def set(self, node: str, vm: str) -> None:
        """`node` runs in `vm`, whatever was believed before."""
        if self._vm_of.get(node) == vm:
            return
        self.remove(node)
        self._vm_of[node] = vm
        self._nodes_of.setdefault(vm, set()).add(node)

    def remove(self, node: str) -> None:
        """Nobody knows where `node` runs. May be repeated."""
        vm = self._vm_of.pop(node, "")
        nodes = self._nodes_of.get(vm, set())
        nodes.discard(node)
        if not nodes:
            self._nodes_of.pop(vm, None)

    def vm_of(self, node: str) -> str:
        """The name of its VM, "" when nobody knows."""
        return self._vm_of.get(node, "")

    def nodes_of(self, vm: str) -> Iterable[str]:
        return sorted(self._nodes_of.get(vm, ()))
