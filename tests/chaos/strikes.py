"""Does one fault, and undoes it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.faults import (
    AnotherHarvester,
    CutConnections,
    Fault,
    FillDisk,
    JumpClock,
    KillCloudProvider,
    KillManager,
    KillPlugins,
    LoseVms,
    Operation,
    ReadOnlyDisk,
    RevokeCredential,
    RollBack,
    RotateCredential,
    SilenceConnections,
    StallConnections,
    StopHarvester,
    StopManager,
    StopVms,
    SwallowReplies,
)
from tests.chaos.inventory import Vm
from tests.chaos.programs import DidNotStart, Program, run_windrow
from tests.chaos.site import ACTIONS, CLOUD_PROVIDER, CLUSTER, DRIVER, VMS, Site


@dataclass
class Striker:
    """`asked` are the uids of the VMs that it deletes, `faults` what it finds wrong on the way."""

    site: Site
    operation: Operation
    asked: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    # Set once the operation was acknowledged.
    operated: asyncio.Event = field(default_factory=asyncio.Event)
    _written: Mapping[str, int] = field(
        default_factory=dict
    )  # what was acknowledged before the state was saved
    # One fault of a kind at a time: the end of one would end the other.
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def strike(self, fault: Fault) -> bool:
        """Whether there was anything to strike at; returns when the fault is over."""
        match fault:
            case KillManager(for_s=for_s):
                return await self._kill(await self.site.leader(), for_s)
            case StopManager(for_s=for_s):
                return await self._stop(await self.site.leader(), for_s)
            case StopHarvester(for_s=for_s):
                return await self._stop(self.site.emulator, for_s)
            case CutConnections() | StallConnections() | SwallowReplies() | SilenceConnections():
                async with self._lock("connections"):
                    return await self._strike_connections(fault)
            case LoseVms() | StopVms():
                return await self._strike_vms(fault)
            case KillPlugins(times=times):
                return await self._kill_children(self.site.managers, DRIVER, times)
            case KillCloudProvider(times=times):
                return await self._kill_children([self.site.emulator], CLOUD_PROVIDER, times)
            case RollBack(backup=backup):
                return await self._roll_back(backup)
            case FillDisk(for_s=for_s):
                return await self._fill_disk(for_s)
            case ReadOnlyDisk():
                return await self._start_on_a_read_only_disk()
            case JumpClock(for_s=for_s, by_s=by_s):
                async with self._lock("clock"):
                    did = self.site.set_clock(by_s)
                    await asyncio.sleep(for_s)
                    self.site.set_clock(0)
                    return did
            case RotateCredential() | RevokeCredential() | AnotherHarvester():
                async with self._lock("credential"):
                    return await self._strike_credential(fault)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    # -- programs --------------------------------------------------------------------------------------------------------

    async def _kill(self, program: Program, for_s: float) -> bool:
        async with program.lock:
            await program.kill()
            await asyncio.sleep(for_s)
            await self.start(program)
        return True

    async def _stop(self, program: Program, for_s: float) -> bool:
        async with program.lock:
            program.signal(signal.SIGSTOP)
            await asyncio.sleep(for_s)
            program.signal(signal.SIGCONT)
        return True

    async def start(self, program: Program) -> None:
        """Raises DidNotStart."""
        await program.start()
        if program in self.site.managers and self.site.setup != "replicas":
            self.site.management.reload()

    async def _kill_children(self, parents: Sequence[Program], program: str, times: int) -> bool:
        found = 0
        for _ in range(times):
            for pid, command in (one for parent in parents for one in parent.others()):
                if program in command:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        found += 1
            await asyncio.sleep(0.2)
        return found > 0

    # -- connections -----------------------------------------------------------------------------------------------------

    async def _strike_connections(
        self, fault: CutConnections | StallConnections | SwallowReplies | SilenceConnections
    ) -> bool:
        relay = self.site.relay
        match fault:
            case CutConnections(for_s=for_s):
                relay.accepts = False
                number = relay.cut()
                await asyncio.sleep(for_s)
                relay.accepts = True
            case StallConnections(for_s=for_s, resume=resume):
                number = relay.connections
                relay.stall()
                await asyncio.sleep(for_s)
                if not resume:
                    relay.cut()
                relay.resume()
            case SwallowReplies(for_s=for_s):
                relay.swallows = True
                await asyncio.sleep(for_s)
                number = relay.cut()
                relay.swallows = False
            case SilenceConnections():
                number = relay.silence()
        return number > 0

    # -- Harvester -------------------------------------------------------------------------------------------------------

    async def _strike_vms(self, fault: LoseVms | StopVms) -> bool:
        found = self._pick(fault.pool, fault.number, fault.pick)
        for vm in found:
            if isinstance(fault, LoseVms):
                self.asked.add(vm.uid)
                await self.site.harvester.call("DELETE", f"{VMS}/{vm.name}")
            else:
                await self.site.harvester.call("PUT", f"{ACTIONS}/{vm.name}/stop", {})
        return bool(found)

    def _pick(self, pool: str, number: int, pick: int) -> list[Vm]:
        found = sorted(self.site.history.inventory.of_pool(CLUSTER, pool), key=lambda vm: vm.name)
        start = pick % len(found) if found else 0
        return (found + found)[start : start + min(number, len(found))]

    # -- the disk --------------------------------------------------------------------------------------------------------

    async def _fill_disk(self, for_s: float) -> bool:
        manager = self.site.managers[0]
        async with manager.lock:
            self.site.disk.fill(manager.pid)
            await asyncio.sleep(for_s)
            self.site.disk.free(manager.pid)
        return True

    async def _start_on_a_read_only_disk(self) -> bool:
        manager = self.site.managers[0]
        async with manager.lock:
            await manager.kill()
            did = self.site.disk.make_read_only(True)
            if did:
                await self._expect_refusal(manager)
                self.site.disk.make_read_only(False)
            await self.start(manager)
        return did

    async def _expect_refusal(self, manager: Program) -> None:
        try:
            await manager.start()
        except DidNotStart:
            said = manager.last_lines(3)
            if "Traceback" in manager.last_lines(30) or not any(
                word in said for word in ("ead-only", "writable")
            ):
                self.faults.append(f"on a read-only disk {manager.name} did not say why it ended: {said}")
        else:
            self.faults.append(f"{manager.name} started on a read-only disk")
            await manager.kill()

    # -- the state -------------------------------------------------------------------------------------------------------

    async def save_state(self) -> None:
        """Keep the manager's state as it is now, in both ways."""
        site, manager = self.site, self.site.managers[0]
        self._written = dict(site.writer.acknowledged)
        await run_windrow(site.folder, "backup", "backup.new", "--state-dir", "manager")
        (site.folder / "backup.new").replace(site.folder / "backup")
        self._written = dict(site.writer.acknowledged)
        # As a snapshot of the disk has it: all files at one instant.
        async with manager.lock:
            manager.signal(signal.SIGSTOP)
            site.disk.copy_to(site.folder / "snapshot")
            manager.signal(signal.SIGCONT)

    async def _roll_back(self, backup: bool) -> bool:
        site, manager = self.site, self.site.managers[0]
        await self.operated.wait()
        async with manager.lock:
            await manager.kill()
            if backup:
                await run_windrow(site.folder, "restore", "backup", "--state-dir", "manager")
                for former in site.disk.path.glob("before-restore-*"):
                    shutil.rmtree(former)
            else:
                site.disk.replace_by(site.folder / "snapshot")
            site.writer.roll_back(self._written)
            await self.start(manager)
        await site.do(self.operation)
        return True

    # -- the credential --------------------------------------------------------------------------------------------------

    async def _strike_credential(self, fault: RotateCredential | RevokeCredential | AnotherHarvester) -> bool:
        site = self.site
        match fault:
            case RotateCredential():
                former = await site.account.list_tokens()
                await site.renew_credential()
                await site.account.revoke(former)
            case RevokeCredential(for_s=for_s):
                await site.account.revoke(await site.account.list_tokens())
                await asyncio.sleep(for_s)
                await site.renew_credential()
            case AnotherHarvester(for_s=for_s):
                former = await site.account.list_tokens()
                other = (site.folder / "store" / "harvester.yaml").read_text()
                await site.replace_credential(other)
                await asyncio.sleep(for_s)
                await site.renew_credential()
                await site.account.revoke(former)
        return True
