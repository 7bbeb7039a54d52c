"""Creations on Harvester that were requested and not answered: until when one may still be carried out.

A 404 says what is there now. It does not say that nothing is coming: a process is killed while its POST waits behind a
slow webhook, or a proxy passes the POST on after its sender has stopped waiting. What is then made late belongs to
nothing that exists. So what was requested and never observed is deleted only after a look at Harvester that is later than the
last instant at which such a request may be carried out:

* for a request of this process that had no answer, LATEST after it has ended;
* for what an earlier process recorded and this one never observed, LATEST after this one began to lead. That no other sends by
  then is what the Lease is for.

Where every request of this process was answered, and where an earlier process had observed the object, there is no such
instant, and nothing is waited for.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

# An API server gives up a request after 60 s (`--request-timeout`). As long is allowed for what lies before it: a proxy,
# and the packets of a connection whose process is gone.
LATEST = timedelta(minutes=2)


def describe_expiry(what: str) -> str:
    """What is waited for before `what` is said to be gone."""
    return f"any request to create {what} to expire (no answer to one is known, so Harvester may carry it out yet)"


def plan_end(
    end: datetime | None, now: datetime, asked: datetime | None = None
) -> Literal["wait", "ask", "release"]:
    """What a deletion does next about a creation that may be carried out until `end`; None where none may.

    * `wait`: it may be carried out yet;
    * `ask`: it may have been carried out since `asked`, when Harvester was last asked;
    * `release`: Harvester was asked at an instant at which none was under way any more.
    """
    if end is None or (asked is not None and asked >= end):
        return "release"
    return "wait" if now < end else "ask"


class UnansweredRequests:
    """By the uid of the Machine, the Cluster or the Service that something is created for. All instants are of the
    monotonic clock."""

    def __init__(self) -> None:
        self._began = timedelta()
        self._until: dict[
            str, timedelta | None
        ] = {}  # of what this process has requested; None: all was answered

    def begin(self, now: timedelta) -> None:
        """This process leads from now on; what was requested until now is another's."""
        self._began = now
        self._until.clear()

    def on_recorded(self, uid: str) -> None:
        """This process has just recorded what it is about to request, and nothing was recorded before."""
        self._until.setdefault(uid, None)

    def on_request(self, uid: str) -> None:
        """It is about to be requested; where this process did not record it, an earlier one may have requested it too."""
        self._until.setdefault(uid, self._began + LATEST)

    def on_unanswered(self, uid: str, now: timedelta) -> None:
        """A request has ended without an answer."""
        self._until[uid] = now + LATEST

    def find_end(self, uid: str, *, was_observed: bool) -> timedelta | None:
        """Until when a request may be carried out for what is recorded; None where none is without an answer.

        `was_observed`: what an earlier process requested, it also observed.
        """
        return self._until.get(uid, None if was_observed else self._began + LATEST)

    def forget(self, uid: str) -> None:
        """It is gone."""
        self._until.pop(uid, None)
