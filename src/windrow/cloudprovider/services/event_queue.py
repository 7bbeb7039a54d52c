"""Events, one after the other, behind the work: no address waits for the writing of news."""

from __future__ import annotations

import asyncio
from collections import deque

from windrow.client.events import EventNote, EventRecorder

# More than anybody reads. The oldest go first.
MAX_EVENTS = 10_000


class EventQueue:
    """Passes events on to `recorder` in their order, as fast as that writes them. `run` is its owner's task.

    What is not written when it ends is lost, as events may be.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._waiting: deque[EventNote] = deque(maxlen=MAX_EVENTS)
        self._added = asyncio.Event()

    def put(self, told: EventNote) -> None:
        self._waiting.append(told)
        self._added.set()

    async def run(self) -> None:
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                await self._recorder.write(self._waiting.popleft())
