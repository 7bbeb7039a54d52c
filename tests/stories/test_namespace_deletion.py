"""A team's namespace is deleted with its clusters in it."""

from __future__ import annotations

from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.names import IN_USE_FINALIZER
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.objects import finalizers_of
from windrow.kubernetes.resources import NAMESPACE, SECRET

from .cluster_rig import ALL, a_cluster, a_pool, gone, post, stock


def test_a_namespace_goes_with_its_cluster_and_nothing_of_it_is_left_on_harvester() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("all", 1, ALL), namespace="team", cloudCredentialSecretName="team:cc")
        async with simulation(seed=3) as sim:
            await sim.management_client.create(NAMESPACE, {"metadata": {"name": "team"}})
            await stock(sim, documents)
            assert await sim.management_client.find(SECRET.ref("cc", "team"))
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            await sim.advance(minutes=15)
            await sim.management_client.delete(NAMESPACE.ref("team"))
            await gone(sim, ref)
            await gone(sim, NAMESPACE.ref("team"))

            assert await sim.management_client.find(SECRET.ref("cc", "team")) is None
            assert await sim.management_client.list(HARVESTER_CONFIG, "team") == []
            assert await inventory(sim.harvester.api) == before

    run_driven(story())


def test_a_credential_secret_that_is_deleted_alone_goes_at_once_and_can_be_put_back() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("all", 1, ALL), namespace="team", cloudCredentialSecretName="team:cc")
        async with simulation(seed=3) as sim:
            await sim.management_client.create(NAMESPACE, {"metadata": {"name": "team"}})
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.advance(minutes=15)
            credential, config = SECRET.ref("cc", "team"), HARVESTER_CONFIG.ref("nc-all", "team")
            for one in (credential, config):
                assert finalizers_of(await sim.management_client.get(one)) == [IN_USE_FINALIZER]
            await sim.management_client.delete(credential)
            await sim.management_client.delete(config)
            await sim.advance(seconds=1)
            assert await sim.management_client.find(credential) is None
            assert await sim.management_client.find(config) is None

            await stock(sim, documents)
            await sim.advance(seconds=1)
            assert finalizers_of(await sim.management_client.get(credential)) == [IN_USE_FINALIZER]
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            await sim.advance(seconds=1)
            assert finalizers_of(await sim.management_client.get(credential)) == []

    run_driven(story())
