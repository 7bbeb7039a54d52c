"""Which releases there are, and whether a machine can download one.

Releases are not listed one by one: every patch that a line of Kubernetes could have is taken to be published, others are not.
"""

from __future__ import annotations

from windrow.core.formats.version import NotVersion, Version
from windrow.emulator.guest_os.operating_system import GuestOS

_NEWEST_MINOR, _NEWEST_PATCH = 36, 20


def find_release(text: str, distribution: str) -> Version | None:
    """The release of that name; None where the distribution has published none."""
    try:
        version = Version.parse(text)
    except NotVersion:
        return None
    is_published = version.major == 1 and version.minor <= _NEWEST_MINOR and version.patch <= _NEWEST_PATCH
    return version if version.distribution == distribution and is_published else None


def find_download_obstacle(guest: GuestOS, host: str) -> str:
    """Why nothing can be downloaded from a host of the internet, as curl says it; "" where it can."""
    if not guest.address:
        return f"(6) Could not resolve host: {host} (the machine has no network)"
    if not guest.host.network.internet.is_reachable:
        return f"(6) Could not resolve host: {host}"
    return ""
