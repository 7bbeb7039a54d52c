"""Machines of several node drivers behind one port: each order goes to the adapter that its driver stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.client.cache import Cache
from windrow.machines.board import Board
from windrow.machines.port import Machines, MachineSpec, Memory, Power, Problem, Sighting, driver_of


class MachinesByDriver:
    """The port Machines. `own` are adapters by driver name, `others` makes the machines of every other driver.

    All of them pin what they see on `board`, so there is one view of all machines.
    """

    def __init__(self, own: Mapping[str, Machines], others: Machines, board: Board[Sighting]) -> None:
        self._own, self._others, self._board = dict(own), others, board

    def _of(self, driver: str) -> Machines:
        return self._own.get(driver, self._others)

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        problems: list[Problem] = []
        for driver in dict.fromkeys(spec.driver for spec in specs):
            problems += await self._of(driver).check([spec for spec in specs if spec.driver == driver])
        return list(dict.fromkeys(problems))

    async def plan(self, spec: MachineSpec) -> Memory:
        return await self._of(spec.driver).plan(spec)

    async def ensure(self, spec: MachineSpec, memory: Memory | None) -> Memory:
        return await self._of(spec.driver).ensure(spec, memory)

    async def power(self, memory: Memory, wanted: Power) -> Memory:
        return await self._of(driver_of(memory)).power(memory, wanted)

    async def rewrite(self, memory: Memory, cloud_config: str) -> Memory:
        return await self._of(driver_of(memory)).rewrite(memory, cloud_config)

    async def remove(self, memory: Memory, volumes: frozenset[str]) -> None:
        await self._of(driver_of(memory)).remove(memory, volumes)

    def sightings(self) -> Cache[Sighting]:
        return self._board

    def watch_over(self, memory: Memory) -> None:
        self._of(driver_of(memory)).watch_over(memory)
