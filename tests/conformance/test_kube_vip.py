"""The real kube-vip in network namespaces, before a real API server: what the emulator's kube-vip rests on.

The scenes run at the same time, each with nodes, a bridge and a namespace of the API of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kube_vip_cluster import RealRig, run_scene, run_scenes
from tests.conformance.kube_vip_scenes import ADDRESSES, SCENES, KubeVipRig, Observed, Scene
from tests.conformance.real_cluster import Cluster

from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SERVICE

pytestmark = [pytest.mark.go, pytest.mark.long]
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
        request.session.stash[_RESULTS] = await run_scenes(
            SCENES,
            cluster,
            kube_vip,
            tmp_path_factory.mktemp("kube-vip"),
            lambda name, found: not SCENES[name].differences(found, versions),
        )
    found = request.session.stash[_RESULTS][name]
    if isinstance(found, BaseException):
        raise found
    assert SCENES[name].differences(found, versions) == {}


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

    await run_scene(Scene(act, {}, nodes=("one", "two")), "killed", cluster, kube_vip, tmp_path)

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

    assert await run_scene(scene, "shared", cluster, kube_vip, tmp_path) == {
        "nodes": 1,
        "leases": ["kubevip-web"],
    }
