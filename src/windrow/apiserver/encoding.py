"""Encoding of results. Lists are joined from the encoded entries."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.apiserver.context import JsonResult, ListResult, ObjectResult, Result
from windrow.apiserver.storage.port import Raw
from windrow.core.formats import yaml
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.requests import PartsReply, Reply

# From which on what is stored is not copied into the answer.
LARGE_BYTES = 256 * 1024


def list_meta(listing: ListResult) -> Raw:
    head: Raw = {"resourceVersion": str(listing.rev)}
    if listing.token:
        head["continue"] = listing.token
        if listing.remaining:
            head["remainingItemCount"] = listing.remaining
    return head


def _list_parts(listing: ListResult) -> Iterator[bytes | memoryview]:
    """The list as JSON, in parts; the objects are not copied. Items of built-in types carry no apiVersion and kind."""
    kind = listing.type.kind
    head = {"kind": listing.type.list_name, "apiVersion": kind.api_version, "metadata": list_meta(listing)}
    yield dumps(head)[:-1] + b',"items":['
    # Objects are stored with apiVersion and kind in front, which are cut off.
    front = dumps({"apiVersion": kind.api_version, "kind": kind.kind})[:-1] + b","
    separator = b""
    for entry in listing.entries:
        if listing.type.custom or not entry.data.startswith(front):
            yield from (separator, entry.data)
        else:
            yield from (separator + b"{", memoryview(entry.data)[len(front) :])
        separator = b","
    yield b"]}"


def _encode_list(listing: ListResult) -> Reply:
    parts = tuple(_list_parts(listing))
    is_large = sum(map(len, parts)) > LARGE_BYTES
    return PartsReply(200, parts=parts) if is_large else Reply(200, b"".join(parts))


def to_yaml(reply: Reply) -> Reply:
    return Reply(reply.status, yaml.dump(loads(reply.body)).encode(), "application/yaml", reply.headers)


def encode_result(outcome: Result) -> Reply:
    """The result as a JSON reply."""
    match outcome:
        case ObjectResult(_, entry, status):
            data = entry.data
            return Reply(status, data) if len(data) <= LARGE_BYTES else PartsReply(status, parts=(data,))
        case ListResult():
            return _encode_list(outcome)
        case JsonResult(raw, status):
            return Reply(status, dumps(raw))
