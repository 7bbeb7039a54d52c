import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from windrow.core import pki

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CA, CA_KEY = pki.new_ca("a test authority", NOON, days=3650)
OTHER_CA, _ = pki.new_ca("a test authority", NOON, days=3650)
CERTIFICATE, _ = pki.issue_certificate(CA, CA_KEY, common_name="x", now=NOON, lifetime=DAY)


def a_certificate(**changes: Any) -> tuple[str, str]:
    wanted: dict[str, Any] = {
        "common_name": "api",
        "dns": ["api.example.org"],
        "ips": ["10.0.0.5"],
        "server": True,
        "now": NOON,
        "lifetime": DAY,
    }
    return pki.issue_certificate(CA, CA_KEY, **(wanted | changes))


def test_a_ca_is_marked_as_one() -> None:
    subject = pki.read_certificate(CA)

    assert subject.is_ca
    assert subject.common_name == "a test authority"
    assert subject.not_after == NOON + 3650 * DAY


def test_a_client_certificate_carries_user_and_groups() -> None:
    certificate, _ = a_certificate(common_name="manager", organizations=["system:masters", "b"], client=True)

    subject = pki.read_certificate(certificate)

    assert (subject.common_name, subject.organizations) == ("manager", ("system:masters", "b"))
    assert not subject.is_ca


def test_a_certificate_is_signed_by_its_authority_only() -> None:
    certificate, _ = a_certificate()

    assert pki.is_signed_by(certificate, CA)
    assert pki.is_signed_by(certificate, OTHER_CA + CA)
    assert not pki.is_signed_by(certificate, OTHER_CA)


def test_a_key_matches_its_own_certificate_only() -> None:
    certificate, key = a_certificate()

    assert pki.matches_key(certificate, key)
    assert pki.matches_key(CA, CA_KEY)
    assert not pki.matches_key(certificate, CA_KEY)
    assert not pki.matches_key(certificate, pki.new_rsa_signing_key())


def test_a_certificate_does_not_outlive_its_authority() -> None:
    ca, key = pki.new_ca("short", NOON, days=1)

    certificate, _ = pki.issue_certificate(ca, key, common_name="x", now=NOON, lifetime=10 * DAY)

    assert pki.read_certificate(certificate).not_after == NOON + DAY


def test_an_authority_that_was_created_with_a_clock_ahead_is_valid_once_it_is_right() -> None:
    ca, key = pki.new_ca("kept", NOON + 300 * DAY, days=3650, days_before=pki.DAYS_BEFORE)
    certificate, _ = pki.issue_certificate(
        ca, key, common_name="x", dns=["x.example"], server=True, now=NOON, lifetime=DAY
    )

    assert pki.verify_server(certificate, ca, "x.example", NOON) is None
    assert pki.read_certificate(certificate).not_after == NOON + DAY


def test_a_certificate_of_a_clock_behind_its_authority_has_its_lifetime() -> None:
    certificate, _ = a_certificate(now=NOON - 30 * DAY)

    read = pki.read_certificate(certificate)
    assert read.not_after - read.not_before == DAY


@pytest.mark.parametrize("host", ["api.example.org", "API.example.org", "10.0.0.5"])
def test_a_server_is_trusted_under_each_of_its_names(host: str) -> None:
    assert pki.verify_server(a_certificate()[0], CA, host, NOON) is None


def test_a_wildcard_covers_one_label() -> None:
    certificate, _ = a_certificate(dns=["*.example.org"], ips=[])

    assert pki.verify_server(certificate, CA, "api.example.org", NOON) is None
    assert pki.verify_server(certificate, CA, "a.api.example.org", NOON) is not None
    assert pki.verify_server(certificate, CA, "example.org", NOON) is not None


@pytest.mark.parametrize(
    ("changes", "ca", "host", "now", "reason"),
    [
        ({}, CA, "10.0.0.6", NOON, "is for api.example.org, 10.0.0.5, not for 10.0.0.6"),
        ({"dns": [], "ips": []}, CA, "api", NOON, "is for no name"),
        ({}, OTHER_CA, "10.0.0.5", NOON, "'CN=a test authority', which is not trusted"),
        ({}, CA, "10.0.0.5", NOON + 2 * DAY, "expired at 2026-03-02T12:00:00Z"),
        ({}, CA, "10.0.0.5", NOON - DAY, "not valid before"),
        ({"server": False, "client": True}, CA, "10.0.0.5", NOON, "not meant for a server"),
    ],
)
def test_a_server_that_is_not_trusted_is_refused_with_the_reason(
    changes: dict[str, Any], ca: str, host: str, now: datetime, reason: str
) -> None:
    found = pki.verify_server(a_certificate(**changes)[0], ca, host, now)

    assert found is not None
    assert reason in found


def test_a_certificate_that_is_no_ca_cannot_issue_another() -> None:
    middle, middle_key = a_certificate(common_name="no authority")
    leaf, _ = pki.issue_certificate(
        middle, middle_key, common_name="x", dns=["x"], server=True, now=NOON, lifetime=DAY
    )

    assert pki.verify_server(leaf + middle, CA, "x", NOON) is not None


