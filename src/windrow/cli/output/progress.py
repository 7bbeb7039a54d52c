"""Output of demo, emulate and serve: plain lines, or a live view on a terminal. Implements `DemoOutput`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windrow.app.describe.views import read_views
from windrow.cli.context import CliContext
from windrow.cli.output.lines import Span, StyledLine, Tone, line, wrap, wrap_line
from windrow.cli.output.terminal import LiveDisplay, live_display, print_lines
from windrow.cli.output.tree import render_tree

if TYPE_CHECKING:
    from windrow.demo.options import Raw
    from windrow.demo.report import CheckRecord, TimelineEntry


class PlainOutput:
    """Plain lines, one after the other."""

    def __init__(self, context: CliContext) -> None:
        self._context = context

    def print_line(self, line: str = "") -> None:
        parts = wrap_line(line, self._context.width)
        self._lines(StyledLine((Span(self._context.typed(part)),)) for part in parts)

    def timeline_entry(self, entry: TimelineEntry) -> None:
        self._lines(render_entry(entry.at, entry.text, self._context.width))

    def check_record(self, check: CheckRecord) -> None:
        self._lines(render_check(check, self._context.width))

    def update(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        """Nothing: the timeline entries say the same."""

    def _lines(self, lines: Iterable[StyledLine]) -> None:
        print_lines(self._context, lines)


class LiveOutput(PlainOutput):
    """Entries scroll above a live view of the clusters, which `display` redraws with `render`."""

    def __init__(self, context: CliContext) -> None:
        super().__init__(context)
        self.display: LiveDisplay | None = None
        self._clusters: tuple[Raw, ...] = ()
        self._machines: tuple[Raw, ...] = ()

    def update(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        self._clusters, self._machines = tuple(clusters), tuple(machines)

    def render(self) -> list[StyledLine]:
        """The present clusters under a rule; nothing where there are none."""
        clusters = read_views(self._clusters, self._machines)
        tree = render_tree(clusters, self._context.now(), self._context.width)
        return [line(("─" * min(self._context.width, 80), "quiet")), *tree] if tree else []

    def _lines(self, lines: Iterable[StyledLine]) -> None:
        for one in lines:
            if self.display is not None:
                self.display.print_above(one)


@contextmanager
def open_output(context: CliContext, *, plain: bool) -> Iterator[PlainOutput]:
    """Live output on a terminal, plain lines elsewhere or with `plain`."""
    if plain or not context.terminal:
        yield PlainOutput(context)
        return
    out = LiveOutput(context)
    with live_display(context, out.render) as out.display:
        yield out


def _format_offset(offset_s: float) -> str:
    minutes, seconds = divmod(offset_s, 60)
    return f"{int(minutes):2d}:{seconds:04.1f}"


def _hanging(head: str, tone: Tone, text: str, width: int) -> list[StyledLine]:
    parts = wrap(text, max(width - len(head), 20)) or [""]
    rest = " " * len(head)
    return [line((head if place == 0 else rest, tone), part) for place, part in enumerate(parts)]


def render_entry(at: float, what: str, width: int = 80) -> list[StyledLine]:
    """` 0:12.4  the first server's supervisor answers`, wrapped under its text."""
    return _hanging(f"{_format_offset(at)}  ", "quiet", what, width)


def render_check(check: CheckRecord, width: int = 80) -> list[StyledLine]:
    """`   ok    nodes-ready: 5 of 5 nodes are Ready`; a known flaw of the driver stands behind the detail."""
    head: str = "   ok    " if check.ok else "   KNOWN  "
    tone: Tone = "good" if check.ok else "quiet"
    if check.failed:
        head, tone = "   FAILED ", "bad"
    flaw = f". Known flaw of this driver: {check.known_flaw}" if check.known_flaw else ""
    return _hanging(head, tone, f"{check.name}: {check.detail}{flaw}", width)
