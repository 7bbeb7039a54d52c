"""Outcomes as bytes. Lists are joins of what is encoded already."""

from __future__ import annotations

from windrow.apiserver.core import Listing, Outcome, Plain, Single
from windrow.apiserver.store import Entry, Raw
from windrow.apiserver.types import Type
from windrow.core import yaml
from windrow.core.fastjson import dumps, loads
from windrow.kubernetes.requests import Reply


def list_head(listing: Listing) -> Raw:
    head: Raw = {"resourceVersion": str(listing.rev)}
    if listing.token:
        head["continue"] = listing.token
        if listing.remaining:
            head["remainingItemCount"] = listing.remaining
    return head


def item_bytes(type: Type, entry: Entry) -> bytes:
    """An object inside a list. Built-in types leave out what the list's own kind says."""
    if type.custom:
        return entry.data
    # Objects are kept with apiVersion and kind in front, so leaving them out is a cut.
    front = dumps({"apiVersion": type.kind.api_version, "kind": type.kind.kind})[:-1] + b","
    return b"{" + entry.data[len(front) :] if entry.data.startswith(front) else entry.data


def render_list(listing: Listing) -> bytes:
    kind = listing.type.kind
    front = {"kind": listing.type.list_name, "apiVersion": kind.api_version, "metadata": list_head(listing)}
    items = b",".join([item_bytes(listing.type, entry) for entry in listing.entries])
    return b"".join((dumps(front)[:-1], b',"items":[', items, b"]}"))


def as_yaml(reply: Reply) -> Reply:
    return Reply(reply.status, yaml.dump(loads(reply.body)).encode(), "application/yaml", reply.headers)


def render(outcome: Outcome) -> Reply:
    """The answer as JSON."""
    match outcome:
        case Single(_, entry, status):
            return Reply(status, entry.data)
        case Listing():
            return Reply(200, render_list(outcome))
        case Plain(raw, status):
            return Reply(status, dumps(raw))
