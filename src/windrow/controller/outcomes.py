"""What a reconcile ends with, as types: each says what comes next, so nobody reads flags."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Settled:
    """Everything is as wanted. Next: nothing, until something changes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Something was done. Next: look again at once. `what` is for the log."""

    what: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """It goes on when `what` has happened, or at `until`. `since` and `then` complete the sentence people see."""

    what: str
    since: datetime
    then: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """It cannot go on as asked. Next: nothing, until somebody changes what `fact` names, as `cure` says."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt broke. Next: the same again, later and later."""

    error: Exception


Outcome = Settled | Changed | Waiting | Refused | Failed
SETTLED = Settled()
