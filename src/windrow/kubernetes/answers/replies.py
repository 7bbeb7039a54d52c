"""Whether an answer is what its request asks for: an object of the API, with the name in the path.

A server that answers 200 with something else (a proxy, a web page, a tenant's own) is no API server. That is refused here for
what answers with one object: get, create, update, patch and delete, and the subresources status, scale and finalize.
Lists, watches and other subresources have readers that check what they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.core.formats.json import Raw, loads
from windrow.kubernetes.errors import InvalidReply, decode_reply, require_metadata
from windrow.kubernetes.requests import Reply, Request

# Subresources whose answer is the object itself.
_OF_THE_OBJECT = ("status", "scale", "finalize")


def decode_answer(request: Request, reply: Reply, loads: Callable[[bytes], Any] = loads) -> Raw:
    """The object in `reply`. Raises the KubeError of an error reply, and InvalidReply for what is no answer to `request`.

    What lists, subresources and paths of another form answer is decoded and left to their readers. {} for a write that is
    answered without a body.
    """
    raw = decode_reply(reply, loads)
    named = _find_name(request)
    if named is None:
        return raw
    where = f"the answer to {request.method} {request.path}"
    kind = str(raw.get("kind") or "")
    if request.method == "DELETE" and kind == "Status":
        return raw
    if not reply.body and not request.is_read:
        return raw  # done, and not shown
    if kind == "Status" or kind.endswith("List"):
        raise InvalidReply(f"wanted an object in {where}, found a {kind}; is this address an API server?")
    # A review is an object without a name.
    require_metadata(raw, where, *(() if request.path.endswith("reviews") else ("name",)))
    found = raw["metadata"].get("name")
    if named and found != named:
        raise InvalidReply(
            f"wanted {named!r} in {where}, found {found[:80]!r}; is this address an API server?"
        )
    return raw


def _find_name(request: Request) -> str | None:
    """The name of the object that the answer is to have, "" where it is chosen by the server or in the body; None where the
    answer is no object."""
    parts = request.path.strip("/").split("/")
    match parts[0], len(parts):
        case "api", length if length > 2:
            rest = parts[2:]
        case "apis", length if length > 3:
            rest = parts[3:]
        case _:
            return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_THE_OBJECT:
        rest = rest[2:]
    match rest:
        case [_]:
            return "" if request.method == "POST" else None
        case [_, name]:
            return None if request.method in ("POST", "HEAD") else name
        case [_, name, subresource] if subresource in _OF_THE_OBJECT:
            return name
        case _:
            return None
