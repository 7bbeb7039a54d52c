"""Drawing on a terminal: the adapter module of rich, which is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from windrow.cli.context import CliContext
from windrow.cli.output.lines import StyledLine, Tone

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


def print_lines(context: CliContext, lines: Iterable[StyledLine]) -> None:
    """Print the lines, in colour where the context asks for it."""
    for one in lines:
        context.print_coloured(_coloured(one) if context.colour else one.text)


def _coloured(one: StyledLine) -> str:
    return "".join(
        f"\x1b[{_CODES[span.tone]}m{span.text}\x1b[0m" if span.tone and span.text else span.text
        for span in one.spans
    )


def _texts(lines: Iterable[StyledLine]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for place, one in enumerate(lines):
        text.append("\n" if place else "")
        for span in one.spans:
            text.append(span.text, _STYLES[span.tone] or None)
    return text


class LiveDisplay(Protocol):
    """A region at the foot of the terminal that is redrawn, while other lines scroll above it."""

    def draw(self, lines: Iterable[StyledLine]) -> None: ...

    def print_above(self, one: StyledLine) -> None: ...


REFRESH_HZ = 4


@contextmanager
def live_display(
    context: CliContext, render: Callable[[], Iterable[StyledLine]] | None = None
) -> Iterator[LiveDisplay]:
    """A live region at the foot of the terminal; its last content stays when it closes.

    With `look` it draws itself, a few times a second, from a thread of its own, so that ages grow on screen.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=context.out, no_color=not context.colour, highlight=False, width=context.width)
    live = Live(
        console=console,
        auto_refresh=render is not None,
        refresh_per_second=REFRESH_HZ,
        get_renderable=(lambda: _texts(render())) if render is not None else None,
        vertical_overflow="ellipsis",
        redirect_stdout=False,
    )

    class _Display:
        def draw(self, lines: Iterable[StyledLine]) -> None:
            live.update(_texts(lines), refresh=True)

        def print_above(self, one: StyledLine) -> None:
            console.print(_texts([one]), soft_wrap=True)

    with live:
        yield _Display()
