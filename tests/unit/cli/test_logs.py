"""`windrow logs`: the lines that the management API has, and what to do where it has none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow

from windrow.app.support.log_pages import LOGS_PATH
from windrow.cli import exit_codes
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.requests import Reply

LINES = [
    {
        "time": "12:00",
        "level": "info",
        "logger": "x",
        "msg": "created\x1b[2J\nnow",
        "machine": "a/b",
        "stack": "s",
    },
    {"time": "12:01", "level": "error", "msg": "ready", "error": "OSError: x"},
    "no line",
]
PRINTED = ['12:00 info: created?[2J now machine="a/b"', "12:01 error: ready: OSError: x"]


class Log:
    """What is asked of the log of a management API with cluster orchard; it ends after `answers`."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str | None]]()

    async def answer(self, request: Any, caller: Any) -> Reply:
        self.asked.append((request.path, request.query_parameter("after")))
        found = self.answers.pop(0) if self.answers else 401
        return Reply(found, b"{}") if isinstance(found, int) else Reply(200, dumps(found))


@pytest.fixture
def orchard(windrow: Windrow, manager: Manager) -> str:
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    return f"{LOGS_PATH}/fleet-default/orchard"


def test_the_lines_are_printed_without_what_a_terminal_would_obey(
    windrow: Windrow, manager: Manager, orchard: str
):
    log = Log({"position": 9, "lines": LINES})
    manager.serve(LOGS_PATH, log.answer)

    answer = windrow("logs", "orchard")

    assert answer.code == exit_codes.OK
    assert answer.out.splitlines() == PRINTED
    assert log.asked == [(orchard, None)]


def test_followed_lines_are_asked_for_from_where_the_last_answer_ended(
    windrow: Windrow, manager: Manager, orchard: str
):
    log = Log(
        {"position": 9, "lines": LINES},
        {"position": 12, "lines": []},
        {"position": 13, "lines": LINES[1:2]},
    )
    manager.serve(LOGS_PATH, log.answer)

    answer = windrow("logs", "orchard", "--follow", "--tail", "1")

    assert answer.out.splitlines() == [PRINTED[1], PRINTED[1]]
    assert [after for _, after in log.asked] == [None, "9", "12", "13"]
    assert answer.code != exit_codes.OK  # the last answer was a refusal


def test_without_a_name_all_lines_are_asked_for_and_none_are_said_to_be_none(
    windrow: Windrow, manager: Manager
):
    log = Log({"position": 0, "lines": []})
    manager.serve(LOGS_PATH, log.answer)

    assert "No lines" in windrow("logs").out
    assert log.asked == [(LOGS_PATH, None)]


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (404, exit_codes.NOT_FOUND, "journalctl -u windrow"),
        (403, exit_codes.UNREACHABLE, "windrow logs CLUSTER"),
        ({"kind": "Status"}, exit_codes.UNREACHABLE, "windrow serve"),
    ],
)
def test_an_api_that_shows_no_log_is_told_with_what_to_do(
    windrow: Windrow, manager: Manager, found: Any, code: int, said: str
):
    manager.serve(LOGS_PATH, Log(found).answer)
    answered = windrow("logs")

    assert answered.code == code
    assert said in answered.err


@pytest.mark.parametrize("tail", ["0", "-1", "x", "100001", "9" * 20])
def test_a_number_of_lines_that_is_none_is_refused(windrow: Windrow, tail: str):
    assert windrow("logs", "--tail", tail).code == exit_codes.USAGE
