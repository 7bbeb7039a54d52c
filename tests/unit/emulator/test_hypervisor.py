"""Machines on their plugs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from tests.blank_machine import BlankMachine
from tests.support.clock import LoopClock, run_driven

from windrow.core.rng import Rng
from windrow.emulator.delays import ScaledClock
from windrow.emulator.faults import AgentFault, Faults
from windrow.emulator.guest_os.hardware import Disk, Hardware, Nic
from windrow.emulator.host.hypervisor import CONSOLE_LINES, Consoles, Hypervisor
from windrow.emulator.host.networks import Lan, Vlans, render_network
from windrow.emulator.kit.network import Network

KEY = ("ns", "m-1")


def hardware(**rest):
    nic = Nic("nic-0", "02:00:00:00:00:01", "ns/net")
    plain = {"user_data": "", "network_data": "", "nics": (nic,), "root": Disk(), "image_has_agent": True}
    return Hardware("ns", "m-1", "vm-1", "vmi-1", **{**plain, **rest})


@asynccontextmanager
async def a_hypervisor(make=BlankMachine, faults=None):
    segments = Vlans({("ns", "net"): render_network("ns", "net", 50, Lan("192.168.50.0/24"))})
    power = Hypervisor(make, ScaledClock(LoopClock()), Rng(1), Network(), segments, faults or Faults())
    news = []
    power.on_change = news.append
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(power.run())
        await asyncio.sleep(0)
        yield power, news
        running.cancel()


def test_a_machine_reports_and_ends_by_its_button():
    async def story():
        async with a_hypervisor() as (power, news):
            power.power_on(KEY, hardware())
            await asyncio.sleep(30)
            assert power.find("vmi-1").report.addresses == {"nic-0": ("192.168.50.20",)}
            assert news == [KEY]
            news.clear()
            power.press_power_button("vmi-1")
            power.press_power_button("vmi-1")
            await asyncio.sleep(30)
            assert power.find("vmi-1").ending == "poweroff"
            assert news

    run_driven(story())


def test_a_second_on_changes_nothing():
    async def story():
        async with a_hypervisor() as (power, _):
            power.power_on(KEY, hardware())
            power.power_on(KEY, hardware())
            await asyncio.sleep(30)
            return power.consoles.read(*KEY)

    assert run_driven(story()) == ["m-1 boots for the 1. time", "m-1 login:"]


def test_power_off_ends_a_machine_at_once():
    async def story():
        async with a_hypervisor() as (power, _):
            power.power_on(KEY, hardware())
            await asyncio.sleep(5)
            power.power_off("vmi-1")
            power.power_off("vmi-1")
            await asyncio.sleep(60)
            assert power.find("vmi-1") is None
            return power.consoles.read(*KEY)

    assert run_driven(story()) == ["m-1 boots for the 1. time"]


def test_a_bug_in_a_guest_is_that_guests_crash():
    class Broken(BlankMachine):
        async def run(self):
            raise LookupError("no such disk")

    async def story():
        async with a_hypervisor(Broken) as (power, _):
            power.power_on(KEY, hardware())
            await asyncio.sleep(1)
            return power.find("vmi-1").ending, power.consoles.read(*KEY)

    assert run_driven(story()) == ("crash", ["kernel panic: LookupError: no such disk"])


def test_an_exception_in_a_guests_shutdown_is_on_its_console():
    class Stumbling(BlankMachine):
        async def shutdown(self):
            raise OSError("acpi")

    async def story():
        async with a_hypervisor(Stumbling) as (power, _):
            power.power_on(KEY, hardware())
            await asyncio.sleep(1)
            power.press_power_button("vmi-1")
            await asyncio.sleep(60)
            return power.find("vmi-1").ending, power.consoles.read(*KEY)[-2:]

    assert run_driven(story()) == (None, ["power button: OSError: acpi", "m-1 login:"])


def test_the_reset_button_boots_the_same_disk_again():
    async def story():
        async with a_hypervisor() as (power, _):
            power.power_on(KEY, hardware())
            await asyncio.sleep(30)
            power.reset("vmi-1")
            await asyncio.sleep(30)
            return power.consoles.read(*KEY)

    assert run_driven(story())[2:] == ["m-1 boots for the 2. time", "m-1 login:"]


def test_a_disk_is_the_same_until_it_is_shredded():
    async def story():
        async with a_hypervisor() as (power, _):
            power.disk("claim").state["data"] = 1
            assert power.disk("claim").state == {"data": 1}
            power.delete_disk("claim")
            return power.disk("claim").state

    assert run_driven(story()) == {}


def test_a_silenced_agent_reports_again():
    async def story():
        async with a_hypervisor() as (power, _):
            power.power_on(KEY, hardware())
            await asyncio.sleep(30)
            before = power.find("vmi-1").report
            power.silence_agent("vmi-1", 20)
            silent = power.find("vmi-1").report
            await asyncio.sleep(30)
            return before == power.find("vmi-1").report, silent

    assert run_driven(story()) == (True, None)


def test_an_absent_agent_never_reports():
    async def story():
        async with a_hypervisor(faults=Faults(agents=[AgentFault()])) as (power, news):
            power.power_on(KEY, hardware())
            await asyncio.sleep(300)
            return power.find("vmi-1").report, news

    assert run_driven(story()) == (None, [])


def test_consoles_keep_the_last_lines():
    consoles = Consoles()
    for number in range(CONSOLE_LINES + 5):
        consoles.write(KEY, str(number))

    assert consoles.read(*KEY)[0] == "5"
    assert consoles.read("ns", "unknown") == []
