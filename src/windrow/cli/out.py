"""Where demo, emulate and serve speak: plain lines, or a live view on a terminal. Implements assembly's `Out`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windrow.cli.edge import Edge
from windrow.cli.picture import read_picture
from windrow.cli.screens import timeline
from windrow.cli.screens.lines import Line, Span, line, wrap
from windrow.cli.screens.paint import Board, live_board, say_lines
from windrow.cli.screens.tree import render_tree

if TYPE_CHECKING:
    from windrow.assembly.options import Raw
    from windrow.assembly.report import Check, Moment


class PlainOut:
    """Plain lines, one after the other."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def say(self, line: str = "") -> None:
        self._lines(Line((Span(part),)) for part in as_said(line, self._edge.width))

    def moment(self, moment: Moment) -> None:
        self._lines(timeline.render_moment(moment.at, moment.what, self._edge.width))

    def check(self, check: Check) -> None:
        self._lines(timeline.render_check(check.name, check.ok, check.detail, self._edge.width))

    def show(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        """A log does not stand still; the moments tell the same."""

    def _lines(self, lines: Iterable[Line]) -> None:
        say_lines(self._edge, lines)


class LiveOut(PlainOut):
    """What happens scrolls by; below it the clusters stand and change. `board` calls `picture` to draw itself."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self.board: Board | None = None
        self._clusters: tuple[Raw, ...] = ()
        self._machines: tuple[Raw, ...] = ()

    def show(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        self._clusters, self._machines = tuple(clusters), tuple(machines)

    def picture(self) -> list[Line]:
        """The clusters as they stand now, under a rule; nothing where there are none."""
        clusters = read_picture(self._clusters, self._machines)
        tree = render_tree(clusters, self._edge.now(), self._edge.width)
        return [line(("─" * min(self._edge.width, 80), "quiet")), *tree] if tree else []

    def _lines(self, lines: Iterable[Line]) -> None:
        for one in lines:
            if self.board is not None:
                self.board.above(one)


# A command at the start of a line, or after `Try: ` and its like.
_COMMAND = re.compile(r"(^|: )(kubectl|windrow) ")


def as_said(text: str, width: int) -> list[str]:
    """`text` in lines that fit, hanging under its own indent. Commands stay whole, so that they can be copied."""
    bare = text.lstrip(" ")
    indent = " " * (len(text) - len(bare))
    if len(text) <= width or _COMMAND.search(bare):
        return [text]
    return wrap(bare, width, first=indent, rest=f"{indent}  ")


@contextmanager
def out_for(edge: Edge, *, plain: bool) -> Iterator[PlainOut]:
    """The one that fits: live on a terminal, plain lines else."""
    if plain or not edge.terminal:
        yield PlainOut(edge)
        return
    out = LiveOut(edge)
    with live_board(edge, out.picture) as out.board:
        yield out
