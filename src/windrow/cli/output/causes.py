"""The screen of `windrow why`: the chain of objects, the first cause at its end, and the console below it.

Cluster fleet-default/orchard, 12m: condition Ready is False (InProgress)
  → windrow status fleet-default/orchard
Machine fleet-default/orchard-servers-a, 12m: waits for VirtualMachine …
  → windrow machine console fleet-default/orchard-servers-a
First cause: Host node-1, 11m: is not Ready
  → …
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from windrow.app.describe.causes import Link
from windrow.cli.output.lines import StyledLine, line, wrap, wrap_around_command
from windrow.core.clock import format_time
from windrow.core.formats.duration import human_duration


def render_chain(links: Sequence[Link], now: datetime, width: int = 80) -> list[StyledLine]:
    """The chain; the last of several links is called the first cause."""
    lines: list[StyledLine] = []
    for place, link in enumerate(links):
        is_cause = 0 < place == len(links) - 1
        lines += _link(link, "First cause: " if is_cause else "", now, width)
    return lines


def _link(link: Link, head: str, now: datetime, width: int) -> list[StyledLine]:
    age = f", {human_duration(now - link.since)}" if link.since is not None else ""
    first, *rest = wrap(f"{head}{link.object}{age}: {link.message}", width, rest="  ")
    shown = first.removeprefix(head)
    lines = [line((head, "strong"), (shown, "bad" if head else ""))]
    lines += [line((part, "bad" if head else "")) for part in rest]
    return [*lines, *(line(f"  {part}") for part in _hint(link.hint, width - 2))]


def _hint(hint: str, width: int) -> list[str]:
    """A command stays on one line, so that it can be copied."""
    if not hint:
        return []
    if hint.startswith(("kubectl ", "windrow ")):
        return [f"→ {hint}"]
    first, *rest = wrap_around_command(hint, width - 2)
    return [f"→ {first}", *(f"  {part}" for part in rest)]


def render_console(name: str, console: Sequence[str]) -> list[StyledLine]:
    """The last lines of a console, as they are."""
    if not console:
        return []
    return [
        line(),
        line((f"The last lines of the console of {name}:", "strong")),
        *(line("  ", one) for one in console),
    ]


def chain_data(links: Sequence[Link], console: Sequence[str]) -> dict[str, Any]:
    """The chain for `-o json|yaml`."""
    return {
        "chain": [
            {
                "kind": one.kind,
                "namespace": one.namespace,
                "name": one.name,
                "message": one.message,
                "since": format_time(one.since) if one.since is not None else None,
                "hint": one.hint,
            }
            for one in links
        ],
        "console": list(console),
    }
