"""Snapshots in a guest cluster: the snapshot-controller that RKE2 bundles, and the side-car csi-snapshotter.

The controller gives a VolumeSnapshot its VolumeSnapshotContent and copies the content's state; the side-car has the driver
take and delete what a content stands for. Neither writes what is the other's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from datetime import UTC, datetime

from windrow.core.clock import format_time
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.capabilities import print_bytes
from windrow.emulator.guest_cluster.csi.context import Driver, StorageContext
from windrow.emulator.guest_cluster.csi.kinds import PV, SNAPSHOT, SNAPSHOT_CLASS, SNAPSHOT_CONTENT
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.csi.workers import NotYet, Workers
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.edits import Edit, add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.informer import start_informers
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    objects_at,
    uid_of,
)
from windrow.kubernetes.resources import PVC

CONTROLLER, SIDE_CAR = "snapshot-controller", "csi-snapshotter"
_GROUP = "snapshot.storage.kubernetes.io"
SNAPSHOT_FINALIZERS = (
    f"{_GROUP}/volumesnapshot-as-source-protection",
    f"{_GROUP}/volumesnapshot-bound-protection",
)
CONTENT_FINALIZER = f"{_GROUP}/volumesnapshotcontent-bound-protection"
SOURCE_FINALIZER = f"{_GROUP}/pvc-as-source-protection"
BEING_CREATED, BEING_DELETED = (
    f"{_GROUP}/volumesnapshot-being-created",
    f"{_GROUP}/volumesnapshot-being-deleted",
)
IS_DEFAULT = f"{_GROUP}/is-default-class"
# After these the snapshot may have been taken.
_MAY_HAVE_HAPPENED = ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED")


async def run_snapshot_controller(guest: GuestOS, cluster: GuestCluster) -> None:
    """Run the controller of the leading server until cancelled; after a KubeError, start it again."""
    while True:
        await cluster.wait_usable()
        try:
            await SnapshotController(guest, cluster).run()
        except* KubeError as errors:
            guest.log(CONTROLLER, f"panic: {errors.exceptions[0]}")
            await guest.sleep(guest.delays.crash_backoff)


class SnapshotController:
    def __init__(self, guest: GuestOS, cluster: GuestCluster) -> None:
        watched = (SNAPSHOT, SNAPSHOT_CONTENT, SNAPSHOT_CLASS, PVC)
        self._context = context = StorageContext(guest, cluster, watched, CONTROLLER)
        self._snapshots = Workers(CONTROLLER, guest, cluster, self._sync)
        context.on_change(SNAPSHOT, self._on_snapshot)
        context.on_change(SNAPSHOT_CONTENT, self._on_content)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await start_informers(group, self._context.informers.values())
            group.create_task(self._snapshots.run())

    def _on_snapshot(self, key: Key, snapshot: Raw | None, last: Raw) -> None:
        self._snapshots.on_change(key, None if snapshot is None else _meaning(snapshot))

    def _on_content(self, key: Key, content: Raw | None, last: Raw) -> None:
        named = nested(last, "spec", "volumeSnapshotRef", default={})
        self._snapshots.add((str(named.get("namespace")), str(named.get("name"))))

    async def _sync(self, key: Key) -> None:
        context = self._context
        snapshot = context.informers[SNAPSHOT].get(key)
        if snapshot is None:
            return
        content = await self._find_content(snapshot)
        if is_deleting(snapshot):
            await self._remove(snapshot, content)
            return
        await context.update(SNAPSHOT, snapshot, add_finalizers(*SNAPSHOT_FINALIZERS))
        try:
            content = content or await self._create_content(snapshot)
        except NotYet as error:
            await self._fail(snapshot, str(error))
            raise
        await self._copy_state(snapshot, content)

    async def _find_content(self, snapshot: Raw) -> Raw | None:
        """The content that the snapshot names, or that was made for it."""
        client = self._context.client()
        if named := nested(snapshot, "spec", "source", "volumeSnapshotContentName"):
            content = await client.find(SNAPSHOT_CONTENT.ref(str(named)))
            if content is None or _is_for_another(content, snapshot):
                return None
            if nested(content, "spec", "volumeSnapshotRef", "uid") != uid_of(snapshot) and not is_deleting(
                snapshot
            ):
                edit: Edit = lambda raw: raw["spec"].update(volumeSnapshotRef=_reference(snapshot))  # noqa: E731
                await self._context.update(SNAPSHOT_CONTENT, content, edit)
            return content
        return await client.find(SNAPSHOT_CONTENT.ref(f"snapcontent-{uid_of(snapshot)}"))

    async def _create_content(self, snapshot: Raw) -> Raw:
        """Raises NotYet."""
        context, source = self._context, nested(snapshot, "spec", "source", default={})
        if named := source.get("volumeSnapshotContentName"):
            raise NotYet(f'VolumeSnapshotContent is missing: snapshot controller failed to get "{named}"')
        claim = await context.client().find(
            PVC.ref(str(source.get("persistentVolumeClaimName")), namespace_of(snapshot))
        )
        if claim is None or nested(claim, "status", "phase") != "Bound":
            why = f"the PVC {source.get('persistentVolumeClaimName')} is not yet bound to a PV"
            raise NotYet(
                f"Failed to create snapshot content with error {why}, will not attempt to take a snapshot"
            )
        volume = await context.client().get(PV.ref(str(nested(claim, "spec", "volumeName"))))
        chosen = await self._choose_class(snapshot, str(nested(volume, "spec", "csi", "driver")))
        await context.update(PVC, claim, add_finalizers(SOURCE_FINALIZER))
        made = new_object(
            SNAPSHOT_CONTENT,
            f"snapcontent-{uid_of(snapshot)}",
            finalizers=[CONTENT_FINALIZER],
            spec={
                "deletionPolicy": chosen.get("deletionPolicy", "Delete"),
                "driver": chosen["driver"],
                "source": {"volumeHandle": nested(volume, "spec", "csi", "volumeHandle")},
                "sourceVolumeMode": nested(volume, "spec", "volumeMode", default="Filesystem"),
                "volumeSnapshotClassName": name_of(chosen),
                "volumeSnapshotRef": _reference(snapshot),
            },
        )
        await context.create(SNAPSHOT_CONTENT, made)
        await context.record(
            snapshot,
            "CreatingSnapshot",
            f"Waiting for a snapshot {'/'.join(key_of(snapshot))} to be created by the CSI driver.",
        )
        return await context.client().get(SNAPSHOT_CONTENT.ref(name_of(made)))

    async def _choose_class(self, snapshot: Raw, driver: str) -> Raw:
        """The class that the snapshot names, else the driver's default, which is written into it. Raises NotYet."""
        context, named = self._context, nested(snapshot, "spec", "volumeSnapshotClassName")
        if named:
            found = context.find(SNAPSHOT_CLASS, named)
            if found is None or found.get("driver") != driver:
                why = f'volumesnapshotclass.{SNAPSHOT_CLASS.group} "{named}" not found'
                raise NotYet(f"Failed to get snapshot class with error {why}")
            return found
        for one in context.informers[SNAPSHOT_CLASS].values():
            if annotations_of(one).get(IS_DEFAULT) == "true" and one.get("driver") == driver:
                await context.update(SNAPSHOT, snapshot, _set_class(name_of(one)))
                return one
        why = "cannot find default snapshot class"
        raise NotYet(f"Failed to set default snapshot class with error {why}")

    async def _fail(self, snapshot: Raw, why: str) -> None:
        if nested(snapshot, "status", "error", "message") == why:
            return
        failure = {"message": why, "time": format_time(self._context.now())}

        def edit(raw: Raw) -> None:
            raw["status"] = {**(raw.get("status") or {}), "readyToUse": False, "error": failure}

        await self._context.update(SNAPSHOT, snapshot, edit, "status")
        await self._context.record(snapshot, "SnapshotContentCreationFailed", why, "Warning")

    async def _copy_state(self, snapshot: Raw, content: Raw) -> None:
        context, found = self._context, content.get("status") or {}
        is_ready = bool(found.get("readyToUse"))
        status: Raw = {"boundVolumeSnapshotContentName": name_of(content), "readyToUse": is_ready}
        if stamp := found.get("creationTime"):
            status["creationTime"] = _stamp(int(stamp))
        if found.get("restoreSize") is not None:
            status["restoreSize"] = print_bytes(int(found["restoreSize"]))
        if failure := found.get("error"):
            status["error"] = failure
        await context.update(SNAPSHOT, snapshot, lambda raw: raw.update(status=status), "status")
        if is_ready and not nested(snapshot, "status", "readyToUse"):
            why = f"Snapshot {'/'.join(key_of(snapshot))} is ready to use."
            await context.record(snapshot, "SnapshotReady", why)
        if is_ready:
            await self._release_source(snapshot)

    async def _release_source(self, snapshot: Raw) -> None:
        """The claim may be deleted once no snapshot of it is being taken."""
        name = nested(snapshot, "spec", "source", "persistentVolumeClaimName")
        claim = (
            await self._context.client().find(PVC.ref(str(name), namespace_of(snapshot))) if name else None
        )
        if claim is None or SOURCE_FINALIZER not in finalizers_of(claim):
            return
        for one in self._context.informers[SNAPSHOT].values():
            same = nested(one, "spec", "source", "persistentVolumeClaimName") == name
            is_busy = not nested(one, "status", "readyToUse") and not is_deleting(one)
            if (
                same
                and is_busy
                and key_of(one) != key_of(snapshot)
                and namespace_of(one) == namespace_of(snapshot)
            ):
                return
        await self._context.update(PVC, claim, remove_finalizer(SOURCE_FINALIZER))

    async def _remove(self, snapshot: Raw, content: Raw | None) -> None:
        context = self._context
        if content is not None and not _is_for_another(content, snapshot):
            await context.update(SNAPSHOT_CONTENT, content, lambda raw: annotate(raw, {BEING_DELETED: "yes"}))
            if nested(content, "spec", "deletionPolicy") == "Delete":
                await context.delete(SNAPSHOT_CONTENT, content)
                if await context.client().find(SNAPSHOT_CONTENT.ref(name_of(content))) is not None:
                    return  # until the side-car has had the driver delete it
        await self._release_source(snapshot)
        for one in SNAPSHOT_FINALIZERS:
            await context.update(SNAPSHOT, snapshot, remove_finalizer(one))


