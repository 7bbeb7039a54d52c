"""Waiting until the objects of one kind satisfy a predicate, on an informer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from windrow.client.informer import Informer, make_watcher, watching
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

T = TypeVar("T")
Objects = Mapping[tuple[str, str], Raw]  # (namespace, name) -> object


class WaitTimedOut(Exception):
    """No object satisfied the predicate in time; `last` are the objects at the end."""

    def __init__(self, what: str, within: timedelta, last: Objects) -> None:
        super().__init__(f"waited {within.total_seconds():.0f} s for {what}")
        self.what, self.last = what, last


def objects_of(informer: Informer[Raw]) -> Objects:
    return {(ref.namespace, ref.name): raw for ref, raw in informer.items()}


async def wait_for(
    transport: Transport,
    kind: ApiResource,
    predicate: Callable[[Objects], T | None],
    *,
    what: str,
    clock: Clock,
    namespace: str = "",
    within: timedelta = timedelta(minutes=5),
) -> T:
    """The first true result of `predicate`, called after every change of `kind`. Raises WaitTimedOut.

    A server that is away, and watches that end, are retried until then.
    """
    informer = make_watcher(transport, kind, dict, clock, namespace)
    try:
        async with asyncio.timeout(within.total_seconds()), watching(informer) as changed:
            while True:
                changed.clear()
                if informer.has_synced and (found := predicate(objects_of(informer))):
                    return found
                await changed.wait()
    except TimeoutError:
        raise WaitTimedOut(what, within, objects_of(informer)) from None
