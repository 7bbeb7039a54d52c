"""The configuration keys that a distribution has, by release, and warnings about others.

Each distribution has a `config_keys.json`: the keys that servers and agents take (`machines`), those that servers alone
take (`servers`), and those that only its sibling has (`sibling`). "" means every release since v1.25, "1.31-" those from
that line on, "1.26-1.28" those of these lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.core.formats.json import loads
from windrow.core.formats.version import Version

Line = tuple[int, int]
# Each is compared with all keys that are known, to find the one that was meant.
MAX_UNKNOWN = 20

# Keys of a machine's identity; a user's value would break the join, so it is ignored.
MANAGED = frozenset(
    {"server", "token", "token-file", "agent-token", "agent-token-file", "node-name", "data-dir"}
)


@cache
def _read(package: str) -> Mapping[str, Any]:
    return loads(files(package).joinpath("config_keys.json").read_bytes())  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """The keys of the distribution whose table is in `package`.

    `title` is its name in sentences. A server skips a key that it does not know, with a line in its log; so do agents where
    `agents_skip`, others do not start with it. Windrow sets the `managed` keys itself.
    """

    package: str
    title: str
    agents_skip: bool
    managed: frozenset[str] = MANAGED
    cures: Mapping[str, str] = field(
        default_factory=dict
    )  # what to write for a key that is none, or is one no longer

    def server_only(self) -> frozenset[str]:
        """The keys that agents do not take."""
        return frozenset(_read(self.package)["servers"])

    def sibling_only(self) -> frozenset[str]:
        """The keys that the other distribution has, and this one in no release."""
        return frozenset(_read(self.package)["sibling"])

    def find(self, line: Line | None = None) -> frozenset[str]:
        """The keys of the releases of one line, such as (1, 34), or of any. Lines newer than the list are taken as the
        newest."""
        spans = self._spans()
        if line is None:
            return frozenset(spans)
        line = min(line, self._newest())
        return frozenset(key for key, span in spans.items() if _covers(span, line))

    def list_agent_keys(self, line: Line) -> frozenset[str]:
        """The keys that agents of one line take."""
        return self.find(line) - self.server_only()

    def check(self, config: Iterable[str], version: Version) -> list[str]:
        """Warnings about the names of the user's keys for `version`, each with a hint. Those of the sibling are the
        caller's, where it has more to say about them."""
        known = self.find(version.line)
        unknown = [key for key in config if key not in known]
        warnings = [self._unknown(key, version) for key in unknown[:MAX_UNKNOWN]]
        if len(unknown) > MAX_UNKNOWN:
            more = len(unknown) - MAX_UNKNOWN
            warnings.append(
                f"{more} more keys are none of {self.title} {version}; remove them or correct their spelling"
            )
        warnings += [
            f"{key!r} is set by Windrow, the value given is not used; remove it"
            for key in config
            if key in self.managed
        ]
        return warnings

    def is_newer(self, version: Version) -> bool:
        """Whether the version is of a line that the list does not know yet."""
        return version.line > self._newest()

    def _unknown(self, key: str, version: Version) -> str:
        title, newest, effect = self.title, self._newest(), "skips it"
        if not self.agents_skip:
            effect = "skips it on servers and would not start with it on agents, which do not get it"
        if span := self._spans().get(key, ""):
            first, _, last = span.partition("-")
            if first and version.line < _parse_line(first):
                return f"{key!r} is a key of {title} since v{first}, {version} {effect}; remove it"
            cure = self.cures.get(key, "remove it")
            return f"{key!r} was a key of {title} up to v{last}, {version} {effect}; {cure}"
        if self.is_newer(version):
            line = ".".join(map(str, newest))
            missed = "" if self.agents_skip else ", so agents do not get it"
            return f"{key!r} was no key of {title} {line}{missed}; check that {version} supports it"
        near = get_close_matches(key, self.find(version.line), 1)
        likely = f"did you mean {near[0]!r}?" if near else "remove it or correct its spelling"
        cure = self.cures.get(key, likely)
        return f"{key!r} is no key of {title}, which {effect}; {cure}"

    def _spans(self) -> Mapping[str, str]:
        data = _read(self.package)
        return {**data["machines"], **data["servers"]}

    def _newest(self) -> Line:
        return _parse_line(_read(self.package)["newest"])


def _covers(span: str, line: Line) -> bool:
    first, _, last = span.partition("-")
    return (not first or _parse_line(first) <= line) and (not last or line <= _parse_line(last))


def _parse_line(text: str) -> Line:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
