"""Where Longhorn has the replicas of its volumes: at most one on a host, as far as the host's disk has room for them.

Simplified: each host has one disk, of which nothing is reserved or used by what is not a volume; a volume counts with its whole size,
against the disk's times the overcommit of storage; replicas never move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

SCHEDULING_ERROR = "longhorn.io/volume-scheduling-error"  # an annotation of PersistentVolumes
NO_SPACE = "precheck new replica failed: insufficient storage"


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts with a replica of a volume, and how large each is. No host: none has room for one."""

    size: int
    wanted: int
    hosts: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        return "" if self.hosts else NO_SPACE

    @property
    def is_degraded(self) -> bool:
        return len(self.hosts) < self.wanted


class ReplicaScheduler:
    """The replicas of all volumes. It is kept in memory: after a restart volumes are placed again, in the order in which they
    are reconciled."""

    def __init__(
        self, sizes: Mapping[str, int], percent: Callable[[], int], is_ready: Callable[[str], bool]
    ) -> None:
        """`sizes` are those of the hosts' disks in bytes; `percent` is the overcommit of storage."""
        self._sizes, self._percent, self._is_ready = sizes, percent, is_ready
        self._placed: dict[str, Placement] = {}
        self._scheduled: Counter[str] = Counter()  # bytes, by host

    def place(self, volume: str, size: int, wanted: int) -> Placement:
        """Where the volume has its replicas, placed as soon as there is room for one of them. May be repeated."""
        found = self._placed.get(volume)
        if found is None or not found.hosts:
            percent = self._percent()
            fitting = [
                host for host in self._sizes if self._has_space(host, size, percent) and self._is_ready(host)
            ]
            chosen = sorted(fitting, key=lambda host: (self._scheduled[host], host))[:wanted]
            found = self._placed[volume] = Placement(size, wanted, tuple(chosen))
            self._add(found, size)
        return found

    def grow(self, volume: str, size: int) -> str:
        """The volume has this size from now on; why it cannot, or "". May be repeated."""
        found = self._placed.get(volume)
        if found is None or size <= found.size:
            return ""
        more = size - found.size
        percent = self._percent()
        full = next((host for host in found.hosts if not self._has_space(host, more, percent)), None)
        if full is not None:
            return (
                f"cannot schedule {more} more bytes to the disk of {full} for {volume}: insufficient storage"
            )
        self._add(found, more)
        self._placed[volume] = replace(found, size=size)
        return ""

    def release(self, volume: str) -> None:
        """The volume is deleted. May be repeated."""
        if (found := self._placed.pop(volume, None)) is not None:
            self._add(found, -found.size)

    def _has_space(self, host: str, size: int, percent: int) -> bool:
        return self._scheduled[host] + size <= self._sizes[host] * percent // 100

    def _add(self, placed: Placement, size: int) -> None:
        for host in placed.hosts:
            self._scheduled[host] += size
