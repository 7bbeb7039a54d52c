"""Fault injection: which request gets which fault, and how often."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.random_faults import random_faults
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.informer import Informer
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.delays import ScaledClock
from windrow.emulator.faults import (
    CONFLICT,
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    WRITES,
    AgentFault,
    Fault,
    FaultInjector,
    Faults,
    Slow,
    StallWatch,
    denied,
    parse_request,
    render_refusal,
)
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    AdmissionDenied,
    Conflict,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    error_for,
)
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE

VM = kinds.VM.ref("m-1", "ns")


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (requests.get(VM), ("get", "virtualmachines", "ns", "m-1")),
        (requests.list_(kinds.VM), ("list", "virtualmachines", "", "")),
        (requests.list_(NODE), ("list", "nodes", "", "")),
        (requests.watch(kinds.VM, "ns"), ("watch", "virtualmachines", "ns", "")),
        (
            requests.create(kinds.VM, {"metadata": {"name": "x"}}, "ns"),
            ("create", "virtualmachines", "ns", ""),
        ),
        (
            requests.put_subresource(kinds.VM_SUBRESOURCES.ref("m-1", "ns"), "start"),
            ("update", "virtualmachines", "ns", "m-1"),
        ),
        (requests.merge_patch(VM, {}), ("patch", "virtualmachines", "ns", "m-1")),
        (requests.delete(VM), ("delete", "virtualmachines", "ns", "m-1")),
        (requests.Request("GET", "/version"), ("list", "", "", "")),
    ],
)
def test_requests_are_understood(request_, wanted):
    assert wanted == parse_request(request_)


def test_a_fault_of_writes_strikes_a_delete_of_a_whole_collection():
    request = requests.Request("DELETE", "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines")

    assert Faults([Fault(INTERNAL_ERROR, WRITES)]).draw(request, Rng(0)) == [INTERNAL_ERROR]


def injections(faults, request_, times=1):
    return [faults.draw(request_, Rng(0)) for _ in range(times)]


def test_a_fault_strikes_what_it_names_and_nothing_else():
    faults = Faults([Fault(INTERNAL_ERROR, frozenset({"get"}), frozenset({"virtualmachines"}), name="m-*")])

    assert injections(faults, requests.get(VM)) == [[INTERNAL_ERROR]]
    assert injections(faults, requests.get(kinds.VM.ref("other", "ns"))) == [[]]
    assert injections(faults, requests.delete(VM)) == [[]]


def test_every_third_and_at_most_twice():
    fault = Fault(CONFLICT, every=3, times=2)
    faults = Faults([fault])

    assert [len(effects) for effects in injections(faults, requests.get(VM), 9)] == [
        0,
        0,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
    ]
    assert faults.times_injected(fault) == 2


def test_equal_faults_are_counted_apart():
    first, second = Fault(Slow(1)), Fault(Slow(1), times=1)
    faults = Faults([first, second])

    injections(faults, requests.get(VM), 3)

    assert (faults.times_injected(first), faults.times_injected(second)) == (3, 1)


def test_an_ended_fault_strikes_no_more():
    faults = Faults()
    fault = faults.add(Fault(INTERNAL_ERROR))
    faults.end(fault)

    assert injections(faults, requests.get(VM)) == [[]]


@given(some.floats(0.0, 1.0))
def test_odds_are_kept(odds):
    faults, rng = Faults([Fault(INTERNAL_ERROR, probability=odds)]), Rng(5)
    hits = sum(bool(faults.draw(requests.get(VM), rng)) for _ in range(400))

    assert abs(hits / 400 - odds) < 0.12


def test_one_seed_one_script():
    def drawn(seed):
        faults, rng = random_faults(Rng(seed)), Rng(seed)
        return [faults.draw(requests.get(VM), rng) for _ in range(200)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize(
    ("refusal", "wanted"),
    [
        (CONFLICT, Conflict),
        (TOO_MANY_REQUESTS, TooManyRequests),
        (INTERNAL_ERROR, ServerError),
        (denied("no"), AdmissionDenied),
    ],
)
def test_refusals_read_as_what_they_are(refusal, wanted):
    assert isinstance(error_for(render_refusal(refusal)), wanted)


def test_a_429_has_retry_after():
    assert error_for(render_refusal(TOO_MANY_REQUESTS)).retry_after_s == 1


def test_the_last_agent_fault_that_matches_counts():
    faults = Faults(agents=[AgentFault(), AgentFault("ns/m-1", "late", 5)])

    assert faults.agent_of("ns/m-1").kind == "late"
    assert faults.agent_of("ns/m-2").kind == "absent"
    assert Faults().agent_of("ns/m-1") is None


# -- watches that are open ---------------------------------------------------------------------------------------------


def run_with_watches(story):
    """Run `story(faults, injector, client)` on a driven clock, with an API server behind the injector."""

    async def whole():
        clock = LoopClock()
        api = ApiServer(MemoryStore(), clock, Rng(1), anonymous=True)
        faults = Faults()
        await api.prepare()
        await story(faults, FaultInjector(api, faults, ScaledClock(clock, 1.0), Rng(2)), api.local())

    run_driven(whole())


async def names_of_watch(injector, seen):
    """Add the name of each object to `seen` until the watch ends."""
    async with injector.stream(requests.watch(NODE, version="0"), Peer()) as events:
        async for event in events:
            seen.append(event.object["metadata"]["name"])


async def create_node(client, name):
    await client.create(NODE, new_object(NODE, name))
    await asyncio.sleep(1)


def test_an_open_watch_can_be_cut():
    async def story(faults, injector, client):
        seen = []
        watching = asyncio.create_task(names_of_watch(injector, seen))
        await create_node(client, "a")

        assert faults.cut_watches() == 1
        await asyncio.wait({watching})

        assert isinstance(watching.exception(), OutcomeUnknown)
        assert seen == ["a"]
        assert not faults.watches

    run_with_watches(story)


def test_a_watch_that_is_being_cut_can_be_cut_again():
    async def story(faults, injector, client):
        watching = asyncio.create_task(names_of_watch(injector, []))
        await create_node(client, "a")

        for _ in range(3):
            assert faults.cut_watches() <= 1
            await asyncio.sleep(0)
        await asyncio.wait({watching})

        assert isinstance(watching.exception(), OutcomeUnknown)

    run_with_watches(story)


def test_an_open_watch_can_be_stalled_and_a_new_one_works():
    async def story(faults, injector, client):
        old, new = [], []
        watches = [asyncio.create_task(names_of_watch(injector, old))]
        await create_node(client, "a")

        assert faults.stall_watches() == 1
        watches.append(asyncio.create_task(names_of_watch(injector, new)))
        await create_node(client, "b")
        await asyncio.sleep(24 * 3600)

        assert old == ["a"]
        assert new == ["a", "b"]
        assert [watch.done() for watch in watches] == [False, True]
        watches[0].cancel()

    run_with_watches(story)


def test_a_watch_can_be_stalled_from_its_first_event_on():
    async def story(faults, injector, client):
        faults.add(Fault(StallWatch(1), frozenset({"watch"})))
        seen = []
        watching = asyncio.create_task(names_of_watch(injector, seen))
        for name in ("a", "b"):
            await create_node(client, name)

        assert seen == ["a"]
        assert not watching.done()
        watching.cancel()

    run_with_watches(story)


def test_an_informer_behind_a_stalled_watch_reads_on_within_two_minutes():
    async def story(faults, injector, client):
        class Direct:
            """The transport of an anonymous client."""

            async def send(self, request):
                return await injector.send(request, Peer())

            def stream(self, request):
                return injector.stream(request, Peer())

        informer = Informer(Direct(), NODE, "", lambda raw: raw["metadata"]["name"], LoopClock(), Rng(3))
        running = asyncio.create_task(informer.run())
        await informer.wait_for_sync()
        await create_node(client, "a")
        faults.stall_watches()
        await create_node(client, "b")
        assert set(informer.values()) == {"a"}

        await asyncio.sleep(120)

        assert set(informer.values()) == {"a", "b"}
        running.cancel()

    run_with_watches(story)
