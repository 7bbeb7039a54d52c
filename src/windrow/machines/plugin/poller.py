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

from windrow.controller.wait import wait_first
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.machines.plugin.launcher import PluginLauncher, translate_plugin_error
from windrow.machines.plugin.ownership import account_changed, state_lost
from windrow.machines.plugin.process.client import DriverError, Plugin, PluginError
from windrow.machines.plugin.status import PollResult, correct_state, poll
from windrow.machines.plugin.status_pool import StatusPluginPool
from windrow.machines.plugin.tracked_machine import ACCOUNT, TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, MachineStatus
from windrow.machines.status_store import StatusStore, with_since

# How many machines that have ended are still shown as missing.
REMOVED_KEPT = 1000
_STEADY_STATES = frozenset({"running", "stopped"})
POLL_BACKOFF_S = (
    0.2,
    0.3,
    0.5,
    1.0,
    2.0,
    3.0,
)  # seconds between looks while a deed goes on; the last one stays

OnPoll = Callable[[PollResult], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """How often a machine is looked at, and how long an order waits to be taken."""

    transitional: timedelta = timedelta(seconds=5)
    steady: timedelta = timedelta(seconds=45)
    unknown: timedelta = timedelta(seconds=15)
    create_accept_s: float = 45.0
    other_accept_s: float = 20.0


class StatusPoller:
    """The machines in charge, and what is seen of them, on `board`."""

    def __init__(
        self,
        launcher: PluginLauncher,
        store: StatusStore[MachineStatus],
        clock: Clock,
        rng: Rng,
        intervals: PollIntervals,
    ) -> None:
        self.store = store
        self.machines: dict[str, TrackedMachine] = {}
        self._launcher, self._clock, self._rng, self._intervals = launcher, clock, rng, intervals
        self._pool = StatusPluginPool(launcher)
        self._removed: deque[str] = deque()

    async def poll_until_removed(self, machine: TrackedMachine) -> None:
        """Look at the machine again and again, as often as its state calls for, until it has ended."""
        while machine.uid in self.machines:
            machine.wake.clear()
            if not machine.polled_by_operation:
                try:
                    await self._poll(machine)
                except Exception as error:
                    log.exception("looking at %s", machine.name)
                    self.put_unknown(machine, f"it could not be looked at: {type(error).__name__}: {error}")
            await wait_first(self._clock, self._poll_interval(machine), machine.wake)
        if not any(other.credential == machine.credential for other in self.machines.values()):
            await self._pool.release(machine.credential)

    async def close(self) -> None:
        """Leave no process."""
        await self._pool.close()

    def put_unknown(self, machine: TrackedMachine, because: str) -> None:
        if machine.uid in self.machines:
            self._put(machine, MachineStatus(machine.uid, machine.name, "unknown", because=because))

    def put_result(self, machine: TrackedMachine, result: PollResult) -> None:
        """Tell what a look has shown."""
        status = result.status
        if machine.uid not in self.machines:
            return None
        if not result.is_windrow:
            previous, now = self.store.get(machine.uid), self._clock.now()
            status = correct_state(
                previous, status, now, creating=machine.has_operation("create"), last_error=machine.last_error
            )
        if status.presence == "missing" and machine.account_differs:
            return self.put_unknown(machine, str(account_changed(machine)))
        if status.presence == "missing" and machine.create_uncertain and machine.driver != HARVESTER:
            return self.put_unknown(
                machine, str(state_lost(machine))
            )  # the driver may know no id to look for
        if status.presence == "missing" and machine.has_operation("remove"):
            return None  # what it left behind is still being cleared away
        if status.presence == "missing" and not (machine.was_created or machine.removal_requested):
            return self.store.delete(machine.uid)
        self._put(machine, status)
        if status.presence == "missing" and machine.removal_requested and not machine.has_operation():
            self._untrack(machine)
        return None

    def was_removed(self, uid: str) -> bool:
        return uid in self._removed

    def put_removed(self, machine: TrackedMachine, because: str) -> None:
        """The machine is gone for certain: its last sighting stays for a while, the rest goes."""
        if machine.uid in self.machines:
            self._put(machine, MachineStatus(machine.uid, machine.name, "missing", because=because))
        self._untrack(machine)

    @asynccontextmanager
    async def using_plugin(self, machine: TrackedMachine, plugin: Plugin) -> AsyncIterator[None]:
        """A deed has this plugin open until the block ends."""
        machine.plugin = plugin
        try:
            yield
        finally:
            machine.plugin, machine.polled_by_operation = None, False

    async def call_while_polling(
        self, machine: TrackedMachine, plugin: Plugin, method: str, on_poll: OnPoll
    ) -> None:
        """A call that takes its time; meanwhile the machine is looked at. Raises what the call raises."""
        calling = asyncio.ensure_future(plugin.call(method))
        try:
            attempt = 0
            while not calling.done():
                await asyncio.wait({calling}, timeout=POLL_BACKOFF_S[min(attempt, len(POLL_BACKOFF_S) - 1)])
                attempt += 1
                if not calling.done():
                    await self.poll_once(machine, plugin, on_poll)
            calling.result()
        finally:
            calling.cancel()

    async def poll_once(self, machine: TrackedMachine, plugin: Plugin, on_poll: OnPoll) -> None:
        """One look through a deed's own plugin."""
        try:
            result = await poll(plugin, machine)
            await on_poll(result)
        except (DriverError, PluginError) as error:
            log.debug("%s cannot be seen while it is worked on: %s", machine.name, error)
            if machine.polled_by_operation:
                # That plugin holds the credential it began with; perhaps there is another by now.
                machine.polled_by_operation = False
                machine.wake.set()
            return
        machine.polled_by_operation = True
        self.put_result(machine, result)

    async def _poll(self, machine: TrackedMachine) -> None:
        if not (machine.was_created or machine.create_started or machine.removal_requested):
            return None  # nothing was made yet
        try:
            credential = await self._launcher.resolve(machine)
            result = await self._pool.poll(machine, credential)
        except InfrastructureUnknown as unknown:
            return self.put_unknown(machine, str(unknown))
        except (DriverError, PluginError) as error:
            return self.put_unknown(machine, str(translate_plugin_error(error, machine)))
        if (
            machine.was_created
            and result.status.presence == "present"
            and credential.account != machine.account
        ):
            # The machine itself proves where this credential leads.
            machine.save({**machine.config, ACCOUNT: credential.account})
            machine.account_differs = False
        return self.put_result(machine, result)

    def _poll_interval(self, machine: TrackedMachine) -> timedelta:
        status = self.store.get(machine.uid)
        interval = self._intervals.transitional
        if status is None:
            interval = self._intervals.steady
        elif status.presence != "present":
            interval = self._intervals.unknown
        elif status.state in _STEADY_STATES and (status.addresses or status.state == "stopped"):
            interval = self._intervals.steady
        return interval * self._rng.uniform(0.8, 1.2)

    def _put(self, machine: TrackedMachine, status: MachineStatus) -> None:
        self.store.put(machine.uid, with_since(self.store.get(machine.uid), status, self._clock.now()))

    def _untrack(self, machine: TrackedMachine) -> None:
        machine.delete_folder()
        if self.machines.pop(machine.uid, None) is None:
            return
        machine.wake.set()
        self._removed.append(machine.uid)
        while len(self._removed) > REMOVED_KEPT:
            uid = self._removed.popleft()
            if uid not in self.machines:
                self.store.delete(uid)
