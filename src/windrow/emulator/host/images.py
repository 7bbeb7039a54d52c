"""The VirtualMachineImage controller: StorageClass, download, ready; or failed, retried, given up (reference 05 §2.8).

The outcome of a download is an annotation of the image, so that kubectl can create one that fails:
`emulator.windrow.io/import` is `fails`, `stuck` or `done` (imported at once); `emulator.windrow.io/agent: "true"` is
an image with qemu-guest-agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windrow.core.clock import format_time
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import add_finalizers, remove_finalizer
from windrow.emulator.kit.listers import Key
from windrow.emulator.release import Release
from windrow.emulator.system import render_storage_class
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, labels_of, nested, uid_of
from windrow.kubernetes.resources import STORAGE_CLASS

IMPORT_OUTCOME = "emulator.windrow.io/import"
HAS_AGENT = "emulator.windrow.io/agent"
MISSING_MODULES = "emulator.windrow.io/missing-modules"  # comma list of kernel modules
IMPORTED_BY = "emulator.windrow.io/imported-by"  # the Harvester that imported it, before an upgrade
SIZE = "emulator.windrow.io/size"

FINALIZER = "wrangler.cattle.io/vm-image-controller"
PROGRESS_UPDATES = 5  # updates of progress during a download
DOWNLOAD_BYTES = 617 << 20
DISK_BYTES = 3584 << 20


def class_name(image: Mapping[str, Any], release: Release) -> str:
    """The StorageClass of an image. Before 1.8 images of one name in two namespaces share it; an image that such a
    Harvester imported keeps it after the upgrade."""
    imported_by = nested(image, "metadata", "annotations", IMPORTED_BY)
    made_by = Release.of(imported_by) if imported_by else release
    if release.names_image_classes_by_uid and made_by.names_image_classes_by_uid:
        return f"lh-{nested(image, 'metadata', 'uid')}"
    return f"longhorn-{nested(image, 'metadata', 'name')}"


def is_iso(image: Mapping[str, Any]) -> bool:
    """Whether the image is an ISO: by label, else by the suffix of URL or display name."""
    label = nested(image, "metadata", "labels", names.IMAGE_TYPE)
    if label:
        return bool(label == "iso")
    url = nested(image, "spec", "url", default="").split("?")[0]
    return bool((url or nested(image, "spec", "displayName", default="")).lower().endswith(".iso"))


def missing_modules(image: Raw | None) -> tuple[str, ...]:
    """Kernel modules that the image lacks."""
    text = annotations_of(image).get(MISSING_MODULES, "") if image is not None else ""
    return tuple(filter(None, text.split(",")))


def has_agent(image: Mapping[str, Any] | None) -> bool:
    return image is not None and annotations_of(image).get(HAS_AGENT) == "true"


@dataclass(frozen=True, slots=True)
class ImageState:
    """The status of an image at one instant, and when it changes next."""

    status: Raw
    requeue_at: timedelta | None = None


def plan_image(
    image: Raw,
    began: timedelta,
    elapsed: timedelta,
    now: datetime,
    clock: ScaledClock,
    delays: Delays,
    release: Release,
) -> ImageState:
    """The status of `image` at `now` (`elapsed` by the monotonic clock), when its present attempt began at `began`."""
    status: Raw = dict(image.get("status") or {})
    if status.get("progress") == 100 or _gave_up(status):
        return ImageState(status)
    status["storageClassName"] = class_name(image, release)
    status["appliedUrl"] = nested(image, "spec", "url", default="")
    status = _set_condition(status, "Initialized", "True", "", "", now)
    outcome = annotations_of(image).get(IMPORT_OUTCOME, "")
    due = began if outcome == "done" else clock.after(delays.image_import, began)
    if elapsed >= due and outcome in ("", "done"):
        return ImageState(_ready(image, status, now))
    if elapsed >= due and outcome == "fails":
        return _failed(image, status, elapsed, now, clock, delays)
    share = min(max((elapsed - began) / (due - began), 0.0), 1.0)
    # A stuck download stays at 33 %; a finished one at 99 until the backing image is ready.
    status["progress"] = 33 if outcome == "stuck" and share > 0.33 else min(int(share * 100), 99)
    status = _set_condition(status, "Imported", "Unknown", "Importing", "", now)
    if outcome == "stuck" and share > 0.33:
        return ImageState(status)
    step = clock.after(delays.image_import / PROGRESS_UPDATES, elapsed)
    return ImageState(status, min(step, due) if elapsed < due else None)


def _ready(image: Raw, status: Raw, now: datetime) -> Raw:
    size = int(annotations_of(image).get(SIZE, DOWNLOAD_BYTES))
    status = {
        **status,
        "progress": 100,
        "size": size,
        "virtualSize": size if is_iso(image) else max(DISK_BYTES, size),
    }
    return _set_condition(status, "Imported", "True", "Imported", "", now)


def _failed(
    image: Raw, status: Raw, elapsed: timedelta, now: datetime, clock: ScaledClock, delays: Delays
) -> ImageState:
    count = status.get("failed", 0) + 1
    limit = nested(image, "spec", "retry", default=3)
    why = "failed to download: Get " + repr(status["appliedUrl"]).replace("'", '"') + ": 404 Not Found"
    status = {**status, "failed": count, "lastFailedTime": format_time(now), "progress": 0}
    if count > limit:
        status = _set_condition(status, "RetryLimitExceeded", "True", "", f"failed due to error: {why}", now)
        status = _set_condition(status, "Initialized", "False", "", why, now)
        return ImageState(_set_condition(status, "Imported", "False", "ImportFailed", why, now))
    message = f"retry attempted {count}/{limit}, failed due to error: {why}"
    status = _set_condition(status, "RetryLimitExceeded", "False", "", message, now)
    return ImageState(status, clock.after(delays.image_retry, elapsed))


def _gave_up(status: Raw) -> bool:
    found = find_condition(status.get("conditions"), "RetryLimitExceeded")
    return found is not None and found.status == "True"


def _set_condition(status: Raw, type: str, truth: str, reason: str, message: str, now: datetime) -> Raw:
    """Wrangler's conditions: `lastUpdateTime` instead of a transition time, empty fields omitted."""
    condition: Raw = {"type": type, "status": truth}
    condition.update({key: value for key, value in (("reason", reason), ("message", message)) if value})
    kept = [raw for raw in status.get("conditions") or () if raw["type"] != type]
    before = next((raw for raw in status.get("conditions") or () if raw["type"] == type), None)
    if before is not None and {key: before.get(key) for key in condition} == condition:
        return status
    return {**status, "conditions": [*kept, {**condition, "lastUpdateTime": format_time(now)}]}


