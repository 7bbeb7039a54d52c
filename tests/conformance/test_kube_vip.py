"""The real kube-vip in network namespaces, before a real API server: what the emulator's kube-vip rests on.

The scenes run at the same time, each with nodes, a bridge and a namespace of the API of its own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kube_vip_rig import SUBNET, Lan, Node, a_lan, skip_unless_networks_can_be_made
from tests.conformance.kube_vip_scenes import ADDRESSES, NEW, OLD, SCENES, KubeVipRig, Observed, Scene
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import LEASE, NAMESPACE, NODE, SERVICE, ApiResource, ObjectRef

pytestmark = [pytest.mark.go, pytest.mark.long]


class RealRig(KubeVipRig):
    subnet = SUBNET

    def __init__(self, api: Client, lan: Lan, namespace: str, nodes: list[Node]) -> None:
        self._api, self.lan, self.namespace, self.nodes = api, lan, namespace, nodes

    async def create(self, kind: ApiResource, raw: Raw) -> None:
        await self._api.create(kind, raw)

    async def patch(self, ref: ObjectRef, patch: Raw, subresource: str = "") -> None:
        await self._api.patch(ref, patch, subresource)

    async def delete(self, ref: ObjectRef) -> None:
        await self._api.delete(ref)

    async def get(self, ref: ObjectRef) -> Raw:
        return await self._api.get(ref)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.monotonic()

    def holders(self, address: str) -> set[str]:
        return {one.name for one in self.nodes if one.space.holds(address)}

    async def leases(self) -> list[str]:
        found = await self._api.list(LEASE, self.namespace)
        return sorted(one["metadata"]["name"] for one in found)

    async def end_leader(self) -> None:
        self.nodes[0].stop(9)


@pytest.fixture(scope="session")
def kube_vip() -> str:
    """The program: WINDROW_KUBE_VIP, else the one that scripts/reference-programs built."""
    if named := os.environ.get("WINDROW_KUBE_VIP"):
        return named
    root = Path(__file__).parents[2]
    where = subprocess.run(
        [str(root / "scripts/reference-programs"), "--where"], capture_output=True, text=True, check=True
    )
    program = Path(where.stdout.strip()) / "kube_vip"
    if not program.exists():
        pytest.skip("kube-vip is not built; run scripts/reference-programs (needs Go 1.26)")
    return str(program)


@pytest.fixture(scope="session")
def versions(kube_vip: str) -> str:
    """The range of versions that the program is of: NEW unless WINDROW_KUBE_VIP_VERSION says a version before 1.2."""
    version = os.environ.get("WINDROW_KUBE_VIP_VERSION", "1.2").lstrip("v")
    major, minor = (int(one) for one in version.split(".")[:2])
    return NEW if (major, minor) >= (1, 2) else OLD


async def _run(scene: Scene, name: str, cluster: Cluster, program: str, directory: Path) -> Observed:
    with ExitStack() as stack:
        lan = stack.enter_context(a_lan(cluster, program, directory))
        async with HttpTransport(cluster.access(), SystemClock()) as transport:
            api = Client(transport)
            await api.create(NAMESPACE, new_object(NAMESPACE, name))
            nodes = [lan.add_node(one) for one in scene.nodes]
            world = RealRig(api, lan, name, nodes)
            environment = {
                "svc_namespace": name,
                "cp_namespace": name,
                "svc_election": str(scene.election).lower(),
            }
            if scene.has_dhcp:
                lan.serve_dhcp()
            for node in nodes:
                node.start(**environment)
                await _wait_for_log(node, "services watcher" if node is nodes[0] else "leader")
            return await scene.act(world)


async def _wait_for_log(node: Node, words: str) -> None:
    for _ in range(600):
        if words in node.log.read_text():
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"kube-vip on {node.name} did not start: {node.log.read_text()[-2000:]}")


async def _run_all(
    cluster: Cluster, program: str, directory: Path, versions: str
) -> dict[str, Observed | BaseException]:
    """All scenes side by side; one that is not as expected once more, alone: its times are those of a busy computer."""
    skip_unless_networks_can_be_made()
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        for name in ("one", "two", "three"):
            await Client(transport).create(NODE, new_object(NODE, name))
    places = {name: directory / f"scene-{place}" for place, name in enumerate(SCENES)}
    for place in places.values():
        place.mkdir()
    results = await asyncio.gather(
        *(_run(scene, places[name].name, cluster, program, places[name]) for name, scene in SCENES.items()),
        return_exceptions=True,
    )
    found = dict(zip(SCENES, results, strict=True))
    for place, name in enumerate(name for name in SCENES if not _is_as_expected(name, found[name], versions)):
        alone = directory / f"alone-{place}"
        alone.mkdir()
        (found[name],) = await asyncio.gather(
            _run(SCENES[name], alone.name, cluster, program, alone), return_exceptions=True
        )
    return found


def _is_as_expected(name: str, found: Observed | BaseException, versions: str) -> bool:
    scene = SCENES[name]
    if isinstance(found, BaseException):
        return False
    return _without(scene.undecided, found) == _without(scene.undecided, scene.expected[versions])


_RESULTS = pytest.StashKey[dict[str, Any]]()


@pytest.mark.timeout(900)  # the first test runs all scenes
@pytest.mark.parametrize("name", SCENES)
async def test_the_real_kube_vip_acts_as_the_emulators_does(
    name: str,
    request: pytest.FixtureRequest,
    kube_vip: str,
    versions: str,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if _RESULTS not in request.session.stash:
        results = await _run_all(cluster, kube_vip, tmp_path_factory.mktemp("kube-vip"), versions)
        request.session.stash[_RESULTS] = results
    found = request.session.stash[_RESULTS][name]
    if isinstance(found, BaseException):
        raise found
    scene = SCENES[name]
    assert _without(scene.undecided, found) == _without(scene.undecided, scene.expected[versions])


def _without(keys: frozenset[str], observed: Observed) -> Observed:
    return {key: value for key, value in observed.items() if key not in keys}


async def test_a_killed_leader_keeps_the_address_and_both_nodes_answer_for_it(
    kube_vip: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Not in the emulator, whose nodes lose power as a whole."""
    answering: list[int] = []

    async def act(world: KubeVipRig) -> Observed:
        assert isinstance(world, RealRig)
        await world.serve("web", world.address(200))
        await world.announced("web", world.address(200))
        await world.end_leader()

        async def on_both() -> bool:
            return len(world.holders(world.address(200))) == 2

        assert await world.takes(on_both, 40) == "after 15 s"
        await world.sleep(1)
        answering.append(len(world.lan.who_has(world.address(200), 1.0)))
        return {}

    await _run(Scene(act, {}, nodes=("one", "two")), "killed", cluster, kube_vip, tmp_path)

    assert answering == [2]


async def test_services_that_share_a_lease_have_their_address_on_one_node(
    kube_vip: str, cluster: Cluster, tmp_path: Path
) -> None:
    """With an election per service each has a leader of its own, unless the secondary names the primary's lease."""

    async def act(world: KubeVipRig) -> Observed:
        assert isinstance(world, RealRig)
        await world.serve("web", world.address(200))
        await world.announced("web", world.address(200))
        lease = {"kube-vip.io/leaseName": f"{world.namespace}/kubevip-web", ADDRESSES: world.address(200)}
        port = {"name": "dns", "port": 53, "protocol": "UDP"}
        raw = new_object(
            SERVICE,
            "second",
            world.namespace,
            annotations=lease,
            spec={"type": "LoadBalancer", "ports": [port]},
        )
        await world.create(SERVICE, raw)
        await world.back("second")
        await world.announced("second", world.address(200))
        return {
            "nodes": len(world.holders(world.address(200))),
            "leases": await world.leases(),
        }

    scene = Scene(act, {}, election=True, nodes=("one", "two"))

    assert await _run(scene, "shared", cluster, kube_vip, tmp_path) == {"nodes": 1, "leases": ["kubevip-web"]}
