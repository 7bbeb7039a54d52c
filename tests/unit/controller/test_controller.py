import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.controller.controller import Backoff, Controller
from windrow.controller.outcomes import SETTLED, Changed, Failed, Refused, Waiting
from windrow.core.rng import Rng
from windrow.core.work_queue import MaxConcurrent
from windrow.kubernetes.errors import TooManyRequests

SETTLED_FOR_A_SECOND = object()


def watch(reconcile, *, add, until_s, **options):
    """Run a controller for `until_s` seconds; the instants, in seconds, at which each key was reconciled."""

    async def story():
        clock = LoopClock()
        start = clock.now()
        seen: list[tuple[str, float]] = []

        async def observed(key):
            seen.append((key, round((clock.now() - start).total_seconds(), 3)))
            return await reconcile(key, clock)

        controller = Controller("test", observed, clock, Rng(1), **options)
        for key in add:
            controller.queue.add(key)
        running = asyncio.create_task(controller.run())
        await clock.sleep_until(start + timedelta(seconds=until_s))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return seen

    return run_driven(story())


def test_a_settled_key_is_not_requeued():
    async def reconcile(key, clock):
        return SETTLED

    assert watch(reconcile, add=["a", "b"], until_s=1000) == [("a", 0.0), ("b", 0.0)]


def test_a_refused_key_is_not_requeued():
    async def reconcile(key, clock):
        return Refused("no such image", "name another")

    assert len(watch(reconcile, add=["a"], until_s=1000)) == 1


def test_a_waiting_key_comes_back_at_its_instant():
    async def reconcile(key, clock):
        return Waiting("dawn", clock.now(), "rise", clock.now() + timedelta(seconds=60))

    assert [at for _, at in watch(reconcile, add=["a"], until_s=150)] == [0.0, 60.0, 120.0]


def test_a_failing_key_waits_longer_each_time_and_does_not_hold_up_the_others():
    async def reconcile(key, clock):
        if key == "bad":
            raise ValueError("broken")
        return SETTLED

    seen = watch(reconcile, add=["bad", "good"], until_s=20)
    waits = [at for key, at in seen if key == "bad"]
    gaps = [later - earlier for earlier, later in pairwise(waits)]

    assert ("good", 0.0) in seen
    assert len(gaps) >= 4
    assert all(1.5 < later / earlier < 2.6 for earlier, later in pairwise(gaps))


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 1), (3, 2), (8, 64), (9, 120), (33, 120), (1000, 120)]
)
def test_back_off_doubles_up_to_its_ceiling_with_a_tenth_of_jitter(failures, seconds):
    delays = [Backoff().delay(failures, Rng(seed)).total_seconds() for seed in range(20)]

    assert all(0.9 * seconds <= delay <= 1.1 * seconds for delay in delays)
    assert len(set(delays)) == 20


def test_back_off_never_overflows():
    assert Backoff(maximum=timedelta(days=10**6)).delay(10**9, Rng(1)) < timedelta(days=10**5)


def test_a_success_ends_the_back_off():
    attempts = iter([ValueError(), ValueError(), ValueError(), None, ValueError(), None])

    async def reconcile(key, clock):
        error = next(attempts, None)
        if error is None:
            return Waiting("dawn", clock.now(), "rise", clock.now() + timedelta(seconds=60))
        return Failed(error)

    instants = [at for _, at in watch(reconcile, add=["a"], until_s=100)]
    gaps = [later - earlier for earlier, later in pairwise(instants)]

    assert gaps[3] == 60
    assert 0.45 <= gaps[0] <= 0.55
    assert 1.8 <= gaps[2] <= 2.2
    assert 0.45 <= gaps[4] <= 0.55


def test_another_outcome_ends_the_count_of_changes():
    outcomes = iter(([Changed()] * 15 + [SETTLED_FOR_A_SECOND]) * 4)

    async def reconcile(key, clock):
        outcome = next(outcomes, SETTLED)
        if outcome is SETTLED_FOR_A_SECOND:
            return Waiting("dawn", clock.now(), "rise", clock.now() + timedelta(seconds=1))
        return outcome

    instants = [at for _, at in watch(reconcile, add=["a"], until_s=10)]

    assert instants == [float(at) for at in range(4) for _ in range(16)] + [4.0]


def test_a_wait_whose_instant_is_past_comes_back_at_once():
    instants = iter([-5, 60])

    async def reconcile(key, clock):
        return Waiting("dawn", clock.now(), "rise", clock.now() + timedelta(seconds=next(instants, 1000)))

    assert [at for _, at in watch(reconcile, add=["a"], until_s=70)] == [0.0, 0.0, 60.0]


def test_a_wait_without_an_instant_comes_back_with_a_change_only():
    async def reconcile(key, clock):
        return Waiting("dawn", clock.now(), "rise")

    assert len(watch(reconcile, add=["a"], until_s=1000)) == 1


