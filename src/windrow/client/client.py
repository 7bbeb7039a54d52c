"""The API client: one method per verb, which sends the request, decodes the reply and raises its error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from windrow.client.transport import Transport
from windrow.core.formats.fastjson import loads, loads_list
from windrow.core.formats.json import NotJson
from windrow.core.wait import yield_turn
from windrow.kubernetes import requests
from windrow.kubernetes.answers.replies import decode_answer
from windrow.kubernetes.errors import (
    Expired,
    InvalidReply,
    NotFound,
    decode_reply,
    is_not_found,
    require_few_values,
    require_list,
    require_metadata,
)
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Propagation, Request
from windrow.kubernetes.resources import ApiResource, ObjectRef

T = TypeVar("T")

PAGE_SIZE = 500
# Of a list whose pages took longer than the server keeps its history. Smaller than what one answer may have: 10,000 VMs of
# 10 kB in one answer are 100 MB.
LARGE_PAGE_SIZE = 2000
# Of a page so many bytes are decoded at a time, or PAGE_SIZE objects. The larger ones of real objects alone are more.
PART_BYTES = 2**20
# One object may have this share of the values that a whole answer may have: none is decoded for longer than a moment.
OBJECT_SHARE = 10
# Of one kind on one server; a list that goes on is given up.
MAX_OBJECTS = 200_000


def require_few_objects(kind: ApiResource, count: int) -> None:
    """Raises InvalidReply where a list, or what a watch adds to it, goes on without an end."""
    if count > MAX_OBJECTS:
        raise InvalidReply(
            f"wanted at most {MAX_OBJECTS} {kind.group_resource}, found more, or pages without end; "
            "is this address an API server?"
        )


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a list, and the resourceVersion from which a watch continues."""

    items: list[Raw]
    resource_version: str


async def read_in_pages(read: Callable[[int], Awaitable[T]], page_size: int) -> T:
    """The result of `read(limit)`, which lists anew: in fewer, larger pages where a list has expired between two pages (410),
    and in one only where that has expired too."""
    for limit in (page_size, max(page_size, LARGE_PAGE_SIZE)):
        with suppress(Expired):
            return await read(limit)
    return await read(0)


def _next_texts(texts: Sequence[bytes]) -> list[bytes]:
    """The first of the texts that are decoded together."""
    found, size = [], 0
    for text in texts[:PAGE_SIZE]:
        found.append(bytes(text))
        size += len(found[-1])
        if size >= PART_BYTES:
            break
    return found


def _decode_item(text: bytes, number: int, kind: ApiResource) -> Raw:
    """An object of a list, with its kind. Raises InvalidReply."""
    where = f"items[{number}]"
    require_few_values(text, where, OBJECT_SHARE)
    try:
        item: Raw = loads(text)
    except NotJson as error:
        raise InvalidReply(f"wanted a JSON object in {where}, found {text[:80]!r}") from error
    require_metadata(item, where, "name")
    # Lists of built-in kinds leave these out.
    item.setdefault("apiVersion", kind.api_version)
    item.setdefault("kind", kind.kind)
    return item


