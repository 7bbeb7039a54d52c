from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.middleware.retry import RetryingTransport
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes import requests
from windrow.kubernetes.errors import CertificateError, KubeError, OutcomeUnknown, Unreachable
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import POD, SECRET

READ = requests.get(SECRET.ref("a", "default"))
WRITE = requests.create(SECRET, {"metadata": {"name": "a", "namespace": "default"}})
EVICT = requests.create_subresource(POD.ref("a", "default"), "eviction", {})


def refusal(code, message="no", **headers):
    return Reply(code, dumps({"kind": "Status", "code": code, "message": message}), headers=headers)


class Answers:
    """Gives one answer or error after the other, the last one for ever."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0

    async def send(self, request):
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def send_through(request, *answers):
    """(how often the server was asked, the status or error in the end, seconds it took)"""

    async def story():
        clock = LoopClock()
        inner = Answers(*answers)
        start = clock.now()
        try:
            end = (await RetryingTransport(inner, clock, Rng(1)).send(request)).status
        except KubeError as error:
            end = type(error)
        return inner.asked, end, (clock.now() - start).total_seconds()

    return run_driven(story())


FINE = Reply(200, b"{}")
DENIED = refusal(500, 'admission webhook "v" denied the request: no')
LOST = OutcomeUnknown("connection lost")
DOWN = Unreachable("connection refused")


@pytest.mark.parametrize(
    ("request_", "answer", "asked", "end"),
    [
        (READ, FINE, 1, 200),
        (READ, refusal(404), 1, 404),
        (READ, DOWN, 2, 200),
        (WRITE, DOWN, 2, 200),
        (READ, CertificateError("x"), 1, CertificateError),
        (READ, LOST, 2, 200),
        (WRITE, LOST, 1, OutcomeUnknown),
        (READ, refusal(429), 2, 200),
        (WRITE, refusal(429), 2, 200),
        (EVICT, refusal(429), 1, 429),
        (READ, refusal(500), 2, 200),
        (WRITE, refusal(500), 1, 500),
        (WRITE, refusal(503), 2, 200),
        (WRITE, refusal(504), 1, 504),
        (WRITE, refusal(504, **{"Retry-After": "1"}), 2, 200),
        (READ, DENIED, 1, 500),
        (WRITE, DENIED, 1, 500),
    ],
)
def test_only_safe_repetitions_are_made(request_, answer, asked, end):
    assert send_through(request_, answer, FINE)[:2] == (asked, end)


def test_after_the_last_attempt_the_error_is_raised():
    assert send_through(READ, DOWN)[:2] == (5, Unreachable)


def test_it_waits_for_retry_after():
    assert 7 <= send_through(READ, refusal(429, **{"Retry-After": "7"}), FINE)[2] <= 10.5


def test_a_server_that_does_not_answer_is_not_waited_for_five_times():
    async def story():
        clock, asked = LoopClock(), []

        class Silent:
            async def send(self, request):
                asked.append(request)
                await clock.sleep_until(clock.now() + timedelta(seconds=90))
                raise OutcomeUnknown("no answer in time")

        with pytest.raises(OutcomeUnknown):
            await RetryingTransport(Silent(), clock, Rng(1)).send(READ)
        return asked

    assert run_driven(story()) == [READ]
