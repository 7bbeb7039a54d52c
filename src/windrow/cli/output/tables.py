"""Tables: left-aligned columns, two spaces apart, as kubectl draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from windrow.app.describe.sentences import reasons_of, without_known_reason
from windrow.app.describe.views import MachineView
from windrow.cli.output.lines import truncate, wrap
from windrow.core.formats.duration import human_duration
from windrow.core.text import printable
from windrow.kubernetes.objects import nested

UNBOUNDED = 1_000_000  # columns


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


def render_wide_machines(
    machines: Sequence[MachineView], raws: Sequence[Mapping[str, Any]], now: datetime
) -> list[str]:
    """`windrow machine list -o wide`: one line for each machine, as wide as it is."""
    rows = [
        (
            f"{one.namespace}/{one.cluster}",
            one.name,
            one.pool or "-",
            ",".join(map(str, nested(raw, "spec", "roles", default=()))) or "-",
            "Deleting" if one.deleting else one.phase or "Pending",
            one.version or "-",
            ",".join(map(str, nested(raw, "status", "addresses", default=()))) or "-",
            str(nested(raw, "status", "host", default="-")),
            str(nested(raw, "status", "nodeRef", "name", default="-")),
            human_duration(now - one.created) if one.created else "-",
            one.wait.what if one.wait is not None else "-",
        )
        for one, raw in sorted(zip(machines, raws, strict=True), key=lambda pair: pair[0].name)
    ]
    heads = (
        "CLUSTER",
        "MACHINE",
        "POOL",
        "ROLES",
        "PHASE",
        "VERSION",
        "ADDRESSES",
        "HOST",
        "NODE",
        "AGE",
        "WAITS FOR",
    )
    return (
        render_table(heads, rows, max((sum(map(len, row)) + 40 for row in rows), default=80)) if rows else []
    )
