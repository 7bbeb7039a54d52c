"""Kubernetes quantities as exact numbers, and back: what the emulator's scheduler and mutators compute with."""

from __future__ import annotations

import re
from fractions import Fraction

MI = 1 << 20

_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(10 ** (3 * power)) for power, letter in enumerate("kMGTPE", start=1)},
    **{letter + "i": Fraction(1 << (10 * power)) for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)$")


class BadQuantity(ValueError):
    """The text is not a quantity."""


def parse_quantity(text: object) -> Fraction:
    """The number of `text`. Raises BadQuantity with apimachinery's message."""
    found = _QUANTITY.match(str(text))
    if not found:
        raise BadQuantity(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, exponent, suffix = found.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def quantity_or_zero(text: object) -> Fraction:
    """The same, and 0 for what is missing or not a quantity (schedulers read it so)."""
    try:
        return parse_quantity(text) if text not in (None, "") else Fraction(0)
    except BadQuantity:
        return Fraction(0)


def render_cpu(cores: Fraction) -> str:
    """Cores as Kubernetes prints them: `2`, or `400m` (rounded up to a whole millicore)."""
    milli = -(-(cores * 1000).numerator // (cores * 1000).denominator)
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def render_memory(number: Fraction) -> str:
    """Bytes as Kubernetes prints them: the largest binary suffix that stays whole."""
    left, suffix = int(number), ""
    for letter in ("Ki", "Mi", "Gi", "Ti"):
        if left == 0 or left % 1024:
            break
        left, suffix = left // 1024, letter
    return f"{left}{suffix}"
