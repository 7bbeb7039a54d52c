"""What `windrow create cluster` writes becomes a cluster whose machines are all Ready."""

from __future__ import annotations

import pytest
from tests.stories.cluster_rig import CREDENTIAL, machines_of, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import VIP, simulation

from windrow.app.harvester.choices import list_choices, list_credentials
from windrow.app.harvester.new_cluster import Distribution, NewCluster, render_manifest
from windrow.kubernetes.kubeconfig import parse_kubeconfig


def asked(distribution: Distribution, servers: int) -> NewCluster:
    return NewCluster(
        "prod", "fleet-default", CREDENTIAL, "default/noble", "default/vlan-50", "ubuntu", distribution,
        servers=servers, cpu=2, memory=4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("distribution", "servers"),
    [("rke2", 1), ("k3s", 1), pytest.param("rke2", 3, marks=pytest.mark.long), pytest.param("k3s", 3, marks=pytest.mark.long)],
)  # fmt: skip
def test_a_created_cluster_is_ready_with_all_its_machines(distribution: Distribution, servers: int) -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            documents = render_manifest(asked(distribution, servers))
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            assert len(await machines_of(sim, ref)) == (1 if servers == 1 else 5)

    run_driven(story())


def test_what_is_offered_are_images_that_boot_networks_for_machines_and_names_of_credentials() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            await stock(sim, render_manifest(asked("rke2", 1)))
            await sim.advance(minutes=5)
            harvester = sim.connect(parse_kubeconfig(sim.harvester.admin_kubeconfig(VIP)))
            assert await list_choices(harvester, "default") == (["default/noble"], ["default/vlan-50"])
            assert await list_credentials(sim.management_client, "fleet-default") == [CREDENTIAL]

    run_driven(story())
