"""How a NodeDriver stands, in conditions and sentences. Derived once, from all that was seen and planned."""

from __future__ import annotations

from typing import Any

from windrow.core.clock import format_time
from windrow.drivers.api import DELETED_MESSAGE, NodeDriver, redact_url
from windrow.drivers.faults import Fault, Reason
from windrow.drivers.plan import (
    AddFinalizer,
    Deactivate,
    DefineKind,
    Download,
    Install,
    NodeDriverState,
    Plan,
)
from windrow.kubernetes.conditions import Condition, ConditionStatus, set_condition

DOWNLOADED, INSTALLED, ACTIVE, INACTIVE = "Downloaded", "Installed", "Active", "Inactive"

# Which condition a fault stands in first; those not named here concern the installation.
_DOWNLOAD_REASONS: frozenset[Reason] = frozenset(
    {"Refused", "ServerAway", "DownloadFailed", "ChecksumMismatch"}
)


def fault_message(plan: Plan) -> str:
    """The fault with its cure, and when it is tried again."""
    if plan.fault is None:
        return ""
    retry = f"; the next attempt is at {format_time(plan.retry_at)}" if plan.retry_at is not None else ""
    return f"{plan.fault}{retry}"


def derive_status(state: NodeDriverState, plan: Plan) -> dict[str, Any]:
    """The fields of `status` that are the catalogue's. None takes a field away."""
    status: dict[str, Any] = dict(_identity_fields(state, plan))
    conditions = state.driver.status.get("conditions")
    for one in (_downloaded(state, plan), _installed(state, plan), *_active(state, plan)):
        conditions = set_condition(conditions, one, state.now)
    return {**status, "observedGeneration": state.driver.generation, "conditions": conditions}


def _identity_fields(state: NodeDriverState, plan: Plan) -> dict[str, str | None]:
    """Whose name and kind it has. What an installation gave is written by that (`offered`), not here."""
    driver = state.driver
    if driver.built_in_kind:
        return {"appliedURL": driver.url, "driverName": driver.name, "configKind": driver.built_in_kind}
    if _lost_name(state, plan):
        return dict.fromkeys(("appliedURL", "appliedChecksum", "driverName", "configKind", "binaryChecksum"))
    return {}


def _lost_name(state: NodeDriverState, plan: Plan) -> bool:
    """Whether the very name that it gives turns out to be another's."""
    has_conflict = plan.fault is not None and plan.fault.reason == "NameTaken"
    return has_conflict and state.installed is not None and state.installed.name == state.driver.driver_name


def render_installed(state: NodeDriverState, action: DefineKind, kind: str) -> dict[str, Any]:
    """The fields that say which driver is in use, once it has answered."""
    return {
        "appliedURL": state.driver.url,
        "appliedChecksum": state.driver.checksum,
        "driverName": action.installed.name,
        "configKind": kind,
        "binaryChecksum": action.installed.binary_digest,
    }


def summary_condition(state: NodeDriverState, plan: Plan) -> Condition:
    """The one condition that says it all."""
    return _active(state, plan)[0]


# -- the conditions ----------------------------------------------------------------------------------------------


def _downloaded(state: NodeDriverState, plan: Plan) -> Condition:
    driver = state.driver
    if driver.built_in_kind:
        return Condition(DOWNLOADED, "True", "BuiltIn", "it is part of Windrow")
    if plan.fault is not None and _concerns_download(plan.fault, state):
        return Condition(DOWNLOADED, "False", plan.fault.reason, fault_message(plan))
    if isinstance(plan.action, AddFinalizer | Download):
        message = f"downloading {redact_url(driver.url)}, because {_download_reason(state, plan)}"
        return Condition(DOWNLOADED, "Unknown", "Downloading", message)
    if isinstance(plan.action, Deactivate) and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "NotActive", "nothing is downloaded while it is not active")
    if driver.is_deleting and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "Deleted", DELETED_MESSAGE)
    return Condition(DOWNLOADED, "True", "Downloaded", f"from {redact_url(driver.url)}")


def _installed(state: NodeDriverState, plan: Plan) -> Condition:
    driver = state.driver
    if driver.built_in_kind:
        return Condition(INSTALLED, "True", "BuiltIn", "it is part of Windrow")
    fault = plan.fault
    if fault is not None and fault.reason != "InUse" and not _concerns_download(fault, state):
        return Condition(INSTALLED, "False", fault.reason, fault_message(plan))
    if isinstance(plan.action, Install):
        return Condition(INSTALLED, "Unknown", "Installing", "unpacking what was downloaded")
    if isinstance(plan.action, DefineKind):
        return Condition(INSTALLED, "Unknown", "Installing", "asking the driver for its create flags")
    if not driver.applied[1]:
        return Condition(INSTALLED, "Unknown", "NotDownloaded", "it has to be downloaded first")
    source = redact_url(driver.applied[0])
    return Condition(INSTALLED, "True", "Installed", f"the driver {driver.driver_name}, from {source}")


def _active(state: NodeDriverState, plan: Plan) -> tuple[Condition, Condition]:
    status, reason, message = _active_state(state, plan)
    inactive: ConditionStatus = "True" if not state.driver.active else "False"
    return Condition(ACTIVE, status, reason, message), Condition(INACTIVE, inactive, reason, message)


def _active_state(state: NodeDriverState, plan: Plan) -> tuple[ConditionStatus, str, str]:
    driver, fault = state.driver, plan.fault
    usable = driver.is_usable and not _lost_name(state, plan)
    if fault is not None and usable:
        return (
            "True",
            "OlderInUse",
            f"{fault_message(plan)}; until then {_current_source(driver)} stays in use",
        )
    if fault is not None:
        return "False", fault.reason, fault_message(plan)
    if driver.is_deleting:
        return "False", "Deleted", DELETED_MESSAGE
    if not driver.active:
        return "False", "Deactivated", "no Cluster may use it now"
    if usable and not isinstance(plan.action, AddFinalizer | Download | Install | DefineKind):
        return "True", "Active", f"Clusters may use {driver.config_kind}"
    progress = (
        _downloaded(state, plan)
        if isinstance(plan.action, AddFinalizer | Download)
        else _installed(state, plan)
    )
    if usable:
        return "True", "Updating", f"{progress.message}; until then {_current_source(driver)} stays in use"
    return "Unknown", progress.reason, progress.message


def _current_source(driver: NodeDriver) -> str:
    return f"the driver from {redact_url(driver.applied[0])}"


def _concerns_download(fault: Fault, state: NodeDriverState) -> bool:
    if fault.reason == "StoreFailed":
        return not state.downloaded and state.installed is None
    return fault.reason in _DOWNLOAD_REASONS


def _download_reason(state: NodeDriverState, plan: Plan) -> str:
    return plan.action.because if isinstance(plan.action, Download) else "it is not installed yet"
