import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.informer import Informer, watching
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.errors import (
    Expired,
    Forbidden,
    InvalidReply,
    OutcomeUnknown,
    ServerError,
    Unreachable,
)
from windrow.kubernetes.requests import Reply, WatchEvent
from windrow.kubernetes.resources import CONFIG_MAP, SECRET


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    value: str


def read(raw):
    return Value(raw["metadata"]["name"], raw["data"]["value"])


def ref(name):
    return CONFIG_MAP.ref(name, "default")


class Server:
    """ConfigMaps with a history that can be forgotten, and watches that can be ended or broken."""

    def __init__(self) -> None:
        self.version = 10
        self.objects = {}
        self.history = []
        self.oldest = 0
        self.down = None
        self.unanswered = False  # watches are accepted and not answered
        self.answer = None
        self.requests = []
        self.watching = 0
        self._changed = asyncio.Event()
        self._endings = []

    def put(self, name, value, **rest):
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        metadata = {"name": name, "namespace": "default", "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": metadata, "data": {"value": value, **rest}}
        self.record(kind, self.objects[name])

    def drop(self, name):
        self.version += 1
        raw = self.objects.pop(name)
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
        self.record("DELETED", raw)

    def bookmark(self):
        self.version += 1
        self.record("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def forget(self):
        self.oldest = self.version

    def end_watches(self, error=None):
        endings, self._endings = self._endings, []
        for ending in endings:
            ending.append(error)
        self._wake()

    def stall_watches(self):
        """Those that are open carry nothing any more."""
        self._endings, stalled = [], self._endings
        for ending in stalled:
            ending.append("stalled")
        self._wake()

    def go_down(self, error=None):
        self.down = error or Unreachable("connection refused")
        self.end_watches(OutcomeUnknown("connection lost"))

    def record(self, kind, raw):
        self.history.append((self.version, WatchEvent(kind, raw)))
        self._wake()

    def _wake(self):
        self._changed.set()
        self._changed = asyncio.Event()

    async def send(self, request):
        self.requests.append(request)
        if self.down:
            raise self.down
        if self.answer:
            return self.answer
        limit = int(request.query_parameter("limit") or 0) or len(self.objects) + 1
        names = sorted(self.objects)
        start = int(request.query_parameter("continue") or 0)
        page = [self.objects[name] for name in names[start : start + limit]]
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(names):
            metadata["continue"] = str(start + limit)
        return Reply(200, dumps({"metadata": metadata, "items": page}))

    @asynccontextmanager
    async def stream(self, request):
        self.requests.append(request)
        if self.down:
            raise self.down
        version = int(request.query_parameter("resourceVersion"))
        ending = []
        self._endings.append(ending)
        if self.unanswered:
            await asyncio.Event().wait()
        self.watching += 1
        try:
            yield self._events(version, ending)
        finally:
            self.watching -= 1

    async def _events(self, version, ending):
        if version < self.oldest:
            yield WatchEvent(
                "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            )
            return
        while not ending:
            for at, event in list(self.history):
                if at > version:
                    version = at
                    yield event
            if not ending:
                await self._changed.wait()
        if ending[0] == "stalled":
            await asyncio.Event().wait()
        if ending[0]:
            raise ending[0]

    async def aclose(self):
        pass


def run_with(story):
    """Run `story(server, informer)` while the informer runs."""

    async def whole():
        server = Server()
        informer = Informer(server, CONFIG_MAP, "default", read, LoopClock(), Rng(1))
        running = asyncio.create_task(informer.run())
        try:
            return await story(server, informer)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    return run_driven(whole())


async def settle():
    """Let every task run that needs no time."""
    await asyncio.sleep(0.001)


async def next_of(changes):
    async with asyncio.timeout(3600):
        return await anext(changes)


def test_the_first_list_is_read_page_by_page_before_it_counts_as_synced():
    async def story(server, informer):
        for number in range(1201):
            server.put(f"m{number}", "x")
        assert not informer.is_watching
        await informer.wait_for_sync()
        pages = [request for request in server.requests if not request.query_parameter("watch")]
        return informer.is_watching, len(informer.values()), len(pages)

    assert run_with(story) == (True, 1201, 3)


def test_lists_and_watches_carry_the_selectors():
    async def whole():
        server = Server()
        informer = Informer(
            server, CONFIG_MAP, "default", read, LoopClock(), Rng(1), labels="a=b", fields="metadata.name=m1"
        )
        running = asyncio.create_task(informer.run())
        await informer.wait_for_sync()
        await settle()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return server.requests

    requests = run_driven(whole())

    assert {request.query_parameter("watch") for request in requests} == {None, "true"}
    selectors = [[one.query_parameter(f"{kind}Selector") for kind in ("label", "field")] for one in requests]
    assert selectors == [["a=b", "metadata.name=m1"]] * len(requests)


def test_events_keep_it_current():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        server.put("b", "1")
        server.put("a", "2")
        await settle()
        before = (informer.get(ref("a")), informer.get(ref("b")))
        server.drop("a")
        await settle()
        return before, informer.get(ref("a"))

    assert run_with(story) == ((Value("a", "2"), Value("b", "1")), None)


def test_a_broken_watch_goes_on_from_the_last_version_without_a_list():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await settle()
        server.end_watches(OutcomeUnknown("connection lost"))
        server.put("a", "2")
        await settle()
        unsynced = informer.is_watching
        await asyncio.sleep(5)
        lists = [request for request in server.requests if not request.query_parameter("watch")]
        return unsynced, informer.is_watching, informer.get(ref("a")), len(lists)

    assert run_with(story) == (False, True, Value("a", "2"), 1)


def test_a_watch_that_the_server_ends_is_followed_by_the_next_at_once():
    async def story(server, informer):
        await informer.wait_for_sync()
        await asyncio.sleep(5)
        server.end_watches()
        await settle()
        return informer.is_watching, server.watching

    assert run_with(story) == (True, 1)


def test_bookmarks_move_the_version_from_which_it_goes_on():
    async def story(server, informer):
        await informer.wait_for_sync()
        await settle()
        server.bookmark()
        await settle()
        server.forget()
        server.end_watches(OutcomeUnknown("connection lost"))
        await asyncio.sleep(5)
        return [request.query_parameter("resourceVersion") for request in server.requests]

    assert run_with(story) == [None, "10", "11"]


def test_a_silent_watch_is_opened_anew_and_what_it_withheld_is_read():
    async def story(server, informer):
        await informer.wait_for_sync()
        await settle()
        server.stall_watches()
        server.put("a", "1")
        await asyncio.sleep(99)
        assert informer.get(ref("a")) is None

        await asyncio.sleep(2)

        assert informer.get(ref("a")) == Value("a", "1")
        assert informer.is_watching
        assert informer.error is None
        assert server.watching == 1

    run_with(story)


def test_a_watch_with_bookmarks_stays_open():
    async def story(server, informer):
        await informer.wait_for_sync()
        for _ in range(5):
            await asyncio.sleep(75)
            server.bookmark()
        await settle()

        assert len(server.requests) == 2  # a list and a watch

    run_with(story)


def test_a_watch_that_is_not_answered_is_an_error_and_tried_again():
    async def story(server, informer):
        server.unanswered = True
        await informer.wait_for_sync()
        await asyncio.sleep(101)
        assert not informer.is_watching
        assert "was not answered within 100 s" in str(informer.error)

        server.unanswered = False
        await asyncio.sleep(105)

        assert informer.is_watching

    run_with(story)


def test_an_object_deleted_while_no_watch_was_open_is_a_deletion():
    async def story(server, informer):
        server.put("a", "1")
        server.put("b", "1")
        await informer.wait_for_sync()
        changes = informer.changes()
        await next_of(changes)
        await next_of(changes)
        server.go_down()
        server.drop("a")
        server.forget()
        server.down = None
        return await next_of(changes), informer.get(ref("a"))

    assert run_with(story) == ((Value("a", "1"), None), None)


def test_while_the_server_is_away_the_last_objects_are_kept_and_it_is_not_watching():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await settle()
        server.go_down()
        await asyncio.sleep(600)
        away = (informer.is_watching, informer.get(ref("a")), str(informer.error))
        tries = len(server.requests)
        server.down = None
        await asyncio.sleep(61)
        return away, tries < 700, informer.is_watching, informer.error

    assert run_with(story) == ((False, Value("a", "1"), "connection refused"), True, True, None)


@pytest.mark.parametrize("body", [b"  \n", b"{}", b'{"kind":"Status","metadata":{}}', b'{"metadata":{}}'])
def test_an_answer_that_is_no_list_does_not_empty_the_store(body):
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await settle()
        server.forget()
        server.version += 1
        server.answer = Reply(200, body)
        server.end_watches(Expired("too old"))
        await asyncio.sleep(30)
        return informer.get(ref("a")), informer.is_watching, type(informer.error)

    assert run_with(story) == (Value("a", "1"), False, InvalidReply)


def test_a_server_that_always_answers_410_is_not_flooded():
    async def story(server, informer):
        await informer.wait_for_sync()
        server.go_down(Expired("too old"))
        await asyncio.sleep(600)
        return len(server.requests)

    assert run_with(story) < 80


def test_a_value_that_did_not_change_is_no_change():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        changes = informer.changes()
        first = await next_of(changes)
        server.put("a", "1", heartbeat="now")
        server.put("b", "1")
        return first, await next_of(changes)

    assert run_with(story) == ((None, Value("a", "1")), (None, Value("b", "1")))


def test_a_slow_subscriber_gets_the_latest_state_of_each_object_once():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        changes = informer.changes()
        await next_of(changes)
        for value in range(2, 9):
            server.put("a", str(value))
            server.put("fleeting", str(value))
            await settle()
        server.drop("fleeting")
        server.put("z", "1")
        await settle()
        return [await next_of(changes), await next_of(changes)]

    assert run_with(story) == [(Value("a", "1"), Value("a", "8")), (None, Value("z", "1"))]


def test_each_subscriber_starts_with_the_current_objects():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await next_of(informer.changes())
        return await next_of(informer.changes())

    assert run_with(story) == (None, Value("a", "1"))


def test_an_object_that_cannot_be_read_keeps_its_last_state():
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await settle()
        server.objects["a"]["data"] = None
        server.version += 1
        broken = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": str(server.version)}}
        server.record("MODIFIED", broken)
        server.put("b", "1")
        await settle()
        return informer.get(ref("a")), informer.get(ref("b"))

    assert run_with(story) == (Value("a", "1"), Value("b", "1"))


@pytest.mark.parametrize("seed", range(20))
def test_after_any_errors_informer_and_subscriber_agree_with_the_server(seed):
    async def story(server, informer):
        rng = Rng(seed)
        known = {}

        async def listen():
            async for before, after in informer.changes():
                name = (before or after).name
                assert known.get(name) == before
                known[name] = after

        listening = asyncio.create_task(listen())
        deeds = [
            lambda: server.put(f"m{rng.below(5)}", str(rng.below(3))),
            lambda: server.drop(min(server.objects)) if server.objects else None,
            server.forget,
            server.go_down,
            lambda: setattr(server, "down", None),
            server.end_watches,
            server.bookmark,
        ]
        for _ in range(200):
            deeds[rng.below(len(deeds))]()
            await asyncio.sleep(rng.uniform(0, 3))
        server.down = None
        await asyncio.sleep(200)
        assert not listening.done()
        listening.cancel()
        there = {name: read(raw) for name, raw in server.objects.items()}
        return (
            {name: value for name, value in known.items() if value} == there,
            {value.name: value for value in informer.values()} == there,
        )

    assert run_with(story) == (True, True)


def test_each_change_of_its_state_is_reported_with_the_state_it_now_has():
    async def whole():
        server = Server()
        states = []
        state = lambda: (informer.is_watching, str(informer.error or ""))  # noqa: E731
        informer = Informer(
            server, CONFIG_MAP, "default", read, LoopClock(), Rng(1), on_state=lambda: states.append(state())
        )
        running = asyncio.create_task(informer.run())
        await settle()
        server.go_down()
        await asyncio.sleep(60)
        server.forget()  # so that only a list helps
        server.down = None
        await asyncio.sleep(60)
        assert states[-1] == state()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return states

    states = run_driven(whole())

    assert states[0] == (True, "")
    assert (True, "") in states[1:]
    # No call without a change.
    assert all(before != after for before, after in pairwise(states))


def during_an_outage(outage, *, informers=5, away_s=600, within_s=2.0):
    """Informers of one server, while `outage(server)` lasts: (requests then, the most in a second, all watching)."""

    async def whole():
        server, clock = Server(), LoopClock()
        server.put("a", "1")
        members = [Informer(server, CONFIG_MAP, "default", read, clock, Rng(n)) for n in range(informers)]
        running = [asyncio.create_task(one.run()) for one in members]
        await asyncio.sleep(10)
        assert all(one.is_watching for one in members)
        outage(server)
        await asyncio.sleep(away_s / 2)
        steady = len(server.requests)
        await asyncio.sleep(away_s / 2)
        sent = len(server.requests) - steady
        server.down = server.answer = None
        await asyncio.sleep(within_s)
        back = [one.is_watching for one in members]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return sent / (away_s / 2), back

    return run_driven(whole())


GATEWAY = ServerError("bad gateway", status=502)


@pytest.mark.parametrize("away_s", [10, 120, 1200])
@pytest.mark.parametrize("error", [Unreachable("connection refused"), OutcomeUnknown("reset"), GATEWAY])
@pytest.mark.parametrize("informers", [1, 5])
def test_after_an_outage_all_informers_of_a_server_watch_again_within_two_seconds(error, away_s, informers):
    per_second, back = during_an_outage(
        lambda server: server.go_down(error), away_s=away_s, informers=informers
    )

    assert back == [True] * informers
    # All together try once a second.
    assert per_second < 1.5


def test_a_server_that_is_away_for_hours_is_asked_more_rarely():
    per_second, back = during_an_outage(lambda server: server.go_down(), away_s=4 * 3600, within_s=21.0)

    assert back == [True] * 5
    assert per_second < 0.1


def test_the_first_list_of_informers_that_started_in_an_outage_comes_within_two_seconds():
    async def whole():
        server, clock = Server(), LoopClock()
        server.go_down()
        members = [Informer(server, CONFIG_MAP, "default", read, clock, Rng(n)) for n in range(5)]
        running = [asyncio.create_task(one.run()) for one in members]
        await asyncio.sleep(300)
        server.down = None
        await asyncio.sleep(2)
        synced = [one.has_synced for one in members]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return synced

    assert run_driven(whole()) == [True] * 5


def test_a_server_that_answers_with_errors_is_asked_more_and_more_rarely():
    per_second, _ = during_an_outage(lambda server: server.go_down(Forbidden("no", status=403)))

    assert per_second < 5 / 30


def test_an_informer_whose_kind_alone_is_not_answered_backs_off_alone():
    async def whole():
        server, broken, clock = Server(), Server(), LoopClock()
        broken.put("a", "1")

        class Both:
            """One server: the second informer's kind is served by a program that is down."""

            def stream(self, request):
                return (broken if "secrets" in request.path else server).stream(request)

            async def send(self, request):
                return await (broken if "secrets" in request.path else server).send(request)

        both = Both()
        members = [Informer(both, kind, "default", read, clock, Rng(1)) for kind in (CONFIG_MAP, SECRET)]
        running = [asyncio.create_task(one.run()) for one in members]
        await asyncio.sleep(10)
        broken.go_down(ServerError("unavailable", status=503))
        await asyncio.sleep(300)
        before = len(broken.requests)
        await asyncio.sleep(300)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return len(broken.requests) - before

    assert run_driven(whole()) <= 11


def wait_for_value(value, prepare, raise_refusals=False):
    """What the store has once the value of `a` is `value`; `prepare(server)` runs meanwhile."""

    async def whole():
        server = Server()
        informer = Informer(
            server, CONFIG_MAP, "default", read, LoopClock(), Rng(1), raise_refusals=raise_refusals
        )
        preparing = asyncio.ensure_future(prepare(server))
        async with asyncio.timeout(600), watching(informer) as changed:
            while (found := informer.get(ref("a"))) is None or found.value != value:
                changed.clear()
                await changed.wait()
        await preparing
        assert server.watching == 0
        return found.value

    return run_driven(whole())


def test_a_wait_ends_at_the_change_that_it_is_for():
    async def prepare(server):
        for value in ("1", "2", "3"):
            server.put("a", value)
            await asyncio.sleep(10)

    assert wait_for_value("2", prepare) == "2"


def test_a_wait_survives_a_server_that_is_away():
    async def prepare(server):
        server.go_down()
        await asyncio.sleep(60)
        server.down = None
        server.put("a", "1")

    assert wait_for_value("1", prepare) == "1"


def test_a_wait_ends_with_the_refusal_where_that_is_asked_for():
    async def prepare(server):
        server.go_down(Forbidden("may not list configmaps", status=403))

    with pytest.raises(Forbidden):
        wait_for_value("1", prepare, raise_refusals=True)
    with pytest.raises(TimeoutError):
        wait_for_value("1", prepare)


def test_an_error_of_the_one_who_waits_ends_the_wait_as_it_is():
    async def whole():
        informer = Informer(Server(), CONFIG_MAP, "default", read, LoopClock(), Rng(1))
        async with watching(informer):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_driven(whole())


@pytest.mark.parametrize(
    "raw", [{}, None, {"metadata": {}}, {"metadata": {"name": "b"}}, {"metadata": {"resourceVersion": "99"}}]
)
def test_an_event_without_an_object_is_an_error_of_the_server_that_ends(raw):
    async def story(server, informer):
        server.put("a", "1")
        await informer.wait_for_sync()
        await settle()
        server.record("ADDED", raw)
        server.version += 1
        server.history[-1] = (server.version, server.history[-1][1])
        server._wake()
        await settle()
        error, kept = informer.error, informer.get(ref("a"))
        server.history.pop()
        server.put("c", "1")
        await asyncio.sleep(60)
        return error, kept, informer.is_watching, informer.get(ref("c"))

    error, kept, is_watching, after = run_with(story)

    assert isinstance(error, ServerError)
    assert "the object of an event of a watch of configmaps in default" in error.message
    assert (kept, is_watching, after) == (Value("a", "1"), True, Value("c", "1"))


def test_a_list_without_metadata_is_an_error_of_the_server_that_ends():
    async def story(server, informer):
        server.put("a", "1")
        server.answer = Reply(200, dumps({"metadata": {"resourceVersion": "1"}, "items": [{}]}))
        await settle()
        error, synced = informer.error, informer.has_synced
        server.answer = None
        await asyncio.sleep(60)
        return error, synced, informer.get(ref("a"))

    error, synced, after = run_with(story)

    assert isinstance(error, ServerError)
    assert (synced, after) == (False, Value("a", "1"))


def test_a_large_list_that_expires_between_its_pages_is_not_asked_for_in_one_answer():
    async def story(server, informer):
        for number in range(4001):
            server.put(f"o{number:05}", "1")
        answer, pages = server.send, []

        async def send(request):
            limit = int(request.query_parameter("limit") or 0)
            pages.append(limit) if not request.query_parameter("continue") else None
            if not limit:
                raise ServerError("the server sends an answer of more than 64 MiB", status=502)
            if int(request.query_parameter("continue") or 0) > 4 * limit:
                raise Expired("too old")
            return await answer(request)

        server.send = send
        async with asyncio.timeout(600):
            await informer.wait_for_sync()
        return len(list(informer.values())), pages

    assert run_with(story) == (4001, [500, 2000])
