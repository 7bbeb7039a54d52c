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

from windrow.bootstrap.charts import HELM_CHART_CONFIG
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import APPLIED_REVISION, RETRY_UPDATE, UPDATE_IMAGE
from windrow.emulator.guest_os.shell.run import Shell, Streams
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP, DEPLOYMENT, NODE, ApiResource

NEXT = "v1.35.4+rke2r1"
BUDGET = ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
DRAINED = {"controlPlaneDrainOptions": {"enabled": True}, "workerDrainOptions": {"enabled": True}}


# Of each run: the names of Jobs, which follow from the uids of Machines, those of pods, and times of a journal.
_CHANGING = (
    (r"windrow-update-[0-9a-f]+", "windrow-update"),
    (r"shop-[a-z0-9]+-[a-z0-9]+", "shop"),
    (r"harvester-cloud-provider-[a-z0-9]+-[a-z0-9]+", "harvester-cloud-provider"),
    (r"harvester-csi-driver-controllers-[a-z0-9]+-[a-z0-9]+", "harvester-csi-driver-controllers"),
    (r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d ", ""),
)


def check_story(name: str, story: Callable[[], Awaitable[Transcript]]) -> None:
    async def run() -> Transcript:
        return await story()

    lines = run_driven(run()).lines
    for pattern, plain in _CHANGING:
        lines = [re.sub(pattern, plain, line) for line in lines]
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
    """Return once no machine has had a turn for a while, after one had."""
    end, last = story.sim.clock.now() + within, None
    while last is None or story.sim.clock.now() < last + timedelta(seconds=30):
        if any(nested(raw, "status", "update") for raw in await machines_of(story.sim, story.ref)):
            last = story.sim.clock.now()
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=1)
    await story.stage.wait_for_settled()


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


@pytest.mark.long
def test_charts_manifests_labels_and_taints_change_without_any_restart() -> None:
    manifest = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, namespace: default}\ndata: {motto: MOTTO}\n"
    )

    async def story() -> Transcript:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 1, labels={"tier": "silver", "old": "x"})
        values = {"harvester-csi-driver": {"replicas": 2}}
        rke = an_rke_config(
            *pools,
            config={"cni": "calico", "cloud-provider-name": "harvester"},
            additionalManifest=manifest.replace("MOTTO", "slow"),
            chartValues=values,
        )
        async with a_story(*pools, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            before = {name_of(node): booted(node) for node in await it.stage.list_nodes()}
            it.transcript.say("a user changes chartValues, additionalManifest, labels and taints")
            later = a_pool(
                "workers", 1, labels={"tier": "gold"}, taints=[{"key": "db", "effect": "PreferNoSchedule"}]
            )
            change = {
                "chartValues": {"harvester-csi-driver": {"replicas": 5}},
                "additionalManifest": manifest.replace("MOTTO", "fast"),
                "machinePools": [pools[0], later],
            }
            await it.sim.management_client.patch(it.ref, {"spec": {"rkeConfig": change}})
            await until_up_to_date(it)
            await it.sim.advance(seconds=30)
            guest = await it.stage.guest_client()
            config = await guest.get(HELM_CHART_CONFIG.ref("harvester-csi-driver", "kube-system"))
            assert "replicas: 5" in config["spec"]["valuesContent"]
            assert (await guest.get(CONFIG_MAP.ref("site", "default")))["data"] == {"motto": "fast"}
            (worker,) = [node for node in await it.stage.list_nodes() if "-workers-" in name_of(node)]
            assert labels_of(worker)["tier"] == "gold"
            assert "old" not in labels_of(worker)
            assert {"key": "db", "effect": "PreferNoSchedule"} in nested(worker, "spec", "taints")
            assert {name_of(node): booted(node) for node in await it.stage.list_nodes()} == before
            return it.transcript

    check_story("update-without-restart", story)


@pytest.mark.long
def test_labels_that_a_pool_had_do_not_come_back_with_a_restart_and_are_forgotten_with_the_next_job() -> None:
    async def story() -> None:
        servers, workers = (
            a_pool("servers", 1, SERVERS),
            a_pool("workers", 1, labels={"tier": "silver", "old": "x"}),
        )
        async with a_story(servers, workers) as it:
            await it.stage.wait_for_settled()
            pools = {"machinePools": [servers, a_pool("workers", 1, labels={"tier": "gold"})]}
            await it.sim.management_client.patch(it.ref, {"spec": {"rkeConfig": pools}})
            await it.sim.advance(minutes=1)
            (machine,) = await machines_of(it.sim, it.ref, "workers")
            assert nested(machine, "status", "formerLabels") == {"old": "x", "tier": "gold"}
            sessions: Any = it.sim.harvester.hypervisor._sessions.values()
            for session in sessions:
                guest = session.machine.guest
                await Shell(guest, guest.commands).run("systemctl restart rke2-agent", Streams())
            await it.sim.advance(minutes=2)
            (worker,) = [node for node in await it.stage.list_nodes() if "-workers-" in name_of(node)]
            assert labels_of(worker)["tier"] == "gold"
            assert "old" not in labels_of(worker)
            await set_kubelet_args(it, "max-pods=99")
            await until_up_to_date(it)
            (machine,) = await machines_of(it.sim, it.ref, "workers")
            assert nested(machine, "status", "formerLabels") is None
            (worker,) = [node for node in await it.stage.list_nodes() if "-workers-" in name_of(node)]
            assert (labels_of(worker)["tier"], labels_of(worker).get("old")) == ("gold", None)

    run_driven(story())


def booted(node: Raw) -> str:
    """Since when its kubelet says that it is Ready: anew after each start."""
    ready = find_condition(nested(node, "status", "conditions"), "Ready")
    assert ready is not None
    return ready.last_transition_time


@pytest.mark.long
def test_an_image_out_of_reach_and_pods_that_do_not_leave_stop_the_turn_and_nothing_is_changed() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            it.sim.harvester.network.internet.is_reachable = False
            annotations = {"metadata": {"annotations": {UPDATE_IMAGE: "site.example.org/tools:1"}}}
            await it.sim.management_client.patch(it.ref, annotations)
            await set_version(it, NEXT)
            raw = await until(it.stage, "its update to be mended")
            assert "ErrImagePull" in str(nested(raw, "status", "waiting", "for")) or "ImagePull" in str(raw)
            assert await kubelets(it) == {"v1.34.7+rke2r1"}
            it.sim.harvester.network.internet.is_reachable = True
            (failed,) = [raw for raw in await machines_of(it.sim, it.ref) if nested(raw, "status", "update")]
            retried = {"metadata": {"annotations": {RETRY_UPDATE: ""}}}
            await it.sim.management_client.patch(MACHINE.ref(name_of(failed), it.ref.namespace), retried)
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}

    run_driven(story())


