import asyncio
from contextlib import nullcontext
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector, LeadershipLost, LeaderTransport, NotLeader
from windrow.core.clock import parse_time
from windrow.core.formats.json import dumps, loads
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.requests import Reply, Request

NOON_TEXT, EARLIER = "2026-01-01T12:00:00.000000Z", "2026-01-01T09:00:00.000000Z"


class Leases:
    """Stores one Lease, with resource versions."""

    def __init__(self):
        self.raw = None
        self.version = 0
        self.down = False
        self.requests = []

    def seen_by(self, name):
        return ServerInstance(self, name)

    @property
    def spec(self):
        return self.raw["spec"]


class ServerInstance:
    def __init__(self, leases, name):
        self.leases = leases
        self.cut_off = False

    async def send(self, request):
        leases = self.leases
        leases.requests.append(request.method)
        if self.cut_off or leases.down:
            raise Unreachable("connection refused")
        if request.method == "GET":
            if leases.raw is None:
                return status(404, "NotFound", {"name": "program"})
            return Reply(200, dumps(leases.raw))
        body = loads(request.body)
        if request.method == "POST" and leases.raw is not None:
            return status(409, "AlreadyExists")
        if request.method == "PUT" and leases.raw is None:
            return status(404, "NotFound", {"name": "program"})
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != str(leases.version):
            return status(409, "Conflict")
        leases.version += 1
        body["metadata"]["resourceVersion"] = str(leases.version)
        leases.raw = body
        return Reply(200, dumps(body))


def status(code, reason, details=None):
    return Reply(code, dumps({"kind": "Status", "code": code, "reason": reason, "details": details}))


class Program:
    """A candidate and the instants at which it began and ended to lead."""

    def __init__(self, leases, name, clock):
        self.seat = leases.seen_by(name)
        self.spans = []
        self.candidate = LeaderElector(Client(self.seat), "kube-system", "program", name, clock, Rng(name))
        self._clock = clock
        self.started_at = clock.monotonic()
        self.task = asyncio.create_task(self.candidate.run(self.work))

    @property
    def elapsed(self):
        return (self._clock.monotonic() - self.started_at).total_seconds()

    async def work(self):
        span = [self.elapsed, None]
        self.spans.append(span)
        try:
            await asyncio.sleep(10**6)
        finally:
            span[1] = self.elapsed

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_one_candidate_leads_and_the_record_is_client_gos():
    async def story():
        leases, clock = Leases(), LoopClock()
        programs = [Program(leases, name, clock) for name in ("one", "two")]
        await asyncio.sleep(100)
        leading = [program.candidate.is_leader for program in programs]
        spec = dict(leases.spec)
        for program in programs:
            await program.stop()
        return leading, spec

    leading, spec = run_driven(story())

    assert leading == [True, False]
    assert spec["holderIdentity"] == "one"
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (15, 0)
    assert spec["acquireTime"] == "2026-01-01T12:00:00.000000Z"
    assert parse_time(spec["renewTime"]) - parse_time(spec["acquireTime"]) > timedelta(seconds=95)


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": {}}, {"spec": {"holderIdentity": None}}])
def test_a_lease_that_names_no_holder_is_taken_at_once(spec):
    async def story():
        leases, clock = Leases(), LoopClock()
        leases.raw = {"metadata": {"name": "program", "resourceVersion": "0", "labels": {"a": "b"}}, **spec}
        program = Program(leases, "one", clock)
        await asyncio.sleep(1)
        await program.stop()
        return program.spans, leases.raw["metadata"]["labels"], leases.spec["holderIdentity"]

    spans, labels, holder = run_driven(story())

    assert [began for began, _ in spans] == [0]
    assert (labels, holder) == ({"a": "b"}, "")


def test_a_lease_without_duration_is_taken_at_once_and_the_change_of_leader_counted():
    async def story():
        leases, clock = Leases(), LoopClock()
        held = {"holderIdentity": "former", "leaseTransitions": 3}
        leases.raw = {"metadata": {"name": "program", "resourceVersion": "0"}, "spec": held}
        program = Program(leases, "one", clock)
        await asyncio.sleep(1)
        await program.stop()
        return [began for began, _ in program.spans], leases.spec["leaseTransitions"]

    assert run_driven(story()) == ([0], 4)


