"""The plugin that shall make Harvester's machines, tried before anything is made with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windrow.assembly.machinery import ask_flags
from windrow.catalogue.asking import ask
from windrow.catalogue.faults import Fault
from windrow.machines.port import HARVESTER
from windrow.values.clock import Clock

CURE = "name a docker-machine driver for Harvester: ours, which `make driver` builds, or the Go one"
# Every version of the Go driver has it, and no other driver.
MARK = "harvester-kubeconfig-content"


class BadDriver(Exception):
    """The file is no docker-machine driver for Harvester."""

    def __init__(self, fact: str, cure: str) -> None:
        super().__init__(f"{fact}; {cure}")
        self.fact, self.cure = fact, cure


async def insist_on_driver(path: Path, env: Mapping[str, str], clock: Clock) -> None:
    """Return when the program at `path` answers as a driver for Harvester; it has ended by then. Raises BadDriver."""
    try:
        flags = await ask(path, lambda program: ask_flags(program, HARVESTER, env), clock)
    except Fault as fault:
        raise BadDriver(f"{path} is no docker-machine driver: {fault.fact}", CURE) from fault
    if MARK not in {flag.name for flag in flags}:
        raise BadDriver(
            f"{path} is a docker-machine driver, but not for Harvester: it has no flag {MARK}", CURE
        )
