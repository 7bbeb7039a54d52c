"""History is kept for five minutes at least and for ten at most, as kube-apiserver has etcd compacted.

Without it a store keeps its last 10,000 changes, which in a cluster of some machines is the memory of days. Who resumes a
watch, or a list in pages, from an older revision gets 410 and lists anew, as from Kubernetes.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from windrow.apiserver.controllers.loop import PeriodicController
from windrow.apiserver.storage.port import Store
from windrow.core.clock import Clock

COMPACTION_INTERVAL = timedelta(minutes=5)  # kube-apiserver's --etcd-compaction-interval


class HistoryCompactor(PeriodicController):
    """Forgets the changes that were there an interval ago."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store
        self._known = self._compacted = -1  # revisions: of the last pass, and compacted

    async def run_once(self) -> datetime:
        if self._known != self._compacted:
            self._store.compact(self._known)
            self._compacted = self._known
        self._known = self._store.rev
        return self._clock.now() + COMPACTION_INTERVAL
