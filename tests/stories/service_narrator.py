"""Stories of load balancers, written from what changes in the two APIs and from the events.

Each line is one change that was committed: of a Service, of a node, of a LoadBalancer or a pool at Harvester, or an
event. Hashes in names and times are left out, so that a text changes only when the story does. `== ` begins what
people do, `-- ` what the program asked of the APIs since the last such line.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Change
from windrow.emulator import kinds
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
)

from .service_rig import CLEANUP, ServiceRig

ZONE = "topology.kubernetes.io/zone"
# Calls that say nothing about load balancers: the lead, and watches that are begun anew every few minutes.
_QUIET = re.compile(r" leases$| WATCH ")


class Narrator:
    """Follows both APIs of a rig from its start. `lines` is the story."""

    def __init__(self, rig: ServiceRig, lines: list[str] | None = None) -> None:
        self.lines = [] if lines is None else lines
        self._rig = rig
        self._counted: Counter[str] = Counter()
        describe: dict[str, Callable[[Raw | None, Raw | None], Iterator[str]]] = {
            "Service": _service,
            "Event": _event,
            "Node": _node,
            "LoadBalancer": _balancer,
            "IPPool": _pool,
        }
        self._describe = describe
        self._tasks = [rig.tasks.create_task(self._follow(api)) for api in (rig.api, rig.host.api)]

    async def _follow(self, api: ApiServer) -> None:
        feed = api.store.changes("", api.store.rev)
        try:
            async for change in feed:
                self._record(change)
        finally:
            feed.close()

    def _record(self, change: Change) -> None:
        before = change.before.raw if change.before else None
        after = change.after.raw if change.after else None
        kind = str((after or before or {}).get("kind"))
        if kind == "Node" and not nested(after or before, "spec", "providerID"):
            return  # a host, or not initialised yet
        if kind in self._describe:
            self.lines += [_plain(line) for line in self._describe[kind](before, after)]

    async def say(self, action: str) -> None:
        """What a user does now; written after everything that was under way at this instant."""
        await asyncio.sleep(0)
        self.lines.append(f"== {action}")

    def count(self, what: str = "calls") -> Counter[str]:
        """The calls since the last count, written and returned."""
        now = Counter({key: value for key, value in self._rig.calls.items() if not _QUIET.search(key)})
        since = now - self._counted
        self._counted = now
        sides = []
        for side in ("host", "guest"):
            found = [
                f"{value} {key.removeprefix(side + ' ')}"
                for key, value in sorted(since.items())
                if key.startswith(f"{side} ")
            ]
            sides.append(f"{side} {', '.join(found) or 'none'}")
        self.lines.append(f"-- {what}: {'; '.join(sides)}")
        return since

    def forget_calls(self) -> None:
        """The calls until now are no part of the story."""
        self._counted = Counter(
            {key: value for key, value in self._rig.calls.items() if not _QUIET.search(key)}
        )

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _plain(line: str) -> str:
    line = re.sub(r"(demo-[a-z0-9-]+?)-[0-9a-f]{8}\b", r"\1-<crc>", line)
    return re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>", line)


# --- the guest ------------------------------------------------------------------------------------------------------


def _service(before: Raw | None, after: Raw | None) -> Iterator[str]:
    raw = after or before or {}
    head = f"service  {namespace_of(raw)}/{name_of(raw)}"
    if after is None:
        yield f"{head} is gone"
        return
    if before is None:
        return  # the user's action, written already
    changes = [*_texts(before, after)]
    if is_deleting(after) and not is_deleting(before):
        changes.append("is being deleted")
    if changes:
        yield f"{head} {'; '.join(changes)}"


def _texts(before: Raw, after: Raw) -> Iterator[str]:
    held, holds = CLEANUP in finalizers_of(before), CLEANUP in finalizers_of(after)
    if held != holds:
        yield "gets its finalizer" if holds else "loses its finalizer"
    for word, texts in (("label", labels_of), ("annotation", annotations_of)):
        old, new = texts(before), texts(after)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield f"{word} {key}={new[key]}" if key in new else f"loses {word} {key}"
    shown, shows = _ingress(before), _ingress(after)
    if shown != shows:
        yield f"status {shows or 'empty'}"


def _ingress(raw: Raw) -> str:
    found = nested(raw, "status", "loadBalancer", "ingress", default=[])
    return ", ".join(str(one.get("ip")) for one in found)


def _event(before: Raw | None, after: Raw | None) -> Iterator[str]:
    if after is None or nested(after, "involvedObject", "kind") not in ("Service", "Node"):
        return
    about = after["involvedObject"]
    name = f"{about.get('namespace')}/{about['name']}" if about.get("namespace") else about["name"]
    count = after.get("count") or 1
    again = f" (x{count})" if before is not None else ""
    yield f"event    {name} {after['type']} {after['reason']}: {after['message']}{again}"


def _node(before: Raw | None, after: Raw | None) -> Iterator[str]:
    name = name_of(after or before or {})
    if after is None:
        yield f"node     {name} is gone"
    elif before is None:
        yield f"node     {name} joins"
    elif labels_of(before).get(ZONE) != labels_of(after).get(ZONE):
        yield f"node     {name} is in zone {labels_of(after).get(ZONE)}"


# --- Harvester ------------------------------------------------------------------------------------------------------


def _balancer(before: Raw | None, after: Raw | None) -> Iterator[str]:
    raw = after or before or {}
    head = f"host     LoadBalancer {name_of(raw)}"
    if after is None:
        yield f"{head} is gone"
        return
    changes = []
    if before is None:
        spec = ", ".join(f"{key} {value}" for key, value in sorted(after["spec"].items()))
        changes.append(f"is made: {spec}")
    elif before.get("spec") != after.get("spec"):
        changes.append(f"spec {after['spec']}")
    changes += _balancer_status(before or {}, after)
    if is_deleting(after) and not is_deleting(before or after):
        changes.append("is being deleted")
    if changes:
        yield f"{head} {'; '.join(changes)}"


def _balancer_status(before: Raw, after: Raw) -> Iterator[str]:
    was, now = (nested(raw, "status", "allocatedAddress", default={}) for raw in (before, after))
    if was != now:
        yield (
            f"has {now['ip']} of {now['ipPool']}"
            if now.get("ipPool")
            else f"has {now.get('ip') or 'no address'}"
        )
    was, now = (nested(raw, "status", "address", default="") for raw in (before, after))
    if was != now:
        yield f"address {now or 'none'}"
    was, now = (_refusal(raw) for raw in (before, after))
    if now and was != now:
        yield f"not Ready: {now}"


def _refusal(raw: Raw) -> str:
    found: Any = find_condition(nested(raw, "status", "conditions"), "Ready")
    return found.message if found is not None and found.status == "False" else ""


def _pool(before: Raw | None, after: Raw | None) -> Iterator[str]:
    if after is None:
        return
    was, now = (_book(raw) for raw in (before or {}, after))
    if was != now:
        yield f"pool     {name_of(after)}: {now}"


def _book(raw: Raw) -> str:
    status = raw.get("status") or {}
    if "total" not in status:
        return ""
    held = ", ".join(sorted(status.get("allocated") or {})) or "none"
    return f"{status['available']} of {status['total']} free; taken: {held}"


__all__ = ["Narrator", "kinds"]
