"""Go's net/rpc over gob, both ends, without any I/O (reference/01 §1.4, §2.8).

`feed` takes received bytes, `data_to_send` returns the bytes to send. A connection begins with an HTTP CONNECT; then each
request is a header and an argument, each response a header and a body, and responses come in any order. No function here
locks: a server with several threads holds one lock around `respond` or `respond_error` and the sending of
`data_to_send`. `registry` defaults to docker-machine's types, the only user of net/rpc here.
"""

from __future__ import annotations

from windrow.protocols.dockermachine import REGISTRY
from windrow.protocols.gob import EMPTY, NOT_YET, STRING, UINT, Decoder, Encoder, Limits, Struct, Type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PATH = "/_goRPC_"
CONNECT_REQUEST = b"CONNECT /_goRPC_ HTTP/1.0\n\n"
CONNECTED = b"HTTP/1.0 200 Connected to Go RPC\n\n"
CONNECTED_STATUS = "200 Connected to Go RPC"

REQUEST = Struct("Request", (("ServiceMethod", STRING), ("Seq", UINT)))
RESPONSE = Struct("Response", (("ServiceMethod", STRING), ("Seq", UINT), ("Error", STRING)))
MAX_GREETING_BYTES = 8192

EMPTY_ERROR_TEXT = "the call failed without an error text"
"""Sent instead of an empty error, which means success to the caller."""


class BadRpc(ValueError):
    """The peer does not speak Go's net/rpc, or broke its rules; the connection cannot be used any more."""


def no_service(method: str) -> str:
    """Go's error for a call of a service that is not there."""
    return f"rpc: can't find service {method}"


def no_method(method: str) -> str:
    """Go's error for a call of a method that its service does not have."""
    return f"rpc: can't find method {method}"


def ill_formed(method: str) -> str:
    """Go's error for a call of a name without a dot."""
    return f"rpc: service/method request ill-formed: {method}"


class Call:
    """A request: `method` as `Service.Method`, the caller's number for it, and the decoded argument."""

    __slots__ = ("argument", "method", "seq")

    def __init__(self, method: str, seq: int, argument: Any) -> None:
        self.method = method
        self.seq = seq
        self.argument = argument

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.seq})"


class Response:
    """The response to call `seq`: `value` is the decoded reply, or `error` is not empty."""

    __slots__ = ("error", "method", "seq", "value")

    def __init__(self, seq: int, method: str, error: str, value: Any) -> None:
        self.seq = seq
        self.method = method
        self.error = error
        self.value = value

    def __repr__(self) -> str:
        return f"Response({self.seq}, {self.method!r}, error={self.error!r})"


# --- both ends ------------------------------------------------------------------------------------------------------


class _MessageReader:
    """The incoming half: headers, each with the value that follows it."""

    __slots__ = ("_decoder", "_header")

    def __init__(self, limits: Limits) -> None:
        self._decoder = Decoder(limits)
        self._header: dict[str, Any] | None = None

    def feed(self, data: bytes, header: Struct) -> list[tuple[dict[str, Any], Any]]:
        self._decoder.feed(data)
        found = []
        while (value := self._decoder.next()) is not NOT_YET:
            if self._header is None:
                self._header = _checked_header(header, value)
                continue
            found.append((self._header, value))
            self._header = None
        return found


