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

from windrow.drivers.api import DELETED_MESSAGE, NodeDriver, redact_url
from windrow.drivers.faults import Fault
from windrow.drivers.schema import is_current, is_generated, machine_config_kind, schema_source
from windrow.drivers.store import InstalledDriver
from windrow.kubernetes.objects import is_deleting

# -- what is seen ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong the last time, with what was asked for then. `again` is None where only a change helps."""

    fault: Fault
    inputs: tuple[object, ...]
    count: int
    since: datetime
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class NodeDriverState:
    """Everything that the decision rests on. `stored` and `downloaded` are about the checksum that is asked for."""

    driver: NodeDriver
    now: datetime
    downloaded: bool = False
    installed: InstalledDriver | None = None
    crd: Mapping[str, Any] | None = None  # the definition of the kind of `stored`
    owner: str = ""  # who else gives the driver that `stored` holds: a NodeDriver's name
    owner_is_built_in: bool = False
    kind_external: bool = False  # whether somebody else defines that kind, with our knowledge
    clusters: tuple[str, ...] = ()  # Clusters that name the kind
    machines: tuple[str, ...] = ()  # Machines that the driver has made, or is making
    machine_configs: tuple[str, ...] = ()  # objects of the kind
    failure: Failure | None = None

    @property
    def inputs(self) -> tuple[object, ...]:
        """Everything that an attempt depends on: where one of it differs, what failed may not fail again."""
        driver = self.driver
        return driver.uid, driver.url, driver.checksum, driver.field_annotations


# -- what is done ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer:
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
class DefineKind:
    """Ask the program for its create flags, define its kind, and make it the driver in use."""

    installed: InstalledDriver
    because: str


@dataclass(frozen=True, slots=True)
class Activate:
    because: str


@dataclass(frozen=True, slots=True)
class Deactivate:
    because: str


@dataclass(frozen=True, slots=True)
class Uninstall:
    """Take away files, the kind unless objects of it exist, and our finalizer."""

    kind: str
    keep_kind: bool
    because: str


@dataclass(frozen=True, slots=True)
class ResetBuiltIn:
    """Write the built-in driver's object as it has to be; only at start. `fields` are those that differ."""

    name: str
    fields: tuple[str, ...]
    because: str


Action = AddFinalizer | Download | Install | DefineKind | Activate | Deactivate | Uninstall


@dataclass(frozen=True, slots=True)
class Plan:
    """The next action, or why there is none. At most one of `fault` and `action` is set."""

    action: Action | None = None
    fault: Fault | None = None
    retry_at: datetime | None = None


SETTLED = Plan()


def plan_driver(state: NodeDriverState) -> Plan:
    """The next step on the way to what the object asks for."""
    driver = state.driver
    if driver.is_deleting:
        return _plan_removal(state)
    if driver.built_in_kind or not driver.is_requested:
        return _plan_activation(driver)
    if driver.faults:
        return Plan(fault=driver.faults[0])
    if (failure := _current_failure(state)) is not None:
        return Plan(fault=failure.fault, retry_at=failure.retry_at)
    if not driver.has_finalizer:
        return Plan(AddFinalizer("its files and its kind have to go before it does"))
    return _plan_install(state)


def _current_failure(state: NodeDriverState) -> Failure | None:
    """The trouble that has to be waited out: about what is asked for now, and not over yet."""
    failure = state.failure
    if failure is None or failure.inputs != state.inputs:
        return None
    return None if failure.retry_at is not None and failure.retry_at <= state.now else failure


def _plan_install(state: NodeDriverState) -> Plan:
    """From nothing to the driver in use, one step at a time."""
    driver = state.driver
    if state.installed is None or driver.url not in state.installed.urls:
        step = Install if state.downloaded else Download
        return Plan(step(driver.url, driver.checksum, _install_reason(state)))
    fault = find_name_conflict(state)
    if fault is not None:
        return Plan(fault=fault)
    if not driver.is_applied:
        return Plan(DefineKind(state.installed, _install_reason(state)))
    if not (
        state.kind_external
        or is_current(
            state.crd, state.installed.name, schema_source(driver.checksum, driver.field_annotations)
        )
    ):
        because = f"{driver.config_kind} is not defined as this driver has it"
        return Plan(DefineKind(state.installed, because))
    return _plan_activation(driver)


