"""A tenant's own server says the uid of another's Harvester: it gets no say in the addresses there."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.stories.test_addresses import with_addresses
from tests.stories.test_held_addresses import ADDRESS, ONE
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.app.emulate import preload_objects
from windrow.app.guest_programs import guest_programs
from windrow.app.loop import running
from windrow.app.network import in_process_connector
from windrow.app.preload import read_preload
from windrow.client.client import Client
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.clusters.sources.manager_leases import ManagerIdentity
from windrow.core.formats.json import dumps, loads
from windrow.core.rng import Rng
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.harvester.identity import IDENTITY, read_identity
from windrow.harvester.resources import VM
from windrow.kubernetes import requests
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE


class Pretender(TransportMiddleware):
    """A Harvester that says it were the one with this uid."""

    def __init__(self, inner: Transport, uid: str) -> None:
        super().__init__(inner)
        self.uid = uid

    async def send(self, request: Request) -> Reply:
        reply = await super().send(request)
        if request.method != "GET" or request.path != requests.get(IDENTITY).path or reply.status != 200:
            return reply
        raw = loads(reply.body)
        raw["metadata"]["uid"] = self.uid
        return Reply(200, dumps(raw))


def of(namespace: str, name: str) -> list[Raw]:
    """A Cluster of a namespace with a credential of its own, whose server wants the only address of the range."""
    documents = with_addresses(a_cluster(a_pool(name, 1, ALL), name=name, namespace=namespace), ONE)
    documents[-1]["spec"]["cloudCredentialSecretName"] = f"{namespace}:cc-{name}"
    return documents


@pytest.mark.parametrize("order", [("tenant", "owner"), ("owner", "tenant")])
def test_a_server_that_says_the_uid_of_a_harvester_takes_no_address_from_it(order: tuple[str, str]) -> None:
    """The other way round neither: the addresses of that server are its own affair."""

    async def story() -> None:
        async with simulation(seed=23, with_manager=False) as sim:
            factory = machine_factory(guest_programs())
            other = Harvester(sim.clock, Rng(2), machine_factory=factory, vip="192.168.200.10")
            uid = read_identity(await sim.harvester_client.get(IDENTITY))

            def dial(access: ClientConfig) -> Transport:
                if other.vip in access.server:
                    return Pretender(in_process_connector(other.network, sim.clock)(access), uid)
                return sim.connect(access)

            async with running(other.run):
                sim.start_manager(connect=dial, identity=ManagerIdentity("state", "store", "process"))
                begun = sim.clock.now()
                for namespace in order:
                    await sim.management_client.create(NAMESPACE, new_object(NAMESPACE, namespace))
                    documents = of(namespace, f"of-{namespace}")
                    if namespace == "tenant":
                        await preload_objects(other, read_preload(documents))
                    await stock(
                        sim,
                        documents,
                        kubeconfig=other.admin_kubeconfig() if namespace == "tenant" else "",
                    )
                    await post(sim, documents)
                    api = other.api if namespace == "tenant" else sim.harvester.api
                    while not await Client(api.local()).list(VM):
                        await sim.advance(seconds=10)
                        assert sim.clock.now() - begun < timedelta(minutes=10), namespace

                claims = [raw["spec"] for raw in await sim.management_client.list(IP_ADDRESS)]
                assert [claim["address"] for claim in claims] == [ADDRESS, ADDRESS]
                assert {claim["claimRef"]["namespace"] for claim in claims} == {"tenant", "owner"}
                first, second = (
                    next(claim for claim in claims if claim["claimRef"]["namespace"] == namespace)
                    for namespace in order
                )
                assert first["harvester"] == uid
                assert second["harvester"] == f"{uid}@{second['server']}"

    run_driven(story())
