"""Log lines with fields, as klog writes them."""

import io
import logging

import pytest

from windrow.core.logs import LineFormatter, with_values


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
