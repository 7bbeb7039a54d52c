"""What the command line asks of the demo, and where the demo prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from windrow.app.options import Output
from windrow.demo.report import CheckRecord, TimelineEntry

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`documents` are the objects to play with; none means our own example. `state` None means a directory that lives as long as the demo.
    `driver` and `env` as for ServeOptions."""

    documents: tuple[dict[str, Any], ...] = ()
    time_scale: float = 1.0
    keep: bool = False
    plain: bool = False
    report: Path | None = None
    state_dir: Path | None = None
    driver: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class DemoOutput(Output, Protocol):
    """An Output that also shows the timeline, the checks and the present clusters."""

    def timeline_entry(self, entry: TimelineEntry) -> None:
        """Something happened."""
        ...

    def check_record(self, check: CheckRecord) -> None:
        """Something was looked at, and held or not."""
        ...

    def update(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        """The present Cluster and Machine objects, for a view that stands still. May be called at any rate."""
        ...
