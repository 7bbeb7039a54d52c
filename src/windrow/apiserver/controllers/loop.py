"""StoreController: the base of the server's own controllers, level-triggered by changes of the store."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.context import ServerContext
from windrow.apiserver.request.info import ApiCall, RequestInfo, UserInfo
from windrow.apiserver.storage.port import Change, Compacted, Entry, Overflow, RevisionMismatch
from windrow.apiserver.types.registry import ResourceType
from windrow.apiserver.verbs.delete import delete
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.wait import yield_turn
from windrow.core.work_queue import WorkQueue
from windrow.kubernetes.errors import KubeError, NotFound

Raw = dict[str, Any]

_log = logging.getLogger(__name__)

RETRY_AFTER = timedelta(seconds=1)
MAX_RETRY_AFTER = timedelta(minutes=5)  # after repeated unexpected errors

Key = tuple[str, ...]


class Controller(ABC):
    """A controller that no defect ends: one is logged, and what met it is tried again with back-off."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Key, int] = {}  # unexpected errors in a row

    @abstractmethod
    async def run(self) -> None:
        """Until cancelled."""

    def _backoff(self, key: Key = ()) -> timedelta:
        """How long to wait after one more unexpected error with `key`."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(RETRY_AFTER * (1 << min(count - 1, 16)), MAX_RETRY_AFTER)


class PeriodicController(Controller):
    """Does one thing again and again, at the instants that it names itself."""

    @abstractmethod
    async def run_once(self) -> datetime:
        """Do it; when to do it again."""

    async def run(self) -> None:
        while True:
            with handle_crash(_log, "%s failed; trying again", type(self).__name__) as crash:
                again = await self.run_once()
                self._failures.clear()
            if crash.error is not None:
                again = self._clock.now() + self._backoff()
            await self._clock.sleep_until(again)


class StoreController(Controller):
    """Reconciles the keys of `list_keys` and of each change; a KubeError is retried after a second.

    An unexpected error is logged with its key, which is retried with back-off: no object ends the controller.

    `list_keys` runs at the start, and again whenever changes were missed.
    """

    user: UserInfo  # of the deletes

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.clock)
        self._context = context
        self._queue: WorkQueue[Key] = WorkQueue(context.clock)

    @abstractmethod
    async def list_keys(self) -> Iterable[Key]: ...

    @abstractmethod
    def keys_of_change(self, change: Change) -> Iterable[Key]: ...

    @abstractmethod
    async def reconcile(self, key: Key) -> None: ...

    async def run(self) -> None:
        """Until cancelled or the store closes."""
        async with asyncio.TaskGroup() as tasks:
            reconciling = tasks.create_task(self._reconcile_queued())
            while await self._follow_store():
                pass
            reconciling.cancel()

    async def delete(self, type: ResourceType, entry: Entry, policy: str = "") -> None:
        """Delete exactly this object, by uid. May be repeated. Other tasks take a turn afterwards."""
        head = entry.raw["metadata"]
        info = RequestInfo.of(type.kind, head.get("namespace", ""), head["name"])
        options: Raw = {"preconditions": {"uid": head["uid"]}}
        if policy:
            options["propagationPolicy"] = policy
        with suppress(NotFound):
            await delete(self._context, type, ApiCall("delete", info, self.user, delete_options=options))
        await yield_turn()

    async def commit(self, entry: Entry, raw: Raw | None, key: Key | None = None) -> bool:
        """Write `raw`, None to remove; requeues `key` (default: the entry's) and returns False after another write."""
        try:
            await self._context.store.commit(entry.key, raw, entry.rev)
        except RevisionMismatch:
            self._queue.add(key or (entry.key,))
            return False
        return True

    async def remove_finalizer(self, entry: Entry, finalizer: str) -> bool:
        """Remove the finalizer, and with the last one the object. Whether the object is removed."""
        head = entry.raw["metadata"]
        rest = [one for one in head.get("finalizers") or () if one != finalizer]
        raw = {**entry.raw, "metadata": {**head, "finalizers": rest}} if rest else None
        return await self.commit(entry, raw) and raw is None

    async def _follow_store(self) -> bool:
        """Queue the keys of all objects, then those of each change. True when changes were missed."""
        try:
            stream = self._context.store.changes("", self._context.store.rev)
        except Compacted:
            return True
        try:
            if not await self._queue_all():
                return True
            async for change in stream:
                self._queue_change(change)
        except Overflow:
            return True
        finally:
            stream.close()
        return False

    async def _queue_all(self) -> bool:
        """Queue the keys of all objects; False when they could not be listed, after back-off from a defect."""
        with handle_crash(_log, "%s cannot list its objects; trying again", type(self).__name__):
            try:
                for key in await self.list_keys():
                    self._queue.add(key)
            except (Compacted, Overflow):
                return False
            self._failures.pop((), None)
            return True
        await sleep(self._clock, self._backoff())
        return False

    def _queue_change(self, change: Change) -> None:
        with handle_crash(_log, "%s ignores a change of %s", type(self).__name__, change.key):
            for key in self.keys_of_change(change):
                self._queue.add(key)

    async def _reconcile_queued(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)
            await yield_turn()  # neither the queue nor the store suspends while there is something to do

    async def _reconcile(self, key: Key) -> None:
        controller, name = type(self).__name__, "/".join(key)
        with handle_crash(_log, "%s cannot reconcile %s; trying again", controller, name) as crash:
            try:
                await self.reconcile(key)
                self._failures.pop(key, None)
            except KubeError:
                self._queue.add_after(key, RETRY_AFTER)
        if crash.error is not None:
            self._queue.add_after(key, self._backoff(key))


def split_key(key: str) -> tuple[str, str, str, str]:
    """Group, plural, namespace ("" for none), name of a store key."""
    group, plural, *place = key.split("/")
    return group, plural, "/".join(place[:-1]), place[-1]


def controller_user(name: str) -> UserInfo:
    """The service account of a controller of kube-controller-manager."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
    return UserInfo(f"system:serviceaccount:kube-system:{name}", (*groups, "system:masters"))
