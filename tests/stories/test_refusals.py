"""Bad input: one sentence of fact, one of cure, all at once, and nothing half-made."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, machines_of, post, scale, stock, until
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.clusters.api.kinds import HARVESTER_CONFIG, MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import NAMESPACE, SECRET

Change = Callable[[list[Raw]], None]
CREDENTIAL = SECRET.ref("cc-harvester", "cattle-global-data")
KEY = "harvestercredentialConfig-kubeconfigContent"


def config(**fields: Any) -> Change:
    return lambda documents: documents[0].update(fields)


def spec(**fields: Any) -> Change:
    return lambda documents: documents[-1]["spec"].update(fields)


def pool(**fields: Any) -> Change:
    return lambda documents: documents[-1]["spec"]["rkeConfig"]["machinePools"][0].update(fields)


def rke(**fields: Any) -> Change:
    return lambda documents: documents[-1]["spec"]["rkeConfig"].update(fields)


def static_address_for_three(documents: list[Raw]) -> None:
    config(networkData="version: 2\nethernets: {enp1s0: {addresses: [10.0.0.5/24]}}")(documents)
    pool(quantity=3)(documents)


BLANK_FIRST = (
    '{"disks":[{"storageClassName":"harvester-longhorn","size":10,"bootOrder":1},'
    '{"imageName":"default/jammy","size":40}]}'
)
REGISTRY = {"configs": {"registry.example.com": {"authConfigSecretName": "pull"}}}
S3 = {"s3": {"bucket": "b", "endpoint": "s3.example.com", "cloudCredentialName": "cc-s3"}}


def said(cluster: Raw) -> str:
    """Everything that the Cluster says about itself."""
    conditions = nested(cluster, "status", "conditions", default=[])
    sentences = [str(nested(cluster, "status", "waiting", "for"))]
    return " | ".join([*sentences, *(condition.get("message", "") for condition in conditions)])


async def refused(sim: Simulation, documents: list[Raw], words: list[str]) -> None:
    before = await inventory(sim.harvester.api)
    ref = await post(sim, documents)
    await sim.advance(seconds=90)
    cluster = await sim.management_client.get(ref)
    for word in words:
        assert word in said(cluster)
    ready = find_condition(cluster["status"]["conditions"], "Ready")
    assert ready is not None
    assert (ready.status, cluster["status"]["phase"]) == ("False", "Refused")
    assert await inventory(sim.harvester.api) == before
    assert await sim.management_client.list(MACHINE) == []
    assert "finalizers" not in cluster["metadata"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (config(imageName="default/nowhere", diskInfo=""), ["default/nowhere"]),
        (config(networkInfo='{"interfaces":[{"networkName":"default/nowhere"}]}'), ["default/nowhere"]),
        (config(diskInfo="{not json"), ["diskInfo"]),
        (config(networkInfo="{not json"), ["networkInfo"]),
        (config(diskInfo='{"disks":[{"storageClassName":"nowhere","size":10,"bootOrder":1}]}'), ["nowhere"]),
        (config(diskInfo='{"disks":[{"storageClassName":"harvester-longhorn","size":10}]}'), ["nothing to boot from"]),
        (config(diskInfo=BLANK_FIRST), ["disk-0 in diskInfo, from which the machine boots, has no image"]),
        (static_address_for_three, ["networkData gives each of 3 machines the address 10.0.0.5"]),
        (rke(registries=REGISTRY), ["registry.example.com", "Secret fleet-default/pull, which does not exist"]),
        (rke(etcd=S3), ["Secret fleet-default/cc-s3, which does not exist", "s3credentialConfig-accessKey"]),
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
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            change(documents)
            await refused(sim, documents, words)

    run_driven(story())


PILL = "[" * 25_000


@pytest.mark.parametrize(
    ("change", "kubeconfig", "words"),
    [
        (config(userData=PILL), "", ["user data is not YAML", "more than 200 levels deep"]),
        (config(userData=f"#cloud-config\na: {PILL}"), "", ["user data is not YAML", "levels deep"]),
        (
            config(userData=base64.b64encode(PILL.encode()).decode()),
            "",
            ["user data is not YAML", "levels deep"],
        ),
        (config(networkData=PILL), "", ["networkData is not YAML", "levels deep"]),
        (config(vmAffinity=PILL), "", ["ffinity"]),
        (config(diskInfo=PILL), "", ["diskInfo"]),
        (config(), PILL, ["kubeconfig is not YAML", "paste the whole file"]),
    ],
)
def test_text_that_is_nested_too_deep_makes_one_cluster_refused_and_nothing_else(
    change: Change, kubeconfig: str, words: list[str]
) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents, kubeconfig=kubeconfig)
            change(documents)
            await refused(sim, documents, words)

    run_driven(story())


def test_all_faults_are_told_at_once() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            config(
                keyPairName="default/lost-key",
                networkInfo='{"interfaces":[{"networkName":"default/lost-net"}]}',
            )(documents)
            await refused(sim, documents, ["default/lost-key", "default/lost-net"])

    run_driven(story())


def a_kubeconfig(sim: Simulation, case: str) -> str:
    good = sim.harvester.admin_kubeconfig(VIP)
    match case:
        case "garbage":
            return "not a kubeconfig"
        case "refused":
            return sim.harvester.admin_kubeconfig("https://192.168.100.99:6443")
        case "401":
            token = sim.harvester.new_token()
            text = sim.harvester.token_kubeconfig(token, VIP)
            sim.harvester.credentials.revoke(token)
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
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents, kubeconfig=a_kubeconfig(sim, case))
            await refused(sim, documents, words)

    run_driven(story())


def test_a_refused_cluster_is_built_once_the_fault_is_gone() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents, kubeconfig="not a kubeconfig")
            ref = await post(sim, documents)
            await sim.advance(seconds=60)
            text = sim.harvester.admin_kubeconfig(VIP)
            await sim.management_client.patch(CREDENTIAL, {"stringData": {KEY: text}})
            await sim.cluster(ref.name).wait_for_settled()

    run_driven(story())


def test_a_refused_cluster_is_deleted_at_once() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            pool(etcdRole=False)(documents)
            ref = await post(sim, documents)
            await sim.advance(seconds=5)
            await sim.management_client.delete(ref)

            assert await sim.management_client.find(ref) is None

    run_driven(story())


def test_a_config_that_comes_after_its_cluster_is_waited_for() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            ref = await post(sim, documents[1:])
            await sim.advance(seconds=60)
            await post_config(sim, documents[0])
            await sim.cluster(ref.name).wait_for_settled()

    run_driven(story())


def test_a_cluster_that_has_not_started_begins_anew_with_another_configuration_and_never_with_two_init_servers() -> (
    None
):
    async def story() -> None:
        async with simulation(seed=5) as sim:
            documents = a_cluster(a_pool("servers", 2, ALL))
            rke(machineGlobalConfig={"service-cidr": "10.142.0.0/16"})(documents)
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await until(stage, "to start the cluster")
            (outdated, *_) = [raw for raw in await machines_of(sim, ref) if raw["spec"].get("initServer")]

            asked = {"service-cidr": "10.143.0.0/16"}
            await sim.management_client.patch(ref, {"spec": {"rkeConfig": {"machineGlobalConfig": asked}}})
            for _ in range(600):
                first = [raw for raw in await machines_of(sim, ref) if raw["spec"].get("initServer")]
                assert len(first) <= 1
                await sim.advance(seconds=1)
            await stage.wait_for_settled()

            assert [raw["metadata"]["uid"] != outdated["metadata"]["uid"] for raw in first] == [True]
            cluster = await stage.get_cluster()
            assert (
                cluster["status"]["immutableConfig"]["machineGlobalConfig"]["service-cidr"] == "10.143.0.0/16"
            )
            assert cluster["status"]["initServer"]["uid"] == first[0]["metadata"]["uid"]
            ready = find_condition(cluster["status"]["conditions"], "Ready")
            assert ready is not None
            assert ready.status == "True"

    run_driven(story())


@pytest.mark.parametrize("version", ["v1.34.7+rke2r1", "v1.34.7+k3s1"])
def test_a_running_cluster_keeps_what_its_servers_share_and_new_ones_join_with_it(version: str) -> None:
    """With the value that is asked for they would stop at their start, and the cluster would never have them."""
    asked = {"service-cidr": "10.143.0.0/16", "disable-kube-proxy": True, "cluster-domain": "orchard.local"}

    async def story() -> None:
        async with simulation(seed=5) as sim:
            documents = a_cluster(a_pool("servers", 1, ALL), kubernetesVersion=version)
            rke(machineGlobalConfig={"cluster-domain": "fruit.local"})(documents)
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            await sim.management_client.patch(ref, {"spec": {"rkeConfig": {"machineGlobalConfig": asked}}})
            await scale(sim, ref, 0, 3)
            changed = await until(stage, "service-cidr is '10.143.0.0/16'")
            await stage.wait_for_settled()

            conditions = (await stage.get_cluster())["status"]["conditions"]
            accepted, ready = (find_condition(conditions, name) for name in ("Accepted", "Ready"))
            assert accepted is not None
            assert ready is not None
            assert (accepted.status, ready.status) == ("False", "True")
            assert accepted.message.splitlines() == [
                "service-cidr is '10.143.0.0/16', and the cluster began with '10.43.0.0/16': its services have their "
                "addresses of it; write service-cidr: 10.43.0.0/16 again: new machines are made with it until then; another "
                "value needs a new Cluster",
                "cluster-domain is 'orchard.local', and the cluster began with 'fruit.local': the names of its services end "
                "with it; write cluster-domain: fruit.local again: new machines are made with it until then; another value needs "
                "a new Cluster",
                "disable-kube-proxy is 'true', and the cluster began with 'false': servers compare it, and one with another "
                "value does not join; write disable-kube-proxy: false again: new machines are made with it until then; another "
                "value needs a new Cluster",
            ]
            assert changed["status"]["immutableConfig"]["machineGlobalConfig"] == {
                "cluster-domain": "fruit.local"
            }

            back = {"service-cidr": None, "disable-kube-proxy": None, "cluster-domain": "fruit.local"}
            await sim.management_client.patch(ref, {"spec": {"rkeConfig": {"machineGlobalConfig": back}}})
            await sim.advance(seconds=5)
            accepted = find_condition((await stage.get_cluster())["status"]["conditions"], "Accepted")
            assert accepted is not None
            assert accepted.status == "True"

    run_driven(story())


async def post_config(sim: Simulation, raw: Raw) -> None:
    await sim.management_client.create(HARVESTER_CONFIG, raw)


def test_a_vm_namespace_that_does_not_exist_is_refused_with_its_cure() -> None:
    async def story() -> None:
        async with simulation() as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            documents[0].update(vmNamespace="nons")
            message = f'namespace "nons" does not exist on Harvester {VIP}'
            await refused(sim, documents, [message, "create it there, or correct vmNamespace"])

    run_driven(story())


@pytest.mark.long
def test_a_secret_that_a_running_cluster_has_lost_is_what_the_next_machine_waits_for() -> None:
    """Harvester has nothing to do with it."""

    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 0))
            await stock(sim, documents)
            rke(registries=REGISTRY)(documents)
            pull = SECRET.ref("pull", "fleet-default")
            data = {"username": "u", "password": "p"}
            made = new_object(SECRET, pull.name, pull.namespace, stringData=data)
            await sim.management_client.create(SECRET, made)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            await sim.management_client.delete(pull)
            await scale(sim, ref, 1, 1)
            await until(stage, "Secret fleet-default/pull to be corrected")

            (worker,) = await machines_of(sim, ref, "workers")
            waiting = worker["status"]["waiting"]
            assert waiting["for"] == (
                "Secret fleet-default/pull to be corrected (registry registry.example.com takes its credentials from "
                "Secret fleet-default/pull, which does not exist; create it beside the Cluster)"
            )
            await sim.management_client.create(SECRET, made)
            await stage.wait_for_settled()

    run_driven(story())


@pytest.mark.long
def test_of_two_clusters_of_one_name_that_start_together_one_is_refused_and_starts_when_the_name_is_free() -> (
    None
):
    """Both pass the preflight, since neither has its ServiceAccount on Harvester yet."""

    async def story() -> None:
        async with simulation(seed=3) as sim:
            refs = []
            first = a_cluster(a_pool("servers", 1, ALL))
            await stock(sim, first)
            await sim.management_client.create(NAMESPACE, new_object(NAMESPACE, "team-b"))
            grant = {"metadata": {"annotations": {"windrow.io/allowed-namespaces": "*"}}}
            await sim.management_client.patch(CREDENTIAL, grant)
            for documents in (first, a_cluster(a_pool("servers", 1, ALL), namespace="team-b")):
                refs.append(await post(sim, documents))
            await sim.advance(minutes=10)
            clusters = {ref: await sim.management_client.get(ref) for ref in refs}
            (winner,) = [ref for ref, raw in clusters.items() if raw["status"]["ready"]]
            (loser,) = [ref for ref in refs if ref != winner]
            status = clusters[loser]["status"]

            assert status["phase"] == "Refused"
            ready = find_condition(status["conditions"], "Ready")
            assert ready is not None
            assert ready.reason == "Refused"
            assert (
                "on Harvester is not this cluster's, perhaps that of another cluster called orchard"
                in ready.message
            )
            assert "rename the cluster" in status["waiting"]["for"]
            assert await machines_of(sim, loser) == []

            await sim.management_client.delete(winner)
            await gone(sim, winner)
            await sim.advance(minutes=10)
            assert (await sim.management_client.get(loser))["status"]["ready"]

    run_driven(story())


def test_a_misspelt_image_of_a_cluster_that_runs_is_told_with_the_one_that_was_meant_and_may_be_corrected() -> (
    None
):
    """The machines that Harvester refused, the one that is asked for and that of the rollout, have the image in their records:
    another one takes the place of the first, and none that of the second."""

    def disks(image: str) -> Raw:
        return {"diskInfo": json.dumps({"disks": [{"imageName": image, "size": 40, "bootOrder": 1}]})}

    async def story() -> None:
        async with simulation(seed=5) as sim:
            documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1))
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            config_ref = HARVESTER_CONFIG.ref("nc-workers", ref.namespace)
            before = {name_of(raw) for raw in await machines_of(sim, ref)}

            await sim.management_client.patch(config_ref, disks("default/jamny"))
            await scale(sim, ref, 1, 2)
            await until(stage, "image default/jamny does not exist; write default/jammy")
            refused = {name_of(raw) for raw in await machines_of(sim, ref)} - before
            assert len(refused) == 2

            await sim.management_client.patch(config_ref, disks("default/jammy"))
            await stage.wait_for_settled()
            after = {name_of(raw) for raw in await machines_of(sim, ref)}
            assert len(after) == 3
            assert before < after
            assert not refused & after

    run_driven(story())
