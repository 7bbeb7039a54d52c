"""The rules of each instant notice what they are for: each is broken once, by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.stories.cluster_instants import Instants
from tests.stories.cluster_invariants import CLUSTER_UID, MACHINE_UID, Founded, find_claim_faults
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import IP_ADDRESS, MACHINE
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.etcd import EtcdMembers
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import NODE, PVC

NAME = "orchard-workers-abcde-fghij"
RANGE = "192.168.50.100-192.168.50.119"


def a_machine(uid: str = "m-1", claims: tuple[str, ...] = (), address: str = "") -> Raw:
    raw = new_object(MACHINE, NAME, "fleet-default", spec={"pool": "workers"})
    raw["metadata"]["uid"] = uid
    raw["status"] = {
        "driverConfig": {"WindrowClaims": list(claims)},
        "addresses": [address] if address else [],
    }
    return raw


def a_volume(name: str = "disk-0") -> Raw:
    resources = {"requests": {"storage": "1Gi"}}
    raw = new_object(PVC, name, "default", spec={"accessModes": ["ReadWriteMany"], "resources": resources})
    raw["metadata"]["annotations"] = {MACHINE_UID: "m-1", CLUSTER_UID: "c-1"}
    return raw


def a_claim(machine: str = NAME, uid: str = "m-1", address: str = "192.168.50.100") -> Raw:
    spec = {
        "address": address,
        "prefix": 24,
        "network": "default/vlan-50",
        "harvester": "h-1",
        "claimRef": {"namespace": "fleet-default", "name": machine, "uid": uid},
    }
    return new_object(IP_ADDRESS, f"h-{address}", spec=spec)


Break = Callable[[Simulation, Instants], Awaitable[None]]


async def volume_without_machine(sim: Simulation, instants: Instants) -> None:
    await instants.look(PVC, None, await sim.harvester_client.create(PVC, a_volume()))


async def volume_outlives_machine(sim: Simulation, instants: Instants) -> None:
    await sim.harvester_client.create(PVC, a_volume())
    await instants.look(MACHINE, a_machine(), None)


async def volume_gone_meanwhile(sim: Simulation, instants: Instants) -> None:
    await instants.look(PVC, None, a_volume())


async def foreign_volume(sim: Simulation, instants: Instants) -> None:
    raw = a_volume()
    raw["metadata"].pop("annotations")
    await instants.look(PVC, None, await sim.harvester_client.create(PVC, raw))


@pytest.mark.parametrize(
    ("breach", "fault"),
    [
        (volume_without_machine, "PersistentVolumeClaim disk-0 is there, and no Machine records it"),
        (volume_outlives_machine, f"Machine {NAME} is gone, and its PersistentVolumeClaim disk-0 is there"),
        (volume_gone_meanwhile, ""),
        (foreign_volume, ""),
    ],
)
def test_what_no_record_names_is_a_fault_while_it_is_there(breach: Break, fault: str) -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            instants = Instants(sim, Founded(sim), (RANGE,), drains=True)
            await breach(sim, instants)
            assert instants.faults == ([fault] if fault else [])

    run_driven(story())


@pytest.mark.parametrize(
    ("claims", "faults"),
    [
        ([a_claim()], []),
        ([], [f"machine {NAME} has claimed 0 addresses instead of 1"]),
        ([a_claim(uid="m-2")], [f"machine {NAME} has claimed 0", "1 addresses are claimed for m-2"]),
        (
            [a_claim(), a_claim(address="192.168.50.101")],
            [f"machine {NAME} has claimed 2", f"machine {NAME} does not show ['192.168.50.101']"],
        ),
    ],
)
def test_at_rest_each_machine_has_the_addresses_that_it_claimed_and_no_other_has_one(
    claims: list[Raw], faults: list[str]
) -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            for raw in claims:
                await sim.management_client.create(IP_ADDRESS, raw)
            found = await find_claim_faults(sim, [a_machine(address="192.168.50.100")], 1)
            assert len(found) == len(faults)
            assert all(one.startswith(start) for one, start in zip(found, faults, strict=True))

    run_driven(story())


async def an_instance(sim: Simulation, address: str) -> Raw:
    raw = new_object(kinds.VMI, NAME, "default", spec={"domain": {"devices": {}}})
    raw["status"] = {"interfaces": [{"ipAddresses": [address, "10.42.0.1"]}]}
    return await sim.harvester_client.create(kinds.VMI, raw)


async def unclaimed(sim: Simulation, instants: Instants) -> None:
    await instants.look(kinds.VMI, None, await an_instance(sim, "192.168.50.100"))


async def claimed_for_another(sim: Simulation, instants: Instants) -> None:
    await sim.management_client.create(IP_ADDRESS, a_claim(machine="other"))
    await unclaimed(sim, instants)


async def claimed(sim: Simulation, instants: Instants) -> None:
    await sim.management_client.create(IP_ADDRESS, a_claim())
    await unclaimed(sim, instants)


async def by_dhcp(sim: Simulation, instants: Instants) -> None:
    await instants.look(kinds.VMI, None, await an_instance(sim, "192.168.50.200"))


async def released_too_early(sim: Simulation, instants: Instants) -> None:
    await an_instance(sim, "192.168.50.100")
    await instants.look(IP_ADDRESS, a_claim(), None)


WITHOUT_CLAIM = f"{NAME} has ['192.168.50.100'], claimed for "


@pytest.mark.parametrize(
    ("act", "fault"),
    [
        (unclaimed, f"{WITHOUT_CLAIM}[None]"),
        (claimed_for_another, f"{WITHOUT_CLAIM}['other']"),
        (claimed, ""),
        (by_dhcp, ""),
        (released_too_early, f"192.168.50.100 was released, and {NAME} has it"),
    ],
)
def test_an_address_of_the_range_is_claimed_for_the_instance_that_has_it_until_it_is_gone(
    act: Break, fault: str
) -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            instants = Instants(sim, Founded(sim), (RANGE,), drains=True)
            await act(sim, instants)
            assert instants.faults == ([fault] if fault else [])

    run_driven(story())


class GuestOfOneNode(Founded):
    """The Nodes of the emulated Harvester in the place of those of a guest cluster."""

    def all(self) -> list[Any]:
        client = self.sim.harvester_client
        return [SimpleNamespace(client=lambda: client, etcd=EtcdMembers(is_embedded=False))]

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self.sim = sim


def a_vm_that_goes(state: str) -> Raw:
    vm = new_object(kinds.VM, NAME, "default", status={"printableStatus": state})
    owned = {MACHINE_UID: "m-1", CLUSTER_UID: "c-1"}
    vm["metadata"] |= {"uid": "vm-1", "annotations": owned, "deletionTimestamp": "2026-01-01T12:00:00Z"}
    return vm


@pytest.mark.parametrize(
    ("state", "cordoned", "drained_s", "fault"),
    [
        ("Running", False, 0, f"the VM of {NAME} is removed while its node takes pods"),
        ("Running", True, 0, ""),
        ("Stopped", False, 0, ""),
        ("Running", False, 290, f"the VM of {NAME} is removed while its node takes pods"),
        ("Running", False, 300, ""),
    ],
    ids=["taking pods", "cordoned", "it is stopped", "in the time to drain", "after the time to drain"],
)
def test_a_vm_that_is_removed_takes_no_pods(state: str, cordoned: bool, drained_s: int, fault: str) -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            node = new_object(
                NODE, NAME, labels={"room": "1"}, spec={"unschedulable": True} if cordoned else {}
            )
            node["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
            await sim.harvester_client.create(NODE, node)
            machine = a_machine()
            machine["metadata"]["finalizers"] = ["windrow.io/machine"]
            machine["spec"] |= {
                "clusterName": "orchard",
                "clusterUID": "c-1",
                "roles": ["worker"],
                "options": {},
            }
            machine["spec"] |= {"credential": "farm", "version": "v1.34.7+rke2r1"}
            await sim.management_client.create(MACHINE, machine)
            await sim.management_client.delete(MACHINE.ref(NAME, "fleet-default"))
            await sim.advance(seconds=drained_s)
            instants = Instants(sim, GuestOfOneNode(sim), (RANGE,), drains=True, _known={"vm-1"})
            await instants.look(kinds.VM, None, a_vm_that_goes(state))
            assert instants.faults == ([fault] if fault else [])

    run_driven(story())
