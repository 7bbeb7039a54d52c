"""The words for states, waits and versions that every screen shares."""

from __future__ import annotations

import re
from collections.abc import Set
from datetime import datetime

from windrow.app.describe.views import ClusterView, MachineView, Wait
from windrow.core.formats.duration import human_duration


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


def cluster_state(cluster: ClusterView) -> str:
    """The cluster's state in one or two words."""
    if cluster.deleting:
        return "deleting"
    if cluster.ready:
        return "ready"
    return format_phase(cluster.phase) or "new"


def format_version(cluster: ClusterView) -> str:
    """The version that runs, and the desired one where that is another."""
    if cluster.desired_version in ("", cluster.version):
        return cluster.version
    return f"{cluster.version}{', ' * bool(cluster.version)}{cluster.desired_version} desired"


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


def without_count(text: str) -> str:
    """The sentence of a cluster's wait without `(and 2 more)`: how many further machines wait, for whatever."""
    return _AND_MORE.sub("", text)
