"""Whose an object on Harvester is: this guest cluster's, another's, or made there for another purpose."""

from __future__ import annotations

import asyncio

from windrow.csi.errors import FailedPrecondition
from windrow.csi.waits import waits_for
from windrow.harvester.names import GUEST_UID
from windrow.kubernetes.resources import ObjectRef


class GuestCluster:
    """The guest cluster that is served, by its uid; "" where that cannot be learnt yet, and not known at all before `learn`."""

    def __init__(self, uid: str, *, is_known: bool) -> None:
        self.uid = uid
        self._known = asyncio.Event()
        if is_known:
            self._known.set()

    def learn(self, uid: str) -> None:
        self.uid = uid
        self._known.set()

    async def wait_until_known(self) -> None:
        """Until then another's volumes could not be told from its own."""
        if not self._known.is_set():
            waits_for("the uid of this guest cluster, from its Service default/kubernetes")
            await self._known.wait()

    def owns(self, guest_uid: str) -> bool:
        """Whether it is this guest cluster's, or, as all that the Go driver made, no guest cluster's in particular. What is
        marked is not owned by a guest cluster whose uid is not known: it may be another's."""
        return not guest_uid or guest_uid == self.uid

    def require_own(self, guest_uid: str, ref: ObjectRef) -> None:
        """Raises FailedPrecondition for what another guest cluster made, or may have made."""
        if self.owns(guest_uid):
            return
        if not self.uid:
            raise FailedPrecondition(
                f"{ref} on Harvester was made by the guest cluster with uid {guest_uid}, and the uid of this one is not known",
                "let the driver get Service default/kubernetes of its guest cluster; it asks again by itself",
            )
        raise FailedPrecondition(
            f"{ref} on Harvester was made by the guest cluster with uid {guest_uid}, not by this one",
            f"use it from there; if it is this one's, annotate it with {GUEST_UID}={self.uid}",
        )


def require_made_by_csi(is_listed: bool, ref: ObjectRef, done: str) -> None:
    """Raises FailedPrecondition for an object that was made on Harvester for another purpose."""
    if not is_listed:
        raise FailedPrecondition(
            f"{ref} on Harvester was not made by a CSI driver, so it is not {done}",
            "do this on Harvester, by hand",
        )


def require_kept(is_deleting: bool, ref: ObjectRef, done: str) -> None:
    """Raises FailedPrecondition for an object that may be gone before a copy of it is whole."""
    if is_deleting:
        raise FailedPrecondition(
            f"{ref} on Harvester is being deleted, so it is not {done}", "use another source"
        )
