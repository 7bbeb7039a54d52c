"""What tells open pages that objects which they show have changed: one watch for each user, kind and namespace, whatever
number of pages.

A page is told *that* something has changed, and asks for its content with its own session then; so that what a user may read is
decided anew each time, and a flood of events becomes a few requests. A watch runs while a page listens, and no longer. Where
the API cannot be watched, pages are told why, and the watch is opened again after a back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from windrow.app.access.management import ApiUser
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.rng import Rng
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Expired, KubeError, decode_reply, error_from_status
from windrow.kubernetes.resources import ApiResource

log = logging.getLogger(__name__)

# A page is told of changes so often, and not oftener.
LEAST_INTERVAL, LONGEST_INTERVAL = timedelta(milliseconds=250), timedelta(seconds=30)
# What all open pages may take of a processor while everything changes: of many, or of large ones, each is told more seldom.
SHARE = 0.2
# Of this many pages the cost is averaged.
AVERAGED = 8
FIRST_RETRY, LAST_RETRY = timedelta(seconds=1), timedelta(seconds=30)
MAX_LISTENERS, MAX_LISTENERS_PER_USER = 500, 50

Scope = tuple[ApiResource, str]
"""A kind, and the namespace in which it is watched; "" for all."""


class TooManyPages(Exception):
    """Listening would be one page too many, of the user or of all."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What the page shows may be out of date."""


@dataclass(frozen=True, slots=True)
class Away:
    """The API cannot be watched; `message` says why."""

    message: str


class _Listener:
    """One open page: at most one event waits for it."""

    def __init__(self) -> None:
        self.has_news = asyncio.Event()
        self.away: dict[Scope, str] = {}

    def report(self, scope: Scope, away: str = "") -> None:
        if away:
            self.away[scope] = away
        else:
            self.away.pop(scope, None)
        self.has_news.set()


class _Watch:
    """A watch that runs, and the pages that listen to it."""

    def __init__(self, scope: Scope, user: ApiUser) -> None:
        self.scope, self.user = scope, user
        self.listeners: list[_Listener] = []
        self.away = ""
        self.task: asyncio.Task[None] | None = None

    def report(self, away: str = "") -> None:
        self.away = away
        for listener in self.listeners:
            listener.report(self.scope, away)


class ChangeFeed:
    """The watches of all open pages, until it is left: `async with ChangeFeed(clock, rng) as feed`."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock, self._rng = clock, rng
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[tuple[object, ...], _Watch] = {}
        self._listening: dict[str, int] = {}
        self._cost = timedelta()

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def record_cost(self, took: timedelta) -> None:
        """What making the content of an open page anew has taken."""
        self._cost += (took - self._cost) / AVERAGED

    @property
    def interval(self) -> timedelta:
        """How long a page that was told of a change is told of no other."""
        wanted = self._cost * sum(self._listening.values()) / SHARE
        return min(max(wanted, LEAST_INTERVAL), LONGEST_INTERVAL)

    async def listen(self, user: ApiUser, scopes: Sequence[Scope]) -> AsyncIterator[Changed | Away]:
        """What happens to the objects in `scopes`, as the user may watch them. Raises TooManyPages."""
        with self._counted(user), ExitStack() as stack:
            listener = _Listener()
            for scope in dict.fromkeys(scopes):
                stack.enter_context(self._attached(listener, user, scope))
            while True:
                await listener.has_news.wait()
                listener.has_news.clear()
                yield Away(next(iter(listener.away.values()))) if listener.away else Changed()
                await sleep(self._clock, self.interval)

    @contextmanager
    def _counted(self, user: ApiUser) -> Iterator[None]:
        mine = self._listening.get(user.name, 0)
        if mine >= MAX_LISTENERS_PER_USER or sum(self._listening.values()) >= MAX_LISTENERS:
            raise TooManyPages(f"{mine} pages of {user.name} are open; close some")
        self._listening[user.name] = mine + 1
        try:
            yield
        finally:
            self._listening[user.name] -= 1
            if not self._listening[user.name]:
                del self._listening[user.name]

    @contextmanager
    def _attached(self, listener: _Listener, user: ApiUser, scope: Scope) -> Iterator[None]:
        # Of the same name and groups is the same user: whether a watch may be shared, RBAC decides by nothing else.
        key = (user.name, user.groups, scope)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(scope, user)
            watch.task = asyncio.create_task(self._run(watch))
            self._tasks.add(watch.task)
            watch.task.add_done_callback(self._tasks.discard)
        watch.listeners.append(listener)
        if watch.away:
            listener.report(scope, watch.away)
        try:
            yield
        finally:
            watch.listeners.remove(listener)
            if not watch.listeners:
                del self._watches[key]
                assert watch.task is not None
                watch.task.cancel()

    async def _run(self, watch: _Watch) -> None:
        """Watch until cancelled; what fails is reported, and tried again."""
        wait = FIRST_RETRY
        while True:
            # A defect here takes no page away, and no manager: it is logged, and the watch opened again.
            with handle_crash(
                log, "the watch of %s for the dashboard failed", watch.scope[0].plural
            ) as crash:
                if await self._is_watched(watch):
                    wait = FIRST_RETRY
            if crash.error is not None:
                watch.report("the watch failed; the log of windrow serve says why")
            # Neither is a server that ends each watch at once asked without a pause.
            await sleep(self._clock, wait * self._rng.uniform(0.8, 1.2))
            wait = min(wait * 2, LAST_RETRY)

    async def _is_watched(self, watch: _Watch) -> bool:
        """Watch until the server ends that; False where it refuses, which is reported."""
        try:
            await self._watch_once(watch)
        except Expired:
            watch.report()
        except KubeError as error:
            watch.report(error.message or str(error))
            return False
        return True

    async def _watch_once(self, watch: _Watch) -> None:
        kind, namespace = watch.scope
        transport = watch.user.transport
        first = decode_reply(await transport.send(requests.list_(kind, namespace, limit=1)))
        version = str((first.get("metadata") or {}).get("resourceVersion") or "")
        async with transport.stream(requests.watch(kind, namespace, version=version)) as events:
            if watch.away:
                watch.report()  # it may have changed meanwhile
            async for event in events:
                if event.type == "ERROR":
                    raise error_from_status(event.object)
                # Its object is not looked at, so that it is not decoded either.
                if event.type != "BOOKMARK":
                    watch.report()
