"""Plans the next action for one NodeDriver from its observed state. Pure.

    absent ─ AddFinalizer ─> Download ─> Install ─> DefineKind ─> settled
                            (verified)  (unpacked) (flags read, CRD applied)

One action at a time: each leaves a result that the next reconcile observes, on disk or in the API, so that a crash
between two actions needs no recovery. The driver in use stays in use until its successor was probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from windrow.controller.controller import Backoff
from windrow.core.rng import Rng
from windrow.core.text import join_some
from windrow.drivers.api import DELETED_MESSAGE, Fault, NodeDriver, redact_url
from windrow.drivers.schema import is_current, is_generated, machine_config_kind, schema_source
from windrow.drivers.store import InstalledDriver
from windrow.kubernetes.objects import is_deleting

# -- state -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure, with the inputs of that attempt. `retry_at` is None where only a change of the spec helps."""

    fault: Fault
    inputs: tuple[object, ...]
    count: int
    at: datetime
    since: datetime  # of the first in a row
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class NodeDriverState:
    """The observed state. `installed` and `downloaded` are for the checksum in the spec."""

    driver: NodeDriver
    now: datetime
    downloaded: bool = False
    installed: InstalledDriver | None = None
    crd: Mapping[str, Any] | None = None  # the CRD of the kind of `installed`
    owner: str = ""  # the other NodeDriver that provides the driver in `installed`
    owner_is_built_in: bool = False
    kind_external: bool = False  # the kind's CRD is managed by another part of Windrow
    clusters: tuple[str, ...] = ()  # Clusters that use the kind
    machines: tuple[str, ...] = ()  # Machines created with the driver
    machine_configs: tuple[str, ...] = ()  # machine config objects of the kind
    failure: Failure | None = None
    sandbox: str | None = None  # what its program runs in, "" for nothing; None where that is not known here

    @property
    def inputs(self) -> tuple[object, ...]:
        """The inputs of an attempt: as long as they are the same, so is a failure."""
        driver = self.driver
        return driver.uid, driver.url, driver.checksum, driver.field_annotations


# -- actions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add our finalizer, so that files and CRD are removed before the object."""

    because: str


@dataclass(frozen=True, slots=True)
class Download:
    verb: ClassVar[str] = "downloading"
    url: str
    checksum: str
    because: str


@dataclass(frozen=True, slots=True)
class Install:
    """Unpack the download and install the binary."""

    verb: ClassVar[str] = "installing"
    url: str
    checksum: str
    because: str


@dataclass(frozen=True, slots=True)
class DefineKind:
    """Read the create flags of the binary, apply the kind's CRD, and make it the driver in use."""

    verb: ClassVar[str] = "reading its create flags"
    installed: InstalledDriver
    because: str


@dataclass(frozen=True, slots=True)
class Uninstall:
    """Remove the files, the CRD unless objects of it exist, and our finalizer."""

    kind: str
    keep_kind: bool
    because: str


Action = AddFinalizer | Download | Install | DefineKind | Uninstall


@dataclass(frozen=True, slots=True)
class Plan:
    """The next action, or the fault that prevents one; neither where the spec is fulfilled."""

    action: Action | None = None
    fault: Fault | None = None
    retry_at: datetime | None = None


SETTLED = Plan()


def plan_driver(state: NodeDriverState) -> Plan:
    """The next action towards the spec."""
    driver = state.driver
    if driver.is_deleting:
        return _plan_removal(state)
    if driver.is_built_in or not driver.is_requested:
        return SETTLED
    if driver.faults:
        return Plan(fault=driver.faults[0])
    if (failure := _current_failure(state)) is not None:
        return Plan(fault=failure.fault, retry_at=failure.retry_at)
    if not driver.has_finalizer and not driver.built_in_kind:
        return Plan(AddFinalizer("its files and its CRD are removed before it"))
    return _plan_install(state)


def _current_failure(state: NodeDriverState) -> Failure | None:
    """The failure whose retry is still due, for the same inputs."""
    failure = state.failure
    if failure is None or failure.inputs != state.inputs:
        return None
    return None if failure.retry_at is not None and failure.retry_at <= state.now else failure


def _plan_install(state: NodeDriverState) -> Plan:
    """The next action from nothing to the driver in use."""
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
        because = f"the CRD of {driver.config_kind} differs from the driver's create flags"
        return Plan(DefineKind(state.installed, because))
    return SETTLED


def _install_reason(state: NodeDriverState) -> str:
    driver = state.driver
    url, checksum = driver.applied
    if not checksum:
        return "it is not installed"
    if url != driver.url:
        return f"its URL changed from {redact_url(url)}"
    if checksum != driver.checksum:
        return f"its checksum changed from {checksum[:12]}…"
    return "its binary is not on disk as it was installed"


def find_name_conflict(state: NodeDriverState) -> Fault | None:
    """Why the installed driver cannot have its name; None where it can."""
    installed = state.installed
    if installed is None:
        return None
    kind = machine_config_kind(installed.name)
    if state.owner:
        hint = f"remove one of the two, or change the URL of {state.owner} instead"
        if state.owner_is_built_in:
            hint = f"set URL and checksum of NodeDriver {state.owner} instead, until the next start of the manager"
        message = (
            f"the file contains driver {installed.name}, which NodeDriver {state.owner} provides already"
        )
        return Fault(message, hint, "NameConflict")
    if state.driver.driver_name not in ("", installed.name):
        return Fault(
            f"the file contains driver {installed.name}, and this NodeDriver provided {state.driver.driver_name} before",
            "add it as another NodeDriver",
            "NameConflict",
        )
    if state.kind_external:
        return None
    if state.crd is not None and not is_deleting(state.crd) and not is_generated(state.crd):
        return Fault(
            f"CustomResourceDefinition {kind.group_resource} exists and was not created for a NodeDriver",
            "delete it if it is unused",
            "NameConflict",
        )
    return None


def _plan_removal(state: NodeDriverState) -> Plan:
    driver = state.driver
    if not driver.has_finalizer:
        return SETTLED
    kind = driver.config_kind
    if state.clusters:
        hint = "delete these Clusters first; the driver is needed to remove their machines"
        return Plan(fault=_in_use(f"{kind} is used by Clusters", state.clusters, hint))
    if state.machines:
        # No Cluster names the kind, but pools that moved to another kind still remove theirs.
        hint = "wait until these Machines are deleted, or delete them; the driver is needed to remove them"
        return Plan(fault=_in_use(f"driver {driver.driver_name} has Machines", state.machines, hint))
    because = DELETED_MESSAGE + (
        f"; the CRD of {kind} stays, because objects of it exist" if state.machine_configs else ""
    )
    return Plan(Uninstall(kind, bool(state.machine_configs), because))


def _in_use(subject: str, users: tuple[str, ...], hint: str) -> Fault:
    return Fault(f"{subject} {join_some(users)}", hint, "InUse")


# -- retries -----------------------------------------------------------------------------------------------------

RETRY = Backoff(timedelta(seconds=5), timedelta(minutes=10))


def next_failure(previous: Failure | None, fault: Fault, state: NodeDriverState, rng: Rng) -> Failure:
    """The failure to record; it counts on where `previous` was of the same inputs and reason."""
    if previous is not None and previous.inputs == state.inputs and previous.fault.reason == fault.reason:
        count, since = previous.count + 1, previous.since
    else:
        count, since = 1, state.now
    # Whole seconds, as the status shows them.
    retry_at = (state.now + RETRY.delay(count, rng)).replace(microsecond=0) + timedelta(seconds=1)
    return Failure(fault, state.inputs, count, state.now, since, retry_at if fault.is_retryable else None)
