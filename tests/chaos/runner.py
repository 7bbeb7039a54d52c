"""Does what the plan says: one round after the other, and the invariants after each."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos import invariants
from tests.chaos.api import Unanswered
from tests.chaos.faults import (
    WORKERS,
    CutConnections,
    Delete,
    Fault,
    KillManager,
    LoseVms,
    Model,
    Round,
    StallConnections,
    StopHarvester,
    StopManager,
    StopVms,
    SwallowReplies,
    describe,
)
from tests.chaos.inventory import Vm
from tests.chaos.programs import DidNotStart, Program
from tests.chaos.site import ACTIONS, CLUSTER, CLUSTERS, MACHINES, VMS, Site, is_ready, render_waits


@dataclass
class Report:
    """What was done and found."""

    rounds: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)  # nothing was there to strike at
    violations: list[str] = field(default_factory=list)


@dataclass
class Runner:
    """The rounds of one site. After `rest_within_s` without rest, what is missing is a violation."""

    site: Site
    log: Callable[[str], None]
    rest_within_s: float = 60.0
    report: Report = field(default_factory=Report)
    _asked: set[str] = field(default_factory=set)  # uids of the VMs that this run deletes in this round

    async def run_round(self, planned: Round) -> list[str]:
        """The violations of this round."""
        site, history = self.site, self.site.history
        history.limits, self._asked = planned.limits, set()
        history.deleted.clear()
        history.faults.clear()
        began = time.monotonic()
        self.log(
            f"round {planned.number}: {describe(planned.operation)}; {'; '.join(map(describe, planned.faults))}"
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(site.do(planned.operation))
            for fault in planned.faults:
                group.create_task(self._strike_at(fault))
        faults = await self._restart_all()
        faults += await self._rest(planned.wanted)
        faults += await self._check(planned)
        self.report.rounds += 1
        self.report.violations += faults
        self.log(
            f"  {'at rest' if not faults else f'{len(faults)} violations'} after {time.monotonic() - began:.1f} s"
        )
        return faults

    # -- faults ----------------------------------------------------------------------------------------------------------

    async def _strike_at(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        did = await self._strike(fault)
        (self.report.struck if did else self.report.skipped)[type(fault).__name__] += 1

    async def _strike(self, fault: Fault) -> bool:
        """Whether there was anything to strike at; returns when the fault is over."""
        site = self.site
        match fault:
            case KillManager(for_s=for_s):
                return await self._kill(await site.leader(), for_s)
            case StopManager(for_s=for_s):
                return await self._stop(await site.leader(), for_s)
            case StopHarvester(for_s=for_s):
                return await self._stop(site.emulator, for_s)
            case CutConnections(for_s=for_s):
                site.relay.accepts = False
                number = site.relay.cut()
                await asyncio.sleep(for_s)
                site.relay.accepts = True
                return number > 0
            case StallConnections(for_s=for_s, resume=resume):
                number = site.relay.connections
                site.relay.stall()
                await asyncio.sleep(for_s)
                if not resume:
                    site.relay.cut()
                site.relay.resume()
                return number > 0
            case SwallowReplies(for_s=for_s):
                site.relay.swallows = True
                await asyncio.sleep(for_s)
                number = site.relay.cut()
                site.relay.swallows = False
                return number > 0
            case LoseVms(pool=pool, number=number, pick=pick):
                found = self._pick(pool, number, pick)
                for vm in found:
                    self._asked.add(vm.uid)
                    await site.harvester.call("DELETE", f"{VMS}/{vm.name}")
                return bool(found)
            case StopVms(pool=pool, number=number, pick=pick):
                found = self._pick(pool, number, pick)
                for vm in found:
                    await site.harvester.call("PUT", f"{ACTIONS}/{vm.name}/stop", {})
                return bool(found)

    async def _kill(self, program: Program, for_s: float) -> bool:
        async with program.lock:
            await program.kill()
            await asyncio.sleep(for_s)
            await self._start(program)
        return True

    async def _stop(self, program: Program, for_s: float) -> bool:
        async with program.lock:
            program.signal(signal.SIGSTOP)
            await asyncio.sleep(for_s)
            program.signal(signal.SIGCONT)
        return True

    async def _start(self, program: Program) -> None:
        await program.start()
        if program in self.site.managers and self.site.setup != "replicas":
            self.site.management.reload()

    async def _restart_all(self) -> list[str]:
        """Start what has ended by itself, as a service manager would; only a lost Lease is a reason to end."""
        faults = []
        for program in self.site.programs:
            if not program.alive:
                lost = "could not be renewed" in program.last_lines(20)
                if not (self.site.setup == "replicas" and lost):
                    faults.append(f"{program.name} has ended: {program.last_lines()}")
                try:
                    await self._start(program)
                except DidNotStart as error:
                    faults.append(str(error))
        return faults

    def _pick(self, pool: str, number: int, pick: int) -> list[Vm]:
        found = sorted(self.site.history.inventory.of_pool(CLUSTER, pool), key=lambda vm: vm.name)
        start = pick % len(found) if found else 0
        return (found + found)[start : start + min(number, len(found))]

    # -- rest ------------------------------------------------------------------------------------------------------------

    async def _rest(self, wanted: Model) -> list[str]:
        """Return once what is wanted is there; after `rest_within_s`, what is not."""
        deadline = time.monotonic() + self.rest_within_s
        quiet = 0
        while True:
            missing = await self._missing(wanted)
            quiet = 0 if missing else quiet + 1
            if quiet == 2:
                return []
            if time.monotonic() > deadline:
                waits = render_waits(await self.site.statuses())
                return [f"not at rest after {self.rest_within_s:g} s: {'; '.join(missing)} ({waits})"]
            await asyncio.sleep(0.2)

    async def _missing(self, wanted: Model) -> list[str]:
        site = self.site
        now = await site.inventory()
        if not wanted.pools:
            left = invariants.find_leaks(site.before, now)
            if not left and await site.management.find(f"{CLUSTERS}/{CLUSTER}") is not None:
                left = [f"Cluster {CLUSTER} is there"]
            return left
        try:
            machines = (await site.management.call("GET", MACHINES)).body["items"]
            cluster = (await site.management.call("GET", f"{CLUSTERS}/{CLUSTER}")).body
        except (Unanswered, KeyError, TypeError) as error:
            return [f"the management API does not answer: {error}"]
        unready = [raw["metadata"]["name"] for raw in [cluster, *machines] if not is_ready(raw)]
        missing = [f"{name} is not Ready" for name in unready]
        if len(machines) != sum(wanted.pools.values()):
            missing.append(f"{len(machines)} Machines, {sum(wanted.pools.values())} are wanted")
        missing += invariants.find_wrong_counts(now, CLUSTER, wanted.pools)
        missing += invariants.find_outdated(now, CLUSTER, WORKERS, wanted.memory)
        return missing + invariants.find_orphaned_volumes(now)

    async def _check(self, planned: Round) -> list[str]:
        site = self.site
        now = await site.inventory()
        asked = {vm.uid for vm in site.history.deleted if vm.uid in self._asked}
        faults = list(site.history.faults)
        faults += invariants.find_lost_property(site.before, now, site.uids)
        if not isinstance(planned.operation, Delete):
            faults += invariants.find_unexplained_deletions(site.history.deleted, asked, planned.deletions)
        faults += invariants.find_held_addresses(now)
        return faults
