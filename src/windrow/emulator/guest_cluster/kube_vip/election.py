"""Elections of kube-vip where every service has a leader of its own: leases `kubevip-<service>` beside the services.

All nodes on which kube-vip runs stand for every Service; for one with externalTrafficPolicy Local only those with a
Ready endpoint. A leader that withdraws releases its lease; that of a dead one has to expire.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.listers import Key

JITTER_S = 0.1  # so that no node wins every election


async def acquire_lease(guest: GuestOS, cluster: GuestCluster, node: str, lease: Key) -> None:
    """Become the holder of a lease, after that of another holder has expired. The caller holds the lease's lock."""
    if cluster.vip_leaders[lease] not in ("", node):
        await guest.sleep(guest.delays.vip_lease)
    await cluster.wait_usable()
    cluster.vip_leaders[lease] = node
    await cluster.renew_lease(*lease, node, guest.delays.vip_lease)


class ServiceElection:
    """One node's elections. `on_elected` is called with each Service that this node begins to lead."""

    def __init__(
        self,
        guest: GuestOS,
        cluster: GuestCluster,
        node: str,
        group: asyncio.TaskGroup,
        on_elected: Callable[[Key], None],
    ) -> None:
        self._guest = guest
        self._cluster = cluster
        self._node = node
        self._group = group
        self._on_elected = on_elected
        self._withdrawn: dict[Key, asyncio.Event] = {}
        self._leading: set[Key] = set()

    def leads(self, key: Key) -> bool:
        return key in self._leading

    def enter(self, key: Key) -> None:
        """Take part in the Service's election. May be repeated."""
        if key not in self._withdrawn:
            withdrawn = self._withdrawn[key] = asyncio.Event()
            self._group.create_task(self._run(key, withdrawn), name=f"election {'/'.join(key)}")

    def withdraw(self, key: Key) -> None:
        """Leave the election and the leadership. May be repeated; the addresses must be off the node already."""
        self._leading.discard(key)
        if withdrawn := self._withdrawn.pop(key, None):
            withdrawn.set()

    async def _run(self, key: Key, withdrawn: asyncio.Event) -> None:
        await self._guest.sleep(JITTER_S * _jitter(self._node, key))
        lease = (key[0], f"kubevip-{key[1]}")
        async with self._cluster.vip_locks[lease]:
            if withdrawn.is_set():
                return
            await acquire_lease(self._guest, self._cluster, self._node, lease)
            if not withdrawn.is_set():
                self._leading.add(key)
                self._on_elected(key)
                await withdrawn.wait()
            self._cluster.vip_leaders[lease] = ""  # released, not expired


def _jitter(node: str, key: Key) -> float:
    """Between 0 and 1, the same for the same node and service."""
    return hashlib.sha256(f"{node} {'/'.join(key)}".encode()).digest()[0] / 256
