"""The asyncio runner of node driver operations that do not wait: each effect goes out through a transport.

An operation with `WaitFor` (a `WaitingOperation`) has no runner here: the cluster controller does not wait for a VM, it
observes it. Only the plugin does, whose caller expects `Create` to return with an address (`nodedriver.blocking_runner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from windrow.client.transport import Transport
from windrow.kubernetes.answers.replies import decode_answer
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Request
from windrow.nodedriver.effects import Call, Effect, Gather, Log, Operation

R = TypeVar("R")


async def run_operation(
    operation: Operation[R], transport: Transport, log_line: Callable[[str], None] = lambda text: None
) -> R:
    """The operation's result; its exceptions come through."""
    try:
        effect = next(operation)
        while True:
            try:
                result = await _execute(effect, transport, log_line)
            except KubeError as error:
                effect = operation.throw(error)
            else:
                effect = operation.send(result)
    except StopIteration as end:
        operation_result: R = end.value
        return operation_result


async def _execute(effect: Effect, transport: Transport, log_line: Callable[[str], None]) -> Any:
    async def reply_or_error(request: Request) -> Any:
        try:
            return decode_answer(request, await transport.send(request))
        except KubeError as error:
            return error

    match effect:
        case Call(request=request):
            return decode_answer(request, await transport.send(request))
        case Gather(requests=requests):
            return tuple(await asyncio.gather(*map(reply_or_error, requests)))
        case Log(text=text):
            return log_line(text)
        case _:
            assert_never(effect)
