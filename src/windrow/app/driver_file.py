"""The plugin that shall make Harvester's machines, tried before anything is made with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windrow.app.machines import read_create_flags
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.drivers.api import Fault
from windrow.drivers.installer import probe_flags
from windrow.machines.port import HARVESTER

HINT = "name a docker-machine driver for Harvester: ours, which `make driver` builds, or the Go one"
# Every version of the Go driver has it, and no other driver.
MARKER_FLAG = "harvester-kubeconfig-content"


class BadDriver(UserError):
    """The file is no docker-machine driver for Harvester."""


async def require_harvester_driver(path: Path, env: Mapping[str, str], clock: Clock) -> None:
    """Return when the program at `path` answers as a driver for Harvester; it has ended by then. Raises BadDriver."""
    try:
        flags = await probe_flags(path, lambda program: read_create_flags(program, HARVESTER, env), clock)
    except Fault as fault:
        raise BadDriver(f"{path} is no docker-machine driver: {fault.message}", HINT) from fault
    if MARKER_FLAG not in {flag.name for flag in flags}:
        raise BadDriver(
            f"{path} is a docker-machine driver, but not for Harvester: it has no flag {MARKER_FLAG}", HINT
        )
