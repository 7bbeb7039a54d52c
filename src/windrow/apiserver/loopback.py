"""LoopbackClient: the API within the process, as a transport and as plain verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from windrow.apiserver.context import JsonResult, ListResult, ObjectResult, Result
from windrow.apiserver.request.info import ApiCall, RequestInfo, UserInfo
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.requests import JSON, JSON_PATCH, MERGE_PATCH, Reply, Request, WatchEvent
from windrow.kubernetes.resources import ApiResource, ObjectRef

Raw = dict[str, Any]


class Backend(Protocol):
    """What LoopbackClient needs of a server."""

    async def handle(self, request: Request, user: UserInfo) -> Reply: ...

    def handle_watch(
        self, request: Request, user: UserInfo
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]: ...

    async def perform(self, call: ApiCall) -> Result: ...


def _deep_copy(raw: Any) -> Any:
    """A copy that shares nothing with the caller's."""
    return loads(dumps(raw))


class LoopbackClient:
    """Requests as one user, without a socket. Objects passed in and returned are copies."""

    def __init__(self, server: Backend, user: UserInfo) -> None:
        self._server, self.user = server, user

    async def send(self, request: Request) -> Reply:
        return await self._server.handle(request, self.user)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._server.handle_watch(request, self.user)

    async def aclose(self) -> None:
        """Nothing to close: there are no sockets."""

    async def get(self, ref: ObjectRef) -> Raw:
        return _object_of(await self._perform("get", ref))

    async def find(self, ref: ObjectRef) -> Raw | None:
        """None when there is no such object; every other refusal is raised."""
        try:
            return await self.get(ref)
        except NotFound:
            return None

    async def list(
        self, kind: ApiResource, namespace: str = "", labels: str = "", fields: str = ""
    ) -> list[Raw]:
        """Everything selected, each with its apiVersion and kind."""
        options = {"labelSelector": labels, "fieldSelector": fields}
        asked = {name: value for name, value in options.items() if value}
        outcome = await self._perform("list", kind.ref("", namespace), options=asked)
        assert isinstance(outcome, ListResult)
        return [entry.copy() for entry in outcome.entries]

    async def create(self, kind: ApiResource, raw: Mapping[str, Any], namespace: str = "") -> Raw:
        where = namespace or raw["metadata"].get("namespace", "")
        return _object_of(await self._perform("create", kind.ref("", where), body=_deep_copy(raw)))

    async def update(self, kind: ApiResource, raw: Mapping[str, Any], subresource: str = "") -> Raw:
        head = raw["metadata"]
        ref = kind.ref(head["name"], head.get("namespace", ""))
        return _object_of(await self._perform("update", ref, body=_deep_copy(raw), subresource=subresource))

    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Raw:
        """A merge patch."""
        outcome = await self._perform(
            "patch", ref, body=_deep_copy(change), media=MERGE_PATCH, subresource=subresource
        )
        return _object_of(outcome)

    async def json_patch(
        self, ref: ObjectRef, steps: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> Raw:
        outcome = await self._perform(
            "patch", ref, body=_deep_copy(list(steps)), media=JSON_PATCH, subresource=subresource
        )
        return _object_of(outcome)

    async def delete(
        self, ref: ObjectRef, *, propagation: str = "", uid: str = "", grace_s: int | None = None
    ) -> Raw:
        """The object while finalizers keep it, else a Status."""
        options: Raw = {"propagationPolicy": propagation} if propagation else {}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        return _object_of(await self._perform("delete", ref, body_options=options))

    def watch(
        self,
        kind: ApiResource,
        namespace: str = "",
        *,
        version: str = "",
        labels: str = "",
        fields: str = "",
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """The events after `version`; from the current state on (as ADDED) when it is ""."""
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("labelSelector", labels),
            ("fieldSelector", fields),
        ]
        return self.stream(Request("GET", kind.path(namespace), tuple(pair for pair in query if pair[1])))

    async def _perform(
        self,
        verb: str,
        ref: ObjectRef,
        *,
        body: Any = None,
        media: str = JSON,
        options: Mapping[str, str] | None = None,
        subresource: str = "",
        body_options: Mapping[str, Any] | None = None,
    ) -> Result:
        kind = ref.kind
        namespace = ref.name if kind.plural == "namespaces" and not kind.group else ref.namespace
        info = RequestInfo(ref.path, kind.group, kind.version, kind.plural, namespace, ref.name, subresource)
        call = ApiCall(verb, info, self.user, options or {}, body, media, delete_options=body_options or {})
        return await self._server.perform(call)


def _object_of(outcome: Result) -> Raw:
    if isinstance(outcome, JsonResult):
        return outcome.raw
    assert isinstance(outcome, ObjectResult)
    return outcome.entry.copy()
