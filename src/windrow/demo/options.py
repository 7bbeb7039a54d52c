"""Options of the demo, and the port on which it prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from windrow.app.access.service import DashboardOptions
from windrow.app.options import Output
from windrow.demo.report import CheckRecord, TimelineEntry
from windrow.emulator.site import Site

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`documents` are the objects to apply; none means the shipped manifest of `distribution`. `state_dir` None is a temporary directory.
    `driver` and `env` as for ServeOptions, `site` as for EmulateOptions. `dashboard` serves pages meanwhile."""

    documents: tuple[dict[str, Any], ...] = ()
    distribution: str = "rke2"
    time_scale: float = 1.0
    keep: bool = False
    report: Path | None = None
    state_dir: Path | None = None
    driver: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)
    dashboard: DashboardOptions | None = None


class DemoOutput(Output, Protocol):
    """An Output that also shows the timeline, the checks and the present clusters."""

    def timeline_entry(self, entry: TimelineEntry) -> None:
        """A new entry of the timeline."""

    def check_record(self, check: CheckRecord) -> None:
        """The result of a check."""

    def update(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        """The present Cluster and Machine objects, for a live view. May be called at any rate."""
