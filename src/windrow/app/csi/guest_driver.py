"""`harvester-csi-driver` as a program of the emulator's guests, in this process.

It is the product's: its command line, its services, its connection to Harvester. Three things are the guest's: the socket,
where side-cars and the kubelet call by plain values; the files; and the mounts, which `guest_mounts` simulates.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Never

from windrow.app.csi.guest_mounts import GuestMounts
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.csi.cmd.arguments import parse_arguments
from windrow.csi.cmd.process import run
from windrow.csi.node import NodeService
from windrow.csi.server import Endpoint, UnixEndpoint, guarded_methods
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.emulator.guest_os.storage import NodeStorage
from windrow.kubernetes.kubeconfig import ClientConfig, ReadFile, parse_kubeconfig
from windrow.protocols.csi.values import METHODS, to_message, to_values

Connect = Callable[[ClientConfig], Transport]


async def run_driver(
    guest: ProgramContext, connect: Connect, read_file: ReadFile, log: logging.Logger
) -> int:
    """Run until cancelled; the exit code for a bad command line, and where the driver ends by itself."""
    from windrow import __version__

    storage = guest.storage
    assert storage is not None, "a node has storage"
    options = parse_arguments(guest.argv, guest.env, f"v{__version__}", log.error, log.info)
    if isinstance(options, int):
        return options
    mounts = GuestMounts(storage, guest.network.nfs, guest.clock)
    node = NodeService(mounts, options.node_id, mounts.count_own_disks, log) if options.node_id else None
    own_cluster = connect(parse_kubeconfig(guest.guest_kubeconfig)) if options.kubeconfig else None
    try:
        return await run(
            options,
            f"v{__version__}",
            read_file,
            connect,
            guest.clock,
            guest.rng,
            log,
            guest=own_cluster,
            node=node,
            serve=serving_in(storage),
        )
    finally:
        if node is not None:
            await node.aclose()


def serving_in(storage: NodeStorage) -> Callable[..., Any]:
    """What serves on a socket of the node instead of one of this computer."""

    @asynccontextmanager
    async def serve(
        endpoint: Endpoint, services: Mapping[str, object], clock: Clock, log: logging.Logger
    ) -> AsyncIterator[Endpoint]:
        methods = guarded_methods(services, clock, log)

        async def call(name: str, request: dict[str, Any]) -> dict[str, Any]:
            if name not in methods:
                raise CsiFailed("UNIMPLEMENTED", f"unknown method {name}")
            message = to_message(METHODS[name].request, request)
            context: Any = _Call()
            return to_values(await methods[name](message, context))

        assert isinstance(endpoint, UnixEndpoint), "charts name sockets"
        storage.listen(endpoint.path, call)
        try:
            yield endpoint
        finally:
            storage.close(endpoint.path, call)

    return serve


class _Call:
    """The context of one call: its caller waits for ever, and cancels."""

    def time_remaining(self) -> float | None:
        return timedelta(days=1).total_seconds()

    async def abort(self, code: Any, text: str) -> Never:
        raise CsiFailed(code.name, text)
