"""Harvester's own upgrade: how a host is emptied, and what becomes of VMs."""

from __future__ import annotations

from datetime import timedelta

from tests.stories.harvester_rig import a_harvester, a_vm
from tests.support.clock import run_driven
from tests.unit.emulator.test_maintenance import a_migration, a_vmi

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.host.upgrades import Evacuation, plan_evacuation
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import NODE

HOSTS = [{"metadata": {"name": name}, "spec": {}} for name in "abc"]
REF = kinds.UPGRADE.ref("hvst-upgrade-1", "harvester-system")


def test_two_machines_migrate_at_a_time_and_those_that_cannot_are_shut_down():
    machines = [a_vmi("x"), a_vmi("y"), a_vmi("z"), a_vmi("stuck", migratable=False), a_vmi("other", "b")]

    assert plan_evacuation("a", HOSTS, machines, []) == Evacuation(
        (("ns", "x"), ("ns", "y")), (("ns", "stuck"),)
    )
    one_moves = plan_evacuation("a", HOSTS, machines, [a_migration("x"), a_migration("y", "Succeeded")])
    assert one_moves == Evacuation((("ns", "y"),), (("ns", "stuck"),))


def test_where_no_other_host_takes_machines_all_are_shut_down():
    cordoned = [HOSTS[0], {"metadata": {"name": "b"}, "spec": {"unschedulable": True}}]

    assert plan_evacuation("a", cordoned, [a_vmi("x")], []) == Evacuation(stop=(("ns", "x"),))


def test_a_host_without_machines_is_empty():
    assert plan_evacuation("a", HOSTS, [a_vmi("x", "b"), a_vmi("over", phase="Succeeded")], []) is None


async def until(harvester: Harvester, holds, seconds: int = 3600) -> None:
    for _ in range(seconds):
        if await holds():
            return
        await sleep(harvester.clock.base, timedelta(seconds=1))
    raise AssertionError("did not happen")


def test_hosts_are_upgraded_one_after_the_other_and_their_machines_run_elsewhere():
    async def scenario() -> None:
        async with a_harvester() as harvester:
            client = harvester.api.local()
            for number in range(3):
                await client.create(kinds.VM, a_vm(f"m-{number}"))

            async def all_run() -> bool:
                found = await client.list(kinds.VMI)
                return len(found) == 3 and all(nested(one, "status", "phase") == "Running" for one in found)

            await until(harvester, all_run)
            upgrade = new_object(kinds.UPGRADE, REF.name, REF.namespace, spec={"version": "v1.9.0"})
            await client.create(kinds.UPGRADE, upgrade)
            cordoned: set[tuple[str, ...]] = set()
            states: set[str] = set()

            async def is_over() -> bool:
                nodes: list[Raw] = await client.list(NODE)
                cordoned.add(tuple(name_of(one) for one in nodes if nested(one, "spec", "unschedulable")))
                raw = await client.get(REF)
                states.update(
                    one["state"] for one in nested(raw, "status", "nodeStatuses", default={}).values()
                )
                return is_true(nested(raw, "status", "conditions"), "Completed")

            await until(harvester, is_over)
            await until(harvester, all_run, 300)
            setting = await client.get(kinds.SETTING.ref("server-version"))

            hosts = [name_of(one) for one in await client.list(NODE)]
            assert cordoned - {()} == {(one,) for one in hosts}
            assert states == {"Pre-draining", "Post-draining", "Succeeded"}
            assert setting["value"] == "v1.9.0"
            assert not any(nested(one, "spec", "unschedulable") for one in await client.list(NODE))

    run_driven(scenario())


def test_a_machine_that_cannot_migrate_is_off_after_the_upgrade():
    async def scenario() -> None:
        async with a_harvester() as harvester:
            client = harvester.api.local()
            vm = a_vm("pinned")
            await client.create(kinds.VM, vm)

            async def runs() -> bool:
                found = await client.list(kinds.VMI)
                return bool(found) and nested(found[0], "status", "phase") == "Running"

            await until(harvester, runs)
            (vmi,) = await client.list(kinds.VMI)
            host = nested(vmi, "status", "nodeName")
            for node in await client.list(NODE):
                if name_of(node) != host:  # no other host takes it
                    await client.patch(NODE.ref(name_of(node)), {"spec": {"unschedulable": True}})
            await client.create(kinds.UPGRADE, new_object(kinds.UPGRADE, REF.name, REF.namespace, spec={}))

            async def is_off() -> bool:
                found = await client.get(kinds.VM.ref("pinned", vm["metadata"]["namespace"]))
                return nested(found, "spec", "runStrategy") == "Halted" and not await client.list(kinds.VMI)

            async def is_over() -> bool:
                return is_true(nested(await client.get(REF), "status", "conditions"), "Completed")

            await until(harvester, is_over)
            assert await is_off()

    run_driven(scenario())
