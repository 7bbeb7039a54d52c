"""A machine without cloud-init: it boots, requests a DHCP lease for each NIC, and runs a guest agent if configured.

For machines whose cloud-init does not matter, and for tests of the hypervisor side alone.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from windrow.core.clock import sleep
from windrow.emulator.guest_os.hardware import AgentReport, BlockDevice, Hardware, HostInterface


class BlankMachine:
    """One power-on. `hangs` ignores the power button."""

    def __init__(
        self,
        hardware: Hardware,
        host: HostInterface,
        *,
        boot_s: float = 10.0,
        poweroff_s: float = 3.0,
        agent: bool | None = None,
        hangs: bool = False,
    ) -> None:
        self._hardware = hardware
        self._host = host
        self._boot_s = boot_s
        self._poweroff_s = poweroff_s
        self._agent = hardware.image_has_agent if agent is None else agent
        self._hangs = hangs
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        boots = self._hardware.root.state["boots"] = self._hardware.root.state.get("boots", 0) + 1
        self._host.console(f"{self._hardware.name} boots for the {boots}. time")
        booting = asyncio.ensure_future(self._boot())
        try:
            either: set[asyncio.Future[Any]] = {booting, self._ending}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if booting.done():
                booting.result()
            return await self._ending
        finally:
            booting.cancel()

    async def _boot(self) -> None:
        await sleep(self._host.clock, timedelta(seconds=self._boot_s / self._host.time_scale))
        addresses = {}
        for nic in self._hardware.nics:
            lease = await self._host.lease(nic, self._hardware.name)
            if lease is not None:
                addresses[nic.name] = (lease.address,)
        self._host.console(f"{self._hardware.name} login:")
        if self._agent:
            self._host.report_agent(AgentReport(self._hardware.name, addresses))

    async def shutdown(self) -> None:
        if self._hangs:
            return
        await sleep(self._host.clock, timedelta(seconds=self._poweroff_s / self._host.time_scale))
        self.end("poweroff")

    def change_disks(self, disks: tuple[BlockDevice, ...]) -> None:
        """Its disks do not matter."""

    def end(self, how: str) -> None:
        """The guest ends itself: "poweroff", "reboot" or "crash"."""
        if not self._ending.done():
            self._ending.set_result(how)
