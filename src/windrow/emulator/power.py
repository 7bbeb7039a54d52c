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
from windrow.emulator.delays import Pace
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
from windrow.emulator.networks import POD_NETWORK, Segments
from windrow.emulator.rack import Rack
from windrow.emulator.world import Key

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
class Plug:
    """One machine with power."""

    key: Key
    hardware: Hardware
    task: asyncio.Task[None] | None = None
    machine: Machine | None = None
    report: AgentReport | None = None
    ending: Ending | None = None
    closing: bool = False  # the power button was pressed
    presses: list[asyncio.Task[None]] = field(default_factory=list)
    made: set[str] = field(default_factory=set)  # MACs of interfaces that the guest made on its cards


@dataclass(slots=True)
class Cable:
    """The `HostInterface` of one machine."""

    clock: Clock
    rng: Rng
    network: Rack
    time_scale: float
    _segments: Segments
    _consoles: Consoles
    _plug: Plug
    _agent: Callable[[AgentReport | None], None]

    async def lease(self, nic: Nic, hostname: str) -> DhcpLease | None:
        if nic in self._plug.hardware.nics:
            return self._segments.lease(nic)
        if nic.network == POD_NETWORK:
            return None  # KubeVirt answers the one card that it knows
        self._plug.made.add(nic.mac.lower())
        return self._segments.lease(nic)

    async def release(self, nic: Nic) -> None:
        self._plug.made.discard(nic.mac.lower())
        self._segments.release(nic)

    def console(self, line: str) -> None:
        self._consoles.write(self._plug.key, line)

    def report_agent(self, report: AgentReport | None) -> None:
        self._agent(report)


class Power:
    """Every plugged machine, by instance uid. `run` owns their tasks."""

    def __init__(
        self,
        make: MachineFactory,
        pace: Pace,
        rng: Rng,
        rack: Rack,
        segments: Segments,
        faults: Faults,
    ) -> None:
        self.consoles = Consoles()
        self.news: Callable[[Key], None] = lambda key: None
        self._make = make
        self._pace = pace
        self._rng = rng
        self._rack = rack
        self._segments = segments
        self._faults = faults
        self._plugs: dict[str, Plug] = {}
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

    def shred(self, claim_uid: str) -> None:
        """The claim is gone, and its data with it. May be repeated."""
        self._disks.pop(claim_uid, None)

    def find(self, uid: str) -> Plug | None:
        return self._plugs.get(uid)

    def plugged(self) -> list[Plug]:
        """Every machine with power."""
        return list(self._plugs.values())

    def made_by(self, key: Key) -> list[str]:
        """The addresses of interfaces that a machine with power made for itself."""
        return sorted(mac for plug in self._plugs.values() if plug.key == key for mac in plug.made)

    def knows(self, mac: str) -> bool:
        """Whether a machine with power made an interface with this address for itself."""
        return any(mac in plug.made for plug in self._plugs.values())

    def on(self, key: Key, hardware: Hardware) -> None:
        """Give the machine power, unless it has. Raises RuntimeError before `run`."""
        if hardware.vmi_uid in self._plugs:
            return
        if self._tasks is None:
            raise RuntimeError(
                "wanted to power a machine on; the emulator is not running: start Harvester.run()"
            )
        plug = self._plugs[hardware.vmi_uid] = Plug(key, hardware)
        plug.task = self._tasks.create_task(self._live(plug), name=f"machine {'/'.join(key)}")

    def press(self, uid: str) -> None:
        """The ACPI power button. May be repeated."""
        plug = self._plugs.get(uid)
        if plug is None or plug.closing or plug.machine is None or self._tasks is None:
            return
        plug.closing = True
        if self._faults.hangs("/".join(plug.key)):
            return
        plug.presses.append(self._tasks.create_task(self._press(plug, plug.machine)))

    async def _press(self, plug: Plug, machine: Machine) -> None:
        try:
            await machine.shutdown()
        except Exception as error:
            # The same as in `_live`: a guest that stumbles over its power button hangs, and says so.
            self.consoles.write(plug.key, f"power button: {type(error).__name__}: {error}")

    def off(self, uid: str) -> None:
        """Pull the plug: the machine is gone at once. May be repeated."""
        plug = self._plugs.pop(uid, None)
        if plug is None:
            return
        for task in (*plug.presses, *([plug.task] if plug.task else ())):
            task.cancel()

    def silence(self, uid: str, seconds: float) -> None:
        """The guest agent is lost for a while: its addresses vanish from the API and come back."""
        plug = self._plugs.get(uid)
        if plug is not None and plug.report is not None and self._tasks is not None:
            plug.presses.append(self._tasks.create_task(self._hear_late(plug, plug.report, seconds)))
            self._take(plug, None)

    def reset(self, uid: str) -> None:
        """The reset button: the machine boots anew, from the same disk, under the same instance."""
        plug = self._plugs.get(uid)
        if plug is not None and plug.ending is None:
            hardware, key = plug.hardware, plug.key
            self.off(uid)
            self.on(key, hardware)
            self.news(key)

    async def _live(self, plug: Plug) -> None:
        while True:
            plug.machine = self._make(plug.hardware, self._wires(plug))
            try:
                wish = await plug.machine.run()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A bug in a simulated guest is that guest's crash: the console says which.
                self.consoles.write(plug.key, f"kernel panic: {type(error).__name__}: {error}")
                self._end(plug, "crash")
                return
            self._hear(plug, None)
            if wish != "reboot" or plug.closing:
                self._end(plug, "crash" if wish == "crash" else "poweroff")
                return

    def _end(self, plug: Plug, ending: Ending) -> None:
        plug.ending = ending
        plug.report = None
        self.news(plug.key)

    def _wires(self, plug: Plug) -> Cable:
        return Cable(
            self._pace.clock,
            self._rng,
            self._rack,
            self._pace.speed,
            self._segments,
            self.consoles,
            plug,
            lambda report: self._hear(plug, report),
        )

    def _hear(self, plug: Plug, report: AgentReport | None) -> None:
        fault = self._faults.agent_of("/".join(plug.key))
        if report is not None and fault is not None:
            if fault.kind == "absent":
                return
            if fault.kind == "late" and self._tasks is not None:
                plug.presses.append(self._tasks.create_task(self._hear_late(plug, report, fault.late_s)))
                return
            if fault.kind == "lying":
                report = AgentReport(report.hostname, dict.fromkeys(report.addresses, fault.lie), report.os)
        self._take(plug, report)

    async def _hear_late(self, plug: Plug, report: AgentReport, seconds: float) -> None:
        await self._pace.pause(seconds)
        self._take(plug, report)

    def _take(self, plug: Plug, report: AgentReport | None) -> None:
        if plug.report != report and plug.ending is None:
            plug.report = report
            self.news(plug.key)
