"""NetworkFilesystems: the NFS export of a Longhorn volume, and which nodes have it. Written and read. Pure.

The export is on while its `desiredState` is Enabled. Which nodes use it is recorded on the object itself, so that one patch,
guarded by the resourceVersion, adds a node and turns the export on, or takes the last node away and turns it off: of two
controllers neither can turn off what the other has just promised to a node.

The Go driver records no nodes. An export that it turned on stays on until the volume is deleted: other nodes may have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windrow.core.formats.json import NotJson, Raw, dumps, loads
from windrow.csi import names
from windrow.harvester.names import GUEST_UID, MADE_BY_CSI
from windrow.harvester.resources import NETWORK_FILESYSTEM
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    name_of,
    nested,
    new_object,
    resource_version_of,
    uid_of,
)

# The namespace of all of them, whatever that of their claims.
NAMESPACE = "harvester-system"
# Annotations: the volume's handle, and the nodes that have it as JSON: {"node-1": "rw", "node-2": "ro"}.
VOLUME_ID = "windrow.io/csi-volume-id"
NODES = "windrow.io/csi-nodes"
# Stands among the nodes for those that the Go driver let use the export.
UNKNOWN_NODES = "*"
ENABLED, DISABLED = "Enabled", "Disabled"
# What the Go driver mounts with where Harvester recommends nothing.
DEFAULT_OPTIONS = "vers=4"

Mode = Literal["rw", "ro"]


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A NetworkFilesystem. `nodes` is None where none are recorded."""

    name: str
    uid: str
    resource_version: str
    desired: str
    state: str
    status: str
    endpoint: str
    options: str
    volume_id: str
    guest_uid: str
    is_deleting: bool
    nodes: Mapping[str, str] | None

    @property
    def known_nodes(self) -> tuple[str, ...]:
        """The nodes that have it, in order."""
        return tuple(sorted(one for one in self.nodes or () if one != UNKNOWN_NODES))

    def mode_of(self, node: str) -> str:
        """`rw` or `ro`; "" where the node does not have it."""
        return (self.nodes or {}).get(node, "")

    @property
    def is_ready(self) -> bool:
        return (self.desired, self.state, self.status) == (ENABLED, ENABLED, "Ready") and bool(self.endpoint)

    def describe(self) -> str:
        """Its state in Harvester's words."""
        return f"state: {self.state or 'none'}, status: {self.status or 'none'}, endpoint: {self.endpoint or 'none'}"

    def context(self) -> dict[str, str]:
        """What a node has to know to mount it."""
        return {
            names.PUBLISH_SHARE_SERVER: self.endpoint,
            names.PUBLISH_SHARE_EXPORT: f"/{self.name}",
            names.PUBLISH_SHARE_OPTIONS: self.options,
        }


def read_filesystem(raw: Mapping[str, Any]) -> Filesystem:
    annotations = annotations_of(raw)
    return Filesystem(
        name=name_of(raw),
        uid=uid_of(raw),
        resource_version=resource_version_of(raw),
        desired=str(nested(raw, "spec", "desiredState", default=DISABLED)),
        state=str(nested(raw, "status", "state", default="")),
        status=str(nested(raw, "status", "status", default="")),
        endpoint=str(nested(raw, "status", "endpoint", default="")),
        options=str(nested(raw, "status", "mountOpts", default="")) or DEFAULT_OPTIONS,
        volume_id=annotations.get(VOLUME_ID, ""),
        guest_uid=annotations.get(GUEST_UID, ""),
        is_deleting=is_deleting(raw),
        nodes=_read_nodes(annotations.get(NODES)),
    )


def _read_nodes(text: str | None) -> dict[str, str] | None:
    """A record that cannot be read stands for nodes that are not known."""
    if text is None:
        return None
    try:
        found = loads(text)
    except NotJson:
        found = None
    if not isinstance(found, dict):
        return {UNKNOWN_NODES: "rw"}
    return {str(node): str(mode) for node, mode in found.items()}


def render_filesystem(name: str, volume_id: str, nodes: Mapping[str, str], guest_uid: str) -> Raw:
    """The export of a volume, turned on for these nodes."""
    return new_object(
        NETWORK_FILESYSTEM,
        name,
        NAMESPACE,
        labels={MADE_BY_CSI: names.DRIVER},
        annotations=_annotations(volume_id, nodes, guest_uid),
        spec={"networkFSName": name, "desiredState": ENABLED, "provisioner": "Longhorn"},
    )


def plan_publish(found: Filesystem, volume_id: str, node: str, mode: Mode, guest_uid: str) -> Raw | None:
    """The change after which the node has it and it is turned on; None where that is so."""
    before = found.nodes
    if before is None:
        before = {UNKNOWN_NODES: "rw"} if found.desired == ENABLED else {}
    after = {**before, node: mode}
    if after == found.nodes and found.desired == ENABLED:
        return None
    return _change(found, _annotations(volume_id, after, guest_uid), ENABLED)


def plan_unpublish(found: Filesystem, node: str) -> Raw | None:
    """The change after which the node has it no more, "" for all of them, and it is turned off where none is left; None where
    that is so."""
    before = found.nodes
    if not node:
        after: dict[str, str] = {}
    elif before is None:
        return None
    else:
        after = {one: mode for one, mode in before.items() if one != node}
    desired = found.desired if after else DISABLED
    if (after, desired) == (before or {}, found.desired):
        return None
    return _change(found, {NODES: _render_nodes(after)}, desired)


def _change(found: Filesystem, annotations: Mapping[str, str], desired: str) -> Raw:
    metadata = {"resourceVersion": found.resource_version, "annotations": dict(annotations)}
    return {"metadata": metadata, "spec": {"desiredState": desired}}


def _annotations(volume_id: str, nodes: Mapping[str, str], guest_uid: str) -> dict[str, str]:
    found = {VOLUME_ID: volume_id, NODES: _render_nodes(nodes)}
    return {**found, GUEST_UID: guest_uid} if guest_uid else found


def _render_nodes(nodes: Mapping[str, str]) -> str:
    return dumps(dict(sorted(nodes.items()))).decode()
