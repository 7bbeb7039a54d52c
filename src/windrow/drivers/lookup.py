"""Which driver gives a machine config kind, and whether Clusters may use it now. Pure, over readings of NodeDrivers."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.drivers.api import NodeDriver
from windrow.drivers.faults import Fault


def find_driver(kind: str, drivers: Iterable[NodeDriver]) -> NodeDriver | None:
    """The driver that gives the kind, active or not; None where none does."""
    return next((one for one in drivers if one.config_kind == kind and not one.is_deleting), None)


def no_driver_fault() -> Fault:
    """Said of a kind that no driver gives."""
    return Fault(
        "no node driver gives that kind", "name a HarvesterConfig, or add the driver: windrow driver add"
    )


def find_refusal(kind: str, drivers: Iterable[NodeDriver]) -> Fault | None:
    """Why no Cluster may use the kind now; None where it may."""
    driver = find_driver(kind, drivers)
    if driver is None:
        return no_driver_fault()
    if not driver.active:
        return Fault(
            f"the node driver {driver.name}, which gives that kind, is not active",
            f"activate it: windrow driver enable {driver.name}",
        )
    return None
