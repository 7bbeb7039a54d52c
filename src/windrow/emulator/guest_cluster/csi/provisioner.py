"""csi-provisioner: makes the volumes of claims, and deletes those that were released.

A claim whose call may have had an effect is followed up although it was deleted meanwhile: its volume is made, is Released
at once, and is then deleted. So no volume stays behind that no object names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping

from windrow.emulator import names
from windrow.emulator.guest_cluster.csi.capabilities import print_bytes, render_capability, storage_bytes
from windrow.emulator.guest_cluster.csi.context import Driver, StorageContext
from windrow.emulator.guest_cluster.csi.kinds import (
    PROVISIONED_BY,
    PV,
    PV_PROTECTION,
    SNAPSHOT,
    SNAPSHOT_CONTENT,
)
from windrow.emulator.guest_cluster.csi.persistent_volumes import claim_reference
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.csi.workers import NotYet, Workers
from windrow.emulator.kit.edits import add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.listers import Key
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
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, VOLUME_ATTACHMENT

FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
CLONING = "provisioner.storage.kubernetes.io/cloning-protection"
IDENTITY = "storage.kubernetes.io/csiProvisionerIdentity"
DEFAULT_FS_TYPE = "ext4"  # the chart's --default-fstype
_RESERVED = "csi.storage.k8s.io/"
_DELETION_SECRET = ("name", "namespace")
# After these the volume may have been made, or still be in the making.
MAY_HAVE_HAPPENED = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"}
)


class Provisioner:
    def __init__(
        self, context: StorageContext, driver: Driver, identity: str, *, extra_metadata: bool
    ) -> None:
        """`extra_metadata` is the flag --extra-create-metadata."""
        self._context, self._driver, self._identity = context, driver, identity
        self._extra_metadata = extra_metadata
        guest, cluster = context.guest, context.cluster
        self._claims = Workers("csi-provisioner", guest, cluster, self._sync_claim, limit=100)
        self._volumes = Workers("csi-provisioner", guest, cluster, self._sync_volume, limit=100)
        self._in_progress: dict[Key, Raw] = {}
        context.on_change(PVC, self._on_claim)
        context.on_change(PV, self._on_volume)
        context.on_change(VOLUME_ATTACHMENT, self._on_attachment)
        if SNAPSHOT in context.informers:
            context.on_change(SNAPSHOT, self._on_snapshot)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claims.run())
            group.create_task(self._volumes.run())

    def _on_claim(self, key: Key, claim: Raw | None, last: Raw) -> None:
        self._claims.on_change(key, None if claim is None else _claim_meaning(claim))

    def _on_volume(self, key: Key, volume: Raw | None, last: Raw) -> None:
        self._volumes.on_change(key, None if volume is None else _volume_meaning(volume))

    def _on_attachment(self, key: Key, attachment: Raw | None, last: Raw) -> None:
        if attachment is None:
            self._volumes.add(("", str(nested(last, "spec", "source", "persistentVolumeName"))))

    def _on_snapshot(self, key: Key, snapshot: Raw | None, last: Raw) -> None:
        for claim in self._context.informers[PVC].values():
            source = nested(claim, "spec", "dataSource", default={})
            if (namespace_of(claim), source.get("name")) == key and not nested(claim, "spec", "volumeName"):
                self._claims.add((namespace_of(claim), name_of(claim)))

    # -- claims

    async def _sync_claim(self, key: Key) -> None:
        context = self._context
        claim = context.informers[PVC].get(key)
        started = self._in_progress.get(key)
        if started is not None and (claim is None or uid_of(claim) != uid_of(started)):
            claim = started  # deleted meanwhile
        elif claim is None or not self._is_ours(claim):
            return
        volume = f"pvc-{uid_of(claim)}"
        if await context.client().find(PV.ref(volume)) is not None:
            self._in_progress.pop(key, None)
            return
        name = str(nested(claim, "spec", "storageClassName", default=""))
        storage_class = await context.client().find(STORAGE_CLASS.ref(name))
        if storage_class is None:
            raise NotYet(f'storageclass.storage.k8s.io "{name}" not found')
        why = f'External provisioner is provisioning volume for claim "{"/".join(key)}"'
        await context.record(claim, "Provisioning", why)
        try:
            made = await self._create(claim, storage_class, volume)
        except (CsiFailed, NotYet) as error:
            await self._on_failure(key, claim, name, error)
            raise
        await context.create(PV, made)
        self._in_progress.pop(key, None)
        await context.record(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {volume}")
        await self._end_cloning(claim)

    def _is_ours(self, claim: Raw) -> bool:
        marks = annotations_of(claim)
        is_asked = self._driver.name in (marks.get(one) for one in names.PROVISIONERS)
        return is_asked and not nested(claim, "spec", "volumeName") and not is_deleting(claim)

    async def _create(self, claim: Raw, storage_class: Raw, name: str) -> Raw:
        """The PersistentVolume of what the driver made. Raises CsiFailed, NotYet."""
        size = storage_bytes(claim, "spec", "resources", "requests")
        request = self._render_request(claim, storage_class, name, size)
        if source := await self._find_source(claim):
            request["volume_content_source"] = source
        found = (await self._driver.call("CreateVolume", request))["volume"]
        capacity = int(found.get("capacity_bytes") or size)
        if capacity < size:
            message = f"created volume capacity {capacity} less than requested capacity {size}"
            raise CsiFailed("INTERNAL", message)
        return self._render_volume(claim, storage_class, name, found, capacity)

    def _render_request(self, claim: Raw, storage_class: Raw, name: str, size: int) -> Raw:
        parameters = storage_class.get("parameters") or {}
        passed = {key: str(text) for key, text in parameters.items() if not key.startswith(_RESERVED)}
        if self._extra_metadata:
            passed |= {
                f"{_RESERVED}pvc/name": name_of(claim),
                f"{_RESERVED}pvc/namespace": namespace_of(claim),
                f"{_RESERVED}pv/name": name,
            }
        fs_type, mode = _fs_type(claim, parameters), _volume_mode(claim)
        flags, multi_writer = storage_class.get("mountOptions") or (), self._driver.multi_writer
        return {
            "name": name,
            "capacity_range": {"required_bytes": size},
            "parameters": passed,
            "volume_capabilities": [
                render_capability(one, mode, fs_type, flags, multi_writer=multi_writer)
                for one in nested(claim, "spec", "accessModes", default=[])
            ],
        }

    async def _find_source(self, claim: Raw) -> Raw | None:
        """What the volume is made from. Raises NotYet."""
        source = nested(claim, "spec", "dataSource") or nested(claim, "spec", "dataSourceRef")
        if not source:
            return None
        if source.get("kind") == SNAPSHOT.kind:
            return {"snapshot": {"snapshot_id": await self._find_snapshot(claim, str(source["name"]))}}
        return {"volume": {"volume_id": await self._find_original(claim, str(source["name"]))}}

    async def _find_snapshot(self, claim: Raw, name: str) -> str:
        """The handle of a snapshot that is ready. Raises NotYet."""
        context, namespace = self._context, namespace_of(claim)
        snapshot = await context.client().find(SNAPSHOT.ref(name, namespace))
        if snapshot is None:
            raise NotYet(f'error getting snapshot {name} from api server: volumesnapshot "{name}" not found')
        if is_deleting(snapshot):
            raise NotYet(f"snapshot {name} is currently being deleted")
        bound = nested(snapshot, "status", "boundVolumeSnapshotContentName")
        content = await context.client().find(SNAPSHOT_CONTENT.ref(str(bound))) if bound else None
        if content is None or not nested(snapshot, "status", "readyToUse"):
            raise NotYet(f"snapshot {name} is not Ready")
        if nested(content, "spec", "driver") != self._driver.name:
            raise NotYet(f"snapshot {name} is of another driver")
        size = int(nested(content, "status", "restoreSize", default=0))
        if storage_bytes(claim, "spec", "resources", "requests") < size:
            raise NotYet(f"requested volume size is less than the size {size} for the source snapshot {name}")
        return str(nested(content, "status", "snapshotHandle"))

    async def _find_original(self, claim: Raw, name: str) -> str:
        """The handle of the volume of a claim that is to be cloned. Raises NotYet."""
        context, namespace = self._context, namespace_of(claim)
        if not self._driver.can("CLONE_VOLUME"):
            raise NotYet("CSI driver does not support clone operations")
        original = await context.client().find(PVC.ref(name, namespace))
        if original is None:
            raise NotYet(f'error getting PVC {name} (namespace "{namespace}") from api server')
        if is_deleting(original):
            raise NotYet(f"the PVC DataSource {name} is currently being deleted")
        volume = await context.client().find(PV.ref(str(nested(original, "spec", "volumeName", default=""))))
        if volume is None or nested(original, "status", "phase") != "Bound":
            raise NotYet(f"the PVC DataSource {name} must have status bound")
        if nested(volume, "spec", "csi", "driver") != self._driver.name:
            raise NotYet(f"the source volume of {name} is of another driver")
        size = storage_bytes(original, "status", "capacity")
        if storage_bytes(claim, "spec", "resources", "requests") < size:
            raise NotYet(f"new PVC request must be greater than or equal in size to the specified PVC {name}")
        await context.update(PVC, original, add_finalizers(CLONING))
        return str(nested(volume, "spec", "csi", "volumeHandle"))

    async def _end_cloning(self, claim: Raw) -> None:
        """The original may be deleted once no claim is being cloned from it."""
        source = nested(claim, "spec", "dataSource", default={}) or {}
        if source.get("kind") != PVC.kind:
            return
        others = self._context.informers[PVC].values()
        if any(_clones(one, claim) and uid_of(one) != uid_of(claim) for one in others):
            return
        original = await self._context.client().find(PVC.ref(source["name"], namespace_of(claim)))
        if original is not None:
            await self._context.update(PVC, original, remove_finalizer(CLONING))

    def _render_volume(self, claim: Raw, storage_class: Raw, name: str, made: Raw, capacity: int) -> Raw:
        fs_type = _fs_type(claim, storage_class.get("parameters") or {})
        attributes = {**(made.get("volume_context") or {}), IDENTITY: self._identity}
        source: Raw = {
            "driver": self._driver.name,
            "volumeHandle": made["volume_id"],
            "volumeAttributes": attributes,
        }
        spec: Raw = {
            "accessModes": list(nested(claim, "spec", "accessModes", default=[])),
            "capacity": {"storage": print_bytes(capacity)},
            "claimRef": claim_reference(claim),
            "csi": {**source, **({"fsType": fs_type} if fs_type else {})},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": name_of(storage_class),
            "volumeMode": _volume_mode(claim),
        }
        if options := storage_class.get("mountOptions"):
            spec["mountOptions"] = list(options)
        if segments := _segments(made):
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": segments}}
        marks = {f"volume.kubernetes.io/provisioner-deletion-secret-{one}": "" for one in _DELETION_SECRET}
        return new_object(
            PV,
            name,
            annotations={PROVISIONED_BY: self._driver.name, **marks},
            finalizers=[PV_PROTECTION, FINALIZER],
            spec=spec,
        )

    async def _on_failure(self, key: Key, claim: Raw, class_name: str, error: Exception) -> None:
        context = self._context
        why = f'failed to provision volume with StorageClass "{class_name}": {error}'
        await context.record(claim, "ProvisioningFailed", why, "Warning")
        may_have_happened = isinstance(error, CsiFailed) and error.code in MAY_HAVE_HAPPENED
        if may_have_happened:
            self._in_progress[key] = claim
        elif isinstance(error, CsiFailed):
            self._in_progress.pop(key, None)
        is_full = isinstance(error, CsiFailed) and error.code == "RESOURCE_EXHAUSTED"
        if (is_full or not may_have_happened) and names.SELECTED_NODE in annotations_of(claim):
            # The scheduler chooses again.
            await context.update(PVC, claim, lambda raw: annotate(raw, {names.SELECTED_NODE: None}))

    # -- volumes

    async def _sync_volume(self, key: Key) -> None:
        volume = self._context.informers[PV].get(key)
        if volume is None or not self._may_delete(volume):
            return
        attached = [
            str(nested(one, "spec", "nodeName"))
            for one in self._context.informers[VOLUME_ATTACHMENT].values()
            if nested(one, "spec", "source", "persistentVolumeName") == name_of(volume)
        ]
        try:
            if attached:
                raise NotYet(f"persistentvolume {name_of(volume)} is still attached to node {attached[0]}")
            await self._driver.call(
                "DeleteVolume", {"volume_id": nested(volume, "spec", "csi", "volumeHandle")}
            )
        except (CsiFailed, NotYet) as error:
            await self._context.record(volume, "VolumeFailedDelete", str(error), "Warning")
            raise
        await self._context.update(PV, volume, remove_finalizer(FINALIZER))
        await self._context.delete(PV, volume)

    def _may_delete(self, volume: Raw) -> bool:
        is_ours = annotations_of(volume).get(PROVISIONED_BY) == self._driver.name
        is_delete = nested(volume, "spec", "persistentVolumeReclaimPolicy") == "Delete"
        is_done = is_deleting(volume) and FINALIZER not in finalizers_of(volume)
        return is_ours and is_delete and not is_done and nested(volume, "status", "phase") == "Released"


def _claim_meaning(claim: Raw) -> Hashable:
    marks = annotations_of(claim)
    asked = tuple(marks.get(one) for one in (*names.PROVISIONERS, names.SELECTED_NODE))
    return uid_of(claim), is_deleting(claim), nested(claim, "spec", "volumeName"), asked


def _volume_meaning(volume: Raw) -> Hashable:
    policy = nested(volume, "spec", "persistentVolumeReclaimPolicy")
    return uid_of(volume), is_deleting(volume), nested(volume, "status", "phase"), policy


def _volume_mode(claim: Raw) -> str:
    return str(nested(claim, "spec", "volumeMode", default="Filesystem"))


def _fs_type(claim: Raw, parameters: Mapping[str, object]) -> str:
    if _volume_mode(claim) == "Block":
        return ""
    return str(parameters.get(f"{_RESERVED}fstype") or DEFAULT_FS_TYPE)


def _segments(made: Raw) -> list[Raw]:
    """The node selector of where the volume is accessible."""
    return [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [text]}
                for key, text in sorted((one.get("segments") or {}).items())
            ]
        }
        for one in objects_at(made, "accessible_topology")
    ]


def _clones(one: Raw, claim: Raw) -> bool:
    """Whether this claim waits for a clone of the same original."""
    source, same = nested(one, "spec", "dataSource", default={}) or {}, nested(claim, "spec", "dataSource")
    return (
        namespace_of(one) == namespace_of(claim) and source == same and not nested(one, "spec", "volumeName")
    )
