"""The store in which adapters keep the status of their machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from windrow.client.store import Store
from windrow.machines.port import MachineStatus

# So many removed machines stay in the store as missing.
REMOVED_KEPT = 1000


class StatusStore(Store[MachineStatus]):
    """The Cache of machine statuses, by machine uid. It counts as synced: a uid that no adapter wrote is unknown, not late."""

    def __init__(self) -> None:
        super().__init__()
        self._removed: dict[str, None] = {}

    async def wait_for_sync(self) -> None:
        """Return at once."""

    @property
    def is_watching(self) -> bool:
        return True

    def update(self, status: MachineStatus, now: datetime) -> None:
        """Store the machine's status, with the time since which its presence and state have been the same. An unknown one
        keeps the uid, the addresses and the place that were last known."""
        before = self.get(status.machine_uid)
        if before is not None and status.presence == "unknown":
            status = replace(
                status,
                vm_uid=before.vm_uid,
                addresses=before.addresses,
                host=before.host,
                zone=before.zone,
                region=before.region,
            )
        stays = before is not None and (before.presence, before.state) == (status.presence, status.state)
        self.put(status.machine_uid, replace(status, since=before.since if before and stays else now))

    def was_removed(self, uid: str) -> bool:
        return uid in self._removed

    def expire(self, uid: str) -> None:
        """The machine is removed: its last status stays until many more are."""
        self._removed[uid] = None
        while len(self._removed) > REMOVED_KEPT:
            oldest = next(iter(self._removed))
            del self._removed[oldest]
            if (status := self.get(oldest)) is not None and status.presence == "missing":
                self.put(oldest, None)
