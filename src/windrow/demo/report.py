"""The demo's report: a timeline, into which the manager's events go, and checks that passed or failed.

Of the events, small steps and those of the Cluster that repeat a Machine's are left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.core.clock import Clock, format_time
from windrow.kubernetes.objects import nested

WIDTH = 80


def wrap_text(text: str, indent: int) -> list[str]:
    """`text` as lines of at most 80 columns; all but the first are indented. Long words stay whole."""
    wrapper = textwrap.TextWrapper(
        WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(text) or [""]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """The result of one check. `name` is stable and listed in docs/reference/demo.md."""

    name: str
    ok: bool
    detail: str
    known_flaw: str = ""  # of a foreign node driver, which explains why it is not ok

    @property
    def failed(self) -> bool:
        """Whether it is not ok, and that is no known flaw of a foreign node driver."""
        return not self.ok and not self.known_flaw


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check of every cluster that says nothing about this one, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened, `at` seconds after the start. A detail is left out of the closing timeline."""

    at: float
    instant: datetime
    text: str
    detail: bool = False


@dataclass(slots=True)
class Report:
    """Collects timeline entries and checks, and calls `listener` with each."""

    clock: Clock
    listener: Callable[[TimelineEntry | CheckRecord], None]
    entries: list[TimelineEntry] = field(default_factory=list)
    checks: list[CheckRecord] = field(default_factory=list)
    skipped: list[SkippedCheck] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    # Names of the VMs that were deleted on Harvester, without the manager and its driver.
    deleted_vms: set[str] = field(default_factory=set)
    started: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.now()

    def add(self, text: str, *, detail: bool = False) -> None:
        now = self.clock.now()
        entry = TimelineEntry(round((now - self.started).total_seconds(), 2), now, text, detail)
        self.entries.append(entry)
        self.listener(entry)

    def check(self, name: str, ok: bool, detail: str, known_flaw: str = "") -> None:
        check = CheckRecord(name, ok, detail, known_flaw)
        self.checks.append(check)
        self.listener(check)

    def skip(self, names: Iterable[str], why: str) -> None:
        """Checks that do not apply to what the manifest asks for. The first reason of each is kept."""
        self.skipped += [SkippedCheck(name, why) for name in names if name not in self._skipped_names()]

    def _skipped_names(self) -> set[str]:
        return {one.name for one in self.skipped}

    @property
    def passed(self) -> bool:
        """Whether there were checks and none failed."""
        return bool(self.checks) and not any(check.failed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "checks": [
                {"name": check.name, "ok": check.ok, "detail": check.detail}
                | ({"knownFlaw": check.known_flaw} if check.known_flaw else {})
                for check in self.checks
            ],
            "notApplicable": [{"name": check.name, "why": check.why} for check in self.skipped],
            "timeline": [
                {"at": moment.at, "time": format_time(moment.instant), "what": moment.text}
                for moment in self.entries
            ],
            "calls": dict(sorted(self.calls.items())),
        }


# Reasons of events, by the kind of the object that they are about.
SHOWN = {
    "Cluster": {
        "CreateSecrets",
        "MarkInitialized",
        "PublishKubeconfig",
        "SaveUpgradeSnapshot",
        "SnapshotCreated",
        "RestoreSnapshot",
        "SnapshotRestored",
        "KeepSnapshots",
        "DeleteServiceAccount",
    },
    "Machine": {
        "ElectInitServer",
        "ProvisionVM",
        "StartVM",
        "DeleteMachine",
        "RemoveEtcdMember",
        "DeleteVM",
        "RemoveMachineFinalizer",
        "RemediationRestricted",
        "FinishUpdate",
        "UpdateFailed",
    },
}

# What the timeline has already for all machines at once.
_REPEATED = (": the Cluster is deleted", ": its Machine is deleted")
_RESTORE = ": etcd is restored from snapshot"


def describe_event(event: Mapping[str, Any]) -> str | None:
    """The event as one line, or None for one that adds nothing to the timeline."""
    kind, reason = nested(event, "involvedObject", "kind"), event.get("reason")
    message = str(event.get("message") or "")
    if reason not in SHOWN.get(kind, ()) or (kind == "Machine" and _is_repeated(message)):
        return None
    return message


def _is_repeated(message: str) -> bool:
    return message.endswith(_REPEATED) or _RESTORE in message