class Snapshotter:
    """The side-car. Run it only where the snapshot API is served."""

    def __init__(self, context: StorageContext, driver: Driver) -> None:
        self._context, self._driver = context, driver
        self._contents = Workers(SIDE_CAR, context.guest, context.cluster, self._sync)
        context.on_change(SNAPSHOT_CONTENT, self._on_content)

    async def run(self) -> None:
        if self._driver.can("CREATE_DELETE_SNAPSHOT"):
            await self._contents.run()

    def _on_content(self, key: Key, content: Raw | None, last: Raw) -> None:
        self._contents.on_change(key, None if content is None else _content_meaning(content))

    async def _sync(self, key: Key) -> None:
        content = self._context.informers[SNAPSHOT_CONTENT].get(key)
        if content is None or nested(content, "spec", "driver") != self._driver.name:
            return
        if is_deleting(content):
            await self._delete(content)
        elif not nested(content, "status", "readyToUse"):
            await self._take(content)

    async def _take(self, content: Raw) -> None:
        """Raises CsiFailed, and NotYet until the snapshot is ready."""
        context = self._context
        source = nested(content, "spec", "source", default={})
        try:
            if handle := source.get("snapshotHandle"):
                found = await self._read(str(handle))
            else:
                await context.update(
                    SNAPSHOT_CONTENT, content, lambda raw: annotate(raw, {BEING_CREATED: "yes"})
                )
                found = await self._create(content, str(source.get("volumeHandle")))
        except (CsiFailed, NotYet) as error:
            await self._fail(content, error)
            raise
        status: Raw = {
            "snapshotHandle": found["snapshot_id"],
            "creationTime": _nanoseconds(found, context.now().timestamp()),
            "readyToUse": bool(found.get("ready_to_use")),
            "restoreSize": int(found.get("size_bytes") or 0),
        }
        await context.update(SNAPSHOT_CONTENT, content, lambda raw: raw.update(status=status), "status")
        if not status["readyToUse"]:
            raise NotYet("snapshot is not ready to use")
        await context.update(SNAPSHOT_CONTENT, content, lambda raw: annotate(raw, {BEING_CREATED: None}))

    async def _create(self, content: Raw, volume: str) -> Raw:
        name = nested(content, "spec", "volumeSnapshotClassName", default="")
        found = self._context.find(SNAPSHOT_CLASS, name)
        parameters = nested(found, "parameters", default={}) or {}
        request = {
            "source_volume_id": volume,
            "name": f"snapshot-{nested(content, 'spec', 'volumeSnapshotRef', 'uid')}",
            "parameters": {
                key: str(text)
                for key, text in parameters.items()
                if not key.startswith("csi.storage.k8s.io/")
            },
        }
        made: Raw = (await self._driver.call("CreateSnapshot", request))["snapshot"]
        return made

    async def _read(self, handle: str) -> Raw:
        """A snapshot that was there before. Raises NotYet."""
        if not self._driver.can("LIST_SNAPSHOTS"):
            return {"snapshot_id": handle, "ready_to_use": True}
        page = await self._driver.call("ListSnapshots", {"snapshot_id": handle})
        for one in objects_at(page, "entries"):
            return dict(one["snapshot"])
        raise NotYet(f"can not find snapshot for snapshotID {handle}")

    async def _fail(self, content: Raw, error: Exception) -> None:
        why = f"Failed to check and update snapshot content: failed to take snapshot of the volume: {error}"
        if nested(content, "status", "error", "message") != why:
            failure = {"message": why, "time": format_time(self._context.now())}

            def edit(raw: Raw) -> None:
                raw["status"] = {**(raw.get("status") or {}), "readyToUse": False, "error": failure}

            await self._context.update(SNAPSHOT_CONTENT, content, edit, "status")
        if not (isinstance(error, CsiFailed) and error.code in _MAY_HAVE_HAPPENED):
            await self._context.update(
                SNAPSHOT_CONTENT, content, lambda raw: annotate(raw, {BEING_CREATED: None})
            )

    async def _delete(self, content: Raw) -> None:
        """What the content stands for, unless its policy is to keep it; then let the content go."""
        context, marks = self._context, annotations_of(content)
        if BEING_CREATED in marks and nested(content, "spec", "source", "volumeHandle"):
            # It may have been taken: only the same call tells its handle.
            with_handle = await self._create(content, str(nested(content, "spec", "source", "volumeHandle")))
            handle = str(with_handle["snapshot_id"])
        else:
            handle = str(nested(content, "status", "snapshotHandle", default=""))
        if handle and nested(content, "spec", "deletionPolicy") == "Delete" and BEING_DELETED in marks:
            await self._driver.call("DeleteSnapshot", {"snapshot_id": handle})
        await context.update(SNAPSHOT_CONTENT, content, lambda raw: annotate(raw, {BEING_CREATED: None}))
        await context.update(SNAPSHOT_CONTENT, content, remove_finalizer(CONTENT_FINALIZER))


