"""Hypervisor: VMs that are powered on, one task each, their host interface and their agent reports.

The VMI controller powers a machine on when its domain starts and off when it must end. What the machine does meanwhile
(agent reports, powering itself off) is kept here for the controller to read; each change calls `on_change` with the
VMI's key.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.emulator.delays import ScaledClock
from windrow.emulator.faults import Faults
from windrow.emulator.guest_os.hardware import (
    AgentReport,
    BlockDevice,
    DhcpLease,
    Disk,
    Hardware,
    HostInterface,
    Machine,
    Nic,
)
from windrow.emulator.host.networks import POD_NETWORK, Vlans
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.network import Network

MachineFactory = Callable[[Hardware, HostInterface], Machine]
Ending = Literal["poweroff", "crash"]

CONSOLE_LINES = 2000


class Consoles:
    """The last lines of serial consoles, by namespace and name; kept after the VM is deleted."""

    def __init__(self) -> None:
        self._lines: dict[Key, deque[str]] = defaultdict(lambda: deque(maxlen=CONSOLE_LINES))

    def write(self, key: Key, line: str) -> None:
        self._lines[key].append(line)

    def read(self, namespace: str, name: str) -> list[str]:
        found = self._lines.get((namespace, name))
        return list(found or ())


@dataclass(slots=True)
class PowerSession:
    """One machine that is powered on."""

    key: Key
    hardware: Hardware
    task: asyncio.Task[None] = field(init=False)
    machine: Machine | None = None
    report: AgentReport | None = None
    ending: Ending | None = None
    shutdown_requested: bool = False  # ACPI shutdown was sent
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    guest_macs: set[str] = field(default_factory=set)  # MACs of interfaces that the guest created on its NICs

    def macs(self) -> set[str]:
        return self.guest_macs | {nic.mac.lower() for nic in self.hardware.nics}


@dataclass(slots=True)
class NicLink:
    """The `HostInterface` of one machine."""

    clock: Clock
    rng: Rng
    network: Network
    time_scale: float
    _hypervisor: Hypervisor
    _session: PowerSession

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        if nic not in self._session.hardware.nics:
            if nic.network == POD_NETWORK:
                return None  # KubeVirt's DHCP serves the VMI's own interface only
            self._session.guest_macs.add(nic.mac.lower())
        lease = self._hypervisor.vlans.lease(nic)
        if lease is None:
            self.console(f"emulated network: {self._hypervisor.vlans.explain_no_lease(nic)}")
        return lease

    def autoconfigure(self, nic: Nic) -> str:
        return self._hypervisor.vlans.autoconfigure(nic)

    def use(self, nic: Nic, address: str) -> str:
        return self._hypervisor.vlans.use(nic, address)

    async def release(self, nic: Nic) -> None:
        self._session.guest_macs.discard(nic.mac.lower())
        self._hypervisor.vlans.release(nic)

    def console(self, line: str) -> None:
        self._hypervisor.consoles.write(self._session.key, line)

    def report_agent(self, report: AgentReport | None) -> None:
        self._hypervisor.on_agent_report(self._session, report)


class Hypervisor:
    """Powered machines by VMI uid. `run` owns their tasks."""

    def __init__(
        self,
        make: MachineFactory,
        clock: ScaledClock,
        rng: Rng,
        network: Network,
        vlans: Vlans,
        faults: Faults,
    ) -> None:
        self.consoles = Consoles()
        self.on_change: Callable[[Key], None] = lambda key: None
        self._make = make
        self._clock = clock
        self._rng = rng
        self._network = network
        self.vlans = vlans
        self._faults = faults
        self._sessions: dict[str, PowerSession] = {}
        self._disks: dict[str, Disk] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the machines' tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def disk(self, claim_uid: str) -> Disk:
        """The disk of a PersistentVolumeClaim, created empty on first use."""
        return self._disks.setdefault(claim_uid, Disk())

    def copy_disk(self, source_uid: str, target_uid: str) -> None:
        """Another disk with the present data of one; it keeps what it has where it exists already."""
        if target_uid not in self._disks:
            self._disks[target_uid] = copy.deepcopy(self.disk(source_uid))

    def delete_disk(self, claim_uid: str) -> None:
        """Delete the data of a deleted PersistentVolumeClaim. May be repeated."""
        self._disks.pop(claim_uid, None)

    def find(self, uid: str) -> PowerSession | None:
        return self._sessions.get(uid)

    def running_machines(self) -> list[PowerSession]:
        """All machines that are powered on."""
        return list(self._sessions.values())

    def macs_of(self, key: Key) -> list[str]:
        """MAC addresses of the NICs of a running machine, and of the interfaces that the guest created on them."""
        found = [session.macs() for session in self._sessions.values() if session.key == key]
        return sorted(set().union(*found))

    def has_mac(self, mac: str) -> bool:
        """Whether a running machine has this MAC address."""
        return any(mac in session.macs() for session in self._sessions.values())

    def power_on(self, key: Key, hardware: Hardware) -> PowerSession:
        """Power the machine on, unless it is. Raises RuntimeError before `run`."""
        if (found := self._sessions.get(hardware.vmi_uid)) is not None:
            return found
        session = PowerSession(key, hardware)
        session.task = self._spawn(self._run_machine(session), f"machine {'/'.join(key)}")
        self._sessions[hardware.vmi_uid] = session
        return session

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        if self._tasks is None:
            work.close()
            raise RuntimeError(
                "wanted to power a machine on; the emulator is not running: start Harvester.run()"
            )
        return self._tasks.create_task(work, name=name)

    def change_disks(self, uid: str, disks: tuple[BlockDevice, ...]) -> None:
        """The disks of a running machine from now on. May be repeated."""
        session = self._sessions.get(uid)
        if session is None or session.hardware.disks == disks:
            return
        session.hardware = replace(session.hardware, disks=disks)
        if session.machine is not None:
            session.machine.change_disks(disks)

    def press_power_button(self, uid: str) -> None:
        """Send ACPI shutdown. May be repeated."""
        session = self._sessions.get(uid)
        if session is None or session.shutdown_requested or session.machine is None:
            return
        session.shutdown_requested = True
        if not self._faults.is_unresponsive("/".join(session.key)):
            session.tasks.append(self._spawn(self._shut_down(session, session.machine), "power button"))

    async def _shut_down(self, session: PowerSession, machine: Machine) -> None:
        try:
            await machine.shutdown()
        except Exception as error:
            # A bug in a simulated guest's shutdown leaves the guest running; the console shows the error.
            self.consoles.write(session.key, f"power button: {type(error).__name__}: {error}")

    def power_off(self, uid: str) -> None:
        """Power the machine off at once. May be repeated."""
        session = self._sessions.pop(uid, None)
        if session is not None:
            for task in (session.task, *session.tasks):
                task.cancel()

    def silence_agent(self, uid: str, seconds: float) -> None:
        """Disconnect the guest agent for a while: its report is cleared and restored."""
        session = self._sessions.get(uid)
        if session is not None and session.report is not None:
            self._schedule_report(session, session.report, seconds)
            self._set_report(session, None)

    def reset(self, uid: str) -> None:
        """Reset: the machine reboots from the same disk, in the same VMI."""
        session = self._sessions.get(uid)
        if session is not None and session.ending is None:
            hardware, key = session.hardware, session.key
            self.power_off(uid)
            self.power_on(key, hardware)
            self.on_change(key)

    async def _run_machine(self, session: PowerSession) -> None:
        while True:
            session.machine = self._make(
                session.hardware,
                NicLink(self._clock.base, self._rng, self._network, self._clock.time_scale, self, session),
            )
            try:
                wish = await session.machine.run()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A bug in a simulated guest crashes that guest; the console shows the error.
                self.consoles.write(session.key, f"kernel panic: {type(error).__name__}: {error}")
                self._finish(session, "crash")
                return
            self.on_agent_report(session, None)
            if wish != "reboot" or session.shutdown_requested:
                self._finish(session, "crash" if wish == "crash" else "poweroff")
                return

    def _finish(self, session: PowerSession, ending: Ending) -> None:
        session.ending = ending
        session.report = None
        self.on_change(session.key)

    def on_agent_report(self, session: PowerSession, report: AgentReport | None) -> None:
        """Take over the agent's latest report, unless a fault says otherwise."""
        fault = self._faults.agent_of("/".join(session.key))
        if report is not None and fault is not None:
            if fault.kind == "absent":
                return
            if fault.kind == "late":
                self._schedule_report(session, report, fault.late_s)
                return
            if fault.kind == "lying":
                report = replace(report, addresses=dict.fromkeys(report.addresses, fault.false_addresses))
        self._set_report(session, report)

    def _schedule_report(self, session: PowerSession, report: AgentReport, seconds: float) -> None:
        session.tasks.append(self._spawn(self._report_late(session, report, seconds), "late agent report"))

    async def _report_late(self, session: PowerSession, report: AgentReport, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._set_report(session, report)

    def _set_report(self, session: PowerSession, report: AgentReport | None) -> None:
        if session.report != report and session.ending is None:
            session.report = report
            self.on_change(session.key)
