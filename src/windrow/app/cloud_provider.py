"""`harvester-cloud-provider` as a process of its own: the console script.

Little is imported before the command line is parsed. SIGTERM, SIGINT and SIGHUP end the process after it released its
Lease; a second signal ends it without.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn, TextIO

from windrow.cloudprovider.cmd.arguments import PROGRAM, parse_arguments
from windrow.cloudprovider.options import Options
from windrow.core.files import read_text
from windrow.core.logs import new_formatter

# The lowest level of these loggers without `-v`: the program reports its watches itself, and bad requests to the port
# are no errors of the program.
_MINIMUM_LEVELS = {"windrow.client.informer": logging.ERROR, "aiohttp.server": logging.CRITICAL}


def main() -> int:
    """The console script."""
    try:
        # By its name, whatever the started file is called.
        options = parse_arguments([PROGRAM, *sys.argv[1:]], log_line, print_line)
    except BrokenPipeError:  # as `2>&1 | head` leaves it
        _discard_output(sys.stderr)
        return 1
    if isinstance(options, int):
        return options
    configure_logs(options)
    env = {**os.environ}
    if not env.get("HOSTNAME"):  # shells set it and do not always export it
        import socket

        env["HOSTNAME"] = socket.gethostname()
    return _run_service(options, env)


def _run_service(options: Options, env: Mapping[str, str]) -> int:
    from windrow.app.loop import run_service

    try:
        return run_service(_run(options, env))
    except KeyboardInterrupt:
        return 0


async def _run(options: Options, env: Mapping[str, str]) -> int:
    import asyncio

    from windrow import __version__
    from windrow.app.clock import SystemClock
    from windrow.client.http_transport import ConnectionPool, HttpTransport
    from windrow.client.transport import Transport
    from windrow.cloudprovider.cmd.main import run
    from windrow.cloudprovider.cmd.server import serve_over_sockets
    from windrow.core.rng import Rng
    from windrow.kubernetes.kubeconfig import ClientConfig

    clock = SystemClock()
    async with ConnectionPool() as pool:

        def connect(access: ClientConfig) -> Transport:
            return HttpTransport(access, clock, env=env, user_agent=f"{PROGRAM}/v{__version__}", pool=pool)

        try:
            code = await run(
                options,
                env,
                read_text,
                connect,
                clock,
                Rng(),
                logging.getLogger(PROGRAM),
                serve=serve_over_sockets(clock, read_text),
                is_replaced=_is_replaced,
            )
        except asyncio.CancelledError:
            with suppress(OSError):
                log_line("stopped by a signal")
            code = 0
        except Exception as error:
            _log_crash(error)
            code = 1
    _exit(code)


def _exit(code: int) -> NoReturn:
    """End the process without waiting for threads: a name resolution may take minutes."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _log_crash(error: Exception) -> None:
    """An error that is a defect: with its traceback, where standard error is open."""
    import traceback

    with suppress(OSError):
        log_line("FATAL: unexpected error; exiting, so that the pod restarts")
        traceback.print_exception(error, file=sys.stderr)


def print_line(line: str) -> None:
    """One line to standard output; a closed pipe is ignored."""
    try:
        print(line, flush=True)
    except BrokenPipeError:  # as `| head` leaves it
        _discard_output(sys.stdout)


def _discard_output(stream: TextIO) -> None:
    """Send further output of the stream to /dev/null; the interpreter flushes it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def log_line(line: str) -> None:
    """One line to standard error, with the time."""
    print(f"{_now()} {' '.join(line.splitlines())}", file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_replaced(path: str) -> bool:
    """Whether the file was unlinked and lives on because it is mounted."""
    try:
        return os.stat(path).st_nlink == 0
    except OSError:
        return False


class StderrHandler(logging.StreamHandler[TextIO]):
    """Raises where a record cannot be written: a closed pipe ends the program, with its Lease released."""

    def handleError(self, record: logging.LogRecord) -> None:
        raise  # the error that is being handled


def configure_logs(options: Options) -> None:
    """The program's own log is at INFO. Libraries: 0 and 1 warnings, 3 INFO, 5 DEBUG with tracebacks."""
    level = logging.WARNING
    if options.verbosity >= 3:
        level = logging.INFO
    if options.verbosity >= 5:
        level = logging.DEBUG
    handler = StderrHandler(sys.stderr)
    handler.setFormatter(new_formatter(options.log_format, _now, tracebacks=options.verbosity >= 5))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in _MINIMUM_LEVELS.items() if options.verbosity < 1 else ():
        logging.getLogger(name).setLevel(least)
    logging.getLogger(PROGRAM).setLevel(logging.INFO)
    for name in ("asyncio", "aiohttp"):  # their DEBUG records are about themselves
        logging.getLogger(name).setLevel(max(level, logging.INFO))


if __name__ == "__main__":
    sys.exit(main())
