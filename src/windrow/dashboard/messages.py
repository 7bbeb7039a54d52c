"""Requests of a browser and the answers to them, as values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request. Header names are in lower case; `secure` says that it came over TLS."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    address: str = ""
    secure: bool = False

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of the page that is open."""
        return self.headers.get("hx-request") == "true"

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class PageResponse:
    """One answer. `cookie` is the whole value of a Set-Cookie header, "" for none."""

    status: int
    body: bytes = b""
    content_type: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    cookie: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventStream:
    """An answer that goes on: server-sent events, encoded, until the client leaves or `events` ends."""

    events: AsyncIterator[bytes]


def redirect(target: str, cookie: str = "") -> PageResponse:
    """See Other: the browser gets `target`, a path of this site."""
    return PageResponse(303, headers={"Location": target}, cookie=cookie)
