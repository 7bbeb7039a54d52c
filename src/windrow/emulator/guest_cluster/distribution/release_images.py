"""The images of a release on a node, when its program starts there.

They are pulled from the release's registry, or imported from an archive in `agent/images`. RKE2 takes its binaries from the image
`rke2-runtime` and does not start without it; K3s starts, and pods whose image is missing do not. A release that has run on the
disk has its images there. The first one of a disk is pulled while the machine boots, in the delays of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from windrow.core.formats.version import Version
from windrow.core.formats.yaml import NotYaml, load
from windrow.emulator.guest_cluster.containers.images import (
    PullFailure,
    find_pull_failure,
    kubernetes_image,
    named_images,
)
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_os.operating_system import GuestOS


class ImagesMissing(Exception):
    """The release's images cannot be had; the message is the program's."""


async def take_release_images(guest: GuestOS, settings: Settings, version: Version) -> None:
    """Have the images of the release on the node, and containerd's mirrors as registries.yaml says. Raises ImagesMissing."""
    state = guest.hardware.root.state
    mirrors = state["registry mirrors"] = read_mirrors(guest, settings)
    releases: list[str] = state.setdefault("release images", [])
    if str(version) in releases:
        return
    if not _has_archive(guest, settings, version):
        failure = _find_failure(guest, settings, version, mirrors)
        if failure is not None and version.distribution == "rke2":
            image = f"index.docker.io/{named_images(version)[-1]}"
            raise ImagesMissing(f"failed to pull runtime image {image}: {failure.message}")
        if failure is not None:
            return
    if releases:
        await guest.sleep(guest.delays.pull)
    if str(version) not in releases:
        releases.append(str(version))


def _has_archive(guest: GuestOS, settings: Settings, version: Version) -> bool:
    paths = guest.list_under(f"{settings.data_directory}/agent/images")
    return any(str(version) in guest.read_text(path) for path in paths)


def _find_failure(
    guest: GuestOS, settings: Settings, version: Version, mirrors: Mapping[str, tuple[str, ...]]
) -> PullFailure | None:
    site = guest.host.network.internet
    registry = settings.text("system-default-registry")
    image = kubernetes_image(version) if version.distribution == "rke2" else named_images(version)[0]
    return find_pull_failure(
        f"{registry}/{image}" if registry else image,
        "IfNotPresent",
        is_present=False,
        mirrors=mirrors,
        reachable=None if site.is_reachable else site.registries,
        missing=site.missing_images,
    )


def read_mirrors(guest: GuestOS, settings: Settings) -> dict[str, tuple[str, ...]]:
    """The hosts that registries.yaml names as mirrors, by registry."""
    path = settings.text("private-registry", settings.distribution.registries)
    try:
        found: Any = load(guest.read_text(path))
    except NotYaml:
        return {}
    mirrors = found.get("mirrors") if isinstance(found, dict) else None
    if not isinstance(mirrors, dict):
        return {}
    return {str(name): _hosts(one) for name, one in mirrors.items()}


def _hosts(mirror: Any) -> tuple[str, ...]:
    endpoints = mirror.get("endpoint") if isinstance(mirror, dict) else None
    listed = endpoints if isinstance(endpoints, list) else [endpoints] if endpoints else []
    return tuple(urlsplit(text if "://" in text else f"https://{text}").netloc for text in map(str, listed))