@pytest.mark.long
def test_a_version_that_does_not_exist_stops_at_the_first_machine_and_one_that_does_mends_it() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await set_version(it, "v1.35.25+rke2r1")
            await until(it.stage, "its update to be mended")
            assert await kubelets(it) == {"v1.34.7+rke2r1"}
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-to-no-release", story)


def test_a_disk_without_space_stops_the_upgrade_before_anything_is_changed() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            before = {name_of(node): booted(node) for node in await it.stage.list_nodes()}
            sessions: Any = it.sim.harvester.hypervisor._sessions.values()
            for session in sessions:
                session.machine.guest.hardware.root.state["free KiB"] = 1000
            await set_version(it, NEXT)
            raw = await until(it.stage, "its update to be mended")
            rolling = find_condition(nested(raw, "status", "conditions"), "RollingOut")
            assert rolling is not None
            assert "/var/lib/rancher/rke2 has 1000 KiB free" in rolling.message
            assert "nothing was changed" in rolling.message
            assert {name_of(node): booted(node) for node in await it.stage.list_nodes()} == before
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())

    run_driven(story())


@pytest.mark.long
def test_a_node_that_cannot_take_the_release_keeps_its_pods_and_is_not_cordoned() -> None:
    """The disk of the second worker is full: it is asked before anything is done to its Node."""

    async def story() -> Transcript:
        pools = a_pool("servers", 1, SERVERS), a_pool("workers", 2)
        config = {"cni": "calico", "cloud-provider-name": "harvester"}
        rke = an_rke_config(*pools, config=config, upgradeStrategy=DRAINED)
        async with a_story(*pools, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            it.transcript.say("the disks of both workers fill up")
            sessions: Any = it.sim.harvester.hypervisor._sessions.values()
            disks = [
                session.machine.guest.hardware.root.state
                for session in sessions
                if "-workers-" in session.machine.guest.hostname
            ]
            assert len(disks) == 2
            for disk in disks:
                disk["free KiB"] = 1000
            guest = await it.stage.guest_client()
            before = {name_of(raw): raw for raw in await guest.list(NODE) if "-workers-" in name_of(raw)}
            await set_version(it, NEXT)
            await until(it.stage, "its update to be mended")
            for name, node in before.items():
                now = await guest.get(NODE.ref(name))
                assert not nested(now, "spec", "unschedulable")
                assert annotations_of(now)[APPLIED_REVISION] == annotations_of(node)[APPLIED_REVISION]
            it.transcript.say("space is freed, and a user has it tried again")
            for disk in disks:
                disk.pop("free KiB")
            (failed,) = [raw for raw in await machines_of(it.sim, it.ref) if nested(raw, "status", "update")]
            ref = MACHINE.ref(name_of(failed), it.ref.namespace)
            await it.sim.management_client.patch(ref, {"metadata": {"annotations": {RETRY_UPDATE: ""}}})
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-refused-by-preflight", story)


async def until_turn_of(story: Story, pool: str, step: str) -> None:
    """Return once a machine of the pool is at that step of its turn."""
    end = story.sim.clock.now() + timedelta(hours=1)
    while True:
        found = await machines_of(story.sim, story.ref, pool)
        if any(nested(raw, "status", "update", "step") == step for raw in found):
            return
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=0.5)


