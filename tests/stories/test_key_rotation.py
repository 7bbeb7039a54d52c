"""Golden stories of a rotation of encryption keys, and what becomes of one that cannot be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_etcd_snapshots import ask
from tests.stories.test_k3s import an_rke_config
from tests.stories.test_updates import check_story
from tests.support.clock import run_driven

from windrow.kubernetes.objects import Raw, annotations_of, nested
from windrow.kubernetes.resources import NODE


async def phase(it: Story, *wanted: str, generation: int = 1) -> Raw:
    """The status of the Cluster once the rotation of this generation is at one of these phases."""
    end = it.sim.clock.now() + timedelta(minutes=60)
    while True:
        status = (await it.stage.get_cluster()).get("status") or {}
        done = nested(status, "rotateEncryptionKeys", "generation", default=0)
        if done == generation and status.get("rotateEncryptionKeysPhase") in wanted:
            return status
        assert it.sim.clock.now() < end, f"{status.get('rotateEncryptionKeysPhase')}: {status}"
        await it.sim.advance(seconds=1)


async def hashes(it: Story) -> list[str]:
    guest = await it.stage.guest_client()
    return [
        text
        for raw in await guest.list(NODE)
        for key, text in annotations_of(raw).items()
        if key.endswith("/encryption-config-hash")
    ]


@pytest.mark.parametrize(
    ("distribution", "version", "config"),
    [("rke2", "v1.34.7+rke2r1", {}), ("k3s", "v1.34.7+k3s1", {"secrets-encryption": True})],
)
def test_keys_are_rotated_and_every_server_restarts_once(
    distribution: str, version: str, config: Raw
) -> None:
    async def story() -> Transcript:
        pool = a_pool("servers", 3, SERVERS)
        rke = an_rke_config(pool, config=config)
        async with a_story(pool, kubernetesVersion=version, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            before = await hashes(it)
            assert len(before) == 3
            it.transcript.lines.clear()
            it.transcript.say("a user raises rotateEncryptionKeys.generation to 1")
            await ask(it, rotateEncryptionKeys={"generation": 1})
            status = await phase(it, "Done", "Failed")
            assert status["rotateEncryptionKeysPhase"] == "Done", status
            after = await hashes(it)
            assert len(after) == 3
            assert len(set(after)) == 1
            assert not set(after) & set(before)
            await it.stage.wait_for_settled()
            for raw in await machines_of(it.sim, it.ref):
                assert nested(raw, "status", "restarted") == status["rotateEncryptionKeysRun"]["id"]
            it.transcript.say("the same manifest again rotates nothing")
            await ask(it, rotateEncryptionKeys={"generation": 1})
            await it.sim.advance(minutes=5)
            assert await hashes(it) == after
            return it.transcript

    check_story(f"rotate-keys-{distribution}", story)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("v1.34.7+k3s1", "Secrets are not encrypted in etcd"),
        ("v1.29.15+rke2r1", "releases before v1.30.1 do not rotate keys in one step"),
    ],
)
def test_what_cannot_be_rotated_is_told_and_nothing_is_touched(version: str, words: str) -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            before = await hashes(it)
            await ask(it, rotateEncryptionKeys={"generation": 1})
            status = await phase(it, "Failed")
            await it.sim.advance(minutes=5)
            assert words in status["rotateEncryptionKeysRun"]["message"]
            assert "nothing was touched" in status["rotateEncryptionKeysRun"]["message"]
            assert await hashes(it) == before
            assert not nested((await machines_of(it.sim, it.ref))[0], "status", "restarted")

    run_driven(story())


async def renewed(it: Story, generation: int = 1) -> Raw:
    """The Cluster once the rotation of certificates of this generation is over."""
    end = it.sim.clock.now() + timedelta(minutes=60)
    while True:
        raw = await it.stage.get_cluster()
        if nested(raw, "status", "certificateRotationGeneration") == generation:
            await it.stage.wait_for_settled()
            return await it.stage.get_cluster()
        assert it.sim.clock.now() < end, nested(raw, "status", "waiting")
        await it.sim.advance(seconds=1)


def messages(cluster: Raw) -> dict[str, str]:
    return {one["type"]: one["message"] for one in nested(cluster, "status", "conditions")}


async def serving_certificates(it: Story) -> set[str]:
    """Those with which the API servers serve."""
    found = set()
    for raw in await it.stage.list_nodes():
        addresses = nested(raw, "status", "addresses")
        own = next(one["address"] for one in addresses if one["type"] == "InternalIP")
        if (door := it.sim.harvester.network.find(own, 6443)) is not None:
            identity = door.identity()
            assert identity is not None
            found.add(identity.chain)
    return found


@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_certificates_get_new_keys_and_every_machine_restarts_once(distribution: str, version: str) -> None:
    async def story() -> Transcript:
        pools = (a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with a_story(*pools, kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            before = await serving_certificates(it)
            it.transcript.lines.clear()
            it.transcript.say("a user raises rotateCertificates.generation to 1")
            await ask(it, rotateCertificates={"generation": 1})
            cluster = await renewed(it)
            machines = await machines_of(it.sim, it.ref)
            requests = {nested(raw, "status", "restarted") for raw in machines}
            assert len(requests) == 1
            assert str(requests.pop()).startswith("certificates-1-")
            assert "new certificates of every service were made" in messages(cluster)["CertificatesRenewed"]
            assert not await serving_certificates(it) & before
            it.transcript.say("the same manifest again restarts nothing")
            await ask(it, rotateCertificates={"generation": 1})
            await it.sim.advance(minutes=5)
            return it.transcript

    check_story(f"rotate-certificates-{distribution}", story)


def test_only_the_named_services_get_new_keys_and_machines_without_them_do_not_restart() -> None:
    async def story() -> None:
        pools = (a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            before = await serving_certificates(it)
            await ask(it, rotateCertificates={"generation": 1, "services": ["etcd", "k3s-server", "mail"]})
            cluster = await renewed(it)
            assert (
                "new certificates of etcd, k3s-server were made" in messages(cluster)["CertificatesRenewed"]
            )
            assert "'mail', which has no certificates" in messages(cluster)["Accepted"]
            restarted = {
                raw["spec"]["pool"]: nested(raw, "status", "restarted")
                for raw in await machines_of(it.sim, it.ref)
            }
            assert restarted["servers"]
            assert not restarted["workers"]
            assert await serving_certificates(it) == before

            await ask(it, rotateCertificates={"generation": 2, "services": ["mail"]})
            await it.sim.advance(minutes=10)
            status = (await it.stage.get_cluster())["status"]
            assert status["certificateRotationGeneration"] == 1

    run_driven(story())
