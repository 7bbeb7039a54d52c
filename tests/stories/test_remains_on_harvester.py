"""A Cluster stays until nothing of it is left on Harvester: VMs that no Machine records, and disks that terminate."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import annotations_of, name_of, namespace_of
from windrow.kubernetes.resources import EVENT, PVC, SECRET

from .cluster_rig import SERVERS, a_cluster, a_pool, gone, machines_of, post, stock, until

CLUSTER_UID = "windrow.io/cluster-uid"


@pytest.mark.parametrize("cloud_provider", ["harvester", ""])
def test_a_vm_whose_machine_was_lost_with_a_restored_state_goes_with_the_cluster(cloud_provider: str) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        config = documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]
        config["cloud-provider-name"] = cloud_provider
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            await sim.advance(minutes=15)
            await sim.kill_manager()
            lost = (await machines_of(sim, ref, "workers"))[0]
            machine = MACHINE.ref(name_of(lost), namespace_of(lost))
            await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
            await sim.management_client.delete(machine)
            sim.start_manager()
            await sim.advance(minutes=10)
            vms = {name_of(raw) for raw in await sim.harvester_client.list(VM)}
            assert name_of(lost) in vms
            assert len(vms) == 4

            await sim.management_client.delete(ref)
            await gone(sim, ref)

            assert await sim.harvester_client.list(VM) == []
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == before
            told = [
                e
                for e in await sim.management_client.list(EVENT, ref.namespace)
                if e["reason"] == "DeleteUnrecordedVMs"
            ]
            assert name_of(lost) in told[0]["message"]

    run_driven(story())


def test_a_cluster_stays_while_a_disk_of_it_terminates_and_names_what_holds_it() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            claims = await sim.harvester_client.list(PVC, "default")
            held = next(raw for raw in claims if CLUSTER_UID in annotations_of(raw))
            claim = PVC.ref(name_of(held), "default")
            finalizers = [*held["metadata"].get("finalizers", []), "example.com/hold"]
            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": finalizers}})

            await sim.management_client.delete(ref)
            shown = await until(stage, f"PersistentVolumeClaim default/{name_of(held)}")
            assert "example.com/hold" in shown["status"]["waiting"]["for"]
            await sim.advance(minutes=5)
            assert await sim.management_client.find(ref) is not None
            # What is needed to look for it is still there.
            assert await sim.management_client.find(SECRET.ref(f"{ref.name}-windrow-secrets", ref.namespace))

            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": []}})
            await gone(sim, ref, within=timedelta(minutes=2))
            assert await inventory(sim.harvester.api) == before

    run_driven(story())
