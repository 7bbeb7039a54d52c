"""Keys made by hand are keys for everybody: OpenSSL's library reads them, and they fit each other."""

from __future__ import annotations

import math

import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from windrow.core.rng import Rng, SystemRng
from windrow.nodedriver.ssh_keys import generate_key_pair, is_prime


@pytest.fixture(scope="module")
def pair():
    return generate_key_pair(Rng(1))


def read(pem: bytes) -> RSAPrivateKey:
    key = load_pem_private_key(pem, None)  # checks that the numbers fit each other
    assert isinstance(key, RSAPrivateKey)
    return key


def test_both_halves_belong_together(pair) -> None:
    key = read(pair.private_pem)
    assert load_ssh_public_key(pair.public_line.encode()) == key.public_key()
    signature = key.sign(b"message", padding.PKCS1v15(), SHA256())
    key.public_key().verify(signature, b"message", padding.PKCS1v15(), SHA256())


def test_the_key_is_as_the_go_driver_makes_it(pair) -> None:
    key = read(pair.private_pem)
    numbers = key.private_numbers()
    assert (key.key_size, numbers.public_numbers.e) == (2048, 65537)
    assert pair.private_pem.startswith(b"-----BEGIN RSA PRIVATE KEY-----\n")
    assert pair.private_pem.endswith(b"-----END RSA PRIVATE KEY-----\n")
    assert pair.public_line.startswith("ssh-rsa AAAA")
    assert pair.public_line.endswith("\n")
    assert len(pair.public_line.split()) == 2  # no comment


def test_the_primes_are_far_apart_and_fit_the_exponent(pair) -> None:
    numbers = read(pair.private_pem).private_numbers()
    assert abs(numbers.p - numbers.q).bit_length() > 924
    assert math.gcd(65537, (numbers.p - 1) * (numbers.q - 1)) == 1
    assert numbers.d.bit_length() > 1024


def test_the_same_chance_makes_the_same_key_and_the_system_s_never_does(pair) -> None:
    assert generate_key_pair(Rng(1)) == pair
    assert generate_key_pair(SystemRng()) != generate_key_pair(SystemRng())


def test_the_private_half_is_not_shown(pair) -> None:
    assert "PRIVATE" not in repr(pair)


@pytest.mark.parametrize("number", [5, 7, 65537, 2**61 - 1, 2**127 - 1, 2**521 - 1])
def test_primes_are_found_prime(number: int) -> None:
    assert is_prime(number, Rng(2))


@pytest.mark.parametrize("number", [9, 561, 2047, 3215031751, (2**61 - 1) * (2**31 - 1), 2**128 + 1])
def test_composites_are_found_composite_also_those_that_fool_a_simple_test(number: int) -> None:
    assert not is_prime(number, Rng(2))