def _checked_header(type: Struct, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRpc(f"wanted a {type.name}, found a {value.__class__.__name__}")
    header: dict[str, Any] = {}
    for name, kind in type.fields:
        found = value.get(name, "" if kind is STRING else 0)
        if not (isinstance(found, str) if kind is STRING else _is_number(found)):
            raise BadRpc(f"the {name} of a {type.name} is a {found.__class__.__name__}")
        header[name] = found
    return header


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


class _HttpHead:
    """Gathers the lines of an HTTP head, which may end in LF or CRLF, until the empty one."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> tuple[str, bytes] | None:
        """The first line and what follows the head; None while the head is not complete."""
        self._buffer += data
        at = 0
        while (end := self._buffer.find(b"\n", at)) >= 0:
            if self._buffer[at:end] in (b"", b"\r") and at:
                first = self._buffer[: self._buffer.index(b"\n")].rstrip(b"\r")
                return first.decode("latin-1"), self._buffer[end + 1 :]
            at = end + 1
        if len(self._buffer) > MAX_GREETING_BYTES:
            raise BadRpc(f"a greeting of more than {MAX_GREETING_BYTES} bytes")
        return None


class _SendBuffer:
    """The outgoing half: what is to be sent, in order."""

    __slots__ = ("_buffer", "_encoder")

    def __init__(self, registry: Mapping[str, Type]) -> None:
        self._encoder = Encoder(registry)
        self._buffer = bytearray()

    def put(self, header: Struct, fields: dict[str, Any], type: Type, value: Any) -> None:
        """Both or, where the value does not fit its type (BadGob), neither."""
        self._buffer += self._encoder.encode_all(((header, fields), (type, value)))

    def data_to_send(self) -> bytes:
        out = bytes(self._buffer)
        self._buffer.clear()
        return out


# --- the server -----------------------------------------------------------------------------------------------------


class Server:
    """The serving end of one connection. `registry` names the types that answers may hold in interfaces."""

    __slots__ = ("_head", "_outbox", "_pairs", "_reply", "closing")

    def __init__(self, limits: Limits, registry: Mapping[str, Type] = REGISTRY) -> None:
        self._head: _HttpHead | None = _HttpHead()
        self._pairs = _MessageReader(limits)
        self._outbox = _SendBuffer(registry)
        self._reply = b""
        self.closing = False
        """Set when the request is no CONNECT for net/rpc: send `data_to_send`, then close."""

    def feed(self, data: bytes) -> list[Call]:
        """The calls that are complete with this data. Raises BadRpc or BadGob where the peer breaks the rules."""
        if self.closing:
            return []
        if self._head is not None:
            greeted = self._head.feed(data)
            if greeted is None:
                return []
            self._head = None
            line, data = greeted
            self._check_greeting(line)
            if self.closing:
                return []
        return [
            Call(header["ServiceMethod"], header["Seq"], value)
            for header, value in self._pairs.feed(data, REQUEST)
        ]

    def _check_greeting(self, line: str) -> None:
        refusal = _find_http_error(line)
        self.closing = refusal is not None
        self._reply = CONNECTED if refusal is None else refusal

    def respond(self, call: Call, type: Type, value: Any) -> None:
        """Answers with a value. Raises BadGob where it does not fit the type; the call may then still be refused."""
        self._outbox.put(RESPONSE, {"ServiceMethod": call.method, "Seq": call.seq}, type, value)

    def respond_error(self, call: Call, text: str) -> None:
        """Answers with an error. Any text can be sent; what is no Unicode in it is shown as `?`."""
        header = {
            "ServiceMethod": call.method,
            "Seq": call.seq,
            "Error": _encodable(text) or EMPTY_ERROR_TEXT,
        }
        self._outbox.put(RESPONSE, header, EMPTY, {})

    def data_to_send(self) -> bytes:
        """What is to be sent now; each byte is given once."""
        reply, self._reply = self._reply, b""
        return reply + self._outbox.data_to_send()


def _encodable(text: str) -> str:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _find_http_error(line: str) -> bytes | None:
    """The HTTP answer to a first line that is not the greeting; None where it is."""
    words = line.split()
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        return _http_error("400 Bad Request", "400 Bad Request")
    if words[1] != PATH:
        return _http_error("404 Not Found", "404 page not found")
    return None if words[0] == "CONNECT" else _http_error("405 Method Not Allowed", "405 must CONNECT")


def _http_error(status: str, text: str) -> bytes:
    body = f"{text}\n"
    return (
        f"HTTP/1.0 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    ).encode()


# --- the client -----------------------------------------------------------------------------------------------------


class Client:
    """The calling end of one connection. `registry` names the types that arguments may hold in interfaces."""

    __slots__ = ("_calls", "_connect_request", "_head", "_outbox", "_pairs", "_seq")

    def __init__(self, limits: Limits, registry: Mapping[str, Type] = REGISTRY) -> None:
        self._head: _HttpHead | None = _HttpHead()
        self._connect_request = CONNECT_REQUEST
        self._pairs = _MessageReader(limits)
        self._outbox = _SendBuffer(registry)
        self._calls: dict[int, str] = {}
        self._seq = 0

    def call(self, method: str, type: Type, value: Any) -> int:
        """Makes a call of `Service.Method` and gives its number. Raises BadGob where the value does not fit."""
        seq = self._seq
        self._outbox.put(REQUEST, {"ServiceMethod": method, "Seq": seq}, type, value)
        self._calls[seq] = method
        self._seq += 1
        return seq

    def feed(self, data: bytes) -> list[Response]:
        """The answers that are complete with this data. Raises BadRpc or BadGob where the peer breaks the rules."""
        if self._head is not None:
            greeted = self._head.feed(data)
            if greeted is None:
                return []
            self._head = None
            line, data = greeted
            if line.partition(" ")[2] != CONNECTED_STATUS:
                raise BadRpc(f"the peer is no Go RPC server: it answers CONNECT with {line[:100]!r}")
        return [self._read_response(header, value) for header, value in self._pairs.feed(data, RESPONSE)]

    def _read_response(self, header: dict[str, Any], value: Any) -> Response:
        seq, error = header["Seq"], header["Error"]
        method = self._calls.pop(seq, None)
        if method is None:
            raise BadRpc(f"an answer to call {seq}, which has none outstanding")
        return Response(seq, method, error, None if error else value)

    def data_to_send(self) -> bytes:
        """What is to be sent now; each byte is given once.

        Calls wait until the server has answered CONNECT: Go's server loses bytes that come with the CONNECT.
        """
        greeting, self._connect_request = self._connect_request, b""
        return greeting if self._head is not None else greeting + self._outbox.data_to_send()
