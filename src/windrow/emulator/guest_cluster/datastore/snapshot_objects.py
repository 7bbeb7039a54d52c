"""The snapshots as the API shows them: ETCDSnapshotFiles, and the ConfigMap of earlier releases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from windrow.core.clock import format_time, parse_time
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.releases import has_snapshot_files
from windrow.emulator.guest_cluster.datastore.snapshot_file import (
    ETCD_SNAPSHOT_FILE,
    FINALIZER,
    S3_NODE,
    SnapshotFile,
)
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate, remove_finalizer
from windrow.emulator.kit.events import EventRecorder
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP, NODE

_ERROR_TTL = timedelta(hours=24)  # how long a failure is shown
_S3_GRACE = timedelta(minutes=1)  # in which another node's upload may not be listed yet
_MAX_ENTRIES = 200  # of the ConfigMap; a real one is full at a megabyte
_SYSTEM = "kube-system"


class SnapshotObjects:
    """What one server writes of its snapshots."""

    def __init__(self, cluster: GuestCluster, server: ServerInstance, log: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.server = server
        self.log = log
        self.distribution = server.settings.distribution
        # Of their own, so that snapshots change no other object's random uid.
        rng = Rng(f"snapshots of {cluster.uid} {server.node}")
        self._events = EventRecorder(AdminClient(cluster.client()), cluster.clock, rng)
        self._seen: frozenset[str] = frozenset()

    async def record(self, made: SnapshotFile) -> None:
        """Write the object of a snapshot that was just made. Errors of the API are logged; the next `sync` makes up for them."""
        if not self.cluster.is_usable():
            self.log("level=warning: Failed to sync ETCDSnapshotFile: apiserver not ready")
            return
        try:
            await self._write(made)
        except KubeError as error:
            self.log(f"level=warning: Failed to sync ETCDSnapshotFile: {error}")

    async def _write(self, file: SnapshotFile) -> None:
        if not has_snapshot_files(self.server.version):
            await write_entries(self.cluster, self.distribution.name, {file.key: file.render_entry()})
            return
        raw = file.render(self.distribution, file.object_name)
        local = self.cluster.client()
        ref = ETCD_SNAPSHOT_FILE.ref(name_of(raw))
        if await local.find(ref) is not None:
            await local.patch(ref, raw)
            return
        raw["metadata"]["finalizers"] = [FINALIZER]
        created = await local.create(ETCD_SNAPSHOT_FILE, raw)
        if file.is_failed:
            why = f"Failed to save snapshot {file.name} on {raw['spec']['nodeName']}: {file.message}"
            await self._events.record(
                created, "ETCDSnapshotFailed", why, f"{self.distribution.name}-etcd", "Warning"
            )
        else:
            why = f"Snapshot {file.name} saved on {raw['spec']['nodeName']}"
            await self._events.record(created, "ETCDSnapshotCreated", why, f"{self.distribution.name}-etcd")

    async def sync(
        self, files: Iterable[SnapshotFile], places: Sequence[str], deleted: Sequence[str]
    ) -> None:
        """Create what is missing of `files`, and delete what is of these places and not among them. Raises KubeError."""
        if not self.cluster.is_usable():
            return
        if not has_snapshot_files(self.server.version):
            await self._sync_entries(files, deleted)
            return
        wanted = {file.object_name: file for file in files}
        label = self.distribution.etcd_annotation("snapshot-storage-node")
        known = await self.cluster.client().list(ETCD_SNAPSHOT_FILE)
        for raw in known:
            place = labels_of(raw).get(label, "")
            if place in places and name_of(raw) not in wanted and self._is_obsolete(raw, deleted):
                await self._delete(raw)
        names = {name_of(raw) for raw in known}
        for name, file in wanted.items():
            if name not in names:
                await self._write(file)
        await self._delete_of_lost_nodes(known, label)
        await self._stamp(frozenset(wanted), places)

    def _is_obsolete(self, raw: Raw, deleted: Sequence[str]) -> bool:
        """Failures stay for a day, and what another node has just uploaded for a minute."""
        now = self.cluster.clock.now()
        if nested(raw, "spec", "snapshotName") in deleted:
            return True
        if nested(raw, "status", "error") is not None:
            failed = nested(raw, "status", "error", "time", default=raw["metadata"]["creationTimestamp"])
            return parse_time(failed) + _ERROR_TTL <= now
        if nested(raw, "spec", "s3") is not None:
            return parse_time(raw["metadata"]["creationTimestamp"]) + _S3_GRACE <= now
        return True

    async def _delete(self, raw: Raw) -> None:
        self.log(f"Deleting ETCDSnapshotFile for {nested(raw, 'spec', 'snapshotName')}")
        with contextlib.suppress(NotFound):
            await self.cluster.client().delete(ETCD_SNAPSHOT_FILE.ref(name_of(raw)))

    async def _delete_of_lost_nodes(self, known: Sequence[Raw], label: str) -> None:
        """What lies on the disk of a node that has left etcd cannot be restored."""
        if self.server.settings.is_true("disable-agent"):
            return
        selector = "node-role.kubernetes.io/etcd=true"
        nodes = {name_of(raw) for raw in await self.cluster.client().list(NODE, labels=selector)}
        for raw in known:
            if labels_of(raw).get(label) not in (S3_NODE, self.server.node, *nodes):
                await self._delete(raw)

    async def _stamp(self, seen: frozenset[str], places: Sequence[str]) -> None:
        """The Node says when its snapshots were last brought in line; here, only when they changed."""
        if seen == self._seen or self.server.settings.is_true("disable-agent"):
            return
        self._seen = seen
        now = format_time(self.cluster.clock.now())
        stamps = {self.distribution.etcd_annotation("local-snapshots-timestamp"): now}
        if S3_NODE in places:
            stamps[self.distribution.etcd_annotation("s3-snapshots-timestamp")] = now
        await self.cluster.edit(NODE.ref(self.server.node), lambda raw: annotate(raw, stamps))

    async def _sync_entries(self, files: Iterable[SnapshotFile], deleted: Sequence[str]) -> None:
        entries: dict[str, str | None] = {file.key: file.render_entry() for file in files}
        for name in deleted:
            for place in ("local", "s3"):
                entries.setdefault(f"{place}-{name}", None)
        if entries:
            await write_entries(self.cluster, self.distribution.name, entries)


async def write_entries(cluster: GuestCluster, distribution: str, entries: dict[str, str | None]) -> None:
    """Set keys of the ConfigMap of earlier releases; None removes one. The oldest are left out where there are too many."""
    name = f"{distribution}-etcd-snapshots"
    local = cluster.client()
    ref = CONFIG_MAP.ref(name, _SYSTEM)
    found = await local.find(ref)
    if found is None:
        data = {key: value for key, value in entries.items() if value is not None}
        if data:
            await local.create(CONFIG_MAP, new_object(CONFIG_MAP, name, _SYSTEM, data=data))
        return
    before = found.get("data") or {}
    merged = {key: value for key, value in {**before, **entries}.items() if value is not None}
    newest = sorted(merged, key=lambda key: key.removesuffix(".zip").rpartition("-")[2])[-_MAX_ENTRIES:]
    after = {key: merged[key] for key in newest}
    if after != before:
        await local.patch(ref, {"data": {**dict.fromkeys(before), **after}})


async def run_snapshot_objects(guest: GuestOS, cluster: GuestCluster) -> None:
    """The controller on the leading server: removes the finalizer of deleted ETCDSnapshotFiles, and keeps the ConfigMap
    entries of those with metadata. The file itself stays: its object is made again when its server next looks."""
    distribution = cluster.distribution.name
    if not has_snapshot_files(cluster.version):
        return
    while True:
        await cluster.wait_usable()
        async with cluster.client().watch(ETCD_SNAPSHOT_FILE) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    with contextlib.suppress(KubeError, ValueError):  # what a user wrote into it
                        await _sync_object(cluster, distribution, event.object)
        await guest.sleep(1)


async def _sync_object(cluster: GuestCluster, distribution: str, raw: Raw) -> None:
    spec = raw["spec"]
    place = "s3" if spec.get("s3") is not None else "local"
    key = f"{place}-{spec['snapshotName']}"
    if raw["metadata"].get("deletionTimestamp"):
        await write_entries(cluster, distribution, {key: None})
        client = AdminClient(cluster.client())
        await client.mutate(ETCD_SNAPSHOT_FILE.ref(name_of(raw)), remove_finalizer(FINALIZER))
    elif spec.get("metadata"):
        await write_entries(cluster, distribution, {key: _read_file(raw).render_entry()})


def _read_file(raw: Raw) -> SnapshotFile:
    spec, status = raw["spec"], raw.get("status") or {}
    is_local = spec.get("s3") is None
    return SnapshotFile(
        spec["snapshotName"],
        parse_time(status.get("creationTime") or raw["metadata"]["creationTimestamp"]),
        int(status.get("size") or 0),
        spec["nodeName"] if is_local else S3_NODE,
        spec.get("location", ""),
        nested(status, "error", "message", default=""),
        s3=spec.get("s3"),
        source=spec["nodeName"],
        metadata=spec["metadata"],
    )
