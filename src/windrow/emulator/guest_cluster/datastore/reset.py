"""`<rke2|k3s> server --cluster-reset`: one member becomes the whole cluster, with its own data or those of a snapshot.

As with the real servers (reference/10-day2 §2.5; K3s' pkg/etcd and pkg/cluster): the service has to be stopped; the command
ends by itself and leaves `db/reset-flag`, which the next start removes. A reset without a snapshot is refused while the flag
is there. What is on the disk is moved aside before the snapshot is verified (an archive is unpacked earlier), so that one that
was cut off leaves a server without data, which begins an empty cluster when it starts; they are replaced before the token is tried, so that after a wrong one the right one is enough.

The state of a snapshot goes into the cluster that it is of while no member of that runs: its agents then find it again. While
members of it run, and where that cluster is unknown, a cluster of its own comes up: two of them go on side by side.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.charts import uninstall_chart
from windrow.emulator.guest_cluster.cluster import GuestCluster, Heartbeat
from windrow.emulator.guest_cluster.datastore.local_snapshots import LocalSnapshots, NoDirectory
from windrow.emulator.guest_cluster.datastore.s3_client import S3Client, S3Failed
from windrow.emulator.guest_cluster.datastore.s3_settings import BadS3Settings, S3Settings, read_flags
from windrow.emulator.guest_cluster.datastore.snapshot_content import (
    COMPRESSED,
    BadSnapshot,
    Snapshot,
    decode_snapshot,
    decompress,
    hash_token,
)
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART
from windrow.emulator.guest_cluster.distribution.pki import CertificateAuthorities
from windrow.emulator.guest_cluster.rotation.encryption import Encryption, parse_encryption
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.objects import Raw, name_of
from windrow.kubernetes.resources import NODE

DIFFERENT_TOKEN = "bootstrap data already found and encrypted with different token"
_SPARE_RANGES = 64  # of pods, taken by Nodes that were deleted before the snapshot
_UNOPENED = "restored snapshot"  # what lies on the disk while no token has opened it


class ResetFailed(Exception):
    """The reset, or the start after it, ends with this message."""


@dataclass(frozen=True, slots=True)
class EtcdData:
    """The directory of etcd's data on a server's disk, and what a simulated disk has in place of its files."""

    guest: GuestOS
    settings: Settings
    state: dict[str, Any]

    @property
    def directory(self) -> str:
        return f"{self.settings.data_directory}/server/db"

    @property
    def flag(self) -> str:
        return f"{self.directory}/reset-flag"

    @property
    def unopened(self) -> Snapshot | None:
        found: Snapshot | None = self.state.get(_UNOPENED)
        return found

    def set_member(self, cluster: str, member: str) -> None:
        """The disk has the data of this member."""
        self.state.clear()
        self.state.update(cluster=cluster, member=member)
        self.guest.write(f"{self.directory}/etcd/name", member.encode(), 0o600)

    @property
    def named_member(self) -> str:
        """The member whose files lie in the directory: they may have been moved there from elsewhere."""
        return self.guest.read_text(f"{self.directory}/etcd/name").strip()

    def move_aside(self) -> None:
        """The disk has no data; what was there is in a directory beside them."""
        old = self.guest.read(f"{self.directory}/etcd/name")
        if old is not None:
            stamp = int(self.guest.now().timestamp())
            self.guest.write(f"{self.directory}/etcd-old-{stamp}/name", old, 0o600)
            self.guest.remove(f"{self.directory}/etcd")
        self.state.clear()

    def replace(self, snapshot: Snapshot) -> None:
        """The disk has the data of a snapshot."""
        self.state[_UNOPENED] = snapshot
        self.guest.write(f"{self.directory}/etcd/name", b"restored\n", 0o600)

    def set_flag(self) -> None:
        self.guest.write(self.flag, b"", 0o600)

    def clear_flag(self) -> bool:
        """Whether the flag was there."""
        return self.guest.is_file(self.flag) and self.guest.remove(self.flag)


async def read_file(guest: GuestOS, settings: Settings, node: str) -> bytes:
    """What `cluster-reset-restore-path` names, unpacked: a file on the disk, or with S3 an object. Raises ResetFailed."""
    path = settings.text("cluster-reset-restore-path")
    s3 = read_flags(settings)
    if s3 is not None:
        path = await _download(guest, settings, node, s3, path)
    content = guest.read(path)
    if content is None:
        if guest.is_directory(path):
            raise ResetFailed(f"etcd: snapshot path must be a file, not a directory: {path}")
        raise ResetFailed(f"etcd: snapshot path does not exist: {path}")
    try:
        return decompress(content) if path.endswith(COMPRESSED) else content
    except BadSnapshot as error:
        raise ResetFailed(str(error)) from error


def open_snapshot(content: bytes) -> Snapshot:
    """The snapshot in a file. Raises ResetFailed."""
    try:
        return decode_snapshot(content)
    except BadSnapshot as error:
        raise ResetFailed(str(error)) from error


async def _download(guest: GuestOS, settings: Settings, node: str, s3: S3Settings, name: str) -> str:
    """Bring the object to the snapshot directory; its path there. Raises ResetFailed."""
    local = LocalSnapshots(guest, node, settings.data_directory, settings.text("etcd-snapshot-dir"))
    try:
        local.open()
        if s3.is_default:
            secret = f'failed to get config from etcd-s3-config-secret "{s3.config_secret}"'
            why = f"{secret}: failed to get etcd S3 config secret: runtime core not ready"
            raise BadS3Settings(why if s3.config_secret else "s3 configuration was not set")
        client = S3Client(guest, s3)
        await client.check_bucket()
    except (S3Failed, BadS3Settings, NoDirectory) as error:
        raise ResetFailed(f"failed to initialize S3 client: {error}") from error
    try:
        await guest.sleep(guest.delays.upload)
        content = await client.get(client.settings.join(name))
    except S3Failed as error:
        raise ResetFailed(f"failed to download snapshot from S3: {error}") from error
    path = local.path(posixpath.basename(name))
    guest.write(path, content, 0o600)
    return path


def check_release(snapshot: Snapshot, settings: Settings, version: Version) -> None:
    """Raises ResetFailed for the snapshot of a later minor release: its objects may be stored as this one cannot read."""
    made_by = Version.parse(snapshot.version)
    if made_by.line > version.line:
        raise ResetFailed(
            f"the snapshot was made by {settings.distribution.name} {made_by}, which is newer than {version}: "
            "etcd data cannot be used by an earlier minor release"
        )


def check_token(snapshot: Snapshot, password: str) -> None:
    """Raises ResetFailed unless the password opens the bootstrap data."""
    if hash_token(password) != snapshot.token_hash:
        raise ResetFailed(
            f"starting kubernetes: preparing server: failed to bootstrap cluster data: {DIFFERENT_TOKEN}"
        )


def read_bootstrap(bootstrap: Mapping[str, Any]) -> tuple[CertificateAuthorities, str, Encryption | None]:
    """The authorities, the agents' password, and the keys of Secrets. Raises ResetFailed."""
    files, password = bootstrap.get("files"), bootstrap.get("agentPassword")
    try:
        if not isinstance(files, dict) or not isinstance(password, str):
            raise ValueError("no files")
        return (
            CertificateAuthorities(files, delivered=True),
            password,
            parse_encryption(bootstrap["encryption"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ResetFailed("failed to bootstrap cluster data: unexpected end of JSON input") from error


async def restore_objects(cluster: GuestCluster, objects: Mapping[str, Raw]) -> None:
    """The cluster's API has exactly these objects, and what every server makes of its own at its start."""
    store = cluster.store
    before = {entry.key: entry for entry in store.snapshot()[1]}
    for key, entry in before.items():
        if key not in objects:
            await store.commit(key, None, entry.rev)
    for key, raw in objects.items():
        found = before.get(key)
        if found is None or found.raw != raw:
            await store.commit(key, dict(raw), found.rev if found is not None else None)
    store.compact(store.rev)
    await cluster.reload()
    await _forget_obsolete(cluster)


async def _forget_obsolete(cluster: GuestCluster) -> None:
    """What the simulation knows beside the objects follows them."""
    cluster.addons.clear()
    cluster.helm_specs.clear()
    local = cluster.client()
    charts = {(raw["metadata"]["namespace"], name_of(raw)) for raw in await local.list(HELM_CHART)}
    for chart, release in list(cluster.releases.items()):
        if (release.namespace, release.name) not in charts:
            await uninstall_chart(cluster, chart)
    now = cluster.clock.monotonic()
    nodes = await local.list(NODE)
    for raw in nodes:
        cluster.heartbeats.setdefault(name_of(raw), Heartbeat(alive=False, last=now))
    cluster.reserve_pod_ranges(len(nodes) + _SPARE_RANGES)
    cluster.restores += 1
    cluster.changed.notify()
