"""Requests to servers that may take longer than a reconcile should, such as one for an etcd snapshot, which is copied to S3 first.

They go on beside the reconciles of their cluster. That one was begun is recorded before; what became of it is recorded by
itself, and observed by the next reconcile. A restart of the manager loses them, as it loses an answer: the next request looks first
for what was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from windrow.clusters.context import StalePlan
from windrow.core.errors import UserError
from windrow.kubernetes.errors import KubeError

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


class LongRequests:
    """One of a name at a time for each cluster. `run` is its owner's task: without it nothing is begun, and its end cancels them."""

    def __init__(self, under_way: dict[str, set[str]], finished: Callable[[str], None]) -> None:
        """`under_way` holds the names by the uid of their cluster; `finished` is called with that, once a name is out of it."""
        self._under_way, self._finished = under_way, finished
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Carry requests out until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._under_way.clear()

    def begin(self, uid: str, name: str, work: Work) -> None:
        """Begin `work`, which records what became of it; nothing where one of the name is under way. Raises StalePlan where the manager
        ends."""
        if self._group is None:
            raise StalePlan
        names = self._under_way.setdefault(uid, set())
        if name in names:
            return
        names.add(name)
        task = self._group.create_task(self._execute(uid, name, work), name=f"{name} of cluster {uid}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, uid: str, name: str, work: Work) -> None:
        try:
            await work()
        except StalePlan:
            pass  # the next reconcile plans again
        except (KubeError, UserError) as error:
            log.warning("%s of cluster %s: %s", name, uid, error)
        except Exception:
            log.exception("%s of cluster %s", name, uid)
        finally:
            names = self._under_way.get(uid, set())
            names.discard(name)
            if not names:
                self._under_way.pop(uid, None)
        self._finished(uid)

    async def wait(self) -> None:
        """Return once those that are under way now are over."""
        await asyncio.gather(*self._tasks)
