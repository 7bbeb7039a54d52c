"""HTTP/1.1 as the client of one API server needs it: requests to bytes, bytes to answers. Knows no sockets.

`Source` reads heads, by lines; a `Body` is fed with what comes behind them, in pieces of any size. Everything that the
server says is bounded. A connection may be used again only when the answer was read to its end and neither side sent `Connection: close`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# What Go's client accepts of a head; a Kubernetes object is far below the body's limit, a page of a list as well.
MAX_HEAD_SIZE = 2**20
MAX_LINE_SIZE = 2**16
MAX_BODY_SIZE = 2**26

# Never more than this from the socket at once.
READ_SIZE = 2**16


class InvalidResponse(Exception):
    """The bytes are not an HTTP answer, or one beyond our limits."""


class ConnectionClosed(Exception):
    """The connection ended before the answer did. `begun` tells whether any of it had come."""

    def __init__(self, begun: bool) -> None:
        where = "in the middle of the answer" if begun else "instead of answering"
        super().__init__(f"the connection was closed {where}")
        self.begun = begun


class Source:
    """What came and has not been taken yet."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._held = bytearray()
        self.begun = False

    def begin(self) -> None:
        """A new answer is about to come."""
        self.begun = bool(self._held)

    def line(self, limit: int = MAX_LINE_SIZE) -> bytes:
        """Up to and without the next LF, a CR before it dropped. Raises ConnectionClosed, InvalidResponse."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if searched > limit:
                raise InvalidResponse(f"a line of more than {limit} bytes")
            self._more()
        return self._take(end + 1)[:-1].removesuffix(b"\r")

    def rest(self) -> bytes:
        """What came behind the last line that was taken."""
        return self._take(len(self._held))

    def _more(self) -> None:
        block = self._receive(READ_SIZE)
        if not block:
            raise ConnectionClosed(self.begun)
        self.begun = True
        self._held += block

    def _take(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken


@dataclass(frozen=True, slots=True)
class Head:
    """The start of an answer. Header names are written `Like-This`."""

    status: int
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    version: bytes = b"HTTP/1.1"

    @property
    def says_close(self) -> bool:
        connection = self.headers.get("Connection", "").lower()
        return "close" in connection or (self.version == b"HTTP/1.0" and "keep-alive" not in connection)


def render_request(
    method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None = None
) -> bytes:
    """Raises ValueError where a header or the target would break out of its line."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body or b'')}")
    for line in lines:
        if not line.isprintable():
            raise ValueError(f"{line.partition(':')[0][:40]!r} holds characters that no header may hold")
    try:
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError("a header holds characters beyond Latin-1") from error
    return head + (body or b"")


def read_head(source: Source) -> Head:
    """The next answer's head; interim answers (1xx) are passed over. Raises ConnectionClosed, InvalidResponse."""
    source.begin()
    while True:
        head = _read_one_head(source)
        if head.status >= 200 or head.status == 101:
            return head


def _read_one_head(source: Source) -> Head:
    version, _, rest = source.line().partition(b" ")
    code, _, reason = rest.partition(b" ")
    if version not in (b"HTTP/1.0", b"HTTP/1.1") or len(code) != 3 or not code.isdigit():
        raise InvalidResponse(
            f"it does not speak HTTP: its answer begins with {(version + b' ' + rest)[:40]!r}"
        )
    headers: dict[str, str] = {}
    size = 0
    while line := source.line():
        size += len(line)
        if size > MAX_HEAD_SIZE:
            raise InvalidResponse(f"a head of more than {MAX_HEAD_SIZE} bytes")
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise InvalidResponse(f"a header line {line[:40]!r}")
        key = "-".join(part.capitalize() for part in name.split("-"))
        value = value.strip()
        if key == "Content-Length" and headers.get(key, value) != value:
            raise InvalidResponse("two lengths for one body")
        headers[key] = f"{headers[key]}, {value}" if key in headers and key != "Content-Length" else value
    return Head(int(code), reason.decode("latin-1"), headers, version)


