"""The process behind the address line: the edge, where clock, chance, disk and sockets are the real ones."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Thread

from windrow.core.rng import SystemRng
from windrow.plugin.disk import Disk
from windrow.plugin.driver import Driver
from windrow.plugin.edge import Edge
from windrow.plugin.lifetime import Lifetime
from windrow.plugin.methods import Methods
from windrow.plugin.service import Service
from windrow.plugin.telling import Teller
from windrow.protocols.dockermachine import HEARTBEAT_TIMEOUT_S

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def serve(listener: int, started: float, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Serve the host on the socket `listener` until it is done, or silent; the exit code.

    `started` is when the listener was opened, by the monotonic clock. The caller ends the process at once.
    """
    # Ctrl-C reaches the host, too; whoever asks us to end means now. What is being made is on record.
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_DFL)
    # An interpreter that is built in may leave this one deadly: then a host that reads no more, or a Harvester that
    # hangs up, would end us without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    rng = SystemRng()
    edge = Edge(
        argv=argv,
        env=dict(env),
        now=_steady_clock(),
        monotonic=time.monotonic,
        sleep=time.sleep,
        rng=rng,
        say=Teller(STANDARD_OUTPUT).say,
        disk=Disk(rng),
    )
    lifetime = Lifetime(time.monotonic, started, HEARTBEAT_TIMEOUT_S)
    service = Service(Methods(Driver(edge), Teller(STANDARD_ERROR).say), lifetime, time.sleep)
    Thread(target=service.accept, args=(socket.socket(fileno=listener),), daemon=True).start()
    return lifetime.wait()


def _steady_clock() -> Callable[[], datetime]:
    """The time of day for measuring waits: whoever sets the machine's clock cuts none of them short."""
    begun, zero = datetime.now(UTC), time.monotonic()
    return lambda: begun + timedelta(seconds=time.monotonic() - zero)