class Client:
    """Typed verbs over a Transport. Every method raises the KubeError of a refusal; none of them retries."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def call(self, request: Request) -> Raw:
        """Send `request` as it is and return the object in the answer."""
        return decode_answer(request, await self.transport.send(request), loads)

    async def _call_for_object(self, request: Request) -> Raw:
        raw = await self.call(request)
        if not raw:
            raise InvalidReply(
                f"wanted an object in the answer to {request.method} {request.path}, found nothing"
            )
        return raw

    async def get(self, ref: ObjectRef) -> Raw:
        return await self.call(requests.get(ref))

    async def find(self, ref: ObjectRef) -> Raw | None:
        """The object, or None when the server answers that this very object does not exist.

        A 404 that does not name the object (an unknown kind, a proxy's own page) is raised as NotFound:
        it does not prove that the object is gone.
        """
        try:
            return await self.get(ref)
        except NotFound as error:
            if not is_not_found(error, ref.name):
                raise
            return None

    async def list(
        self, kind: ApiResource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Raw]:
        """All objects in scope; `namespace` "" means every namespace."""
        return (await self.list_with_version(kind, namespace, labels, fields)).items

    async def list_with_version(
        self, kind: ApiResource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> ObjectList:
        """The same, with the version that every page shares."""

        async def read(limit: int) -> ObjectList:
            items: list[Raw] = []
            version = ""
            async for page in self.pages(kind, namespace, labels, fields, limit=limit):
                items += page.items
                version = page.resource_version
            return ObjectList(items, version)

        return await read_in_pages(read, PAGE_SIZE)

    async def pages(
        self,
        kind: ApiResource,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        *,
        limit: int = PAGE_SIZE,
    ) -> AsyncIterator[ObjectList]:
        """The list page by page, for callers that keep only part of each page. Raises Expired when it took too long,
        and InvalidReply for an answer that is no list. Of a larger answer others have their turn before each PAGE_SIZE
        objects or PART_BYTES; only then are these decoded. The objects of a page are let go when the next is asked for: its `items` is empty then."""
        continue_, count = "", 0
        while True:
            request = requests.list_(
                kind, namespace, labels=labels, fields=fields, limit=limit, continue_=continue_
            )
            page = decode_reply(await self.transport.send(request), loads_list)
            items, metadata = require_list(page), page["metadata"]
            count += len(items) or PAGE_SIZE  # pages without objects end too
            require_few_objects(kind, count)
            version = str(metadata.get("resourceVersion") or "")
            taken = 0
            while True:
                texts = _next_texts(items)
                part = [_decode_item(text, taken + number, kind) for number, text in enumerate(texts)]
                taken += len(part)
                # Kept while the next page is read, which may be large, they would be in memory twice.
                del items[: len(part)]
                yield ObjectList(part, version)
                part.clear()
                if not items:
                    break
                await yield_turn()
            continue_ = metadata.get("continue") or ""
            if not continue_:
                return

    async def create(self, kind: ApiResource, raw: Mapping[str, Any], namespace: str = "") -> Raw:
        return await self._call_for_object(requests.create(kind, raw, namespace))

    async def update(self, kind: ApiResource, raw: Mapping[str, Any], subresource: str = "") -> Raw:
        """Replace the whole object that `raw` names: only where this program owns every field."""
        metadata = raw["metadata"]
        ref = kind.ref(metadata["name"], metadata.get("namespace", ""))
        return await self._call_for_object(requests.update(ref, raw, subresource))

    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Raw:
        """Merge `change` into the object (RFC 7386: null deletes, lists are replaced)."""
        return await self._call_for_object(requests.merge_patch(ref, change, subresource))

    async def json_patch(
        self, ref: ObjectRef, steps: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> Raw:
        return await self._call_for_object(requests.json_patch(ref, steps, subresource))

    async def strategic_patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Raw:
        """Built-in kinds only: lists of conditions, addresses, … are merged by their key."""
        return await self._call_for_object(requests.strategic_patch(ref, change, subresource))

    async def apply(
        self,
        ref: ObjectRef,
        raw: Mapping[str, Any],
        manager: str,
        *,
        force: bool = False,
        strict: bool = False,
        dry_run: bool = False,
    ) -> Raw:
        """Server-side apply; with `strict`, unknown fields are an error instead of a warning; with `dry_run`, nothing is
        written."""
        request = requests.apply(ref, raw, manager, force=force, strict=strict, dry_run=dry_run)
        return await self._call_for_object(request)

    async def delete(
        self,
        ref: ObjectRef,
        propagation: Propagation | None = None,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
    ) -> Raw:
        """Request the deletion, of a pod with so many seconds to end. With `uid`, only of that very object, with `resource_version` only if it is unchanged (Conflict
        otherwise). Raises NotFound."""
        request = requests.delete(
            ref,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            grace_s=grace_s,
        )
        return await self.call(request)
