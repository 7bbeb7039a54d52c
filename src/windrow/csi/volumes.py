"""The port `Volumes`: the volumes and snapshots of one guest cluster, wherever they are stored.

Implementations: `harvester.volumes.HarvesterVolumes`, and `MemoryVolumes` of the tests; one suite tells what holds for both.

Two kinds of verbs:

* Those that make or delete are *strict*: to make what is there raises VolumeExists with what is there, to delete what is not
  there raises VolumeNotFound. `idempotency.IdempotentVolumes` makes them repeatable, in one place for all implementations.
* `ensure_…` may be repeated: it returns once the state is there, however often it was asked for before.

A verb that is cancelled may have been carried out, whole or in part; repeating it finishes it. Beside the errors that a verb
names, each may raise Unavailable and PermissionMissing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from windrow.csi.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ResourceExhausted,
)
from windrow.csi.sizes import SizeRange

# How a volume is kept on Harvester: a disk, or a file system that several machines mount over the network.
VolumeKind = Literal["disk", "shared"]


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """A volume that begins as the content of a snapshot."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class VolumeSource:
    """A volume that begins as a copy of another."""

    volume_id: str


Source = SnapshotSource | VolumeSource


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """A volume that is wanted. `name` is unique in the guest cluster, and any text of at most 128 characters."""

    name: str
    size: SizeRange = field(default_factory=SizeRange)
    kind: VolumeKind = "disk"
    parameters: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that is there. `parameters` and `source` are None where the Go driver made it, which recorded neither."""

    id: str
    size: int
    kind: VolumeKind = "disk"
    parameters: Mapping[str, str] | None = None
    source: Source | None = None
    # The nodes that have it, as a disk of their VM or over the network, in order.
    nodes: tuple[str, ...] = ()
    # What is wrong with it, for `kubectl describe`; "" for nothing.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that a node can use. `context` goes to the node: the PUBLISH_… keys of `names`."""

    read_only: bool = False
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A snapshot that is wanted; `name` as in VolumeRequest."""

    name: str
    volume_id: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is there. It can be restored once it `is_ready`; `size` is what a volume of it needs at least."""

    id: str
    volume_id: str
    size: int
    created: datetime
    is_ready: bool = True


class VolumeNotFound(NotFound):
    """The driver has no such volume."""

    def __init__(self, volume_id: str, where: str = "") -> None:
        super().__init__(
            f"volume {volume_id[:128]!r} does not exist{where}",
            "it may have been deleted on Harvester by hand",
        )


class SnapshotNotFound(NotFound):
    """The driver has no such snapshot."""

    def __init__(self, snapshot_id: str, where: str = "") -> None:
        super().__init__(
            f"snapshot {snapshot_id[:128]!r} does not exist{where}",
            "it may have been deleted on Harvester by hand",
        )


class NodeNotFound(NotFound):
    """No VM has the name."""

    def __init__(self, node_id: str, where: str = "") -> None:
        super().__init__(
            f"node {node_id[:128]!r} has no VirtualMachine{where}",
            "a VirtualMachine is a node's by the Node's providerID, by its hardware, or by its name",
        )


class VolumeExists(AlreadyExists):
    """A volume has the name."""

    def __init__(self, volume: Volume, problem: str = "it exists") -> None:
        super().__init__(f"volume {volume.id!r}: {problem}", "delete it first, or choose another name")
        self.volume = volume


class NameTaken(AlreadyExists):
    """The handle that follows from the name is that of an object which was made for another name."""

    def __init__(self, name: str, handle: str, made_for: str) -> None:
        super().__init__(
            f"the handle of {name[:128]!r} is {handle!r}, which was made for the name {made_for[:128]!r}",
            "choose another name",
        )


class SnapshotExists(AlreadyExists):
    """A snapshot has the name."""

    def __init__(self, snapshot: Snapshot, problem: str = "it exists") -> None:
        super().__init__(f"snapshot {snapshot.id!r}: {problem}", "delete it first, or choose another name")
        self.snapshot = snapshot


