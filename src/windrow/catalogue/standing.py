"""How a NodeDriver stands, in conditions and sentences. Derived once, from all that was seen and planned."""

from __future__ import annotations

from typing import Any

from windrow.catalogue.faults import Fault, Reason
from windrow.catalogue.plan import Claim, Deactivate, Download, Install, Offer, Plan, Seen
from windrow.catalogue.reading import DELETED, NodeDriver, show_url
from windrow.kube.conditions import Condition, Truth, set_condition
from windrow.values.clock import stamp

DOWNLOADED, INSTALLED, ACTIVE, INACTIVE = "Downloaded", "Installed", "Active", "Inactive"

# Which condition a fault stands in first; those not named here concern the installation.
_WHILE_DOWNLOADING: frozenset[Reason] = frozenset(
    {"Refused", "ServerAway", "DownloadFailed", "ChecksumMismatch"}
)


def say_fault(plan: Plan) -> str:
    """The fault with its cure, and when it is tried again."""
    if plan.fault is None:
        return ""
    again = f"; the next attempt is at {stamp(plan.again)}" if plan.again is not None else ""
    return f"{plan.fault}{again}"


def derive_status(seen: Seen, plan: Plan) -> dict[str, Any]:
    """The fields of `status` that are the catalogue's. None takes a field away."""
    status: dict[str, Any] = dict(_place(seen, plan))
    conditions = seen.driver.status.get("conditions")
    for one in (_downloaded(seen, plan), _installed(seen, plan), *_active(seen, plan)):
        conditions = set_condition(conditions, one, seen.now)
    return {**status, "observedGeneration": seen.driver.generation, "conditions": conditions}


def _place(seen: Seen, plan: Plan) -> dict[str, str | None]:
    """Whose name and kind it has. What an installation gave is written by that (`offered`), not here."""
    driver = seen.driver
    if driver.own_kind:
        return {"appliedURL": driver.url, "driverName": driver.name, "configKind": driver.own_kind}
    if _loses_its_place(seen, plan):
        return dict.fromkeys(("appliedURL", "appliedChecksum", "driverName", "configKind", "binaryChecksum"))
    return {}


def _loses_its_place(seen: Seen, plan: Plan) -> bool:
    """Whether the very name that it gives turns out to be another's."""
    taken = plan.fault is not None and plan.fault.reason == "NameTaken"
    return taken and seen.stored is not None and seen.stored.name == seen.driver.driver_name


def offered(seen: Seen, action: Offer, kind: str) -> dict[str, Any]:
    """The fields that say which driver is in use, once it has answered."""
    return {
        "appliedURL": seen.driver.url,
        "appliedChecksum": seen.driver.checksum,
        "driverName": action.stored.name,
        "configKind": kind,
        "binaryChecksum": action.stored.binary_digest,
    }


def headline(seen: Seen, plan: Plan) -> Condition:
    """The one condition that says it all."""
    return _active(seen, plan)[0]


# -- the conditions ----------------------------------------------------------------------------------------------


def _downloaded(seen: Seen, plan: Plan) -> Condition:
    driver = seen.driver
    if driver.own_kind:
        return Condition(DOWNLOADED, "True", "BuiltIn", "it is part of Windrow")
    if plan.fault is not None and _hits_download(plan.fault, seen):
        return Condition(DOWNLOADED, "False", plan.fault.reason, say_fault(plan))
    if isinstance(plan.action, Claim | Download):
        message = f"downloading {show_url(driver.url)}, because {_because(seen, plan)}"
        return Condition(DOWNLOADED, "Unknown", "Downloading", message)
    if isinstance(plan.action, Deactivate) and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "NotActive", "nothing is downloaded while it is not active")
    if driver.is_deleting and not driver.applied[1]:
        return Condition(DOWNLOADED, "Unknown", "Deleted", DELETED)
    return Condition(DOWNLOADED, "True", "Downloaded", f"from {show_url(driver.url)}")


def _installed(seen: Seen, plan: Plan) -> Condition:
    driver = seen.driver
    if driver.own_kind:
        return Condition(INSTALLED, "True", "BuiltIn", "it is part of Windrow")
    fault = plan.fault
    if fault is not None and fault.reason != "InUse" and not _hits_download(fault, seen):
        return Condition(INSTALLED, "False", fault.reason, say_fault(plan))
    if isinstance(plan.action, Install):
        return Condition(INSTALLED, "Unknown", "Installing", "unpacking what was downloaded")
    if isinstance(plan.action, Offer):
        return Condition(INSTALLED, "Unknown", "Installing", "asking the driver for its create flags")
    if not driver.applied[1]:
        return Condition(INSTALLED, "Unknown", "NotDownloaded", "it has to be downloaded first")
    whence = show_url(driver.applied[0])
    return Condition(INSTALLED, "True", "Installed", f"the driver {driver.driver_name}, from {whence}")


def _active(seen: Seen, plan: Plan) -> tuple[Condition, Condition]:
    status, reason, message = _verdict(seen, plan)
    inactive: Truth = "True" if not seen.driver.active else "False"
    return Condition(ACTIVE, status, reason, message), Condition(INACTIVE, inactive, reason, message)


def _verdict(seen: Seen, plan: Plan) -> tuple[Truth, str, str]:
    driver, fault = seen.driver, plan.fault
    works = driver.is_usable and not _loses_its_place(seen, plan)
    if fault is not None and works:
        return "True", "OlderInUse", f"{say_fault(plan)}; until then {_older(driver)} stays in use"
    if fault is not None:
        return "False", fault.reason, say_fault(plan)
    if driver.is_deleting:
        return "False", "Deleted", DELETED
    if not driver.active:
        return "False", "Deactivated", "no Cluster may use it now"
    if works and not isinstance(plan.action, Claim | Download | Install | Offer):
        return "True", "Active", f"Clusters may use {driver.config_kind}"
    doing = _downloaded(seen, plan) if isinstance(plan.action, Claim | Download) else _installed(seen, plan)
    if works:
        return "True", "Updating", f"{doing.message}; until then {_older(driver)} stays in use"
    return "Unknown", doing.reason, doing.message


def _older(driver: NodeDriver) -> str:
    return f"the driver from {show_url(driver.applied[0])}"


def _hits_download(fault: Fault, seen: Seen) -> bool:
    if fault.reason == "StoreFailed":
        return not seen.downloaded and seen.stored is None
    return fault.reason in _WHILE_DOWNLOADING


def _because(seen: Seen, plan: Plan) -> str:
    return plan.action.because if isinstance(plan.action, Download) else "it is not installed yet"
