"""Problem: one fault in what was asked for, with a message, a hint and the field it is in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a machine's spec, found before anything is created.

    `field` is the HarvesterConfig field that holds it. `go` is the Go driver's text for the same problem, where it has
    one: hosts and their users search for that text.
    """

    message: str
    hint: str
    field: str = ""
    severity: Severity = "error"
    go: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


def only_errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those that prevent the machine; warnings do not."""
    return [problem for problem in problems if problem.severity == "error"]
