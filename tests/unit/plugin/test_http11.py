from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.plugin.http.http11 import (
    Body,
    ConnectionClosed,
    InvalidResponse,
    Source,
    read_head,
    render_request,
)


def in_blocks(text: bytes, block: int) -> Callable[[int], bytes]:
    """A connection that gives the text in small blocks, then its end."""
    blocks = [text[at : at + block] for at in range(0, len(text), block)]
    return lambda count: blocks.pop(0) if blocks else b""


def read(text: bytes, method: str = "GET", block: int = 3) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection may be used again."""
    receive = in_blocks(text, block)
    source = Source(receive)
    head = read_head(source)
    body = Body(head, method)
    whole = body.feed(source.rest())
    while not body.is_done:
        came = receive(0)
        whole += body.feed(came)
        if not came:
            body.end()
    return head.status, whole, body.leaves_it_usable


@pytest.mark.parametrize(
    ("text", "method", "found"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "GET", (200, b"hello", True)),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "GET", (200, b"", True)),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 X\r\nContent-Length: 1\r\n\r\nx",
            "POST",
            (201, b"x", True),
        ),
        (b"HTTP/1.1 200\r\ncontent-length: 1\r\nconnection: Close\r\n\r\nx", "GET", (200, b"x", False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "GET", (200, b"x", False)),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", "GET", (200, b"to the end", False)),
        (b"HTTP/1.1 204 No\r\n\r\n", "DELETE", (204, b"", True)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", (200, b"", True)),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
            "GET",
            (200, b"abc0123456789", True),
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            "GET",
            (404, b"{}", True),
        ),
    ],
)
def test_an_answer_is_read_to_its_end(text: bytes, method: str, found: tuple[int, bytes, bool]):
    for block in (1, 3, 1000):
        assert read(text, method, block) == found


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"H" * 70000,
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70000,
        b"HTTP/1.1 200 OK\r\n" + (b"X: " + b"y" * 60000 + b"\r\n") * 20,
    ],
)
def test_what_is_no_answer_is_refused(text: bytes):
    with pytest.raises((InvalidResponse, ConnectionClosed)):
        read(text, block=1000)


def test_bytes_behind_an_answer_make_its_connection_unusable():
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n"
    assert read(text, block=1000) == (200, b"x", False)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        (b"", False),
        (b"HTTP/1.1 200", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", True),
    ],
)
def test_a_connection_that_ends_early_tells_whether_an_answer_had_begun(text: bytes, begun: bool):
    with pytest.raises(ConnectionClosed) as caught:
        read(text)
    assert caught.value.begun is begun


@given(st.binary(max_size=300))
def test_any_bytes_end_in_an_answer_or_a_named_error(noise: bytes):
    for text in (noise, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + noise):
        with suppress(InvalidResponse, ConnectionClosed):
            read(text)


def test_a_write_without_a_body_says_so():
    assert render_request("PUT", "/x", []) == b"PUT /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert render_request("GET", "/x", [("A", "b")]) == b"GET /x HTTP/1.1\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b", "a\u2028b", "☃"])
def test_no_value_breaks_out_of_its_header(value: str):
    with pytest.raises(ValueError):
        render_request("GET", "/x", [("Authorization", value)])
