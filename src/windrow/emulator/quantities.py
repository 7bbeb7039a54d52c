"""Kubernetes quantities as exact numbers, and back: what the emulator's scheduler and mutators compute with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from windrow.core.formats.quantity import WRONG_FORM

MI = 1 << 20

_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(10 ** (3 * power)) for power, letter in enumerate("kMGTPE", start=1)},
    **{letter + "i": Fraction(1 << (10 * power)) for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"^(?=.)([+-]?\d*\.?\d*)(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)$")


class BadQuantity(ValueError):
    """The text is not a quantity."""


def parse_quantity(text: object) -> Fraction:
    """The number of `text`. Raises BadQuantity with apimachinery's message."""
    found = _QUANTITY.match(str(text))
    if not found:
        raise BadQuantity(WRONG_FORM)
    number, exponent, suffix = found.groups()
    if not any(sign.isdigit() for sign in number):
        return Fraction(0)  # a suffix alone, as Go reads it
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def quantity_or_zero(text: object) -> Fraction:
    """The same, and 0 for what is missing or not a quantity (schedulers read it so)."""
    try:
        return parse_quantity(text) if text not in (None, "") else Fraction(0)
    except BadQuantity:
        return Fraction(0)


Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and the format in which Kubernetes writes it back, as apimachinery's Quantity."""

    number: Fraction = Fraction(0)
    format: Format = "DecimalSI"

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises BadQuantity."""
        number, written = parse_quantity(text), str(text)
        if written.endswith("i"):
            return cls(number, "BinarySI")
        exponent = any(sign in written[:-1] for sign in "eE")
        return cls(number, "DecimalExponent" if exponent else "DecimalSI")

    @classmethod
    def find(cls, text: object) -> Self | None:
        try:
            return cls.parse(text)
        except BadQuantity:
            return None

    @classmethod
    def read(cls, text: object) -> Self:
        """Zero for what is missing or not a quantity."""
        return cls.find(text) or cls()

    @property
    def whole(self) -> int:
        """Units, rounded away from zero."""
        return _away_from_zero(self.number)

    @property
    def milli(self) -> int:
        return _away_from_zero(self.number * 1000)

    def minus(self, other: Fraction) -> Quantity:
        return Quantity(self.number - other, self.format)

    def __str__(self) -> str:
        """The canonical form: the largest suffix that leaves a whole number."""
        if self.format == "BinarySI" and abs(self.number) >= 1024 and self.number.denominator == 1:
            return _render(self.number, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
        nano = Fraction(_away_from_zero(self.number * 10**9))
        if self.format == "DecimalExponent":
            mantissa, exponent = int(nano), -9
            while mantissa and mantissa % 1000 == 0:
                mantissa, exponent = mantissa // 1000, exponent + 3
            return f"{mantissa}e{exponent}" if mantissa and exponent else str(mantissa)
        return _render(nano, 1000, ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))


def _away_from_zero(number: Fraction) -> int:
    whole = -(-abs(number.numerator) // number.denominator)
    return whole if number >= 0 else -whole


def _render(number: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    left, place = int(number), 0
    if left == 0:
        return "0"
    while left % base == 0 and place < len(suffixes) - 1:
        left, place = left // base, place + 1
    return f"{left}{suffixes[place]}"
