"""A simulated machine: power on, boot, cloud-init, services, power off. What the hypervisor gets from this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.emulator.guest_cluster.distribution.k3s import K3S
from windrow.emulator.guest_cluster.distribution.rke2 import RKE2
from windrow.emulator.guest_cluster.kubectl import kubectl_commands
from windrow.emulator.guest_cluster.node_commands import node_command
from windrow.emulator.guest_cluster.node_process import Clusters, NodeProcess
from windrow.emulator.guest_os.binaries import command_key
from windrow.emulator.guest_os.cloudinit.stages import CloudInitRun
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import (
    AgentReport,
    BlockDevice,
    GuestProgram,
    Hardware,
    HostInterface,
    Machine,
)
from windrow.emulator.guest_os.kernel_files import list_boot_messages
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.packages import (
    QEMU_GUEST_AGENT,
    add_package,
    ensure_machine_id,
    installation_commands,
)
from windrow.emulator.guest_os.shell.commands import FILE_AND_TEXT_COMMANDS
from windrow.emulator.guest_os.shell.run import Command, Invocation
from windrow.emulator.guest_os.system import SYSTEM_COMMANDS, apply_sysctl_files
from windrow.emulator.guest_os.systemd import NotifyReady, ServiceProgram, Systemd

_OS_INFO = {
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
    programs: Mapping[str, GuestProgram] | None = None,
    delays: GuestDelays | None = None,
    clusters: Clusters | None = None,
) -> Callable[[Hardware, HostInterface], Machine]:
    """What powers machines on. Machines of one factory may form clusters with each other.

    `programs` are what bundled charts run, by name: "harvester-cloud-provider", "harvester-csi-driver". The clusters
    that are formed are put into `clusters`, by uid.
    """
    formed: Clusters = {} if clusters is None else clusters

    def power_on(hardware: Hardware, host: HostInterface) -> Machine:
        return GuestMachine(hardware, host, programs or {}, delays or GuestDelays(), formed)

    return power_on


@dataclass(eq=False)
class GuestMachine:
    """One power-on."""

    hardware: Hardware
    host: HostInterface
    programs: Mapping[str, GuestProgram]
    delays: GuestDelays
    clusters: Clusters
    _power_button: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    guest: GuestOS | None = field(default=None, init=False)  # the operating system, since power-on

    async def run(self) -> str:
        if not self.hardware.boots:
            return await self._find_nothing_to_boot()
        tasks: set[asyncio.Task[Any]] = set()
        async with asyncio.TaskGroup() as group:

            def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
                task = group.create_task(work, name=f"{self.hardware.name}: {name}")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                return task

            guest = self.guest = GuestOS(self.hardware, self.host, self.delays, spawn)
            spawn(self._boot(guest), "boot")
            spawn(self._watch_power_button(guest), "power button")
            try:
                kind = await guest.ended
                guest.console("Stopping all services." if kind == "poweroff" else "Rebooting.")
                await guest.sleep(self.delays.poweroff)
            finally:
                for task in tuple(tasks):
                    task.cancel()
        guest.console("Power down." if kind == "poweroff" else "reboot: Restarting system")
        return kind

    async def _find_nothing_to_boot(self) -> str:
        """What SeaBIOS does with blank disks: nothing more, until the power is cut; it has no power button."""
        for line in ("Booting from Hard Disk...", "Boot failed: not a bootable disk", "No bootable device."):
            self.host.console(line)
        await asyncio.Event().wait()
        return "poweroff"

    async def shutdown(self) -> None:
        self._power_button.set()

    def change_disks(self, disks: tuple[BlockDevice, ...]) -> None:
        self.hardware = replace(self.hardware, disks=disks)
        if self.guest is not None:
            self.guest.change_disks(disks)

    async def _watch_power_button(self, guest: GuestOS) -> None:
        await self._power_button.wait()
        guest.request_shutdown("poweroff")

    # -- boot

    async def _boot(self, guest: GuestOS) -> None:
        guest.console(
            f"Linux version 6.8.0-60-generic ({_OS_INFO['prettyName']}) booting on {self.hardware.name}"
        )
        install_commands = installation_commands(self.delays.service_restart)
        for message in list_boot_messages(self.hardware):
            guest.console(message)
        commands: dict[str, Command] = guest.commands
        commands |= {
            **FILE_AND_TEXT_COMMANDS,
            **SYSTEM_COMMANDS,
            **install_commands,
            **kubectl_commands(),
        }
        programs = {one.name: self._node_program(one) for one in (RKE2, K3S)}
        for one in (RKE2, K3S):
            run = partial(_run_in_foreground, programs[one.name])
            commands[command_key(one.name)] = node_command(one, run, self.clusters)
        systemd = Systemd(guest, commands, {**programs, "qemu-ga": self._guest_agent})
        for verb in ("poweroff", "reboot", "shutdown"):
            commands[verb] = _shutdown_command
        self._prepare_image(guest)
        await guest.sleep(self.delays.kernel)
        apply_sysctl_files(guest)
        cloud_init = CloudInitRun(guest, systemd)
        await cloud_init.local()
        await cloud_init.network()
        await cloud_init.boot_commands()
        guest.spawn(systemd.boot(), "enabled services")
        # At boot, udev starts the agent when its package is there; one installed later has to be started.
        if guest.exists("/usr/sbin/qemu-ga"):
            await systemd.start(QEMU_GUEST_AGENT)
        await cloud_init.config()
        await cloud_init.final()
        systemd.cloud_final.set()
        guest.console(f"{guest.hostname} login: ")

    def _prepare_image(self, guest: GuestOS) -> None:
        """What the image brought, on the first boot of its disk."""
        ensure_machine_id(guest)
        if self.hardware.image_has_agent and not guest.exists("/usr/sbin/qemu-ga"):
            add_package(guest, QEMU_GUEST_AGENT)

    def _node_program(self, distribution: Distribution) -> ServiceProgram:
        async def run(call: Invocation, ready: NotifyReady) -> int:
            return await NodeProcess(distribution, call, ready, self.clusters, self.programs).run()

        return run

    async def _guest_agent(self, call: Invocation, ready: NotifyReady) -> int:
        guest = call.guest
        await guest.sleep(self.delays.agent)
        try:
            while True:
                addresses = {name: found for name, found in guest.addresses.items() if found}
                self.host.report_agent(AgentReport(guest.hostname, addresses, _OS_INFO))
                await guest.addresses_changed.wait()
        finally:
            self.host.report_agent(None)


async def _run_in_foreground(program: ServiceProgram, call: Invocation) -> int:
    return await program(call, lambda: None)


async def _shutdown_command(call: Invocation) -> int:
    call.guest.request_shutdown("reboot" if call.argv[0] == "reboot" or "-r" in call.argv else "poweroff")
    return 0
