"""The `scale` subresource: how many there should be, in one form for every kind that counts."""

from __future__ import annotations

from typing import Any

from windrow.apiserver import core as kernel
from windrow.apiserver import statuses
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, Plain, served
from windrow.apiserver.store import Entry, Raw, Stale
from windrow.apiserver.types import Scaling, Type
from windrow.apiserver.verbs.patch import PATCHES
from windrow.apiserver.writing import ATTEMPTS, rewrite
from windrow.core.fastjson import dumps, loads
from windrow.kubernetes.objects import nested


def scale_of(scaling: Scaling, raw: Raw) -> Raw:
    """The Scale that stands for the object."""
    head = raw["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Raw = {"replicas": nested(raw, *scaling.seen, default=0)}
    selector = nested(raw, *scaling.selector) if scaling.selector else None
    if isinstance(selector, dict):
        labels = selector.get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: head[name] for name in names if name in head},
        "spec": {"replicas": nested(raw, *scaling.wanted, default=0)},
        "status": status,
    }


def _set(raw: Raw, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        raw = raw.setdefault(step, {})
    raw[path[-1]] = value


async def scale(core: Core, type: Type, call: Call) -> Plain:
    """GET shows it; PUT and PATCH change the wanted number, with the rules of an update."""
    scaling = type.scaling
    if scaling is None or call.verb not in ("get", "update", "patch"):
        raise statuses.not_allowed()
    for _ in range(ATTEMPTS):
        was = await kernel.get(core, type, call.target)
        old = served(type, was)
        if call.verb == "get":
            return Plain(scale_of(scaling, old.raw))
        try:
            changed = await _change(core, type, call, scaling, old, was)
        except Stale:
            continue
        return Plain(scale_of(scaling, served(type, changed).raw))
    raise statuses.modified(type.kind, call.target.name)


async def _change(core: Core, type: Type, call: Call, scaling: Scaling, old: Entry, was: Entry) -> Entry:
    before = scale_of(scaling, old.raw)
    wanted = loads(dumps(call.body))
    if call.verb == "patch":
        if call.media not in PATCHES:
            raise statuses.unsupported_media(tuple(PATCHES))
        wanted = PATCHES[call.media](type, before, wanted)
    version = str(nested(wanted, "metadata", "resourceVersion", default=""))
    if version and version != str(was.rev):
        raise statuses.modified(type.kind, call.target.name)
    replicas = nested(wanted, "spec", "replicas", default=0)
    if not isinstance(replicas, int) or replicas < 0:
        cause = statuses.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise statuses.invalid(type.kind, call.target.name, [cause])
    new = old.copy()
    _set(new, scaling.wanted, replicas)
    return await rewrite(core, type, call, old, was, new)
