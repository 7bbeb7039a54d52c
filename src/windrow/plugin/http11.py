"""HTTP/1.1 as the client of one API server needs it: requests to bytes, bytes to answers. Knows no sockets.

`Source` cuts what `receive` gives into lines and blocks; everything the server says is bounded. A connection may be
used again only when the answer was read to its end and nobody said `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# What Go's client accepts of a head; a Kubernetes object is far below the body's limit, a page of a list as well.
HEAD_LIMIT = 2**20
LINE_LIMIT = 2**16
BODY_LIMIT = 2**26

# Never more than this from the socket at once.
BLOCK = 2**16


class BadHttp(Exception):
    """The bytes are not an HTTP answer, or one beyond our limits."""


class CutOff(Exception):
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

    @property
    def is_empty(self) -> bool:
        return not self._held

    def line(self, limit: int = LINE_LIMIT) -> bytes:
        """Up to and without the next LF, a CR before it dropped. Raises CutOff, BadHttp."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if searched > limit:
                raise BadHttp(f"a line of more than {limit} bytes")
            self._more()
        return self._take(end + 1)[:-1].removesuffix(b"\r")

    def some(self, most: int) -> bytes:
        """At least one and at most `most` bytes; b"" at the end of the connection."""
        if not self._held:
            try:
                self._more()
            except CutOff:
                return b""
        return self._take(most)

    def _more(self) -> None:
        block = self._receive(BLOCK)
        if not block:
            raise CutOff(self.begun)
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
        said = self.headers.get("Connection", "").lower()
        return "close" in said or (self.version == b"HTTP/1.0" and "keep-alive" not in said)


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
    """The next answer's head; interim answers (1xx) are passed over. Raises CutOff, BadHttp."""
    source.begin()
    while True:
        head = _read_one_head(source)
        if head.status >= 200 or head.status == 101:
            return head


def _read_one_head(source: Source) -> Head:
    version, _, rest = source.line().partition(b" ")
    code, _, reason = rest.partition(b" ")
    if version not in (b"HTTP/1.0", b"HTTP/1.1") or len(code) != 3 or not code.isdigit():
        raise BadHttp(f"it does not speak HTTP: its answer begins with {(version + b' ' + rest)[:40]!r}")
    headers: dict[str, str] = {}
    size = 0
    while line := source.line():
        size += len(line)
        if size > HEAD_LIMIT:
            raise BadHttp(f"a head of more than {HEAD_LIMIT} bytes")
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise BadHttp(f"a header line {line[:40]!r}")
        key = "-".join(part.capitalize() for part in name.split("-"))
        said = value.strip()
        if key == "Content-Length" and headers.get(key, said) != said:
            raise BadHttp("two lengths for one body")
        headers[key] = f"{headers[key]}, {said}" if key in headers and key != "Content-Length" else said
    return Head(int(code), reason.decode("latin-1"), headers, version)


class Body:
    """The body that follows `head`: iterate over its blocks, or take it `whole`."""

    def __init__(self, source: Source, head: Head, method: str = "GET") -> None:
        self._source, self._head, self._method = source, head, method
        self._ends_with_connection = False
        self._is_read = False

    @property
    def leaves_it_usable(self) -> bool:
        """Whether the connection may carry another request."""
        return self._is_read and not self._ends_with_connection and not self._head.says_close

    def whole(self, limit: int = BODY_LIMIT) -> bytes:
        blocks: list[bytes] = []
        size = 0
        for block in self:
            size += len(block)
            if size > limit:
                raise BadHttp(f"a body of more than {limit} bytes")
            blocks.append(block)
        return b"".join(blocks)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._blocks()
        self._is_read = True

    def _blocks(self) -> Iterator[bytes]:
        head = self._head
        if self._method == "HEAD" or head.status in (204, 304):
            return iter(())
        coding = head.headers.get("Transfer-Encoding", "").lower()
        if coding == "chunked":
            return self._chunked()
        if coding:
            raise BadHttp(f"a body coded as {coding[:40]!r}")
        length = head.headers.get("Content-Length")
        if length is None:
            self._ends_with_connection = True
            return self._to_the_end()
        if not (length.isascii() and length.isdigit() and len(length) < 19):
            raise BadHttp(f"a body of length {length[:40]!r}")
        return self._counted(int(length))

    def _to_the_end(self) -> Iterator[bytes]:
        while block := self._source.some(BLOCK):
            yield block

    def _counted(self, left: int) -> Iterator[bytes]:
        while left:
            block = self._source.some(min(left, BLOCK))
            if not block:
                raise CutOff(begun=True)
            left -= len(block)
            yield block

    def _chunked(self) -> Iterator[bytes]:
        while size := _chunk_size(self._source.line()):
            yield from self._counted(size)
            if self._source.line():
                raise BadHttp("a chunk that is longer than it says")
        trailers = 0
        while line := self._source.line():
            trailers += len(line)
            if trailers > HEAD_LIMIT:
                raise BadHttp(f"trailers of more than {HEAD_LIMIT} bytes")


_HEX = frozenset(b"0123456789abcdefABCDEF")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
        raise BadHttp(f"a chunk of size {line[:40]!r}")
    return int(digits, 16)
