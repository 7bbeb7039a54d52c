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
        return join_hint(self.message, self.hint)


def join_hint(message: str, hint: str) -> str:
    """`message; hint`, where the first semicolon is the one between the two."""
    return f"{message.replace('; ', ', ')}; {hint}"


def join_problems(problems: Iterable[object]) -> str:
    """As the message of a condition: a line for each."""
    return "\n".join(map(str, problems))


def split_problems(text: str) -> list[tuple[str, str]]:
    """Message and hint of each problem in the message of a condition; the hint is "" where there is none."""
    parts = (line.partition("; ") for line in text.splitlines() if line.strip())
    return [(message, hint) for message, _, hint in parts]


def only_errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those that prevent the machine; warnings do not."""
    return [problem for problem in problems if problem.severity == "error"]


# Of a machine and of a service in its guest, whose kernel lacks the module by which kube-vip gets addresses by DHCP.
MACVLAN_CURE = (
    "install the kernel's other modules in the image (SLES and openSUSE: kernel-default in place of kernel-default-base; Ubuntu: "
    "linux-modules-extra of the kernel's version; RHEL and its rebuilds: kernel-modules) and replace the machine, or install "
    "them on it and restart it; services with an address of an IPPool do without"
)
