"""What the requests of one user may hold at once, so that those of others are answered.

kube-apiserver's API Priority and Fairness has the same purpose and the same exemption: group system:masters. All
ServiceAccounts of a namespace are one flow, since who may create one there may create more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

from windrow.apiserver.apierrors import status_error
from windrow.apiserver.request.info import UserInfo
from windrow.kubernetes.requests import Reply

# Three flows together leave room on a port of 1000 connections.
MAX_WATCHES = 200
# Other requests, also those that wait for their turn, until their answers are sent.
MAX_REQUESTS = 100
# Lists, and the initial events of watches: each may be as large as all that the user may read.
MAX_LISTS = 4
# Answers that hold memory of their own until they are read (tables, YAML), from this size on: so many bytes of one user, and
# of all together. Who holds none may have one, of whatever size, so that what others do not read refuses no other user.
LARGE_BYTES = 256 * 1024
MAX_USER_BYTES = 64 * 2**20
MAX_BYTES = 256 * 2**20
LARGE_RETRY_S = 10

_SERVICE_ACCOUNTS = "system:serviceaccounts:"


class FlowControl:
    """The open watches, and the requests under way, of each user."""

    def __init__(self) -> None:
        self._watches: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._held_bytes: Counter[str] = Counter()  # of large answers; also of who is exempt
        self._lists: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    @contextmanager
    def watching(self, user: UserInfo) -> Iterator[None]:
        """One more watch of the user. Raises TooManyRequests for the first that is too many."""
        flow = _flow_of(user)
        _count(self._watches, flow, MAX_WATCHES, "watches open")
        try:
            yield
        finally:
            _discount(self._watches, flow)

    @asynccontextmanager
    async def listing(self, user: UserInfo) -> AsyncIterator[None]:
        """A list of the user is read and sent; waits while others of the same user are."""
        if not (flow := _flow_of(user)):
            yield
            return
        async with self._semaphore(flow):
            yield

    async def reply(self, user: UserInfo, answer: Callable[[], Awaitable[Reply]], *, is_list: bool) -> Reply:
        """The answer, which counts for as long as the reply exists: until it is sent or given up. A list waits for its turn.

        Raises TooManyRequests for the first that is too many.
        """
        flow = _flow_of(user)
        with ExitStack() as stack:
            if flow:
                _count(self._requests, flow, MAX_REQUESTS, "requests under way")
                stack.callback(_discount, self._requests, flow)
            if flow and is_list:
                semaphore = self._semaphore(flow)
                await semaphore.acquire()
                stack.callback(semaphore.release)
            reply = await answer()
            is_plain = type(reply) is Reply
            if is_plain and len(reply.body) > LARGE_BYTES:
                stack.enter_context(self._holding(user, flow, len(reply.body)))
            elif not flow:
                return reply
            if is_plain:
                reply = replace(reply)  # a constant one never ends
            weakref.finalize(reply, stack.pop_all().close).atexit = False
        return reply

    @contextmanager
    def _holding(self, user: UserInfo, flow: str, size: int) -> Iterator[None]:
        """A large answer of the user is read. Raises TooManyRequests where there are too many."""
        name = flow or user.username
        held, of_all = self._held_bytes[name], self._held_bytes.total()
        if held and (of_all + size > MAX_BYTES or (flow and held + size > MAX_USER_BYTES)):
            raise status_error(
                429,
                f"{name} reads {held // 2**20} MiB of large answers already; read them, ask for fewer objects at once with limit, "
                "or try again later",
                details={"retryAfterSeconds": LARGE_RETRY_S},
            )
        self._held_bytes[name] += size
        try:
            yield
        finally:
            _discount(self._held_bytes, name, size)

    def _semaphore(self, flow: str) -> asyncio.Semaphore:
        found = self._lists.get(flow)
        if found is None:
            found = self._lists[flow] = asyncio.Semaphore(MAX_LISTS)
        return found


def _count(counts: Counter[str], flow: str, most: int, what: str) -> None:
    if flow and counts[flow] >= most:
        raise status_error(
            429,
            f"{flow} has {most} {what}, the most that one user may have; end some, or try again later",
            details={"retryAfterSeconds": 1},
        )
    counts[flow] += 1


def _discount(counts: Counter[str], flow: str, by: int = 1) -> None:
    counts[flow] -= by
    if not counts[flow]:
        del counts[flow]


def _flow_of(user: UserInfo) -> str:
    """Who the request counts for; "" for who is exempt."""
    if user.is_superuser:
        return ""
    of_namespace = (group for group in user.groups if group.startswith(_SERVICE_ACCOUNTS))
    return next(of_namespace, user.username)
