"""Differences between Harvester 1.6 and 1.9 (reference 02 §0.3, §4; 05 §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.core.formats.version import NotVersion, Version

NEWEST = (99, 99)


@dataclass(frozen=True, slots=True)
class Release:
    """One minor release, `line` being its first two numbers. Builds without a number count as the newest."""

    line: tuple[int, int] = NEWEST

    @classmethod
    def of(cls, version: str) -> Release:
        try:
            return cls(Version.parse(version).line)
        except NotVersion:
            return cls()

    @property
    def matches_loosely(self) -> bool:
        """Where no pool matches, an empty project or guest cluster of a pool's scope matches any."""
        return self.line >= (1, 7)

    @property
    def deletes_with_guest_cluster(self) -> bool:
        """The LoadBalancers of a guest cluster are deleted with its VMs, and new ones are refused meanwhile."""
        return self.line >= (1, 8)

    @property
    def respects_network_annotation(self) -> bool:
        """The network annotation of the guest cluster's cloud provider is kept."""
        return self.line >= (1, 9)

    @property
    def checks_image_access(self) -> bool:
        """Who makes a VM must be allowed to read the images of its claim templates."""
        return self.line >= (1, 9)
