"""Start of the plugin process: the address line leaves before the driver is loaded.

A host waits 10 s for that line, and starts one process per machine and question; so what is imported up here counts.
Everything else is loaded while the host dials.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_INET, SOCK_STREAM
from _socket import socket as raw_socket  # the module `socket` costs 6 ms more, before it is needed
from time import monotonic

TOKEN_ENV, TOKEN = "MACHINE_PLUGIN_TOKEN", "42"
USAGE = """\
This is a Docker Machine plugin binary.
Plugin binaries are not intended to be invoked directly.
Please use this plugin through the main 'docker-machine' binary.
(API version: 1)
"""
BACKLOG = 16


def main() -> None:
    """The console script. Ends the process at once, whatever its threads are doing: see `windrow.plugin.watchdog`."""
    os._exit(start())


def start() -> int:
    """Serve one host until it is done, or silent; the exit code. Standard output is the host's from the first line on."""
    if os.environ.get(TOKEN_ENV) != TOKEN:
        _write(2, USAGE)
        return 1
    started = monotonic()
    try:
        listener = raw_socket(AF_INET, SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(BACKLOG)
    except OSError as error:
        _write(2, f"Error starting plugin server: {error.strerror}\n")
        return 1
    _write(1, f"127.0.0.1:{listener.getsockname()[1]}\n")

    from windrow.plugin.process import serve

    return serve(listener.detach(), started, sys.argv[1:], os.environ)


def _write(descriptor: int, text: str) -> None:
    try:  # noqa: SIM105 - contextlib would have to be loaded
        os.write(descriptor, text.encode())
    except OSError:
        pass  # the host has closed its end; it notices that no plugin answers


if __name__ == "__main__":
    main()
