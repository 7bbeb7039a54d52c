"""The program `harvester-cloud-provider`: connections to the two clusters, leader election, and the controllers.

Runs in the guest cluster. `--cloud-config` is a whole kubeconfig for Harvester whose context names the namespace of
the VMs; the guest's own API is reached by `--kubeconfig`, KUBECONFIG, or the pod's service account.

Rights in the guest: leases get, create, update; events create, patch; and what `server` and the controllers list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from urllib.parse import urlsplit

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.client.leader_election import (
    LeaderElectionConfig,
    LeaderElector,
    LeadershipLost,
    LeaderTransport,
)
from windrow.client.middleware.metrics import InstrumentedTransport
from windrow.client.middleware.rate_limit import RateLimitedTransport, SeparateEventBudget
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd.arguments import NAME, PROGRAM, print_failure
from windrow.cloudprovider.cmd.server import CannotServe, ProcessHealth, Serve
from windrow.cloudprovider.connection.cluster_connection import ClusterConnection
from windrow.cloudprovider.connection.namespace_check import check_namespace
from windrow.cloudprovider.connection.sources import guest_source, host_source
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.controllers import Controllers
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import ROUTE_CONTROLLER
from windrow.cloudprovider.options import Options
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.core.wait import Stopped, run_until
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile
from windrow.kubernetes.requests import Request

# How soon a renewed credential is noticed when no request is rejected before.
FILE_CHECK_PERIOD = timedelta(seconds=5)
EVENT_TIMEOUT_S = 5.0
# From this `-v` on each request has a line, as in client-go.
LOG_REQUESTS = 6


async def run(
    options: Options,
    env: Mapping[str, str],
    read_file: ReadFile,
    connect: Callable[[ClientConfig], Transport],
    clock: Clock,
    rng: Rng,
    log: logging.Logger,
    *,
    serve: Serve | None = None,
    metrics: Metrics | None = None,
    is_replaced: Callable[[str], bool] = lambda path: False,
) -> int:
    """Run until cancelled; then the Lease is released. Returns 1 for a bad start, for lost leadership, and where only a
    restart brings a new credential.

    Without `serve` no port is opened, whatever the flags say. `is_replaced` is explained in `cluster_connection`.
    """
    metrics = metrics or Metrics()
    try:
        rest = connect, read_file, clock, log, metrics, is_replaced
        host = ClusterConnection("host", host_source(options), *rest)
        guest = ClusterConnection("guest", guest_source(options, env), *rest)
    except BadKubeconfig as error:
        print_failure(error, log.error)
        return 1
    program = Program(options, env, host, guest, clock, rng, log, metrics)
    program.log_configuration()
    try:
        async with program.serving(serve):
            return await program.run()
    except CannotServe as error:
        print_failure(error, log.error)
        return 1


class RestartNeeded(Exception):
    """Only a restart of the process helps; the message says why."""


class Program:
    """One run of the process."""

    def __init__(
        self,
        options: Options,
        env: Mapping[str, str],
        host: ClusterConnection,
        guest: ClusterConnection,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
        metrics: Metrics,
    ) -> None:
        self._options = options
        self._host, self._guest = host, guest
        self._clock, self._rng, self._log = clock, rng, log
        self._metrics = metrics
        self._health = ProcessHealth(options, metrics, clock)
        self._identity = f"{env.get('HOSTNAME') or PROGRAM}_{rng.uid()}"
        self._elector: LeaderElector | None = None
        self._connection_changed = asyncio.Event()
        # Why only a restart helps, as soon as that is so, whether this process leads or stands by.
        self._restart_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for connection in (host, guest):
            connection.on_changed = self._restart_controllers
            connection.on_restart_needed = self._require_restart
        host.validate = self._check_namespace

    def log_configuration(self) -> None:
        options = self._options
        flags = [
            f"--cluster-name={options.cluster_name}",
            f"--management-network={options.management_network}",
            f"--node-ip-cidr={','.join(map(str, options.node_ip_cidr))}",
            f"--node-exclude-ip-ranges={','.join(map(str, options.node_exclude_ip_ranges))}",
            f"--disable-vmi-controller={str(options.disable_vmi_controller).lower()}",
            f"--disable-annotation-alpha-provided-ip-addr={str(options.ignore_provided_ip).lower()}",
        ]
        self._log.info("%s effective configurations: %s", NAME, " ".join(flags))
        host, guest = self._host.config, self._guest.config
        self._log.info(
            "Harvester: %s (%s); guest cluster: %s (%s)",
            host.server,
            host.credential,
            guest.server,
            guest.credential,
        )
        if options.ignored:
            self._log.info("accepted without effect: %s", ", ".join(options.ignored))
        for warning in (*options.warnings, self._host.namespace_warning()):
            if warning:
                self._log.warning("%s", warning)

    @asynccontextmanager
    async def serving(self, serve: Serve | None) -> AsyncIterator[None]:
        """With the port for probes and metrics open, where one is wanted. Raises CannotServe."""
        if serve is None or self._options.secure_port == 0:
            yield
            return
        endpoints = self._health.endpoints(self._instrumented(self._guest))
        async with serve(self._options, endpoints, self._log):
            yield

    async def run(self) -> int:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch_files())
            try:
                await self._run_until_restart_needed()
            except LeadershipLost as error:
                self._log.error("leaderelection lost: %s", error)
                return 1
            except RestartNeeded as error:
                self._log.error("%s; exiting, so that the pod restarts", error)
                return 1
            finally:
                watching.cancel()
        return 0

    async def _run_until_restart_needed(self) -> None:
        """Raises RestartNeeded as soon as a restart is needed, with the Lease released."""
        try:
            await run_until(self._run_elected(), asyncio.shield(self._restart_reason))
        except Stopped:
            raise RestartNeeded(self._restart_reason.result()) from None

    async def _run_elected(self) -> None:
        options = self._options
        if not options.leader_elect:
            await self._run_controllers()
            return
        config = LeaderElectionConfig(options.lease_duration, options.renew_deadline, options.retry_period)
        # The Lease is renewed past the rate limit: a burst of other requests must not cost the leadership.
        client = Client(self._instrumented(self._guest))
        elector = LeaderElector(
            client,
            options.lease_namespace,
            options.lease_name,
            self._identity,
            self._clock,
            self._rng,
            config,
        )
        self._elector = elector
        self._health.set_elector(elector)
        lease = f"{options.lease_namespace}/{options.lease_name}"
        self._log.info("attempting to acquire leader lease %s...", lease)

        async def lead() -> None:
            self._log.info("successfully acquired lease %s", lease)
            await self._run_controllers()

        await elector.run(lead)

    async def _run_controllers(self) -> None:
        """Keep the guest in step with its VMs until cancelled; with new controllers when a connection has changed."""
        while True:
            self._connection_changed.clear()
            await self._run_controllers_once()

    async def _run_controllers_once(self) -> None:
        namespace, options = self._host.namespace, self._options
        self._log.info("running the controllers: watching VirtualMachines in namespace %s", namespace)
        context = ControllerContext(
            self._rate_limited(self._guest, options.qps, options.burst),
            self._rate_limited(self._host, options.host_qps, options.host_burst),
            namespace,
            options,
            self._clock,
            self._rng,
            self._log,
            self._metrics,
        )
        controllers = Controllers(context)
        running = options.controllers - {ROUTE_CONTROLLER}
        self._health.controllers_started(running, controllers.pending_caches)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controllers.run())
            try:
                await self._connection_changed.wait()
            finally:
                self._health.controllers_stopped(
                    running
                )  # before the tasks end: one that does not is unhealthy
            task.cancel()

    def _restart_controllers(self, why: str) -> None:
        self._log.info("restarting the controllers: %s", why)
        self._connection_changed.set()

    def _require_restart(self, why: str) -> None:
        if not self._restart_reason.done():
            self._restart_reason.set_result(why)

    # --- requests -------------------------------------------------------------------------------------------------

    def _rate_limited(self, connection: ClusterConnection, per_second: float, burst: int) -> Transport:
        def limited() -> Transport:
            inner = self._instrumented(connection)
            if self._elector is not None:
                inner = LeaderTransport(inner, self._elector)
            return RateLimitedTransport(inner, self._clock, per_second=per_second, burst=burst)

        return RetryingTransport(SeparateEventBudget(limited(), limited()), self._clock, self._rng)

    def _instrumented(self, connection: ClusterConnection) -> Transport:
        def on_reply(request: Request, code: str, seconds: float) -> None:
            server = connection.config.server
            self._metrics.observe_request(urlsplit(server).netloc, request.method, code, seconds)
            if self._options.verbosity >= LOG_REQUESTS:
                method = "WATCH" if request.query_parameter("watch") else request.method
                self._log.info("%s %s%s %s in %.0f ms", method, server, request.path, code, seconds * 1000)

        return InstrumentedTransport(connection.transport, self._clock, on_reply)

    # --- credentials ----------------------------------------------------------------------------------------------

    async def _watch_files(self) -> None:
        """Reload renewed credentials, and warn of those that expire soon."""
        while True:
            for connection in (self._host, self._guest):
                await connection.reload()
                warning = connection.expiry_warning()
                if warning:
                    self._log.warning("%s", warning)
                    await self._record_expiry(warning)
            await sleep(self._clock, FILE_CHECK_PERIOD)

    async def _check_namespace(self, host: Transport, namespace: str) -> str:
        return await check_namespace(Client(self._instrumented(self._guest)), Client(host), namespace)

    async def _record_expiry(self, warning: str) -> None:
        """An event on the Lease, for operators who read the events of kube-system and not this log."""
        if self._elector is None or not self._elector.is_leader:
            return
        recorder = EventRecorder(Client(self._instrumented(self._guest)), PROGRAM, self._clock, self._rng)
        note = EventNote(self._elector.ref, "", "CredentialExpiring", warning, "Warning")
        # A guest API that does not answer must not delay the next read of the files.
        with suppress(TimeoutError):
            async with asyncio.timeout(EVENT_TIMEOUT_S):
                await recorder.write(note)
