"""Golden stories of a restore from S3: after the loss of quorum, of all servers, and to an older release."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_cluster, a_pool, machines_of, post, stock
from tests.stories.test_cluster_life import Story, check_story, lose
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of, without_times
from tests.stories.test_token_rotation import phase as rotated
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.operations.snapshot import decode_spec
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
    return await stored(it, "s3")


async def stored(it: Story, place: str) -> str:
    found = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == place]
    return name_of(min(found, key=name_of))


async def restore(it: Story, generation: int = 1, **rest: Any) -> None:
    request = {"name": await in_s3(it), "generation": generation, **rest}
    it.transcript.restart()  # how the loss went is another story
    it.transcript.say("a user names the snapshot in etcdSnapshotRestore")
    await ask(it, etcdSnapshotRestore=request)


def events(it: Story) -> Transcript:
    """The story without what it waited for, and without the end of each machine's bootstrap: these come as their VMs do. What is
    done of one kind at once is in the order of names."""
    left_out = ("  waits", "ScrubBootstrapData")
    lines = [line for line in it.transcript.lines if not line.startswith(left_out)]
    it.transcript.lines = [
        line for _, group in groupby(lines, lambda line: line.split()[0]) for line in sorted(group)
    ]
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


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("403", "Access Denied"),
        ("404", "bucket backups does not exist"),
        ("503", "cannot read S3: "),
        ("cut off", "it was cut off"),
        ("gone", "is not in S3 any more"),
    ],
)
def test_a_bucket_that_refuses_or_has_half_of_it_is_found_out_before_anything_is_touched(
    trouble: str, words: str
) -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            before = await servers_of(it)
            bucket = dict(store.buckets["backups"])
            spoil(store, trouble)
            await restore(it)
            message = str((await phase(it, "Restore", "Failed"))["etcdSnapshotRestoreRun"]["message"])
            assert words in message
            assert message.endswith(
                "nothing was touched, raise spec.rkeConfig.etcdSnapshotRestore.generation to try again"
            )
            await it.sim.advance(minutes=2)
            assert await servers_of(it) == before
            assert nested(await it.stage.get_cluster(), "status", "ready") is True
            if trouble != "403":
                return
            mend(store, bucket)
            await restore(it, 2)
            await phase(it, "Restore", "Finished", 2)

    run_driven(story())


def spoil(store: ObjectStore, trouble: str) -> None:
    bucket = store.buckets["backups"]
    match trouble:
        case "403":
            store.refusal = 403
        case "503":
            store.refusal = 503
        case "404":
            del store.buckets["backups"]
        case "gone":
            bucket.clear()
        case _:
            for key, one in list(bucket.items()):
                bucket[key] = replace(one, content=one.content[:-512])


def mend(store: ObjectStore, bucket: dict[str, Any]) -> None:
    store.refusal = 0
    store.buckets["backups"] = bucket


@pytest.mark.long
def test_a_bucket_that_refuses_holds_the_restore_of_lost_servers_which_goes_on_when_it_answers() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            before = await servers_of(it)
            for machine in await machines_of(it.sim, it.ref, "servers"):
                await lose(it, machine)
            await it.sim.advance(minutes=3)
            store.refusal = 503
            await restore(it)
            await phase(it, "Restore", "Restore")
            await it.sim.advance(minutes=5)
            status = (await it.stage.get_cluster())["status"]
            assert status["etcdSnapshotRestorePhase"] == "Restore"
            store.refusal = 0
            await phase(it, "Restore", "Finished")
            await it.stage.wait_for_settled()
            assert not await servers_of(it) & before

    run_driven(story())


async def runs(it: Story, version: str) -> None:
    while (await it.stage.get_cluster())["status"].get("version") != version:
        await it.sim.advance(seconds=10)


@pytest.mark.long
def test_a_downgrade_is_refused_with_the_snapshot_whose_restore_goes_back() -> None:
    async def story() -> None:
        old, new = "v1.34.7+rke2r1", "v1.35.4+rke2r1"
        async with with_bucket(a_pool("servers", 1, SERVERS), kubernetesVersion=old) as (it, _):
            await it.sim.management_client.patch(it.ref, {"spec": {"kubernetesVersion": new}})
            await runs(it, new)
            guest = await it.stage.guest_client()
            await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "since", "default"))

            await it.sim.management_client.patch(it.ref, {"spec": {"kubernetesVersion": old}})
            await it.sim.advance(minutes=1)
            status = (await it.stage.get_cluster())["status"]
            refused = str(status["pendingChanges"]["refused"][0])
            assert f"lower than {new}, which the cluster runs" in refused
            command = re.search(
                r"windrow restore fleet-default/orchard (\S+) --config kubernetesVersion", refused
            )
            assert command, refused

            request = {"name": command[1], "generation": 1, "restoreRKEConfig": "kubernetesVersion"}
            await ask(it, etcdSnapshotRestore=request)
            await phase(it, "Restore", "Finished")
            await it.stage.wait_for_settled()
            cluster = await it.stage.get_cluster()
            assert (cluster["spec"]["kubernetesVersion"], cluster["status"]["version"]) == (old, old)
            guest = await it.stage.guest_client()
            (node,) = await guest.list(NODE)
            assert nested(node, "status", "nodeInfo", "kubeletVersion") == old
            maps = {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}
            assert maps >= {"kept", "later"}
            assert "since" not in maps

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "reached"),
    [
        ("s3", "Shutdown"),
        ("s3", "Restore"),
        ("s3", "InitialRestartCluster"),
        ("local", "Shutdown"),
        ("local", "Restore"),
    ],
)
def test_a_restore_to_an_older_release_takes_the_place_of_one_that_is_under_way(
    place: str, reached: str
) -> None:
    """The first one keeps the release, so that the second goes back while its servers are gone."""

    async def story() -> None:
        old, new = "v1.34.7+rke2r1", "v1.35.4+rke2r1"
        async with with_bucket(a_pool("servers", 1, SERVERS), kubernetesVersion=old) as (it, _):
            name, first = await in_s3(it), await stored(it, place)
            await it.sim.management_client.patch(it.ref, {"spec": {"kubernetesVersion": new}})
            await runs(it, new)
            await ask(it, etcdSnapshotRestore={"name": first, "generation": 1, "restoreRKEConfig": "none"})
            await phase(it, "Restore", reached)

            request = {"name": name, "generation": 2, "restoreRKEConfig": "kubernetesVersion"}
            await ask(it, etcdSnapshotRestore=request)
            await phase(it, "Restore", "Finished", 2)
            await it.stage.wait_for_settled()
            cluster = await it.stage.get_cluster()
            assert (cluster["spec"]["kubernetesVersion"], cluster["status"]["version"]) == (old, old)
            guest = await it.stage.guest_client()
            (node,) = await guest.list(NODE)
            assert nested(node, "status", "nodeInfo", "kubeletVersion") == old

            for snapshot in await snapshots_of(it):
                if nested(snapshot, "status", "storage") == "s3":
                    spec = decode_spec(nested(snapshot, "snapshotFile", "metadata", default=""))
                    assert spec["kubernetesVersion"], "it was made before, and its spec was recorded"

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
