"""Kubernetes quantities: exact numbers with a suffix, as in `4Gi`, `500m`, `2`, `1e3`.

A quantity is a whole number of nanos, Kubernetes' smallest unit, and keeps the family of suffixes it was written in, so
that printing gives the same canonical text as a Kubernetes API server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from windrow.core.formats.bounds import MAX_LENGTH, abbreviate, is_too_long

NANO = 10**9
# Go keeps quantities in 64 bits (or big decimals, capped there when parsed).
LARGEST = (2**63 - 1) * NANO


# What Go's parser says of a text that has not even the form, as API servers pass it on.
WRONG_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class NotQuantity(ValueError):
    """The text is not a quantity; the message says what was found."""


class Form(Enum):
    """The family of suffixes a quantity is printed in."""

    BINARY = "binary"
    DECIMAL = "decimal"
    EXPONENT = "exponent"


_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Compares by amount: `Quantity.parse("1Gi") == Quantity.parse("1024Mi")`."""

    nanos: int
    form: Form = field(default=Form.DECIMAL, compare=False)

    @classmethod
    def parse(cls, text: str | int) -> Quantity:
        """The quantity that `text` writes. What is finer than a nano is rounded away from zero. Raises NotQuantity."""
        # A number is measured before it is written out, which Python refuses to do with more than 4300 digits.
        is_long = is_too_long(text) if isinstance(text, str) else abs(text) >= 10**MAX_LENGTH
        match = None if is_long else _GRAMMAR.fullmatch(str(text))
        if match is None:
            raise NotQuantity(
                f"wanted a quantity such as 4Gi, 500m or 2, found {abbreviate(text)}; "
                "write a number and one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, 64 characters at most"
            )
        times, by, form = _read_scale(match)
        whole, _, fraction = match["number"].partition(".")
        nanos = _divide(int(f"{whole}{fraction}") * times * NANO, by * 10 ** len(fraction))
        return cls(max(-LARGEST, min(LARGEST, nanos)), form)

    @classmethod
    def of_bytes(cls, size: int) -> Quantity:
        """A size, which is printed in powers of 1024 where it is a multiple of one: `4Gi`."""
        return cls(size * NANO, Form.BINARY)

    @property
    def value(self) -> int:
        """The amount as a whole number, rounded away from zero (Go's `Value()`)."""
        return _divide(self.nanos, NANO)

    @property
    def bytes(self) -> int:
        """`value`, where the amount is a size."""
        return self.value

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero: `500m` and `0.5` give 500."""
        return _divide(self.nanos * 1000, NANO)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.form if self.nanos else other.form)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nanos * times, self.form)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.form)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        """The canonical text: a whole number with the largest suffix that keeps it exact."""
        if self.nanos == 0:
            return "0"
        # Kubernetes prints small and fractional binary amounts as decimals, because binary suffixes cannot.
        if self.form is Form.BINARY and abs(self.nanos) >= 1024 * NANO and self.nanos % NANO == 0:
            return _print_binary(self.nanos // NANO)
        return _print_decimal(self.nanos, self.form)


def _read_scale(match: re.Match[str]) -> tuple[int, int, Form]:
    """By what the number is multiplied, by what it is divided, and the family."""
    suffix, exponent = match["suffix"] or "", match["exponent"]
    if suffix in _BINARY:
        return _BINARY[suffix], 1, Form.BINARY
    power = _DECIMAL[suffix] if exponent is None else int(exponent)
    form = Form.DECIMAL if exponent is None else Form.EXPONENT
    return 10 ** max(power, 0), 10 ** max(-power, 0), form


def _divide(amount: int, by: int) -> int:
    """Rounded away from zero."""
    whole = -(-abs(amount) // by)
    return whole if amount >= 0 else -whole


def _print_binary(amount: int) -> str:
    fitting = [(size, suffix) for suffix, size in _BINARY.items() if amount % size == 0]
    size, suffix = max(fitting, default=(1, ""))
    return f"{amount // size}{suffix}"


def _print_decimal(nanos: int, form: Form) -> str:
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if form is Form.EXPONENT:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_SUFFIX_OF[exponent]}"
