import asyncio

from tests.support.clock import LoopClock, run_driven

from windrow.client.middleware.rate_limit import RateLimitedTransport, SeparateEventBudget
from windrow.kubernetes import requests
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import EVENT, NODE

READ = requests.get(NODE.ref("a"))


class Stopwatch:
    def __init__(self, clock):
        self.clock = clock
        self.start = clock.now()
        self.times = []

    async def send(self, request):
        self.times.append(round((self.clock.now() - self.start).total_seconds(), 3))
        return Reply(200)


def test_a_burst_passes_and_the_rest_keeps_to_the_rate():
    async def story():
        clock = LoopClock()
        inner = Stopwatch(clock)
        limited = RateLimitedTransport(inner, clock, per_second=2, burst=3)
        await asyncio.gather(*[limited.send(READ) for _ in range(6)])
        return inner.times

    assert run_driven(story()) == [0, 0, 0, 0.5, 1.0, 1.5]


def test_after_a_pause_the_burst_is_available_again_and_not_more():
    async def story():
        clock = LoopClock()
        inner = Stopwatch(clock)
        limited = RateLimitedTransport(inner, clock, per_second=2, burst=2)
        await asyncio.gather(*[limited.send(READ) for _ in range(2)])
        await asyncio.sleep(100)
        await asyncio.gather(*[limited.send(READ) for _ in range(3)])
        return inner.times

    assert run_driven(story()) == [0, 0, 100, 100, 100.5]


def test_events_wait_for_other_events_only():
    async def story():
        clock = LoopClock()
        work, events = Stopwatch(clock), Stopwatch(clock)
        apart = SeparateEventBudget(
            RateLimitedTransport(work, clock, per_second=1, burst=1),
            RateLimitedTransport(events, clock, per_second=1, burst=1),
        )
        telling = requests.create(EVENT, {"metadata": {"namespace": "default", "name": "events"}})
        await asyncio.gather(*[apart.send(telling) for _ in range(3)], apart.send(READ))
        return work.times, events.times

    assert run_driven(story()) == ([0], [0, 1, 2])


def test_a_cancelled_request_does_not_count():
    async def story():
        clock = LoopClock()
        inner = Stopwatch(clock)
        limited = RateLimitedTransport(inner, clock, per_second=1, burst=1)
        impatient = [asyncio.create_task(limited.send(READ)) for _ in range(1000)]
        await asyncio.sleep(2.5)
        patient = asyncio.create_task(limited.send(READ))
        await asyncio.sleep(0)
        for task in impatient:
            task.cancel()
        await patient
        return inner.times

    assert run_driven(story()) == [0, 1, 2, 3]


def test_cancelled_requests_do_not_raise_the_rate():
    async def story():
        clock = LoopClock()
        inner = Stopwatch(clock)
        limited = RateLimitedTransport(inner, clock, per_second=1, burst=1)
        first = [asyncio.create_task(limited.send(READ)) for _ in range(10)]
        await asyncio.sleep(0.5)
        for task in first[1:6]:
            task.cancel()
        later = [asyncio.create_task(limited.send(READ)) for _ in range(5)]
        await asyncio.gather(*first[6:], *later)
        return inner.times

    assert run_driven(story()) == list(range(10))
