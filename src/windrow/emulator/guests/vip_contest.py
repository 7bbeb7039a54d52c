"""Elections of kube-vip where every service has a leader of its own: leases `kubevip-<service>` beside the services.

All nodes on which kube-vip runs want every service; of a service with local traffic only those with a pod of it. Who
gives up lets the next one in at once; after one that died, its lease has to run out.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from windrow.core.clock import format_micro_time
from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import GuestCluster
from windrow.emulator.world import Key
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import LEASE

JITTER_S = 0.1  # so that not one node wins everything


class Contest:
    """One node's part in the elections. `changed` is told each service that this node leads from now on."""

    def __init__(
        self,
        box: Box,
        cluster: GuestCluster,
        node: str,
        group: asyncio.TaskGroup,
        changed: Callable[[Key], None],
    ) -> None:
        self._box = box
        self._cluster = cluster
        self._node = node
        self._group = group
        self._changed = changed
        self._enough: dict[Key, asyncio.Event] = {}
        self._led: set[Key] = set()

    def leads(self, key: Key) -> bool:
        return key in self._led

    def want(self, key: Key) -> None:
        """Stand for election. May be repeated."""
        known = self._enough.get(key)
        if known is None:
            enough = self._enough[key] = asyncio.Event()
            self._group.create_task(self._stand(key, enough), name=f"election {'/'.join(key)}")

    def give_up(self, key: Key) -> None:
        """Stand no more. May be repeated; the addresses must be off the node already."""
        self._led.discard(key)
        if enough := self._enough.pop(key, None):
            enough.set()

    async def _stand(self, key: Key, enough: asyncio.Event) -> None:
        await self._box.pause(JITTER_S * _lot(self._node, key))
        async with self._cluster.vip_locks[key]:
            if enough.is_set():
                return
            await self._take_lease(key)
            if enough.is_set():
                self._cluster.vip_leaders[key] = ""
                return
            self._led.add(key)
            self._changed(key)
            await enough.wait()
            self._cluster.vip_leaders[key] = ""  # released, not run out

    async def _take_lease(self, key: Key) -> None:
        leaders = self._cluster.vip_leaders
        if leaders.get(key, "") not in ("", self._node):
            await self._box.pause(self._box.delays.vip_lease)
        await self._cluster.usable()
        leaders[key] = self._node
        spec = {
            "holderIdentity": self._node,
            "leaseDurationSeconds": int(self._box.delays.vip_lease),
            "renewTime": format_micro_time(self._box.now()),
        }
        await self._cluster.ensure(LEASE, new_object(LEASE, f"kubevip-{key[1]}", key[0], spec=spec))


def _lot(node: str, key: Key) -> float:
    """Between 0 and 1, the same for the same node and service."""
    return hashlib.sha256(f"{node} {'/'.join(key)}".encode()).digest()[0] / 256
