"""What has to be done about one NodeDriver, from what was seen of it. Pure.

    absent ─ Claim ─> ─ Download ─> ─ Install ─> ─ Offer ─> applied ─ Activate / Deactivate ─> settled
                         (proven)     (unpacked)   (asked for its flags, kind defined)

One action at a time: each leaves something that the next look sees, on disk or in the API, so that a crash between
any two is a look like any other. A driver in use stays in use until the next one has answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windrow.catalogue.faults import Fault
from windrow.catalogue.reading import DELETED, NodeDriver, show_url
from windrow.catalogue.schemas import find_origin, is_current, is_ours, kind_of
from windrow.catalogue.store import Stored
from windrow.kube.objects import is_deleting

# -- what is seen ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong the last time, with what was asked for then. `again` is None where only a change helps."""

    fault: Fault
    asked: tuple[object, ...]
    failures: int
    since: datetime
    again: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the decision rests on. `stored` and `downloaded` are about the checksum that is asked for."""

    driver: NodeDriver
    now: datetime
    downloaded: bool = False
    stored: Stored | None = None
    crd: Mapping[str, Any] | None = None  # the definition of the kind of `stored`
    owner: str = ""  # who else gives the driver that `stored` holds: a NodeDriver's name
    owner_built_in: bool = False
    keeps_kind: bool = False  # whether somebody else defines that kind, with our knowledge
    users: tuple[str, ...] = ()  # Clusters that name the kind
    machines: tuple[str, ...] = ()  # Machines that the driver has made, or is making
    configs: tuple[str, ...] = ()  # objects of the kind
    trouble: Trouble | None = None

    @property
    def asked(self) -> tuple[object, ...]:
        """Everything that an attempt depends on: where one of it differs, what failed may not fail again."""
        driver = self.driver
        return driver.uid, driver.url, driver.checksum, driver.hints


# -- what is done ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """Put our finalizer on the object, so that files and kind go before it does."""

    because: str


@dataclass(frozen=True, slots=True)
class Download:
    url: str
    checksum: str
    because: str


@dataclass(frozen=True, slots=True)
class Install:
    """Unpack what was downloaded, and put the program in its place."""

    url: str
    checksum: str
    because: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Ask the program for its create flags, define its kind, and make it the driver in use."""

    stored: Stored
    because: str


@dataclass(frozen=True, slots=True)
class Activate:
    because: str


@dataclass(frozen=True, slots=True)
class Deactivate:
    because: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Take away files, the kind unless objects of it exist, and our finalizer."""

    kind: str
    keep_kind: bool
    because: str


@dataclass(frozen=True, slots=True)
class Reset:
    """Write the built-in driver's object as it has to be; only at start. `fields` are those that differ."""

    name: str
    fields: tuple[str, ...]
    because: str


Action = Claim | Download | Install | Offer | Activate | Deactivate | Remove


@dataclass(frozen=True, slots=True)
class Plan:
    """The next action, or why there is none. At most one of `fault` and `action` is set."""

    action: Action | None = None
    fault: Fault | None = None
    again: datetime | None = None


SETTLED = Plan()


def plan_driver(seen: Seen) -> Plan:
    """The next step on the way to what the object asks for."""
    driver = seen.driver
    if driver.is_deleting:
        return _plan_removal(seen)
    if driver.own_kind or not driver.is_wanted:
        return _plan_switch(driver)
    if driver.faults:
        return Plan(fault=driver.faults[0])
    if (trouble := _lasting(seen)) is not None:
        return Plan(fault=trouble.fault, again=trouble.again)
    if not driver.is_claimed:
        return Plan(Claim("its files and its kind have to go before it does"))
    return _plan_supply(seen)


def _lasting(seen: Seen) -> Trouble | None:
    """The trouble that has to be waited out: about what is asked for now, and not over yet."""
    trouble = seen.trouble
    if trouble is None or trouble.asked != seen.asked:
        return None
    return None if trouble.again is not None and trouble.again <= seen.now else trouble


def _plan_supply(seen: Seen) -> Plan:
    """From nothing to the driver in use, one step at a time."""
    driver = seen.driver
    if seen.stored is None or driver.url not in seen.stored.urls:
        step = Install if seen.downloaded else Download
        return Plan(step(driver.url, driver.checksum, _why_new(seen)))
    fault = find_name_fault(seen)
    if fault is not None:
        return Plan(fault=fault)
    if not driver.is_applied:
        return Plan(Offer(seen.stored, _why_new(seen)))
    if not (
        seen.keeps_kind or is_current(seen.crd, seen.stored.name, find_origin(driver.checksum, driver.hints))
    ):
        because = f"{driver.config_kind} is not defined as this driver has it"
        return Plan(Offer(seen.stored, because))
    return _plan_switch(driver)


