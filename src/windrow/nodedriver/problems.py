"""What is wrong with a machine as it was asked for: facts with cures, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `field` is the HarvesterConfig field it stands in."""

    fact: str
    cure: str
    field: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.fact}; {self.cure}"


class Refused(Exception):
    """The machine cannot be made, or not be changed, as asked; asking again unchanged is useless."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class WrongHarvester(Exception):
    """The Harvester that answers is not the one on which the machine was made."""

    def __init__(self, found: str, recorded: str) -> None:
        super().__init__(f"this Harvester is {found}; the machine was made on {recorded}")
        self.found, self.recorded = found, recorded


def errors(problems: Sequence[Problem]) -> list[Problem]:
    """Those that stand in the way; warnings do not."""
    return [problem for problem in problems if problem.severity == "error"]
