"""The tree of `windrow status`: Cluster, pools, Machines, and under each what it waits for.

fleet-default/orchard  v1.34.7+rke2r1  provisioning, 72s old
│ waits for the API of the first server, since 35s; then the other servers join
├─ servers  1 of 3 ready  etcd, control plane
│  ├─ orchard-servers-x5x7z-9k2lp  ready  10.50.0.11
…
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import datetime

from windrow.cli.output.lines import (
    StyledLine,
    Tone,
    elide_middle,
    line,
    wrap,
    wrap_around_command,
    wrap_problems,
)
from windrow.cli.output.views import ClusterView, MachineView, PoolView, Wait
from windrow.core.formats.duration import human_duration

_TONES: dict[str, Tone] = {
    "ready": "good",
    "failed": "bad",
    "missing": "bad",
    "not ready": "bad",
    "refused": "bad",
    "stopped": "bad",
    "unknown": "bad",
    "deleting": "quiet",
}


def format_wait(wait: Wait, now: datetime) -> str:
    """status.waiting as one sentence: what for, since when, what comes next."""
    sentence = f"waits for {wait.what}"
    if wait.since is not None:
        sentence += f", since {human_duration(now - wait.since)}"
    return f"{sentence}; then {wait.next_step}" if wait.next_step else sentence


def format_phase(phase: str) -> str:
    """`NotReady` as `not ready`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", phase).lower()


def machine_state(machine: MachineView) -> str:
    """The machine's state in one or two words."""
    if machine.deleting:
        return "deleting"
    if machine.ready:
        return "ready"
    return format_phase(machine.phase) or "pending"


def format_version(cluster: ClusterView) -> str:
    """The version that runs, and the desired one where that is another."""
    if cluster.desired_version in ("", cluster.version):
        return cluster.version
    return f"{cluster.version}{', ' * bool(cluster.version)}{cluster.desired_version} desired"


def _state_of_cluster(cluster: ClusterView) -> tuple[str, Tone]:
    if cluster.deleting:
        return "deleting", "quiet"
    if cluster.ready:
        return "ready", "good"
    state = format_phase(cluster.phase) or "new"
    return state, _TONES.get(state, "busy")


def _paragraph(text: str, indent: str, width: int, tone: Tone) -> list[StyledLine]:
    """`text` wrapped, each line behind the lines of the tree."""
    return [line((indent, "quiet"), (part, tone)) for part in wrap(text, width - len(indent))]


def _warning(text: str, stem: str, width: int) -> list[StyledLine]:
    """A command in it has a line of its own, which can be copied."""
    parts = wrap_around_command(f"warning: {text}", width - len(stem))
    return [line((stem, "quiet"), (part, "busy")) for part in parts]


def _details(wait: Wait | None, problem: str, indent: str, now: datetime, width: int) -> list[StyledLine]:
    lines: list[StyledLine] = []
    if problem:
        lines += _paragraph(problem, indent, width, "bad")
    if wait is not None:
        lines += _paragraph(format_wait(wait, now), indent, width, "")
    return lines


_AND_MORE = re.compile(r" \(and [0-9]+ more\)$")


def _split_reason(text: str) -> tuple[str, str, str]:
    """What stands before the reason in parentheses, the reason, and what stands after; no reason is empty."""
    head, _, rest = _AND_MORE.sub("", text).partition(" (")
    reason, closed, tail = rest.rpartition(")")
    return (head, reason, tail) if closed else (text, "", "")


def reasons_of(text: str) -> Set[str]:
    """The reason that `text` gives: in its parentheses, or after its first colon."""
    return {_split_reason(text)[1], text.partition(": ")[2]} - {""}


def without_known_reason(text: str, known: Set[str]) -> str:
    """`text` without the reason in its parentheses, where the lines above give exactly that reason, one of `known`."""
    head, reason, tail = _split_reason(text)
    return f"{head}{tail}" if reason in known else text


