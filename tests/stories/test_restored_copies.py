"""A snapshot of one Cluster, restored to a new one: both go on side by side, and the original loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.stories.cluster_rig import (
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    gone,
    machines_of,
    post,
    scale,
    stock,
    until,
)
from tests.stories.test_cluster_life import Story, check_story
from tests.stories.test_etcd_restores import events, with_bucket
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of
from tests.stories.test_token_rotation import phase as rotated
from tests.support.clock import run_driven

from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.plan.operations.new_cluster import TAINT_KEY
from windrow.demo.service_scenarios import (
    SERVICE_REF,
    address_of,
    create_service,
    find_service,
    wait_for_reply,
)
from windrow.demo.volume_scenarios import CLAIM, create_volume, find_store
from windrow.emulator.storage.object_store import ObjectStore
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, VM
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, new_object, secret_texts, uid_of
from windrow.kubernetes.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PVC,
    SECRET,
    SERVICE,
    VOLUME_ATTACHMENT,
)

SECRET_REF = SECRET.ref("orchard-windrow-secrets", "fleet-default")


@dataclass
class Copies:
    """The original at rest with a Service and a volume in use, and a file in S3 of that time."""

    it: Story
    store: ObjectStore
    file: str

    def documents(self, name: str = "copy", version: str = "v1.34.7+rke2r1", **source: Any) -> list[Raw]:
        s3 = {
            "bucket": "backups",
            "folder": "orchard",
            "endpoint": "10.0.0.200:9000",
            "endpointCA": self.store.ca,
            "cloudCredentialName": "fleet-default:cc-s3",
        }
        pools = a_pool("first", 1, SERVERS), a_pool("rest", 2)
        documents = a_cluster(*pools, name=name, kubernetesVersion=version)
        documents[-1]["spec"]["rkeConfig"]["etcdSnapshotRestore"] = {
            "name": self.file,
            "generation": 1,
            "from": {"clusterName": "orchard", "s3": s3, **source},
        }
        return documents

    async def allow(self, name: str = "copy") -> None:
        change = {"metadata": {"annotations": {AUTHORIZED_CLUSTERS: name}}}
        await self.it.sim.management_client.patch(SECRET_REF, change)

    async def begin(self, documents: list[Raw] | None = None) -> Story:
        documents = documents or self.documents()
        await self.allow(name_of(documents[-1]))
        await stock(self.it.sim, documents)
        ref = await post(self.it.sim, documents)
        return Story(self.it.sim, ref, self.it.sim.cluster(ref.name, ref.namespace), self.it.transcript)

    async def observe(self) -> dict[str, Any]:
        """What the original has on Harvester and in S3, as it must stay."""
        host, found = self.it.sim.harvester_client, dict[str, Any]()
        for raw in await host.list(LOAD_BALANCER, "default"):
            if labels_of(raw).get("cloudprovider.harvesterhci.io/cluster") == "orchard":
                found[f"LoadBalancer {name_of(raw)}"] = (
                    uid_of(raw),
                    raw["spec"],
                    nested(raw, "status", "address"),
                )
        for raw in await host.list(VM, "default"):
            if name_of(raw).startswith("orchard-"):
                volumes = nested(raw, "spec", "template", "spec", "volumes")
                found[f"VM {name_of(raw)}"] = uid_of(raw), volumes, nested(raw, "status", "printableStatus")
        disks = {name_of(raw) for raw in await host.list(PVC, "default") if name_of(raw).startswith("pvc-")}
        guest = await self.it.stage.guest_client()
        for raw in await guest.list(PERSISTENT_VOLUME):
            found[f"PersistentVolume {name_of(raw)}"] = raw["spec"], name_of(raw) in disks
        for raw in await guest.list(VOLUME_ATTACHMENT):
            volume = nested(raw, "spec", "source", "persistentVolumeName")
            found[f"VolumeAttachment of {volume}"] = nested(raw, "status", "attached")
        for raw in await guest.list(NODE):
            found[f"Node {name_of(raw)}"] = uid_of(raw)
        for raw in await guest.list(SERVICE):
            found[f"Service {name_of(raw)}"] = uid_of(raw), nested(raw, "status", "loadBalancer", "ingress")
        for raw in await host.list(IP_POOL):
            taken = nested(raw, "status", "allocated", default={})
            found[f"IPPool {name_of(raw)}"] = {key: who for key, who in taken.items() if "orchard" in who}
        kept = [key for key in self.store.buckets["backups"] if key.startswith("orchard/")]
        found["S3"] = sorted(kept)
        return found

    async def check(self, before: dict[str, Any]) -> None:
        now = await self.observe()
        assert {key: now.get(key) for key in before if key != "S3"} == {
            key: one for key, one in before.items() if key != "S3"
        }
        assert set(before["S3"]) <= set(now["S3"])
        service = await find_service(self.it.stage)
        assert service is not None
        await wait_for_reply(self.it.stage, address_of(service))
        assert await find_store(self.it.stage) is not None


@asynccontextmanager
async def with_original() -> AsyncIterator[Copies]:
    async with with_bucket(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as (it, store):
        await create_service(it.stage)
        await create_volume(it.stage)
        for raw in await it.sim.harvester_client.list(IP_POOL):
            scope = [{"project": "*", "namespace": "*", "guestCluster": "*"}]
            change = {"spec": {"selector": {"scope": scope}}}
            await it.sim.harvester_client.patch(IP_POOL.ref(name_of(raw)), change)
        await ask(it, etcdSnapshotCreate={"generation": 2})
        await phase(it, "Create", "Finished", 2)
        await it.sim.advance(seconds=30)
        files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
        newest = max(files, key=lambda raw: str(nested(raw, "snapshotFile", "createdAt")))
        it.transcript.restart()
        yield Copies(it, store, str(nested(newest, "snapshotFile", "name")))


async def finished(copy: Story) -> None:
    await phase(copy, "Restore", "Finished")
    await copy.stage.wait_for_settled()


@pytest.mark.long
def test_a_copy_takes_nothing_from_its_original_whatever_becomes_of_it() -> None:
    async def story() -> None:
        async with with_original() as it:
            before = await it.observe()
            copy = await it.begin()
            await finished(copy)
            await it.check(before)
            await copy.sim.advance(minutes=20)  # longer than controllers wait for Nodes that are gone
            await it.check(before)

            guest = await copy.stage.guest_client()
            service = await find_service(copy.stage)
            own = await find_service(it.it.stage)
            assert service is not None
            assert own is not None
            assert address_of(service) not in ("", address_of(own))
            assert {
                nested(raw, "spec", "persistentVolumeReclaimPolicy")
                for raw in await guest.list(PERSISTENT_VOLUME)
            } == {"Retain"}

            # The volume is in use nowhere when its claim is deleted in the copy.
            store = DEPLOYMENT.ref("store", "default")
            original = await it.it.stage.guest_client()
            await original.patch(store, {"spec": {"replicas": 0}})
            await copy.sim.advance(minutes=2)
            for ref in (SERVICE_REF, store, CLAIM):
                await guest.delete(ref)
            await scale(copy.sim, copy.ref, 1, 1)
            await copy.sim.advance(minutes=10)
            await original.patch(store, {"spec": {"replicas": 1}})
            await copy.sim.advance(minutes=2)
            await it.check(before)
            host = copy.sim.harvester_client
            assert [raw for raw in await host.list(LOAD_BALANCER, "default") if "copy-" in name_of(raw)]

            await copy.sim.management_client.delete(copy.ref)
            await gone(copy.sim, copy.ref)
            await copy.sim.advance(minutes=10)
            await it.check(before)
            left = [raw for kind in (LOAD_BALANCER, VM) for raw in await host.list(kind, "default")]
            assert [name_of(raw) for raw in left if name_of(raw).startswith("copy-")] == []

    run_driven(story())


def test_a_new_cluster_begins_with_a_snapshot_of_another() -> None:
    async def story() -> Transcript:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            it.transcript.restart()
            it.transcript.say("a user creates a Cluster with etcdSnapshotRestore.from")
            copy = await copies.begin()
            await finished(copy)
            guest = await copy.stage.guest_client()
            assert {"kept"} <= {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}
            return events(copy)

    check_story("restore-to-a-new-cluster", story)


FAULTS = {
    "consent": "does not allow its use by Cluster",
    "token": "was made with a server token",
    "keys": "has not all that the Secret <cluster>-windrow-secrets of a Cluster has",
    "release": "cannot read it",
    "distribution": "cannot read it",
    "folder": "each of the two would prune those of the other",
    "configuration": "has etcd-s3-folder, by which the copy would have S3",
    "bucket": "names no bucket",
    "tolerations": "tolerate taint windrow.io/restored-copy",
    "charts": "chartValues give the cloud provider the name orchard",
    "secret": "Secret fleet-default/orchard-windrow-secrets does not exist",
}


def test_a_new_cluster_that_is_not_fit_for_the_snapshot_makes_nothing_and_begins_once_it_is() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            await stock(it.sim, documents := copies.documents())
            for raw in documents[:-1]:
                await it.sim.management_client.create(HARVESTER_CONFIG, raw)
            kept = (await it.sim.management_client.get(SECRET_REF))["data"]
            asked = [await unfit(copies, fault, kept) for fault in FAULTS]
            await it.sim.advance(minutes=5)
            for copy in asked:
                assert await machines_of(it.sim, copy.ref) == []
                assert "a higher" in str(nested(await copy.stage.get_cluster(), "status", "waiting", "for"))

            data = {"apiVersion": "v1", **new_object(SECRET, SECRET_REF.name, "fleet-default", data=kept)}
            await it.sim.management_client.create(SECRET, data)
            copy = asked[0]
            await copies.allow(copy.ref.name)
            request = nested(await copy.stage.get_cluster(), "spec", "rkeConfig", "etcdSnapshotRestore")
            await ask(copy, etcdSnapshotRestore={**request, "generation": 2})
            await phase(copy, "Restore", "Finished", 2)

    run_driven(story())


async def unfit(copies: Copies, fault: str, kept: dict[str, str]) -> Story:
    """A Cluster that asks for the snapshot, has this fault, and says so. What it needed is as before then, but for the Secret that
    is deleted."""
    sim, api = copies.it.sim, copies.it.sim.management_client
    cluster = copies.documents(f"copy-{fault}")[-1]
    rke = cluster["spec"]["rkeConfig"]
    source = rke["etcdSnapshotRestore"]["from"]
    tolerations: Raw = {"harvester-cloud-provider": {"tolerations": [{"operator": "Exists"}]}}
    match fault:
        case "secret":
            await api.delete(SECRET_REF)
        case "token":
            await api.patch(SECRET_REF, {"data": {"server-password": "b3RoZXI="}})
        case "keys":
            await api.patch(SECRET_REF, {"data": {"etcd-peer-ca.key": None}})
        case "release":
            cluster["spec"]["kubernetesVersion"] = "v1.33.4+rke2r1"
        case "distribution":
            cluster["spec"]["kubernetesVersion"] = "v1.34.7+k3s1"
        case "folder":
            rke["etcd"] = {"s3": dict(source["s3"])}
        case "configuration":
            rke["machineGlobalConfig"] = {"etcd-s3-folder": "orchard"}
        case "bucket":
            del source["s3"]["bucket"]
        case "tolerations":
            await api.patch(copies.it.ref, {"spec": {"rkeConfig": {"chartValues": tolerations}}})
        case "charts":
            values = {"global": {"cattle": {"clusterName": "orchard"}}}
            rke["chartValues"] = {"harvester-cloud-provider": values}
    if fault not in ("consent", "secret"):
        await copies.allow(name_of(cluster))
    ref = await post(sim, [cluster])
    copy = Story(sim, ref, sim.cluster(ref.name, ref.namespace), copies.it.transcript)
    status = await phase(copy, "Restore", "Failed")
    assert FAULTS[fault] in str(status["etcdSnapshotRestoreRun"]["message"]), fault
    if fault in ("token", "keys"):
        await api.patch(SECRET_REF, {"data": kept})
    elif fault == "tolerations":
        await api.patch(copies.it.ref, {"spec": {"rkeConfig": {"chartValues": None}}})
    return copy


@pytest.mark.long
def test_a_copy_of_k3s_is_separated_like_one_of_rke2() -> None:
    async def story() -> None:
        version = "v1.34.7+k3s1"
        async with with_bucket(a_pool("servers", 1, SERVERS), kubernetesVersion=version) as (it, store):
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            copy = await copies.begin(copies.documents(version=version))
            await finished(copy)
            guest = await copy.stage.guest_client()
            nodes = await guest.list(NODE)
            assert {name_of(raw) for raw in nodes} == set(map(name_of, await machines_of(it.sim, copy.ref)))
            taints = [one["key"] for raw in nodes for one in nested(raw, "spec", "taints", default=())]
            assert TAINT_KEY not in taints

    run_driven(story())


@pytest.mark.long
def test_a_snapshot_of_before_a_rotation_begins_a_cluster_with_the_token_of_then() -> None:
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            api = it.sim.management_client
            then = secret_texts(await api.get(SECRET_REF))["server-password"]
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            await ask(it, rotateToken={"generation": 1})
            await rotated(it, "Done")
            now = secret_texts(await api.get(SECRET_REF))["server-password"]
            copy = await copies.begin()
            await finished(copy)
            held = secret_texts(await api.get(SECRET.ref("copy-windrow-secrets", "fleet-default")))
            assert held["server-password"] == then
            assert held["server-passwords-former"].split() == [now]

    run_driven(story())


def test_one_that_has_the_name_of_the_original_in_another_namespace_makes_nothing() -> None:
    """What both would have on Harvester is known by that name."""

    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            api = it.sim.management_client
            await api.create(NAMESPACE, new_object(NAMESPACE, "elsewhere"))
            documents = Copies(it, store, "one").documents("orchard")
            for raw in documents:
                raw["metadata"]["namespace"] = "elsewhere"
            every = {"metadata": {"annotations": {"windrow.io/allowed-namespaces": "*"}}}
            await api.patch(SECRET.ref("cc-harvester", "cattle-global-data"), every)
            await stock(it.sim, documents)
            ref = await post(it.sim, documents)
            stage = it.sim.cluster(ref.name, ref.namespace)
            await until(stage, "ServiceAccount default/orchard on Harvester is not this cluster's")
            await it.sim.advance(minutes=5)
            assert await machines_of(it.sim, ref) == []

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize("fault", ["token", "cut off", "gone"])
def test_after_the_loss_of_the_original_and_of_its_objects_a_new_cluster_goes_on_with_what_was_kept(
    fault: str,
) -> None:
    """No ETCDSnapshot is left, so that a wrong token, or a damaged file, shows on the first server; then another takes its place."""

    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            api, bucket = it.sim.management_client, store.buckets["backups"]
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            kept = (await api.get(SECRET_REF))["data"]
            await api.delete(it.ref)
            await gone(it.sim, it.ref)
            assert await api.find(SECRET_REF) is None
            assert await snapshots_of(it) == []

            data = {**kept, "server-password": "b3RoZXI="} if fault == "token" else kept
            await api.create(SECRET, new_object(SECRET, SECRET_REF.name, "fleet-default", data=data))
            content = dict(bucket)
            for key, one in content.items():
                if fault == "cut off":
                    bucket[key] = replace(one, content=one.content[:-512])
                elif fault == "gone":
                    del bucket[key]
            copy = await copies.begin()
            await phase(copy, "Restore", "Restore")
            await it.sim.advance(minutes=5)
            (first,) = await machines_of(it.sim, copy.ref)
            status = (await copy.stage.get_cluster())["status"]
            assert (status["etcdSnapshotRestorePhase"], status.get("ready")) == ("Restore", False)

            bucket.update(content)
            await api.patch(SECRET_REF, {"data": kept})
            request = nested(await copy.stage.get_cluster(), "spec", "rkeConfig", "etcdSnapshotRestore")
            await ask(copy, etcdSnapshotRestore={**request, "generation": 2})
            await phase(copy, "Restore", "Finished", 2)
            await copy.stage.wait_for_settled()
            assert name_of(first) not in map(name_of, await machines_of(it.sim, copy.ref))
            guest = await copy.stage.guest_client()
            assert "kept" in map(name_of, await guest.list(CONFIG_MAP, "default"))

    run_driven(story())


@pytest.mark.long
def test_a_copy_is_not_restored_to_what_it_began_with_and_may_have_snapshots_in_a_folder_of_its_own() -> None:
    """The file that it began with is on the disk of its first server; restored there, the guest would be the original again."""

    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            documents = copies.documents()
            rke = documents[-1]["spec"]["rkeConfig"]
            rke["etcd"] = {"s3": {**rke["etcdSnapshotRestore"]["from"]["s3"], "folder": "copy"}}
            copy = await copies.begin(documents)
            await finished(copy)
            before = [key for key in store.buckets["backups"] if key.startswith("orchard/")]

            def is_own(raw: Raw) -> bool:
                return bool(nested(raw, "spec", "clusterName") == "copy")

            (begun,) = filter(is_own, await snapshots_of(it))
            await ask(copy, etcdSnapshotRestore={"name": name_of(begun), "generation": 2, "from": None})
            status = await phase(copy, "Restore", "Failed", 2)
            assert (
                "of the time before this Cluster was separated" in status["etcdSnapshotRestoreRun"]["message"]
            )

            await it.sim.advance(minutes=3)
            await ask(copy, etcdSnapshotCreate={"generation": 1})
            await phase(copy, "Create", "Finished")
            await it.sim.advance(minutes=1)
            keys = sorted(store.buckets["backups"])
            assert [key for key in keys if key.startswith("orchard/")] == sorted(before)
            assert [key for key in keys if key.startswith("copy/")]
            own = [raw for raw in filter(is_own, await snapshots_of(it)) if nested(raw, "snapshotFile", "s3")]
            assert own
            await ask(copy, etcdSnapshotRestore={"name": name_of(own[0]), "generation": 3})
            await phase(copy, "Restore", "Finished", 3)

    run_driven(story())


@pytest.mark.long
def test_a_copy_that_loses_its_first_server_before_it_is_separated_begins_anew_with_a_higher_generation() -> (
    None
):
    async def story() -> None:
        async with with_bucket(a_pool("servers", 1, SERVERS)) as (it, store):
            files = [raw for raw in await snapshots_of(it) if nested(raw, "status", "storage") == "s3"]
            copies = Copies(it, store, str(nested(files[0], "snapshotFile", "name")))
            copy = await copies.begin()
            await phase(copy, "Restore", "PostRestorePodCleanup")
            (first,) = await machines_of(it.sim, copy.ref)
            await it.sim.harvester_client.delete(VM.ref(name_of(first), "default"), "Foreground")
            raw = await until(copy.stage, f"which only Machine {name_of(first)} has")
            assert raw["status"]["etcdSnapshotRestorePhase"] == "PostRestorePodCleanup"

            request = nested(raw, "spec", "rkeConfig", "etcdSnapshotRestore")
            await ask(copy, etcdSnapshotRestore={**request, "generation": 2})
            await phase(copy, "Restore", "Finished", 2)
            await copy.stage.wait_for_settled()
            uid = nested(await copy.stage.get_cluster(), "status", "restoredFrom", "guestUID")
            assert uid == nested(await it.stage.get_cluster(), "status", "guestUID")
            assert uid != nested(await copy.stage.get_cluster(), "status", "guestUID")

    run_driven(story())