@pytest.mark.parametrize(
    ("before", "acquired", "transitions"),
    [
        # Of another process, whose lease has ended.
        ({"holderIdentity": "former", "acquireTime": EARLIER, "leaseTransitions": 3}, NOON_TEXT, 4),
        ({"holderIdentity": "", "acquireTime": EARLIER, "leaseTransitions": 3}, NOON_TEXT, 4),
        # Of this one.
        ({"holderIdentity": "one", "acquireTime": EARLIER, "leaseTransitions": 3}, EARLIER, 3),
        ({"holderIdentity": "one", "leaseTransitions": 3}, NOON_TEXT, 3),
        ({"holderIdentity": "one", "acquireTime": None, "leaseTransitions": None}, NOON_TEXT, 0),
        # Without a record there was no leader before.
        ({}, NOON_TEXT, 0),
    ],
)
def test_a_lease_tells_since_when_its_holder_has_it_and_how_often_the_holder_changed(
    before, acquired, transitions
):
    async def story():
        leases, clock = Leases(), LoopClock()
        leases.raw = {"metadata": {"name": "program", "resourceVersion": "0"}, "spec": before}
        program = Program(leases, "one", clock)
        await asyncio.sleep(1)
        spec = dict(leases.spec)
        await program.stop()
        return spec

    spec = run_driven(story())

    assert (spec["holderIdentity"], spec["acquireTime"]) == ("one", acquired)
    assert (spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (transitions, 15)


def test_a_leader_renews_with_one_request_and_reads_the_lease_only_where_that_is_refused():
    async def story():
        leases, clock = Leases(), LoopClock()
        program = Program(leases, "one", clock)
        await asyncio.sleep(1)
        leases.requests.clear()
        await asyncio.sleep(6)
        calm = list(leases.requests)
        leases.requests.clear()
        leases.version += 1  # its labels were changed
        leases.raw["metadata"]["resourceVersion"] = str(leases.version)
        await asyncio.sleep(2)
        changed = list(leases.requests)
        leases.requests.clear()
        leases.raw = None
        await asyncio.sleep(2)
        deleted = list(leases.requests)
        leading = program.candidate.is_leader
        await program.stop()
        return calm, changed, deleted, leading

    calm, changed, deleted, leading = run_driven(story())

    assert calm == ["PUT"] * 3
    assert changed == ["PUT", "GET", "PUT"]
    assert deleted == ["PUT", "GET", "POST"]
    assert leading


def test_a_cancelled_leader_releases_the_lease():
    async def story():
        leases, clock = Leases(), LoopClock()
        one, two = Program(leases, "one", clock), Program(leases, "two", clock)
        await asyncio.sleep(60)
        await one.stop()
        released = dict(leases.spec)
        await asyncio.sleep(5)
        transitions = leases.spec["leaseTransitions"]
        await two.stop()
        return released, transitions, two.spans[0][0]

    released, transitions, began = run_driven(story())

    assert (released["holderIdentity"], released["leaseDurationSeconds"]) == ("", 1)
    assert transitions == 1
    assert 60 <= began < 65


def test_a_leader_that_cannot_renew_stops_before_another_begins():
    async def story():
        leases, clock = Leases(), LoopClock()
        one, two = Program(leases, "one", clock), Program(leases, "two", clock)
        await asyncio.sleep(60)
        one.seat.cut_off = True
        await asyncio.sleep(60)
        error = one.task.exception()
        await two.stop()
        return one.spans, two.spans, error

    one, two, error = run_driven(story())

    assert one[0][1] < two[0][0] < 80
    assert isinstance(error, LeadershipLost)


@pytest.mark.parametrize(("holder_lives", "began"), [(True, None), (False, (70, 80))])
def test_a_lease_that_is_deleted_is_its_holders_until_it_would_have_expired(holder_lives, began):
    async def story():
        leases, clock = Leases(), LoopClock()
        one = Program(leases, "one", clock)
        two = Program(leases, "two", clock)
        await asyncio.sleep(61)
        one.seat.cut_off = not holder_lives
        leases.raw = None
        two.candidate.attempt_now()  # before the holder renews
        await asyncio.sleep(30)
        spans, holder = list(two.spans), leases.spec["holderIdentity"]
        await one.stop()
        await two.stop()
        return one.spans, spans, holder

    one, two, holder = run_driven(story())

    assert holder == ("one" if holder_lives else "two")
    if began is None:
        assert two == []
    else:
        assert began[0] < two[0][0] < began[1]
        assert one[0][1] <= two[0][0]


def test_a_short_outage_of_the_server_keeps_the_leader():
    async def story():
        leases, clock = Leases(), LoopClock()
        one = Program(leases, "one", clock)
        await asyncio.sleep(60)
        leases.down = True
        await asyncio.sleep(7)
        leases.down = False
        await asyncio.sleep(60)
        leads = one.candidate.is_leader
        await one.stop()
        return leads

    assert run_driven(story())


def test_a_holder_whose_clock_is_wrong_is_not_deposed():
    async def story():
        leases, clock = Leases(), LoopClock()
        one = Program(leases, "one", clock)
        await asyncio.sleep(30)
        leases.spec["renewTime"] = "1999-01-01T00:00:00.000000Z"
        two = Program(leases, "two", clock)
        await asyncio.sleep(10)
        leads = two.candidate.is_leader
        await one.stop()
        await two.stop()
        return leads

    assert not run_driven(story())


def test_work_that_ends_or_fails_ends_the_leadership():
    async def story():
        leases, clock = Leases(), LoopClock()

        async def fail():
            raise ValueError("broken")

        candidate = LeaderElector(
            Client(leases.seen_by("one")), "kube-system", "program", "one", clock, Rng(1)
        )
        with pytest.raises(ValueError, match="broken"):
            await candidate.run(fail)
        return leases.spec["holderIdentity"]

    assert run_driven(story()) == ""


class SlowServer(ServerInstance):
    """A write arrives at once; its answer takes a second, and a cancelled client does not wait for it."""

    async def send(self, request):
        reply = await super().send(request)
        if request.method in ("POST", "PUT") and loads(request.body)["spec"]["holderIdentity"]:
            await asyncio.sleep(1)
        return reply


@pytest.mark.parametrize("cancelled_after_s", [0.5, 3.5])
def test_an_end_in_the_middle_of_a_claim_gives_the_lease_back(cancelled_after_s):
    async def story():
        clock, leases = LoopClock(), Leases()
        seat = SlowServer(leases, "one")
        candidate = LeaderElector(Client(seat), "kube-system", "program", "one", clock, Rng(1))
        task = asyncio.create_task(candidate.run(asyncio.Event().wait))
        await asyncio.sleep(cancelled_after_s)
        task.cancel()
        await asyncio.wait({task})
        return leases.spec["holderIdentity"], task.cancelled()

    assert run_driven(story()) == ("", True)


def test_a_renewal_that_arrives_during_the_release_does_not_keep_the_lease():
    class Late(ServerInstance):
        """Just before the first release arrives, so does a renewal of the same holder."""

        async def send(self, request):
            leases = self.leases
            if (
                request.method == "PUT"
                and not loads(request.body)["spec"]["holderIdentity"]
                and not self.came
            ):
                self.came = True
                leases.version += 1
                leases.raw["metadata"]["resourceVersion"] = str(leases.version)
            return await super().send(request)

        came = False

    async def story():
        clock, leases = LoopClock(), Leases()
        seat = Late(leases, "one")
        candidate = LeaderElector(Client(seat), "kube-system", "program", "one", clock, Rng(1))
        task = asyncio.create_task(candidate.run(asyncio.Event().wait))
        await asyncio.sleep(3)
        task.cancel()
        await asyncio.wait({task})
        return seat.came, leases.spec["holderIdentity"]

    assert run_driven(story()) == (True, "")


class FarServer(ServerInstance):
    """Requests take a while to arrive, and answers to come back."""

    there_s = back_s = 0.0

    async def send(self, request):
        await asyncio.sleep(self.there_s)
        reply = await super().send(request)
        await asyncio.sleep(self.back_s)
        return reply


class FarLeases(Leases):
    def seen_by(self, name):
        return FarServer(self, name)


def overlap_s(one, two):
    """For how long both worked."""
    pairs = [(a, b) for a in one.spans for b in two.spans]
    return max((min(a[1], b[1]) - max(a[0], b[0]) for a, b in pairs), default=0)


@pytest.mark.parametrize("back_s", [1, 4.5, 8, 12])
def test_a_late_answer_to_an_acquisition_lengthens_no_lease(back_s):
    async def story():
        leases, clock = FarLeases(), LoopClock()
        one = Program(leases, "one", clock)
        one.seat.back_s = back_s
        await asyncio.sleep(back_s + 0.1)
        two = Program(leases, "two", clock)
        await asyncio.sleep(back_s)
        one.seat.cut_off = True
        await asyncio.sleep(60)
        await one.stop()
        await two.stop()
        return one, two

    one, two = run_driven(story())

    assert two.spans
    assert overlap_s(one, two) <= 0


@pytest.mark.parametrize("there_s", [1, 7, 9])
def test_a_late_answer_to_a_standby_candidate_shortens_no_lease(there_s):
    async def story():
        leases, clock = FarLeases(), LoopClock()
        one = Program(leases, "one", clock)
        await asyncio.sleep(5.1)
        two = Program(leases, "two", clock)
        two.seat.there_s = there_s
        await asyncio.sleep(there_s - 0.05)
        two.seat.there_s, one.seat.cut_off = 0, True
        await asyncio.sleep(60)
        await one.stop()
        await two.stop()
        return one, two

    one, two = run_driven(story())

    assert two.spans
    assert overlap_s(one, two) <= 0


def test_a_leader_that_cannot_renew_works_for_ten_seconds_after_its_last_renewal_at_most():
    async def story():
        leases, clock = Leases(), LoopClock()
        one = Program(leases, "one", clock)
        await asyncio.sleep(61.5)
        renewed = (one.candidate.last_renewed - one.started_at).total_seconds()
        one.seat.cut_off = True
        await asyncio.sleep(60)
        await one.stop()
        return one.spans[0][1] - renewed

    assert run_driven(story()) == pytest.approx(10, abs=0.01)


def test_a_server_that_hangs_does_not_keep_the_candidate_from_the_next_try():
    async def story():
        leases, clock = FarLeases(), LoopClock()
        one = Program(leases, "one", clock)
        one.seat.there_s = 10**5
        await asyncio.sleep(1)
        one.seat.there_s = 0
        await asyncio.sleep(20)
        leads = one.candidate.is_leader
        await one.stop()
        return leads

    assert run_driven(story())


@pytest.mark.parametrize("of_the_leader", [True, False])
@pytest.mark.parametrize("jump", [timedelta(minutes=-5), timedelta(hours=-1), timedelta(hours=1)])
def test_a_wall_clock_that_is_set_changes_no_leader(jump, of_the_leader):
    async def story():
        leases, clocks = Leases(), (LoopClock(), LoopClock())
        one, two = (Program(leases, name, clock) for name, clock in zip(("one", "two"), clocks, strict=True))
        await asyncio.sleep(30)
        clocks[0 if of_the_leader else 1].set_wall(jump)
        await asyncio.sleep(120)
        spans = one.spans, two.spans
        result = [list(map(tuple, each)) for each in spans]
        await one.stop()
        await two.stop()
        return result

    assert run_driven(story()) == [[(0, None)], []]


@pytest.mark.parametrize("jump", [timedelta(minutes=-5), timedelta(hours=-1), timedelta(hours=1)])
def test_a_leader_that_is_cut_off_while_its_clock_is_set_stops_before_another_begins(jump):
    async def story():
        leases, clocks = Leases(), (LoopClock(), LoopClock())
        one, two = (Program(leases, name, clock) for name, clock in zip(("one", "two"), clocks, strict=True))
        await asyncio.sleep(31)
        one.seat.cut_off = True
        clocks[0].set_wall(jump)
        await asyncio.sleep(60)
        await two.stop()
        return one, two

    one, two = run_driven(story())

    assert one.spans[0][1] + 4.9 <= two.spans[0][0] < 31 + 15 + 5
    assert isinstance(one.task.exception(), LeadershipLost)


class StoppedClock(LoopClock):
    """The clock of a process that SIGSTOP held for `stopped`: time has passed, and no timer of it has run yet."""

    stopped = timedelta()

    def monotonic(self):
        return super().monotonic() + self.stopped


class AnyServer:
    def __init__(self):
        self.requests = []

    async def send(self, request):
        self.requests.append(request.method)
        return Reply(200, b"{}")


@pytest.mark.parametrize(("stopped_s", "sent"), [(0, True), (7, True), (11, False), (3600, False)])
def test_a_leader_that_was_stopped_past_its_lease_sends_no_write(stopped_s, sent):
    async def story():
        leases, clock, server = Leases(), StoppedClock(), AnyServer()
        one = Program(leases, "one", clock)
        transport = LeaderTransport(server, one.candidate)
        await asyncio.sleep(30)
        clock.stopped = timedelta(seconds=stopped_s)
        await transport.send(Request("GET", "/api/v1/nodes"))
        with nullcontext() if sent else pytest.raises(NotLeader, match="POST /api/v1/nodes not sent"):
            await transport.send(Request("POST", "/api/v1/nodes"))
        await one.stop()
        return server.requests

    assert run_driven(story()) == (["GET", "POST"] if sent else ["GET"])


def test_a_candidate_that_does_not_lead_sends_no_write():
    async def story():
        leases, clock, server = Leases(), LoopClock(), AnyServer()
        one, two = Program(leases, "one", clock), Program(leases, "two", clock)
        await asyncio.sleep(30)
        with pytest.raises(NotLeader):
            await LeaderTransport(server, two.candidate).send(Request("DELETE", "/api/v1/nodes/n"))
        await one.stop()
        await two.stop()
        return server.requests

    assert run_driven(story()) == []


def test_a_leader_that_was_stopped_ends_and_the_other_begins():
    async def story():
        leases, clock = Leases(), StoppedClock()
        one, two = Program(leases, "one", clock), Program(leases, "two", LoopClock())
        await asyncio.sleep(30)
        one.seat.cut_off, before = True, asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        clock.stopped = timedelta(minutes=1)
        await asyncio.sleep(3)
        ended = one.spans[0][1] is not None, asyncio.get_running_loop().time() - before
        one.seat.cut_off = False
        await asyncio.sleep(60)
        await two.stop()
        return ended, isinstance(one.task.exception(), LeadershipLost), len(two.spans)

    assert run_driven(story()) == ((True, 4.0), True, 1)


def test_what_outlives_this_process_is_delegated_only_if_it_ends_before_another_leads():
    """A plugin runs on for ten seconds when its manager is stopped; the Lease lasts fifteen."""
    survival = timedelta(seconds=10)

    async def run():
        clock, leases = LoopClock(), Leases()
        one = Program(leases, "one", clock)
        assert not one.candidate.may_delegate(survival)
        await asyncio.sleep(1)
        assert one.candidate.may_delegate(survival)
        one.seat.cut_off = True
        answers = []
        for _ in range(9):
            answers.append((one.candidate.may_delegate(survival), one.candidate.may_write))
            await asyncio.sleep(1)
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
        return answers

    answers = run_driven(run())
    # It may write for longer than it may leave anything running.
    assert answers[0] == (True, True)
    assert (False, True) in answers
    renewed_within = [delegates for delegates, _ in answers].index(False)
    assert renewed_within <= 5


def test_nothing_is_delegated_by_a_process_that_has_given_its_lease_back():
    async def run():
        clock, leases = LoopClock(), Leases()
        one = Program(leases, "one", clock)
        await asyncio.sleep(1)
        led = one.candidate.may_delegate(timedelta(seconds=1))
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
        return led, one.candidate.may_delegate(timedelta(seconds=1)), one.candidate.may_write

    assert run_driven(run()) == (True, False, False)


def test_a_lease_of_an_earlier_process_is_taken_at_once_but_only_before_it_was_held():
    async def story():
        leases, clock = Leases(), LoopClock()

        def candidate(name):
            return LeaderElector(
                Client(leases.seen_by(name)),
                "kube-system",
                "program",
                name,
                clock,
                Rng(name),
                takes_over=lambda holder: holder.startswith("a-"),
            )

        async def idle():
            await asyncio.sleep(10**6)

        electors = [candidate("a-1"), candidate("a-2")]
        first = asyncio.create_task(electors[0].run(idle))
        await asyncio.sleep(1)
        second = asyncio.create_task(electors[1].run(idle))
        await asyncio.sleep(100)
        found = [elector.may_write for elector in electors], leases.spec["holderIdentity"], first.done()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return *found, first.exception()

    writes, holder, has_ended, error = run_driven(story())

    assert writes == [False, True]
    assert holder == "a-2"
    assert has_ended
    assert isinstance(error, LeadershipLost)
