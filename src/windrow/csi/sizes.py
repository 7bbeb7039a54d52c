"""Sizes of volumes: what a request asks for, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.csi.errors import OutOfRange

MIB = 2**20
# Longhorn and KubeVirt make nothing smaller of a claim, and the Go driver asked for no less.
MIN_BYTES = 10 * MIB
# Claims are whole multiples of it.
STEP_BYTES = 2 * MIB
MAX_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class SizeRange:
    """At least `required`, at most `limit`; 0 stands for no bound."""

    required: int = 0
    limit: int = 0

    def includes(self, size: int) -> bool:
        return size >= self.required and (not self.limit or size <= self.limit)

    def __str__(self) -> str:
        upper = f" and at most {self.limit}" if self.limit else ""
        return f"at least {self.required}{upper} bytes"


def choose_size(wanted: SizeRange, least: int = MIN_BYTES) -> int:
    """The smallest size that can be made, is within the range, and has at least `least` bytes. Raises OutOfRange."""
    size = -(-max(wanted.required, least) // STEP_BYTES) * STEP_BYTES
    if size > MAX_BYTES or (wanted.limit and size > wanted.limit):
        raise OutOfRange(
            f"a volume of {wanted} is wanted; the smallest that can be made of it has {size} bytes",
            f"ask for a multiple of {STEP_BYTES} bytes, at least {max(MIN_BYTES, least)}",
        )
    return size
