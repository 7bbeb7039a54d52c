"""`harvester-csi-driver` as a process of its own: the console script.

SIGTERM, SIGINT and SIGHUP end the process after the calls that run; a second signal ends it without.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.core.files import read_text
from windrow.core.logs import new_formatter
from windrow.csi.cmd.arguments import PROGRAM, Options, parse_arguments

if TYPE_CHECKING:
    from windrow.csi.node import NodeService


def main() -> int:
    """The console script."""
    from windrow import __version__

    # Read by grpcio when it is imported: tools such as mkfs are started from this process, and no Python is forked.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    env = {**os.environ}
    options = parse_arguments([PROGRAM, *sys.argv[1:]], env, f"v{__version__}", _error_line, print)
    if isinstance(options, int):
        return options
    _configure_logs(options)
    from windrow.app.loop import run_service

    try:
        return run_service(_run(options, env))
    except KeyboardInterrupt:
        return 0


async def _run(options: Options, env: Mapping[str, str]) -> int:
    from windrow import __version__
    from windrow.app.clock import SystemClock
    from windrow.client.http_transport import ConnectionPool, HttpTransport
    from windrow.client.transport import Transport
    from windrow.core.rng import Rng
    from windrow.csi.cmd.process import run
    from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, in_cluster_config

    clock, log = SystemClock(), logging.getLogger(PROGRAM)
    async with ConnectionPool() as pool:

        def connect(access: ClientConfig) -> Transport:
            return HttpTransport(access, clock, env=env, user_agent=f"{PROGRAM}/v{__version__}", pool=pool)

        guest: Transport | None = None
        try:
            guest = connect(in_cluster_config(env, read_text))
        except BadKubeconfig as error:
            log.info("volumes are not marked as this guest cluster's: %s", error.message)
        node = _node_service(options, clock, log)
        try:
            return await run(
                options, f"v{__version__}", read_text, connect, clock, Rng(), log, guest=guest, node=node
            )
        finally:
            if node is not None:
                await node.aclose()


def _node_service(options: Options, clock: Clock, log: logging.Logger) -> NodeService | None:
    """The service Node, where the process is told its node. Its records lie beside the socket, in a folder of the node."""
    if not options.node_id:
        return None
    from windrow.csi.mounts.devices import DeviceTree
    from windrow.csi.mounts.linux.mounts import LinuxMounts
    from windrow.csi.node import NodeService
    from windrow.csi.server import UnixEndpoint, parse_endpoint

    try:
        endpoint = parse_endpoint(options.endpoint)
    except UserError:
        return None  # `run` refuses it
    folder = Path(endpoint.path).parent if isinstance(endpoint, UnixEndpoint) else Path(tempfile.gettempdir())
    devices = DeviceTree()
    mounts = LinuxMounts(clock, folder / "formatting", devices)
    return NodeService(mounts, options.node_id, devices.count_own_disks, log)


def _error_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _configure_logs(options: Options) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(new_formatter(options.log_format, tracebacks=True))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("windrow.client.informer").setLevel(logging.WARNING)
    logging.getLogger(PROGRAM).setLevel(logging.DEBUG if options.debug else logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
