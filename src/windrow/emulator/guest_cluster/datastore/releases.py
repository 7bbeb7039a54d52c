"""From which release on servers have what concerns snapshots and tokens."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.core.formats.version import Version

_Lines = Mapping[
    tuple[int, int], int
]  # the first patch of each line; all later lines have it, all earlier ones lack it

_SNAPSHOT_FILES: _Lines = {(1, 25): 15, (1, 26): 10, (1, 27): 7, (1, 28): 3}
_SNAPSHOT_ENDPOINT: _Lines = {(1, 28): 12, (1, 29): 7, (1, 30): 2}
_TOKEN_ROTATION: _Lines = {(1, 25): 16, (1, 26): 11, (1, 27): 8, (1, 28): 4}


def has_snapshot_files(version: Version) -> bool:
    """Whether servers write ETCDSnapshotFiles; earlier ones have a ConfigMap alone."""
    return _is_since(version, _SNAPSHOT_FILES)


def has_snapshot_endpoint(version: Version) -> bool:
    """Whether the supervisor serves /db/snapshot."""
    return _is_since(version, _SNAPSHOT_ENDPOINT)


def has_token_rotation(version: Version) -> bool:
    return _is_since(version, _TOKEN_ROTATION)


def _is_since(version: Version, first: _Lines) -> bool:
    known = first.get(version.line)
    return version.line > max(first) if known is None else version.patch >= known
