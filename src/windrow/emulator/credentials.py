"""Credentials of the simulated Harvester: CAs, the administrator's certificate, and bearer tokens."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from windrow.apiserver.request.authn import StaticToken
from windrow.core import pki
from windrow.core.clock import Clock
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig

LIFETIME_DAYS = 3650
ADMIN = ("system:admin", ("system:masters",))


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority: certificate and key, PEM."""

    certificate: str
    key: str = field(repr=False)


def new_authority(name: str, now: datetime) -> Authority:
    return Authority(*pki.new_ca(name, now, LIFETIME_DAYS))


class Credentials:
    """The cluster's CAs; issues certificates, tokens and kubeconfigs."""

    def __init__(self, clock: Clock, vip: str, tokens: Callable[[], dict[str, StaticToken]]) -> None:
        self._clock = clock
        self._tokens = tokens
        stem = int(clock.now().timestamp())
        self.server_ca = new_authority(f"rke2-server-ca@{stem}", clock.now())
        self.client_ca = new_authority(f"rke2-client-ca@{stem}", clock.now())
        self.identity = self._new_identity(vip)

    def _new_identity(self, vip: str) -> TlsIdentity:
        chain, key = pki.issue_certificate(
            self.server_ca.certificate,
            self.server_ca.key,
            common_name="kube-apiserver",
            dns=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            ips=(vip, "127.0.0.1", "::1", "10.53.0.1"),
            server=True,
            now=self._clock.now(),
            lifetime=timedelta(days=LIFETIME_DAYS),
        )
        return TlsIdentity(chain + self.server_ca.certificate, key, self.client_ca.certificate)

    def new_token(self, expires: datetime | None = None) -> str:
        """A bearer token of the administrator, valid until `expires`, as Rancher issues."""
        token = f"kubeconfig-admin:{secrets.token_urlsafe(32)}"
        self._tokens()[token] = (*ADMIN, expires)
        return token

    def revoke(self, token: str) -> None:
        """Revoke the token. May be repeated."""
        self._tokens().pop(token, None)

    def admin_kubeconfig(self, server: str, proxy_url: str = "") -> str:
        """A kubeconfig for the administrator, with a client certificate."""
        user, groups = ADMIN
        certificate, key = pki.issue_certificate(
            self.client_ca.certificate,
            self.client_ca.key,
            common_name=user,
            organizations=groups,
            client=True,
            now=self._clock.now(),
            lifetime=timedelta(days=365),
        )
        access = ClientConfig(
            server, self.server_ca.certificate, certificate=certificate, key=key, proxy_url=proxy_url
        )
        return render_kubeconfig(access, "harvester")

    def token_kubeconfig(self, token: str, server: str, proxy_url: str = "") -> str:
        """A kubeconfig that carries `token`, as Rancher issues it."""
        access = ClientConfig(server, self.server_ca.certificate, token=token, proxy_url=proxy_url)
        return render_kubeconfig(access, "harvester")
