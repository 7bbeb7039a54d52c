"""What is wrong with a machine as it was asked for: facts with cures, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from windrow.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `field` is the HarvesterConfig field it stands in; `go` are the words of the Go
    driver, where it has some, for readers who look for those."""

    message: str
    hint: str
    field: str = ""
    severity: Literal["error", "warning"] = "error"
    go: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


class Refused(Exception):
    """The machine cannot be made, or not be changed, as asked; asking again unchanged is useless."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class MachineNotFound(Exception):
    """Harvester has no VM of this machine any more, by its own live word. The text is that of Kubernetes."""

    def __init__(self, name: str) -> None:
        super().__init__(f'virtualmachines.kubevirt.io "{name}" not found')


class NotRunning(Exception):
    """The machine is not up. Hosts compare the text."""

    def __init__(self) -> None:
        super().__init__("Host is not running")


class Busy(UserError):
    """Another order is being carried out; this one has to wait and be given again."""


def only_errors(problems: Sequence[Problem]) -> list[Problem]:
    """Those that stand in the way; warnings do not."""
    return [problem for problem in problems if problem.severity == "error"]