def _machine(
    machine: MachineView, last: bool, stem: str, known: Set[str], now: datetime, width: int
) -> list[StyledLine]:
    state = machine_state(machine)
    branch, under = ("└─ ", "     ") if last else ("├─ ", "│    ")
    where = f"  {machine.address}" if machine.address else ""
    where += f"  {machine.version}" if machine.is_outdated else ""
    failed = "  update failed" if machine.has_failed_update else ""
    room = width - len(stem) - len(branch) - len(state) - len(failed) - len(where) - 2
    head = line(
        (stem + branch, "quiet"),
        f"{elide_middle(machine.name, max(room, 20))}  ",
        (state, _TONES.get(state, "busy")),
        (failed, "bad"),
        (where, "quiet"),
    )
    if machine.ready and not machine.deleting:
        return [head]
    wait = machine.wait and replace(machine.wait, what=without_known_reason(machine.wait.what, known))
    problem = without_known_reason(machine.problem, known)
    return [head, *_details(wait, problem, stem + under, now, width)]


def _pool(pool: PoolView, last: bool, known: Set[str], now: datetime, width: int) -> list[StyledLine]:
    branch, stem = ("└─ ", "   ") if last else ("├─ ", "│  ")
    full = pool.ready >= pool.wanted
    count = f"{pool.ready} of {pool.wanted} ready" if pool.wanted else "no machines wanted"
    head = line(
        (branch, "quiet"),
        (pool.name, "strong"),
        "  ",
        (count, "good" if full else "busy"),
        ("  paused" if pool.paused else "", "busy"),
        (f"  {', '.join(pool.roles)}" if pool.roles else "", "quiet"),
    )
    lines = [head]
    for place, machine in enumerate(pool.machines):
        lines += _machine(machine, place == len(pool.machines) - 1, stem, known, now, width)
    return lines


def render_cluster(cluster: ClusterView, now: datetime, width: int = 80) -> list[StyledLine]:
    """One cluster's tree."""
    state, tone = _state_of_cluster(cluster)
    age = human_duration(now - cluster.created) if cluster.created else ""
    head = line(
        (f"{cluster.namespace}/{cluster.name}", "strong"),
        (f"  {version}" if (version := format_version(cluster)) else "", "quiet"),
        "  ",
        (state, tone),
        (f", {age} old" if age else "", "quiet"),
    )
    stem = "│ " if cluster.pools else "  "
    lines = [head]
    # A refusal lists every problem; the wait would repeat the first.
    wait = None if cluster.refused and (cluster.problem or cluster.refused_change) else cluster.wait
    if cluster.refused and cluster.problem:
        reasons = wrap_problems(cluster.problem, width - len(stem))
        lines += [line((stem, "quiet"), (part, "" if part.startswith("→") else "bad")) for part in reasons]
    elif not cluster.ready or cluster.deleting or wait is not None:
        lines += _details(wait, cluster.problem, stem, now, width)
    if cluster.refused_change:
        lines += _paragraph("the manifest is refused; the cluster stays as it was:", stem, width, "bad")
        reasons = wrap_problems(cluster.refused_change, width - len(stem))
        lines += [line((stem, "quiet"), (part, "" if part.startswith("→") else "bad")) for part in reasons]
    known = reasons_of(cluster.problem) | reasons_of(cluster.wait.what if cluster.wait else "")
    if blocked := cluster.remediation_blocked:
        machine, _, reason = blocked.partition(": ")
        said = machine if wait is not None and reason in known else blocked
        lines += _paragraph(f"remediation is paused: {said}", stem, width, "busy")
    for warning in cluster.warnings:
        lines += _warning(warning, stem, width)
    for place, pool in enumerate(cluster.pools):
        lines += _pool(pool, place == len(cluster.pools) - 1, known, now, width)
    return lines


def render_tree(clusters: Sequence[ClusterView], now: datetime, width: int = 80) -> list[StyledLine]:
    """Every cluster's tree, with an empty line between."""
    lines: list[StyledLine] = []
    for place, cluster in enumerate(clusters):
        lines += [line()] if place else []
        lines += render_cluster(cluster, now, width)
    return lines
