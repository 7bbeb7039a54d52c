"""Servers for a client to meet: they do what a test says with each connection, in a thread."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread


@dataclass
class Received:
    """What a server was asked."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0


# Gets the request's head and body; gives back what to send, None to hang up at once.
Script = Callable[[bytes], bytes | None]


@contextmanager
def a_server(
    script: Script, context: ssl.SSLContext | None = None, family: int = socket.AF_INET
) -> Iterator[Received]:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(16)
    seen = Received(listener.getsockname()[1])

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                seen.connections += 1
                Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), plain:
            connection = context.wrap_socket(plain, server_side=True) if context else plain
            with connection:
                while request := read_request(connection):
                    seen.requests.append(request)
                    reply = script(request)
                    if reply is None:
                        return
                    connection.sendall(reply)
                    if isinstance(reply, Last) or b"\r\nConnection: close\r\n" in reply:
                        return

    Thread(target=accept, daemon=True).start()
    try:
        yield seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        block = connection.recv(65536)
        if not block:
            return b""
        data += block
        if not data[:1].isalpha():
            return data  # no HTTP
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            wanted = int(line.split(b":")[1])
            while len(body) < wanted:
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


class Last(bytes):
    """A reply after which the server hangs up."""


def answer(body: bytes = b"{}", status: int = 200, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return text + (b"0\r\n\r\n" if end else b"")
