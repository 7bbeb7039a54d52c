"""The RSA keys of ssh_keys against the cryptography library: same encoding, same verdicts on primes, sound parameters."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from windrow.core.rng import Rng, SystemRng
from windrow.nodedriver.ssh.keys import generate_key_pair, is_prime, key_pair_of, sieved

# The 2048-bit safe prime of RFC 3526 (group 14): 2^2048 - 2^1984 - 1 + 2^64 * (floor(2^1918 pi) + 124476).
MODP_2048 = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)


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


def test_a_known_large_prime_and_its_sophie_germain_prime_are_found_prime() -> None:
    assert is_prime(MODP_2048, Rng(2))
    assert is_prime((MODP_2048 - 1) // 2, Rng(2))
    assert not is_prime(MODP_2048 + 2, Rng(2))


def test_the_verdict_on_every_small_odd_number_is_that_of_trial_division() -> None:
    rng = Rng(3)
    for number in range(5, 20_000, 2):
        by_division = all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))
        assert is_prime(number, rng) is by_division, number


def test_the_product_of_two_of_the_library_s_primes_is_composite_and_each_factor_prime() -> None:
    numbers = rsa.generate_private_key(65537, 2048).private_numbers()
    assert is_prime(numbers.p, SystemRng())
    assert is_prime(numbers.q, SystemRng())
    assert not is_prime(numbers.p * numbers.q, SystemRng())


@pytest.mark.parametrize("seed", range(4))
def test_the_sieve_strikes_exactly_the_numbers_with_a_small_factor(seed: int) -> None:
    start = Rng(seed).bits(1024) | 0b11 << 1022 | 1
    kept = set(sieved(start, 1024))
    small = [prime for prime in range(3, 1 << 14, 2) if prime == 3 or is_prime(prime, Rng(4))]
    for index in range(0, 1 << 12, 7):
        number = start + 2 * index
        assert (number in kept) is all(number % prime for prime in small)


@pytest.mark.parametrize("bits", [2048, 3072])
def test_both_encodings_are_those_of_the_library_byte_by_byte(bits: int) -> None:
    key = rsa.generate_private_key(65537, bits)
    numbers = key.private_numbers()

    pair = key_pair_of(numbers.q, numbers.p)

    assert pair.private_pem == key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    openssh = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert pair.public_line == f"{openssh.decode()}\n"


def test_every_key_meets_the_bounds_of_fips_186_5_and_shares_no_prime() -> None:
    keys = [read(generate_key_pair(SystemRng()).private_pem).private_numbers() for _ in range(3)]
    for numbers in keys:
        for prime in (numbers.p, numbers.q):
            assert prime.bit_length() == 1024
            assert prime**2 >= 2 ** (2 * 1023 + 1)  # at least sqrt(2) * 2^1023
            assert is_prime(prime, SystemRng(), rounds=20)
        assert abs(numbers.p - numbers.q) > 2 ** (1024 - 100)
        assert 2**1024 < numbers.d < math.lcm(numbers.p - 1, numbers.q - 1)
        assert numbers.public_numbers.n.bit_length() == 2048
    for one, other in combinations(keys, 2):
        assert math.gcd(one.public_numbers.n, other.public_numbers.n) == 1


def test_all_randomness_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    system = random._urandom  # type: ignore[attr-defined]

    def urandom(count: int) -> bytes:
        asked.append(count)
        return system(count)

    monkeypatch.setattr(random, "_urandom", urandom)
    random.seed(1)
    one = generate_key_pair(SystemRng())
    random.seed(1)
    other = generate_key_pair(SystemRng())

    assert one != other
    assert asked.count(128) >= 4  # each of the four primes began with 1024 fresh bits
