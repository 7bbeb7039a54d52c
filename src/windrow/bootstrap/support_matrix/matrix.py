"""The support matrix: the values of `matrix.json`, and of a file that replaces some of them.

A chart version such as `0.2.1100`, as RKE2's own files write it, is upstream 0.2.11, build 00: here it is 0.2.11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART, Charts
from windrow.core.errors import UserError
from windrow.core.formats import yaml
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.json import loads
from windrow.core.formats.version import NotVersion, Version

Numbers = tuple[int, int, int]
Line = tuple[int, int]
V = TypeVar("V")

CHARTS = (CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART)
# The shipped one has 24 rows and 6 pairs; a comparison looks at each.
MAX_ENTRIES = 1000
MAX_SIZE = 1024 * 1024


class InvalidMatrix(UserError):
    """The user's file cannot be read as a support matrix."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What is known of a range of versions of one chart: that it needs a Harvester of its own time, or what it lacks.

    It concerns every cluster where `harvester` is None, and those alone with so many `machines` and without node
    affinity where these are set.
    """

    chart: str
    first: Numbers
    last: Numbers | None
    message: str
    severity: Literal["error", "warning"]
    source: str
    harvester: Version | None = None
    machines: int = 0
    without_node_affinity: bool = False

    def concerns(self, chart: str, version: Numbers) -> bool:
        return self.chart == chart and self.first <= version and (self.last is None or version <= self.last)


@dataclass(frozen=True, slots=True)
class SupportMatrix:
    """`bundled` are the first releases with each pair of charts, sorted; `replaced` are the user's keys in place of ours."""

    date: str
    first: Mapping[str, Version]
    maintained: tuple[Line, ...]
    newest: Mapping[Line, Version]
    newest_harvester: Line
    bundled: tuple[tuple[Version, Charts], ...]
    images: Mapping[str, tuple[tuple[Numbers, str], ...]]
    pairs: tuple[Pair, ...]
    replaced: tuple[str, ...] = ()

    def find_charts(self, version: Version) -> Charts | None:
        """The charts that `version` of RKE2 bundles; None before the table begins.

        A line newer than the table is assumed to bundle what the newest known release does.
        """
        if not self.bundled:
            return None
        if version.line > self.bundled[-1][0].line:
            return self.bundled[-1][1]
        # A release is written here without its revision where that is the first, which sorts before any revision.
        older = [charts for first, charts in self.bundled if first.line == version.line and first <= version]
        return older[-1] if older else None

    def find_newest(self, version: Version) -> Version | None:
        """The newest release of its line, with a revision where that of its distribution is known; None where none is known.

        K3s takes its patch releases from Kubernetes as RKE2 does, and has revisions of its own.
        """
        newest = self.newest.get(version.line)
        if newest is None or newest.distribution == version.distribution:
            return newest
        return Version(*newest.numbers)

    def find_image(self, chart: str, version: Numbers) -> str:
        """The tag of the image that the chart runs, "" where it is not known."""
        older = [image for first, image in self.images.get(chart, ()) if first <= version]
        return older[-1] if older else ""

    def describe(self) -> str:
        """Its date, and what of it is the user's."""
        return self.date + (f", with your {', '.join(self.replaced)}" if self.replaced else "")

    @property
    def newest_line(self) -> Line:
        """The newest line of Kubernetes that it knows."""
        return max(self.maintained)


@cache
def shipped_matrix() -> SupportMatrix:
    """The support matrix of this release of Windrow."""
    return _parse(_shipped())


@cache
def _shipped() -> Mapping[str, Any]:
    return loads(files("windrow.bootstrap.support_matrix").joinpath("matrix.json").read_bytes())  # type: ignore[no-any-return]


def read_matrix(text: str) -> SupportMatrix:
    """The shipped matrix with the keys of `text`, YAML or JSON, in place of its own. Raises InvalidMatrix."""
    hint = "write the keys that you replace in the form of windrow/bootstrap/support_matrix/matrix.json"
    if len(text) > MAX_SIZE:
        raise InvalidMatrix(f"the support matrix has more than {MAX_SIZE} characters", hint)
    try:
        given = yaml.load(text)
    except yaml.NotYaml as error:
        raise InvalidMatrix(f"the support matrix cannot be read: {error}", hint) from error
    if not isinstance(given, Mapping) or not given:
        raise InvalidMatrix("the support matrix is no map", hint)
    if unknown := sorted(str(key) for key in given if key not in _shipped()):
        known = ", ".join(_shipped())
        raise InvalidMatrix(
            f"the support matrix has the key {abbreviate(unknown[0])}, which has no effect", f"use {known}"
        )
    try:
        return _parse({**_shipped(), **given}, tuple(key for key in _shipped() if key in given))
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise InvalidMatrix(f"the support matrix cannot be read: {_describe(error)}", hint) from error


def _describe(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)[:200]


def _parse(raw: Mapping[str, Any], replaced: tuple[str, ...] = ()) -> SupportMatrix:
    """Raises ValueError, KeyError, TypeError, AttributeError and OverflowError for values of another form."""
    for key in ("rke2", "pairs", "maintained", "newest"):
        if not isinstance(raw[key], list) or len(raw[key]) > MAX_ENTRIES:
            raise ValueError(f"{key} is no list of at most {MAX_ENTRIES} entries")
    bundled = [
        (Version.parse(text), Charts(*(_numbers(row[chart]) for chart in CHARTS)))
        for row in raw["rke2"]
        for text in str(row["releases"]).split()[:MAX_ENTRIES]
    ]
    if not raw["maintained"]:
        raise ValueError("maintained names no line of Kubernetes")
    return SupportMatrix(
        date=str(raw["date"]),
        first={name: _named(name, text) for name, text in raw["first"].items()},
        maintained=tuple(sorted(_line(text) for text in raw["maintained"])),
        newest={(one := _named("newest", text)).line: one for text in raw["newest"]},
        newest_harvester=_line(raw["newestHarvester"]),
        bundled=tuple(sorted(bundled)),
        images={
            str(chart): tuple(sorted((_numbers(first), str(image)) for first, image in images.items()))
            for chart, images in raw["images"].items()
        },
        pairs=tuple(map(_pair, raw["pairs"])),
        replaced=replaced,
    )


def _pair(raw: Mapping[str, Any]) -> Pair:
    if raw["chart"] not in CHARTS:
        raise ValueError(f"chart {abbreviate(raw['chart'])} of pairs is neither of {', '.join(CHARTS)}")
    if raw["severity"] not in ("error", "warning"):
        raise ValueError(f"severity {abbreviate(raw['severity'])} is neither error nor warning")
    return Pair(
        chart=raw["chart"],
        first=_optional(raw, "from", _numbers) or (0, 0, 0),
        last=_optional(raw, "to", _numbers),
        message=str(raw["message"]),
        severity=raw["severity"],
        source=str(raw.get("source") or ""),
        harvester=_optional(raw, "harvester", lambda text: _named("harvester", text)),
        machines=int(raw.get("machines") or 0),
        without_node_affinity=raw.get("nodeAffinity") is False,
    )


def _optional(raw: Mapping[str, Any], key: str, read: Callable[[Any], V]) -> V | None:
    return read(raw[key]) if raw.get(key) is not None else None


def _named(name: str, text: Any) -> Version:
    try:
        return Version.parse(str(text))
    except NotVersion as error:
        raise ValueError(f"{name}: {error}") from error


def _numbers(text: Any) -> Numbers:
    return _named("a chart's version", text).numbers


def _line(text: Any) -> Line:
    return _named("a line", f"{str(text).removeprefix('v')}.0").line


def format_numbers(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
