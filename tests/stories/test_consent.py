"""A Secret of another namespace works only with its own consent, checked at each use (issue 10 A3)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.stories.cluster_rig import (
    ALL,
    Transcript,
    a_cluster,
    a_pool,
    compare,
    gone,
    machines_of,
    post,
    stock,
)
from tests.stories.test_refusals import refused, said
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, name_of, new_object
from windrow.kubernetes.resources import NAMESPACE, SECRET, ObjectRef

SHARED = SECRET.ref("cc-harvester", "cattle-global-data")
ALLOWED = "windrow.io/allowed-namespaces"
CURE = f"kubectl -n cattle-global-data annotate --overwrite secret cc-harvester {ALLOWED}=fleet-default"


async def stock_with_team(sim: Simulation, documents: list[Raw]) -> None:
    await sim.management_client.create(NAMESPACE, new_object(NAMESPACE, "team-b"))
    await stock(sim, documents)


async def allow(sim: Simulation, ref: ObjectRef, namespaces: str | None) -> None:
    await sim.management_client.patch(ref, {"metadata": {"annotations": {ALLOWED: namespaces}}})


def a_small_cluster(**spec: Any) -> list[Raw]:
    return a_cluster(a_pool("pool1", 1, ALL), **spec)


def with_guest_credential(documents: list[Raw], value: str) -> list[Raw]:
    documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]["cloud-provider-config"] = value
    return documents


@pytest.mark.parametrize("granted", [None, "", "team-b", "fleet-defaul,fleet-default-2"])
def test_a_credential_of_another_namespace_is_refused_with_the_cure(granted: str | None) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster()
            await stock(sim, documents)
            await allow(sim, SHARED, granted)
            await refused(
                sim, documents, ["cattle-global-data/cc-harvester", "namespace fleet-default", CURE]
            )

    run_driven(story())


def test_a_pool_names_no_credential_of_another_namespace() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL, cloudCredentialSecretName="team-b:cc"))
            await stock_with_team(sim, documents)
            await allow(sim, SECRET.ref("cc", "team-b"), None)
            await refused(sim, documents, ["team-b/cc", "kubectl -n team-b annotate --overwrite secret cc"])

    run_driven(story())


def test_a_refusal_does_not_say_whether_the_secret_is_there() -> None:
    async def story() -> None:
        sentences = []
        for exists in (True, False):
            async with simulation(seed=2) as sim:
                documents = a_small_cluster()
                await stock(sim, documents)
                await allow(sim, SHARED, None)
                if not exists:
                    await sim.management_client.delete(SHARED)
                ref = await post(sim, documents)
                await sim.advance(seconds=5)
                sentences.append(said(await sim.management_client.get(ref)))
        assert sentences[0] == sentences[1]
        assert CURE in sentences[0]

    run_driven(story())


@pytest.mark.parametrize("granted", ["fleet-default", "team-b, fleet-default", "*"])
def test_a_refused_cluster_is_built_once_the_secret_allows_its_namespace(granted: str) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster()
            await stock(sim, documents)
            await allow(sim, SHARED, None)
            ref = await post(sim, documents)
            await sim.advance(seconds=5)
            assert CURE in said(await sim.management_client.get(ref))

            await allow(sim, SHARED, granted)

            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

    run_driven(story())


def test_a_credential_of_the_own_namespace_needs_no_consent() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster(cloudCredentialSecretName="fleet-default:cc-own")
            await stock(sim, documents)
            await allow(sim, SECRET.ref("cc-own", "fleet-default"), None)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

    run_driven(story())


def test_consent_that_is_withdrawn_ends_the_use_of_the_credential() -> None:
    """Nothing is made, and nothing is deleted, until the owner allows it again."""

    async def story() -> list[str]:
        async with simulation(seed=2, with_manager=False) as sim:
            heard = Transcript(sim.api.local())
            sim.start_manager(heard)
            documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1))
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            before = await inventory(sim.harvester.api)
            heard.lines.clear()

            heard.say("the owner of the credential withdraws its consent; a worker is added")
            await allow(sim, SHARED, None)
            step = {"op": "replace", "path": "/spec/rkeConfig/machinePools/1/quantity", "value": 2}
            await sim.management_client.json_patch(ref, [step])
            await sim.advance(minutes=3)
            assert await inventory(sim.harvester.api) == before
            valid = find_condition(
                (await sim.management_client.get(ref))["status"]["conditions"], "CredentialValid"
            )
            assert valid is not None
            assert (valid.status, valid.reason) == ("False", "NotAllowed")

            heard.say("the Cluster is deleted")
            await sim.management_client.delete(ref)
            await sim.advance(minutes=3)
            assert {name_of(vm) for vm in await machines_of(sim, ref)}
            assert await inventory(sim.harvester.api) == before

            heard.say("the owner allows it again")
            await allow(sim, SHARED, "fleet-default")
            await gone(sim, ref)
            return heard.lines

    compare("consent-withdrawn", run_driven(story()))


def test_a_secret_that_replaces_another_gives_its_own_consent() -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster()
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            theirs = await sim.management_client.get(SHARED)
            before = await inventory(sim.harvester.api)

            await sim.management_client.delete(SHARED)
            await sim.management_client.create(
                SECRET, new_object(SECRET, SHARED.name, SHARED.namespace, data=theirs["data"])
            )
            step = {"op": "replace", "path": "/spec/rkeConfig/machinePools/0/quantity", "value": 3}
            await sim.management_client.json_patch(ref, [step])
            await sim.advance(minutes=3)

            assert await inventory(sim.harvester.api) == before
            assert CURE in said(await sim.management_client.get(ref))

    run_driven(story())


def test_a_machine_with_the_credential_of_another_namespace_is_not_made() -> None:
    """Also where another account than the manager's wrote the Machine, or it is older than the rule."""

    async def story() -> None:
        async with simulation(seed=2) as sim:
            pools = a_pool("servers", 1, ALL), a_pool("workers", 1)
            documents = a_cluster(*pools, cloudCredentialSecretName="fleet-default:cc-own")
            await stock_with_team(sim, documents)
            await stock(sim, a_small_cluster(cloudCredentialSecretName="team-b:cc"))
            await allow(sim, SECRET.ref("cc", "team-b"), None)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            before = await inventory(sim.harvester.api)
            [mine] = await machines_of(sim, ref, "workers")

            await sim.kill_manager()
            forged = new_object(MACHINE, "orchard-workers-aaaaa-bbbbb", ref.namespace)
            forged["metadata"] |= {key: mine["metadata"][key] for key in ("labels", "finalizers")}
            forged["spec"] = {**mine["spec"], "credential": "team-b:cc"}
            await sim.management_client.create(MACHINE, forged)
            step = {"op": "replace", "path": "/spec/rkeConfig/machinePools/1/quantity", "value": 2}
            await sim.management_client.json_patch(ref, [step])
            sim.start_manager()
            await sim.advance(minutes=2)

            # It is refused, so that nothing of it is made, and one as the pool asks for it comes in its place.
            workers = await machines_of(sim, ref, "workers")
            assert {raw["spec"]["credential"] for raw in workers} == {"fleet-default:cc-own"}
            assert len(workers) == 2
            made = await inventory(sim.harvester.api) - before
            assert made
            assert not [name for _, _, name in made if "aaaaa-bbbbb" in name]

    run_driven(story())


