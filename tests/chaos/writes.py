"""A user who writes to the management API all the time, and what was acknowledged to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.api import MERGE_PATCH, Api, Unanswered

PATH = "/api/v1/namespaces/default/configmaps"
NAMES = tuple(f"written-{number}" for number in range(4))


@dataclass
class Writer:
    """Counts up in a few ConfigMaps. Numbers only grow, so that a lost write shows."""

    api: Api
    acknowledged: dict[str, int] = field(default_factory=dict)
    attempted: dict[str, int] = field(default_factory=dict)
    total: int = 0

    async def create(self) -> None:
        for name in NAMES:
            await self.api.demand("POST", PATH, {"metadata": {"name": name}, "data": {"number": "0"}})
            self.acknowledged[name] = self.attempted[name] = 0

    async def run(self, every_s: float = 0.1) -> None:
        number = 0
        while True:
            number += 1
            name = NAMES[number % len(NAMES)]
            self.attempted[name] = number
            try:
                patch = {"data": {"number": str(number)}}
                answer = await self.api.call("PATCH", f"{PATH}/{name}", patch, MERGE_PATCH, within=3)
            except Unanswered:
                await asyncio.sleep(every_s)
                continue
            if answer.ok:
                self.acknowledged[name] = number
                self.total += 1
            await asyncio.sleep(every_s)

    def roll_back(self, to: Mapping[str, int]) -> None:
        """What was acknowledged since `to` is lost, as must be."""
        self.acknowledged = dict(to)

    async def found(self) -> dict[str, int]:
        raws = {raw["metadata"]["name"]: raw for raw in await self.api.list(PATH)}
        return {name: int(raws[name]["data"]["number"]) for name in NAMES if name in raws}
