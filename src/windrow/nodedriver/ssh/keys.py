"""SSH key pairs: RSA-2048 in PKCS#1, as the Go driver makes them, with the standard library alone.

    getrandom ──> odd start ──> sieve ──> Miller-Rabin ──> two primes ──> DER

A window of odd numbers behind a random start is sieved by small primes, which leaves about one in ten to be tested.
The start is random over its whole range, as in OpenSSL, so the primes lose no measurable entropy against a fresh draw for
each candidate. Sizes, distance and rounds are those of FIPS 186-5. Nothing here is constant in time: a key is made once,
on the machine that uses it. docs/explanation/one-file-driver.md has the review.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from windrow.core.rng import Rng, SystemRng

BITS = 2048
EXPONENT = 65537
# For random candidates of 1024 bits, five rounds leave less than one chance in 2**112 (FIPS 186-5, table B.1).
ROUNDS = 5
_SIEVE_BELOW = 1 << 14
_WINDOW = 1 << 12  # odd numbers sieved behind one random start


@dataclass(frozen=True, slots=True)
class SshKeyPair:
    """`private_pem` is `RSA PRIVATE KEY`, `public_line` is `ssh-rsa …` with its line end and no comment."""

    private_pem: bytes = field(repr=False)
    public_line: str


def generate_key_pair(rng: SystemRng) -> SshKeyPair:
    """A new RSA-2048 key pair. Takes some tenths of a second. `rng` is the operating system's: a seeded Rng has no place
    here, and the type keeps it out."""
    half = BITS // 2
    while True:
        p, q = _prime(rng, half), _prime(rng, half)
        if abs(p - q) >> (half - 100):
            return key_pair_of(p, q)


def key_pair_of(p: int, q: int) -> SshKeyPair:
    """The key pair of two primes, encoded."""
    p, q = max(p, q), min(p, q)
    modulus = p * q
    private = pow(EXPONENT, -1, math.lcm(p - 1, q - 1))
    numbers = (
        0,
        modulus,
        EXPONENT,
        private,
        p,
        q,
        private % (p - 1),
        private % (q - 1),
        pow(q, -1, p),
    )
    return SshKeyPair(_pem("RSA PRIVATE KEY", _der_sequence(numbers)), _public_line(modulus))


# --- primes --------------------------------------------------------------------------------------------------------


def _prime(rng: Rng, bits: int) -> int:
    """A prime of exactly `bits` bits, high enough that two of them multiply to twice as many."""
    while True:
        start = rng.bits(bits) | 0b11 << (bits - 2) | 1
        for candidate in sieved(start, bits):
            if math.gcd(candidate - 1, EXPONENT) == 1 and is_prime(candidate, rng):
                return candidate


def sieved(start: int, bits: int) -> Iterator[int]:
    """The odd numbers of the window behind `start` that no small prime divides."""
    window = bytearray(_WINDOW)
    for prime in _small_primes():
        # The first index whose number, start + 2 * index, the prime divides.
        first = -start * ((prime + 1) // 2) % prime
        window[first::prime] = b"\1" * len(range(first, _WINDOW, prime))
    for index, struck in enumerate(window):
        if not struck and (start + 2 * index).bit_length() == bits:
            yield start + 2 * index


def is_prime(number: int, rng: Rng, rounds: int = ROUNDS) -> bool:
    """Whether an odd `number` above 3 is prime, by Miller and Rabin."""
    twos = (number - 1 & 1 - number).bit_length() - 1
    odd = number - 1 >> twos
    # Base 2 first: it finds nearly every composite, and is quicker than a random base.
    return _passes(number, odd, twos, 2) and all(
        _passes(number, odd, twos, 2 + rng.bits(number.bit_length() + 64) % (number - 3))
        for _ in range(rounds)
    )


def _passes(number: int, odd: int, twos: int, base: int) -> bool:
    value = pow(base, odd, number)
    if value in (1, number - 1):
        return True
    for _ in range(twos - 1):
        value = value * value % number
        if value == number - 1:
            return True
    return False


_PRIMES: list[int] = []


def _small_primes() -> list[int]:
    """The odd primes below the sieve's limit; found when first needed, since most plugins make no key."""
    if not _PRIMES:
        struck = bytearray(_SIEVE_BELOW)
        for number in range(3, _SIEVE_BELOW, 2):
            if not struck[number]:
                _PRIMES.append(number)
                struck[number * number :: 2 * number] = b"\1" * len(
                    range(number * number, _SIEVE_BELOW, 2 * number)
                )
    return _PRIMES


# --- forms ---------------------------------------------------------------------------------------------------------


def _der_sequence(numbers: tuple[int, ...]) -> bytes:
    body = b"".join(_der(0x02, _signed(number)) for number in numbers)
    return _der(0x30, body)


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def _signed(number: int) -> bytes:
    """Big endian, with a leading zero bit, since both DER and SSH read it with a sign."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _pem(label: str, body: bytes) -> bytes:
    text = base64.b64encode(body).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", "")).encode()


def _public_line(modulus: int) -> str:
    parts = (b"ssh-rsa", _signed(EXPONENT), _signed(modulus))
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-rsa {base64.b64encode(blob).decode()}\n"
