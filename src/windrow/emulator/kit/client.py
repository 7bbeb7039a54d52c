"""AdminClient: the client of the emulator's own controllers. It bypasses fault injection, which is for other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from windrow.apiserver.loopback import LoopbackClient
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes import requests
from windrow.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound, error_for
from windrow.kubernetes.objects import Raw, uid_of
from windrow.kubernetes.requests import Request, WatchEvent
from windrow.kubernetes.resources import ApiResource, ObjectRef, ref_of

MAX_ATTEMPTS = 8


class AdminClient:
    """Verbs as one user. Raises KubeErrors."""

    def __init__(self, local: LoopbackClient) -> None:
        self._loopback = local
        self.get, self.find, self.list, self.create = local.get, local.find, local.list, local.create

    async def list_page(self, kind: ApiResource) -> tuple[list[Raw], str]:
        """All objects of a kind, and the resourceVersion of the list."""
        reply = await self._loopback.send(requests.list_(kind))
        if error := error_for(reply):
            raise error
        raw = loads(reply.body)
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**typed, **item} for item in raw["items"]], raw["metadata"]["resourceVersion"]

    def watch(
        self, kind: ApiResource, version: str, timeout_s: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Events after `version`. The server ends the watch after `timeout_s`, or at a random time within an hour for 0."""
        query = [("watch", "true"), ("resourceVersion", version), ("timeoutSeconds", str(timeout_s or ""))]
        return self._loopback.stream(Request("GET", kind.path(), tuple(pair for pair in query if pair[1])))

    async def ensure(self, kind: ApiResource, raw: Raw) -> Raw:
        """The stored object, created from `raw` when it does not exist; an existing one is not changed."""
        try:
            return await self.create(kind, raw)
        except AlreadyExists:
            return await self.get(ref_of(kind, raw))

    async def mutate(
        self,
        ref: ObjectRef,
        edit: Callable[[Raw], object],
        subresource: str = "",
        uid: str = "",
        *,
        is_dry_run: bool = False,
    ) -> Raw | None:
        """Read, `edit` a copy, update if changed; retried on conflict. None when the object does not exist, or with
        another uid than `uid`."""
        last: KubeError = Conflict("never tried")
        for _ in range(MAX_ATTEMPTS):
            before = await self.find(ref)
            if before is None or uid not in ("", uid_of(before)):
                return None
            after = loads(dumps(before))  # several times faster than deepcopy
            edit(after)
            if after == before:
                return before
            try:
                if is_dry_run:
                    return await self._try_update(ref, after, subresource)
                return await self._loopback.update(ref.kind, after, subresource)
            except Conflict as error:
                last = error
            except NotFound:
                return None
        raise last

    async def _try_update(self, ref: ObjectRef, raw: Raw, subresource: str) -> Raw:
        request = replace(requests.update(ref, raw, subresource), query=(("dryRun", "All"),))
        reply = await self._loopback.send(request)
        if error := error_for(reply):
            raise error
        return dict(loads(reply.body))

    async def delete(self, kind: ApiResource, raw: Raw) -> None:
        """Delete exactly this object, by uid. May be repeated."""
        try:
            await self._loopback.delete(ref_of(kind, raw), uid=uid_of(raw))
        except NotFound:
            return
        except Conflict as error:
            # Only the uid precondition means "deleted already"; a 409 of a webhook is a denial.
            if error.reason == "Conflict" and "precondition" in error.message:
                return
            raise
