"""The status of a NodeDriver: fields and conditions, derived once from the observed state and the plan."""

from __future__ import annotations

import logging
from typing import Any

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.core.clock import Clock, format_time
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.drivers.api import DELETED_MESSAGE, LOCAL_URL, NODE_DRIVER, Fault, NodeDriver, Reason, redact_url
from windrow.drivers.plan import AddFinalizer, DefineKind, Download, Install, NodeDriverState, Plan
from windrow.kubernetes.conditions import Condition, ConditionStatus, set_condition
from windrow.kubernetes.objects import Raw, is_deleting
from windrow.kubernetes.patches import make_merge_patch

DOWNLOADED, INSTALLED, ACTIVE, INACTIVE = "Downloaded", "Installed", "Active", "Inactive"
SANDBOXED = "Sandboxed"

# Reasons of the condition Downloaded; all others belong to Installed.
_DOWNLOAD_REASONS: frozenset[Reason] = frozenset(
    {"InvalidSpec", "ServerUnreachable", "DownloadFailed", "ChecksumMismatch"}
)


def fault_message(plan: Plan) -> str:
    """The fault with its hint, and the time of the next attempt."""
    if plan.fault is None:
        return ""
    retry = f"; the next attempt is at {format_time(plan.retry_at)}" if plan.retry_at is not None else ""
    return f"{plan.fault}{retry}"


def derive_status(state: NodeDriverState, plan: Plan) -> dict[str, Any]:
    """The controller's fields of `status`. None removes a field."""
    conditions = state.driver.status.get("conditions")
    sandboxed = () if state.sandbox is None or state.driver.is_built_in else (_sandboxed(state.sandbox),)
    for one in (_downloaded(state, plan), _installed(state, plan), *sandboxed, *_active(state, plan)):
        conditions = set_condition(conditions, one, state.now)
    fields = _identity_fields(state, plan)
    return {**fields, "observedGeneration": state.driver.generation, "conditions": conditions}


def _identity_fields(state: NodeDriverState, plan: Plan) -> dict[str, str | None]:
    """The fields of the driver's identity. Those of an installation are written by `DefineKind` (`render_installed`)."""
    driver = state.driver
    if driver.is_built_in:
        own = {"appliedURL": LOCAL_URL, "driverName": driver.name, "configKind": driver.built_in_kind}
        return {**own, "appliedChecksum": None, "binaryChecksum": None}
    if _lost_name(state, plan):
        return dict.fromkeys(("appliedURL", "appliedChecksum", "driverName", "configKind", "binaryChecksum"))
    return {}


def _lost_name(state: NodeDriverState, plan: Plan) -> bool:
    """Whether the name that it provides belongs to another NodeDriver."""
    has_conflict = plan.fault is not None and plan.fault.reason == "NameConflict"
    return has_conflict and state.installed is not None and state.installed.name == state.driver.driver_name


def render_installed(state: NodeDriverState, action: DefineKind, kind: str) -> dict[str, Any]:
    """The fields of the driver in use, once it was probed."""
    return {
        "appliedURL": state.driver.url,
        "appliedChecksum": state.driver.checksum,
        "driverName": action.installed.name,
        "configKind": kind,
        "binaryChecksum": action.installed.binary_digest,
    }


# -- the conditions ----------------------------------------------------------------------------------------------


def _downloaded(state: NodeDriverState, plan: Plan) -> Condition:
    driver = state.driver
    if driver.is_built_in:
        return Condition(DOWNLOADED, "True", "BuiltIn", "built in")
    if plan.fault is not None and _concerns_download(plan.fault, state):
        return Condition(DOWNLOADED, "False", plan.fault.reason, fault_message(plan))
    if isinstance(plan.action, AddFinalizer | Download):
        message = f"downloading {redact_url(driver.url)}, because {_download_reason(state, plan)}"
        return Condition(DOWNLOADED, "Unknown", "Downloading", message)
    if driver.is_deleting and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "Deleting", DELETED_MESSAGE)
    if not driver.is_requested and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "NotActive", "not downloaded while spec.active is false")
    return Condition(DOWNLOADED, "True", "Downloaded", f"from {redact_url(driver.url)}")


def _installed(state: NodeDriverState, plan: Plan) -> Condition:
    driver = state.driver
    if driver.is_built_in:
        return Condition(INSTALLED, "True", "BuiltIn", "built in")
    fault = plan.fault
    if fault is not None and fault.reason != "InUse" and not _concerns_download(fault, state):
        return Condition(INSTALLED, "False", fault.reason, fault_message(plan))
    if isinstance(plan.action, Install):
        return Condition(INSTALLED, "Unknown", "Installing", "unpacking the download")
    if isinstance(plan.action, DefineKind):
        return Condition(INSTALLED, "Unknown", "Installing", "reading the driver's create flags")
    if not driver.applied[1]:
        return Condition(INSTALLED, "Unknown", "NotDownloaded", "not downloaded yet")
    source = redact_url(driver.applied[0])
    return Condition(INSTALLED, "True", "Installed", f"driver {driver.driver_name} from {source}")


