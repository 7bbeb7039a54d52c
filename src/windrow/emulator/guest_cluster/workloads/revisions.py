"""ControllerRevisions: the templates that a StatefulSet or a DaemonSet has had. Its pods carry the name of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windrow.core.formats.fastjson import dumps, loads
from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.templates import hash_template, template_of
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
)
from windrow.kubernetes.resources import CONTROLLER_REVISION, ApiResource

POD_REVISION = "controller-revision-hash"  # the label of pods
_KEPT = 10  # Kubernetes' default of revisionHistoryLimit


@dataclass(frozen=True, slots=True)
class CreateRevision:
    """A template that the owner never had."""

    revision: Raw
    because: str


@dataclass(frozen=True, slots=True)
class RaiseRevision:
    """The owner has gone back to a template that it had before."""

    revision: Raw
    number: int
    because: str


@dataclass(frozen=True, slots=True)
class DeleteRevision:
    revision: Raw
    because: str


def number_of(revision: Raw) -> int:
    return int(revision.get("revision") or 0)


def revision_template(revision: Raw) -> Raw:
    """The pod template of the revision."""
    found = {**nested(revision, "data", "spec", "template", default={})}
    found.pop("$patch", None)
    return found


def is_of_owner(revision: Raw, owner: Raw) -> bool:
    """Whether the owner's template is that of the revision."""
    return hash_template(revision_template(revision)) == hash_template(template_of(owner))


def plan_revision(
    owner: Raw, kind: ApiResource, held: Sequence[Raw], label: str
) -> CreateRevision | RaiseRevision | None:
    """What makes the owner's template its latest revision; None where it is. `label` is that of the revision's hash."""
    latest = max(held, key=number_of, default=None)
    if latest is not None and is_of_owner(latest, owner):
        return None
    number = number_of(latest) + 1 if latest is not None else 1
    before = next((one for one in held if is_of_owner(one, owner)), None)
    if before is not None:
        return RaiseRevision(before, number, f"{name_of(owner)} has gone back to its template")
    return CreateRevision(_render(owner, kind, number, label), f"{name_of(owner)} has a new template")


def plan_history(owner: Raw, held: Sequence[Raw], live: set[str]) -> list[DeleteRevision]:
    """The oldest revisions beyond the limit. `live` are the names of those that are in use."""
    kept = int(nested(owner, "spec", "revisionHistoryLimit", default=_KEPT))
    old = sorted((one for one in held if name_of(one) not in live), key=number_of)
    return [DeleteRevision(one, f"{kept} old ones are kept") for one in old[: max(len(old) - kept, 0)]]


def _render(owner: Raw, kind: ApiResource, number: int, label: str) -> Raw:
    template = loads(dumps(template_of(owner)))
    hash = hash_template(template)
    raw = new_object(
        CONTROLLER_REVISION,
        f"{name_of(owner)}-{hash}",
        namespace_of(owner),
        labels={**nested(template, "metadata", "labels", default={}), label: hash},
        annotations=annotations_of(owner),
        owners=[owner_reference(kind, owner, controller=True, block=True)],
    )
    return {**raw, "data": {"spec": {"template": {**template, "$patch": "replace"}}}, "revision": number}


async def execute_revision(
    context: ControllerContext, step: CreateRevision | RaiseRevision | DeleteRevision
) -> None:
    """Write one step."""
    match step:
        case CreateRevision(revision, _):
            await context.create(CONTROLLER_REVISION, revision)
        case RaiseRevision(revision, number, _):
            await context.update(CONTROLLER_REVISION, revision, lambda raw: raw.update(revision=number))
        case DeleteRevision(revision, _):
            await context.delete(CONTROLLER_REVISION, revision)


async def ensure_revisions(
    context: ControllerContext, revisions: OwnerIndex, owner: Raw, kind: ApiResource, label: str
) -> list[Raw]:
    """All revisions of the owner, with the one of its template as the latest; none where its namespace is gone. May be
    repeated."""
    held = revisions.owned_by(owner)
    if step := plan_revision(owner, kind, held, label):
        await execute_revision(context, step)
        held = revisions.owned_by(owner)
    return held


async def trim_history(context: ControllerContext, owner: Raw, held: Sequence[Raw], live: set[str]) -> None:
    """Delete the oldest revisions beyond the limit. May be repeated."""
    for step in plan_history(owner, held, live):
        await execute_revision(context, step)


def pod_revision(pod: Mapping[str, object]) -> str:
    """What the pod's label says about its revision."""
    return labels_of(pod).get(POD_REVISION, "")
