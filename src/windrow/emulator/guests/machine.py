"""A simulated machine: power on, boot, cloud-init, services, power off. What the hypervisor gets from this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from windrow.emulator.guests.box import Box
from windrow.emulator.guests.commands import FILES_AND_TEXT
from windrow.emulator.guests.delays import GuestDelays
from windrow.emulator.guests.firstboot import CloudInit
from windrow.emulator.guests.hardware import AgentReport, Hardware, Machine, Program, Wires
from windrow.emulator.guests.installer import QEMU_GUEST_AGENT, add_package, installation_commands
from windrow.emulator.guests.rke2 import Clusters, Rke2
from windrow.emulator.guests.shell import Call, Command
from windrow.emulator.guests.system import SYSTEM_COMMANDS, apply_sysctl_files
from windrow.emulator.guests.systemd import CLOUD_FINAL, Ready, Systemd

_OS = {
    "id": "ubuntu",
    "name": "Ubuntu",
    "prettyName": "Ubuntu 24.04.3 LTS",
    "version": "24.04",
    "versionId": "24.04",
    "kernelRelease": "6.8.0-60-generic",
    "kernelVersion": "#63-Ubuntu SMP",
    "machine": "x86_64",
}


def machine_factory(
    programs: Mapping[str, Program] | None = None, delays: GuestDelays | None = None
) -> Callable[[Hardware, Wires], Machine]:
    """What powers machines on. Machines of one factory may form clusters with each other.

    `programs` are what bundled charts run, by name: "harvester-cloud-provider", "harvester-csi-driver".
    """
    clusters: Clusters = {}

    def power_on(hardware: Hardware, wires: Wires) -> Machine:
        return GuestMachine(hardware, wires, programs or {}, delays or GuestDelays(), clusters)

    return power_on


class GuestMachine:
    """One power-on."""

    def __init__(
        self,
        hardware: Hardware,
        wires: Wires,
        programs: Mapping[str, Program],
        delays: GuestDelays,
        clusters: Clusters,
    ) -> None:
        self.hardware = hardware
        self.wires = wires
        self.programs = programs
        self.delays = delays
        self.clusters = clusters
        self._box: Box | None = None
        self._button = asyncio.Event()

    async def run(self) -> str:
        tasks: set[asyncio.Task[Any]] = set()
        async with asyncio.TaskGroup() as group:

            def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                task = group.create_task(work, name=f"{self.hardware.name}: {name}")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                return task

            box = self._box = Box(self.hardware, self.wires, self.delays, spawn)
            spawn(self._live(box), "boot")
            spawn(self._heed_button(box), "power button")
            try:
                why = await box.ended
                box.console("Stopping all services." if why == "poweroff" else "Rebooting.")
                await box.pause(self.delays.poweroff)
            finally:
                for task in tuple(tasks):
                    task.cancel()
        box.console("Power down." if why == "poweroff" else "reboot: Restarting system")
        return why

    async def shutdown(self) -> None:
        self._button.set()

    async def _heed_button(self, box: Box) -> None:
        await self._button.wait()
        box.power("poweroff")

    # -- life

    async def _live(self, box: Box) -> None:
        box.console(f"Linux version 6.8.0-60-generic ({_OS['prettyName']}) booting on {self.hardware.name}")
        installing = installation_commands(self.delays.service_restart)
        commands: dict[str, Command] = {**FILES_AND_TEXT, **SYSTEM_COMMANDS, **installing}
        systemd = Systemd(box, commands, {"rke2": self._rke2, "qemu-ga": self._guest_agent})
        for verb in ("poweroff", "reboot", "shutdown"):
            commands[verb] = _power
        self._prepare_image(box)
        await box.pause(self.delays.kernel)
        apply_sysctl_files(box)
        cloud_init = CloudInit(box, systemd)
        await cloud_init.local()
        await cloud_init.network()
        box.spawn(systemd.boot(), "enabled services")
        if self._starts_agent(box):
            await systemd.start(QEMU_GUEST_AGENT)
        await cloud_init.config()
        await cloud_init.final()
        systemd.reach(CLOUD_FINAL)
        box.console(f"{box.hostname} login: ")

    def _prepare_image(self, box: Box) -> None:
        """What the image brought, on the first boot of its disk."""
        if not box.exists("/etc/machine-id"):
            # On a KVM guest, systemd makes it of the VM's own uuid.
            box.write("/etc/machine-id", self.hardware.vm_uid.replace("-", "").encode() + b"\n")
        if self.hardware.image_has_agent and not box.exists("/usr/sbin/qemu-ga"):
            add_package(box, QEMU_GUEST_AGENT)

    def _starts_agent(self, box: Box) -> bool:
        """At boot, udev starts the agent when its package is there; one installed later has to be started."""
        return box.exists("/usr/sbin/qemu-ga")

    async def _rke2(self, call: Call, ready: Ready) -> int:
        return await Rke2(call, ready, self.clusters, self.programs).run()

    async def _guest_agent(self, call: Call, ready: Ready) -> int:
        box = call.box
        await box.pause(self.delays.agent)
        try:
            while True:
                addresses = {name: found for name, found in box.addresses.items() if found}
                self.wires.agent(AgentReport(box.hostname, addresses, _OS))
                await box.moved.wait()
        finally:
            self.wires.agent(None)


async def _power(call: Call) -> int:
    call.box.power("reboot" if call.argv[0] == "reboot" or "-r" in call.argv else "poweroff")
    return 0
