"""ReplicaSets from a Deployment's template, pods from the template of whatever controls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from windrow.core.formats.fastjson import dumps, loads
from windrow.emulator.guest_cluster.kubelet import NOT_READY, UNREACHABLE
from windrow.kubernetes.objects import (
    Raw,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
)
from windrow.kubernetes.resources import DEPLOYMENT, POD, REPLICA_SET, ApiResource
from windrow.kubernetes.selectors import read_label_selector

TEMPLATE_HASH = "pod-template-hash"
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def hash_template(template: Raw) -> str:
    """The pod-template-hash of a template: equal for equal content, without regard to empty fields, which clients in Go
    send along."""
    number, text = crc32(dumps(_sorted(template))), ""
    while number:
        number, place = divmod(number, len(_HASH_LETTERS))
        text += _HASH_LETTERS[place]
    return text or _HASH_LETTERS[0]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: _sorted(value[key]) for key in sorted(value)}
        return {key: one for key, one in found.items() if one not in (None, {}, [], "")}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def template_of(owner: Raw) -> Raw:
    found: Raw = nested(owner, "spec", "template", default={})
    return found


def selector_matches_template(owner: Raw) -> bool:
    """Whether the template's labels match the selector; a real API server refuses others."""
    selector = nested(owner, "spec", "selector")
    labels = nested(template_of(owner), "metadata", "labels", default={})
    return bool(selector) and read_label_selector(selector).matches(labels)


def render_replica_set(deployment: Raw, replicas: int, annotations: Mapping[str, str]) -> Raw:
    template = loads(dumps(template_of(deployment)))
    hash = hash_template(template)
    labels = {**nested(template, "metadata", "labels", default={}), TEMPLATE_HASH: hash}
    template.setdefault("metadata", {})["labels"] = labels
    selector = loads(dumps(nested(deployment, "spec", "selector", default={})))
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: hash}
    return new_object(
        REPLICA_SET,
        f"{name_of(deployment)}-{hash}",
        namespace_of(deployment),
        labels=labels,
        annotations=annotations,
        owners=[owner_reference(DEPLOYMENT, deployment, controller=True, block=True)],
        spec={"replicas": replicas, "selector": selector, "template": template},
    )


def is_of_template(replica_set: Raw, deployment: Raw) -> bool:
    return labels_of(replica_set).get(TEMPLATE_HASH) == hash_template(template_of(deployment))


def render_pod(owner: Raw, kind: ApiResource, toleration_s: int, template: Raw | None = None) -> Raw:
    """A new pod of the owner's template, or of `template`, with a generated name and the default tolerations of a node
    that is not ready or unreachable (`toleration_s`)."""
    made = loads(dumps(template_of(owner) if template is None else template))
    spec = made.get("spec") or {}
    head = made.get("metadata") or {}
    spec.setdefault("serviceAccountName", "default")
    spec["tolerations"] = with_default_tolerations(spec.get("tolerations") or [], toleration_s)
    raw = new_object(
        POD,
        "",
        namespace_of(owner),
        labels=head.get("labels"),
        annotations=head.get("annotations"),
        owners=[owner_reference(kind, owner, controller=True, block=True)],
        spec=spec,
    )
    del raw["metadata"]["name"]
    raw["metadata"]["generateName"] = f"{name_of(owner)}-"
    return raw


def with_default_tolerations(tolerations: list[Raw], toleration_s: int) -> list[Raw]:
    made = list(tolerations)
    for key in (NOT_READY, UNREACHABLE):
        is_set = any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        )
        if not is_set:
            added = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            made.append({**added, "tolerationSeconds": toleration_s})
    return made
