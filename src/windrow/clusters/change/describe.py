"""The plan of changes as people and programs read it: sentences for a condition, and the field `status.pendingChanges`.

Machines that change alike are one group, so that a thousand of them are as short as one. The field of the status is bounded:
`moreFields`, `moreGroups` and `moreMachines` say what was left out; `windrow plan` has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.clusters.api.manifest.supported_fields import Change
from windrow.clusters.change.compare import FieldChange
from windrow.clusters.change.fields import NOT_YET
from windrow.clusters.change.pending import MachineChange, PendingChanges
from windrow.clusters.change.revisions import is_digest
from windrow.machines.port import Problem

MAX_GROUPS = 20
MAX_FIELDS = 10  # of one group
MAX_MACHINES = 200  # of all groups together
MAX_TEXT = 100  # characters of a value, in the status
MAX_REFUSED = 10
MAX_PATH = 300


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Machines that change alike, in the order of their turns; `first` counts the turn of the first, 0 where they have none."""

    change: Change
    fields: tuple[FieldChange, ...]
    because: str
    disrupts: str
    machines: tuple[MachineChange, ...]

    @property
    def first(self) -> int:
        return self.machines[0].order

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.pool for one in self.machines))


def group_alike(pending: PendingChanges) -> tuple[ChangeGroup, ...]:
    """The machines by what changes of them, in the order of their first turn."""
    groups: list[list[MachineChange]] = []
    by_fields: dict[tuple[object, ...], list[tuple[MachineChange, list[MachineChange]]]] = {}
    for machine in pending.machines:
        alike = by_fields.setdefault((machine.pool, machine.change, machine.disrupts), [])
        found = next((group for one, group in alike if one.fields == machine.fields), None)
        if found is None:
            found = []
            alike.append((machine, found))
            groups.append(found)
        found.append(machine)
    return tuple(
        ChangeGroup(first.change, first.fields, first.because, first.disrupts, (first, *others))
        for first, *others in groups
    )


# -- words -------------------------------------------------------------------------------------------------------


def format_value(value: Any, limit: int = MAX_TEXT) -> str:
    """A value of a field for people: `none` for none, and what stands for a value that is long or a credential."""
    if value is None:
        return "none"
    if is_digest(value):
        return f"hidden (#{value['hidden']})" if "hidden" in value else _format_long(value)
    text = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split()) if value != "" else '""'
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _format_long(value: Any) -> str:
    return f"{value['length']} characters (#{str(value['sha256'])[:8]})"


def format_change(one: FieldChange, limit: int = MAX_TEXT) -> str:
    """`spec.kubernetesVersion v1.35.1+rke2r1 → v1.35.2+rke2r1`."""
    if one.old is None and one.new is None:
        return one.path
    return f"{one.path} {format_value(one.old, limit)} → {format_value(one.new, limit)}"


def count_machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def list_sentences(pending: PendingChanges) -> tuple[str, ...]:
    """One sentence for each group of machines that change alike, for the objects of the cluster, and for what is refused."""
    groups = group_alike(pending)
    found = [_describe_group(one) for one in groups[:MAX_GROUPS]]
    if len(groups) > MAX_GROUPS:
        left = sum(len(one.machines) for one in groups[MAX_GROUPS:])
        found.append(f"and {count_machines(left)} in {len(groups) - MAX_GROUPS} more groups")
    if pending.cluster:
        not_yet = "not yet: " if "live" in NOT_YET else ""
        found.append(f"{not_yet}live: {_join_fields(pending.cluster)}")
    return tuple(found)


def _describe_group(group: ChangeGroup) -> str:
    of = f"{count_machines(len(group.machines))} of pool {group.pools[0]}"
    if group.change == "none":
        return f"{of}: {group.because}"
    not_yet = "not yet: " if group.change in NOT_YET else ""
    return f"{not_yet}{group.change} of {of}: {_join_fields(group.fields)}"


def _join_fields(fields: Sequence[FieldChange]) -> str:
    shown = [format_change(one, 60) for one in fields[:3]]
    more = [f"{len(fields) - 3} more fields"] if len(fields) > 3 else []
    return ", ".join([*shown, *more])


def is_up_to_date(pending: PendingChanges) -> bool:
    """Whether nothing waits to be carried out: what holds for new machines only never does."""
    return not (pending.cluster or pending.refused) and all(
        one.change == "new machines only" for one in pending.machines
    )


# -- status.pendingChanges ---------------------------------------------------------------------------------------


def render_pending(pending: PendingChanges, *, bounded: bool = True) -> dict[str, Any] | None:
    """The plan as an object; None where nothing is pending. Bounded, as the status has it, or whole."""
    if pending.is_empty:
        return None
    groups = group_alike(pending)
    shown = groups[:MAX_GROUPS] if bounded else groups
    left = MAX_MACHINES if bounded else sum(len(one.machines) for one in groups)
    rendered = []
    for group in shown:
        rendered.append(_render_group(group, left, bounded))
        left -= min(left, len(group.machines))
    more = len(groups) - len(shown)
    found: dict[str, Any] = {
        "turns": len(pending.turns),
        "summary": summarize(pending),
        "groups": rendered,
        "moreGroups": more or None,
        "cluster": _render_fields(pending.cluster, bounded) or None,
        "moreFields": _count_more(pending.cluster, bounded),
        "refused": _render_problems(pending.refused, bounded) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def summarize(pending: PendingChanges) -> str:
    """How many machines have each change, for a column: `3 service restart, 1 replace`."""
    counts: dict[str, int] = {}
    for one in pending.machines:
        counts[one.change] = counts.get(one.change, 0) + 1
    parts = [f"{count} {change}" for change, count in counts.items() if change != "none"]
    if pending.cluster:
        parts.append(f"{len(pending.cluster)} live")
    if pending.refused and "refused" not in counts:
        parts.append(f"{len(pending.refused)} refused")
    return ", ".join(parts) or f"{len(pending.machines)} unknown"


def _render_group(group: ChangeGroup, left: int, bounded: bool) -> dict[str, Any]:
    machines = [one.machine for one in group.machines[:left]]
    found: dict[str, Any] = {
        "change": group.change,
        "pool": group.pools[0],
        "because": group.because,
        "disrupts": group.disrupts or None,
        "firstTurn": group.first or None,
        "machines": machines,
        "moreMachines": (len(group.machines) - len(machines)) or None,
        "fields": _render_fields(group.fields, bounded),
        "moreFields": _count_more(group.fields, bounded),
    }
    return {key: value for key, value in found.items() if value is not None}


def _render_fields(fields: Sequence[FieldChange], bounded: bool) -> list[dict[str, Any]]:
    shown = fields[:MAX_FIELDS] if bounded else fields
    return [_render_field(one, bounded) for one in shown]


def _render_field(one: FieldChange, bounded: bool) -> dict[str, Any]:
    """Values in the status are texts, so that one schema fits all."""
    found: dict[str, Any] = {"field": one.path[:MAX_PATH] if bounded else one.path, "change": one.change}
    for key, value in (("old", one.old), ("new", one.new)):
        if value is not None:
            found[key] = format_value(value) if bounded or is_digest(value) else value
    return {**found, "because": one.because}


def _count_more(fields: Sequence[FieldChange], bounded: bool) -> int | None:
    return (len(fields) - MAX_FIELDS) if bounded and len(fields) > MAX_FIELDS else None


def _render_problems(problems: Iterable[Problem], bounded: bool) -> list[dict[str, str]]:
    shown = list(problems)[:MAX_REFUSED] if bounded else problems
    return [{"field": one.field, "message": one.message, "hint": one.hint} for one in shown]
