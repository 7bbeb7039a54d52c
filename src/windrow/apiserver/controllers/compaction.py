"""History is kept for five minutes at least and for ten at most, as kube-apiserver has etcd compacted.

Without it a store keeps its last 10,000 changes, which in a cluster of some machines is the memory of days. Who resumes a
watch, or a list in pages, from an older revision gets 410 and lists anew, as from Kubernetes.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from windrow.apiserver.storage.port import Store
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash

_log = logging.getLogger(__name__)

COMPACTION_INTERVAL = timedelta(minutes=5)  # kube-apiserver's --etcd-compaction-interval


class HistoryCompactor:
    """Forgets the changes that were there an interval ago."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def run(self) -> None:
        """Until cancelled."""
        compacted = -1
        while True:
            known = self._store.rev
            await sleep(self._clock, COMPACTION_INTERVAL)
            if known != compacted:
                with handle_crash(_log, "cannot compact the history; trying again"):
                    self._store.compact(known)
                    compacted = known
