"""A dashboard beside an API server of ours, where one was asked for."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from windrow.apiserver.http import tls_context
from windrow.apiserver.server import ApiServer
from windrow.app.access.management import ManagementAccess, install_code_role
from windrow.app.access.service import DashboardOptions, DashboardSettings
from windrow.app.state.directory import CA_FILE
from windrow.app.state.pki import ApiServerCa, RenewingIdentity, serving_names
from windrow.client.client import Client
from windrow.core.clock import Clock
from windrow.kubernetes.handler import TlsIdentity


@asynccontextmanager
async def dashboard_beside(
    api: ApiServer, options: DashboardOptions | None, ca: ApiServerCa, state_dir: Path, clock: Clock
) -> AsyncIterator[str]:
    """The dashboard while entered; gives its address, "" where none was asked for."""
    if options is None:
        yield ""
        return
    await install_code_role(Client(api.local()))
    tls = (lambda: None) if ip_address(options.bind).is_loopback else _tls(ca, state_dir, clock, options.bind)
    access = ManagementAccess(api)
    async with options.run(
        DashboardSettings(access, clock, state_dir, options.bind, options.port, tls)
    ) as address:
        yield address


def _tls(ca: ApiServerCa, state_dir: Path, clock: Clock, bind: str) -> Callable[[], ssl.SSLContext | None]:
    """The TLS context of new connections, with a certificate of the manager's CA. It asks browsers for none of theirs."""
    served = RenewingIdentity(ca, state_dir / CA_FILE, clock, serving_names(bind), lambda: None)
    made: list[tuple[TlsIdentity, ssl.SSLContext]] = []

    def current() -> ssl.SSLContext:
        identity = replace(served.current(), client_ca="")
        if not made or made[0][0] != identity:
            made[:] = [(identity, tls_context(identity))]
        return made[0][1]

    return current
