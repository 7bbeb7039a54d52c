"""X.509 certificates and keys as PEM text: issue, read, verify. The only module that imports `cryptography`.

Keys are EC P-256 in the traditional form (`EC PRIVATE KEY`), which every Kubernetes distribution reads. Where a
function takes a bundle, it is about the first certificate; the others are its chain.

Validity starts a little before `now`, because the clock of a freshly booted guest may be behind.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATE = timedelta(minutes=10)
# For an authority that is kept for years: this computer's clock may be ahead when it is created. With one that is farther
# ahead nothing is created, since Harvester's own certificate, which is valid for a year, is not accepted.
DAYS_BEFORE = 365


class NotCertificate(ValueError):
    """The text is not a certificate or key in PEM form; the message says which and why."""


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """Subject and validity of a certificate. The subject of a client certificate is its user name and groups."""

    common_name: str
    organizations: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    is_ca: bool


def new_ca(common_name: str, now: datetime, days: int, days_before: int = 0) -> tuple[str, str]:
    """A fresh self-signed authority: its certificate and key. It is valid for `days`, and was for `days_before`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name, ())
    begins = now - timedelta(days=days_before) - BACKDATE
    builder = _builder(name, name, key.public_key(), begins, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return _certificate_pem(certificate), _key_pem(key)


def issue_certificate(
    ca_cert: str,
    ca_key: str,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
    server: bool = False,
    client: bool = False,
    now: datetime,
    lifetime: timedelta,
) -> tuple[str, str]:
    """A certificate signed by the authority, and its fresh key. Never outlives the authority."""
    authority = _first(ca_cert)
    authority_key = _load_key(ca_key)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise NotCertificate("wanted an EC or RSA key for the authority; found another kind")
    key = ec.generate_private_key(ec.SECP256R1())
    # As in kubeadm it begins with its authority, so that a clock that was set forward meanwhile does not matter.
    begins = authority.not_valid_before_utc
    ends = min(max(now, begins) + lifetime, authority.not_valid_after_utc)
    builder = _builder(_name(common_name, organizations), authority.subject, key.public_key(), begins, ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(authority=False), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
    )
    uses = [ExtendedKeyUsageOID.SERVER_AUTH] * server + [ExtendedKeyUsageOID.CLIENT_AUTH] * client
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    names = [*(x509.DNSName(name) for name in dns), *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _certificate_pem(builder.sign(authority_key, hashes.SHA256())), _key_pem(key)


def new_rsa_signing_key() -> str:
    """A fresh RSA key that signs ServiceAccount tokens."""
    return _key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def is_signed_by(cert_pem: str, ca_pem: str) -> bool:
    """Whether some certificate in `ca_pem` signed the first of `cert_pem`, whatever the dates are."""
    certificate = _first(cert_pem)
    return any(_is_issued_by(certificate, authority) for authority in _load(ca_pem))


def verify_server(chain_pem: str, ca_pem: str, host: str, now: datetime) -> str | None:
    """None when a TLS client that trusts `ca_pem` may talk to `host`; else the reason why not, as a phrase."""
    leaf, *between = chain = _load(chain_pem)
    if not _is_meant_for(leaf, ExtendedKeyUsageOID.SERVER_AUTH):
        return "the certificate is not meant for a server"
    try:
        verifier = _policy(ca_pem, now, names=True).build_server_verifier(_subject(host))
        return _encoding_problem(verifier.verify(leaf, between))
    except (verification.VerificationError, ValueError):
        names = ", ".join(_san_names(leaf)) or "no name"
        return _chain_problem(chain, ca_pem, now) or f"the certificate is for {names}, not for {host}"


def verify_client(chain_pem: str, ca_pem: str, now: datetime) -> str | None:
    """None when the first of `chain_pem` is a client certificate issued under `ca_pem`; else the reason why not."""
    chain = _load(chain_pem)
    if not _is_meant_for(chain[0], ExtendedKeyUsageOID.CLIENT_AUTH):
        return "the certificate is not meant for a client"
    return _chain_problem(chain, ca_pem, now)


def read_certificate(cert_pem: str) -> CertificateInfo:
    """Subject, dates and kind of the first certificate. Raises NotCertificate."""
    certificate = _first(cert_pem)
    return CertificateInfo(
        common_name="".join(_name_attributes(certificate, NameOID.COMMON_NAME)[:1]),
        organizations=tuple(_name_attributes(certificate, NameOID.ORGANIZATION_NAME)),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_ca=_is_ca(certificate),
    )


def matches_key(cert_pem: str, key_pem: str) -> bool:
    """Whether the key belongs to the first certificate."""
    return _public(_first(cert_pem).public_key()) == _public(_load_key(key_pem).public_key())


def split_bundle(pem: str) -> list[str]:
    """Each certificate of a bundle by itself, in order."""
    return [_certificate_pem(certificate) for certificate in _load(pem)]


def der(cert_pem: str) -> bytes:
    """The first certificate in binary form, over which fingerprints are taken."""
    return _first(cert_pem).public_bytes(serialization.Encoding.DER)


def public_key_of(key_pem: str) -> str:
    """The public half of a private key, in PEM form."""
    return _public(_load_key(key_pem).public_key()).decode()


# --- making ----------------------------------------------------------------------------------------------------------


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKeyTypes, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=authority,
        crl_sign=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


# --- reading ---------------------------------------------------------------------------------------------------------


# The same authorities are read at each handshake. A longer text is no chain of certificates in use, and is not kept.
_CACHED_LENGTH = 16_384


def _load(pem: str) -> list[x509.Certificate]:
    return list(_load_cached(pem)) if len(pem) <= _CACHED_LENGTH else _parse_certificates(pem)


@lru_cache(maxsize=128)
def _load_cached(pem: str) -> tuple[x509.Certificate, ...]:
    return tuple(_parse_certificates(pem))


def _parse_certificates(pem: str) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
        for certificate in found:
            # The library parses these at first use and fails there; a corrupt certificate shall fail here.
            _ = certificate.subject, certificate.issuer, certificate.extensions, certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension) as error:
        raise NotCertificate(f"wanted certificates in PEM form, found {_excerpt(pem)}: {error}") from error
    return found


def _first(pem: str) -> x509.Certificate:
    return _load(pem)[0]


def _load_key(pem: str) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise NotCertificate(f"wanted an unencrypted private key in PEM form: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise NotCertificate(f"wanted an EC or RSA key, found {type(key).__name__}")
    return key


def _excerpt(pem: str) -> str:
    first = pem.strip().splitlines()[:1]
    return repr(first[0][:40]) if first else "nothing"


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _name_attributes(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return _has_octet_aligned_signature(certificate)


def _has_octet_aligned_signature(certificate: x509.Certificate) -> bool:
    """Whether the signature, the last field, claims no unused bits (RFC 5280 §4.1.1.3: its octets are the signature).

    The library reads the octets and ignores the count before them, so one flipped bit there would pass.
    """
    encoded = certificate.public_bytes(serialization.Encoding.DER)
    return encoded.endswith(b"\x00" + certificate.signature)


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _is_meant_for(certificate: x509.Certificate, use: x509.ObjectIdentifier) -> bool:
    try:
        return use in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True


# --- chains ----------------------------------------------------------------------------------------------------------


def _policy(ca_pem: str, now: datetime, *, names: bool) -> verification.PolicyBuilder:
    """What a chain must be: Go's rules rather than the web's, since cluster CAs omit extensions that the web demands.

    Each certificate of `ca_pem` is an anchor, also one that is not self-signed; dates, signatures and path lengths are
    checked. A CA is a certificate whose basic constraints say so. With `names` the leaf must have subjectAltNames.
    """
    ca = verification.ExtensionPolicy.permit_all().require_present(
        x509.BasicConstraints, verification.Criticality.AGNOSTIC, _require_ca
    )
    leaf = verification.ExtensionPolicy.permit_all()
    if names:
        leaf = leaf.require_present(x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None)
    builder = verification.PolicyBuilder().store(verification.Store(_load(ca_pem))).time(now)
    return builder.extension_policies(ca_policy=ca, ee_policy=leaf)


def _require_ca(
    policy: verification.Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    if not constraints.ca:
        raise ValueError("not a CA")


def _subject(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.rstrip("."))


def _chain_problem(chain: Sequence[x509.Certificate], ca_pem: str, now: datetime) -> str | None:
    """Why the chain is not trusted, whatever names it is for; None where it is."""
    try:
        verified = _policy(ca_pem, now, names=False).build_client_verifier().verify(chain[0], list(chain[1:]))
    except verification.VerificationError:
        problems = (_validity_problem(one, now) for one in [*chain, *_load(ca_pem)])
        issuer = chain[-1].issuer.rfc4514_string()
        untrusted = f"the certificate is signed by {issuer!r}, which is not trusted"
        return next(filter(None, problems), untrusted)
    return _encoding_problem(verified.chain)


def _encoding_problem(chain: Sequence[x509.Certificate]) -> str | None:
    odd = next((one for one in chain if not _has_octet_aligned_signature(one)), None)
    return None if odd is None else f"the signature of {odd.subject.rfc4514_string()!r} is malformed"


def _validity_problem(certificate: x509.Certificate, now: datetime) -> str | None:
    name = certificate.subject.rfc4514_string()
    if now < certificate.not_valid_before_utc:
        return f"the certificate of {name!r} is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if now > certificate.not_valid_after_utc:
        return f"the certificate of {name!r} expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
    return None


def _san_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]