async def set_kubelet_args(story: Story, *arguments: str) -> None:
    config = {"cni": "calico", "cloud-provider-name": "harvester", "kubelet-arg": list(arguments) or None}
    change = {"spec": {"rkeConfig": {"machineGlobalConfig": config}}}
    await story.sim.management_client.patch(story.ref, change)


@pytest.mark.long
def test_an_edit_in_the_middle_is_what_all_machines_end_with_and_so_is_the_way_back() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            await set_version(it, NEXT)
            await until_turn_of(it, "workers", "Apply")
            await set_version(it, "v1.35.5+rke2r1")
            await until_version(it, "v1.35.5+rke2r1")
            assert await kubelets(it) == {"v1.35.5+rke2r1"}
            await set_kubelet_args(it, "max-pods=99")
            await until_turn_of(it, "workers", "Apply")
            await set_kubelet_args(it)
            await until_up_to_date(it)
            for node in await it.stage.list_nodes():
                assert "max-pods=99" not in annotations_of(node)["rke2.io/node-args"]
            machines = await machines_of(it.sim, it.ref)
            revisions = {annotations_of(node)[APPLIED_REVISION] for node in await it.stage.list_nodes()}
            assert revisions == {raw["spec"]["configHash"] for raw in machines}

    run_driven(story())


@pytest.mark.long
def test_a_pod_that_its_budget_never_lets_go_stops_the_turn_and_its_node_takes_workloads_again() -> None:
    async def story() -> Transcript:
        pools = a_pool("servers", 1, SERVERS), a_pool("workers", 2)
        drained = {"workerDrainOptions": {"enabled": True, "timeout": 120}}
        config = {"cni": "calico", "cloud-provider-name": "harvester"}
        rke = an_rke_config(*pools, config=config, upgradeStrategy=drained)
        async with a_story(*pools, rkeConfig=rke) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            guest = await it.stage.guest_client()
            labels = {"app": "shop"}
            pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "shop:1"}]}}
            spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
            await guest.create(DEPLOYMENT, new_object(DEPLOYMENT, "shop", "default", spec=spec))
            budget = {"minAvailable": 2, "selector": {"matchLabels": labels}}
            await guest.create(BUDGET, new_object(BUDGET, "shop", "default", spec=budget))
            it.transcript.say("two pods run, and their PodDisruptionBudget wants two")
            await it.sim.advance(seconds=60)
            await set_version(it, NEXT)
            await until(it.stage, "its update to be mended")
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())
            it.transcript.say("the budget is deleted, and a user has it tried again")
            await guest.delete(BUDGET.ref("shop", "default"))
            (failed,) = [raw for raw in await machines_of(it.sim, it.ref) if nested(raw, "status", "update")]
            ref = MACHINE.ref(name_of(failed), it.ref.namespace)
            await it.sim.management_client.patch(ref, {"metadata": {"annotations": {RETRY_UPDATE: ""}}})
            await until_version(it, NEXT)
            assert await kubelets(it) == {NEXT}
            return it.transcript

    check_story("upgrade-held-by-a-budget", story)
