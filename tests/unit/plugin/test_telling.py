import os

import pytest

from windrow.plugin.telling import LONGEST, Teller


def told(*texts: str) -> bytes:
    reader, writer = os.pipe()
    teller = Teller(writer)
    for text in texts:
        teller.say(text)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("waiting", b"waiting\n"),
        ("two\r\nlines\there", b"two lines here\n"),
        ("bell\a and escape\x1b[31m", b"bell? and escape?[31m\n"),
        ("lone \udcff surrogate", b"lone ? surrogate\n"),
    ],
)
def test_what_is_said_is_one_line(text: str, line: bytes):
    assert told(text) == line


def test_no_line_comes_near_to_what_a_pipe_takes_at_once():
    assert len(told("é" * 100_000)) <= LONGEST + 1


def test_a_reader_that_stopped_does_not_stop_the_speaker():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)

    Teller(writer).say("nobody hears this")

    os.close(reader)
    Teller(writer).say("nor this")
    os.close(writer)
    Teller(writer).say("nor this")