def _set_class(name: str) -> Edit:
    def edit(raw: Raw) -> None:
        raw["spec"]["volumeSnapshotClassName"] = name

    return edit


def _reference(snapshot: Raw) -> Raw:
    return {
        "apiVersion": kinds.SNAPSHOT.api_version,
        "kind": kinds.SNAPSHOT.kind,
        "namespace": namespace_of(snapshot),
        "name": name_of(snapshot),
        "uid": uid_of(snapshot),
    }


def _is_for_another(content: Raw, snapshot: Raw) -> bool:
    named = nested(content, "spec", "volumeSnapshotRef", default={})
    same = (named.get("namespace"), named.get("name")) == key_of(snapshot)
    return not same or named.get("uid") not in (None, "", uid_of(snapshot))


def _meaning(snapshot: Raw) -> Hashable:
    return uid_of(snapshot), is_deleting(snapshot), nested(snapshot, "spec", "volumeSnapshotClassName")


def _content_meaning(content: Raw) -> Hashable:
    is_ready = bool(nested(content, "status", "readyToUse"))
    return uid_of(content), is_deleting(content), is_ready, BEING_DELETED in annotations_of(content)


def _nanoseconds(snapshot: Raw, now: float) -> int:
    """When the snapshot was taken, as contents say it."""
    stamp = snapshot.get("creation_time") or {}
    return int(stamp.get("seconds") or int(now)) * 10**9 + int(stamp.get("nanos") or 0)


def _stamp(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds // 10**9, UTC))
