"""Adapter module of prometheus_client: counters, gauges and histograms, and the text format 0.0.4 of a registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

__all__ = ["CONTENT_TYPE", "Counter", "Gauge", "Histogram", "Metric", "Registry", "SnapshotGauge"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The library's `…_created` series; Kubernetes' components have none.
disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called and what it counts, for the reference."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


MAX_SERIES = 10_000
_ESCAPED = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class SnapshotGauge:
    """A gauge whose series are made anew for each scrape: what is not there any more has no series.

    At most `max_series` of them are shown, the first by their labels; `dropped` is how many were not.
    """

    def __init__(self, metric: Metric, max_series: int) -> None:
        self.metric = metric
        self.dropped = 0
        self._max_series = max_series
        self._samples: dict[tuple[str, ...], float] = {}

    def set_all(self, samples: Mapping[tuple[str, ...], float]) -> None:
        """The series from now on, by the values of the labels in their order."""
        kept = sorted(samples.items())[: self._max_series]
        self.dropped = len(samples) - len(kept)
        self._samples = dict(kept)

    def value(self, labels: Mapping[str, str]) -> float | None:
        """The value of the series; None where there is none."""
        if labels.keys() != set(self.metric.labels):
            return None
        return self._samples.get(tuple(labels[name] for name in self.metric.labels))

    def render(self) -> str:
        """In the text format. Written here, because the library takes ten times as long for thousands of series."""
        name, labels = self.metric.name, self.metric.labels
        head = f"# HELP {name} {self.metric.help}\n# TYPE {name} gauge\n"
        return head + "".join(
            f"{name}{_render_labels(labels, values)} {value!r}\n" for values, value in self._samples.items()
        )


def _render_labels(labels: Sequence[str], values: Sequence[str]) -> str:
    if not labels:
        return ""
    pairs = (f'{label}="{_escape(value)}"' for label, value in zip(labels, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return "".join(_ESCAPED.get(letter, letter) for letter in value)
    return value


class Registry:
    """The metrics of one program, apart from the library's global registry.

    A metric without labels begins at 0; one with labels shows the combinations that were used.
    """

    def __init__(self) -> None:
        self._collectors = CollectorRegistry()
        self.metrics: list[Metric] = []
        self._snapshots: list[SnapshotGauge] = []
        self._on_scrape: list[Callable[[], None]] = []

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """`name` ends in `_total`."""
        self._define("counter", name, help, labels)
        return Counter(name, help, labels, registry=self._collectors)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        self._define("gauge", name, help, labels)
        return Gauge(name, help, labels, registry=self._collectors)

    def histogram(
        self, name: str, help: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram:
        self._define("histogram", name, help, labels)
        return Histogram(name, help, labels, buckets=buckets, registry=self._collectors)

    def snapshot_gauge(
        self, name: str, help: str, labels: Sequence[str] = (), *, max_series: int = MAX_SERIES
    ) -> SnapshotGauge:
        """A gauge that a function of `on_scrape` sets as a whole."""
        gauge = SnapshotGauge(self._define("gauge", name, help, labels), max_series)
        self._snapshots.append(gauge)
        return gauge

    def on_scrape(self, read: Callable[[], None]) -> None:
        """Call `read` before each scrape."""
        self._on_scrape.append(read)

    @property
    def dropped_series(self) -> int:
        """Of the last scrape."""
        return sum(one.dropped for one in self._snapshots)

    def value(self, name: str, /, **labels: str) -> float:
        """The present value of a sample, 0 while it has none."""
        for snapshot in self._snapshots:
            if snapshot.metric.name == name:
                self._read()
                return snapshot.value(labels) or 0
        return self._collectors.get_sample_value(name, labels) or 0

    def render(self) -> str:
        self._read()
        plain = generate_latest(self._collectors).decode()
        return plain + "".join(snapshot.render() for snapshot in self._snapshots)

    def _read(self) -> None:
        for read in self._on_scrape:
            read()

    def _define(self, type: str, name: str, help: str, labels: Sequence[str]) -> Metric:
        metric = Metric(name, type, tuple(labels), help)
        self.metrics.append(metric)
        return metric
