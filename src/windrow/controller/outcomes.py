"""The outcomes of a reconcile: each type says when the key is reconciled next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Settled:
    """The actual state is the desired one. Next: at the next change."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Something was done. Next: at once. `what` is for the log."""

    what: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits for `what`. Next: at the change that brings it, or at `until`. With `since` and `then` it is status.waiting."""

    what: str
    since: datetime
    then: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The spec cannot be fulfilled. Next: when the object is changed as `hint` says."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. Next: the same again, with back-off."""

    error: Exception


Outcome = Settled | Changed | Waiting | Refused | Failed
SETTLED = Settled()
