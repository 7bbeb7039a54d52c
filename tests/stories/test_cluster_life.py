"""Golden stories of whole clusters: bootstrap, losses, scale, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.stories.cluster_rig import (
    ALL,
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    compare,
    gone,
    machines_of,
    post,
    scale,
    stock,
    until,
)
from tests.support.clock import run_driven
from tests.support.seeds import partly_long
from tests.support.simulation import VIP, Simulation, simulation

from windrow.client.client import Client
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.plan.disruptions import LAST_ETCD_MEMBER
from windrow.core.formats.yaml import load
from windrow.demo.cluster import DemoCluster
from windrow.emulator.guest_cluster.cluster import Heartbeat
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import (
    Raw,
    is_deleting,
    labels_of,
    name_of,
    nested,
    new_object,
    resource_version_of,
    secret_texts,
)
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import CONFIG_MAP, NODE, SECRET, SERVICE_ACCOUNT, ObjectRef


@dataclass
class Story:
    """One story under way: the world, its cluster, and what was told so far."""

    sim: Simulation
    ref: ObjectRef
    stage: DemoCluster
    transcript: Transcript


@asynccontextmanager
async def a_story(
    *pools: Raw, seed: int = 3, kubeconfig: Callable[[Simulation], str] | None = None, **spec: Any
) -> AsyncIterator[Story]:
    """A cluster with these pools, asked for; its manager at work."""
    documents = a_cluster(*pools, **spec)
    async with simulation(seed=seed, with_manager=False) as sim:
        transcript = Transcript(sim.api.local())
        await stock(sim, documents, kubeconfig=kubeconfig(sim) if kubeconfig else "")
        sim.start_manager(transcript)
        ref = await post(sim, documents)
        yield Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript)


def check_story(name: str, story: Callable[[], Awaitable[Transcript]]) -> None:
    async def run() -> Transcript:
        return await story()

    compare(name, run_driven(run()).lines)


async def lose(story: Story, machine: Raw) -> None:
    name = name_of(machine)
    story.transcript.say(f"an administrator deletes the VM of {name}")
    await story.sim.harvester_client.delete(VM.ref(name, "default"), "Foreground")


async def voters(story: Story) -> set[str]:
    nodes = await story.stage.list_nodes()
    return {name_of(node) for node in nodes if is_true(nested(node, "status", "conditions"), "EtcdIsVoter")}


def test_bootstrap_of_three_servers_and_two_workers() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            return it.transcript

    check_story("bootstrap-3-2", story)


def test_a_lost_worker_is_replaced() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            worker = (await machines_of(it.sim, it.ref, "workers"))[0]
            await lose(it, worker)
            machines = await it.stage.wait_for_settled(without=name_of(worker))
            assert len(machines) == 3
            return it.transcript

    check_story("lost-worker", story)


def test_a_worker_that_was_stopped_while_its_packages_were_installed_is_replaced() -> None:
    """cloud-init does not repeat what was interrupted: the Node becomes Ready, and without a guest agent nothing initializes it."""

    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            before = {name_of(raw) for raw in await it.stage.wait_for_settled()}
            await scale(it.sim, it.ref, 1, 2)
            console: list[str] = []
            while not any("by DHCP" in line for line in console):
                await it.sim.advance(seconds=1)
                new = [raw for raw in await machines_of(it.sim, it.ref) if name_of(raw) not in before]
                console = it.sim.harvester.console("default", name_of(new[0])) if new else []
            await it.sim.advance(seconds=5)
            name = name_of(new[0])
            await it.sim.harvester_client.call(put_subresource(VM_ACTIONS.ref(name, "default"), "stop"))

            await until(it.stage, f"the cloud provider to initialize Node {name}")
            await it.stage.wait_for_settled(without=name)

            assert any(
                "Unit file qemu-guest-agent.service does not exist" in line for line in console_of(it, name)
            )

    run_driven(story())


def console_of(it: Story, name: str) -> list[str]:
    return it.sim.harvester.console("default", name)


def test_a_lost_etcd_member_of_three_is_replaced_and_the_members_equal_the_servers() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, ALL)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            first = (await machines_of(it.sim, it.ref))[0]
            await lose(it, first)
            machines = await it.stage.wait_for_settled(without=name_of(first))
            assert await voters(it) == {name_of(raw) for raw in machines}
            return it.transcript

    check_story("lost-etcd-member", story)


@pytest.mark.parametrize("seconds", partly_long((0.0, 0.5, 1.0, 5.0, 20.0), (1.0,)))
def test_servers_that_are_scaled_down_right_after_a_loss_keep_a_member_that_lives(seconds: float) -> None:
    """The Node of a lost VM is still Ready then: counted as healthy, it was kept, and the two that lived were deleted."""

    async def story() -> None:
        async with a_story(a_pool("servers", 3, ALL), seed=5) as it:
            await it.stage.wait_for_settled()
            lost = (await machines_of(it.sim, it.ref))[-1]
            await lose(it, lost)
            await it.sim.advance(seconds=seconds)
            await scale(it.sim, it.ref, 0, 1)
            (machine,) = await it.stage.wait_for_settled(without=name_of(lost))
            assert await voters(it) == {name_of(machine)}

    run_driven(story())


@pytest.mark.parametrize("by_hand", partly_long((False, True), (False,)))
def test_no_member_is_given_up_while_the_watch_of_harvester_hides_the_loss_of_another(by_hand: bool) -> None:
    """What was counted as healthy is read again: else two members were left, one of them lost, and no quorum."""

    async def story() -> None:
        async with a_story(a_pool("servers", 3, ALL), seed=5) as it:
            await it.stage.wait_for_settled()
            first, *_, lost = await machines_of(it.sim, it.ref)
            assert it.sim.harvester.faults.stall_watches()
            await lose(it, lost)
            if by_hand:
                await it.sim.management_client.delete(MACHINE.ref(name_of(first), it.ref.namespace))
            else:
                await scale(it.sim, it.ref, 0, 1)
            await it.sim.advance(seconds=20)
            assert not [line for line in it.transcript.lines if line.startswith("RemoveEtcdMember")]
            assert len(await voters(it)) == 3
            conditions = (await it.stage.get_cluster())["status"]["conditions"]
            behind = find_condition(conditions, "WatchesCurrent")
            assert behind is not None
            assert (behind.status, behind.reason) == ("False", "WatchBehind")
            assert "is missing on Harvester, and its watch does not show that" in behind.message
            if by_hand:
                machines = await it.stage.wait_for_settled(without=name_of(first))
                assert await voters(it) == {name_of(raw) for raw in machines}
                assert len(machines) == 3
                assert name_of(lost) not in await voters(it)
                return
            assert not [raw for raw in await machines_of(it.sim, it.ref) if is_deleting(raw)]
            (machine,) = await it.stage.wait_for_settled(without=name_of(lost))
            assert await voters(it) == {name_of(machine)}

    run_driven(story())


@pytest.mark.parametrize("seconds", partly_long((0.0, 1.0, 5.0), (0.0,)))
def test_a_server_that_is_deleted_by_hand_stays_until_one_that_is_lost_is_replaced(seconds: float) -> None:
    """Each waited for the other: the lost one was not replaced while the deleted one was leaving, and that one stayed for
    the quorum."""

    async def story() -> None:
        async with a_story(a_pool("servers", 3, ALL), seed=5) as it:
            await it.stage.wait_for_settled()
            first, *_, lost = await machines_of(it.sim, it.ref)
            it.transcript.lines.clear()
            await lose(it, lost)
            await it.sim.advance(seconds=seconds)
            await it.sim.management_client.delete(MACHINE.ref(name_of(first), it.ref.namespace))
            await it.sim.advance(minutes=2)  # the loss shows in its Node
            assert name_of(first) in await voters(it)
            machines = await it.stage.wait_for_settled(without=name_of(first))

            assert len(machines) == 3
            assert await voters(it) == {name_of(raw) for raw in machines}
            done = [line.split()[0] for line in it.transcript.lines]
            order = [word for word in done if word in ("RemoveEtcdMember", "CreateMachine")]
            assert order == ["RemoveEtcdMember", "CreateMachine"] * 2

    run_driven(story())


def test_a_stopped_last_member_is_started_and_its_replacement_is_skipped_aloud() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("pool1", 1, ALL)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            machine = (await machines_of(it.sim, it.ref))[0]
            it.transcript.say(f"an administrator stops the VM of {name_of(machine)}")
            await it.sim.harvester_client.call(
                put_subresource(VM_ACTIONS.ref(name_of(machine), "default"), "stop")
            )
            await until(it.stage, LAST_ETCD_MEMBER)
            await it.stage.wait_for_settled()
            return it.transcript

    check_story("stopped-last-member", story)


def test_sixty_percent_not_ready_hold_the_breaker_until_they_are_back() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 5)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref)}
            muted = {name_of(raw) for raw in (await machines_of(it.sim, it.ref, "workers"))[:3]}
            it.transcript.say("the kubelets of three of five workers fall silent")
            await set_heartbeats(it.sim, muted, beating=False)
            await until(it.stage, "3 of 5 machines of pool workers are unhealthy")
            await it.sim.advance(minutes=30)
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref)} == before
            it.transcript.say("they speak again")
            await set_heartbeats(it.sim, muted, beating=True)
            await it.stage.wait_for_settled()
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref)} == before
            return it.transcript

    check_story("breaker", story)


async def set_heartbeats(sim: Simulation, names: set[str], *, beating: bool) -> None:
    """Whether the kubelets of these nodes are heard by their API; their machines run on."""
    machine: Any = next(iter(sim.harvester.hypervisor._sessions.values())).machine
    cluster = next(iter(machine.clusters.values()))
    for name in sorted(names):
        cluster.heartbeats[name] = Heartbeat(beating, sim.clock.monotonic())
        if beating:
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }
            change = {"status": {"conditions": [ready]}}
            await Client(cluster.client("system:admin", ("system:masters",))).strategic_patch(
                NODE.ref(name), change, "status"
            )
    cluster.changed.notify()


def test_a_revoked_credential_replaces_nothing_because_unknown_is_not_gone() -> None:
    async def story() -> Transcript:
        token = ""

        def kubeconfig(sim: Simulation) -> str:
            nonlocal token
            token = sim.harvester.new_token()
            return sim.harvester.token_kubeconfig(token, VIP)

        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2), kubeconfig=kubeconfig) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            before = {name_of(raw) for raw in await machines_of(it.sim, it.ref)}
            it.transcript.say("the credential is revoked on Harvester, and a worker dies")
            it.sim.harvester.credentials.revoke(token)
            worker = (await machines_of(it.sim, it.ref, "workers"))[0]
            await lose(it, worker)
            await it.sim.advance(minutes=30)
            assert {name_of(raw) for raw in await machines_of(it.sim, it.ref)} == before
            it.transcript.say("a new credential is put into the Secret")
            text = it.sim.harvester.token_kubeconfig(it.sim.harvester.new_token(), VIP)
            await it.sim.management_client.patch(
                SECRET.ref("cc-harvester", "cattle-global-data"),
                {"stringData": {"harvestercredentialConfig-kubeconfigContent": text}},
            )
            await it.stage.wait_for_settled(without=name_of(worker))
            return it.transcript

    check_story("revoked-credential", story)


def test_servers_and_workers_scale_down_one_member_after_the_other() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 2, drainBeforeDelete=True)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            it.transcript.say("servers 3 -> 1, workers 2 -> 1")
            await scale(it.sim, it.ref, 0, 1)
            await scale(it.sim, it.ref, 1, 1)
            machines = await it.stage.wait_for_settled()
            servers = {name_of(raw) for raw in machines if raw["spec"]["pool"] == "servers"}
            assert await voters(it) == servers
            assert len(await it.sim.harvester_client.list(VM)) == 2
            return it.transcript

    check_story("scale-down", story)


def test_a_deletion_with_a_hanging_vm_removes_the_rest_and_ends_when_it_can() -> None:
    async def story() -> Transcript:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            hanging = (await machines_of(it.sim, it.ref, "workers"))[0]
            vm = VM.ref(name_of(hanging), "default")
            finalizers = nested(await it.sim.harvester_client.get(vm), "metadata", "finalizers", default=[])
            await it.sim.harvester_client.patch(
                vm, {"metadata": {"finalizers": [*finalizers, "example.com/hold"]}}
            )
            it.transcript.say(f"the cluster is deleted; {name_of(hanging)} hangs")
            await it.sim.management_client.delete(it.ref)
            await it.sim.advance(minutes=10)
            left = await machines_of(it.sim, it.ref)
            assert [name_of(raw) for raw in left] == [name_of(hanging)]
            assert name_of(hanging) in nested(left[0], "status", "waiting", "for")
            it.transcript.say("it may go")
            held = nested(await it.sim.harvester_client.get(vm), "metadata", "finalizers")
            kept = [name for name in held if name != "example.com/hold"]
            await it.sim.harvester_client.patch(vm, {"metadata": {"finalizers": kept}})
            await gone(it.sim, it.ref)
            return it.transcript

    check_story("deletion-with-a-hanging-vm", story)


def test_a_deleted_cluster_leaves_nothing_behind() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=4) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api), await secrets(sim)
            ref = await post(sim, documents)
            await sim.cluster(ref.name).wait_for_settled()
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            assert (await inventory(sim.harvester.api), await secrets(sim)) == before
            assert await sim.management_client.list(MACHINE) == []

    run_driven(story())


async def secrets(sim: Simulation) -> set[str]:
    return {name_of(raw) for raw in await sim.management_client.list(SECRET)}


def test_two_clusters_of_one_name_with_one_vm_namespace_do_not_share_an_account() -> None:
    """The second is refused before anything is made for it, and deleting it takes nothing from the first."""

    async def story() -> Transcript:
        pools = a_pool("servers", 1, ALL)
        async with a_story(pools) as it:
            await it.stage.wait_for_settled()
            it.transcript.lines.clear()
            it.transcript.say("a second orchard, in another namespace, with the same VM namespace")
            second = await post(it.sim, a_cluster(pools, namespace="cattle-global-data"))
            stage = it.sim.cluster(second.name, second.namespace)
            await until(stage, "is not this cluster's")
            assert await machines_of(it.sim, second) == []
            it.transcript.say("the second is deleted")
            await it.sim.management_client.delete(second)
            await gone(it.sim, second)
            account = await it.sim.harvester_client.get(SERVICE_ACCOUNT.ref("orchard", "default"))
            assert (
                account["metadata"]["annotations"]["windrow.io/cluster-uid"]
                == (await it.stage.get_cluster())["metadata"]["uid"]
            )
            await it.stage.wait_for_settled()
            return it.transcript

    check_story("two-of-one-name", story)


def test_two_clusters_of_one_name_with_two_vm_namespaces_live_side_by_side() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        others = a_cluster(a_pool("servers", 1, ALL), namespace="cattle-global-data", vm_namespace="tenant-b")
        async with simulation(seed=5) as sim:
            await stock(sim, [*documents, *others])
            first, second = await post(sim, documents), await post(sim, others)
            await sim.cluster(first.name, first.namespace).wait_for_settled()
            await sim.cluster(second.name, second.namespace).wait_for_settled()
            await sim.management_client.delete(second)
            await gone(sim, second)
            await sim.cluster(first.name, first.namespace).wait_for_settled()
            assert [name_of(raw) for raw in await sim.harvester_client.list(VM)] == [
                name_of(raw) for raw in await machines_of(sim, first)
            ]

    run_driven(story())


def test_a_worker_that_is_deleted_by_hand_is_replaced() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            worker = (await machines_of(it.sim, it.ref, "workers"))[0]
            await it.sim.management_client.delete(MACHINE.ref(name_of(worker), it.ref.namespace))
            machines = await it.stage.wait_for_settled(without=name_of(worker))
            assert len(machines) == 2

    run_driven(story())


def test_a_worker_that_a_user_has_labelled_goes_when_its_pool_becomes_smaller() -> None:
    """Its deletion carries the resourceVersion as observed, which is that after the label too."""

    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            (worker,) = await machines_of(it.sim, it.ref, "workers")
            ref = MACHINE.ref(name_of(worker), it.ref.namespace)
            await it.sim.management_client.patch(ref, {"metadata": {"labels": {"team": "a"}}})
            await it.sim.advance(seconds=5)

            await scale(it.sim, it.ref, 1, 0)
            await gone(it.sim, ref)

    run_driven(story())


def test_a_cluster_that_is_deleted_with_cascade_orphan_goes_with_its_machines() -> None:
    """The garbage collector removes the owner references of its Machines; what is on Harvester is no dependent of it."""

    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL)) as it:
            await it.stage.wait_for_settled()

            await it.sim.management_client.delete(it.ref, "Orphan")
            await gone(it.sim, it.ref)

            assert await it.sim.harvester_client.list(VM) == []

    run_driven(story())


def test_machine_vm_and_node_have_one_name_within_the_limit_of_the_pool() -> None:
    async def story() -> None:
        pools = (
            a_pool("servers", 1, ALL, hostnameLengthLimit=15),
            a_pool("workers", 2, hostnameLengthLimit=20),
        )
        async with a_story(*pools) as it:
            await it.stage.wait_for_settled()
            machines = sorted(name_of(raw) for raw in await machines_of(it.sim, it.ref))
            vms = sorted(name_of(raw) for raw in await it.sim.harvester_client.list(VM, "default"))
            nodes = sorted(name_of(raw) for raw in await it.stage.list_nodes())
            assert machines == vms == nodes
            assert sorted(map(len, machines)) == [15, 20, 20]

    run_driven(story())


@pytest.mark.parametrize(
    ("version", "services"),
    [("v1.34.7+rke2r1", ("rke2-server", "rke2-agent")), ("v1.34.7+k3s1", ("k3s", "k3s-agent"))],
)
def test_what_a_manifest_gives_its_machines_is_on_them(version: str, services: Sequence[str]) -> None:
    """Variables, files of a Secret and a ConfigMap for some machines, a template of pod security, a name of the endpoint,
    registries, another data directory, taints of a pool and a credential of its own."""
    home = f"/etc/rancher/{services[0].partition('-')[0]}"
    allowed = {AUTHORIZED_CLUSTERS: "other, orchard"}
    secret = new_object(SECRET, "site", "fleet-default", annotations=allowed, stringData={"ca": "PEM\n"})
    config_map = new_object(
        CONFIG_MAP, "motd", "fleet-default", annotations=allowed, data={"text": "hello\n"}
    )
    auth = {"username": "me", "password": "hunter2"}
    registry = new_object(SECRET, "reg", "fleet-default", type="kubernetes.io/basic-auth", stringData=auth)
    proxy = {"HTTPS_PROXY": 'http://me:p"ss@proxy.example:3128', "NO_PROXY": "192.168.50.0/24"}
    workers_only = {"matchLabels": {"rke.cattle.io/worker-role": "true"}}

    async def story() -> None:
        spec = {
            "agentEnvVars": [{"name": name, "value": value} for name, value in proxy.items()],
            "defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-restricted",
            "localClusterAuthEndpoint": {"enabled": True, "fqdn": "orchard.example:8443"},
            "kubernetesVersion": version,
        }
        taints = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
        own = {"cloudCredentialSecretName": "fleet-default:cc-workers", "taints": taints}
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1, **own), **spec)
        documents[-1]["spec"]["rkeConfig"] |= {
            "dataDirectories": {"k8sDistro": "/data/k8s"},
            "registries": {
                "mirrors": {
                    "docker.io": {"endpoint": ["https://reg.example"], "rewrite": {"^(.*)$": "hub/$1"}}
                },
                "configs": {"reg.example": {"authConfigSecretName": "reg"}},
            },
        }
        documents[-1]["spec"]["rkeConfig"]["machineSelectorFiles"] = [
            {"fileSources": [_from("secret", "site", "ca", "/etc/ssl/site/ca.pem", permissions="644")]},
            {
                "machineLabelSelector": workers_only,
                "fileSources": [_from("configMap", "motd", "text", "/etc/motd")],
            },
        ]
        async with simulation(seed=3, with_manager=False) as sim:
            await stock(sim, documents)
            await sim.management_client.create(SECRET, secret)
            await sim.management_client.create(SECRET, registry)
            await sim.management_client.create(CONFIG_MAP, config_map)
            sim.start_manager(Transcript(sim.api.local()))
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            server, worker = (disk_of(sim, pool) for pool in ("servers", "workers"))
            for disk, service in zip((server, worker), services, strict=True):
                for path in ("/etc/windrow/agent.env", f"/etc/default/{service}"):
                    assert b'NO_PROXY="192.168.50.0/24"\n' in disk[path].content
                    assert b'HTTPS_PROXY="http://me:p\\"ss@proxy' in disk[path].content
                    assert disk[path].mode == 0o600
                assert (disk["/etc/ssl/site/ca.pem"].content, disk["/etc/ssl/site/ca.pem"].mode) == (
                    b"PEM\n",
                    0o644,
                )
            assert worker["/etc/motd"].content == b"hello\n"
            assert "/etc/motd" not in server
            assert b"enforce: restricted" in server[f"{home}/config/rancher-psact.yaml"].content
            assert b"orchard.example" in server[f"{home}/config.yaml.d/50-rancher.yaml"].content
            for disk in (server, worker):
                registries = load(disk[f"{home}/registries.yaml"].content.decode())
                assert registries["configs"]["reg.example"]["auth"] == auth
                assert registries["mirrors"]["docker.io"]["rewrite"] == {"^(.*)$": "hub/$1"}
                assert "/data/k8s/etc/config-files/cloud-provider-config" in disk
                assert not [path for path in disk if path.startswith("/var/lib/rancher")]
            (machine,) = await machines_of(sim, ref, "workers")
            assert machine["spec"]["credential"] == "fleet-default:cc-workers"
            nodes = {name_of(node): node for node in await stage.list_nodes()}
            assert taints[0].items() <= nodes[name_of(machine)]["spec"]["taints"][0].items()
            kubeconfig = SECRET.ref("orchard-kubeconfig", "fleet-default")

            async def servers() -> dict[str, str]:
                published = await sim.management_client.get(kubeconfig)
                clusters = load(secret_texts(published)["value"])["clusters"]
                return {one["name"]: one["cluster"]["server"] for one in clusters}

            assert (await servers())["orchard-fqdn"] == "https://orchard.example:8443"
            await sim.management_client.patch(ref, {"spec": {"localClusterAuthEndpoint": None}})
            await sim.advance(minutes=1)
            assert list(await servers()) == ["orchard"]
            settled = resource_version_of(await sim.management_client.get(kubeconfig))
            await sim.advance(minutes=5)
            assert resource_version_of(await sim.management_client.get(kubeconfig)) == settled

    run_driven(story())


def _from(kind: str, name: str, key: str, path: str, **rest: str) -> Raw:
    return {kind: {"name": name, "items": [{"key": key, "path": path, **rest}]}}


def disk_of(sim: Simulation, pool: str) -> Any:
    """The files on the disk of the only machine of the pool."""
    sessions: Any = sim.harvester.hypervisor._sessions.values()
    (machine,) = (one.machine for one in sessions if f"-{pool}-" in one.machine.hardware.name)
    return machine.hardware.root.files


def test_every_label_of_a_pool_reaches_its_node_also_those_that_kubelet_may_not_set() -> None:
    wanted = {"node-role.kubernetes.io/db": "", "example.kubernetes.io/tier": "gold", "team": "blue"}

    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL, labels=wanted)) as it:
            await it.stage.wait_for_settled()
            (node,) = await it.stage.list_nodes()
            assert wanted.items() <= labels_of(node).items()

    run_driven(story())
