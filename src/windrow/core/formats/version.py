"""Versions of Kubernetes distributions and of Harvester: `v1.35.1+rke2r1`, `v1.34.2-rc1+k3s1`, `v1.8.2`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from windrow.core.formats.bounds import abbreviate, is_too_long

_GRAMMAR = re.compile(
    r"v?(?P<major>0|[1-9][0-9]*)\.(?P<minor>0|[1-9][0-9]*)\.(?P<patch>0|[1-9][0-9]*)"
    r"(?:-(?P<pre>[0-9A-Za-z.-]+))?"
    r"(?:\+(?P<build>[0-9A-Za-z.-]+))?"
)
# RKE2 writes its revision as rke2r1, K3s as k3s1.
_REVISION = re.compile(r"(?P<distribution>rke2|k3s)r?(?P<revision>[0-9]+)")


class NotVersion(ValueError):
    """The text is not a version; the message says what was found."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """One release. Ordered by number, then pre-release, then the distribution's revision.

    Versions of two distributions may be compared: the Kubernetes numbers decide.
    """

    major: int
    minor: int
    patch: int
    pre: str = ""
    distribution: str = ""  # "rke2", "k3s" or ""
    revision: int = 0  # the 1 of rke2r1
    build: str = ""  # the text after the +

    @classmethod
    def parse(cls, text: str) -> Version:
        """The version that `text` writes, with or without its `v`. Raises NotVersion."""
        match = None if is_too_long(text) else _GRAMMAR.fullmatch(text)
        if match is None:
            raise NotVersion(
                f"wanted a version such as v1.35.1+rke2r1, found {abbreviate(text)}; "
                "write v<major>.<minor>.<patch>, 64 characters at most"
            )
        build = match["build"] or ""
        revision = _REVISION.fullmatch(build)
        return cls(
            int(match["major"]),
            int(match["minor"]),
            int(match["patch"]),
            match["pre"] or "",
            revision["distribution"] if revision else "",
            int(revision["revision"]) if revision else 0,
            build,
        )

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.major, self.minor, self.patch

    @property
    def line(self) -> tuple[int, int]:
        """Major and minor, which skew rules compare."""
        return self.major, self.minor

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def __str__(self) -> str:
        pre = f"-{self.pre}" if self.pre else ""
        build = f"+{self.build}" if self.build else ""
        return f"v{self.major}.{self.minor}.{self.patch}{pre}{build}"

    def _order(self) -> tuple[object, ...]:
        # A release comes after its candidates; the texts last keep the order total and true to ==.
        return self.numbers, not self.pre, _pre_order(self.pre), self.revision, self.pre, self.build


def _pre_order(pre: str) -> tuple[tuple[int, int, str], ...]:
    """`rc10` after `rc9`: runs of digits compare as numbers, and numbers come before words."""
    runs = re.findall(r"[0-9]+|[A-Za-z-]+", pre)
    return tuple((0, int(run), "") if run.isdigit() else (1, 0, run) for run in runs)
