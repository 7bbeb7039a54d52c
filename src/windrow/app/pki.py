"""The certificates of an API server that we run: its own CA, its face, and one administrator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from windrow.apiserver.handler import TlsIdentity
from windrow.core import json, pki
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import ClientConfig

CA_LIFETIME_DAYS = 3650
CERTIFICATE_LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class ApiServerCa:
    """A CA with its key, and the ServiceAccount signing it does (the same key pair, in PEM)."""

    name: str
    certificate: str
    key: str = field(repr=False)

    def server_identity(self, clock: Clock, dns: tuple[str, ...], ips: tuple[str, ...]) -> TlsIdentity:
        """A serving certificate for these names; clients of the same CA are recognised."""
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
        """Access as `system:masters`, valid for a year."""
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


def new_ca(name: str, clock: Clock) -> ApiServerCa:
    return ApiServerCa(name, *pki.new_ca(name, clock.now(), CA_LIFETIME_DAYS))


def load_or_create_ca(path: Path, name: str, clock: Clock) -> ApiServerCa:
    """The authority in `path`, made and written (0600) when it is not there: kubeconfigs outlive a restart."""
    if path.exists():
        raw = json.loads(path.read_text())
        return ApiServerCa(name, raw["certificate"], raw["key"])
    ca = new_ca(name, clock)
    write_private(path, json.pretty({"certificate": ca.certificate, "key": ca.key}))
    return ca


def write_private(path: Path, text: str) -> None:
    """Write `text` so that only the owner may read it, all or nothing."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)
