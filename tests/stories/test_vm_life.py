"""The life of virtual machines on the emulated Harvester, as a client sees it (reference 05 §2)."""

from __future__ import annotations

from windrow.assembly.clock import run_story
from windrow.emulator.guests.blank import BlankMachine
from windrow.kube.objects import dig, uid_of
from windrow.kube.refs import PVC

from .rackside import (
    a_harvester,
    boot,
    eventually,
    has_address,
    is_gone,
    order,
    shows,
    vm_ref,
    vmi_ref,
)


def test_a_posted_vm_boots_and_shows_its_address():
    async def story():
        async with a_harvester() as harvester:
            vmi = await boot(harvester)
            vm = await eventually(harvester, vm_ref(), shows("Running"))

            assert vmi["status"]["interfaces"][0]["ipAddress"].startswith("192.168.50.")
            assert vm["status"]["ready"] is True
            return [step["phase"] for step in vmi["status"]["phaseTransitionTimestamps"]]

    assert run_story(story()) == ["Pending", "Scheduling", "Scheduled", "Running"]


def test_a_stopped_machine_stays_down_until_it_is_started_and_keeps_address_and_disk():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)

            assert await order(harvester, "stop") == 202
            await eventually(harvester, vm_ref(), shows("Stopping"))
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.pace.pause(600)
            down = await eventually(harvester, vm_ref(), shows("Stopped"))
            assert down["spec"]["runStrategy"] == "RerunOnFailure"

            assert await order(harvester, "start") == 202
            second = await eventually(harvester, vmi_ref(), has_address)

            assert uid_of(first) != uid_of(second)
            assert first["status"]["interfaces"] == second["status"]["interfaces"]
            return harvester.console("default", "m-1")

    assert run_story(story()) == [
        "m-1 boots for the 1. time",
        "m-1 login:",
        "m-1 boots for the 2. time",
        "m-1 login:",
    ]


def test_a_restart_gives_a_new_instance_under_the_same_name():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)

            assert await order(harvester, "restart") == 202
            second = await eventually(
                harvester, vmi_ref(), lambda vmi: has_address(vmi) and uid_of(vmi) != uid_of(first)
            )

            assert first["status"]["interfaces"][0]["mac"] == second["status"]["interfaces"][0]["mac"]
            vm = await eventually(harvester, vm_ref(), shows("Running"))
            assert not dig(vm, "status", "stateChangeRequests", default=[])

    run_story(story())


def test_a_deleted_machine_takes_only_the_volumes_that_were_named():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await boot(harvester)
            await boot(harvester, name="m-2")
            named = {
                "metadata": {
                    "annotations": {"harvesterhci.io/removedPersistentVolumeClaims": "m-1-disk-0-abcde"}
                }
            }
            await line.patch(vm_ref("m-1"), named)

            for name in ("m-1", "m-2"):
                answer = await line.delete(vm_ref(name), propagation="Foreground")
                assert answer["kind"] == "VirtualMachine"
                await eventually(harvester, vm_ref(name), is_gone)

            await eventually(harvester, PVC.ref("m-1-disk-0-abcde", "default"), is_gone)
            return [claim["metadata"]["name"] for claim in await line.list(PVC)]

    assert run_story(story()) == ["m-2-disk-0-abcde"]


def test_a_guest_that_powers_itself_off_under_rerun_on_failure_stays_down():
    machines = []

    async def story():
        async with a_harvester(machine=_kept(machines)) as harvester:
            await boot(harvester)
            machines[-1].end("poweroff")
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.pace.pause(600)
            await eventually(harvester, vm_ref(), shows("Stopped"))

    run_story(story())


def test_a_guest_that_crashes_under_rerun_on_failure_is_started_again():
    machines = []

    async def story():
        async with a_harvester(machine=_kept(machines)) as harvester:
            first = await boot(harvester)
            machines[-1].end("crash")
            await eventually(harvester, vmi_ref(), lambda vmi: vmi and uid_of(vmi) != uid_of(first))
            await eventually(harvester, vmi_ref(), has_address)

    run_story(story())


def test_a_guest_that_reboots_keeps_its_instance():
    machines = []

    async def story():
        async with a_harvester(machine=_kept(machines)) as harvester:
            first = await boot(harvester)
            machines[-1].end("reboot")
            await eventually(harvester, vmi_ref(), lambda vmi: not has_address(vmi))
            second = await eventually(harvester, vmi_ref(), has_address)
            assert uid_of(first) == uid_of(second)
            return harvester.console("default", "m-1")[-2:]

    assert run_story(story()) == ["m-1 boots for the 2. time", "m-1 login:"]


def test_a_machine_that_hangs_is_destroyed_when_its_grace_is_over():
    async def story():
        async with a_harvester(
            machine=lambda hardware, wires: BlankMachine(hardware, wires, agent=True, hangs=True)
        ) as harvester:
            await boot(harvester)
            began = harvester.pace.now()
            await order(harvester, "stop")
            await eventually(harvester, vmi_ref(), is_gone)
            return (harvester.pace.now() - began).total_seconds()

    assert 120 <= run_story(story()) < 130


def _kept(machines):
    """A factory of blank machines that keeps them, so that a story can end one from within."""

    def make(hardware, wires):
        machines.append(BlankMachine(hardware, wires, agent=True))
        return machines[-1]

    return make
