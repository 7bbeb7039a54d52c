"""Differences between Harvester 1.6 and 1.9 (reference 02 §0.3, §4; 05 §0.2, §3.2), as of the sources of each release."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.version import NotVersion, Version

NEWEST = (99, 99)
OLDEST_LINE, NEWEST_LINE = (1, 6), (1, 9)
# What a line alone stands for: its release that the sources were read of. 1.9 had release candidates only.
_OF_LINE = {(1, 6): "v1.6.1", (1, 7): "v1.7.1", (1, 8): "v1.8.2", (1, 9): "v1.9.0"}
_KUBEVIRT = {(1, 6): "1.5.0", (1, 7): "1.6.0", (1, 8): "1.7.0", (1, 9): "1.8.3"}
_KUBERNETES = {(1, 6): "v1.33.5+rke2r1", (1, 7): "v1.34.1+rke2r1"}  # the patch is our choice


class UnknownRelease(ValueError):
    """No release of Harvester that is emulated; the message says which are."""


def find_release(text: str) -> str:
    """The version of `1.7`, `v1.7` or `v1.7.1`, as the setting `server-version` has it. Raises UnknownRelease."""
    wanted = text if text.count(".") != 1 else f"{text}.0"
    try:
        version = Version.parse(wanted)
    except NotVersion:
        version = None
    if version is None or not OLDEST_LINE <= version.line <= NEWEST_LINE:
        raise UnknownRelease(
            f"wanted a Harvester from 1.6 to 1.9, found {abbreviate(text)}; write 1.7, or a release such as v1.7.1"
        )
    return _OF_LINE[version.line] if wanted != text else str(version)


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
    def kubevirt(self) -> str:
        """The version of KubeVirt that it brings."""
        return _KUBEVIRT.get(self.line, _KUBEVIRT[NEWEST_LINE])

    @property
    def kubelet(self) -> str:
        """The version of Kubernetes on its hosts."""
        return _KUBERNETES.get(self.line, "v1.34.2+rke2r1")

    @property
    def generates_mac_addresses(self) -> bool:
        """The mutator gives each interface of a VM a MAC address; before, that of the first start is kept in an annotation."""
        return self.line >= (1, 7)

    @property
    def taints_lost_hosts(self) -> bool:
        """A host that does not report is tainted, then out of service; before, its pods were deleted after five minutes."""
        return self.line >= (1, 7)

    @property
    def names_image_classes_by_uid(self) -> bool:
        """The StorageClass of an image is `lh-UID`; before, `longhorn-NAME`."""
        return self.line >= (1, 8)

    @property
    def has_declarative_hotplug(self) -> bool:
        """Volumes are plugged in by changing the template of a VM; its instance takes them no longer."""
        return self.line >= (1, 8)

    @property
    def takes_instances_without_vm(self) -> bool:
        """A VirtualMachineInstance may be created without a VirtualMachine of its name."""
        return self.line >= (1, 8)

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
    def has_traefik(self) -> bool:
        """The ingress controller of the hosts is Traefik, behind Service `rke2-traefik`; before, nginx behind `ingress-expose`."""
        return self.line >= (1, 9)

    @property
    def checks_image_access(self) -> bool:
        """Who makes a VM must be allowed to read the images of its claim templates."""
        return self.line >= (1, 9)


NEWEST_RELEASE = Release()