def _install_reason(state: NodeDriverState) -> str:
    driver = state.driver
    url, checksum = driver.applied
    if not checksum:
        return "it is not installed yet"
    if url != driver.url:
        return f"its URL changed from {redact_url(url)}"
    if checksum != driver.checksum:
        return f"its checksum changed from {checksum[:12]}…"
    return "its program is not on the disk as it was installed"


def _plan_activation(driver: NodeDriver) -> Plan:
    """What is said of it follows what is asked; `status` tells whether that was written already."""
    return Plan(Activate("it is asked for") if driver.active else Deactivate("it is not asked for"))


def find_name_conflict(state: NodeDriverState) -> Fault | None:
    """Why the installed driver cannot be offered under its name; None where it can."""
    installed = state.installed
    if installed is None:
        return None
    kind = machine_config_kind(installed.name)
    if state.owner:
        hint = f"remove one of the two, or change the URL of {state.owner} instead"
        if state.owner_is_built_in:
            hint = "to use this one instead of what is built in, start the manager with --driver FILE"
        message = f"the file holds the driver {installed.name}, which NodeDriver {state.owner} gives already"
        return Fault(message, hint, "NameTaken")
    if state.driver.driver_name not in ("", installed.name):
        return Fault(
            f"the file holds the driver {installed.name}, and this object gave {state.driver.driver_name}",
            "add it as another NodeDriver",
            "NameTaken",
        )
    if state.kind_external:
        return None
    if state.crd is not None and not is_deleting(state.crd) and not is_generated(state.crd):
        return Fault(
            f"the kind {kind.kind} is defined by somebody else",
            f"remove the definition {kind.group_resource} if nobody needs it",
            "NameTaken",
        )
    return None


def _plan_removal(state: NodeDriverState) -> Plan:
    driver = state.driver
    if not driver.has_finalizer:
        return SETTLED
    kind = driver.config_kind
    if state.clusters:
        return Plan(fault=in_use_fault(kind, state.clusters))
    if state.machines:
        return Plan(fault=_machines_exist_fault(driver.driver_name, state.machines))
    because = DELETED_MESSAGE + (
        f"; {kind} stays, because objects of it exist" if state.machine_configs else ""
    )
    return Plan(Uninstall(kind, bool(state.machine_configs), because))


def in_use_fault(kind: str, clusters: tuple[str, ...]) -> Fault:
    """Why a driver cannot go: machines that it made could not be removed any more."""
    several = len(clusters) > 1
    return Fault(
        f"{kind} is used by Cluster{'s' * several} {_join_names(clusters)}",
        f"delete {'them' if several else 'it'} first; the driver is needed to remove {'their' if several else 'its'} machines",
        "InUse",
    )


def _machines_exist_fault(driver: str, machines: tuple[str, ...]) -> Fault:
    """Why it cannot go although no Cluster names its kind any more: pools that moved to another one still lose what
    they had."""
    several = len(machines) > 1
    return Fault(
        f"the driver {driver} has made Machine{'s' * several} {_join_names(machines)}",
        f"wait until {'they are' if several else 'it is'} gone, or delete {'them' if several else 'it'}; "
        f"the driver is needed to remove {'them' if several else 'it'}",
        "InUse",
    )


def _join_names(objects: tuple[str, ...]) -> str:
    return ", ".join(objects[:3]) + (f" and {len(objects) - 3} more" if len(objects) > 3 else "")


# -- later and later ---------------------------------------------------------------------------------------------

RETRY_INITIAL = timedelta(seconds=5)
RETRY_MAX = timedelta(minutes=10)


def next_failure(previous: Failure | None, fault: Fault, state: NodeDriverState, jitter: float) -> Failure:
    """What a failed step leaves: the next attempt after 5 s, doubling up to 10 min, times `spread`."""
    is_repeat = (
        previous is not None and previous.inputs == state.inputs and previous.fault.reason == fault.reason
    )
    count = previous.count + 1 if previous is not None and is_repeat else 1
    since = previous.since if previous is not None and is_repeat else state.now
    wait = min(RETRY_INITIAL * 2 ** min(count - 1, 16), RETRY_MAX) * jitter
    # Whole seconds, because people are told.
    retry_at = (
        (state.now + wait).replace(microsecond=0) + timedelta(seconds=1) if fault.is_retryable else None
    )
    return Failure(fault, state.inputs, count, since, retry_at)
