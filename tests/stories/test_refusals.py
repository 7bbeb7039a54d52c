"""Bad input: one sentence of fact, one of cure, all at once, and nothing half-made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.clusters.api.kinds import HARVESTER_CONFIG, MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import SECRET

Change = Callable[[list[Raw]], None]
CREDENTIAL = SECRET.ref("cc-harvester", "cattle-global-data")
KEY = "harvestercredentialConfig-kubeconfigContent"


def config(**fields: Any) -> Change:
    return lambda documents: documents[0].update(fields)


def spec(**fields: Any) -> Change:
    return lambda documents: documents[-1]["spec"].update(fields)


def pool(**fields: Any) -> Change:
    return lambda documents: documents[-1]["spec"]["rkeConfig"]["machinePools"][0].update(fields)


def said(cluster: Raw) -> str:
    """Everything that the Cluster says about itself."""
    conditions = nested(cluster, "status", "conditions", default=[])
    sentences = [str(nested(cluster, "status", "waiting", "for"))]
    return " | ".join([*sentences, *(condition.get("message", "") for condition in conditions)])


async def refused(room: Simulation, documents: list[Raw], words: list[str]) -> None:
    before = await inventory(room.harvester.api)
    ref = await post(room, documents)
    await room.advance(seconds=90)
    cluster = await room.management_client.get(ref)
    for word in words:
        assert word in said(cluster)
    ready = find_condition(cluster["status"]["conditions"], "Ready")
    assert ready is not None
    assert (ready.status, cluster["status"]["phase"]) == ("False", "Refused")
    assert await inventory(room.harvester.api) == before
    assert await room.management_client.list(MACHINE) == []
    assert "finalizers" not in cluster["metadata"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (config(imageName="default/nowhere", diskInfo=""), ["default/nowhere"]),
        (config(networkInfo='{"interfaces":[{"networkName":"default/nowhere"}]}'), ["default/nowhere"]),
        (config(diskInfo="{not json"), ["diskInfo"]),
        (config(networkInfo="{not json"), ["networkInfo"]),
        (config(diskInfo='{"disks":[{"storageClassName":"nowhere","size":10,"bootOrder":1}]}'), ["nowhere"]),
        (config(keyPairName="default/nowhere"), ["default/nowhere"]),
        (config(cpuCount="many"), ["cpuCount"]),
        (pool(etcdRole=False), ["no machine has the etcd role"]),
        (pool(machineConfigRef={"kind": "HarvesterConfig", "name": "nowhere"}), ["'nowhere', which does not exist"]),
        (spec(kubernetesVersion="1.34"), ["not a version in Rancher's form"]),
        (spec(cloudCredentialSecretName="cattle-global-data:nowhere"), ["the credential Secret cattle-global-data/nowhere does not exist", "create it"]),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_with_its_reason_and_nothing_is_made(
    change: Change, words: list[str]
) -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents)
            change(documents)
            await refused(room, documents, words)

    run_driven(story())


def test_all_faults_are_told_at_once() -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents)
            config(
                keyPairName="default/lost-key",
                networkInfo='{"interfaces":[{"networkName":"default/lost-net"}]}',
            )(documents)
            await refused(room, documents, ["default/lost-key", "default/lost-net"])

    run_driven(story())


def a_kubeconfig(room: Simulation, case: str) -> str:
    good = room.harvester.admin_kubeconfig(VIP)
    match case:
        case "garbage":
            return "not a kubeconfig"
        case "refused":
            return room.harvester.admin_kubeconfig("https://192.168.100.99:6443")
        case "401":
            token = room.harvester.new_token()
            text = room.harvester.token_kubeconfig(token, VIP)
            room.harvester.credentials.revoke(token)
            return text
        case _:
            return good


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("garbage", ["cattle-global-data/cc-harvester"]),
        ("refused", ["https://192.168.100.99:6443"]),
        ("401", ["192.168.100.10:6443", "token"]),
    ],
)
def test_a_credential_that_does_not_work_is_named_with_its_server(case: str, words: list[str]) -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents, kubeconfig=a_kubeconfig(room, case))
            await refused(room, documents, words)

    run_driven(story())


def test_a_refused_cluster_is_built_once_the_fault_is_gone() -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents, kubeconfig="not a kubeconfig")
            ref = await post(room, documents)
            await room.advance(seconds=60)
            text = room.harvester.admin_kubeconfig(VIP)
            await room.management_client.patch(CREDENTIAL, {"stringData": {KEY: text}})
            await room.cluster(ref.name).wait_for_settled()

    run_driven(story())


def test_a_refused_cluster_is_deleted_at_once() -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            pool(etcdRole=False)(documents)
            ref = await post(room, documents)
            await room.advance(seconds=5)
            await room.management_client.delete(ref)

            assert await room.management_client.find(ref) is None

    run_driven(story())


def test_a_config_that_comes_after_its_cluster_is_waited_for() -> None:
    async def story() -> None:
        async with simulation(seed=2) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents)
            ref = await post(room, documents[1:])
            await room.advance(seconds=60)
            await post_config(room, documents[0])
            await room.cluster(ref.name).wait_for_settled()

    run_driven(story())


async def post_config(room: Simulation, raw: Raw) -> None:
    await room.management_client.create(HARVESTER_CONFIG, raw)


def test_a_vm_namespace_that_does_not_exist_is_refused_with_its_cure() -> None:
    async def story() -> None:
        async with simulation() as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents)
            documents[0].update(vmNamespace="nons")
            message = f'namespace "nons" does not exist on Harvester {VIP}'
            await refused(room, documents, [message, "create it there, or correct vmNamespace"])

    run_driven(story())