def _sandboxed(sandbox: str) -> Condition:
    if not sandbox:
        message = "this kernel has no Landlock, so the driver can read the manager's state directory; use Linux 5.13 or later"
        return Condition(SANDBOXED, "False", "NotSupported", message)
    return Condition(
        SANDBOXED, "True", "Landlock", f"it runs without access to the manager's state ({sandbox})"
    )


def _active(state: NodeDriverState, plan: Plan) -> tuple[Condition, Condition]:
    status, reason, message = _active_state(state, plan)
    inactive: ConditionStatus = "True" if not state.driver.active else "False"
    return Condition(ACTIVE, status, reason, message), Condition(INACTIVE, inactive, reason, message)


def _active_state(state: NodeDriverState, plan: Plan) -> tuple[ConditionStatus, str, str]:
    driver, fault = state.driver, plan.fault
    usable = driver.is_usable and not _lost_name(state, plan)
    if fault is not None and usable:
        message = f"{fault_message(plan)}; {_current_source(driver)} stays in use"
        return "True", "UpdateFailed", message
    if fault is not None:
        return "False", fault.reason, fault_message(plan)
    if driver.is_deleting:
        return "False", "Deleting", DELETED_MESSAGE
    if not driver.active:
        return "False", "Deactivated", "Clusters cannot use it"
    if usable and not isinstance(plan.action, AddFinalizer | Download | Install | DefineKind):
        return "True", "Active", f"Clusters can use {driver.config_kind}"
    progress = (
        _downloaded(state, plan)
        if isinstance(plan.action, AddFinalizer | Download)
        else _installed(state, plan)
    )
    if usable:
        return "True", "Updating", f"{progress.message}; {_current_source(driver)} stays in use until then"
    return "Unknown", progress.reason, progress.message


def _current_source(driver: NodeDriver) -> str:
    is_own = driver.built_in_kind and not driver.applied[1]
    return "Windrow's own driver" if is_own else f"the driver from {redact_url(driver.applied[0])}"


def _concerns_download(fault: Fault, state: NodeDriverState) -> bool:
    if fault.reason == "StorageFailed":
        return not state.downloaded and state.installed is None
    return fault.reason in _DOWNLOAD_REASONS


def _download_reason(state: NodeDriverState, plan: Plan) -> str:
    return plan.action.because if isinstance(plan.action, Download) else "it is not installed"


log = with_values(logging.getLogger(__name__))


class StatusWriter:
    """Status, event and log record have the same message."""

    def __init__(self, api: Client, clock: Clock, rng: Rng) -> None:
        self._api = api
        self._recorder = EventRecorder(api, "windrow-drivers", clock, rng)
        self._recorded: dict[str, tuple[str, str, str]] = {}

    def forget(self, name: str) -> None:
        """The object is deleted; another of its name gets events of its own."""
        self._recorded.pop(name, None)

    async def write(self, raw: Raw, state: NodeDriverState, plan: Plan) -> Raw:
        """Patch the status where it changed. Returns the current object."""
        status = derive_status(state, plan)
        had = {key: value for key, value in state.driver.status.items() if key in status}
        change = make_merge_patch(had, {key: value for key, value in status.items() if value is not None})
        if not change or (is_deleting(raw) and not state.driver.has_finalizer):
            return raw
        ref = NODE_DRIVER.ref(state.driver.name)
        raw = await self._api.patch(ref, {"status": change}, subresource="status")
        await self._record_event(state, plan)
        return raw

    async def _record_event(self, state: NodeDriverState, plan: Plan) -> None:
        condition, _ = _active(state, plan)
        message = str(plan.fault) if plan.fault is not None else condition.message
        content = (condition.status, condition.reason, message)
        is_retry = state.failure is not None and state.failure.inputs == state.inputs and plan.fault is None
        if self._recorded.get(state.driver.name) == content or (is_retry and condition.status != "True"):
            return
        self._recorded[state.driver.name] = content
        is_fault = plan.fault is not None
        log.log(logging.WARNING if is_fault else logging.INFO, "%s", message, nodedriver=state.driver.name)
        ref = NODE_DRIVER.ref(state.driver.name)
        note = EventNote(
            ref, state.driver.uid, condition.reason, message, "Warning" if is_fault else "Normal"
        )
        await self._recorder.write(note)
