"""What is wrong with a node driver, in words: the fact, and what to do about it."""

from __future__ import annotations

from typing import Literal

from windrow.core.errors import UserError

# The machine-readable side of each, for conditions and events.
Reason = Literal[
    "Refused",
    "ServerAway",
    "DownloadFailed",
    "ChecksumMismatch",
    "BadArchive",
    "WrongPlatform",
    "NotExecutable",
    "NoAnswer",
    "NameTaken",
    "SchemaRefused",
    "StoreFailed",
    "InUse",
]

# These depend on content that the checksum fixes, or on the object: trying again cannot help.
TERMINAL_REASONS: frozenset[Reason] = frozenset(
    {"Refused", "BadArchive", "WrongPlatform", "NameTaken", "SchemaRefused"}
)


class Fault(UserError):
    """One thing that is wrong. As an exception it ends the step that met it; as a value it stands in a status."""

    def __init__(self, message: str, hint: str, reason: Reason = "Refused", field: str = "") -> None:
        super().__init__(message, hint)
        self.reason, self.field = reason, field

    @property
    def is_retryable(self) -> bool:
        """Whether the same may work later, with the object as it is."""
        return self.reason not in TERMINAL_REASONS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and _parts(self) == _parts(other)

    def __hash__(self) -> int:
        return hash(_parts(self))


def _parts(fault: Fault) -> tuple[str, str, str, str]:
    return (fault.message, fault.hint, fault.reason, fault.field)
