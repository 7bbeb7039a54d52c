import asyncio
import gc

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.client import events
from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.core.rng import Rng
from windrow.kubernetes.errors import ServerError
from windrow.kubernetes.resources import CONFIG_MAP, EVENT, NAMESPACE, NODE

SYNCED = EventNote(NODE.ref("w1"), "uid-1", "Synced", "Node synced successfully")


def events_after(story):
    """The events that exist after `story(recorder)`."""

    async def whole():
        clock = LoopClock()
        local = ApiServer(MemoryStore(), clock, Rng(1)).local()
        await story(EventRecorder(Client(local), "controller", clock, Rng(1)))
        return await local.list(EVENT)

    return run_driven(whole())


def test_an_event_is_logged_with_its_object(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "windrow.client.events"):
        events_after(lambda recorder: recorder.write(SYNCED))

    assert caplog.messages == [f"Synced: {SYNCED.message}"]


def test_an_event_names_its_object_and_its_source():
    [event] = events_after(lambda recorder: recorder.write(SYNCED))

    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {"kind": "Node", "apiVersion": "v1", "name": "w1", "uid": "uid-1"}
    assert (event["reason"], event["type"], event["source"]) == (
        "Synced",
        "Normal",
        {"component": "controller"},
    )


def test_the_same_event_is_counted_not_repeated():
    async def story(recorder):
        for _ in range(3):
            await recorder.write(SYNCED)
            await asyncio.sleep(60)

    [event] = events_after(story)

    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:02:00Z",
    )


def test_events_are_listed_in_the_order_in_which_they_were_recorded():
    reasons = [f"Step{number}" for number in range(12)]

    async def story(recorder):
        for reason in reasons:
            await recorder.write(EventNote(NODE.ref("w1"), "uid-1", reason, "it goes on"))
            await asyncio.sleep(0.001)

    assert [event["reason"] for event in events_after(story)] == reasons


def test_one_object_cannot_flood_the_cluster():
    async def story(recorder):
        for number in range(100):
            await recorder.write(EventNote(NODE.ref("w1"), "uid-1", f"Failed{number}", "again"))
        await recorder.write(EventNote(NODE.ref("w2"), "uid-2", "Failed", "another"))

    names = [event["involvedObject"]["name"] for event in events_after(story)]

    assert (names.count("w1"), names.count("w2")) == (25, 1)


def test_an_object_of_the_name_of_another_has_a_budget_of_its_own():
    async def story(recorder):
        for uid in ("uid-1", "uid-2"):
            for number in range(30):
                await recorder.write(EventNote(NODE.ref("w1"), uid, f"Failed{number}", "again"))

    uids = [event["involvedObject"]["uid"] for event in events_after(story)]

    assert (uids.count("uid-1"), uids.count("uid-2")) == (25, 25)


def test_final_events_are_written_whatever_was_said_before_and_each_with_its_message():
    async def story(recorder):
        for number in range(100):
            await recorder.write(EventNote(NODE.ref("w1"), "uid-1", f"Failed{number}", "again"))
        for reason in ("Keep", "Delete"):
            for number in range(30):
                await recorder.write(
                    EventNote(NODE.ref("w1"), "uid-1", reason, f"number {number}", final=True)
                )

    written = events_after(story)

    for reason in ("Keep", "Delete"):
        messages = [event["message"] for event in written if event["reason"] == reason]
        assert sorted(messages) == sorted(f"number {number}" for number in range(25))


def test_the_first_event_of_an_object_that_is_dropped_is_logged(caplog: pytest.LogCaptureFixture):
    async def story(recorder):
        for name in ("w1", "w2"):
            for number in range(28):
                await recorder.write(EventNote(NODE.ref(name), "uid", f"Failed{number}", "again"))
        await asyncio.sleep(301)  # one more is allowed by now
        for number in range(28):
            await recorder.write(EventNote(NODE.ref("w1"), "uid", f"Failed{number}", "again"))

    with caplog.at_level("WARNING", "windrow.client.events"):
        events_after(story)

    assert [message.partition(";")[0] for message in caplog.messages] == [
        "Event Failed25 not written: again",
        "Event Failed25 not written: again",
    ]


