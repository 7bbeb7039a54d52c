"""What the requests of one user may hold at once, so that those of others are answered.

kube-apiserver's API Priority and Fairness has the same purpose and the same exemption: group system:masters. All
ServiceAccounts of a namespace are one flow, since who may create one there may create more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from windrow.apiserver.apierrors import status_error
from windrow.apiserver.request.info import UserInfo
from windrow.kubernetes.requests import Reply

MAX_WATCHES = 250
# Lists, and the initial events of watches: each may be as large as all that the user may read.
MAX_LISTS = 4

_SERVICE_ACCOUNTS = "system:serviceaccounts:"


class FlowControl:
    """The open watches and the lists under way of each user."""

    def __init__(self) -> None:
        self._watches: Counter[str] = Counter()
        self._lists: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    @contextmanager
    def watching(self, user: UserInfo) -> Iterator[None]:
        """One more watch of the user. Raises TooManyRequests for the first that is too many."""
        flow = _flow_of(user)
        if flow and self._watches[flow] >= MAX_WATCHES:
            raise status_error(
                429,
                f"{flow} has {MAX_WATCHES} watches open, the most that one user may have; close some",
                details={"retryAfterSeconds": 1},
            )
        self._watches[flow] += 1
        try:
            yield
        finally:
            self._watches[flow] -= 1
            if not self._watches[flow]:
                del self._watches[flow]

    @asynccontextmanager
    async def listing(self, user: UserInfo) -> AsyncIterator[None]:
        """A list of the user is read and sent; waits while others of the same user are."""
        if not (flow := _flow_of(user)):
            yield
            return
        async with self._semaphore(flow):
            yield

    async def list_reply(self, user: UserInfo, answer: Callable[[], Awaitable[Reply]]) -> Reply:
        """The answer to a list, which counts for as long as the reply exists: until it is sent or given up."""
        if not (flow := _flow_of(user)):
            return await answer()
        semaphore = self._semaphore(flow)
        await semaphore.acquire()
        try:
            reply = await answer()
        except BaseException:
            semaphore.release()
            raise
        weakref.finalize(reply, semaphore.release).atexit = False
        return reply

    def _semaphore(self, flow: str) -> asyncio.Semaphore:
        found = self._lists.get(flow)
        if found is None:
            found = self._lists[flow] = asyncio.Semaphore(MAX_LISTS)
        return found


def _flow_of(user: UserInfo) -> str:
    """Who the request counts for; "" for who is exempt."""
    if user.is_superuser:
        return ""
    of_namespace = (group for group in user.groups if group.startswith(_SERVICE_ACCOUNTS))
    return next(of_namespace, user.username)
