"""What every page is given, and what it gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.app.harvester.reader import HarvesterReader
from windrow.client.client import Client
from windrow.kubernetes.errors import BadRequest
from windrow.kubernetes.objects import is_dns_label

# Of a namespace or a name in a path: none of the API is longer.
MAX_NAME_LENGTH = 253
ALL_NAMESPACES = "*"


@dataclass(frozen=True, slots=True)
class PageContext:
    """The API as the user who has signed in; what the address asks for; and the time, read once."""

    api: Client
    now: datetime
    query: Mapping[str, str]
    names: tuple[str, ...] = ()  # the parts of the path that name objects
    home: str = ""  # the namespace in which the user has begun; "" for all
    user: str = ""
    harvesters: HarvesterReader = field(kw_only=True)

    @property
    def namespace(self) -> str:
        """The namespace that is asked for; "" for all. It stands in commands to copy, so nothing else is let in."""
        wanted = self.query.get("namespace") or self.home
        if wanted in ("", ALL_NAMESPACES):
            return ""
        if not is_dns_label(wanted):
            raise BadRequest("that is no name of a namespace", status=400)
        return wanted

    @property
    def scope(self) -> str:
        """That namespace, or all, as a flag of kubectl and windrow."""
        return f"-n {self.namespace}" if self.namespace else "-A"


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values. `live` names the kinds that it shows in `changes`; `commands` show the same in a terminal."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    section: str = ""
    live: str = ""
    live_namespace: str = ""
    commands: tuple[str, ...] = ()
    status: int = 200


ReadPage = Callable[[PageContext], Awaitable[Page]]
