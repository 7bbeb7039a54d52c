"""Container images: what a node has of them, whether it can pull one, and what the kubelet says where it cannot. Pure.

A node has the images of each release of its distribution that has run on it, and those that were pulled. Their tags are not
known but for the pause image, the release's runtime and Kubernetes itself, so any tag of the other repositories is taken
for the release's. Without a way to the internet an image comes only from a registry that is reachable nevertheless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from zlib import crc32

from windrow.core.formats.version import Version
from windrow.kubernetes.objects import Raw

PAUSE = "rancher/mirrored-pause:3.6"
_REPOSITORIES = {
    "rke2": (
        "rancher/klipper-helm rancher/hardened-coredns rancher/hardened-etcd rancher/hardened-calico "
        "rancher/hardened-flannel rancher/hardened-k8s-metrics-server rancher/harvester-cloud-provider "
        "rancher/harvester-csi-driver rancher/rke2-cloud-provider rancher/kube-vip-kube-vip-iptables"
    ),
    "k3s": (
        "rancher/klipper-helm rancher/klipper-lb rancher/local-path-provisioner rancher/mirrored-coredns-coredns "
        "rancher/mirrored-library-busybox rancher/mirrored-library-traefik rancher/mirrored-metrics-server"
    ),
}
# Images that hold one program and no shell.
_WITHOUT_SHELL = frozenset(
    {"pause", "mirrored-pause", "rke2-runtime", "coredns", "mirrored-coredns-coredns", "hardened-coredns"}
)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """An image as containers name it, with what is left out filled in."""

    registry: str
    repository: str
    tag: str  # or a digest

    @classmethod
    def parse(cls, text: str) -> ImageReference:
        name, _, digest = text.partition("@")
        head, slash, rest = name.partition("/")
        has_registry = bool(slash) and ("." in head or ":" in head or head == "localhost")
        registry, path = (head, rest) if has_registry else ("docker.io", name)
        path, _, tag = path.rpartition(":") if ":" in path.rpartition("/")[2] else (path, "", "")
        path = path if has_registry or "/" in path else f"library/{path}"
        return cls(registry, path, digest or tag or "latest")

    @property
    def has_latest(self) -> bool:
        return self.tag == "latest"

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}{'@' if ':' in self.tag else ':'}{self.tag}"


def kubernetes_image(version: Version) -> str:
    """The image of the static pods of RKE2. The date of its build is none that was, and differs with the version."""
    number = crc32(str(version).encode())
    return f"rancher/hardened-kubernetes:{_tag(version)}-build2025{1 + number % 12:02d}{1 + number // 12 % 28:02d}"


def etcd_image(version: Version) -> str:
    """That of RKE2's etcd: another one with each minor."""
    return f"rancher/hardened-etcd:v3.{5 if version.minor < 34 else 6}.{version.minor % 10}-k3s1-build2025{1 + version.minor % 12:02d}15"


def _tag(version: Version) -> str:
    return str(version).replace("+", "-")


def named_images(version: Version) -> tuple[str, ...]:
    """The images of a release whose tags are known."""
    if version.distribution != "rke2":
        return (PAUSE,)
    return (PAUSE, kubernetes_image(version), f"rancher/rke2-runtime:{_tag(version)}")


def list_node_images(version: Version) -> list[Raw]:
    """The Node's `status.images`, those with known tags."""
    made = []
    for one in map(ImageReference.parse, named_images(version)):
        digest = hashlib.sha256(str(one).encode())
        names = [f"{one.registry}/{one.repository}@sha256:{digest.hexdigest()}", str(one)]
        made.append({"names": names, "sizeBytes": 300_000 + int.from_bytes(digest.digest()[:3], "big")})
    return made


def has_image(image: str, releases: Collection[str], pulled: Collection[str]) -> bool:
    """Whether a node has it on which these releases have run, and these images were pulled."""
    wanted = ImageReference.parse(image)
    if str(wanted) in pulled:
        return True
    for release in releases:
        version = Version.parse(release)
        if str(wanted) in {str(ImageReference.parse(one)) for one in named_images(version)}:
            return True
        if wanted.repository in _REPOSITORIES.get(version.distribution, "").split():
            return True
    return False


def has_shell(image: str) -> bool:
    """Whether the image has /bin/sh and the programs that go with it, as most have."""
    return ImageReference.parse(image).repository.rpartition("/")[2] not in _WITHOUT_SHELL


@dataclass(frozen=True, slots=True)
class PullFailure:
    """Why an image cannot be had: the reason of the container's first waiting state, and the message."""

    reason: str
    message: str

    def backed_off(self, image: str) -> PullFailure:
        """What it says between two attempts."""
        if self.reason != "ErrImagePull":
            return self
        return PullFailure(
            "ImagePullBackOff", f'Back-off pulling image "{image}": {self.reason}: {self.message}'
        )


def pull_policy(image: str, given: str) -> str:
    return given or ("Always" if ImageReference.parse(image).has_latest else "IfNotPresent")


def find_pull_failure(
    image: str,
    policy: str,
    *,
    is_present: bool,
    mirrors: Mapping[str, Collection[str]],
    reachable: Collection[str] | None,
    missing: Collection[str],
) -> PullFailure | None:
    """Why the container cannot have its image; None where it can.

    `mirrors` are hosts by registry, `reachable` the hosts of registries that answer (None: all do), `missing` the images
    that no registry has.
    """
    if is_present and policy != "Always":
        return None
    if policy == "Never":
        return PullFailure(
            "ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never'
        )
    wanted = ImageReference.parse(image)
    failed = f'failed to pull and unpack image "{wanted}": failed to resolve reference "{wanted}"'
    hosts = [*mirrors.get(wanted.registry, ()), *mirrors.get("*", ()), wanted.registry]
    if reachable is not None and not any(host in reachable for host in hosts):
        host = "registry-1.docker.io" if wanted.registry == "docker.io" else wanted.registry
        kind = f'Head "https://{host}/v2/{wanted.repository}/manifests/{wanted.tag}"'
        return PullFailure(
            "ErrImagePull",
            f"{failed}: failed to do request: {kind}: dial tcp: lookup {host.partition(':')[0]}: no such host",
        )
    if image in missing or str(wanted) in missing:
        return PullFailure("ErrImagePull", f"{failed}: {wanted}: not found")
    return None
