"""The demo's snapshot and restore: etcd is saved to a bucket, the Service is deleted by mistake, and a restore brings it back.

The servers are replaced by new ones, of which the first begins with what the snapshot holds.
"""

from __future__ import annotations

from typing import Any

from windrow.app.preload.buckets import list_buckets
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.demo.cluster import DemoCluster
from windrow.demo.service_scenarios import (
    DEPLOYMENT_REF,
    SERVICE_REF,
    address_of,
    find_service,
    wait_for_no_reply,
    wait_for_service,
)
from windrow.demo.waiting import Objects
from windrow.kubernetes.objects import Raw, name_of, nested, uid_of

CHECKS = ("snapshot-in-bucket", "restored")
WITHOUT_SERVICE = "there is no Service that could be deleted and restored"
WITHOUT_BUCKET = "the manifest names no bucket with a credential in spec.rkeConfig.etcd.s3"


async def snapshot_and_restore(cluster: DemoCluster) -> None:
    """Make a snapshot, delete the Service and its pods, restore: both must be there again, with the uids of before."""
    buckets = list_buckets([await cluster.get_cluster()])
    if not buckets:
        cluster.report.skip(CHECKS, WITHOUT_BUCKET)
        return
    service = await find_service(cluster)
    if service is None:
        cluster.report.skip(CHECKS, WITHOUT_SERVICE)
        return
    snapshot = await _make_snapshot(cluster, buckets[0].name)
    if snapshot is None:
        return
    guest = await cluster.guest_client()
    before = {ref: uid_of(await guest.get(ref)) for ref in (SERVICE_REF, DEPLOYMENT_REF)}
    cluster.report.add(f"{SERVICE_REF} and {DEPLOYMENT_REF} of the guest are deleted, by mistake")
    for ref in before:
        await guest.delete(ref)
    await wait_for_no_reply(cluster, address_of(service))
    cluster.report.add(f"http://{address_of(service)}/ does not answer any more")
    begun = cluster.clock.now()
    cluster.report.add(f"the restore of that snapshot is asked for: etcdSnapshotRestore of {cluster.ref}")
    # Its version is the one that the machines run: that the cluster does is recorded later, once its charts had their time.
    request = {"name": name_of(snapshot), "restoreRKEConfig": "kubernetesVersion"}
    if await _request(cluster, "etcdSnapshotRestore", request) is None:
        return
    await cluster.wait_for_settled()
    await wait_for_service(cluster)
    took = (cluster.clock.now() - begun).total_seconds()
    restored = await cluster.guest_client()
    after = {ref: await restored.find(ref) for ref in before}
    same = all(raw is not None and uid_of(raw) == before[ref] for ref, raw in after.items())
    found = after[SERVICE_REF]
    cluster.report.check(
        "restored",
        same and found is not None,
        f"{SERVICE_REF} and {DEPLOYMENT_REF} are there again after {took:.1f} s, with the uids of before, and "
        f"http://{address_of(found or service)}/ answers",
    )


async def _make_snapshot(cluster: DemoCluster, bucket: str) -> Raw | None:
    """The ETCDSnapshot of one that was asked for now and is in the bucket; None where none could be made."""
    cluster.report.add(f"a snapshot of etcd is asked for: etcdSnapshotCreate of {cluster.ref}")
    done = await _request(cluster, "etcdSnapshotCreate", {})
    if done is None:
        return None
    begin = str(nested(done, "status", "etcdSnapshotCreateRun", "name", default=""))

    def find_snapshot(objects: Objects) -> Raw | None:
        mine = [raw for raw in objects.values() if nested(raw, "spec", "clusterName") == cluster.name]
        return next((raw for raw in mine if _is_in_bucket(raw, begin)), None)

    what = f"an ETCDSnapshot of {cluster.ref} in the bucket"
    snapshot = await cluster.wait_on(cluster.manager, ETCD_SNAPSHOT, find_snapshot, what, cluster.namespace)
    file = str(nested(snapshot, "snapshotFile", "name", default=""))
    keys = cluster.object_stores.list_keys(bucket) if cluster.object_stores else []
    held = [key for key in keys if key.rpartition("/")[2] == file]
    cluster.report.check("snapshot-in-bucket", bool(held), f"the file {file} is in bucket {bucket}")
    return snapshot


def _is_in_bucket(raw: Raw, begin: str) -> bool:
    file = raw.get("snapshotFile") or {}
    return bool(file.get("s3")) and str(file.get("name") or "").startswith(begin)


async def _request(cluster: DemoCluster, key: str, value: dict[str, Any]) -> Raw | None:
    """Raise the generation of one of the Cluster's operations. The Cluster once it is Finished; None, and a failed check,
    once it has Failed. Raises WaitTimedOut."""
    raw = await cluster.get_cluster()
    generation = int(nested(raw, "spec", "rkeConfig", key, "generation", default=0)) + 1
    step = {"op": "add", "path": f"/spec/rkeConfig/{key}", "value": {**value, "generation": generation}}
    await cluster.manager.json_patch(cluster.ref, [step])

    def find_end(objects: Objects) -> Raw | None:
        found = objects.get((cluster.namespace, cluster.name))
        carried_out = nested(found, "status", key, "generation", default=0) >= generation
        is_over = nested(found, "status", f"{key}Phase") in ("Finished", "Failed")
        return found if carried_out and is_over else None

    what = f"{key} of {cluster.ref} to be Finished"
    found = await cluster.wait_on(cluster.manager, CLUSTER, find_end, what, cluster.namespace)
    if nested(found, "status", f"{key}Phase") == "Finished":
        return found
    message = nested(found, "status", f"{key}Run", "message", default="no reason in its status")
    cluster.report.check(f"in-time: {what}", False, f"it failed: {message}")
    return None
