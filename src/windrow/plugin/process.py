"""The plugin process after its address line: composition with the real clock, randomness, files and sockets."""

from __future__ import annotations

import time

# `signal` makes enumerations of these, and is no faster.
from _signal import SIG_DFL, SIG_IGN, SIGINT, SIGPIPE, SIGTERM  # type: ignore[import-not-found]
from _signal import signal as set_signal
from _socket import socket as raw_socket
from threading import Thread

from windrow.plugin.rpc_methods import RpcMethods
from windrow.plugin.rpc_server import RpcServer
from windrow.plugin.watchdog import Watchdog
from windrow.protocols.dockermachine import HEARTBEAT_TIMEOUT_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from windrow.plugin.driver import Driver

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def serve(listener: int, started: float, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Serve the host on the socket `listener` until it is done, or silent; the exit code.

    `started` is when the listener was opened, by the monotonic clock. The caller ends the process at once.
    """
    # Ctrl-C reaches the host, too. A signal ends the process at once: what is being created is recorded in its configuration.
    for number in (SIGINT, SIGTERM):
        set_signal(number, SIG_DFL)
    # The embedded interpreter may leave SIGPIPE fatal: then a host that stopped reading, or a Harvester that closes its
    # connection, would end the process without an error.
    set_signal(SIGPIPE, SIG_IGN)
    watchdog = Watchdog(time.monotonic, started, HEARTBEAT_TIMEOUT_S)
    server = RpcServer(RpcMethods(lambda: _make_driver(argv, env), _log_defect), watchdog, time.sleep)
    Thread(target=server.accept, args=(raw_socket(fileno=listener),), daemon=True).start()
    return watchdog.wait()


def _make_driver(argv: Sequence[str], env: Mapping[str, str]) -> Driver:
    from windrow.core.rng import SystemRng
    from windrow.plugin.driver import Driver
    from windrow.plugin.environment import LineWriter, LocalFiles, ProcessEnv

    rng = SystemRng()
    process = ProcessEnv(
        argv=argv,
        env=dict(env),
        now=_monotonic_utc(),
        monotonic=time.monotonic,
        sleep=time.sleep,
        rng=rng,
        log=LineWriter(STANDARD_OUTPUT).write,
        files=LocalFiles(rng),
    )
    return Driver(process)


def _log_defect(text: str) -> None:
    from windrow.plugin.environment import LineWriter

    LineWriter(STANDARD_ERROR).write(text)


def _monotonic_utc() -> Callable[[], datetime]:
    """Now in UTC, advanced by the monotonic clock: setting the machine's clock changes no timeout."""
    from datetime import UTC, datetime, timedelta

    begun, zero = datetime.now(UTC), time.monotonic()
    return lambda: begun + timedelta(seconds=time.monotonic() - zero)
