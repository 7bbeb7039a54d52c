"""Tables: left-aligned columns, two spaces apart, as kubectl draws them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from windrow.cli.output.lines import truncate
from windrow.cli.output.views import MachineView
from windrow.core.duration import human_duration


def render_table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80) -> list[str]:
    """The table as lines. The last column is truncated to the remaining width; no other column is."""
    cells = [list(heads), *(list(row) for row in rows)]
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
    """`windrow machine list`, grouped by cluster."""
    lines: list[str] = []
    keys = sorted({(one.namespace, one.cluster) for one in machines})
    for place, (namespace, cluster) in enumerate(keys):
        mine = [one for one in machines if (one.namespace, one.cluster) == (namespace, cluster)]
        lines += [""] if place else []
        lines.append(f"{namespace}/{cluster}")
        rows = [
            (
                one.name,
                "Deleting" if one.deleting else one.phase or "Pending",
                one.address or "-",
                human_duration(now - one.created) if one.created else "-",
                _waiting_for(one),
            )
            for one in sorted(mine, key=lambda one: (one.pool, one.name))
        ]
        table = render_table(("MACHINE", "PHASE", "ADDRESS", "AGE", "WAITING FOR"), rows, width)
        is_cut = any(not shown.endswith(row[-1]) for shown, row in zip(table[1:], rows, strict=True))
        lines += [
            *table,
            *([f"→ See the whole sentences: windrow status {namespace}/{cluster}"] if is_cut else []),
        ]
    return lines


def _waiting_for(machine: MachineView) -> str:
    """What the machine waits for, without its own name, which is in the same row."""
    if machine.wait is None or machine.ready:
        return "-"
    named = re.compile(rf"(?:^|\s)(?:of )?(?:[\w.-]+/)?{re.escape(machine.name)}(?![\w-])")
    return named.sub("", machine.wait.what).lstrip(" ,") or "-"
