"""Does what the plan says: one round after the other, and the invariants after each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos import invariants
from tests.chaos.api import Unanswered
from tests.chaos.faults import Delete, Fault, Model, Operation, Round, describe
from tests.chaos.programs import DidNotStart
from tests.chaos.secrets import find_secrets, read_logs, read_modes
from tests.chaos.site import CLUSTER, CLUSTERS, MACHINES, Site, condition_message, is_ready, render_waits
from tests.chaos.strikes import Striker

# The heartbeat of a plugin process whose host is gone.
PLUGINS_END_WITHIN_S = 15.0
# Where nothing comes to rest: long enough for a manager to do what it should not.
SETTLE_S = 3.0


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
    _striker: Striker = field(init=False)
    _secrets: dict[str, bytes] = field(default_factory=dict)

    async def run_round(self, planned: Round) -> list[str]:
        """The violations of this round."""
        site, history = self.site, self.site.history
        history.limits = planned.limits
        history.deleted.clear()
        history.faults.clear()
        striker = self._striker = Striker(site, planned.operation)
        began = time.monotonic()
        words = [describe(planned.operation), *map(describe, planned.faults)]
        self.log(f"round {planned.number}: {'; '.join(words)}")
        if planned.rolls_back:
            await striker.save_state()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._operate(planned.operation))
            for fault in planned.faults:
                group.create_task(self._strike_at(fault))
        faults = [*striker.faults, *await self._restart_all()]
        if planned.rolls_back:  # the credential is one of then, which may have been revoked since
            await site.renew_credential()
        faults += await (
            self._wait()
            if planned.wanted.doomed
            else self._rest(planned.wanted, self.rest_within_s + planned.rest_s)
        )
        faults += await self._check(planned)
        self.report.rounds += 1
        self.report.violations += faults
        words = "at rest" if not faults else f"{len(faults)} violations"
        words = "etcd has no quorum" if planned.wanted.doomed and not faults else words
        self.log(f"  {words} after {time.monotonic() - began:.1f} s")
        return faults

    async def end(self) -> list[str]:
        """Stop the managers; the violations that show at the end."""
        faults = []
        for manager in self.site.managers:
            if await manager.end() is None:
                faults.append(f"{manager.name} did not end within 30 s of SIGTERM")
        deadline = time.monotonic() + PLUGINS_END_WITHIN_S
        while any(manager.others() for manager in self.site.managers):
            await asyncio.sleep(0.2)
            if time.monotonic() > deadline:
                break
        faults += [
            f"process {pid} of {manager.name} goes on without it: {command}"
            for manager in self.site.managers
            for pid, command in manager.others()
        ]
        self.report.violations += faults
        return faults

    # -- faults ----------------------------------------------------------------------------------------------------------

    async def _operate(self, operation: Operation) -> None:
        await self.site.do(operation)
        self._striker.operated.set()

    async def _strike_at(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        did = await self._striker.strike(fault)
        (self.report.struck if did else self.report.skipped)[type(fault).__name__] += 1

    async def _restart_all(self) -> list[str]:
        """Start what has ended by itself, as a service manager would; only a lost Lease is a reason to end."""
        faults = []
        for program in self.site.programs:
            if not program.alive:
                lost = "could not be renewed" in program.last_lines(20)
                if not (self.site.setup == "replicas" and lost):
                    faults.append(f"{program.name} has ended: {program.last_lines()}")
                try:
                    await self._striker.start(program)
                except DidNotStart as error:
                    faults.append(str(error))
        return faults

    # -- rest ------------------------------------------------------------------------------------------------------------

    async def _rest(self, wanted: Model, within_s: float) -> list[str]:
        """Return once what is wanted is there; after `within_s`, what is not."""
        deadline = time.monotonic() + within_s
        quiet = 0
        while True:
            missing = await self._missing(wanted)
            quiet = 0 if missing else quiet + 1
            if quiet == 2:
                return []
            if time.monotonic() > deadline:
                waits = render_waits(await self.site.statuses())
                return [f"not at rest after {within_s:g} s: {'; '.join(missing)} ({waits})"]
            await asyncio.sleep(0.2)

    async def _missing(self, wanted: Model) -> list[str]:
        site = self.site
        now = await site.inventory()
        if not wanted.pools:
            site.history.held = frozenset()
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
        recorded = {raw["metadata"]["name"] for raw in machines}
        held = frozenset(vm.name for vm in now.vms if vm.cluster_uid and not vm.deleting) - recorded
        site.history.held = held
        missing += invariants.find_wrong_counts(now, CLUSTER, wanted.pools, held)
        message = condition_message(cluster, "VMsRecorded")
        missing += invariants.find_unnamed(held, message)
        uids = {raw["spec"].get("machineUID") or raw["metadata"]["uid"] for raw in machines}
        return missing + invariants.find_orphaned_volumes(now, uids, message)

    async def _wait(self) -> list[str]:
        """A cluster without quorum comes to no rest. What can be done is to say so, of each object."""
        deadline = time.monotonic() + self.rest_within_s
        await asyncio.sleep(SETTLE_S)
        while faults := invariants.find_silent_waits(await self.site.statuses()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        return faults

    async def _check(self, planned: Round) -> list[str]:
        site = self.site
        now = await site.inventory()
        faults = list(site.history.faults)
        faults += invariants.find_lost_property(site.before, now, site.uids)
        if not isinstance(planned.operation, Delete):
            deleted = site.history.deleted
            faults += invariants.find_unexplained_deletions(deleted, self._striker.asked, planned.deletions)
        faults += invariants.find_held_addresses(now)
        faults += await self._check_computer()
        if site.another is not None:
            made = await site.another.inventory()
            faults += [f"made on another Harvester: VirtualMachine {vm.name}" for vm in made.vms]
        return faults

    async def _check_computer(self) -> list[str]:
        """Files, logs and writes."""
        site = self.site
        raws = await site.management.list("/api/v1/secrets") + await site.harvester.list("/api/v1/secrets")
        self._secrets |= find_secrets(raws)
        faults = invariants.find_exposed_secrets(read_logs(site.folder), self._secrets)
        faults += invariants.find_open_files(read_modes(site.state_folders()))
        if site.setup != "replicas":
            acknowledged, attempted = dict(site.writer.acknowledged), dict(site.writer.attempted)
            found = await site.writer.found()
            attempted = {name: max(number, site.writer.attempted[name]) for name, number in attempted.items()}
            faults += invariants.find_lost_writes(acknowledged, attempted, found)
        return faults
