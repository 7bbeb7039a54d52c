"""Machines that are switched on: one task each, the wires they hang on, and what they report.

The instance controller plugs a machine in when its domain starts and pulls the plug when it must end. What the
machine does meanwhile (agent reports, powering itself off) is kept here for the controller to read; each news calls
`news` with the instance's key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.emulator.delays import ScaledClock
from windrow.emulator.faults import Faults
from windrow.emulator.guest_os.hardware import (
    AgentReport,
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
    """The last lines of every serial console, by namespace and name; they outlive the machine."""

    def __init__(self) -> None:
        self._lines: dict[Key, deque[str]] = defaultdict(lambda: deque(maxlen=CONSOLE_LINES))

    def write(self, key: Key, line: str) -> None:
        self._lines[key].append(line)

    def read(self, namespace: str, name: str) -> list[str]:
        found = self._lines.get((namespace, name))
        return list(found) if found else []


@dataclass(slots=True)
class PowerSession:
    """One machine with power."""

    key: Key
    hardware: Hardware
    task: asyncio.Task[None] | None = None
    machine: Machine | None = None
    report: AgentReport | None = None
    ending: Ending | None = None
    shutdown_requested: bool = False  # the power button was pressed
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    guest_macs: set[str] = field(default_factory=set)  # MACs of interfaces that the guest made on its cards


@dataclass(slots=True)
class NicLink:
    """The `HostInterface` of one machine."""

    clock: Clock
    rng: Rng
    network: Network
    time_scale: float
    _vlans: Vlans
    _consoles: Consoles
    _session: PowerSession
    _agent: Callable[[AgentReport | None], None]

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        if nic in self._session.hardware.nics:
            return self._vlans.lease(nic)
        if nic.network == POD_NETWORK:
            return None  # KubeVirt answers the one card that it knows
        self._session.guest_macs.add(nic.mac.lower())
        return self._vlans.lease(nic)

    async def release(self, nic: Nic) -> None:
        self._session.guest_macs.discard(nic.mac.lower())
        self._vlans.release(nic)

    def console(self, line: str) -> None:
        self._consoles.write(self._session.key, line)

    def report_agent(self, report: AgentReport | None) -> None:
        self._agent(report)


class Hypervisor:
    """Every plugged machine, by instance uid. `run` owns their tasks."""

    def __init__(
        self,
        make: MachineFactory,
        pace: ScaledClock,
        rng: Rng,
        network: Network,
        vlans: Vlans,
        faults: Faults,
    ) -> None:
        self.consoles = Consoles()
        self.on_change: Callable[[Key], None] = lambda key: None
        self._make = make
        self._clock = pace
        self._rng = rng
        self._network = network
        self._vlans = vlans
        self._faults = faults
        self._sessions: dict[str, PowerSession] = {}
        self._disks: dict[str, Disk] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the machines until cancelled; then they all lose power."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def disk(self, claim_uid: str) -> Disk:
        """The disk behind a claim: empty the first time, the same ever after."""
        return self._disks.setdefault(claim_uid, Disk())

    def delete_disk(self, claim_uid: str) -> None:
        """The claim is gone, and its data with it. May be repeated."""
        self._disks.pop(claim_uid, None)

    def find(self, uid: str) -> PowerSession | None:
        return self._sessions.get(uid)

    def running_machines(self) -> list[PowerSession]:
        """Every machine with power."""
        return list(self._sessions.values())

    def guest_macs_of(self, key: Key) -> list[str]:
        """The addresses of interfaces that a machine with power made for itself."""
        return sorted(mac for plug in self._sessions.values() if plug.key == key for mac in plug.guest_macs)

    def has_guest_mac(self, mac: str) -> bool:
        """Whether a machine with power made an interface with this address for itself."""
        return any(mac in plug.guest_macs for plug in self._sessions.values())

    def power_on(self, key: Key, hardware: Hardware) -> None:
        """Give the machine power, unless it has. Raises RuntimeError before `run`."""
        if hardware.vmi_uid in self._sessions:
            return
        if self._tasks is None:
            raise RuntimeError(
                "wanted to power a machine on; the emulator is not running: start Harvester.run()"
            )
        plug = self._sessions[hardware.vmi_uid] = PowerSession(key, hardware)
        plug.task = self._tasks.create_task(self._run_machine(plug), name=f"machine {'/'.join(key)}")

    def press_power_button(self, uid: str) -> None:
        """The ACPI power button. May be repeated."""
        plug = self._sessions.get(uid)
        if plug is None or plug.shutdown_requested or plug.machine is None or self._tasks is None:
            return
        plug.shutdown_requested = True
        if self._faults.is_unresponsive("/".join(plug.key)):
            return
        plug.tasks.append(self._tasks.create_task(self._shut_down(plug, plug.machine)))

    async def _shut_down(self, plug: PowerSession, machine: Machine) -> None:
        try:
            await machine.shutdown()
        except Exception as error:
            # The same as in `_live`: a guest that stumbles over its power button hangs, and says so.
            self.consoles.write(plug.key, f"power button: {type(error).__name__}: {error}")

    def power_off(self, uid: str) -> None:
        """Pull the plug: the machine is gone at once. May be repeated."""
        plug = self._sessions.pop(uid, None)
        if plug is None:
            return
        for task in (*plug.tasks, *([plug.task] if plug.task else ())):
            task.cancel()

    def silence_agent(self, uid: str, seconds: float) -> None:
        """The guest agent is lost for a while: its addresses vanish from the API and come back."""
        plug = self._sessions.get(uid)
        if plug is not None and plug.report is not None and self._tasks is not None:
            plug.tasks.append(self._tasks.create_task(self._report_late(plug, plug.report, seconds)))
            self._set_report(plug, None)

    def reset(self, uid: str) -> None:
        """The reset button: the machine boots anew, from the same disk, under the same instance."""
        plug = self._sessions.get(uid)
        if plug is not None and plug.ending is None:
            hardware, key = plug.hardware, plug.key
            self.power_off(uid)
            self.power_on(key, hardware)
            self.on_change(key)

    async def _run_machine(self, plug: PowerSession) -> None:
        while True:
            plug.machine = self._make(plug.hardware, self._host_interface(plug))
            try:
                wish = await plug.machine.run()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A bug in a simulated guest is that guest's crash: the console says which.
                self.consoles.write(plug.key, f"kernel panic: {type(error).__name__}: {error}")
                self._finish(plug, "crash")
                return
            self._on_agent_report(plug, None)
            if wish != "reboot" or plug.shutdown_requested:
                self._finish(plug, "crash" if wish == "crash" else "poweroff")
                return

    def _finish(self, plug: PowerSession, ending: Ending) -> None:
        plug.ending = ending
        plug.report = None
        self.on_change(plug.key)

    def _host_interface(self, plug: PowerSession) -> NicLink:
        return NicLink(
            self._clock.clock,
            self._rng,
            self._network,
            self._clock.time_scale,
            self._vlans,
            self.consoles,
            plug,
            lambda report: self._on_agent_report(plug, report),
        )

    def _on_agent_report(self, plug: PowerSession, report: AgentReport | None) -> None:
        fault = self._faults.agent_of("/".join(plug.key))
        if report is not None and fault is not None:
            if fault.kind == "absent":
                return
            if fault.kind == "late" and self._tasks is not None:
                plug.tasks.append(self._tasks.create_task(self._report_late(plug, report, fault.late_s)))
                return
            if fault.kind == "lying":
                report = AgentReport(
                    report.hostname, dict.fromkeys(report.addresses, fault.false_addresses), report.os
                )
        self._set_report(plug, report)

    async def _report_late(self, plug: PowerSession, report: AgentReport, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._set_report(plug, report)

    def _set_report(self, plug: PowerSession, report: AgentReport | None) -> None:
        if plug.report != report and plug.ending is None:
            plug.report = report
            self.on_change(plug.key)
