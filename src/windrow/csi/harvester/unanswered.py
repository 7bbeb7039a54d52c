"""Attachments that were requested and had no answer: until when Harvester may still carry one out.

A detachment that finds the VM without the volume knows what is there now, not what is coming: the patch of an attachment may
wait behind a slow webhook after a proxy has answered 504. Carried out late, it would give the VM a volume that another
VM has by then, or that is deleted.
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

    def on_request(self, vm: str, volume_id: str) -> None:
        if (vm, volume_id) in self._until:
            self._repeated.add((vm, volume_id))

    def on_unanswered(self, vm: str, volume_id: str, now: timedelta) -> None:
        self._until[vm, volume_id] = now + LATEST

    def on_present(self, vm: str, volume_id: str) -> None:
        """The VM has the volume."""
        if (vm, volume_id) not in self._repeated:
            self._until.pop((vm, volume_id), None)

    def find_end(self, vm: str, volume_id: str, now: timedelta) -> timedelta | None:
        """Until when one may be carried out; None where none may."""
        end = self._until.get((vm, volume_id))
        if end is not None and end <= now:
            del self._until[vm, volume_id]
            self._repeated.discard((vm, volume_id))
            return None
        return end
