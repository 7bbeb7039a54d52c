"""Golden stories of etcd snapshots: on demand, their objects, and what becomes of them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, gone, machines_of
from tests.stories.test_cluster_life import Story, a_story, check_story
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import ETCD_SNAPSHOT
from windrow.clusters.api.operations.snapshot import decode_spec
from windrow.kubernetes.objects import Raw, name_of, nested


def without_times(it: Story) -> Transcript:
    """The story without the times in the names of files, which another write before them changes."""
    it.transcript.lines = [re.sub(r"\b\d{10}\b", "<time>", line) for line in it.transcript.lines]
    return it.transcript


async def ask(it: Story, **operations: Any) -> None:
    await it.sim.management_client.patch(it.ref, {"spec": {"rkeConfig": operations}})


async def phase(
    it: Story, name: str, wanted: str, generation: int = 1, within: timedelta = timedelta(minutes=60)
) -> Raw:
    """The status of the Cluster once `etcdSnapshot<name>Phase` of this generation is so."""
    end = it.sim.clock.now() + within
    while True:
        status = (await it.stage.get_cluster()).get("status") or {}
        done = nested(status, f"etcdSnapshot{name}", "generation", default=0)
        if (done, status.get(f"etcdSnapshot{name}Phase")) == (generation, wanted):
            return status
        assert it.sim.clock.now() < end, f"{status.get(f'etcdSnapshot{name}Phase')}: {status.get('waiting')}"
        await it.sim.advance(seconds=1)


async def snapshots_of(it: Story) -> list[Raw]:
    return await it.sim.management_client.list(ETCD_SNAPSHOT, it.ref.namespace)


@pytest.mark.parametrize(("distribution", "version"), [("rke2", "v1.34.7+rke2r1"), ("k3s", "v1.34.7+k3s1")])
def test_a_snapshot_on_demand_is_made_by_each_member_and_is_an_object(
    distribution: str, version: str
) -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), kubernetesVersion=version) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            it.transcript.say("a user raises etcdSnapshotCreate.generation to 1")
            await ask(it, etcdSnapshotCreate={"generation": 1})
            status = await phase(it, "Create", "Finished")
            await it.sim.advance(seconds=30)
            machines = {name_of(raw) for raw in await machines_of(it.sim, it.ref)}
            made = {name: node["snapshot"] for name, node in status["etcdSnapshotCreateRun"]["nodes"].items()}
            assert made.keys() == machines
            found = await snapshots_of(it)
            assert {nested(raw, "snapshotFile", "name") for raw in found} == set(made.values())
            for raw in found:
                assert raw["status"] == {"openable": "True", "storage": "local"}
                spec = decode_spec(raw["snapshotFile"]["metadata"])
                assert spec["kubernetesVersion"] == version
                assert "etcdSnapshotCreate" not in spec["rkeConfig"]
            assert nested(await it.stage.get_cluster(), "status", "ready") is True

            it.transcript.say("the same manifest again makes none")
            await ask(it, etcdSnapshotCreate={"generation": 1})
            await it.sim.advance(minutes=5)
            assert len(await snapshots_of(it)) == 3
            return without_times(it)

    check_story(f"etcd-snapshot-{distribution}", story)


def test_a_deleted_object_takes_its_file_with_it_and_the_others_stay() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            for generation in (1, 2):
                await ask(it, etcdSnapshotCreate={"generation": generation})
                await phase(it, "Create", "Finished", generation)
                await it.sim.advance(seconds=30)
            first, second = sorted(
                await snapshots_of(it), key=lambda raw: nested(raw, "snapshotFile", "name")
            )
            ref = ETCD_SNAPSHOT.ref(name_of(first), it.ref.namespace)
            await it.sim.management_client.delete(ref)
            await gone(it.sim, ref)
            await it.sim.advance(minutes=15)
            assert [name_of(raw) for raw in await snapshots_of(it)] == [name_of(second)]

    run_driven(story())


def test_a_deleted_cluster_takes_its_objects_with_it() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS)) as it:
            await it.stage.wait_for_settled()
            await ask(it, etcdSnapshotCreate={"generation": 1})
            await phase(it, "Create", "Finished")
            await it.sim.advance(seconds=30)
            assert len(await snapshots_of(it)) == 1
            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)
            await it.sim.advance(seconds=30)
            assert await snapshots_of(it) == []

    run_driven(story())


def test_a_release_without_the_endpoint_fails_and_says_what_to_do() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), kubernetesVersion="v1.27.16+rke2r1") as it:
            await it.stage.wait_for_settled()
            await ask(it, etcdSnapshotCreate={"generation": 1})
            status = await phase(it, "Create", "Failed")
            message = status["etcdSnapshotCreateRun"]["message"]
            assert "does not serve /db/snapshot" in message
            assert "update the cluster to a newer release of RKE2" in message

    run_driven(story())
