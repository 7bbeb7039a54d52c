"""VolumeSnapshots of a Harvester: the snapshot controller and the side-car of the hosts' storage, in one.

A snapshot of a claim gets a VolumeSnapshotContent, then, after its delay, is ready to use; one that names a content is bound
to it. Its data is kept by the uid of the content, and goes with the content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from windrow.core.clock import format_time
from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import add_finalizers, remove_finalizer
from windrow.emulator.kit.listers import Key, Listers
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    uid_of,
)
from windrow.kubernetes.resources import ref_of

PROTECTION = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
DEFAULT_CLASS = "snapshot.storage.kubernetes.io/is-default-class"

CopyDisk = Callable[[str, str], None]


class UnusableSource(ValueError):
    """The snapshot cannot be taken; the message is that of `status.error`."""


def find_class(snapshot: Raw, driver: str, classes: Mapping[Key, Raw]) -> Raw:
    """The class that the snapshot names, else the default one of the driver. Raises UnusableSource."""
    name = nested(snapshot, "spec", "volumeSnapshotClassName")
    if name:
        found = classes.get(("", str(name)))
        if found is None:
            raise UnusableSource(
                f'Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io "{name}" not found'
            )
        if found.get("driver") != driver:
            raise UnusableSource(
                f"Failed to take snapshot: class {name} is of {found.get('driver')}, and the volume of {driver}"
            )
        return found
    for raw in classes.values():
        if annotations_of(raw).get(DEFAULT_CLASS) == "true" and raw.get("driver") == driver:
            return raw
    raise UnusableSource("Failed to set default snapshot class with error cannot find default snapshot class")


def render_content(snapshot: Raw, snapshot_class: Raw, handle: str) -> Raw:
    """The content of a new snapshot of the volume with this handle."""
    name = f"snapcontent-{uid_of(snapshot)}"
    return new_object(
        kinds.SNAPSHOT_CONTENT,
        name,
        finalizers=["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"],
        spec={
            "deletionPolicy": snapshot_class.get("deletionPolicy", "Delete"),
            "driver": snapshot_class["driver"],
            "source": {"volumeHandle": handle},
            "volumeSnapshotClassName": name_of(snapshot_class),
            "volumeSnapshotRef": reference(snapshot),
        },
    )


def reference(snapshot: Raw) -> Raw:
    """What a content says of its snapshot."""
    return {
        "apiVersion": kinds.SNAPSHOT.api_version,
        "kind": kinds.SNAPSHOT.kind,
        "namespace": namespace_of(snapshot),
        "name": name_of(snapshot),
        "uid": uid_of(snapshot),
    }


class SnapshotController:
    """The controller of VolumeSnapshots. `copy_disk` copies data by uid, `delete_disk` deletes it."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        clock: ScaledClock,
        delays: Delays,
        copy_disk: CopyDisk,
        delete_disk: Callable[[str], None],
    ) -> None:
        self._client = client
        self._listers = listers
        self._clock = clock
        self._delays = delays
        self._copy_disk = copy_disk
        self._delete_disk = delete_disk
        self._timers = StepTimers(clock)

    async def reconcile(self, key: Key) -> timedelta | None:
        snapshot = await self._client.find(kinds.SNAPSHOT.ref(key[1], key[0]))
        if snapshot is None:
            return None
        if is_deleting(snapshot):
            await self._remove(snapshot)
            return None
        if nested(snapshot, "status", "readyToUse"):
            return None
        await self._client.mutate(ref_of(kinds.SNAPSHOT, snapshot), add_finalizers(PROTECTION))
        if named := nested(snapshot, "spec", "source", "volumeSnapshotContentName"):
            return await self._bind(snapshot, str(named))
        try:
            return await self._take(snapshot)
        except UnusableSource as error:
            failed = {"message": str(error), "time": format_time(self._clock.now())}
            if nested(snapshot, "status", "error", "message") != str(error):
                await self._set_status(snapshot, {"readyToUse": False, "error": failed})
            return self._clock.after(self._delays.claim_retry)

    async def _bind(self, snapshot: Raw, named: str) -> timedelta | None:
        """To a content that was there before."""
        content = await self._client.find(kinds.SNAPSHOT_CONTENT.ref(named))
        if content is None or not nested(content, "status", "readyToUse"):
            return self._clock.after(self._delays.claim_retry)
        ref = ref_of(kinds.SNAPSHOT_CONTENT, content)
        await self._client.mutate(ref, lambda raw: raw["spec"].update(volumeSnapshotRef=reference(snapshot)))
        await self._set_ready(snapshot, content)
        return None

    async def _take(self, snapshot: Raw) -> timedelta | None:
        claim, volume = self._source(snapshot)
        driver, handle = (str(nested(volume, "spec", "csi", field)) for field in ("driver", "volumeHandle"))
        chosen = find_class(snapshot, driver, self._listers.snapshot_classes)
        content = await self._client.ensure(kinds.SNAPSHOT_CONTENT, render_content(snapshot, chosen, handle))
        bound: Raw = {"boundVolumeSnapshotContentName": name_of(content), "readyToUse": False}
        if nested(snapshot, "status", "boundVolumeSnapshotContentName") != name_of(content):
            await self._set_status(snapshot, bound)
            self._copy_disk(uid_of(claim), uid_of(content))
        if due := self._timers.due(uid_of(snapshot), "take", self._delays.volume_snapshot):
            return due
        size = nested(claim, "status", "capacity", "storage")
        status = {
            "snapshotHandle": f"snap://{handle}/snapshot-{uid_of(snapshot)}",
            "creationTime": int(self._clock.now().timestamp()) * 10**9,
            "readyToUse": True,
            "restoreSize": bytes_of(size),
        }
        ref = ref_of(kinds.SNAPSHOT_CONTENT, content)
        content = await self._client.mutate(ref, lambda raw: raw.update(status=status), "status") or content
        await self._set_ready(snapshot, content, size)
        self._timers.forget(uid_of(snapshot))
        return None

    def _source(self, snapshot: Raw) -> tuple[Raw, Raw]:
        """The claim and its volume. Raises UnusableSource."""
        name = str(nested(snapshot, "spec", "source", "persistentVolumeClaimName", default=""))
        claim = self._listers.claims.get((namespace_of(snapshot), name))
        volume = self._listers.volumes.get(("", nested(claim, "spec", "volumeName", default="")))
        if claim is None or volume is None or nested(claim, "status", "phase") != "Bound":
            why = (
                f'persistentvolumeclaim "{name}" not found'
                if claim is None
                else f"the PVC {name} is not yet bound to a PV"
            )
            raise UnusableSource(
                f"Failed to create snapshot content with error {why}, will not attempt to take a snapshot"
            )
        return claim, volume

    async def _set_ready(self, snapshot: Raw, content: Raw, size: object = None) -> None:
        restore_size = nested(content, "status", "restoreSize", default=0)
        await self._set_status(
            snapshot,
            {
                "boundVolumeSnapshotContentName": name_of(content),
                "creationTime": format_time(self._clock.now()),
                "readyToUse": True,
                "restoreSize": size or str(restore_size),
            },
        )

    async def _set_status(self, snapshot: Raw, status: Raw) -> None:
        ref = ref_of(kinds.SNAPSHOT, snapshot)
        await self._client.mutate(ref, lambda raw: raw.update(status=status), "status")

    async def _remove(self, snapshot: Raw) -> None:
        """With its content, unless that is to be kept."""
        name = nested(snapshot, "status", "boundVolumeSnapshotContentName", default="")
        content = await self._client.find(kinds.SNAPSHOT_CONTENT.ref(name)) if name else None
        if content is not None and nested(content, "spec", "deletionPolicy") == "Delete":
            await self._client.delete(kinds.SNAPSHOT_CONTENT, content)
            for finalizer in content["metadata"].get("finalizers") or ():
                await self._client.mutate(
                    ref_of(kinds.SNAPSHOT_CONTENT, content), remove_finalizer(finalizer)
                )
            self._delete_disk(uid_of(content))
        await self._client.mutate(ref_of(kinds.SNAPSHOT, snapshot), remove_finalizer(PROTECTION))


def bytes_of(size: object) -> int:
    """The bytes of a quantity; 0 for what is none."""
    return int(quantity_or_zero(size))
