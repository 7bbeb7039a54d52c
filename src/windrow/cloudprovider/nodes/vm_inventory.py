"""The roll: which VMs Harvester says that it has, asked now and not remembered.

A node is only ever deleted on the word of this. The watch may be late, or of another namespace than its VMs; so the
list is fetched anew, and counts only when it holds the VM of another node of this cluster. Nodes that are asked about
at the same moment share one list: a VM that a list of just now lacks will not come back, for uids are given once. One
that it holds may have gone since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.core.clock import Clock
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import uid_of

# As old as a list may be: the Go program looks at a node that is not Ready so often.
MAX_AGE = timedelta(seconds=5)
# Only uids are kept; whole VMs are large.
PAGE = 100


class VmInventory:
    def __init__(self, host: Client, namespace: str, clock: Clock) -> None:
        self._host = host
        self._namespace = namespace
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listed_at: datetime | None = None
        self._uids: frozenset[str] = frozenset()

    async def is_missing(self, vm_uid: str, ours: Iterable[str]) -> bool:
        """Whether Harvester, asked now, has no VM with this uid, and we ask the right Harvester.

        A namespace that holds none of `ours`, the uids that our nodes name, is not our namespace: then the credential
        was changed, and what it does not show is not gone. Raises the KubeError of a list that fails.
        """
        async with self._lock:
            if vm_uid in self._uids or not self._is_fresh():
                listed_at = self._clock.now()
                pages = self._host.pages(VM, self._namespace, limit=PAGE)
                self._uids = frozenset([uid_of(raw) async for page in pages for raw in page.items])
                self._listed_at = listed_at
        return vm_uid not in self._uids and any(uid in self._uids for uid in ours)

    def _is_fresh(self) -> bool:
        return self._listed_at is not None and self._clock.now() - self._listed_at <= MAX_AGE
