"""The life of virtual machines on the emulated Harvester, as a client sees it (reference 05 §2)."""

from __future__ import annotations

from tests.blank_machine import BlankMachine
from tests.support.clock import run_driven

from windrow.apiserver.storage.memory import MemoryStore
from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.requests import list_
from windrow.kubernetes.resources import NAMESPACE as NAMESPACE_KIND
from windrow.kubernetes.resources import POD, PVC

from .harvester_rig import (
    a_harvester,
    boot,
    eventually,
    has_address,
    is_gone,
    order,
    post,
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

    assert run_driven(story()) == ["Pending", "Scheduling", "Scheduled", "Running"]


def test_the_addresses_of_a_vms_cards_are_annotated_once_it_has_run():
    """As Harvester does (SetDefaultNetworkMacAddress), and not with those that its mutator gave the template."""

    async def story():
        async with a_harvester() as harvester:
            await post(harvester)
            starting = await eventually(harvester, vm_ref(), shows("Starting"))
            await eventually(harvester, vmi_ref(), has_address)
            running = await eventually(harvester, vm_ref(), shows("Running"))
            key = "harvesterhci.io/mac-address"
            cards = running["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"]
            assert cards[0]["macAddress"]
            assert key not in starting["metadata"]["annotations"]
            assert loads(running["metadata"]["annotations"][key]) == {"nic-0": cards[0]["macAddress"]}

            assert await order(harvester, "stop") == 202
            stopped = await eventually(harvester, vm_ref(), shows("Stopped"))
            assert stopped["metadata"]["annotations"][key] == running["metadata"]["annotations"][key]

    run_driven(story())


def test_a_disk_without_an_image_does_not_boot():
    async def story():
        async with a_harvester(machine=machine_factory()) as harvester:
            await post(harvester, image="", storage_class="harvester-longhorn")
            vm = await eventually(harvester, vm_ref(), shows("Running"))
            await harvester.clock.sleep(600)
            vmi = await eventually(harvester, vmi_ref(), bool)

            assert not has_address(vmi)
            assert "AgentConnected" not in {raw["type"] for raw in vmi["status"]["conditions"]}
            assert nested(vm, "status", "ready") is True  # the domain runs, as on a real one

            assert await order(harvester, "stop") == 202
            await eventually(harvester, vm_ref(), shows("Stopped"))
            return harvester.console("default", "m-1")

    assert run_driven(story())[-1] == "No bootable device."


def test_a_stopped_machine_stays_down_until_it_is_started_and_keeps_address_and_disk():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)

            assert await order(harvester, "stop") == 202
            await eventually(harvester, vm_ref(), shows("Stopping"))
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.clock.sleep(600)
            down = await eventually(harvester, vm_ref(), shows("Stopped"))
            assert down["spec"]["runStrategy"] == "RerunOnFailure"

            assert await order(harvester, "start") == 202
            second = await eventually(harvester, vmi_ref(), has_address)

            assert uid_of(first) != uid_of(second)
            assert first["status"]["interfaces"] == second["status"]["interfaces"]
            return harvester.console("default", "m-1")

    assert run_driven(story()) == [
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
            assert not nested(vm, "status", "stateChangeRequests", default=[])

    run_driven(story())


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

    assert run_driven(story()) == ["m-2-disk-0-abcde"]


def test_a_guest_that_powers_itself_off_under_rerun_on_failure_stays_down():
    machines = []

    async def story():
        async with a_harvester(machine=_kept(machines)) as harvester:
            await boot(harvester)
            machines[-1].end("poweroff")
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.clock.sleep(600)
            await eventually(harvester, vm_ref(), shows("Stopped"))

    run_driven(story())


def test_a_guest_that_crashes_under_rerun_on_failure_is_started_again():
    machines = []

    async def story():
        async with a_harvester(machine=_kept(machines)) as harvester:
            first = await boot(harvester)
            machines[-1].end("crash")
            await eventually(harvester, vmi_ref(), lambda vmi: vmi and uid_of(vmi) != uid_of(first))
            await eventually(harvester, vmi_ref(), has_address)

    run_driven(story())


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

    assert run_driven(story()) == ["m-1 boots for the 2. time", "m-1 login:"]


def test_a_machine_that_hangs_is_destroyed_when_its_grace_is_over():
    async def story():
        async with a_harvester(
            machine=lambda hardware, wires: BlankMachine(hardware, wires, agent=True, hangs=True)
        ) as harvester:
            await boot(harvester)
            began = harvester.clock.now()
            await order(harvester, "stop")
            await eventually(harvester, vmi_ref(), is_gone)
            return (harvester.clock.now() - began).total_seconds()

    assert 120 <= run_driven(story()) < 130


def _kept(machines):
    """A factory of blank machines that keeps them, so that a story can end one from within."""

    def make(hardware, wires):
        machines.append(BlankMachine(hardware, wires, agent=True))
        return machines[-1]

    return make


def test_an_idle_harvester_writes_nothing():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            await harvester.clock.sleep(60)
            before = await _version(harvester)
            await harvester.clock.sleep(3000)
            return before, await _version(harvester)

    before, after = run_driven(story())
    assert before == after


async def _version(harvester):
    reply = await harvester.api.local().send(list_(kinds.VM))
    return loads(reply.body)["metadata"]["resourceVersion"]


def test_the_same_seed_gives_the_same_run():
    async def story(seed):
        async with a_harvester(seed) as harvester:
            vmi = await boot(harvester)
            return vmi["metadata"]["uid"], vmi["status"], harvester.clock.now()

    assert run_driven(story(5)) == run_driven(story(5))
    assert run_driven(story(5)) != run_driven(story(6))


def test_the_time_scale_divides_the_time_a_boot_takes():
    async def story(time_scale):
        async with a_harvester(time_scale=time_scale) as harvester:
            began = harvester.clock.now()
            await boot(harvester)
            return (harvester.clock.now() - began).total_seconds()

    slow, fast = run_driven(story(1)), run_driven(story(10))
    assert 20 < slow < 60
    assert fast < slow / 5


def test_a_namespace_goes_with_its_machines_and_volumes():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await harvester.preload(namespaces=["tenant"])
            raw = await post(harvester)
            await line.delete(vm_ref(), propagation="Background")
            await eventually(harvester, vm_ref(), is_gone)
            for name in ("m-1", "m-2"):
                moved = {**raw, "metadata": {**raw["metadata"], "name": name, "namespace": "tenant"}}
                for server_made in (
                    "uid",
                    "resourceVersion",
                    "creationTimestamp",
                    "generation",
                    "finalizers",
                ):
                    moved["metadata"].pop(server_made, None)
                if name == "m-2":
                    moved["spec"] = {**raw["spec"], "runStrategy": "Halted"}
                    moved["spec"]["template"]["spec"]["volumes"] = []
                    moved["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = []
                    moved["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] = []
                    moved["spec"]["template"]["spec"]["networks"] = []
                await line.create(kinds.VM, moved)
            await eventually(harvester, kinds.VMI.ref("m-1", "tenant"), has_address)

            await line.delete(NAMESPACE_KIND.ref("tenant"))

            await eventually(harvester, NAMESPACE_KIND.ref("tenant"), is_gone)
            return [item for item in await inventory(harvester.api) if item[1] == "tenant"]

    assert run_driven(story()) == []


def test_a_harvester_over_a_kept_store_starts_its_machines_again():
    async def story():
        store = MemoryStore()
        async with a_harvester(store=store) as harvester:
            first = await boot(harvester)
        async with a_harvester(seed=8, store=store) as harvester:
            second = await eventually(
                harvester, vmi_ref(), lambda vmi: has_address(vmi) and uid_of(vmi) != uid_of(first)
            )
            await eventually(harvester, vm_ref(), shows("Running"))
            await harvester.api.local().delete(vm_ref(), propagation="Foreground")
            await eventually(harvester, vm_ref(), is_gone)
            await harvester.clock.sleep(10)
            return first, second, await harvester.api.local().list(POD)

    first, second, pods = run_driven(story())
    assert first["status"]["interfaces"][0]["mac"] == second["status"]["interfaces"][0]["mac"]
    assert pods == []