def test_events_that_differ_in_their_message_only_are_combined_from_the_tenth_on():
    async def story(recorder):
        for number in range(15):
            await asyncio.sleep(0.001)
            await recorder.write(EventNote(NODE.ref("w1"), "uid-1", "Failed", f"number {number}"))

    events = events_after(story)

    assert [event["message"] for event in events] == [
        *(f"number {number}" for number in range(9)),
        "(combined from similar events): number 14",
    ]
    assert events[-1]["count"] == 6


def test_events_are_similar_within_ten_minutes_only():
    async def story(recorder):
        for number in range(12):
            await asyncio.sleep(0.001 if number < 9 else 601)
            await recorder.write(EventNote(NODE.ref("w1"), "uid-1", "Failed", f"number {number}"))

    assert [event["message"] for event in events_after(story)] == [f"number {number}" for number in range(12)]


def test_a_long_message_is_cut():
    [event] = events_after(
        lambda recorder: recorder.write(EventNote(NODE.ref("w1"), "u", "Failed", "x" * 5000))
    )

    assert len(event["message"]) == 1024


def test_recording_waits_for_no_answer_and_keeps_the_order():
    async def story(recorder):
        running = asyncio.ensure_future(recorder.run())
        for number in range(3):
            recorder.record(EventNote(NODE.ref("w1"), "uid-1", f"Step{number}", "it goes on"))
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert [event["reason"] for event in events_after(story)] == ["Step0", "Step1", "Step2"]


def test_a_lost_event_is_no_error():
    class Broken:
        async def send(self, request):
            raise ServerError("out of order")

    async def story():
        await EventRecorder(Client(Broken()), "controller", LoopClock(), Rng(1)).write(SYNCED)
        return "went on"

    assert run_driven(story()) == "went on"


def test_an_event_that_has_expired_is_written_anew():
    async def whole():
        clock = LoopClock()
        local = ApiServer(MemoryStore(), clock, Rng(1)).local()
        recorder = EventRecorder(Client(local), "controller", clock, Rng(1))
        await recorder.write(SYNCED)
        [event] = await local.list(EVENT)
        await local.delete(EVENT.ref(event["metadata"]["name"], "default"))
        await asyncio.sleep(60)
        await recorder.write(SYNCED)
        return await local.list(EVENT)

    [event] = run_driven(whole())

    assert event["count"] == 1


def test_of_more_events_than_the_queue_holds_the_oldest_are_dropped(monkeypatch):
    monkeypatch.setattr(events, "MAX_QUEUED", 3)

    async def story(recorder):
        for number in range(10):
            recorder.record(EventNote(NODE.ref("w1"), "uid-1", f"Step{number}", "it goes on"))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(recorder.run())
            await asyncio.sleep(1)
            writing.cancel()

    assert [one["reason"] for one in events_after(story)] == ["Step7", "Step8", "Step9"]


def test_an_event_in_a_namespace_that_is_deleted_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def whole() -> None:
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1))
        local = server.local()
        recorder = EventRecorder(Client(local), "controller", clock, Rng(1))
        running = asyncio.create_task(server.run())
        about = EventNote(CONFIG_MAP.ref("held", "team"), "uid-1", "Deleted", "the last machine is gone")
        await local.create(NAMESPACE, {"metadata": {"name": "team"}})
        held = {"metadata": {"name": "held", "finalizers": ["windrow.io/test"]}}
        await local.create(CONFIG_MAP, held, "team")
        await local.delete(NAMESPACE.ref("team"))
        await recorder.write(about)
        await local.patch(about.involved_object, {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        assert await local.find(NAMESPACE.ref("team")) is None
        await recorder.write(about)
        running.cancel()

    with caplog.at_level("WARNING", "windrow.client.events"):
        run_driven(whole())

    assert caplog.messages == []


def test_nothing_is_remembered_of_objects_that_were_quiet_for_hours():
    def remembered():
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, EventNote) and one.reason == "Quiet"]

    async def story(recorder):
        for number in range(200):
            await recorder.write(EventNote(NODE.ref(f"w{number}"), f"uid-{number}", "Quiet", "once"))
        before = len(remembered())
        await asyncio.sleep(3 * 3600)
        await recorder.write(SYNCED)
        assert (before, len(remembered())) == (200, 0)

    events_after(story)