class Body:
    """The body that follows `head`: feed it what comes until it `is_done`."""

    def __init__(self, head: Head, method: str = "GET") -> None:
        """Raises InvalidResponse where the head does not tell how long the body is."""
        self.is_done = False
        self._left: int | None = (
            0  # of the whole body, or of the chunk; None: up to the end of the connection
        )
        self._take = self._counted
        self._line = bytearray()
        self._trailers = 0
        self._surplus = False
        self._says_close = head.says_close
        self._measure(head, method)

    def _measure(self, head: Head, method: str) -> None:
        coding = head.headers.get("Transfer-Encoding", "").lower()
        length = head.headers.get("Content-Length")
        if method == "HEAD" or head.status in (204, 304):
            self.is_done = True
        elif coding == "chunked":
            self._take = self._size
        elif coding:
            raise InvalidResponse(f"a body coded as {coding[:40]!r}")
        elif length is None:
            self._left = None
        elif length.isascii() and length.isdigit() and len(length) < 19:
            self._left = int(length)
            self.is_done = not self._left
        else:
            raise InvalidResponse(f"a body of length {length[:40]!r}")

    @property
    def leaves_it_usable(self) -> bool:
        """Whether the connection may carry another request."""
        return self.is_done and self._left is not None and not self._says_close and not self._surplus

    def feed(self, data: bytes) -> bytes:
        """The part of the body in `data`. Raises InvalidResponse."""
        if self._left is None:
            return data
        found = []
        at = 0
        while at < len(data) and not self.is_done:
            taken, part = self._take(data, at)
            at += taken
            found.append(part)
        self._surplus = self._surplus or at < len(data)
        return b"".join(found)

    def end(self) -> None:
        """The connection has ended. Raises ConnectionClosed where that is too early."""
        if self._left is None:
            self.is_done = True
        if not self.is_done:
            raise ConnectionClosed(begun=True)

    # Each takes a part of `data` from `at` on: how many bytes, and what of them is body.

    def _counted(self, data: bytes, at: int) -> tuple[int, bytes]:
        part = data[at : at + (self._left or 0)]
        self._left = (self._left or 0) - len(part)
        self.is_done = not self._left
        return len(part), part

    def _chunk(self, data: bytes, at: int) -> tuple[int, bytes]:
        taken = self._counted(data, at)
        if self.is_done:
            self.is_done, self._take = False, self._chunk_end
        return taken

    def _size(self, data: bytes, at: int) -> tuple[int, bytes]:
        taken, line = self._upto_line_end(data, at)
        if line is not None:
            self._left = _chunk_size(line)
            self._take = self._chunk if self._left else self._trailer
        return taken, b""

    def _chunk_end(self, data: bytes, at: int) -> tuple[int, bytes]:
        taken, line = self._upto_line_end(data, at)
        if line:
            raise InvalidResponse("a chunk that is longer than it says")
        if line is not None:
            self._take = self._size
        return taken, b""

    def _trailer(self, data: bytes, at: int) -> tuple[int, bytes]:
        taken, line = self._upto_line_end(data, at)
        self._trailers += taken
        if self._trailers > MAX_HEAD_SIZE:
            raise InvalidResponse(f"trailers of more than {MAX_HEAD_SIZE} bytes")
        self.is_done = line == b""
        return taken, b""

    def _upto_line_end(self, data: bytes, at: int) -> tuple[int, bytes | None]:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        self._line += data[at:stop]
        if len(self._line) > MAX_LINE_SIZE:
            raise InvalidResponse(f"a line of more than {MAX_LINE_SIZE} bytes")
        if end < 0:
            return stop - at, None
        line = bytes(self._line[:-1]).removesuffix(b"\r")
        self._line.clear()
        return stop - at, line


_HEX = frozenset(b"0123456789abcdefABCDEF")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
        raise InvalidResponse(f"a chunk of size {line[:40]!r}")
    return int(digits, 16)
