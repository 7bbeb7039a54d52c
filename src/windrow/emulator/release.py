"""Differences between Harvester 1.6 and 1.9 (reference 02 §0.3, §4; 05 §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.core.formats.version import NotVersion, Version

NEWEST = (99, 99)


@dataclass(frozen=True, slots=True)
class Release:
    """A release, `line` being its first two numbers. Builds without a number count as the newest."""

    line: tuple[int, int] = NEWEST
    patch: int = 99

    @classmethod
    def of(cls, version: str) -> Release:
        try:
            found = Version.parse(version)
        except NotVersion:
            return cls()
        return cls(found.line, found.patch)

    @property
    def matches_loosely(self) -> bool:
        """Where no pool matches, an empty project or guest cluster of a pool's scope matches any."""
        return self.line >= (1, 7)

    @property
    def deletes_with_guest_cluster(self) -> bool:
        """The LoadBalancers of a guest cluster are deleted with its VMs, and new ones are refused meanwhile."""
        return self.line >= (1, 8)

    @property
    def labels_images_at_creation(self) -> bool:
        """The mutator labels an image with its display name, which must then be a label value; before, a controller did."""
        return (*self.line, self.patch) >= (1, 8, 2)

    @property
    def respects_network_annotation(self) -> bool:
        """The network annotation of the guest cluster's cloud provider is kept."""
        return self.line >= (1, 9)

    @property
    def checks_image_access(self) -> bool:
        """Who makes a VM must be allowed to read the images of its claim templates."""
        return self.line >= (1, 9)
