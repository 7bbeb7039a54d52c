"""A Harvester small enough for a operation: objects on a api, requests answered as an API server would, time by hand.

Both runners use it: the blocking one calls `send` and `watch`, the asyncio one, which does not wait, a transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.core.formats.json import dumps, loads
from windrow.kubernetes.patches import PatchFailed, apply_json_patch, apply_merge_patch
from windrow.kubernetes.requests import JSON_PATCH, Reply, Request, WatchEvent
from windrow.kubernetes.resources import ApiResource, ObjectRef
from windrow.machines.harvester.runner import run_operation as run_async
from windrow.nodedriver.blocking_runner import run as run_blocking
from windrow.nodedriver.effects import Operation, WaitingOperation

Raw = dict[str, Any]
Change = Callable[["ApiDouble"], None]


class ApiDouble:
    def __init__(self, *objects: tuple[ObjectRef, Raw]) -> None:
        self.objects: dict[str, Raw] = {}
        self.refs: dict[str, ObjectRef] = {}
        self.requests: list[str] = []
        self.log_lines: list[str] = []
        self.replies: dict[tuple[str, str], list[Reply | Exception]] = {}
        self.scheduled: list[Change] = []
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        self.history: list[tuple[int, str, WatchEvent]] = []
        self._uids = 0
        for ref, raw in objects:
            self.put(ref, raw)

    # What tests set up.

    def put(self, ref: ObjectRef, raw: Raw) -> None:
        self._uids += 1
        metadata = {"uid": f"uid-{self._uids}", **raw.get("metadata", {}), "name": ref.name}
        metadata |= {"namespace": ref.namespace, "resourceVersion": str(self._uids)}
        self.objects[ref.path] = {
            "apiVersion": ref.kind.api_version,
            "kind": ref.kind.kind,
            **raw,
            "metadata": metadata,
        }
        self.refs[ref.path] = ref
        self._record("MODIFIED", ref.path, self.objects[ref.path])

    def drop(self, ref: ObjectRef) -> None:
        raw = self.objects.pop(ref.path, None)
        if raw is not None:
            self._uids += 1
            self._record("DELETED", ref.path, raw)

    def _record(self, type: Any, path: str, raw: Raw) -> None:
        self.history.append((self._uids, path, WatchEvent(type, raw)))

    def answer(self, method: str, last: str, *replies: Reply | Exception) -> None:
        """The next requests of that method whose path ends so get these answers."""
        self.replies.setdefault((method, last), []).extend(replies)

    def then(self, *changes: Change) -> None:
        """What happens, one change at a time, while an operation waits."""
        self.scheduled.extend(changes)

    # How operations are run.

    def run_both_ways(self, operation: Callable[[], Operation[Any]], way: str) -> Any:
        if way == "blocking":
            return self.run(operation())
        return asyncio.run(run_async(operation(), _Transport(self), self.log_lines.append))

    def run(self, operation: WaitingOperation[Any]) -> Any:
        return run_blocking(
            operation, self.send, self.watch, lambda: self.now, self.log_lines.append, sleep=self.pause
        )

    def pause(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # The server.

    def send(self, request: Request) -> Reply:
        self.requests.append(f"{request.method} {'/'.join(request.path.split('/')[-2:])}")
        for (method, last), waiting in self.replies.items():
            if method == request.method and request.path.endswith(last) and waiting:
                reply = waiting.pop(0)
                if isinstance(reply, Exception):
                    raise reply
                return reply
        return self.serve(request)

    def serve(self, request: Request) -> Reply:
        there = self.objects.get(request.path)
        body = loads(request.body) if request.body else {}
        match request.method:
            case "POST":
                return self._create(request.path, body)
            case _ if there is None:
                name = request.path.rpartition("/")[2]
                return refusal(404, "NotFound", f"{request.path} not found", name)
            case "GET":
                return Reply(200, dumps(there))
            case "PATCH":
                return self._patch(request, there, body)
            case "DELETE":
                wanted = (body.get("preconditions") or {}).get("uid")
                if wanted and wanted != there["metadata"]["uid"]:
                    return refusal(409, "Conflict", "the UID in the precondition does not match")
                self.drop(self.refs[request.path])
                return Reply(200, dumps(there))
        return refusal(405, "MethodNotAllowed", "no")

    def _patch(self, request: Request, there: Raw, body: Any) -> Reply:
        uid = there["metadata"]["uid"]
        if request.content_type == JSON_PATCH:
            try:
                changed = apply_json_patch(there, body)
            except PatchFailed as error:
                return refusal(422, "Invalid", str(error))
        else:
            changed = apply_merge_patch(there, body)
        if changed["metadata"]["uid"] != uid:
            return refusal(409, "Conflict", "Precondition failed: UID in precondition")
        self._uids += 1
        changed["metadata"]["resourceVersion"] = str(self._uids)
        self.objects[request.path] = changed
        self._record("MODIFIED", request.path, changed)
        return Reply(200, dumps(changed))

    def _create(self, path: str, body: Raw) -> Reply:
        name = body["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            return refusal(409, "AlreadyExists", f"{name} already exists")
        kind = ApiResource("", "v1", body["kind"], path.rpartition("/")[2])
        if body["apiVersion"] != "v1":
            group, _, version = body["apiVersion"].partition("/")
            kind = ApiResource(group, version, body["kind"], path.rpartition("/")[2])
        self.put(kind.ref(name, body["metadata"]["namespace"]), body)
        return Reply(201, dumps(self.objects[f"{path}/{name}"]))

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        """What there is, or what came after the version; then one change each second; then silence."""
        path = f"{request.path}/{(request.query_parameter('fieldSelector') or '').partition('=')[2]}"
        self.requests.append(f"WATCH {'/'.join(path.split('/')[-2:])}")
        version = request.query_parameter("resourceVersion")
        told = int(version or self._uids)
        if not version and path in self.objects:
            yield WatchEvent("ADDED", self.objects[path])
        end = self.now + timedelta(seconds=int(request.query_parameter("timeoutSeconds") or 1))
        while True:
            for number, where, event in list(self.history):
                if where == path and number > told:
                    yield event
            told = self._uids
            if self.now >= end:
                return
            if self.scheduled:
                self.now += timedelta(seconds=1)
                self.scheduled.pop(0)(self)
            else:
                self.now = min(end, self.now + timedelta(seconds=10))
                yield None


class _Transport:
    def __init__(self, api: ApiDouble) -> None:
        self._api = api

    async def send(self, request: Request) -> Reply:
        return self._api.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        raise AssertionError(f"a operation does not watch by itself: {request}")
        yield

    async def aclose(self) -> None:
        pass


def refusal(status: int, reason: str, message: str, name: str = "") -> Reply:
    body: Raw = {"kind": "Status", "code": status, "reason": reason, "message": message}
    if name:
        body["details"] = {"name": name}
    return Reply(status, dumps(body))
