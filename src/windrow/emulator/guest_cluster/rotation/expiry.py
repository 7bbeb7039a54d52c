"""How long the certificates of a node are valid, and when a start of its service renews them (reference/04 §2.9).

They are valid for 365 days. That with which a server serves is on its disk and renewed by a start within 120 days of its end
(90 before the releases of May 2025), for other names, for another authority, and after `certificate rotate`; the kubelet's
own is issued anew at each start. While one is near its end, the Node has an event once a day. By the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windrow.core import pki
from windrow.core.clock import format_time
from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.rotation.certificates import regenerate_file
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.handler import TlsIdentity

LIFETIME = timedelta(days=365)
EVENT_PERIOD = timedelta(days=1)
_LONGER_SINCE = {
    30: 13,
    31: 9,
    32: 5,
    33: 1,
}  # the first patch of each line that renews 120 days before the end


def renewal_window(release: Version) -> timedelta:
    first = _LONGER_SINCE.get(release.minor, 0 if release.minor > max(_LONGER_SINCE) else None)
    return timedelta(days=120 if first is not None and release.patch >= first else 90)


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """The certificate of one server, and what it has to be issued for."""

    guest: GuestOS
    data_directory: str
    names: Sequence[str]
    authority: str
    client_authority: str = field(repr=False)

    @property
    def path(self) -> str:
        return serving_certificate(self.data_directory)

    def take(self, release: Version, issue: Callable[[], TlsIdentity]) -> TlsIdentity:
        """The identity on the disk, or a new one where that has to be renewed."""
        if not self._is_good(release):
            made = issue()
            self.guest.write(self.path, made.chain.encode())
            self.guest.write(self._key, made.key.encode(), 0o600)
            self.guest.write(self._names, self._issued_for.encode())
            return made
        chain, key = self.guest.read_text(self.path), self.guest.read_text(self._key)
        return TlsIdentity(chain, key, self.client_authority)

    @property
    def _key(self) -> str:
        return self.path.removesuffix(".crt") + ".key"

    @property
    def _names(self) -> str:
        return self.path.removesuffix(".crt") + ".names"

    @property
    def _issued_for(self) -> str:
        return "\n".join((*self.names, self.authority))

    def _is_good(self, release: Version) -> bool:
        ends = find_end(self.guest, self.path)
        is_asked = self.guest.exists(regenerate_file(self.data_directory))
        if ends is None or is_asked or self.guest.read_text(self._names) != self._issued_for:
            return False
        return ends - self.guest.now() > renewal_window(release)


def serving_certificate(data_directory: str) -> str:
    return f"{data_directory}/server/tls/serving-kube-apiserver.crt"


def find_end(guest: GuestOS, path: str) -> datetime | None:
    """When the certificate in a file ends; None without one."""
    text = guest.read_text(path)
    if not text:
        return None
    try:
        return pki.read_certificate(text).not_after
    except pki.NotCertificate:
        return None


@dataclass(slots=True)
class ExpiryMonitor:
    """The certificates with which a node runs, by file with their ends."""

    release: Version
    ends: Mapping[str, datetime]
    kubelet_ends: datetime
    _told: datetime | None = None

    def is_kubelet_expired(self, now: datetime) -> bool:
        return now >= self.kubelet_ends

    def warn(self, program: str, now: datetime) -> str:
        """The message of an event that is due now, "" without one."""
        window = renewal_window(self.release)
        near = {name: end for name, end in self.ends.items() if end - now <= window}
        if not near or (self._told is not None and now - self._told < EVENT_PERIOD):
            return ""
        self._told = now
        listed = ", ".join(_describe(name, end, window, now) for name, end in sorted(near.items()))
        start = f"restart {program} on this node to trigger automatic rotation"
        return f"Node certificates require attention - {start}: {listed}"


def _describe(name: str, end: datetime, window: timedelta, now: datetime) -> str:
    component, _, subject = name.partition(":")
    if end <= now:
        return f"{component}: certificate {subject} expired at {format_time(end)}"
    return f"{component}: certificate {subject} will expire within {window.days} days at {format_time(end)}"
