"""Counters, gauges and histograms in memory, and the text in which Prometheus reads them (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Labels = tuple[tuple[str, str], ...]
Sort = Literal["counter", "gauge", "histogram"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Distribution:
    """How often which value was seen; the last of `counts` is of those above every bound."""

    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Measure:
    """One metric, with a value for each combination of its labels that was seen. Without labels it begins at 0."""

    name: str
    sort: Sort
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)
    # Asked each time that somebody looks: what is known elsewhere need not be told here.
    asked: dict[Labels, Callable[[], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels:
            return
        if self.sort == "histogram":
            self.distributions[()] = self._empty()
        else:
            self.values[()] = 0

    def add(self, amount: float = 1, **labels: str) -> None:
        key = self._key(labels)
        self.values[key] = self.values.get(key, 0) + amount

    def set(self, value: float, **labels: str) -> None:
        self.values[self._key(labels)] = value

    def ask(self, question: Callable[[], float], **labels: str) -> None:
        """Let the value be what `question` answers whenever somebody looks."""
        self.asked[self._key(labels)] = question

    def forget(self, **labels: str) -> None:
        self.values.pop(self._key(labels), None)

    def replace(self, values: Mapping[str, float]) -> None:
        """Set the value for each text of the one label; what is not named any more is forgotten."""
        (label,) = self.labels
        self.values = {((label, text),): value for text, value in values.items()}

    def observe(self, value: float, **labels: str) -> None:
        key = self._key(labels)
        found = self.distributions.setdefault(key, self._empty())
        found.counts[bisect_left(self.bounds, value)] += 1
        found.total += value

    def value(self, **labels: str) -> float:
        return self.current().get(self._key(labels), 0)

    def current(self) -> dict[Labels, float]:
        return {**self.values, **{key: question() for key, question in self.asked.items()}}

    def _empty(self) -> Distribution:
        return Distribution([0] * (len(self.bounds) + 1))

    def _key(self, labels: Mapping[str, str]) -> Labels:
        if set(labels) != set(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        return tuple((name, labels[name]) for name in self.labels)


def render_metrics(measures: Iterable[Measure]) -> str:
    """All of them as one text; those of which nothing was seen yet are left out."""
    return "".join(line for measure in measures for line in _render(measure))


def _render(measure: Measure) -> Iterator[str]:
    values = measure.current()
    if not values and not measure.distributions:
        return
    yield f"# HELP {measure.name} {_escaped(measure.help)}\n"
    yield f"# TYPE {measure.name} {measure.sort}\n"
    for labels, value in sorted(values.items()):
        yield f"{measure.name}{_braced(labels)} {_number(value)}\n"
    for labels, state in sorted(measure.distributions.items()):
        below = 0
        for bound, count in zip(measure.bounds, state.counts, strict=False):
            below += count
            yield f"{measure.name}_bucket{_braced((*labels, ('le', _number(bound))))} {below}\n"
        yield f"{measure.name}_bucket{_braced((*labels, ('le', '+Inf')))} {state.count}\n"
        yield f"{measure.name}_sum{_braced(labels)} {_number(state.total)}\n"
        yield f"{measure.name}_count{_braced(labels)} {state.count}\n"


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    quoted = (f'{name}="{_escaped(text, quote=True)}"' for name, text in labels)
    return f"{{{','.join(quoted)}}}"


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
