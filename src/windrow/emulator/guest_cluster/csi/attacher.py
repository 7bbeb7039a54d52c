"""csi-attacher: carries out VolumeAttachments, and compares them with what the driver says is published.

What is written: finalizers of VolumeAttachments and PersistentVolumes, and `status` of VolumeAttachments. Both are made and
deleted by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.csi.capabilities import render_volume_capability
from windrow.emulator.guest_cluster.csi.context import Driver, StorageContext
from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE, PV
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.csi.workers import NotYet, Workers
from windrow.emulator.kit.edits import Edit, add_finalizers, annotate, remove_finalizer
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    name_of,
    nested,
    objects_at,
    uid_of,
)
from windrow.kubernetes.resources import VOLUME_ATTACHMENT

NODE_ID = "csi.alpha.kubernetes.io/node-id"
RECONCILE_S = 60.0  # the default of --reconcile-sync


def finalizer_name(driver: str) -> str:
    return "external-attacher/" + "".join(one if one.isalnum() else "-" for one in driver)


class Attacher:
    def __init__(self, context: StorageContext, driver: Driver) -> None:
        self._context, self._driver = context, driver
        self._finalizer = finalizer_name(driver.name)
        guest, cluster = context.guest, context.cluster
        self._attachments = Workers("csi-attacher", guest, cluster, self._sync)
        self._volumes = Workers("csi-attacher", guest, cluster, self._sync_volume)
        self._resync: set[str] = set()  # uids of attachments that the driver does not report as they are
        context.on_change(VOLUME_ATTACHMENT, self._on_attachment)
        context.on_change(PV, self._on_volume)
        context.on_change(CSI_NODE, self._on_node)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._attachments.run())
            group.create_task(self._volumes.run())
            if self._driver.can("LIST_VOLUMES_PUBLISHED_NODES"):
                group.create_task(self._compare_for_ever())

    def _on_attachment(self, key: Key, attachment: Raw | None, last: Raw) -> None:
        self._attachments.on_change(key, None if attachment is None else _meaning(attachment))
        if attachment is None:
            self._volumes.add(("", _volume_of(last)))

    def _on_volume(self, key: Key, volume: Raw | None, last: Raw) -> None:
        self._volumes.on_change(key, None if volume is None else (uid_of(volume), is_deleting(volume)))

    def _on_node(self, key: Key, node: Raw | None, last: Raw) -> None:
        for one in self._context.informers[VOLUME_ATTACHMENT].values():
            if nested(one, "spec", "nodeName") == key[1] and not nested(one, "status", "attached"):
                self._attachments.add(key_of(one))

    async def _sync(self, key: Key) -> None:
        attachment = self._context.informers[VOLUME_ATTACHMENT].get(key)
        if attachment is None or nested(attachment, "spec", "attacher") != self._driver.name:
            return
        is_forced = uid_of(attachment) in self._resync
        self._resync.discard(uid_of(attachment))
        if is_deleting(attachment):
            if self._finalizer in finalizers_of(attachment):
                await self._detach(attachment)
        elif is_forced or not nested(attachment, "status", "attached"):
            await self._attach(attachment)

    async def _attach(self, attachment: Raw) -> None:
        context = self._context
        try:
            volume = context.find(PV, _volume_of(attachment))
            if volume is None:
                raise NotYet(f'could not get PersistentVolume "{_volume_of(attachment)}"')
            if is_deleting(volume):
                raise NotYet(f"PersistentVolume {name_of(volume)} is marked for deletion")
            node_id = self._node_id(attachment)
            await context.update(PV, volume, add_finalizers(self._finalizer))

            def mark(raw: Raw) -> None:
                add_finalizers(self._finalizer)(raw)
                annotate(raw, {NODE_ID: node_id})

            await context.update(VOLUME_ATTACHMENT, attachment, mark)
            found = await self._driver.call(
                "ControllerPublishVolume",
                {
                    "volume_id": nested(volume, "spec", "csi", "volumeHandle"),
                    "node_id": node_id,
                    "volume_capability": render_volume_capability(
                        volume, multi_writer=self._driver.multi_writer
                    ),
                    "readonly": bool(nested(volume, "spec", "csi", "readOnly", default=False)),
                    "volume_context": dict(nested(volume, "spec", "csi", "volumeAttributes", default={})),
                },
            )
        except (CsiFailed, NotYet) as error:
            await context.update(VOLUME_ATTACHMENT, attachment, self._failed("attachError", error), "status")
            raise
        status: Raw = {"attached": True}
        if metadata := found.get("publish_context"):
            status["attachmentMetadata"] = metadata
        await context.update(VOLUME_ATTACHMENT, attachment, lambda raw: raw.update(status=status), "status")

    async def _detach(self, attachment: Raw) -> None:
        context = self._context
        try:
            volume = await context.client().find(PV.ref(_volume_of(attachment)))
            if volume is None:
                raise NotYet(f'could not get PersistentVolume "{_volume_of(attachment)}"')
            await self._driver.call(
                "ControllerUnpublishVolume",
                {
                    "volume_id": nested(volume, "spec", "csi", "volumeHandle"),
                    "node_id": self._node_id(attachment),
                },
            )
        except (CsiFailed, NotYet) as error:
            await context.update(VOLUME_ATTACHMENT, attachment, self._failed("detachError", error), "status")
            raise
        await context.update(
            VOLUME_ATTACHMENT, attachment, lambda raw: raw.update(status={"attached": False}), "status"
        )
        await context.update(VOLUME_ATTACHMENT, attachment, remove_finalizer(self._finalizer))
        found = await context.client().find(VOLUME_ATTACHMENT.ref(name_of(attachment)))
        if found is None or uid_of(found) != uid_of(attachment):
            context.informers[VOLUME_ATTACHMENT].deleted(attachment)

    def _node_id(self, attachment: Raw) -> str:
        """The node's id: what the attachment was made with, else what its kubelet has registered. Raises NotYet."""
        if known := annotations_of(attachment).get(NODE_ID):
            return known
        name = str(nested(attachment, "spec", "nodeName"))
        registered = self._context.find(CSI_NODE, name)
        if registered is None:
            raise NotYet(f'csinode.storage.k8s.io "{name}" not found')
        for one in objects_at(registered, "spec", "drivers"):
            if one.get("name") == self._driver.name:
                return str(one["nodeID"])
        raise NotYet(f"CSINode {name} does not contain driver {self._driver.name}")

    def _failed(self, field: str, error: Exception) -> Edit:
        failure = {"message": str(error), "time": format_time(self._context.now())}

        def edit(raw: Raw) -> None:
            if nested(raw, "status", field, "message") != str(error):
                raw["status"] = {"attached": False, **(raw.get("status") or {}), field: failure}

        return edit

    async def _sync_volume(self, key: Key) -> None:
        """A deleted volume is kept until nothing is attached to it."""
        volume = self._context.informers[PV].get(key)
        if volume is None or not is_deleting(volume) or self._finalizer not in finalizers_of(volume):
            return
        attachments = await self._context.client().list(VOLUME_ATTACHMENT)
        if not any(_volume_of(one) == name_of(volume) for one in attachments):
            await self._context.update(PV, volume, remove_finalizer(self._finalizer))

    # -- comparison with the driver

    async def _compare_for_ever(self) -> None:
        while True:
            await self._context.guest.sleep(RECONCILE_S)
            if not self._context.informers[VOLUME_ATTACHMENT]:
                continue
            try:
                await self._compare()
            except CsiFailed as error:
                self._context.guest.log("csi-attacher", f"Failed to reconcile volume attachments: {error}")

    async def _compare(self) -> None:
        published = await self._list_published()
        for one in list(self._context.informers[VOLUME_ATTACHMENT].values()):
            volume = self._context.find(PV, _volume_of(one))
            handle, node = nested(volume, "spec", "csi", "volumeHandle"), annotations_of(one).get(NODE_ID)
            if nested(one, "spec", "attacher") != self._driver.name or handle not in published or not node:
                continue
            if bool(nested(one, "status", "attached")) != (node in published[handle]):
                self._resync.add(uid_of(one))
                self._attachments.add(key_of(one))

    async def _list_published(self) -> dict[str, list[str]]:
        """The nodes of each volume, as the driver lists them."""
        found: dict[str, list[str]] = {}
        token = ""
        while True:
            page = await self._driver.call("ListVolumes", {"starting_token": token} if token else {})
            for one in objects_at(page, "entries"):
                found[one["volume"]["volume_id"]] = list(
                    nested(one, "status", "published_node_ids", default=[])
                )
            token = str(page.get("next_token") or "")
            if not token:
                return found


def _meaning(attachment: Raw) -> Hashable:
    return uid_of(attachment), is_deleting(attachment), bool(nested(attachment, "status", "attached"))


def _volume_of(attachment: Raw) -> str:
    return str(nested(attachment, "spec", "source", "persistentVolumeName", default=""))
