"""Runs a talk on an event loop: calls go out through a transport, waiting happens on shared caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from windrow.client.informer import Cache
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import ApiResource
from windrow.nodedriver.effects import (
    Call,
    Effect,
    Gather,
    Log,
    NotYet,
    Objects,
    Operation,
    WaitFor,
    WaitTimeout,
    parse_reply,
)

R = TypeVar("R")


async def run_operation(
    operation: Operation[R],
    transport: Transport,
    caches: Mapping[ApiResource, Cache[Any]],
    clock: Clock,
    log_line: Callable[[str], None] = lambda text: None,
) -> R:
    """The talk's result; its exceptions come through. `caches` are keyed by Ref and cover what the talk waits for."""
    runner = _Runner(transport, caches, clock, log_line)
    try:
        effect = next(operation)
        while True:
            try:
                result = await runner.execute(effect)
            except (KubeError, WaitTimeout) as error:
                effect = operation.throw(error)
            else:
                effect = operation.send(result)
    except StopIteration as end:
        operation_result: R = end.value
        return operation_result


class _Runner:
    def __init__(
        self,
        transport: Transport,
        caches: Mapping[ApiResource, Cache[Any]],
        clock: Clock,
        log_line: Callable[[str], None],
    ) -> None:
        self._transport, self._caches, self._clock, self._log_line = transport, caches, clock, log_line

    async def execute(self, effect: Effect) -> Any:
        match effect:
            case Call(request=request):
                return parse_reply(await self._transport.send(request))
            case Gather(requests=asked):
                return tuple(await asyncio.gather(*(self._answer_or_error(request) for request in asked)))
            case WaitFor():
                return await self._wait(effect)
            case Log(text=text):
                return self._log_line(text)

    async def _answer_or_error(self, request: Request) -> Any:
        try:
            return parse_reply(await self._transport.send(request))
        except KubeError as error:
            return error

    async def _wait(self, until: WaitFor[Any]) -> Any:
        news = asyncio.Event()
        last = NotYet("nothing yet")
        deadline = self._clock.now() + until.within
        for kind in {ref.kind for ref in until.refs}:
            await self._caches[kind].wait_for_sync()
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._ring(kind, news)) for kind in {ref.kind for ref in until.refs}]
            helpers.append(group.create_task(self._ring_at(deadline, news)))
            try:
                while True:
                    news.clear()
                    verdict = until.predicate(self._look(until))
                    if not isinstance(verdict, NotYet):
                        return verdict
                    last = verdict
                    if self._clock.now() >= deadline:
                        break
                    await news.wait()
            finally:
                for helper in helpers:
                    helper.cancel()
        raise WaitTimeout(until.because, last.reason, until.within, last.stage)

    def _look(self, until: WaitFor[Any]) -> Objects:
        return {ref: self._caches[ref.kind].get(ref) for ref in until.refs}

    async def _ring(self, kind: ApiResource, news: asyncio.Event) -> None:
        async for _ in self._caches[kind].changes():
            news.set()

    async def _ring_at(self, deadline: Any, news: asyncio.Event) -> None:
        await self._clock.sleep_until(deadline)
        news.set()