@pytest.mark.parametrize("granted", [None, "fleet-default"])
def test_a_guest_credential_of_another_namespace_needs_consent(granted: str | None) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = with_guest_credential(
                a_small_cluster(cloudCredentialSecretName="fleet-default:cc-own"), "secret://team-b:theirs"
            )
            await stock_with_team(sim, documents)
            text = base64.b64encode(sim.harvester.admin_kubeconfig(VIP).encode()).decode()
            theirs = new_object(SECRET, "theirs", "team-b", data={"credential": text})
            await sim.management_client.create(SECRET, theirs)
            if granted is None:
                cure = f"kubectl -n team-b annotate --overwrite secret theirs {ALLOWED}=fleet-default"
                await refused(sim, documents, ["team-b/theirs", cure])
                return
            await allow(sim, SECRET.ref("theirs", "team-b"), granted)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

    run_driven(story())


@pytest.mark.parametrize(
    "value", ["secret://:theirs", "secret://theirs", "secret://team-b:", "secret://a/b:c"]
)
def test_a_guest_credential_names_its_namespace(value: str) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster()
            await stock_with_team(sim, documents)
            await refused(sim, with_guest_credential(documents, value), ["write secret://namespace:name"])

    run_driven(story())


@pytest.mark.parametrize("name", ["../../team-b/secrets/auth", "..", "auth?x=y", "team-b:auth"])
def test_a_registry_secret_is_one_of_the_own_namespace(name: str) -> None:
    async def story() -> None:
        async with simulation(seed=2) as sim:
            documents = a_small_cluster()
            await stock_with_team(sim, documents)
            auth = new_object(SECRET, "auth", "team-b", stringData={"username": "u", "password": "p"})
            await sim.management_client.create(SECRET, auth)
            configs = {"registry.example.com": {"authConfigSecretName": name}}
            documents[-1]["spec"]["rkeConfig"]["registries"] = {"configs": configs}
            await refused(sim, documents, ["which no Secret may be called"])

    run_driven(story())
