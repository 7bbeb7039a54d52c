"""EtcdSnapshots: the snapshots of one member of etcd: on demand, by schedule, on its disk and in a bucket.

What is on the disk and in the bucket is the truth; the ETCDSnapshotFiles in the API are brought in line with it after each
operation, at the start, and now and then (reference/10-day2 §2.2-2.3; K3s' pkg/etcd/snapshot.go).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windrow.core.clock import sleep
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.cron import BadSchedule, parse_schedule
from windrow.emulator.guest_cluster.datastore.local_snapshots import (
    METADATA,
    LocalSnapshots,
    NoDirectory,
    name_snapshot,
)
from windrow.emulator.guest_cluster.datastore.releases import has_snapshot_files
from windrow.emulator.guest_cluster.datastore.s3_client import NoSuchKey, S3Client, S3Failed
from windrow.emulator.guest_cluster.datastore.s3_settings import (
    RETENTION,
    BadS3Settings,
    S3Settings,
    name_ca_config_map,
    read_count,
    read_flags,
)
from windrow.emulator.guest_cluster.datastore.snapshot_content import compress, encode_snapshot, hash_token
from windrow.emulator.guest_cluster.datastore.snapshot_file import S3_NODE, SnapshotFile, read_created
from windrow.emulator.guest_cluster.datastore.snapshot_objects import SnapshotObjects
from windrow.emulator.guest_os.budget import DiskFull
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import CONFIG_MAP, SECRET

NAME, SCHEDULE = "etcd-snapshot", "0 */12 * * *"
_JITTER_S = 5
_RECONCILE_SINCE = (1, 32)  # releases that know etcd-snapshot-reconcile-interval
_RECONCILE_INTERVALS = (timedelta(minutes=600), timedelta(minutes=10))  # before and since
_HASH_LENGTH = 12
_SYSTEM = "kube-system"


class SnapshotFailed(Exception):
    """The operation failed; the message is for the log."""


class NoS3(Exception):
    """The bucket cannot be used; the message is for the one who asks."""


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """How snapshots are made: a server's flags, or what a request puts in their place."""

    name: str = NAME
    directory: str = ""
    compress: bool = False
    retention: int = RETENTION
    s3: S3Settings | None = None


@dataclass(slots=True)
class SnapshotResult:
    """The names of the snapshots that an operation made and deleted."""

    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


