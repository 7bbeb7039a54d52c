"""The plan of changes as people and programs read it: sentences for a condition, and the field `status.pendingChanges`.

Machines that change alike are one group, so that a thousand of them are as short as one. The field of the status is bounded:
`moreFields`, `moreGroups` and `moreMachines` say what was left out; `windrow plan` has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windrow.clusters.api.manifest.supported_fields import Change
from windrow.clusters.change.compare import FieldChange
from windrow.clusters.change.fields import NOT_YET
from windrow.clusters.change.pending import MachineChange, PendingChanges
from windrow.clusters.change.revisions import is_digest
from windrow.core.formats.json import loads_or_none
from windrow.machines.port import Problem

MAX_GROUPS = 20
MAX_FIELDS = 10  # of one group
MAX_MACHINES = 200  # of all groups together
MAX_TEXT = 100  # characters of a value, in the status
MAX_COMPARED = 2000  # characters of a value, in which the first difference is looked for
MAX_REFUSED = 10
MAX_PATH = 300
MAX_DIFFERING = 3  # values of an object in JSON


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Machines that change alike, in the order of their turns; `first` counts the turn of the first, 0 where they have none."""

    change: Change
    fields: tuple[FieldChange, ...]
    because: str
    disrupts: str
    steps: tuple[str, ...]
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
        alike = by_fields.setdefault((machine.pool, machine.change, machine.disrupts, machine.steps), [])
        found = next((group for one, group in alike if one.fields == machine.fields), None)
        if found is None:
            found = []
            alike.append((machine, found))
            groups.append(found)
        found.append(machine)
    return tuple(
        ChangeGroup(first.change, first.fields, first.because, first.disrupts, first.steps, (first, *others))
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
    return truncate(text, limit)


def format_values(one: FieldChange, limit: int = MAX_TEXT) -> tuple[str, str]:
    """The old and the new value: of two objects in JSON what differs, of two long texts from a little before the place on where
    they do."""
    if differing := _find_differing(one.old, one.new):
        old, new = (", ".join(part) for part in zip(*differing, strict=True))
        return truncate(old, limit), truncate(new, limit)
    old, new = format_value(one.old, MAX_COMPARED), format_value(one.new, MAX_COMPARED)
    same = next((place for place, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, same - limit // 3)
    if not start or max(len(old), len(new)) <= limit:
        return truncate(old, limit), truncate(new, limit)
    return truncate(f"…{old[start:]}", limit), truncate(f"…{new[start:]}", limit)


def _find_differing(old: Any, new: Any) -> list[tuple[str, str]]:
    """Of two texts that are objects in JSON each value that differs, the old one with its path: `disks[0].size 40`, `50`. Empty for
    other values, and for more differences than a line can show."""
    if not (isinstance(old, str) and isinstance(new, str) and old.startswith("{") and new.startswith("{")):
        return []
    were, are = loads_or_none(old), loads_or_none(new)
    if not (isinstance(were, dict) and isinstance(are, dict)):
        return []
    found = list(islice(_list_differing("", were, are), MAX_DIFFERING + 1))
    return found if len(found) <= MAX_DIFFERING else []


def _list_differing(path: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _list_differing(f"{path}.{key}".removeprefix("."), old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, pair in enumerate(zip(old, new, strict=True)):
            yield from _list_differing(f"{path}[{place}]", *pair)
    elif old != new:
        yield f"{path} {format_value(old)}", format_value(new)


def truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _format_long(value: Any) -> str:
    return f"{value['length']} characters (#{str(value['sha256'])[:8]})"


def format_change(one: FieldChange, limit: int = MAX_TEXT) -> str:
    """`spec.kubernetesVersion v1.35.1+rke2r1 → v1.35.2+rke2r1`."""
    if one.old is None and one.new is None:
        return one.path
    return f"{one.path} {' → '.join(format_values(one, limit))}"


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
    if group.change == "refused":
        return f"{of}: {_join_fields(group.fields)} is refused, as the condition Accepted says"
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


def render_pending(pending: PendingChanges) -> dict[str, Any] | None:
    """`status.pendingChanges`; None where nothing is pending."""
    if pending.is_empty:
        return None
    groups = group_alike(pending)
    left = MAX_MACHINES
    rendered = []
    for group in groups[:MAX_GROUPS]:
        rendered.append(_render_group(group, left))
        left -= min(left, len(group.machines))
    found: dict[str, Any] = {
        "turns": len(pending.turns),
        "summary": summarize(pending),
        "groups": rendered,
        "moreGroups": max(0, len(groups) - MAX_GROUPS) or None,
        "cluster": _render_fields(pending.cluster) or None,
        "moreFields": _count_more(pending.cluster),
        "refused": [render_problem(one) for one in pending.refused[:MAX_REFUSED]] or None,
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


def _render_group(group: ChangeGroup, left: int) -> dict[str, Any]:
    machines = [one.machine for one in group.machines[:left]]
    found: dict[str, Any] = {
        "change": group.change,
        "pool": group.pools[0],
        "because": group.because,
        "disrupts": group.disrupts or None,
        "firstTurn": group.first or None,
        "machines": machines,
        "moreMachines": (len(group.machines) - len(machines)) or None,
        "fields": _render_fields(group.fields),
        "moreFields": _count_more(group.fields),
    }
    return {key: value for key, value in found.items() if value is not None}


def _render_fields(fields: Sequence[FieldChange]) -> list[dict[str, Any]]:
    return [render_field(one, bounded=True) for one in fields[:MAX_FIELDS]]


def render_field(one: FieldChange, *, bounded: bool = False) -> dict[str, Any]:
    """One field as an object. Values in the status are texts, so that one schema fits all."""
    found: dict[str, Any] = {"field": one.path[:MAX_PATH] if bounded else one.path, "change": one.change}
    for key, value, text in zip(("old", "new"), (one.old, one.new), format_values(one), strict=True):
        if value is not None:
            found[key] = text if bounded or is_digest(value) else value
    return {**found, "because": one.because}


def _count_more(fields: Sequence[FieldChange]) -> int | None:
    return max(0, len(fields) - MAX_FIELDS) or None


def render_problem(problem: Problem) -> dict[str, str]:
    """A problem as an object."""
    return {"field": problem.field, "message": problem.message, "hint": problem.hint}
