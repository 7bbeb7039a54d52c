"""Machine: its record, why it is not Ready, its VM, host, Node and addresses, conditions and history."""

from __future__ import annotations

import shlex
from typing import Any

from windrow.app.describe.causes import explain_machine
from windrow.app.describe.conditions import condition_health, condition_since, list_conditions
from windrow.app.describe.events import EventView, list_events
from windrow.app.describe.sentences import machine_state
from windrow.app.describe.views import read_machine
from windrow.clusters.api.kinds import MACHINE
from windrow.dashboard.pages.cluster import MAX_EVENTS
from windrow.dashboard.pages.page import Page, PageContext
from windrow.dashboard.pages.timeline import STAGES, draw_timeline
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import EVENT

# Of the record, what is shown, and under which name. Its driver config is not: it may hold what a driver keeps secret.
_FACTS: tuple[tuple[str, tuple[str | int, ...]], ...] = (
    ("Cluster", ("spec", "clusterName")),
    ("Pool", ("spec", "pool")),
    ("Roles", ("spec", "roles")),
    ("Addresses", ("status", "addresses")),
    ("Node", ("status", "nodeRef", "name")),
    ("Host", ("status", "host")),
    ("Version that runs", ("status", "version")),
    ("Version recorded", ("spec", "version")),
    ("Joins through", ("spec", "joinServer")),
    ("VM namespace", ("status", "driverConfig", "VMNamespace")),
    ("Credential", ("spec", "credential")),
    ("Provider ID", ("status", "providerID")),
    ("Certificates end", ("status", "certificatesExpiryDate")),
    ("Change under way", ("status", "update", "step")),
    ("Restarts since it was ready", ("status", "restartCount")),
)
MAX_TEXT = 400


async def machine(context: PageContext) -> Page:
    """One machine, by namespace and name."""
    namespace, name = context.names
    raw = await context.api.get(MACHINE.ref(name, namespace))
    view = read_machine(raw)
    events = await _read_events(context, namespace, name)
    chain = explain_machine(raw)
    values = {
        "view": view,
        "state": machine_state(view),
        "health": "quiet" if view.deleting else "good" if view.ready else "busy",
        "chain": chain,
        "facts": facts_of(raw),
        "update_failed": nested(raw, "status", "update", "failure", default=None) is not None,
        "timeline": draw_timeline("", [raw], events, context.now),
        "stages": STAGES,
        "conditions": [(one, condition_health(one), condition_since(one)) for one in list_conditions(raw)],
        "events": events[: -MAX_EVENTS - 1 : -1],
    }
    full = shlex.quote(f"{namespace}/{name}")
    commands = (
        f"windrow why {full}",
        f"windrow machine console {full}",
        f"kubectl describe machine.windrow.io {shlex.quote(name)} -n {shlex.quote(namespace)}",
    )
    return Page("machine.html", name, values, "clusters", "cluster", namespace, commands)


async def _read_events(context: PageContext, namespace: str, name: str) -> tuple[EventView, ...]:
    fields = f"involvedObject.name={name}"
    try:
        found = await context.api.list(EVENT, namespace, fields=fields)
    except Forbidden:
        return ()
    return tuple(one for one in list_events(found) if one.kind == "Machine")


def facts_of(raw: Raw) -> list[tuple[str, str]]:
    """Names and values of what the record says, without what it does not say."""
    found = [(label, _as_text(nested(raw, *path, default=""))) for label, path in _FACTS]
    return [(label, text) for label, text in found if text]


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value[:20])[:MAX_TEXT]
    return str(value)[:MAX_TEXT] if isinstance(value, str | int) and value != 0 else ""
