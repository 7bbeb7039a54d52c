"""Polls the status of machines: periodically while nothing happens, and during an operation through its plugin.

The docker-machine protocol has no watch, so this polls (an exception that design §2 rule 2 lists by name): often while
a machine is in transition, seldom while it is steady, at once after an operation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import wait_first
from windrow.machines.plugin.error_text import translate_error
from windrow.machines.plugin.launcher import PluginLauncher
from windrow.machines.plugin.ownership import account_changed, state_lost
from windrow.machines.plugin.process.client import DriverError, Plugin, PluginError
from windrow.machines.plugin.status import PollResult, correct_state, poll
from windrow.machines.plugin.status_pool import StatusPluginPool
from windrow.machines.plugin.tracked_machine import ACCOUNT, TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, MachineStatus
from windrow.machines.status_store import StatusStore

_STEADY_STATES = frozenset({"running", "stopped"})
POLL_BACKOFF_S = (
    0.2,
    0.3,
    0.5,
    1.0,
    2.0,
    3.0,
)  # between polls during an operation; the last one repeats

OnPoll = Callable[[PollResult], Awaitable[None]]

log = with_values(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """How often a machine is polled, and how long a request waits to be accepted."""

    transitional: timedelta = timedelta(seconds=5)
    steady: timedelta = timedelta(seconds=45)
    unknown: timedelta = timedelta(seconds=15)
    create_accept_s: float = 45.0
    other_accept_s: float = 20.0


class StatusPoller:
    """The tracked machines, whose status goes to `store`."""

    def __init__(
        self,
        launcher: PluginLauncher,
        store: StatusStore,
        clock: Clock,
        rng: Rng,
        intervals: PollIntervals,
    ) -> None:
        self.store = store
        self.machines: dict[str, TrackedMachine] = {}
        self._launcher, self._clock, self._rng, self._intervals = launcher, clock, rng, intervals
        self._pool = StatusPluginPool(launcher)

    async def poll_until_removed(self, machine: TrackedMachine) -> None:
        """Poll the machine until it is removed, as often as its state calls for."""
        while machine.uid in self.machines:
            machine.wake.clear()
            if not machine.polled_by_operation:
                await self.poll_now(machine)
            await wait_first(self._clock, self._poll_interval(machine), machine.wake)
        if not any(other.credential == machine.credential for other in self.machines.values()):
            await self._pool.release(machine.credential)

    async def poll_now(self, machine: TrackedMachine) -> None:
        """Poll the machine, and store its status, unknown where that fails."""
        with handle_crash(log, "poll failed", machine=machine.name) as crash:
            await self._poll(machine)
        if (error := crash.error) is not None:
            self.put_unknown(machine, f"polling its driver failed: {type(error).__name__}: {error}")

    async def close(self) -> None:
        """End every pooled plugin."""
        await self._pool.close()

    def put_unknown(self, machine: TrackedMachine, because: str) -> None:
        if machine.uid in self.machines:
            self.store.update(
                MachineStatus(machine.uid, machine.name, "unknown", because=because), self._clock.now()
            )

    def put_result(self, machine: TrackedMachine, result: PollResult) -> None:
        """Store the result of a poll."""
        status = result.status
        if machine.uid not in self.machines:
            return None
        if not result.is_windrow:
            previous, now = self.store.get(machine.uid), self._clock.now()
            status = correct_state(
                previous,
                status,
                now,
                creating=machine.find_operation("create") is not None,
                last_error=machine.last_error,
            )
        if status.presence == "missing" and machine.account_differs:
            return self.put_unknown(machine, str(account_changed(machine)))
        if status.presence == "missing" and machine.create_uncertain and machine.driver != HARVESTER:
            return self.put_unknown(
                machine, str(state_lost(machine))
            )  # the driver may have no id to search for
        if status.presence == "missing" and machine.find_operation("remove"):
            return None  # the driver is still removing what belongs to it
        if status.presence == "missing" and not (machine.was_created or machine.removal_requested):
            return self.store.put(machine.uid, None)
        self.store.update(status, self._clock.now())
        if status.presence == "missing" and machine.removal_requested and not machine.find_operation():
            self._untrack(machine)
        return None

    def put_removed(self, machine: TrackedMachine, because: str) -> None:
        """The machine is removed: its last status stays for a while; stop tracking it."""
        if machine.uid in self.machines:
            self.store.update(
                MachineStatus(machine.uid, machine.name, "missing", because=because), self._clock.now()
            )
        self._untrack(machine)

    @asynccontextmanager
    async def using_plugin(self, machine: TrackedMachine, plugin: Plugin) -> AsyncIterator[None]:
        """`plugin` belongs to the machine's operation until the block ends."""
        machine.plugin = plugin
        try:
            yield
        finally:
            machine.plugin, machine.polled_by_operation = None, False

    async def call_while_polling(
        self, machine: TrackedMachine, plugin: Plugin, method: str, on_poll: OnPoll
    ) -> None:
        """A long call; the machine is polled meanwhile. Raises what the call raises."""
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

    async def pause(self, seconds: float) -> None:
        """Between two readings of what a driver has noted."""
        await sleep(self._clock, timedelta(seconds=seconds))

    async def poll_once(self, machine: TrackedMachine, plugin: Plugin, on_poll: OnPoll) -> None:
        """Poll once, through the plugin of the operation."""
        try:
            result = await poll(plugin, machine)
            await on_poll(result)
        except (DriverError, PluginError) as error:
            log.debug("poll during the operation failed: %s", error, machine=machine.name)
            if machine.polled_by_operation:
                # That plugin has the credential it was started with, which may have changed since.
                machine.polled_by_operation = False
                machine.wake.set()
            return
        machine.polled_by_operation = True
        self.put_result(machine, result)

    async def _poll(self, machine: TrackedMachine) -> None:
        if not (machine.was_created or machine.create_started or machine.removal_requested):
            return None  # nothing was created yet
        try:
            credential = await self._launcher.resolve(machine)
            result = await self._pool.poll(machine, credential)
        except InfrastructureUnknown as unknown:
            return self.put_unknown(machine, str(unknown))
        except (DriverError, PluginError) as error:
            return self.put_unknown(machine, str(translate_error(error, machine)))
        if (
            machine.was_created
            and result.status.presence == "present"
            and credential.account != machine.account
        ):
            # The machine is found with this credential, so it leads to the machine's account.
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

    def _untrack(self, machine: TrackedMachine) -> None:
        machine.delete_folder()
        if self.machines.pop(machine.uid, None) is None:
            return
        machine.wake.set()
        self.store.expire(machine.uid)
