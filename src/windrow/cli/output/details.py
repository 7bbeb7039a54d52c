"""The screen of `windrow describe`: fields of an object, its conditions, the tree or the wait, and its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from windrow.app.describe.conditions import condition_health, condition_since, list_conditions
from windrow.app.describe.events import EventView
from windrow.app.describe.sentences import format_version, format_wait, machine_state
from windrow.app.describe.views import ClusterView, MachineView, parse_or_none
from windrow.cli.output.events import render_events
from windrow.cli.output.lines import StyledLine, line, wrap, wrap_problems
from windrow.cli.output.tree import render_cluster
from windrow.core.formats.duration import human_duration
from windrow.kubernetes.objects import labels_of, nested

Raw = Mapping[str, Any]
_LABEL = 15
MAX_EVENTS = 25


def render_cluster_details(
    raw: Raw, view: ClusterView, events: Sequence[EventView], now: datetime, width: int = 80
) -> list[StyledLine]:
    """`windrow describe cluster`."""
    fields = [
        ("Name", view.name),
        ("Namespace", view.namespace),
        *_metadata(raw, now),
        ("Version", format_version(view)),
        ("Credential", str(nested(raw, "spec", "cloudCredentialSecretName", default=""))),
        ("Endpoint", _endpoint(raw)),
        ("Phase", view.phase),
    ]
    tree = render_cluster(view, now, width)
    return [
        *_fields(fields, width),
        *_conditions(raw, now, width),
        *_section("Tree", tree),
        *_events(events, now, width),
    ]


def render_machine_details(
    raw: Raw, view: MachineView, events: Sequence[EventView], now: datetime, width: int = 80
) -> list[StyledLine]:
    """`windrow describe machine`."""
    vm_namespace = nested(raw, "status", "driverConfig", "VMNamespace", default="")
    fields = [
        ("Name", view.name),
        ("Namespace", view.namespace),
        *_metadata(raw, now),
        ("Cluster", view.cluster),
        ("Pool", view.pool),
        ("Roles", ", ".join(map(str, nested(raw, "spec", "roles", default=())))),
        ("Version", view.version),
        ("Addresses", ", ".join(map(str, nested(raw, "status", "addresses", default=())))),
        ("Node", str(nested(raw, "status", "nodeRef", "name", default=""))),
        ("VirtualMachine", f"{vm_namespace}/{view.name}" if vm_namespace else ""),
        ("Host", str(nested(raw, "status", "host", default=""))),
        ("State", machine_state(view)),
        ("Waiting", format_wait(view.wait, now) if view.wait is not None else ""),
    ]
    return [*_fields(fields, width), *_conditions(raw, now, width), *_events(events, now, width)]


def _metadata(raw: Raw, now: datetime) -> list[tuple[str, str]]:
    created = parse_or_none(nested(raw, "metadata", "creationTimestamp"))
    age = (
        f"{nested(raw, 'metadata', 'creationTimestamp')} ({human_duration(now - created)} ago)"
        if created
        else ""
    )
    deleted = str(nested(raw, "metadata", "deletionTimestamp", default=""))
    labels = ", ".join(f"{key}={value}" for key, value in sorted(labels_of(raw).items()))
    return [("Labels", labels), ("Created", age), ("Deletion", deleted)]


def _endpoint(raw: Raw) -> str:
    endpoint = nested(raw, "status", "endpoint", default={})
    mode, api = nested(endpoint, "mode", default=""), nested(endpoint, "api", default="")
    return f"{api} ({mode})" if api and mode else str(api or mode)


def _fields(fields: Sequence[tuple[str, str]], width: int) -> list[StyledLine]:
    lines = []
    for label, value in fields:
        for place, part in enumerate(wrap(value, width - _LABEL - 1) if value else []):
            lines.append(line((f"{label}:" if place == 0 else "").ljust(_LABEL + 1), part))
    return lines


def _section(title: str, lines: Sequence[StyledLine]) -> list[StyledLine]:
    return [line((f"{title}:", "strong")), *lines] if lines else []


def _conditions(raw: Raw, now: datetime, width: int) -> list[StyledLine]:
    lines = []
    for one in list_conditions(raw):
        since = condition_since(one)
        age = f", {human_duration(now - since)}" if since is not None else ""
        reason = f" ({one.reason})" if one.reason else ""
        lines.append(line("  ", f"{one.type}: ", (one.status, condition_health(one)), f"{reason}{age}"))
        lines += [line("    ", part) for part in wrap_problems(one.message, width - 4)]
    return _section("Conditions", lines)


def _events(events: Sequence[EventView], now: datetime, width: int) -> list[StyledLine]:
    shown = [line("  ") + one for one in render_events(events[-MAX_EVENTS:], now, width - 2)]
    return _section("Events", shown) or [line(("Events:", "strong"), "  none")]
