"""Get: one object. List: a collection, whole or in pages of one revision."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from windrow.apiserver import apierrors
from windrow.apiserver.context import ListResult, ObjectResult, ServerContext, get_entry, to_served_version
from windrow.apiserver.request.info import ApiCall
from windrow.apiserver.request.options import read_int, read_version
from windrow.apiserver.request.selection import read_selection
from windrow.apiserver.storage.port import Compacted, Entry, Page
from windrow.apiserver.types.registry import ResourceType
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.formats.json import NotJson

EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page starts (`key`, relative to the collection) and the revision all pages show."""

    rev: int
    key: str

    def render(self) -> str:
        raw = {"v": "meta.k8s.io/v1", "rv": self.rev, "start": self.key + "\u0000"}
        return base64.urlsafe_b64encode(dumps(raw)).decode().rstrip("=")


def parse_token(text: str) -> ContinueToken:
    try:
        raw = loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        rev, start = raw["rv"], raw["start"]
        if raw["v"] != "meta.k8s.io/v1" or type(rev) is not int or not isinstance(start, str):
            raise ValueError(text)
        if ".." in start.split("/"):  # kube-apiserver refuses what leaves the collection
            raise ValueError(start)
    except (ValueError, KeyError, TypeError, NotJson) as error:
        raise apierrors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return ContinueToken(rev, start.rstrip("\u0000"))


def _forbidden(field: str, text: str) -> Exception:
    return apierrors.invalid_options("ListOptions", apierrors.forbidden_value(field, text))


def check_options(options: Mapping[str, str]) -> None:
    """Raises 422 for invalid combinations of ListOptions."""
    match, version = options.get("resourceVersionMatch", ""), options.get("resourceVersion", "")
    if "sendInitialEvents" in options:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if not match:
        return
    if not version:
        raise _forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if options.get("continue"):
        raise _forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
        )
    if match not in ("Exact", "NotOlderThan"):
        cause = apierrors.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
        raise apierrors.invalid_options("ListOptions", cause)
    if match == "Exact" and version == "0":
        raise _forbidden(
            "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        )


async def get(context: ServerContext, type: ResourceType, call: ApiCall) -> ObjectResult:
    asked = read_version(call.options) or 0
    if asked > context.store.rev:
        raise apierrors.resource_version_too_large(asked, context.store.rev)
    return ObjectResult(type, to_served_version(type, await get_entry(context, type, call.info)))


async def list_(context: ServerContext, type: ResourceType, call: ApiCall) -> ListResult:
    options = call.options
    check_options(options)
    selection = read_selection(type, options)
    limit = max(0, read_int(options, "limit") or 0)
    version = read_version(options)
    prefix = type.prefix(call.info.namespace)
    start, at = "", None
    if options.get("continue"):
        if version:
            raise apierrors.bad_request("specifying resource version is not allowed when using continue")
        token = parse_token(options["continue"])
        if token.rev > context.store.rev:
            raise apierrors.resource_version_too_large(token.rev, context.store.rev)
        start, at = prefix + token.key + "\u0000", token.rev if token.rev > 0 else None
    elif version:
        if version > context.store.rev:
            raise apierrors.resource_version_too_large(version, context.store.rev)
        if options.get("resourceVersionMatch") == "Exact" or (
            limit and not options.get("resourceVersionMatch")
        ):
            at = version
    elif version == 0:
        limit = 0  # a read from the cache ignores the limit
    matches = selection.matcher()
    keyed = f"/{selection.name}" if selection.name else ""
    try:
        page = await context.store.range(
            prefix, at, limit if matches is None else 0, start=start, key_suffix=keyed
        )
    except Compacted as error:
        if options.get("continue"):
            fresh = ContinueToken(-1, parse_token(options["continue"]).key).render()
            raise _expired_token(fresh) from error
        raise apierrors.expired(error.asked, error.oldest) from error
    entries, remaining, more = page.entries, page.remaining or None, page.remaining > 0
    if type.kind != type.storage_kind or type.from_storage is not None:
        entries = [to_served_version(type, entry) for entry in entries]
    if matches is not None:
        found = [entry for entry in entries if matches(entry.raw)]
        entries, more = (found[:limit], len(found) > limit) if limit else (found, False)
    return ListResult(type, entries, page.rev, _next(prefix, entries, page) if more else "", remaining)


def _next(prefix: str, entries: list[Entry], page: Page) -> str:
    return ContinueToken(page.rev, entries[-1].key[len(prefix) :]).render() if entries else ""


def _expired_token(fresh: str) -> Exception:
    error = apierrors.status_error(410, EXPIRED_TOKEN, reason="Expired")
    error.details["continue"] = fresh  # moved to the Status's metadata when it is written
    return error
