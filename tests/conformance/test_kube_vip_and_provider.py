"""Our cloud provider's process beside the real kube-vip, on an emulated Harvester: what it claims, and the cures it advises."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import (
    GO_PROVIDER,
    Guest,
    a_host,
    a_provider,
    our_program,
    real_program,
)
from tests.conformance.kube_vip_cluster import run_scene, run_scenes
from tests.conformance.kube_vip_provider_scenes import (
    ONLY_SERVICES,
    PROVIDER_SCENES,
    ProviderRig,
    a_provider_and_its_harvester,
    remove_services,
)
from tests.conformance.kube_vip_rig import SUBNET, Pings
from tests.conformance.kube_vip_scenes import KubeVipRig, Observed, Scene
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.kubernetes.kubeconfig import render_kubeconfig

pytestmark = [pytest.mark.go, pytest.mark.long]
_RESULTS = pytest.StashKey[dict[str, Any]]()


@pytest.mark.timeout(900)  # the first test runs all scenes
@pytest.mark.parametrize("name", PROVIDER_SCENES)
async def test_addresses_behave_as_the_provider_says(
    name: str,
    request: pytest.FixtureRequest,
    kube_vip: str,
    versions: str,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if _RESULTS not in request.session.stash:
        folder = tmp_path_factory.mktemp("provider")
        async with a_provider_and_its_harvester(cluster, folder) as host:
            request.session.stash[_RESULTS] = await run_scenes(
                PROVIDER_SCENES,
                cluster,
                kube_vip,
                folder,
                lambda name, found: not PROVIDER_SCENES[name].differences(found, versions),
                lambda api, lan, namespace, nodes: ProviderRig(api, lan, namespace, nodes, host),
            )
    found = request.session.stash[_RESULTS][name]
    if isinstance(found, BaseException):
        raise found
    assert PROVIDER_SCENES[name].differences(found, versions) == {}


@pytest.mark.timeout(300)
async def test_no_ping_is_lost_when_ours_takes_the_place_of_the_go_program_and_back(
    kube_vip: str, cluster: Cluster, tmp_path: Path
) -> None:
    go = real_program(GO_PROVIDER)
    lost: dict[str, str] = {}

    async def act(world: KubeVipRig) -> Observed:
        assert isinstance(world, ProviderRig)
        await world.host.make_pool("pool", world.address(100), world.address(110))
        programs = {"Go": go, "ours": our_program(), "Go again": go}
        pings: Pings | None = None
        first = ""
        for name, program in programs.items():
            async with a_provider(program, tmp_path / name, host, guest, *ONLY_SERVICES) as running:
                service = name.lower().replace(" ", "-")
                await world.request(service)  # shows that this program leads
                address = await world.served(service)
                await asyncio.sleep(3)
                if pings is not None:
                    lost[name] = f"{pings.end()} of {pings.sent}"
                    print(f"{name}: {lost[name]} pings lost")
                first = first or address
                pings = Pings(world.lan.client, first)
                pings.start()
                await asyncio.sleep(2)
                await running.end(3)
        assert pings is not None
        pings.end()
        return {}

    async with a_host(lan=f"{SUBNET}.0/24") as host, HttpTransport(cluster.access(), SystemClock()) as there:
        guest = Guest(Client(there), there, render_kubeconfig(cluster.access(), "guest"))
        await remove_services(Client(there))
        await run_scene(
            Scene(act, {}),
            "change-0",
            cluster,
            kube_vip,
            tmp_path,
            lambda api, lan, namespace, nodes: ProviderRig(api, lan, namespace, nodes, host),
        )

    assert {name: count.split()[0] for name, count in lost.items()} == {"ours": "0", "Go again": "0"}
