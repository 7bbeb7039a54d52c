"""Golden stories of a restore from S3: after the loss of quorum, of all servers, and to an older release."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_cluster, a_pool, machines_of, post, stock
from tests.stories.test_cluster_life import Story, check_story, lose
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of, without_times
from tests.stories.test_token_rotation import phase as rotated
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.core.text import encode_base64
from windrow.emulator.storage.object_store import ObjectStore
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, secret_texts, uid_of
from windrow.kubernetes.resources import CONFIG_MAP, NODE, SECRET

HOST = "10.0.0.200"
KEYS = {"s3credentialConfig-accessKey": "c25hcHNob3Rz", "s3credentialConfig-secretKey": "c2ltdWxhdGVk"}


@asynccontextmanager
async def with_bucket(
    *pools: Raw, cron: str = "0 0 * * *", **spec: Any
) -> AsyncIterator[tuple[Story, ObjectStore]]:
    """A cluster whose snapshots go to a bucket of the site too, at rest, with a mark in it and one snapshot of that."""
    documents = a_cluster(*pools, **spec)
    async with simulation(seed=3, with_manager=False) as sim:
        store = ObjectStore(sim.clock, ["backups"])
        store.listen(sim.harvester.network, HOST)
        documents[-1]["spec"]["rkeConfig"]["etcd"] = {
            "snapshotScheduleCron": cron,
            "s3": {
                "bucket": "backups",
                "folder": "orchard",
                "endpoint": f"{HOST}:9000",
                "endpointCA": store.ca,
                "cloudCredentialName": "fleet-default:cc-s3",
            },
        }
        transcript = Transcript(sim.api.local())
        await stock(sim, documents)
        await sim.management_client.create(SECRET, new_object(SECRET, "cc-s3", "fleet-default", data=KEYS))
        sim.start_manager(transcript)
        ref = await post(sim, documents)
        it = Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript)
        await it.stage.wait_for_settled()
        guest = await it.stage.guest_client()
        await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "kept", "default", data={"note": "then"}))
        await ask(it, etcdSnapshotCreate={"generation": 1})
        await phase(it, "Create", "Finished")
        await it.sim.advance(seconds=30)
        await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "later", "default"))
        it.transcript.lines.clear()
        yield it, store


async def in_s3(it: Story) -> str:
    found = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
    return name_of(min(found, key=name_of))


async def restore(it: Story, generation: int = 1, **rest: Any) -> None:
    request = {"name": await in_s3(it), "generation": generation, **rest}
    it.transcript.restart()  # how the loss went is another story
    it.transcript.say("a user names the snapshot in etcdSnapshotRestore")
    await ask(it, etcdSnapshotRestore=request)


def events(it: Story) -> Transcript:
    """The story without what it waited for, and without the end of each machine's bootstrap: these come as their VMs do."""
    left_out = ("  waits", "ScrubBootstrapData")
    it.transcript.lines = [line for line in it.transcript.lines if not line.startswith(left_out)]
    return without_times(it)


async def check_restored(it: Story, before: set[str]) -> None:
    """What was in the snapshot is there, nothing else is; each Node has a Machine, and no server is one of before."""
    await it.stage.wait_for_settled()
    guest = await it.stage.guest_client()
    maps = {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}
    assert "kept" in maps
    assert "later" not in maps
    machines = await machines_of(it.sim, it.ref)
    assert {name_of(raw) for raw in await guest.list(NODE)} == {name_of(raw) for raw in machines}
    servers = {uid_of(raw) for raw in await machines_of(it.sim, it.ref, "servers")}
    assert len(servers) == 3
    assert not servers & before


async def servers_of(it: Story) -> set[str]:
    return {uid_of(raw) for raw in await machines_of(it.sim, it.ref, "servers")}


@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_a_cluster_that_lost_its_quorum_comes_back_from_s3(distribution: str, version: str) -> None:
    async def story() -> Transcript:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 1)
        async with with_bucket(*pools, kubernetesVersion=version) as (it, _):
            before = await servers_of(it)
            for machine in (await machines_of(it.sim, it.ref, "servers"))[:2]:
                await lose(it, machine)
            await it.sim.advance(minutes=3)
            await restore(it)
            await phase(it, "Restore", "Finished")
            await check_restored(it, before)
            return events(it)

    check_story(f"restore-lost-quorum-{distribution}", story)