class VolumeInUse(FailedPrecondition):
    """The volume is a disk of a node, and would have to be detached first."""

    def __init__(self, volume_id: str, nodes: Sequence[str], what: str) -> None:
        self.nodes = tuple(nodes)
        super().__init__(
            f"volume {volume_id!r} is attached to {', '.join(self.nodes)}, so it cannot be {what}",
            f"detach it from {', '.join(self.nodes)} first",
        )


class AttachedDifferently(AlreadyExists):
    """The volume is attached to the node, and not as read-only, or writable, as is asked for."""

    def __init__(self, volume_id: str, node_id: str, read_only: bool) -> None:
        super().__init__(
            f"volume {volume_id!r} is attached to {node_id} {'read-only' if read_only else 'writable'}",
            "detach it first",
        )


class WrongKind(InvalidArgument):
    """The volume is a disk and is to be shared, or the other way round."""

    def __init__(self, volume_id: str, kind: VolumeKind, why: str = "") -> None:
        found = "a disk of one node at a time" if kind == "disk" else "shared by nodes over the network"
        super().__init__(
            "volume_capability.access_mode",
            f"volume {volume_id[:128]!r} is {found}{why}",
            f"use the access modes that {'one node' if kind == 'disk' else 'MULTI_NODE_MULTI_WRITER'} stands for",
        )


class NodeFull(ResourceExhausted):
    """The VM has as many disks as it can have."""


class QuotaExceeded(ResourceExhausted):
    """A quota or Harvester's storage is exhausted."""


class CannotShrink(OutOfRange):
    """The volume, or the snapshot it is to be made of, is larger than what is asked for."""


class UnknownParameter(InvalidArgument):
    """A parameter of a class has a value that means nothing."""


class Unfinished(Aborted):
    """Work of an earlier call, or of Harvester, is under way on it."""


class PermissionMissing(FailedPrecondition):
    """The credential for Harvester may not do this."""


class Volumes(Protocol):
    """The volumes and snapshots of one guest cluster."""

    async def create(self, wanted: VolumeRequest) -> Volume:
        """Make the volume. Raises VolumeExists, NameTaken, OutOfRange (CannotShrink: smaller than its source), UnknownParameter,
        SnapshotNotFound or VolumeNotFound for its source, QuotaExceeded."""
        ...

    async def delete(self, volume_id: str) -> None:
        """Return once the volume is gone. Raises VolumeNotFound, VolumeInUse while it is attached."""
        ...

    async def get(self, volume_id: str) -> Volume:
        """Raises VolumeNotFound."""
        ...

    async def list_volumes(self) -> Sequence[Volume]:
        """All volumes, in the order of their ids; `nodes` of each is what is attached now."""
        ...

    async def ensure_expanded(self, volume_id: str, wanted: SizeRange) -> Volume:
        """Return once the volume has a size in the range; a larger one stays. Raises VolumeNotFound, OutOfRange, QuotaExceeded,
        VolumeInUse where nodes share it."""
        ...

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        """Return once the volume is a disk that the node's VM can use, or, a shared one, can be mounted by the node. Raises
        VolumeNotFound, NodeNotFound, WrongKind, AttachedDifferently; for a disk VolumeInUse while another node has it,
        NodeFull."""
        ...

    async def ensure_detached(self, volume_id: str, node_id: str) -> None:
        """Return once the volume is no disk of the node's VM, of no node's where `node_id` is "". A volume or VM that does not
        exist is detached. A shared volume is no longer served once the last node is detached."""
        ...

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        """Begin the snapshot; it `is_ready` later. Raises SnapshotExists, NameTaken, VolumeNotFound, UnknownParameter,
        QuotaExceeded."""
        ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Order the deletion. Raises SnapshotNotFound."""
        ...

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """Raises SnapshotNotFound."""
        ...

    async def list_snapshots(self) -> Sequence[Snapshot]:
        """All snapshots, in the order of their ids."""
        ...