def _why_new(seen: Seen) -> str:
    driver = seen.driver
    url, checksum = driver.applied
    if not checksum:
        return "it is not installed yet"
    if url != driver.url:
        return f"its URL changed from {show_url(url)}"
    if checksum != driver.checksum:
        return f"its checksum changed from {checksum[:12]}…"
    return "its program is not on the disk as it was installed"


def _plan_switch(driver: NodeDriver) -> Plan:
    """What is said of it follows what is asked; `status` tells whether that was written already."""
    return Plan(Activate("it is asked for") if driver.active else Deactivate("it is not asked for"))


def find_name_fault(seen: Seen) -> Fault | None:
    """Why the installed driver cannot be offered under its name; None where it can."""
    stored = seen.stored
    if stored is None:
        return None
    kind = kind_of(stored.name)
    if seen.owner:
        cure = f"remove one of the two, or change the URL of {seen.owner} instead"
        if seen.owner_built_in:
            cure = "to use this one instead of what is built in, start the manager with --driver FILE"
        fact = f"the file holds the driver {stored.name}, which NodeDriver {seen.owner} gives already"
        return Fault(fact, cure, "NameTaken")
    if seen.driver.driver_name not in ("", stored.name):
        return Fault(
            f"the file holds the driver {stored.name}, and this object gave {seen.driver.driver_name}",
            "add it as another NodeDriver",
            "NameTaken",
        )
    if seen.keeps_kind:
        return None
    if seen.crd is not None and not is_deleting(seen.crd) and not is_ours(seen.crd):
        return Fault(
            f"the kind {kind.kind} is defined by somebody else",
            f"remove the definition {kind.qualified} if nobody needs it",
            "NameTaken",
        )
    return None


def _plan_removal(seen: Seen) -> Plan:
    driver = seen.driver
    if not driver.is_claimed:
        return SETTLED
    kind = driver.config_kind
    if seen.users:
        return Plan(fault=in_use(kind, seen.users))
    if seen.machines:
        return Plan(fault=_still_needed(driver.driver_name, seen.machines))
    because = DELETED + (f"; {kind} stays, because objects of it exist" if seen.configs else "")
    return Plan(Remove(kind, bool(seen.configs), because))


def in_use(kind: str, users: tuple[str, ...]) -> Fault:
    """Why a driver cannot go: machines that it made could not be removed any more."""
    several = len(users) > 1
    return Fault(
        f"{kind} is used by Cluster{'s' * several} {_named(users)}",
        f"delete {'them' if several else 'it'} first; the driver is needed to remove {'their' if several else 'its'} machines",
        "InUse",
    )


def _still_needed(driver: str, machines: tuple[str, ...]) -> Fault:
    """Why it cannot go although no Cluster names its kind any more: pools that moved to another one still lose what
    they had."""
    several = len(machines) > 1
    return Fault(
        f"the driver {driver} has made Machine{'s' * several} {_named(machines)}",
        f"wait until {'they are' if several else 'it is'} gone, or delete {'them' if several else 'it'}; "
        f"the driver is needed to remove {'them' if several else 'it'}",
        "InUse",
    )


def _named(objects: tuple[str, ...]) -> str:
    return ", ".join(objects[:3]) + (f" and {len(objects) - 3} more" if len(objects) > 3 else "")


# -- later and later ---------------------------------------------------------------------------------------------

FIRST = timedelta(seconds=5)
MOST = timedelta(minutes=10)


def next_trouble(before: Trouble | None, fault: Fault, seen: Seen, spread: float) -> Trouble:
    """What a failed step leaves: the next attempt after 5 s, doubling up to 10 min, times `spread`."""
    again_at_it = before is not None and before.asked == seen.asked and before.fault.reason == fault.reason
    failures = before.failures + 1 if before is not None and again_at_it else 1
    since = before.since if before is not None and again_at_it else seen.now
    wait = min(FIRST * 2 ** min(failures - 1, 16), MOST) * spread
    # Whole seconds, because people are told.
    again = (seen.now + wait).replace(microsecond=0) + timedelta(seconds=1) if fault.may_heal else None
    return Trouble(fault, seen.asked, failures, since, again)
