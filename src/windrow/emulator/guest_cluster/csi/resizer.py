"""csi-resizer: expands the volumes of claims that ask for more than they have."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.csi.capabilities import (
    print_bytes,
    render_volume_capability,
    storage_bytes,
)
from windrow.emulator.guest_cluster.csi.context import Driver, StorageContext
from windrow.emulator.guest_cluster.csi.kinds import PV
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.csi.workers import NotYet, Workers
from windrow.emulator.kit.edits import Edit
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, is_deleting, nested, uid_of
from windrow.kubernetes.resources import PVC

RESIZING, PENDING = "Resizing", "FileSystemResizePending"


class Resizer:
    def __init__(self, context: StorageContext, driver: Driver) -> None:
        self._context, self._driver = context, driver
        self._claims = Workers("csi-resizer", context.guest, context.cluster, self._sync)
        context.on_change(PVC, self._on_claim)

    async def run(self) -> None:
        if self._driver.can("EXPAND_VOLUME"):
            await self._claims.run()

    def _on_claim(self, key: Key, claim: Raw | None, last: Raw) -> None:
        self._claims.on_change(key, None if claim is None else _meaning(claim))

    async def _sync(self, key: Key) -> None:
        context = self._context
        claim = context.informers[PVC].get(key)
        if claim is None or is_deleting(claim) or nested(claim, "status", "phase") != "Bound":
            return
        volume = context.find(PV, nested(claim, "spec", "volumeName", default=""))
        wanted = storage_bytes(claim, "spec", "resources", "requests")
        if wanted <= storage_bytes(claim, "status", "capacity") or volume is None:
            return
        if nested(volume, "spec", "csi", "driver") != self._driver.name or _waits_for_node(claim, wanted):
            return
        name = str(nested(claim, "spec", "volumeName"))
        await context.update(
            PVC, claim, self._set_progress(RESIZING, wanted, "ControllerResizeInProgress"), "status"
        )
        await context.record(claim, "Resizing", f"External resizer is resizing volume {name}")
        try:
            needs_node = await self._expand(volume, wanted)
        except (CsiFailed, NotYet) as error:
            await context.record(
                claim, "VolumeResizeFailed", f'resize volume "{name}" failed: {error}', "Warning"
            )
            raise
        if needs_node:
            await context.update(
                PVC, claim, self._set_progress(PENDING, wanted, "NodeResizePending"), "status"
            )
            why = "Require file system resize of volume on node"
            await context.record(claim, "FileSystemResizeRequired", why)
            return
        await context.update(PVC, claim, _set_done(wanted), "status")
        await context.record(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _expand(self, volume: Raw, wanted: int) -> bool:
        """Expand on Harvester, and write the new capacity; whether the node has to act as well. Raises CsiFailed."""
        found = await self._driver.call(
            "ControllerExpandVolume",
            {
                "volume_id": nested(volume, "spec", "csi", "volumeHandle"),
                "capacity_range": {"required_bytes": wanted},
                "volume_capability": render_volume_capability(volume, multi_writer=self._driver.multi_writer),
            },
        )
        size = int(found.get("capacity_bytes") or wanted)
        await self._context.update(PV, volume, _set_capacity(size))
        return bool(found.get("node_expansion_required"))

    def _set_progress(self, condition: str, wanted: int, step: str) -> Edit:
        now = format_time(self._context.now())

        def edit(raw: Raw) -> None:
            status = raw.setdefault("status", {})
            others = [one for one in status.get("conditions") or () if one["type"] not in (RESIZING, PENDING)]
            message = {
                "message": "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
            }
            made = {"type": condition, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
            status["conditions"] = [*others, {**made, **(message if condition == PENDING else {})}]
            status["allocatedResources"] = {"storage": print_bytes(wanted)}
            status["allocatedResourceStatuses"] = {"storage": step}

        return edit


def _waits_for_node(claim: Raw, wanted: int) -> bool:
    """Whether the volume is expanded to this size already, and its node has to act."""
    step = nested(claim, "status", "allocatedResourceStatuses", "storage", default="")
    return step.startswith("Node") and storage_bytes(claim, "status", "allocatedResources") >= wanted


def _set_capacity(size: int) -> Callable[[Raw], None]:
    def edit(raw: Raw) -> None:
        if storage_bytes(raw, "spec", "capacity") < size:
            raw["spec"]["capacity"] = {**raw["spec"]["capacity"], "storage": print_bytes(size)}

    return edit


def _set_done(size: int) -> Edit:
    def edit(raw: Raw) -> None:
        status = raw["status"]
        status["capacity"] = {**status.get("capacity", {}), "storage": print_bytes(size)}
        kept = [one for one in status.get("conditions") or () if one["type"] not in (RESIZING, PENDING)]
        status["conditions"] = kept
        for field in ("conditions", "allocatedResourceStatuses"):
            if field != "conditions" or not kept:
                status.pop(field, None)

    return edit


def _meaning(claim: Raw) -> Hashable:
    asked = nested(claim, "spec", "resources", "requests", "storage")
    return uid_of(claim), is_deleting(claim), asked, nested(claim, "status", "phase")
