"""The certificates of an API server of ours: its CA, its serving certificate, and its administrator's.

The CA lasts for ten years, what it signs for one. What it signs is renewed by the running server.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from windrow.core import pki
from windrow.core.clock import Clock, format_time
from windrow.core.errors import UserError
from windrow.core.files import write_private
from windrow.core.formats import json
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig

CA_LIFETIME_DAYS = 3650
CERTIFICATE_LIFETIME = timedelta(days=365)
RENEWAL = timedelta(days=30)
# How long before the end of a CA that is logged.
_NOTICES = (CERTIFICATE_LIFETIME, RENEWAL, timedelta())

_log = logging.getLogger(__name__)


LOOPBACK = "127.0.0.1"


def serving_names(bind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """DNS names and addresses for the serving certificate of a server that listens on `bind`."""
    names = ("localhost", *((socket.gethostname(),) if bind != LOOPBACK else ()))
    return names, tuple(dict.fromkeys((LOOPBACK, bind)))


class BadCa(UserError):
    """The file of a CA is cut, or not one."""


@dataclass(frozen=True, slots=True)
class ApiServerCa:
    """A CA with its key; its key pair also signs ServiceAccount tokens."""

    name: str
    certificate: str
    key: str = field(repr=False)

    def server_identity(self, clock: Clock, dns: tuple[str, ...], ips: tuple[str, ...]) -> TlsIdentity:
        """A serving certificate for these names; client certificates of the same CA are accepted."""
        chain, key = pki.issue_certificate(
            self.certificate,
            self.key,
            common_name=self.name,
            dns=dns,
            ips=ips,
            server=True,
            client=False,
            now=clock.now(),
            lifetime=CERTIFICATE_LIFETIME,
        )
        return TlsIdentity(chain, key, self.certificate)

    def admin_config(self, clock: Clock, server: str, proxy_url: str = "") -> ClientConfig:
        """A client config for `system:masters`, valid for a year."""
        certificate, key = pki.issue_certificate(
            self.certificate,
            self.key,
            common_name="admin",
            organizations=("system:masters",),
            server=False,
            client=True,
            now=clock.now(),
            lifetime=CERTIFICATE_LIFETIME,
        )
        return ClientConfig(
            server, ca=self.certificate, certificate=certificate, key=key, proxy_url=proxy_url, user=self.name
        )


class RenewingIdentity:
    """The serving identity of a CA for these names, another one a month before it ends.

    The dates are compared at each call, and the server calls at each connection: no timer has to notice a clock that is
    set. `on_renewal` follows each renewal, again at the next call where it raised OSError. The end of the CA, which `path`
    names, is logged a year and a month before it, and after it.
    """

    def __init__(
        self,
        ca: ApiServerCa,
        path: Path,
        clock: Clock,
        names: tuple[tuple[str, ...], tuple[str, ...]],
        on_renewal: Callable[[], object],
    ) -> None:
        self._ca, self._path, self._clock, self._names = ca, path, clock, names
        self._on_renewal = on_renewal
        self._ca_end = pki.read_certificate(ca.certificate).not_after
        self._notices = 0
        self._is_renewed = False
        self._problem = ""
        self._identity, self._end = self._issue()

    def current(self) -> TlsIdentity:
        """The identity to serve now."""
        now = self._clock.now()
        # One that ends with its CA is the last.
        if now > self._end - RENEWAL and self._end < self._ca_end:
            self._identity, self._end = self._issue()
            self._is_renewed = True
        self._notice_end(now)
        if self._is_renewed:
            self._call_on_renewal()
        return self._identity

    def _issue(self) -> tuple[TlsIdentity, datetime]:
        identity = self._ca.server_identity(self._clock, *self._names)
        return identity, pki.read_certificate(identity.chain).not_after

    def _call_on_renewal(self) -> None:
        try:
            self._on_renewal()
        except OSError as error:
            if str(error) != self._problem:
                _log.warning(
                    "the certificates are renewed, but not the kubeconfig: %s; it is tried again", error
                )
            self._problem = str(error)
            return
        self._is_renewed, self._problem = False, ""

    def _notice_end(self, now: datetime) -> None:
        reached = sum(now >= self._ca_end - before for before in _NOTICES)
        if reached > self._notices:
            _log.warning(
                "the CA in %s %s at %s, and with it each kubeconfig and ServiceAccount token of this API; to have another one, "
                "stop, remove the file and start, which writes a new kubeconfig",
                self._path,
                "has ended" if now >= self._ca_end else "ends",
                format_time(self._ca_end),
            )
        self._notices = reached


def new_ca(name: str, clock: Clock) -> ApiServerCa:
    return ApiServerCa(name, *pki.new_ca(name, clock.now(), CA_LIFETIME_DAYS, pki.DAYS_BEFORE))


def _require_valid(ca: ApiServerCa, path: Path, clock: Clock) -> None:
    """Raises BadCa where no client with this clock accepts it: it was made while the clock was wrong, or has expired."""
    info, now = pki.read_certificate(ca.certificate), clock.now()
    if info.not_before <= now <= info.not_after:
        return
    begin, end = format_time(info.not_before), format_time(info.not_after)
    raise BadCa(
        f"the CA in {path} is valid from {begin} to {end}, and the clock of this machine says {format_time(now)}",
        "Correct the clock. If the clock was wrong when the CA was made, or its time is over, remove the file: the next start makes "
        "another one and writes a new kubeconfig; other kubeconfigs and ServiceAccount tokens of the management API are then void.",
    )


def load_or_create_ca(path: Path, name: str, clock: Clock) -> ApiServerCa:
    """The CA in `path`, created there (0600) if the file does not exist: kubeconfigs outlive a restart.

    Raises BadCa.
    """
    if path.exists():
        try:
            raw = json.loads(path.read_text())
            if not pki.matches_key(raw["certificate"], raw["key"]):
                raise ValueError("the key is of another certificate")
            found = ApiServerCa(name, raw["certificate"], raw["key"])
            _require_valid(found, path, clock)
            return found
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadCa(
                f"{path} is not a CA: {error}",
                f"Restore a backup: windrow restore FILE --state-dir {path.parent}. Or remove the file; kubeconfigs "
                "and ServiceAccount tokens of the management API are then void.",
            ) from error
    ca = new_ca(name, clock)
    write_private(path, json.pretty({"certificate": ca.certificate, "key": ca.key}))
    return ca
