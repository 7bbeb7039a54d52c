"""Golden stories of control plane endpoints: in each mode the first server may die, and machines join after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.stories.cluster_rig import (
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    compare,
    gone,
    machines_of,
    scale,
    stock,
)
from tests.stories.cluster_rig import post as create
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import ENDPOINT_ADDRESS, ENDPOINT_MODE
from windrow.demo.cluster import DemoCluster
from windrow.emulator.load_balancers.services import Backend
from windrow.emulator.load_balancers.virtual_listeners import ProxyHandler
from windrow.harvester.resources import VM
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, name_of, nested, secret_texts
from windrow.kubernetes.resources import SECRET, ObjectRef

RKE2, K3S = "v1.34.7+rke2r1", "v1.34.7+k3s1"
PORTS = {RKE2: (6443, 9345), K3S: (6443,)}
NAME = "api.orchard.example"


def proxy_of_the_user(sim: Simulation, name: str, ports: tuple[int, ...]) -> None:
    """What a user runs in front of the servers: it passes each port on to every machine that listens there."""

    def backends(port: int) -> list[Backend]:
        listening = sorted(place for place in sim.harvester.network.listeners() if place[1] == port)
        return [Backend(*place) for place in listening if place[0] not in (name, "192.168.100.10")]

    for port in ports:
        sim.harvester.network.listen(
            name, port, ProxyHandler(sim.harvester.network, lambda port=port: backends(port))
        )


class Story:
    def __init__(self, sim: Simulation, ref: ObjectRef, stage: DemoCluster, transcript: Transcript) -> None:
        self.sim, self.ref, self.stage, self.transcript = sim, ref, stage, transcript

    async def cluster(self) -> Raw:
        return await self.sim.management_client.get(self.ref)

    async def servers_of_machines(self) -> set[str]:
        return {raw["spec"]["joinServer"] for raw in await machines_of(self.sim, self.ref)} - {""}

    async def published_server(self) -> str:
        secret = await self.sim.management_client.get(
            SECRET.ref(f"{self.ref.name}-kubeconfig", self.ref.namespace)
        )
        return parse_kubeconfig(secret_texts(secret)["value"]).server

    async def lose_first_server(self) -> str:
        name = nested(await self.cluster(), "status", "initServer", "name")
        self.transcript.say(f"an administrator deletes the VM of {name}")
        await self.sim.harvester_client.delete(VM.ref(name, "default"), "Foreground")
        return str(name)


@asynccontextmanager
async def a_story(
    *pools: Raw, version: str = RKE2, annotations: dict[str, str] | None = None, **spec: Any
) -> AsyncIterator[Story]:
    documents = a_cluster(*pools, kubernetesVersion=version, **spec)
    documents[-1]["metadata"]["annotations"] = annotations or {}
    async with simulation(seed=3, with_manager=False) as sim:
        transcript = Transcript(sim.api.local())
        await stock(sim, documents)
        sim.start_manager(transcript)
        ref = await create(sim, documents)
        yield Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript)


BY_NAME = {ENDPOINT_MODE: "address", ENDPOINT_ADDRESS: NAME}


@pytest.mark.parametrize("version", [RKE2, K3S])
def test_behind_an_address_of_the_users_the_first_server_may_die(version: str) -> None:
    async def story() -> list[str]:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 1)
        async with a_story(*pools, version=version, annotations=BY_NAME) as it:
            proxy_of_the_user(it.sim, NAME, PORTS[version])
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://{NAME}:{PORTS[version][-1]}"}
            assert await it.published_server() == f"https://{NAME}:6443"

            first = await it.lose_first_server()
            await it.stage.wait_for_settled(without=first)
            await scale(it.sim, it.ref, 1, 2)
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://{NAME}:{PORTS[version][-1]}"}
            assert await it.published_server() == f"https://{NAME}:6443"
            return it.transcript.lines

    name = "rke2" if version == RKE2 else "k3s"
    compare(f"endpoint-address-{name}", run_driven(story()))


def test_a_worker_that_was_told_to_join_through_a_lost_server_is_told_and_replaced_early() -> None:
    async def story() -> list[str]:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            await scale(it.sim, it.ref, 1, 2)
            while len(new := await machines_of(it.sim, it.ref, "workers")) < 2:
                await it.sim.advance(seconds=1)
            told = new[1]["spec"]["joinServer"]
            servers = await machines_of(it.sim, it.ref, "servers")
            lost = next(raw for raw in servers if nested(raw, "status", "addresses", 0) in told)
            it.transcript.say(f"an administrator deletes the VM of {name_of(lost)}")
            await it.sim.harvester_client.delete(VM.ref(name_of(lost), "default"), "Foreground")
            await gone(it.sim, MACHINE.ref(name_of(new[1]), it.ref.namespace))
            await it.stage.wait_for_settled(without=name_of(new[1]))
            return it.transcript.lines

    compare("lost-join-server", run_driven(story()))
