"""One run of `harvester-csi-driver`: the services, the connection to Harvester, and the socket.

Harvester need not answer at the start: the socket is served at once, Probe says not ready until the first lists are read, and
a call that needs Harvester waits for it as long as its caller does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.errors import UserError
from windrow.core.rng import Rng
from windrow.csi.cmd.arguments import Options
from windrow.csi.cmd.connection import HarvesterConnection, OtherHarvester, host_transport
from windrow.csi.controller import ControllerService
from windrow.csi.fencing.controller import NodeFencing
from windrow.csi.harvester.nodes import GuestNodes
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.identity import IdentityService
from windrow.csi.server import Endpoint, parse_endpoint, serving
from windrow.kubernetes.errors import Forbidden, KubeError
from windrow.kubernetes.kubeconfig import ClientConfig, ReadFile
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import SERVICE
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, NODE

# What serves: an endpoint, the implementation of each service by name, a clock and a log.
Serving = Callable[
    [Endpoint, Mapping[str, object], Clock, logging.Logger], AbstractAsyncContextManager[Endpoint]
]
GUEST_SERVICE = SERVICE.ref("kubernetes", "default")
ASK_GUEST_AGAIN = timedelta(seconds=15)


async def run(
    options: Options,
    version: str,
    read_file: ReadFile,
    connect: Callable[[ClientConfig], Transport],
    clock: Clock,
    rng: Rng,
    log: logging.Logger,
    *,
    guest: Transport | None = None,
    node: object | None = None,
    on_serving: Callable[[], None] = lambda: None,
    serve: Serving = serving,
) -> int:
    """Serve until cancelled. Returns 1 for a bad start, and where the kubeconfig leads to another Harvester.

    `guest` is the guest cluster's API, where there is one; `node` implements the service Node, where this process has it.
    `serve` is what serves instead of a socket.
    """
    problems: list[Exception] = []
    try:
        await _serve(options, version, read_file, connect, clock, rng, log, guest, node, on_serving, serve)
    except* (UserError, OtherHarvester) as group:
        problems += group.exceptions
    for problem in problems:
        log.error("%s; exiting", problem)
    return 1 if problems else 0


async def _serve(
    options: Options,
    version: str,
    read_file: ReadFile,
    connect: Callable[[ClientConfig], Transport],
    clock: Clock,
    rng: Rng,
    log: logging.Logger,
    guest: Transport | None,
    node: object | None,
    on_serving: Callable[[], None],
    serve: Serving,
) -> None:
    endpoint = parse_endpoint(options.endpoint)
    services: dict[str, object] = {} if node is None else {NODE: node}
    problem: Callable[[], str] = lambda: ""  # noqa: E731
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        if options.kubeconfig:
            connection = HarvesterConnection(options.kubeconfig, read_file, connect, clock, log)
            log.info(
                "Harvester: %s (%s), namespace %s",
                connection.config.server,
                connection.config.credential,
                connection.namespace,
            )
            volumes = HarvesterVolumes(
                host_transport(connection.transport, clock, rng),
                HostOptions(connection.namespace, options.host_storage_class, awaits_guest=guest is not None),
                clock,
                rng,
                log,
            )
            nodes = GuestNodes(guest, volumes.state, clock, rng, log) if guest is not None else None
            services[CONTROLLER] = ControllerService(IdempotentVolumes(volumes), log, nodes)
            problem = volumes.state.problem
            running = [tasks.create_task(one) for one in (connection.run(), volumes.run())]
            if guest is not None and nodes is not None:
                running.append(tasks.create_task(_learn_guest(volumes, Client(guest), clock, log)))
                running.append(tasks.create_task(nodes.run()))
            if guest is not None and nodes is not None and options.fence_nodes:
                host = host_transport(connection.transport, clock, rng)
                fencing = NodeFencing(guest, host, connection.namespace, nodes, clock, rng, log)
                running.append(tasks.create_task(fencing.run()))
            stack.callback(lambda: [one.cancel() for one in running])
        services[IDENTITY] = IdentityService(version, CONTROLLER in services, problem)
        async with serve(endpoint, services, clock, log):
            log.info("serving %s at %s", ", ".join(sorted(services)), options.endpoint)
            on_serving()
            await asyncio.Event().wait()


async def _learn_guest(volumes: HarvesterVolumes, guest: Client, clock: Clock, log: logging.Logger) -> None:
    """What this guest cluster is called on what it makes: the uid of its own service, which every cluster has. Where it may not
    be read, calls are answered without it, and it is asked for until it may."""
    logged = ""
    while True:
        try:
            volumes.set_guest(uid_of(await guest.get(GUEST_SERVICE)))
            return
        except Forbidden as error:
            volumes.set_guest("")
            if logged != str(error):
                log.warning(
                    "cannot read %s of the guest cluster: %s; volumes are not marked as its own, and those that any guest "
                    "cluster has marked are refused",
                    GUEST_SERVICE,
                    error,
                )
            logged = str(error)
        except KubeError as error:
            log.warning(
                "cannot read %s of the guest cluster: %s; calls about volumes wait for it",
                GUEST_SERVICE,
                error,
            )
        await sleep(clock, ASK_GUEST_AGAIN)
