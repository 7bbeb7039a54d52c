"""`windrow get`: what a Harvester offers to a manifest, and what a credential of one namespace sees of it."""

from __future__ import annotations

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, stock
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.app.harvester.offers import OFFERS, is_usable_image, list_offers, rows_of
from windrow.client.client import Client
from windrow.harvester.resources import IP_POOL
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, new_object

POOL = {
    "ranges": [{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.19"}],
    "selector": {"network": "default/vlan-50", "scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]},
}  # fmt: skip


async def offered(sim: Simulation, noun: str) -> list[Raw]:
    client = Client(sim.connect(parse_kubeconfig(sim.harvester.admin_kubeconfig(VIP))))
    return await list_offers(client, OFFERS[noun])


def test_each_noun_lists_what_a_manifest_may_name() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            await stock(sim, a_cluster(a_pool("servers", 1, ALL)))
            await sim.harvester_client.create(IP_POOL, new_object(IP_POOL, "endpoints", spec=POOL))
            await sim.advance(minutes=5)

            rows = {
                noun: rows_of(offer, await offered(sim, noun), wide=True)[1] for noun, offer in OFFERS.items()
            }

            (image,) = rows["images"]
            assert (image[0], image[2], image[4]) == ("default/jammy", "ready", "disk")
            assert all(map(is_usable_image, await offered(sim, "images")))
            assert rows["networks"][0][:2] == ("default/vlan-50", "-")  # untagged
            assert rows["pools"] == [
                ("endpoints", "10", "10", "10.9.0.10-10.9.0.19", "default/vlan-50", "*/*/*")
            ]
            assert {row[0]: row[2] for row in rows["classes"]}["harvester-longhorn"] == "default"
            assert {row[1] for row in rows["hosts"]} == {"Ready"}
            assert all(len(row) == len(OFFERS[noun].heads) for noun, found in rows.items() for row in found)

    run_driven(story())


def test_objects_of_another_shape_are_rows_all_the_same() -> None:
    bare = {"metadata": {"name": "x", "namespace": "n"}}

    for offer in OFFERS.values():
        assert offer.row(dict(bare))[0] in ("n/x", "x")
