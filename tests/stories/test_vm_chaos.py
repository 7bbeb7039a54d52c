"""Whatever happens to machines and hosts, in whatever order: what must hold at each step, and in the end."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.blank_machine import BlankMachine
from tests.support.clock import run_driven
from tests.support.seeds import sampled

from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.resources import POD, PVC

from .harvester_rig import (
    NAMESPACE,
    a_harvester,
    eventually,
    has_address,
    is_gone,
    order,
    post,
    vm_ref,
    vmi_ref,
)

NAMES = ("a", "b", "c")
STEPS = 40


@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_invariants_hold_under_faults_and_the_harvester_recovers(seed):
    machines = {}

    def make(hardware, wires):
        machines[hardware.vmi_uid] = BlankMachine(hardware, wires, agent=True)
        return machines[hardware.vmi_uid]

    async def story():
        async with a_harvester(seed, machine=make) as harvester:
            rng = Rng(f"chaos {seed}")
            for name in NAMES:
                await post(harvester, name=name)
            for _ in range(STEPS):
                await _something(harvester, rng, machines)
                await harvester.clock.sleep(rng.uniform(0, 40))
                await _holds(harvester)
            await _recovers(harvester)

    run_driven(story())


async def _something(harvester, rng, machines):
    """One thing that users, guests or hardware do."""
    name = NAMES[rng.below(len(NAMES))]
    host = f"host-{1 + rng.below(3)}"
    line = harvester.api.local()
    vmi = harvester.listers.instances.get((NAMESPACE, name))
    deeds = [
        lambda: order(harvester, "start", name),
        lambda: order(harvester, "stop", name),
        lambda: order(harvester, "restart", name),
        lambda: order(harvester, "migrate", name),
        lambda: _end(machines, vmi, "poweroff"),
        lambda: _end(machines, vmi, "reboot"),
        lambda: _end(machines, vmi, "crash"),
        lambda: _now(harvester.fail_host, host),
        lambda: _now(harvester.recover_host, host),
        lambda: _now(harvester.recover_host, host),
        lambda: _now(harvester.silence_agent, NAMESPACE, name, 30),
        lambda: line.delete(vmi_ref(name)),
        lambda: line.delete(vm_ref(name), propagation=("Foreground", "Background")[rng.below(2)]),
        lambda: post(harvester, name=name),
        lambda: line.patch(vm_ref(name), {"spec": {"runStrategy": ("Halted", "Always")[rng.below(2)]}}),
    ]
    with suppress(KubeError):  # a refusal is an answer
        await deeds[rng.below(len(deeds))]()


async def _now(action, *what):
    action(*what)


async def _end(machines, vmi, how):
    if vmi is not None and uid_of(vmi) in machines:
        machines[uid_of(vmi)].end(how)


async def _holds(harvester):
    """What is true of every possible world, once the controllers have had their say."""
    await harvester.clock.sleep(0.001)
    line = harvester.api.local()
    instances = {uid_of(vmi): vmi for vmi in await line.list(kinds.VMI)}
    plugs = harvester.hypervisor.running_machines()
    assert len({plug.key for plug in plugs}) == len(plugs), "one machine runs twice"
    disks = [id(plug.hardware.root) for plug in plugs]
    assert len(disks) == len(set(disks)), "two running machines share a disk"
    for plug in plugs:
        vmi = instances.get(plug.hardware.vmi_uid)
        assert vmi is not None, f"{plug.key} runs without an instance"
        assert harvester.hosts.has_power(vmi["status"]["nodeName"]), f"{plug.key} runs without power"
    leases = [
        address for server in harvester.vlans.servers().values() for address in server.leases().values()
    ]
    assert len(leases) == len(set(leases))


async def _recovers(harvester):
    """When trouble ends, every machine that should run does, and every deleted one is gone with its pods."""
    line = harvester.api.local()
    for host in ("host-1", "host-2", "host-3"):
        harvester.recover_host(host)
    await harvester.clock.sleep(900)
    for name in NAMES:
        vm = await line.find(vm_ref(name))
        if vm is None:
            assert await line.find(vmi_ref(name)) is None
            await post(harvester, name=name)
        elif nested(vm, "status", "printableStatus") == "Stopped":
            await order(harvester, "start", name)
        await eventually(harvester, vmi_ref(name), has_address)
    assert len(await line.list(POD)) == len(NAMES)
    for name in NAMES:
        named = {"harvesterhci.io/removedPersistentVolumeClaims": f"{name}-disk-0-abcde"}
        await line.patch(vm_ref(name), {"metadata": {"annotations": named}})
        await line.delete(vm_ref(name), propagation="Foreground")
        await eventually(harvester, vm_ref(name), is_gone)
    await harvester.clock.sleep(30)
    assert await line.list(kinds.VMI) == []
    assert await line.list(POD) == []
    assert harvester.hypervisor.running_machines() == []
    left = [claim["metadata"]["name"] for claim in await line.list(PVC)]
    assert left == [], left
