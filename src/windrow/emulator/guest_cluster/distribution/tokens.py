"""Join tokens and CA hashes, as RKE2 and K3s read them (reference/04 §7.5).

Three forms: a bare password, `K10<hash>::<user>:<password>`, and `K10<hash>::<id>.<secret>` (a bootstrap token).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from windrow.core import pki

_BOOTSTRAP = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
HASH_LENGTH = 64


class BadToken(ValueError):
    """The token cannot be read; the message is the program's own."""


@dataclass(frozen=True, slots=True)
class Token:
    """A parsed token. `ca_hash` is "" when it carries none."""

    ca_hash: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    bootstrap: str = field(default="", repr=False)


def parse_token(text: str) -> Token:
    """The parts of a token. Raises BadToken."""
    if not text:
        raise BadToken("token must not be empty")
    if not text.startswith("K10"):
        # A bare password, whatever characters it has.
        return Token(bootstrap=text) if _BOOTSTRAP.fullmatch(text) else Token(password=text)
    ca_hash, separator, credentials = text[3:].partition("::")
    if not separator:
        credentials, ca_hash = ca_hash, ""
    if ca_hash and len(ca_hash) != HASH_LENGTH:
        raise BadToken("invalid token CA hash length")
    if _BOOTSTRAP.fullmatch(credentials):
        return Token(ca_hash, bootstrap=credentials)
    user, colon, password = credentials.partition(":")
    if not colon or not password:
        raise BadToken("invalid token format")
    return Token(ca_hash, user, password)


def hash_authorities(pem: str) -> str:
    """The hash that tokens carry for a CA bundle: of the text when it holds one certificate, else of its root's DER.

    Raises `x509.NotCertificate`.
    """
    bundle = pki.split_bundle(pem)
    if len(bundle) > 1 and (root := _root_of(bundle)) is not None:
        return hashlib.sha256(pki.der(root)).hexdigest()
    return hashlib.sha256(pem.encode()).hexdigest()


def _root_of(bundle: list[str]) -> str | None:
    current, rest = bundle[0], bundle[1:]
    while rest:
        signer = next((one for one in rest if pki.is_signed_by(current, one)), None)
        if signer is None:
            return None
        if pki.is_signed_by(signer, signer):
            return signer
        rest.remove(signer)
        current = signer
    return None