class EtcdSnapshots:
    """The snapshots of the member that runs on this machine. `find_member` gives its name."""

    def __init__(
        self,
        guest: GuestOS,
        cluster: GuestCluster,
        server: ServerInstance,
        find_member: Callable[[], str],
        log: Callable[[str], None],
    ) -> None:
        self.guest = guest
        self.cluster = cluster
        self.server = server
        self.log = log
        self._find_member = find_member
        self._lock = asyncio.Lock()
        flags = server.settings
        self.settings = SnapshotSettings(
            flags.text("etcd-snapshot-name", NAME),
            flags.text("etcd-snapshot-dir"),
            flags.is_true("etcd-snapshot-compress"),
            read_count(flags.text("etcd-snapshot-retention"), RETENTION),
            read_flags(flags),
        )
        self._objects = SnapshotObjects(cluster, server, log)

    # -- operations

    async def save(self, settings: SnapshotSettings) -> SnapshotResult:
        """Make a snapshot, then delete those beyond the retention. Raises SnapshotFailed, NoS3."""
        if self._lock.locked():
            raise SnapshotFailed("snapshot save already in progress")
        async with self._lock:
            result = await self._save(settings)
        await self.reconcile(settings, result.deleted)
        return result

    async def _save(self, settings: SnapshotSettings) -> SnapshotResult:
        member = self.cluster.etcd.by_name.get(self._find_member())
        if member is None or not self.cluster.etcd.has_quorum():
            raise SnapshotFailed("failed to check etcd status for snapshot: context deadline exceeded")
        if member.learner:
            raise SnapshotFailed("Unable to take snapshot: not supported for learner")
        local = self._open(settings)
        metadata = await self._read_metadata()
        await self.guest.sleep(self.guest.delays.snapshot)
        now = self.guest.now()
        name = name_snapshot(
            settings.name, self.server.node, int(now.timestamp()), is_compressed=settings.compress
        )
        self.log(f"Saving etcd snapshot to {local.path(name)}")
        content = self._read_content(name, is_compressed=settings.compress)
        made = SnapshotFile(
            name,
            now,
            len(content),
            self.server.node,
            f"file://{local.path(name)}",
            token_hash=self._token_hash(),
            metadata=metadata,
        )
        try:
            local.save(name, content, metadata)
        except DiskFull as error:
            await self._objects.record(_failed(made, "no space left on device"))
            raise SnapshotFailed(f"Failed to take etcd snapshot: {name}: no space left on device") from error
        await self._objects.record(made)
        result = SnapshotResult([name], local.prune(settings.name, settings.retention))
        if settings.s3 is not None:
            await self._upload(settings, made, content, result)
        return result

    async def list_all(self, settings: SnapshotSettings) -> list[SnapshotFile]:
        """What is on the disk and, with S3, in the bucket. Raises SnapshotFailed, NoS3."""
        local = self._open(settings).list_files()
        if settings.s3 is None:
            return local
        client = await self.open_s3(settings.s3)
        try:
            return [*await self._list_bucket(client), *local]
        except S3Failed as error:
            raise SnapshotFailed(str(error)) from error

    async def prune(self, settings: SnapshotSettings) -> SnapshotResult:
        """Delete the snapshots beyond the retention. Raises SnapshotFailed, NoS3."""
        client = None if settings.s3 is None else await self.open_s3(settings.s3)
        result = SnapshotResult(deleted=self._open(settings).prune(settings.name, settings.retention))
        if client is not None:
            result.deleted += await self._prune_bucket(client, settings)
        await self.reconcile(settings, result.deleted)
        return result

    async def delete(self, settings: SnapshotSettings, names: Sequence[str]) -> SnapshotResult:
        """Delete snapshots by their names, also in the bucket with S3. Raises SnapshotFailed, NoS3."""
        client = None if settings.s3 is None else await self.open_s3(settings.s3)
        local, result = self._open(settings), SnapshotResult()
        for name in names:
            if local.delete(name):
                self.log(f"Snapshot {name} deleted locally")
                result.deleted.append(name)
            if client is not None and await self._delete_in_bucket(client, name):
                self.log(f"Snapshot {name} deleted from S3")
                result.deleted.append(name)
        await self.reconcile(settings, result.deleted)
        return result

    async def reconcile(self, settings: SnapshotSettings, deleted: Sequence[str] = ()) -> None:
        """Bring the ETCDSnapshotFiles in line with the disk and the bucket. May be repeated."""
        places = [self.server.node]
        try:
            files = self._open(settings).list_files()
            if settings.s3 is not None:
                files += await self._list_bucket(await self.open_s3(settings.s3))
                places.append(S3_NODE)
            await self._objects.sync(files, places, deleted)
        except (SnapshotFailed, NoS3, S3Failed, KubeError) as error:
            self.log(f"level=warning: Failed to reconcile snapshot data: {error}")

    # -- what is in one

    def _read_content(self, name: str, *, is_compressed: bool) -> bytes:
        cluster = self.cluster
        content = encode_snapshot(
            cluster.uid,
            str(self.server.version),
            hash_token(cluster.server_password),
            cluster.render_bootstrap(),
            cluster.list_stored(),
        )
        return compress(name, content) if is_compressed else content

    def _token_hash(self) -> str:
        return hash_token(self.cluster.server_password)[:_HASH_LENGTH]

    async def _read_metadata(self) -> dict[str, str]:
        """The data of the ConfigMap whose content belongs to each snapshot."""
        name = f"{self.server.settings.distribution.name}-etcd-snapshot-extra-metadata"
        raw = await self.cluster.client().find(CONFIG_MAP.ref(name, _SYSTEM))
        return dict((raw or {}).get("data") or {})

    def _open(self, settings: SnapshotSettings) -> LocalSnapshots:
        """Raises SnapshotFailed."""
        data_directory = self.server.settings.data_directory
        local = LocalSnapshots(self.guest, self.server.node, data_directory, settings.directory)
        try:
            local.open()
        except NoDirectory as error:
            raise SnapshotFailed(str(error)) from error
        return local

    # -- S3

    async def open_s3(self, settings: S3Settings) -> S3Client:
        """A client of a bucket that may be used. Raises NoS3."""
        try:
            chosen = await self._choose_s3(settings)
            client = S3Client(self.guest, chosen)
            await client.check_bucket()
        except (S3Failed, BadS3Settings, KubeError) as error:
            raise NoS3(f"failed to initialize S3 client: {error}") from error
        return client

    async def _choose_s3(self, settings: S3Settings) -> S3Settings:
        """Those of the config Secret where nothing else is set. Raises BadS3Settings, KubeError."""
        name = settings.config_secret
        if not settings.is_default:
            if name:
                self.log(
                    f'level=warning: Ignoring s3 configuration from etcd-s3-config-secret "{name}" due to existing '
                    "configuration from CLI or config file"
                )
            return settings
        if not name:
            raise BadS3Settings("s3 configuration was not set")
        start = (
            f'failed to get config from etcd-s3-config-secret "{name}": failed to get etcd S3 config secret'
        )
        if not self.cluster.is_usable():
            raise BadS3Settings(f"{start}: runtime core not ready")
        local = self.cluster.client()
        secret = await local.find(SECRET.ref(name, _SYSTEM))
        if secret is None:
            raise BadS3Settings(f'{start}: secrets "{name}" not found')
        bundles: Mapping[str, str] = {}
        if authorities := name_ca_config_map(secret):
            found = await local.find(CONFIG_MAP.ref(authorities, _SYSTEM))
            bundles = (found or {}).get("data") or {}
        return settings.with_secret(secret, bundles)

    async def _upload(
        self, settings: SnapshotSettings, made: SnapshotFile, content: bytes, result: SnapshotResult
    ) -> None:
        assert settings.s3 is not None
        try:
            client = await self.open_s3(settings.s3)
        except NoS3 as error:
            self.log(f"level=warning: Unable to initialize S3 client: {error}")
            if "failed to get etcd S3 config secret" not in str(error):
                await self._objects.record(_in_bucket(made, settings.s3, "", str(error)))
            return
        key = client.settings.join(made.name)
        place = f"s3://{client.settings.bucket}/{key}"
        distribution = self.server.settings.distribution.name
        labels = {
            f"{distribution}-cluster-id": self.cluster.uid,
            f"{distribution}-node-name": self.server.node,
            f"{distribution}-token-hash": made.token_hash,
        }
        await self.guest.sleep(self.guest.delays.upload)
        why = ""
        try:
            await client.put(key, content, labels)
            if beside := self.guest.read(self._metadata_path(settings, made.name)):
                await client.put(client.settings.join(METADATA, made.name), beside, labels)
            result.created.append(made.name)
            self.log(f"S3 upload complete for {made.name}")
        except S3Failed as error:
            why = str(error)
            self.log(f"level=error: Error received during snapshot upload to S3: {why}")
        result.deleted += await self._prune_bucket(client, settings)
        await self._objects.record(_in_bucket(made, client.settings, place, why))

    def _metadata_path(self, settings: SnapshotSettings, name: str) -> str:
        directory = self._open(settings).directory
        return f"{directory.rpartition('/')[0]}/{METADATA}/{name}"

    async def _list_bucket(self, client: S3Client) -> list[SnapshotFile]:
        """Raises S3Failed."""
        found = []
        prefix = client.settings.join("")
        distribution = self.server.settings.distribution.name
        for stored in await client.list(f"{prefix}/" if prefix else ""):
            directory, _, name = stored.key.rpartition("/")
            if directory.rpartition("/")[2] == METADATA:
                continue
            try:
                labels = await client.find_metadata(stored.key)
            except NoSuchKey:
                continue  # deleted meanwhile
            found.append(
                SnapshotFile(
                    name,
                    read_created(name, stored.modified),
                    stored.size,
                    S3_NODE,
                    f"s3://{client.settings.bucket}/{stored.key}",
                    token_hash=labels.get(f"{distribution}-token-hash", ""),
                    s3=client.settings.render(),
                    source=labels.get(f"{distribution}-node-name", ""),
                )
            )
        return found

    async def _prune_bucket(self, client: S3Client, settings: SnapshotSettings) -> list[str]:
        """Delete what the retention does not keep in the bucket, of all nodes together; the names of the deleted."""
        if client.settings.retention < 1:
            return []
        deleted: list[str] = []
        try:
            stored = [
                one
                for one in await client.list(client.settings.join(settings.name))
                if f"/{METADATA}/" not in f"/{one.key}"
            ]
            stored.sort(key=lambda one: (one.modified, one.key), reverse=True)
            for one in stored[client.settings.retention :]:
                name = one.key.rpartition("/")[2]
                if await self._delete_in_bucket(client, name):
                    deleted.append(name)
        except S3Failed as error:
            self.log(f"level=warning: Failed to apply s3 snapshot retention policy: {error}")
        return deleted

    async def _delete_in_bucket(self, client: S3Client, name: str) -> bool:
        """Whether there was one, and it is deleted."""
        try:
            await client.find_metadata(client.settings.join(name))
            await client.delete(client.settings.join(name))
            await client.delete(client.settings.join(METADATA, name))
        except NoSuchKey:
            return False
        except S3Failed as error:
            self.log(f"level=error: Failed to delete S3 snapshot {name}: {error}")
            return False
        return True

    # -- in the background

    async def run(self) -> None:
        """Reconcile at the start and at intervals, and save by the schedule; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconcile_for_ever())
            if not self.server.settings.is_true("etcd-disable-snapshots"):
                group.create_task(self._save_by_schedule())

    async def _reconcile_for_ever(self) -> None:
        is_new = self.server.version.line >= _RECONCILE_SINCE
        interval = _RECONCILE_INTERVALS[is_new]
        if not has_snapshot_files(self.server.version):
            return
        while True:
            await self.cluster.wait_usable()
            await self.reconcile(self.settings)
            await self.guest.sleep(interval.total_seconds())

    async def _save_by_schedule(self) -> None:
        text = self.server.settings.text("etcd-snapshot-schedule-cron", SCHEDULE)
        try:
            schedule = parse_schedule(text)
        except BadSchedule as error:
            self.log(f"level=error: No scheduled snapshots: {error}")
            return
        jitter = self._jitter()
        while (due := schedule.find_next(self.guest.now())) is not None:
            await self._sleep_until(due + jitter)
            try:
                await self.save(self.settings)
            except (SnapshotFailed, NoS3, KubeError) as error:
                self.log(f"level=error: Failed to take scheduled snapshot: {error}")

    async def _sleep_until(self, due: datetime) -> None:
        await sleep(self.guest.host.clock, max(due - self.guest.now(), timedelta()))

    def _jitter(self) -> timedelta:
        """Servers wait a random while of up to five seconds, so that not all save at once; here it follows from the name."""
        digest = hashlib.sha256(self.server.node.encode()).digest()
        return timedelta(milliseconds=int.from_bytes(digest[:2]) % (_JITTER_S * 1000))


def _failed(made: SnapshotFile, why: str) -> SnapshotFile:
    return SnapshotFile(made.name, made.created, node=made.node, message=why, metadata=made.metadata)


def _in_bucket(made: SnapshotFile, settings: S3Settings, place: str, why: str) -> SnapshotFile:
    return SnapshotFile(
        made.name,
        made.created,
        0 if why else made.size,
        S3_NODE,
        place,
        why,
        "" if why else made.token_hash,
        settings.render(),
        made.node,
        made.metadata,
    )