def render_class(image: Raw, release: Release) -> Raw:
    """The StorageClass of volumes that are copies of `image`."""
    uid = uid_of(image)
    own = nested(image, "spec", "storageClassParameters") or {}
    return render_storage_class(class_name(image, release), **{"backingImage": f"vmi-{uid}", **own})


def label_image(image: Raw) -> None:
    """The label by which images of one display name are found; a name that is no label value has none."""
    display = str(nested(image, "spec", "displayName", default=""))
    if len(display) <= 63 and _LABEL_VALUE.fullmatch(display):
        image["metadata"]["labels"] = {**labels_of(image), names.IMAGE_DISPLAY_NAME: display}


_LABEL_VALUE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class ImageController:
    """Imports images; an attempt that failed is repeated from its `requeue_at`."""

    def __init__(self, client: AdminClient, clock: ScaledClock, delays: Delays, release: Release) -> None:
        self._client = client
        self._release = release
        self._clock = clock
        self._delays = delays
        self._began: dict[str, timedelta] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = kinds.IMAGE.ref(key[1], key[0])
        image = await self._client.find(ref)
        if image is None:
            return None
        if is_deleting(image):
            await self._remove(image, key)
            return None
        now = self._clock.now()
        await self._client.mutate(ref, add_finalizers(FINALIZER))
        await self._client.mutate(ref, label_image)
        await self._client.ensure(STORAGE_CLASS, render_class(image, self._release))
        elapsed = self._clock.monotonic()
        began = self._began.setdefault(uid_of(image), elapsed)
        stage = plan_image(image, began, elapsed, now, self._clock, self._delays, self._release)
        failed_again = stage.status.get("failed", 0) > nested(image, "status", "failed", default=0)
        if failed_again and stage.requeue_at is not None:
            self._began[uid_of(image)] = stage.requeue_at
        await self._client.mutate(ref, lambda raw: raw.update(status=stage.status))
        return stage.requeue_at

    async def _remove(self, image: Raw, key: Key) -> None:
        held = await self._client.find(STORAGE_CLASS.ref(class_name(image, self._release)))
        if held is not None:
            await self._client.delete(STORAGE_CLASS, held)
        await self._client.mutate(kinds.IMAGE.ref(key[1], key[0]), remove_finalizer(FINALIZER))
