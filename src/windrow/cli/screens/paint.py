"""Lines on a terminal. The only place that knows rich, and it is imported only when something is drawn there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from windrow.cli.edge import Edge
from windrow.cli.screens.lines import Line, Tone

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: dict[Tone, str] = {
    "": "",
    "good": "green",
    "bad": "bold red",
    "busy": "yellow",
    "quiet": "bright_black",
    "strong": "bold",
}
_CODES: dict[Tone, str] = {"": "", "good": "32", "bad": "1;31", "busy": "33", "quiet": "90", "strong": "1"}


def say_lines(edge: Edge, lines: Iterable[Line]) -> None:
    """Print the lines, in colour where that is wanted."""
    for one in lines:
        edge.say(_coloured(one) if edge.colour else one.text)


def _coloured(one: Line) -> str:
    return "".join(
        f"\x1b[{_CODES[span.tone]}m{span.text}\x1b[0m" if span.tone and span.text else span.text
        for span in one.spans
    )


def _texts(lines: Iterable[Line]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for place, one in enumerate(lines):
        text.append("\n" if place else "")
        for span in one.spans:
            text.append(span.text, _STYLES[span.tone] or None)
    return text


class Board(Protocol):
    """A part of the terminal that is drawn over and over, while other lines scroll above it."""

    def draw(self, lines: Iterable[Line]) -> None: ...

    def above(self, one: Line) -> None: ...


REFRESH_HZ = 4


@contextmanager
def live_board(edge: Edge, look: Callable[[], Iterable[Line]] | None = None) -> Iterator[Board]:
    """A board at the foot of the terminal; its last picture stays when it closes.

    With `look` it draws itself, a few times a second, from a thread of its own, so that ages grow on screen.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=edge.out, no_color=not edge.colour, highlight=False, width=edge.width)
    live = Live(
        console=console,
        auto_refresh=look is not None,
        refresh_per_second=REFRESH_HZ,
        get_renderable=(lambda: _texts(look())) if look is not None else None,
        vertical_overflow="ellipsis",
        redirect_stdout=False,
    )

    class _Board:
        def draw(self, lines: Iterable[Line]) -> None:
            live.update(_texts(lines), refresh=True)

        def above(self, one: Line) -> None:
            console.print(_texts([one]), soft_wrap=True)

    with live:
        yield _Board()
