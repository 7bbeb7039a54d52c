"""The tree of `windrow status`: Cluster, pools, Machines, and under each what it waits for.

fleet-default/orchard  v1.34.7+rke2r1  provisioning, 72s old
│ waits for the API of the first server, since 35s; then the other servers join
├─ servers  1 of 3 ready  etcd, control plane
│  ├─ orchard-servers-x5x7z-9k2lp  ready  10.50.0.11
…
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windrow.app.describe.sentences import format_wait
from windrow.app.describe.tree import Remark, TreeNode, cluster_tree
from windrow.app.describe.views import ClusterView
from windrow.cli.output.lines import (
    StyledLine,
    Tone,
    elide_middle,
    line,
    wrap,
    wrap_around_command,
)
from windrow.core.formats.duration import human_duration

_TONES: dict[str, Tone] = {"problem": "bad", "refusal": "bad", "held": "busy", "wait": ""}


def _remark(remark: Remark, stem: str, now: datetime, width: int) -> list[StyledLine]:
    """The sentence wrapped, each line behind the lines of the tree. A command in a warning has a line of its own, which
    can be copied."""
    room = width - len(stem)
    if remark.kind == "warning":
        parts = wrap_around_command(f"warning: {remark.message}", room)
        return [line((stem, "quiet"), (part, "busy")) for part in parts]
    text = format_wait(remark.wait, now) if remark.wait is not None else remark.message
    lines = [line((stem, "quiet"), (part, _TONES[remark.kind])) for part in wrap(text, room)]
    hints = wrap(remark.hint, room, first="→ ", rest="  ") if remark.hint else []
    return [*lines, *(line((stem, "quiet"), (hint, "" if hint[0] == "→" else "bad")) for hint in hints)]


def _machine(node: TreeNode, last: bool, stem: str, now: datetime, width: int) -> list[StyledLine]:
    branch, under = ("└─ ", "     ") if last else ("├─ ", "│    ")
    where = "".join(f"  {fact}" for fact in node.facts)
    failed = "".join(f"  {mark}" for mark, _ in node.marks)
    room = width - len(stem) - len(branch) - len(node.state) - len(failed) - len(where) - 2
    head = line(
        (stem + branch, "quiet"),
        f"{elide_middle(node.name, max(room, 20))}  ",
        (node.state, node.health),
        (failed, "bad"),
        (where, "quiet"),
    )
    return [head, *(part for remark in node.remarks for part in _remark(remark, stem + under, now, width))]


def _pool(node: TreeNode, last: bool, now: datetime, width: int) -> list[StyledLine]:
    branch, stem = ("└─ ", "   ") if last else ("├─ ", "│  ")
    head = line(
        (branch, "quiet"),
        (node.name, "strong"),
        "  ",
        (node.state, node.health),
        *((f"  {mark}", tone) for mark, tone in node.marks),
        *((f"  {fact}", "quiet") for fact in node.facts),
    )
    lines = [head]
    for place, machine in enumerate(node.children):
        lines += _machine(machine, place == len(node.children) - 1, stem, now, width)
    return lines


def render_cluster(cluster: ClusterView, now: datetime, width: int = 80) -> list[StyledLine]:
    """One cluster's tree."""
    node = cluster_tree(cluster)
    age = human_duration(now - cluster.created) if cluster.created else ""
    head = line(
        (f"{node.namespace}/{node.name}", "strong"),
        *((f"  {fact}", "quiet") for fact in node.facts),
        "  ",
        (node.state, node.health),
        (f", {age} old" if age else "", "quiet"),
    )
    stem = "│ " if node.children else "  "
    lines = [head, *(part for remark in node.remarks for part in _remark(remark, stem, now, width))]
    for place, pool in enumerate(node.children):
        lines += _pool(pool, place == len(node.children) - 1, now, width)
    return lines


def render_tree(clusters: Sequence[ClusterView], now: datetime, width: int = 80) -> list[StyledLine]:
    """Every cluster's tree, with an empty line between."""
    lines: list[StyledLine] = []
    for place, cluster in enumerate(clusters):
        lines += [line()] if place else []
        lines += render_cluster(cluster, now, width)
    return lines
