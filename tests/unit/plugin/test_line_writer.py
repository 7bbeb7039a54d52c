import os

import pytest

from windrow.plugin.environment import MAX_LINE, LineWriter


def told(*texts: str) -> bytes:
    reader, writer = os.pipe()
    teller = LineWriter(writer)
    for text in texts:
        teller.write(text)
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
    assert len(told("é" * 100_000)) <= MAX_LINE + 1


def test_a_reader_that_stopped_does_not_stop_the_speaker():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)

    LineWriter(writer).write("without a reader")

    os.close(reader)
    LineWriter(writer).write("nor this")
    os.close(writer)
    LineWriter(writer).write("nor this")
