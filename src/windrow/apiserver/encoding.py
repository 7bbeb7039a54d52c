"""Encoding of results. Lists are joined from the encoded entries."""

from __future__ import annotations

from windrow.apiserver.context import JsonResult, ListResult, ObjectResult, Result
from windrow.apiserver.storage.port import Entry, Raw
from windrow.apiserver.types.registry import ResourceType
from windrow.core.formats import yaml
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.requests import Reply


def list_meta(listing: ListResult) -> Raw:
    head: Raw = {"resourceVersion": str(listing.rev)}
    if listing.token:
        head["continue"] = listing.token
        if listing.remaining:
            head["remainingItemCount"] = listing.remaining
    return head


def encode_item(type: ResourceType, entry: Entry) -> bytes:
    """An object inside a list. Items of built-in types carry no apiVersion and kind."""
    if type.custom:
        return entry.data
    # Objects are stored with apiVersion and kind in front, which are cut off.
    front = dumps({"apiVersion": type.kind.api_version, "kind": type.kind.kind})[:-1] + b","
    return b"{" + entry.data[len(front) :] if entry.data.startswith(front) else entry.data


def encode_list(listing: ListResult) -> bytes:
    kind = listing.type.kind
    front = {"kind": listing.type.list_name, "apiVersion": kind.api_version, "metadata": list_meta(listing)}
    items = b",".join([encode_item(listing.type, entry) for entry in listing.entries])
    return b"".join((dumps(front)[:-1], b',"items":[', items, b"]}"))


def to_yaml(reply: Reply) -> Reply:
    return Reply(reply.status, yaml.dump(loads(reply.body)).encode(), "application/yaml", reply.headers)


def encode_result(outcome: Result) -> Reply:
    """The result as a JSON reply."""
    match outcome:
        case ObjectResult(_, entry, status):
            return Reply(status, entry.data)
        case ListResult():
            return Reply(200, encode_list(outcome))
        case JsonResult(raw, status):
            return Reply(status, dumps(raw))
