"""A snapshot of one Cluster, restored to a new one: both go on side by side, and the original loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.stories.cluster_rig import SERVERS, a_cluster, a_pool, gone, post, scale, stock
from tests.stories.test_cluster_life import Story
from tests.stories.test_etcd_restores import with_bucket
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of
from tests.support.clock import run_driven

from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
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
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, uid_of
from windrow.kubernetes.resources import (
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
            found[f"VolumeAttachment {name_of(raw)}"] = uid_of(raw), nested(raw, "status", "attached")
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

            await guest.delete(SERVICE_REF)
            await guest.delete(CLAIM)
            await scale(copy.sim, copy.ref, 1, 1)
            await copy.sim.advance(minutes=10)
            await it.check(before)

            await copy.sim.management_client.delete(copy.ref)
            await gone(copy.sim, copy.ref)
            await copy.sim.advance(minutes=10)
            await it.check(before)

    run_driven(story())
