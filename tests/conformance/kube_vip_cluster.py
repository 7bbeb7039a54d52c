"""A scene before the real kube-vip: nodes in a network of their own, and a namespace of a real API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.conformance.kube_vip_rig import SUBNET, Lan, Node, a_lan, skip_unless_networks_can_be_made
from tests.conformance.kube_vip_scenes import KubeVipRig, Observed, Scene
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.kubernetes.errors import AlreadyExists
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import LEASE, NAMESPACE, NODE, ApiResource, ObjectRef

# How many scenes: each starts a kube-vip for each of its nodes, and measures times.
AT_ONCE = 9
NODES = ("one", "two", "three")


class RealRig(KubeVipRig):
    subnet = SUBNET

    def __init__(self, api: Client, lan: Lan, namespace: str, nodes: list[Node]) -> None:
        self.api, self.lan, self.namespace, self.nodes = api, lan, namespace, nodes
        self.environment: dict[str, str] = {}  # of kube-vip

    async def create(self, kind: ApiResource, raw: Raw) -> None:
        await self.api.create(kind, raw)

    async def patch(self, ref: ObjectRef, patch: Raw, subresource: str = "") -> None:
        await self.api.patch(ref, patch, subresource)

    async def delete(self, ref: ObjectRef) -> None:
        await self.api.delete(ref)

    async def get(self, ref: ObjectRef) -> Raw:
        return await self.api.get(ref)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.monotonic()

    def holders(self, address: str) -> set[str]:
        return {one.name for one in self.nodes if one.space.holds(address)}

    async def leases(self) -> list[str]:
        found = await self.api.list(LEASE, self.namespace)
        return sorted(one["metadata"]["name"] for one in found)

    async def end_leader(self) -> None:
        self.nodes[0].stop(9)

    async def start(self) -> None:
        """Start kube-vip on all nodes, the first one as the leader."""
        for node in self.nodes:
            begun = node.start(**self.environment)
            await _wait_for_log(node, begun, "services watcher" if node is self.nodes[0] else "leader")

    async def restart(self) -> None:
        """What `kubectl rollout restart daemonset kube-vip` does."""
        for node in self.nodes:
            await asyncio.to_thread(node.stop)
        await self.start()


Run = Callable[[Client, Lan, str, list[Node]], RealRig]


async def run_scene(
    scene: Scene, name: str, cluster: Cluster, program: str, directory: Path, make: Run = RealRig
) -> Observed:
    """What is observed in the scene, in a namespace `name` of the cluster."""
    with ExitStack() as stack:
        lan = stack.enter_context(a_lan(cluster, program, directory))
        async with HttpTransport(cluster.access(), SystemClock()) as transport:
            api = Client(transport)
            await api.create(NAMESPACE, new_object(NAMESPACE, name))
            world = make(api, lan, name, [lan.add_node(one) for one in scene.nodes])
            world.environment |= {
                "svc_namespace": name,
                "cp_namespace": name,
                "svc_election": str(scene.election).lower(),
            }
            if scene.has_dhcp:
                lan.serve_dhcp()
            await world.start()
            return await scene.act(world)


async def _wait_for_log(node: Node, begun: int, words: str) -> None:
    """Wait until kube-vip's log says it, from that place on."""
    for _ in range(600):
        if words in node.log.read_text()[begun:]:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"kube-vip on {node.name} did not start: {node.log.read_text()[-2000:]}")


async def run_scenes(
    scenes: Mapping[str, Scene],
    cluster: Cluster,
    program: str,
    directory: Path,
    is_expected: Callable[[str, Observed], bool],
    make: Run = RealRig,
) -> dict[str, Observed | BaseException]:
    """All scenes, some side by side; one that is not as expected once more, alone: its times are those of a busy computer."""
    skip_unless_networks_can_be_made()
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        for name in NODES:
            with suppress(AlreadyExists):
                await Client(transport).create(NODE, new_object(NODE, name))

    at_once = asyncio.Semaphore(AT_ONCE)

    async def run(place: str, scene: Scene) -> Observed | BaseException:
        here = directory / place
        here.mkdir()
        name = f"{directory.name}-{place}"
        async with at_once:
            (result,) = await asyncio.gather(
                run_scene(scene, name, cluster, program, here, make), return_exceptions=True
            )
        return result

    results = await asyncio.gather(
        *(run(f"scene-{place}", scene) for place, scene in enumerate(scenes.values()))
    )
    found = dict(zip(scenes, results, strict=True))
    for place, (name, scene) in enumerate(scenes.items()):
        result = found[name]
        if isinstance(result, BaseException) or not is_expected(name, result):
            print(f"{name}, not as expected at first: {result!r}")
            found[name] = await run(f"alone-{place}", scene)
    return found
