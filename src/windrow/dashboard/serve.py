"""Running the dashboard beside a manager: its port, the address that links begin with, and the codes of those links."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from windrow.app.access.management import ApiUser
from windrow.app.access.service import DashboardSettings
from windrow.app.harvester.reader import HarvesterReader
from windrow.app.state.directory import DASHBOARD_FILE
from windrow.client.http_transport import HttpTransport
from windrow.client.transport import Transport
from windrow.core.clock import format_time
from windrow.core.errors import UserError
from windrow.core.files import write_private
from windrow.core.rng import SystemRng
from windrow.dashboard.changes import ChangeFeed
from windrow.dashboard.http import DashboardListener
from windrow.dashboard.rendering import with_query
from windrow.dashboard.sessions import CODE_LIFETIME, Sessions, SignInCodes, WrongTries
from windrow.dashboard.site import DashboardSite, Doors
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw

log = logging.getLogger(__name__)

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
MAX_ADDRESS_LENGTH = 300
# Of an answer of a Harvester: 500 of its largest objects have a fifth.
MAX_HARVESTER_REPLY_BYTES = 16 * 2**20


class CannotServe(UserError):
    """The dashboard cannot listen where it was asked to."""


def _cannot_serve(settings: DashboardSettings, port: int, error: OSError) -> CannotServe:
    state, hint = {
        errno.EADDRINUSE: (
            "is in use by another process",
            "Stop that process, or choose another port with --dashboard-port.",
        ),
        errno.EACCES: (
            "needs privileges to listen on",
            "Choose a port of 1024 or above with --dashboard-port.",
        ),
        errno.EADDRNOTAVAIL: (
            "cannot be had: this computer has no such address",
            "Correct --dashboard-bind.",
        ),
    }.get(
        error.errno or 0,
        (
            f"cannot be had: {error.strerror or error}",
            "Choose others with --dashboard-bind and --dashboard-port.",
        ),
    )
    return CannotServe(
        f"Port {port} of {settings.bind}, for the dashboard, {state}.", f"{hint} --no-dashboard serves none."
    )


@asynccontextmanager
async def serve_dashboard(settings: DashboardSettings) -> AsyncIterator[str]:
    """Serve the dashboard while entered; gives its address. Raises CannotServe where a port that was asked for is taken."""
    clock, rng = settings.clock, SystemRng()

    def connect(config: ClientConfig) -> Transport:
        return HttpTransport(
            config, clock, user_agent="windrow-dashboard", max_reply_bytes=MAX_HARVESTER_REPLY_BYTES
        )

    sessions, tries = Sessions(clock, rng), WrongTries(clock)
    doors = Doors(settings.access, SignInCodes(clock, rng), sessions, tries, HarvesterReader(connect))
    file = settings.state_dir / DASHBOARD_FILE
    async with ChangeFeed(clock, rng) as feed:
        site = DashboardSite(doors, feed, clock, host_names(settings.bind))
        listener = await _listen(site, settings, settings.port or find_last_port(file))
        try:
            address = address_of(settings.bind, listener.port, is_secure=settings.tls() is not None)
            _remember(file, address)

            def issue(user: ApiUser, namespace: str) -> Raw:
                code = doors.codes.issue(user, namespace)
                ends = format_time(clock.now() + CODE_LIFETIME)
                return {"url": with_query(f"{address}/sign-in", code=code), "expirationTimestamp": ends}

            settings.access.serve_codes(issue)
            yield address
        finally:
            settings.access.forget_codes()
            await listener.__aexit__()


def _remember(file: Path, address: str) -> None:
    """So that the next start has the same port. A full disk takes no page away."""
    try:
        write_private(file, f"{address}\n")
    except OSError as error:
        log.warning("%s cannot be written: %s; the dashboard has another port after a restart", file, error)


async def _listen(site: DashboardSite, settings: DashboardSettings, port: int) -> DashboardListener:
    """A listener on `port`; on a free one where another program has taken that of the last start. Raises CannotServe."""
    try:
        return await DashboardListener(site, settings.bind, port, tls=settings.tls).__aenter__()
    except OSError as error:
        if settings.port or not port:
            raise _cannot_serve(settings, port, error) from error
        log.warning("the dashboard's last port %s cannot be had: %s; it gets another one", port, error)
        return await DashboardListener(site, settings.bind, 0, tls=settings.tls).__aenter__()


def find_last_port(file: Path) -> int:
    """The port in the file of the last start; 0 where there is none."""
    try:
        return urlsplit(file.read_text()[:MAX_ADDRESS_LENGTH].strip()).port or 0
    except (OSError, ValueError):
        return 0


def host_names(bind: str) -> tuple[str, ...]:
    """The names by which browsers may ask for a dashboard that listens on `bind`."""
    address = ip_address(bind)
    if address.is_loopback:
        return (*LOOPBACK_NAMES, str(address))
    own = () if address.is_unspecified else (str(address),)
    return (*LOOPBACK_NAMES, *own, socket.gethostname().lower(), socket.getfqdn().lower())


def address_of(bind: str, port: int, *, is_secure: bool) -> str:
    """Where a browser on this computer finds a dashboard that listens on `bind`."""
    address = ip_address(bind)
    host = "127.0.0.1" if address.is_unspecified else f"[{address}]" if address.version == 6 else str(address)
    return f"{'https' if is_secure else 'http'}://{host}:{port}"
