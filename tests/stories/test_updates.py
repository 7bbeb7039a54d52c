"""Stories of changes in place: another version, another configuration, one machine after the other."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, SERVERS, Transcript, a_pool, compare, machines_of, until
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_k3s import an_rke_config
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import RETRY_UPDATE
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import annotations_of, name_of, nested
from windrow.kubernetes.resources import NODE

NEXT = "v1.35.4+rke2r1"
DRAINED = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}


def check_story(name: str, story: Callable[[], Awaitable[Transcript]]) -> None:
    """The names of Jobs follow from the uids of Machines, and are left out."""

    async def run() -> Transcript:
        return await story()

    lines = [re.sub(r"windrow-update-[0-9a-f]+", "windrow-update", line) for line in run_driven(run()).lines]
    compare(name, [line for place, line in enumerate(lines) if not place or line != lines[place - 1]])


async def set_version(story: Story, version: str) -> None:
    story.transcript.say(f"a user sets kubernetesVersion to {version}")
    await story.sim.management_client.patch(story.ref, {"spec": {"kubernetesVersion": version}})


async def until_version(story: Story, version: str, within: timedelta = timedelta(hours=2)) -> None:
    """Return once the cluster runs that version."""
    end = story.sim.clock.now() + within
    while True:
        raw = await story.stage.get_cluster()
        if nested(raw, "status", "version") == version:
            break
        assert story.sim.clock.now() < end, f"it runs {nested(raw, 'status', 'version')}: {raw['status']}"
        await story.sim.advance(seconds=1)
    await story.stage.wait_for_settled()


async def until_up_to_date(story: Story, within: timedelta = timedelta(hours=2)) -> None:
    """Return once no machine has a turn any more, after one had."""
    end, begun = story.sim.clock.now() + within, False
    while True:
        in_turn = [raw for raw in await machines_of(story.sim, story.ref) if nested(raw, "status", "update")]
        begun = begun or bool(in_turn)
        if (
            begun
            and not in_turn
            and is_true((await story.stage.get_cluster())["status"]["conditions"], "UpToDate")
        ):
            return await story.stage.wait_for_settled()
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=1)


async def kubelets(story: Story) -> set[str]:
    guest = await story.stage.guest_client()
    return {nested(raw, "status", "nodeInfo", "kubeletVersion") for raw in await guest.list(NODE)}


@pytest.mark.long
def test_three_servers_and_three_workers_are_upgraded_in_their_order() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 3)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-3-3", story)


@pytest.mark.long
def test_three_servers_and_three_workers_of_k3s_are_upgraded_in_their_order() -> None:
    async def story() -> Transcript:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 3)
        rke = an_rke_config(*pools, config={"disable": ["traefik", "local-storage"]})
        async with a_story(*pools, kubernetesVersion="v1.34.7+k3s1", rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, "v1.35.4+k3s1")
            await until_version(it, "v1.35.4+k3s1")
            assert await kubelets(it) == {"v1.35.4+k3s1"}
            return it.transcript

    check_story("upgrade-k3s-3-3", story)


def test_a_cluster_of_one_node_is_upgraded_without_a_drain_and_its_api_is_expected_to_be_away() -> None:
    async def story() -> Transcript:
        pool = a_pool("all", 1, ALL)
        config = {"cni": "calico", "cloud-provider-name": "harvester"}
        rke = an_rke_config(pool, config=config, upgradeStrategy=DRAINED)
        async with a_story(pool, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-one-node", story)


@pytest.mark.long
def test_servers_with_an_api_server_are_upgraded_before_those_of_etcd_alone_and_workers_last() -> None:
    async def story() -> Transcript:
        pools = a_pool("etcd", 3, "etcd"), a_pool("api", 2, "control-plane"), a_pool("workers", 1)
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-split-roles", story)


@pytest.mark.long
def test_another_configuration_restarts_each_service_and_drains_nothing() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            it.transcript.say("a user sets kubelet-arg")
            config = {"cni": "calico", "cloud-provider-name": "harvester", "kubelet-arg": ["max-pods=99"]}
            change = {"spec": {"rkeConfig": {"machineGlobalConfig": config}}}
            await it.sim.management_client.patch(it.ref, change)
            await until_up_to_date(it)
            for node in await (await it.stage.guest_client()).list(NODE):
                assert "max-pods=99" in annotations_of(node)["rke2.io/node-args"]
            return it.transcript

    check_story("update-of-configuration", story)


def write_on_machines(story: Story, path: str, content: str) -> None:
    """A file on each machine that runs, as its administrator writes it."""
    sessions: Any = story.sim.harvester.hypervisor._sessions.values()
    for session in sessions:
        session.machine.guest.write(path, content.encode())


def test_a_release_that_cannot_be_installed_stops_all_turns_and_the_next_attempt_goes_on() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            it.transcript.say("an administrator names a folder of releases that does not exist")
            write_on_machines(it, "/etc/windrow/site.env", "INSTALL_RKE2_ARTIFACT_PATH=/srv/rke2\n")
            await set_version(it, NEXT)
            await until(it.stage, "its update to be mended")
            await it.sim.advance(minutes=10)
            assert await kubelets(it) == {"v1.34.7+rke2r1"}
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())
            it.transcript.say("the file is corrected, and a user has it tried again")
            write_on_machines(it, "/etc/windrow/site.env", "")
            (failed,) = [raw for raw in await machines_of(it.sim, it.ref) if nested(raw, "status", "update")]
            ref = MACHINE.ref(name_of(failed), it.ref.namespace)
            await it.sim.management_client.patch(ref, {"metadata": {"annotations": {RETRY_UPDATE: ""}}})
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-failed-and-resumed", story)
