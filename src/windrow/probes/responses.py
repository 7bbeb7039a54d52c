"""What goes back to whoever asked."""

from __future__ import annotations

from dataclasses import dataclass

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: str
    content_type: str = TEXT
