"""Adapter module of prometheus_client: counters, gauges and histograms, and the text format 0.0.4 of a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

__all__ = ["CONTENT_TYPE", "Counter", "Gauge", "Histogram", "Metric", "Registry"]

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


class Registry:
    """The metrics of one program, apart from the library's global registry.

    A metric without labels begins at 0; one with labels shows the combinations that were used.
    """

    def __init__(self) -> None:
        self._collectors = CollectorRegistry()
        self.metrics: list[Metric] = []

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

    def value(self, name: str, /, **labels: str) -> float:
        """The present value of a sample, 0 while it has none."""
        return self._collectors.get_sample_value(name, labels) or 0

    def render(self) -> str:
        return generate_latest(self._collectors).decode()

    def _define(self, type: str, name: str, help: str, labels: Sequence[str]) -> None:
        self.metrics.append(Metric(name, type, tuple(labels), help))
