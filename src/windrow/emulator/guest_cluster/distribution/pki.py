"""The cluster's certificate authorities on a server's disk (reference/04 §7.4).

What lies under `<data>/server/tls` at the first start is used; what is missing is made, file by file. A certificate
that does not fit its key, or that is no authority, ends the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from windrow.core import pki
from windrow.emulator.guest_os.operating_system import GuestOS

# (name, path without ending)
_AUTHORITY_FILES: tuple[tuple[str, str], ...] = (
    ("server", "server-ca"),
    ("client", "client-ca"),
    ("request-header", "request-header-ca"),
    ("etcd-peer", "etcd/peer-ca"),
    ("etcd-server", "etcd/server-ca"),
)
_SERVICE_KEY = "service.key"
_DAYS = 3650


class BadAuthorities(Exception):
    """The files cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CertificateAuthorities:
    """The whole set, by file name below the tls directory."""

    files: Mapping[str, str]
    delivered: bool  # whether server-ca was on the disk, not made here

    @property
    def server_ca(self) -> str:
        return self.files["server-ca.crt"]

    @property
    def server_key(self) -> str:
        return self.files["server-ca.key"]

    @property
    def client_key(self) -> str:
        return self.files["client-ca.key"]

    @property
    def client_ca(self) -> str:
        return self.files["client-ca.crt"]


def load_authorities(guest: GuestOS, program: str, directory: str, now: datetime) -> CertificateAuthorities:
    """Read the set below `directory`, make and write what is missing. Raises BadAuthorities."""
    files: dict[str, str] = {}
    delivered = guest.is_file(f"{directory}/server-ca.crt")
    for name, stem in _AUTHORITY_FILES:
        certificate, key = (_text(guest, f"{directory}/{stem}.{end}") for end in ("crt", "key"))
        if certificate is None and key is None:
            made = pki.new_ca(f"{program}-{name}-ca@{int(now.timestamp())}", now, _DAYS)
            certificate, key = made
            guest.write(f"{directory}/{stem}.crt", certificate.encode(), 0o644)
            guest.write(f"{directory}/{stem}.key", key.encode(), 0o600)
        if certificate is None or key is None:
            lost = f"{directory}/{stem}.{'crt' if certificate is None else 'key'}"
            raise BadAuthorities(f"open {lost}: no such file or directory, though its other half is there")
        _check(f"{directory}/{stem}", certificate, key, now)
        files[f"{stem}.crt"], files[f"{stem}.key"] = certificate, key
    files[_SERVICE_KEY] = _service_key(guest, f"{directory}/{_SERVICE_KEY}")
    return CertificateAuthorities(files, delivered)


def write_authorities(guest: GuestOS, directory: str, files: Mapping[str, str]) -> CertificateAuthorities:
    """Put a set that came from another server on the disk."""
    for name, text in files.items():
        guest.write(f"{directory}/{name}", text.encode(), 0o600 if name.endswith(".key") else 0o644)
    return CertificateAuthorities(dict(files), delivered=True)


def _text(guest: GuestOS, path: str) -> str | None:
    found = guest.read(path)
    return None if found is None else found.decode("utf-8", "replace")


def _check(stem: str, certificate: str, key: str, now: datetime) -> None:
    try:
        subject = pki.read_certificate(certificate)
    except pki.NotCertificate as error:
        raise BadAuthorities(
            f"failed to load {stem}.crt: data does not contain any valid certificates: {error}"
        ) from error
    try:
        fits = pki.matches_key(certificate, key)
    except pki.NotCertificate as error:
        raise BadAuthorities(
            f"failed to load {stem}.key: data does not contain a valid private key: {error}"
        ) from error
    if not fits:
        raise BadAuthorities(f"{stem}.crt and {stem}.key: tls: private key does not match public key")
    if not subject.is_ca:
        raise BadAuthorities(f"{stem}.crt is not a CA certificate (basic constraint CA is not set)")
    if not subject.not_before <= now <= subject.not_after:
        raise BadAuthorities(f"{stem}.crt: x509: certificate has expired or is not yet valid")
    bundle = pki.split_bundle(certificate)
    for lower, upper in pairwise(bundle):
        if not pki.is_signed_by(lower, upper):
            raise BadAuthorities(
                f"{stem}.crt: x509: certificate signed by unknown authority in its own chain"
            )
    if not pki.is_signed_by(bundle[-1], bundle[-1]):
        raise BadAuthorities(
            f"{stem}.crt: its own signature does not verify, or its root is missing: the file was changed or cut"
        )


def _service_key(guest: GuestOS, path: str) -> str:
    text = _text(guest, path)
    if text is None:
        text = pki.new_rsa_signing_key()
        guest.write(path, text.encode(), 0o600)
        return text
    try:
        pki.public_key_of(text)
    except pki.NotCertificate as error:
        raise BadAuthorities(
            f"failed to load {path}: data does not contain a valid private key: {error}"
        ) from error
    return text