@pytest.mark.long
def test_a_snapshot_from_before_the_token_was_rotated_is_restored_with_the_token_of_then() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 3, SERVERS)) as (it, _):
            ref = SECRET.ref("orchard-windrow-secrets", "fleet-default")
            then = secret_texts(await it.sim.management_client.get(ref))["server-password"]
            await ask(it, rotateToken={"generation": 1})
            await rotated(it, "Done")
            await it.stage.wait_for_settled()
            now = secret_texts(await it.sim.management_client.get(ref))["server-password"]
            assert {nested(raw, "status", "openable") for raw in await snapshots_of(it)} == {"True"}
            before = await servers_of(it)
            for machine in await machines_of(it.sim, it.ref, "servers"):
                await lose(it, machine)
            await it.sim.advance(minutes=3)
            await restore(it)
            await phase(it, "Restore", "Finished")
            await check_restored(it, before)
            held = secret_texts(await it.sim.management_client.get(ref))
            assert held["server-password"] == then
            assert held["server-passwords-former"].split() == [now]

    run_driven(story())


def test_a_cluster_without_any_server_comes_back_from_s3() -> None:
    async def story() -> Transcript:
        async with with_bucket(a_pool("servers", 3, SERVERS)) as (it, _):
            before = await servers_of(it)
            for machine in await machines_of(it.sim, it.ref, "servers"):
                await lose(it, machine)
            await it.sim.advance(minutes=3)
            await restore(it)
            await phase(it, "Restore", "Finished")
            await check_restored(it, before)
            return events(it)

    check_story("restore-all-servers-lost", story)


def test_a_bucket_that_refuses_holds_the_restore_which_goes_on_when_it_answers() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 3, SERVERS)) as (it, store):
            before = await servers_of(it)
            store.refusal = 503
            await restore(it)
            await phase(it, "Restore", "Restore")
            await it.sim.advance(minutes=5)
            status = (await it.stage.get_cluster())["status"]
            assert status["etcdSnapshotRestorePhase"] == "Restore"
            store.refusal = 0
            await phase(it, "Restore", "Finished")
            await check_restored(it, before)

    run_driven(story())


def test_a_snapshot_that_cannot_be_restored_touches_nothing() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 3, SERVERS)) as (it, _):
            machines = {uid_of(raw) for raw in await it.sim.management_client.list(MACHINE)}
            await ask(it, etcdSnapshotRestore={"name": "nothing", "generation": 1})
            status = await phase(it, "Restore", "Failed")
            assert "nothing was touched" in status["etcdSnapshotRestoreRun"]["message"]
            await it.sim.advance(minutes=2)
            assert {uid_of(raw) for raw in await it.sim.management_client.list(MACHINE)} == machines
            assert nested(await it.stage.get_cluster(), "status", "ready") is True

    run_driven(story())


def test_scheduled_snapshots_go_to_s3_with_keys_that_no_file_holds_and_with_new_ones_without_a_restart() -> (
    None
):
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS), cron="*/10 * * * *") as (it, store):
            guest = await it.stage.guest_client()
            ref = SECRET.ref("rke2-etcd-snapshot-s3-config", "kube-system")
            assert secret_texts(await guest.get(ref))["etcd-s3-secret-key"] == store.secret_key
            await it.sim.advance(minutes=12)
            scheduled = {key for key in store.buckets["backups"] if "etcd-snapshot" in key}
            assert scheduled

            store.secret_key = "another"
            change = {"s3credentialConfig-secretKey": encode_base64("another")}
            await it.sim.management_client.patch(SECRET.ref("cc-s3", "fleet-default"), {"data": change})
            await it.sim.advance(minutes=12)
            later = {key for key in store.buckets["backups"] if "etcd-snapshot" in key}
            assert later - scheduled

    run_driven(story())
