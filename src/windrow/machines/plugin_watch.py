"""Looking after machines: again and again while nothing happens, and beside a deed while one goes on.

Plugins offer nothing to watch, so this is the one place that polls (design §2, rule 2): quickly while a machine is on
its way, slowly while it is steady, at once after an order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from windrow.machines.board import Board, dated
from windrow.machines.plugin_charges import ACCOUNT, Charge
from windrow.machines.plugin_proof import lost_track, other_account
from windrow.machines.plugin_sight import Glimpse, look, mend
from windrow.machines.plugin_spyglass import Spyglasses
from windrow.machines.plugin_workshop import Workshop, explained
from windrow.machines.plugins import DriverSaid, Plugin, PluginError
from windrow.machines.port import HARVESTER, InfrastructureUnknown, Sighting
from windrow.reconcile.alarm import either
from windrow.values.chance import Chance
from windrow.values.clock import Clock

# How many machines that have ended are still shown as missing.
ENDED_KEPT = 1000
_STEADY = frozenset({"running", "stopped"})
_GLANCES = (0.2, 0.3, 0.5, 1.0, 2.0, 3.0)  # seconds between looks while a deed goes on; the last one stays

Seen = Callable[[Glimpse], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a machine is looked at, and how long an order waits to be taken."""

    quick: timedelta = timedelta(seconds=5)
    steady: timedelta = timedelta(seconds=45)
    doubtful: timedelta = timedelta(seconds=15)
    create_taken: float = 45.0
    other_taken: float = 20.0


class Watch:
    """The machines in charge, and what is seen of them, on `board`."""

    def __init__(
        self, workshop: Workshop, board: Board[Sighting], clock: Clock, chance: Chance, pace: Pace
    ) -> None:
        self.board = board
        self.charges: dict[str, Charge] = {}
        self._workshop, self._clock, self._chance, self._pace = workshop, clock, chance, pace
        self._spyglasses = Spyglasses(workshop)
        self._ended: deque[str] = deque()

    async def look_after(self, charge: Charge) -> None:
        """Look at the machine again and again, as often as its state calls for, until it has ended."""
        while charge.uid in self.charges:
            charge.poked.clear()
            if not charge.seen_by_deed:
                try:
                    await self._look(charge)
                except Exception as error:
                    log.exception("looking at %s", charge.name)
                    self.tell_unknown(charge, f"it could not be looked at: {type(error).__name__}: {error}")
            await either(self._clock, self._pause(charge), charge.poked)
        if not any(other.credential == charge.credential for other in self.charges.values()):
            await self._spyglasses.put_away(charge.credential)

    async def close(self) -> None:
        """Leave no process."""
        await self._spyglasses.close()

    def tell_unknown(self, charge: Charge, because: str) -> None:
        if charge.uid in self.charges:
            self._tell(charge, Sighting(charge.uid, charge.name, "unknown", because=because))

    def show(self, charge: Charge, glimpse: Glimpse) -> None:
        """Tell what a look has shown."""
        seen = glimpse.sighting
        if charge.uid not in self.charges:
            return None
        if not glimpse.is_ours:
            before, now = self.board.get(charge.uid), self._clock.now()
            seen = mend(before, seen, now, creating=charge.is_under("create"), trouble=charge.trouble)
        if seen.presence == "missing" and charge.is_elsewhere:
            return self.tell_unknown(charge, str(other_account(charge)))
        if seen.presence == "missing" and charge.is_in_doubt and charge.driver != HARVESTER:
            return self.tell_unknown(charge, str(lost_track(charge)))  # the driver may know no id to look for
        if seen.presence == "missing" and charge.is_under("remove"):
            return None  # what it left behind is still being cleared away
        if seen.presence == "missing" and not (charge.was_made or charge.ended):
            return self.board.drop(charge.uid)
        self._tell(charge, seen)
        if seen.presence == "missing" and charge.ended and not charge.is_under():
            self._forget(charge)
        return None

    def has_ended(self, uid: str) -> bool:
        return uid in self._ended

    def end(self, charge: Charge, because: str) -> None:
        """The machine is gone for certain: its last sighting stays for a while, the rest goes."""
        if charge.uid in self.charges:
            self._tell(charge, Sighting(charge.uid, charge.name, "missing", because=because))
        self._forget(charge)

    @asynccontextmanager
    async def beside(self, charge: Charge, plugin: Plugin) -> AsyncIterator[None]:
        """A deed has this plugin open until the block ends."""
        charge.plugin = plugin
        try:
            yield
        finally:
            charge.plugin, charge.seen_by_deed = None, False

    async def call(self, charge: Charge, plugin: Plugin, method: str, seen: Seen) -> None:
        """A call that takes its time; meanwhile the machine is looked at. Raises what the call raises."""
        calling = asyncio.ensure_future(plugin.call(method))
        try:
            place = 0
            while not calling.done():
                await asyncio.wait({calling}, timeout=_GLANCES[min(place, len(_GLANCES) - 1)])
                place += 1
                if not calling.done():
                    await self.glance(charge, plugin, seen)
            calling.result()
        finally:
            calling.cancel()

    async def glance(self, charge: Charge, plugin: Plugin, seen: Seen) -> None:
        """One look through a deed's own plugin."""
        try:
            glimpse = await look(plugin, charge)
            await seen(glimpse)
        except (DriverSaid, PluginError) as error:
            log.debug("%s cannot be seen while it is worked on: %s", charge.name, error)
            if charge.seen_by_deed:
                # That plugin holds the credential it began with; perhaps there is another by now.
                charge.seen_by_deed = False
                charge.poked.set()
            return
        charge.seen_by_deed = True
        self.show(charge, glimpse)

    async def _look(self, charge: Charge) -> None:
        if not (charge.was_made or charge.begun or charge.ended):
            return None  # nothing was made yet
        try:
            keys = await self._workshop.unlock(charge)
            glimpse = await self._spyglasses.look(charge, keys)
        except InfrastructureUnknown as unknown:
            return self.tell_unknown(charge, str(unknown))
        except (DriverSaid, PluginError) as error:
            return self.tell_unknown(charge, str(explained(error, charge)))
        if charge.was_made and glimpse.sighting.presence == "present" and keys.account != charge.account:
            # The machine itself proves where this credential leads.
            charge.note({**charge.memory, ACCOUNT: keys.account})
            charge.is_elsewhere = False
        return self.show(charge, glimpse)

    def _pause(self, charge: Charge) -> timedelta:
        sighting = self.board.get(charge.uid)
        span = self._pace.quick
        if sighting is None:
            span = self._pace.steady
        elif sighting.presence != "present":
            span = self._pace.doubtful
        elif sighting.state in _STEADY and (sighting.addresses or sighting.state == "stopped"):
            span = self._pace.steady
        return span * self._chance.between(0.8, 1.2)

    def _tell(self, charge: Charge, sighting: Sighting) -> None:
        self.board.put(charge.uid, dated(self.board.get(charge.uid), sighting, self._clock.now()))

    def _forget(self, charge: Charge) -> None:
        charge.forget()
        if self.charges.pop(charge.uid, None) is None:
            return
        charge.poked.set()
        self._ended.append(charge.uid)
        while len(self._ended) > ENDED_KEPT:
            uid = self._ended.popleft()
            if uid not in self.charges:
                self.board.drop(uid)
