"""Attachments that were requested and had no answer: until when Harvester may still carry one out.

A detachment that finds the VM without the volume knows what is there now, not what is coming: the patch of an attachment may
wait behind a slow webhook after a proxy has answered 504. Carried out late, it would give the VM a volume that another
VM has by then, or that is deleted. Of requests of another process `attachments.records` tells.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.harvester.unanswered import LATEST


class UnansweredAttachments:
    """By VM and volume. All instants are of the monotonic clock."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], timedelta] = {}
        # Requested once more meanwhile: that the VM has the volume does not say which request was carried out.
        self._repeated: set[tuple[str, str]] = set()
        # What another process recorded: of what is in `_until`, and of what is known to have been carried out or to have expired.
        self._records: dict[tuple[str, str], str] = {}
        self._settled: dict[tuple[str, str], str] = {}

    def on_request(self, vm: str, volume_id: str) -> None:
        if (vm, volume_id) in self._until:
            self._repeated.add((vm, volume_id))

    def on_unanswered(self, vm: str, volume_id: str, now: timedelta) -> None:
        self._until[vm, volume_id] = now + LATEST

    def on_recorded(self, vm: str, volume_id: str, record: str, until: timedelta) -> bool:
        """Another process has recorded a request; whether it may be carried out yet, as far as is known."""
        key = vm, volume_id
        if self._settled.get(key) == record or key in self._until:
            return key in self._until
        self._until[key], self._records[key] = until, record
        return True

    def on_present(self, vm: str, volume_id: str) -> None:
        """The VM has the volume."""
        if (vm, volume_id) not in self._repeated:
            self._settle((vm, volume_id))

    def _settle(self, key: tuple[str, str]) -> None:
        self._until.pop(key, None)
        self._repeated.discard(key)
        if key in self._records:
            self._settled[key] = self._records.pop(key)

    def find_end(self, vm: str, volume_id: str, now: timedelta) -> timedelta | None:
        """Until when one may be carried out; None where none may."""
        end = self._until.get((vm, volume_id))
        if end is not None and end <= now:
            self._settle((vm, volume_id))
            return None
        return end