def test_a_key_that_got_429_waits_for_retry_after():
    async def reconcile(key, clock):
        return Failed(TooManyRequests("slow down", status=429, details={"retryAfterSeconds": 30}))

    assert [at for _, at in watch(reconcile, add=["a"], until_s=40)] == [0.0, 30.0]


def test_a_key_that_always_changes_is_slowed_down():
    async def reconcile(key, clock):
        return Changed()

    instants = [at for _, at in watch(reconcile, add=["a"], until_s=60)]

    assert instants[:21] == [0.0] * 21  # the first, and twenty that follow at once
    assert 0.45 <= instants[21] <= 0.55
    assert 4 < len(instants[21:]) < 19


def test_one_key_is_never_reconciled_twice_at_once_but_two_keys_are():
    running: list[str] = []
    most: dict[str, int] = {"a": 0, "all": 0}

    async def reconcile(key, clock):
        running.append(key)
        most["a"] = max(most["a"], running.count("a"))
        most["all"] = max(most["all"], len(running))
        await asyncio.sleep(1)
        running.remove(key)
        return Waiting("nothing", clock.now(), "again", until=clock.now())

    watch(reconcile, add=["a", "b", "a"], until_s=5)

    assert most == {"a": 1, "all": 2}


def test_no_more_keys_than_workers_run_at_once():
    running: list[str] = []
    most = [0]

    async def reconcile(key, clock):
        running.append(key)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(1)
        running.remove(key)
        return SETTLED

    seen = watch(reconcile, add=[str(n) for n in range(7)], until_s=10, max_concurrent=MaxConcurrent(2, 2))

    assert (most[0], len(seen)) == (2, 7)


def test_every_outcome_is_reported():
    heard = []

    async def reconcile(key, clock):
        return SETTLED

    watch(reconcile, add=["a"], until_s=1, on_outcome=lambda key, outcome: heard.append((key, outcome)))

    assert heard == [("a", SETTLED)]


def tenant_of(key):
    return key.partition("/")[0]


TENANTS = {"max_concurrent": MaxConcurrent(4, 2, timedelta(seconds=5)), "flow_of": tenant_of}


async def hang_for_tenants_called_evil(key, clock):
    if key.startswith("evil"):
        await clock.sleep_until(clock.now() + timedelta(seconds=90))
    return SETTLED


def test_a_flow_whose_keys_hang_leaves_workers_to_the_others():
    hanging = [f"evil/{n}" for n in range(20)]

    seen = dict(watch(hang_for_tenants_called_evil, add=[*hanging, "good/a"], until_s=1, **TENANTS))

    assert seen == {"evil/0": 0.0, "evil/1": 0.0, "good/a": 0.0}


def test_keys_that_hang_stop_counting_so_that_any_number_of_flows_that_hang_leaves_workers_to_the_others():
    hanging = [f"evil{n}/{m}" for n in range(4) for m in range(3)]

    seen = dict(watch(hang_for_tenants_called_evil, add=[*hanging, "good/a"], until_s=60, **TENANTS))

    assert seen["good/a"] == 5.0
    assert sorted(seen.values()) == [0.0] * 4 + [5.0] * 5 + [10.0] * 4


def test_flows_take_turns():
    keys = [f"many/{n}" for n in range(6)]

    async def reconcile(key, clock):
        await clock.sleep_until(clock.now() + timedelta(seconds=1))
        return SETTLED

    seen = watch(
        reconcile, add=[*keys, "few/a"], until_s=10, max_concurrent=MaxConcurrent(1, 1), flow_of=tenant_of
    )

    assert [key for key, _ in seen] == ["many/0", "few/a", *keys[1:]]


@pytest.mark.parametrize("is_before", [True, False], ids=["then waits", "waits, then"])
@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_wall_clock_that_is_set_during_an_attempt_puts_off_no_wait(jump_s, is_before):
    async def reconcile(key, clock):
        if len(seen) > 1:
            return SETTLED
        if is_before:
            clock.set_wall(timedelta(seconds=jump_s))
        until = clock.now() + timedelta(seconds=60)
        if not is_before:
            clock.set_wall(timedelta(seconds=jump_s))
        return Waiting("dawn", clock.now(), "rise", until)

    seen = []

    async def story():
        clock = LoopClock()

        async def observed(key):
            seen.append(clock.monotonic())
            return await reconcile(key, clock)

        controller = Controller("test", observed, clock, Rng(1))
        controller.queue.add("a")
        running = asyncio.create_task(controller.run())
        await asyncio.sleep(100)
        running.cancel()

    run_driven(story())

    assert len(seen) == 2
    assert seen[1] <= timedelta(seconds=60)
