"""Which node driver makes the machines of a machine config kind, in the cluster manager's words for the catalogue's."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.clusters.api.cluster import harvester_only
from windrow.drivers.api import NodeDriver, find_driver, find_refusal
from windrow.machines.port import Problem


def driver_for_kind(kind: str, drivers: Iterable[NodeDriver]) -> str | Problem:
    """The name of the driver that gives the kind, or why no machine can be made by it now.

    HarvesterConfig is given also where no record says so: a manager that has only begun has none yet, and whoever
    deleted it gets it back at the next start.
    """
    known = tuple(drivers)
    driver, fault = find_driver(kind, known), find_refusal(kind, known)
    if driver is None:
        return harvester_only(kind)
    return driver.driver_name if fault is None else Problem(fault.message, fault.hint)
