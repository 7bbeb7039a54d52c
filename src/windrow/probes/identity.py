"""The serving certificate of the port for probes: from two files, read again when they change, or self-signed in memory.

Clients cannot verify a self-signed one, and the kubelet verifies none. It keeps tokens from being sent in plain text.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from windrow.core import pki
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import ReadFile

LIFETIME = timedelta(days=365)
RENEWAL = timedelta(days=30)


class BadCertificate(ValueError):
    """Certificate and key cannot be used; the message ends with a hint."""


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """A certificate with its chain, and its key, as PEM text."""

    chain: str
    key: str = field(repr=False)


class ServingIdentity(Protocol):
    def current(self) -> ServingCertificate:
        """The certificate to serve now; called for each connection. Raises BadCertificate the first time only."""
        ...


class SelfSignedIdentity:
    """A self-signed certificate in memory, renewed a month before it expires."""

    def __init__(self, clock: Clock, common_name: str) -> None:
        self._clock = clock
        self._common_name = common_name
        self._pair: ServingCertificate | None = None
        self._until = clock.now()

    def current(self) -> ServingCertificate:
        now = self._clock.now()
        if self._pair is None or now > self._until:
            days = LIFETIME.days
            authority = pki.new_ca(f"{self._common_name}-ca@{int(now.timestamp())}", now, days)
            name = f"{self._common_name}@{int(now.timestamp())}"
            chain, key = pki.issue_certificate(
                *authority,
                common_name=name,
                dns=("localhost",),
                ips=("127.0.0.1", "::1"),
                server=True,
                now=now,
                lifetime=LIFETIME,
            )
            self._pair = ServingCertificate(chain + authority[0], key)
            self._until = now + LIFETIME - RENEWAL
        return self._pair


class FileIdentity:
    """The certificate in two files. When they cannot be used any more, that is logged once and the last one stays."""

    def __init__(self, certificate: str, key: str, read_file: ReadFile, log: logging.Logger) -> None:
        self._paths = (certificate, key)
        self._read_file = read_file
        self._log = log
        self._pair: ServingCertificate | None = None
        self._problem = ""

    def current(self) -> ServingCertificate:
        try:
            self._pair = self._read()
            self._problem = ""
        except BadCertificate as error:
            if self._pair is None:
                raise
            if str(error) != self._problem:
                self._problem = str(error)
                self._log.warning("%s; the certificate that was read before stays in use", error)
        return self._pair

    def _read(self) -> ServingCertificate:
        certificate, key = self._paths
        try:
            pair = ServingCertificate(self._read_file(certificate), self._read_file(key))
        except OSError as error:
            raise BadCertificate(f"unable to load server certificate: {error}; correct the path") from error
        except UnicodeError as error:
            raise BadCertificate(
                f"unable to load server certificate from {certificate} and {key}: one of them is no text; "
                "give both as PEM, not as DER"
            ) from error
        if pair == self._pair:
            return pair
        try:
            good = pki.matches_key(pair.chain, pair.key)
        except pki.NotCertificate as error:
            raise BadCertificate(
                f"unable to load server certificate from {certificate} and {key}: {error}"
            ) from error
        if not good:
            raise BadCertificate(
                f"unable to load server certificate: private key {key} is not that of {certificate}; "
                "give a certificate and its own key"
            )
        return pair