def test_a_client_is_trusted_only_by_its_authority_and_for_its_use() -> None:
    client, _ = a_certificate(server=False, client=True)
    server, _ = a_certificate()

    assert pki.verify_client(client, CA, NOON) is None
    assert pki.verify_client(client, OTHER_CA, NOON) is not None
    assert pki.verify_client(server, CA, NOON) == "the certificate is not meant for a client"


def test_a_bundle_splits_into_its_certificates() -> None:
    assert pki.split_bundle(CA + OTHER_CA) == [CA, OTHER_CA]


def test_a_certificate_survives_its_binary_form() -> None:
    assert ssl.DER_cert_to_PEM_cert(pki.der(CA)) == CA


@pytest.mark.parametrize("read", [pki.read_certificate, pki.split_bundle, pki.der])
def test_what_is_no_certificate_is_refused(read: Any) -> None:
    with pytest.raises(pki.NotCertificate, match="wanted certificates in PEM form, found 'hello'"):
        read("hello")


def test_what_is_no_key_is_refused_without_showing_it() -> None:
    with pytest.raises(pki.NotCertificate) as caught:
        pki.matches_key(CA, "hunter2")

    assert "hunter2" not in str(caught.value)


# The last 20 bytes lie within the second of the signature's two numbers.
@given(st.integers(1, 20), st.integers(0, 7))
def test_one_flipped_bit_in_a_signature_is_noticed(from_end: int, bit: int) -> None:
    raw = bytearray(pki.der(CERTIFICATE))
    raw[-from_end] ^= 1 << bit

    assert not pki.is_signed_by(ssl.DER_cert_to_PEM_cert(bytes(raw)), CA)


def test_a_signature_that_claims_unused_bits_is_noticed() -> None:
    # The claim is only legible where the bits that it calls unused are nought; half of all signatures end so.
    authorities = (pki.new_ca("a test authority", NOON, days=1)[0] for _ in range(100))
    binary = next(binary for binary in map(pki.der, authorities) if not binary[-1] & 1)
    algorithm = bytes.fromhex("2a8648ce3d040302")  # ecdsa-with-SHA256, the last before the signature
    count = binary.rindex(algorithm) + len(algorithm) + 2  # BIT STRING, length, how many bits are unused
    turned = ssl.DER_cert_to_PEM_cert(binary[:count] + b"\x01" + binary[count + 1 :])

    assert binary[count] == 0
    assert not pki.is_signed_by(turned, turned)


def test_keys_are_in_the_traditional_form_that_every_distribution_reads() -> None:
    assert CA_KEY.startswith("-----BEGIN EC PRIVATE KEY-----\n")
    assert pki.new_rsa_signing_key().startswith("-----BEGIN RSA PRIVATE KEY-----\n")


def a_chain() -> tuple[str, str]:
    """A server certificate, and the intermediate that issued it: with the one extension that CAs must have."""
    key = ec.generate_private_key(ec.SECP256R1())
    ca = x509.load_pem_x509_certificate(CA.encode())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOON - DAY)
        .not_valid_after(NOON + 10 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
    )
    signer = serialization.load_pem_private_key(CA_KEY.encode(), None)
    signed = builder.sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    pem = signed.public_bytes(serialization.Encoding.PEM).decode()
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
    leaf, _ = pki.issue_certificate(
        pem, key_pem, common_name="x", dns=["x"], server=True, client=True, now=NOON, lifetime=DAY
    )
    return leaf, pem


LEAF, INTERMEDIATE = a_chain()


def test_an_intermediate_leads_to_its_authority_and_may_be_the_anchor_itself() -> None:
    assert pki.verify_server(LEAF + INTERMEDIATE, CA, "x", NOON) is None
    assert pki.verify_client(LEAF + INTERMEDIATE, CA, NOON) is None
    assert pki.verify_server(LEAF, INTERMEDIATE, "x", NOON) is None
    assert pki.verify_server(LEAF, OTHER_CA + CA, "x", NOON) is not None


def test_an_authority_that_has_expired_is_no_anchor() -> None:
    reason = pki.verify_server(LEAF, INTERMEDIATE, "x", NOON + 11 * DAY)

    assert reason is not None
    assert "expired at" in reason


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@given(st.booleans(), st.integers(min_value=0), st.integers(0, 7))
def test_any_flipped_bit_of_a_chain_is_noticed(leaf: bool, byte: int, bit: int) -> None:
    raw = bytearray(pki.der(LEAF if leaf else INTERMEDIATE))
    raw[byte % len(raw)] ^= 1 << bit
    try:
        flipped = ssl.DER_cert_to_PEM_cert(bytes(raw))
        chain = flipped + INTERMEDIATE if leaf else LEAF + flipped
        assert pki.verify_server(chain, CA, "x", NOON) is not None
        assert pki.verify_client(chain, CA, NOON) is not None
    except pki.NotCertificate:
        pass
