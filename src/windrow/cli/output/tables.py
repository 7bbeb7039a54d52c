"""Tables: left-aligned columns, two spaces apart, as kubectl draws them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windrow.app.describe.sentences import reasons_of, without_known_reason
from windrow.app.describe.views import MachineView
from windrow.cli.output.lines import truncate, wrap
from windrow.core.formats.duration import human_duration
from windrow.core.text import printable


def render_table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80) -> list[str]:
    """The table as lines. The last column is truncated to the remaining width; no other column is."""
    cells = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    room = max(width - sum(widths[:-1]) - 2 * (len(heads) - 1), len(heads[-1]))
    return [
        "  ".join(
            [cell.ljust(size) for cell, size in zip(row[:-1], widths[:-1], strict=True)]
            + [truncate(row[-1], room)]
        ).rstrip()
        for row in cells
    ]


def render_machines(machines: Sequence[MachineView], now: datetime, width: int = 80) -> list[str]:
    """`windrow machine list`, grouped by cluster; what a machine waits for stands below it, for a column would be cut."""
    lines: list[str] = []
    for namespace, cluster in sorted({(one.namespace, one.cluster) for one in machines}):
        mine = [one for one in machines if (one.namespace, one.cluster) == (namespace, cluster)]
        mine.sort(key=lambda one: (one.pool, one.name))
        rows = [
            (
                one.name,
                "Deleting" if one.deleting else one.phase or "Pending",
                one.version or "-",
                one.address or "-",
                human_duration(now - one.created) if one.created else "-",
            )
            for one in mine
        ]
        head, *table = render_table(("MACHINE", "PHASE", "VERSION", "ADDRESS", "AGE"), rows, width)
        lines += [*([""] if lines else []), f"{namespace}/{cluster}", head]
        known: set[str] = set()
        for machine, row in zip(mine, table, strict=True):
            lines.append(row)
            if machine.wait and not machine.ready:
                what = without_known_reason(machine.wait.what, known)
                lines += wrap(f"waits for {what}", width, "  ", "  ")
                known |= reasons_of(machine.wait.what)
    return lines
