"""What a manager that serves a dashboard is given: `app` is below the dashboard, so the command line hands it in."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from windrow.app.access.management import ManagementAccess
from windrow.core.clock import Clock


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """`state_dir` keeps its address, so that a bookmark stays valid. `port` 0 is that of the last start, else a free one.
    `tls` gives the context of new connections; None is plain HTTP, for loopback."""

    access: ManagementAccess
    clock: Clock
    state_dir: Path
    bind: str
    port: int
    tls: Callable[[], ssl.SSLContext | None]


RunDashboard = Callable[[DashboardSettings], AbstractAsyncContextManager[str]]
"""Serves while entered; gives the address of the first page."""


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    """Where a dashboard is to listen, and what runs it."""

    run: RunDashboard
    bind: str = "127.0.0.1"
    port: int = 0
