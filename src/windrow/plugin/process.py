"""The plugin process after its address line: composition with the real clock, randomness, files and sockets."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Thread

from windrow.core.rng import SystemRng
from windrow.plugin.driver import Driver
from windrow.plugin.environment import LineWriter, LocalFiles, ProcessEnv
from windrow.plugin.rpc_methods import RpcMethods
from windrow.plugin.rpc_server import RpcServer
from windrow.plugin.watchdog import Watchdog
from windrow.protocols.dockermachine import HEARTBEAT_TIMEOUT_S

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def serve(listener: int, started: float, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Serve the host on the socket `listener` until it is done, or silent; the exit code.

    `started` is when the listener was opened, by the monotonic clock. The caller ends the process at once.
    """
    # Ctrl-C reaches the host, too. A signal ends the process at once: what is being created is recorded in its configuration.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # The embedded interpreter may leave SIGPIPE fatal: then a host that stopped reading, or a Harvester that closes its
    # connection, would end the process without an error.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
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
    watchdog = Watchdog(time.monotonic, started, HEARTBEAT_TIMEOUT_S)
    server = RpcServer(RpcMethods(Driver(process), LineWriter(STANDARD_ERROR).write), watchdog, time.sleep)
    Thread(target=server.accept, args=(socket.socket(fileno=listener),), daemon=True).start()
    return watchdog.wait()


def _monotonic_utc() -> Callable[[], datetime]:
    """Now in UTC, advanced by the monotonic clock: setting the machine's clock changes no timeout."""
    begun, zero = datetime.now(UTC), time.monotonic()
    return lambda: begun + timedelta(seconds=time.monotonic() - zero)
