"""What is asked of Harvester live: whether it has a VM, and the host names of guests.

A Node is deleted only when a live list lacks its VM. The watch may lag behind, or be of another namespace; so the VMs are
listed again, and the list counts only when it holds the VM of another node of this cluster. Nodes that are reconciled at
the same moment share one list: a VM that it lacks will not come back, because uids are given once.

The host name of a guest cannot be watched, and guest agents are slow. So only those guests are asked that could be a node
without a VM, and nodes that wait at the same moment share the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from windrow.client.client import Client
from windrow.cloudprovider.nodes.readings import Instance
from windrow.core.clock import Clock
from windrow.harvester.resources import VM, VMI_ACTIONS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.requests import Request

# The Go program checks a node that is not Ready as often.
MAX_AGE = timedelta(seconds=5)
# Only uids are kept; whole VMs are large.
PAGE = 100


class VmInventory:
    """Lists the VMs of the namespace live, and keeps their uids for `MAX_AGE`."""

    def __init__(self, host: Client, namespace: str, clock: Clock) -> None:
        self._host = host
        self._namespace = namespace
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listed_at: timedelta | None = None
        self._uids: frozenset[str] = frozenset()

    async def is_missing(self, vm_uid: str, ours: Iterable[str]) -> bool:
        """Whether Harvester, asked live, has no VM with this uid.

        A namespace that holds none of `ours`, the uids in our nodes' providerIDs, is not our namespace: then nothing is
        missing. Raises the KubeError of a list that fails.
        """
        async with self._lock:
            listed_at, oldest = self._clock.monotonic(), self._clock.monotonic() - MAX_AGE
            if vm_uid in self._uids or self._listed_at is None or self._listed_at < oldest:
                pages = self._host.pages(VM, self._namespace, limit=PAGE)
                self._uids = frozenset([uid_of(raw) async for page in pages for raw in page.items])
                self._listed_at = listed_at
        return vm_uid not in self._uids and any(uid in self._uids for uid in ours)


class GuestHostnames:
    """Asks guest agents for their host names, and keeps the answers for `MAX_AGE`."""

    def __init__(self, host: Client, namespace: str, clock: Clock) -> None:
        self._host = host
        self._namespace = namespace
        self._clock = clock
        self._lock = asyncio.Lock()
        # Instance uid -> its host name, and when it was asked.
        self._answers: dict[str, tuple[str, timedelta]] = {}

    async def fetch(self, instances: Iterable[Instance]) -> dict[str, str]:
        """Host name by VM name, of those whose agent can answer; "" where it did not. Raises no KubeError."""
        async with self._lock:
            oldest = self._clock.monotonic() - MAX_AGE
            self._answers = {uid: one for uid, one in self._answers.items() if one[1] >= oldest}
            return {one.name: await self._cached_hostname(one) for one in instances if _can_answer(one)}

    async def _cached_hostname(self, instance: Instance) -> str:
        if instance.uid not in self._answers:
            self._answers[instance.uid] = (await self._hostname(instance.name), self._clock.monotonic())
        return self._answers[instance.uid][0]

    async def _hostname(self, vm_name: str) -> str:
        path = VMI_ACTIONS.path(self._namespace, vm_name, "guestosinfo")
        try:
            return str((await self._host.call(Request("GET", path))).get("hostname") or "")
        except KubeError:
            return ""  # the agent does not answer now; the node is retried


def _can_answer(instance: Instance) -> bool:
    return instance.has_agent and instance.phase == "Running" and not instance.is_migrating
