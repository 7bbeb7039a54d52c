"""One-shot operations: what a user asks for once by raising a `generation`, and how far each has got.

The fields of spec and status are Rancher's (reference/10-day2 §2.4). A generation that was carried out is in the status; only
a higher one is carried out. Rancher acts on any other, so there an older manifest that is applied again restores again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from windrow.clusters.api.fields import Fields
from windrow.kubernetes.objects import nested, time_of

MAX_GENERATION = 2**31 - 1
MAX_NODES = 50  # of one operation, as they are read back

SnapshotPhase = Literal["", "Started", "Finished", "Failed"]


@dataclass(frozen=True, slots=True)
class Operations:
    """What is asked for; a generation of 0 asks for nothing."""

    snapshot_create: int = 0


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """How far the snapshot of one etcd node is: it was tried so often, then `snapshot` was made, or `message` says why not."""

    machine: str
    tries: int = 0
    snapshot: str = ""
    message: str = ""
    retry_at: datetime | None = None
    is_final: bool = False  # it is not tried again


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """`status.etcdSnapshotCreate*`: `name` begins the names of the snapshots of this generation, of no others."""

    generation: int = 0
    phase: SnapshotPhase = ""
    name: str = ""
    nodes: tuple[NodeSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedOperations:
    """What is recorded in the status of the Cluster."""

    snapshot: RecordedSnapshot = field(default_factory=RecordedSnapshot)
    spec_digest: str = ""  # of the spec that snapshots carry now


def read_operations(rke: Fields, recorded: RecordedOperations) -> Operations:
    """What `rkeConfig` asks for. A lower generation than the one carried out is a warning, and asks for nothing."""
    return Operations(
        snapshot_create=_read_generation(rke, "etcdSnapshotCreate", recorded.snapshot.generation)
    )


def _read_generation(rke: Fields, key: str, done: int) -> int:
    generation = rke.child(key).count("generation", 0, MAX_GENERATION)
    if 0 < generation < done:
        fault = f"is {generation}, and {done} was carried out before: nothing is done"
        rke.child(key).warn("generation", fault, f"write {done + 1} to have it done once more")
        return done
    return generation


def read_recorded_operations(status: Mapping[str, Any]) -> RecordedOperations:
    """What is recorded; a status that someone else wrote reads as one that has nothing recorded."""
    run = nested(status, "etcdSnapshotCreateRun", default={}) or {}
    phase = status.get("etcdSnapshotCreatePhase")
    nodes = run.get("nodes") if isinstance(run, dict) else None
    return RecordedOperations(
        snapshot=RecordedSnapshot(
            generation=_read_number(nested(status, "etcdSnapshotCreate", "generation")),
            phase=phase if phase in ("Started", "Finished", "Failed") else "",
            name=str(run.get("name") or "") if isinstance(run, dict) else "",
            nodes=tuple(
                _read_node(str(name), raw)
                for name, raw in sorted((nodes if isinstance(nodes, dict) else {}).items())[:MAX_NODES]
                if isinstance(raw, dict)
            ),
        ),
        spec_digest=str(nested(status, "etcdSnapshotMetadata", "digest", default="") or ""),
    )


def _read_number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= MAX_GENERATION else 0


def _read_node(machine: str, raw: Mapping[str, Any]) -> NodeSnapshot:
    return NodeSnapshot(
        machine,
        tries=_read_number(raw.get("tries")),
        snapshot=str(raw.get("snapshot") or ""),
        message=str(raw.get("message") or ""),
        retry_at=time_of(raw, "retryAt"),
        is_final=raw.get("final") is True,
    )
