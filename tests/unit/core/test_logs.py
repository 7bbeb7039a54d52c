"""Log lines with fields, as klog writes them."""

import io
import json
import logging
import random
import string
from datetime import datetime

import pytest

from windrow.core.logs import MAX_TEXT, JsonFormatter, LineFormatter, with_values


@pytest.fixture
def written():
    """A logger, and the lines that it has written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(lambda: "12:00:05"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger, lambda: stream.getvalue().splitlines()


def test_fields_follow_the_message(written):
    logger, lines = written
    log = with_values(with_values(logger, cluster="default/prod"), machine="m-1")

    log.info("created %s", "VirtualMachine", namespace="vms")

    assert lines() == [
        '12:00:05 info: created VirtualMachine cluster="default/prod" machine="m-1" namespace="vms"'
    ]


def test_a_line_stays_one_line(written):
    logger, lines = written

    with_values(logger, why='say "no"\nagain').warning("broken\ninto %s", "100 %")

    assert lines() == ['12:00:05 warning: broken into 100 % why="say \\"no\\" again"']


def test_an_error_is_named_and_its_traceback_is_opt_in(written):
    logger, lines = written
    try:
        raise LookupError("no such thing")
    except LookupError:
        with_values(logger, cluster="c").exception("failed")
        logger.handlers[0].setFormatter(LineFormatter(lambda: "12:00:05", tracebacks=True))
        logger.exception("failed")

    found = lines()
    assert found[:2] == [
        '12:00:05 error: failed: LookupError: no such thing cluster="c"',
        "12:00:05 error: failed: LookupError: no such thing",
    ]
    assert found[2].startswith("Traceback")


def test_a_plain_logger_s_line_has_the_time_of_its_record():
    record = logging.LogRecord("x", logging.INFO, "f", 1, "hello", (), None)

    assert LineFormatter().format(record).endswith(" info: hello")


def test_what_is_below_the_level_is_not_formatted(written):
    logger, lines = written
    logger.setLevel(logging.WARNING)

    with_values(logger, cluster="c").info("hello")

    assert lines() == []


# -- as JSON


@pytest.fixture
def objects():
    """A logger, and the objects that it has written, a line each."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("windrow.test")
    logger.addHandler(handler)
    return logger, lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_the_message_and_the_fields_under_their_names(objects):
    logger, lines = objects
    log = with_values(with_values(logger, cluster="default/prod"), machine="default/m-1")

    log.warning("created %s", "VirtualMachine", reason="ProvisionVM", tries=3)

    (line,) = lines()
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "warning",
        "logger": "windrow.test",
        "msg": "created VirtualMachine",
        "cluster": "default/prod",
        "machine": "default/m-1",
        "namespace": "default",
        "reason": "ProvisionVM",
        "tries": 3,
    }


def test_a_field_never_replaces_what_every_line_has(objects):
    logger, lines = objects

    with_values(logger, time="noon", level="x", msg="y", stack="s", error="e").info("said")

    (line,) = lines()
    assert (line["level"], line["msg"], line["logger"]) == ("info", "said", "windrow.test")
    assert (line["field_time"], line["field_error"]) == ("noon", "e")


def test_an_error_has_its_stack_on_the_same_line(objects):
    logger, lines = objects
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("failed")

    (line,) = lines()
    assert line["error"] == "ValueError: two\nlines"
    assert "test_an_error_has_its_stack_on_the_same_line" in line["stack"]


def test_whatever_is_logged_is_one_line_of_json(objects):
    logger, lines = objects
    rng = random.Random(7)
    letters = [*string.printable, "\u2028", "\ud800", "\x00", "ü", "😀", '"', "\\", "%"]
    count = 300
    for _ in range(count):
        text = "".join(rng.choices(letters, k=rng.randrange(40)))
        with_values(logger, **{text or "empty": text}).info("%s", text)

    assert len(lines()) == count
    assert all({"time", "level", "logger", "msg"} <= line.keys() for line in lines())


def test_a_long_text_is_cut(objects):
    logger, lines = objects

    with_values(logger, body="x" * 10**6).info("%s", "y" * 10**6)

    (line,) = lines()
    assert len(line["body"]) == len(line["msg"]) == MAX_TEXT + 1
