"""Measurements, each against a stated baseline. Not tests: a slow machine fails nothing.

`python -m benchmarks` runs all, `python -m benchmarks help_time` one. A module here offers `measure()`, which
yields a `Figure` for each thing it measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `baseline` is what it is compared with, `source` where that comes from; less is better."""

    name: str
    value: float
    unit: str
    baseline: float
    source: str

    @property
    def ratio(self) -> float:
        return self.value / self.baseline if self.baseline else float("inf") if self.value else 1.0

    def __str__(self) -> str:
        return (
            f"{self.name:<44} {self.value:>9.3f} {self.unit:<6} "
            f"baseline {self.baseline:g} {self.unit} ({self.source}), ratio {self.ratio:.2f}"
        )
