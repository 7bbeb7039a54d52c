"""The program `harvester-cloud-provider`: its command line, its ways to the two clusters, its lead, its end.

Runs in the guest cluster. `--cloud-config` is a whole kubeconfig for Harvester whose context names the namespace of
the VMs; the guest's own API is reached by `--kubeconfig`, KUBECONFIG, or the pod's service account.

Of the guest it asks itself: leases get, create, update; events create, patch; and what `serving` names. What the
controllers ask, their modules say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.client.leader_election import LeaderElectionConfig, LeaderElector, LeadershipLost
from windrow.client.middleware.metrics import InstrumentedTransport
from windrow.client.middleware.rate_limit import RateLimitedTransport, SeparateEventBudget
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd.arguments import NAME, PROGRAM, parse_arguments, print_failure
from windrow.cloudprovider.cmd.flags import Options
from windrow.cloudprovider.cmd.server import CannotServe, ProcessHealth, Serve
from windrow.cloudprovider.connection.cluster_connection import ClusterConnection, guest_source, host_source
from windrow.cloudprovider.connection.namespace_check import check_namespace
from windrow.cloudprovider.controllers import Controllers
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import ROUTE_CONTROLLER
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile
from windrow.kubernetes.requests import Request

log = logging.getLogger(__name__)

# How soon a renewed credential is noticed, should nobody be refused before.
FILE_CHECK_PERIOD = timedelta(seconds=5)
EVENT_TIMEOUT_S = 5.0
# From this `-v` on each request has a line, as in client-go.
LOG_REQUESTS = 6

Say = Callable[[str], None]


async def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    read_file: ReadFile,
    connect: Callable[[ClientConfig], Transport],
    clock: Clock,
    rng: Rng,
    say: Say,
    *,
    serve: Serve | None = None,
    metrics: Metrics | None = None,
    is_replaced: Callable[[str], bool] = lambda path: False,
) -> int:
    """Run until cancelled; then the Lease is released. Returns 1 for a bad start, for a lost lead, and where only a new
    start brings a new credential.

    Without `serve` no port is opened, whatever the flags say. `is_replaced` is explained in `ways`.
    """
    options = parse_arguments(argv, say)
    if isinstance(options, int):
        return options
    counted_metrics = metrics or Metrics()
    try:
        host = ClusterConnection(
            "host", host_source(options), connect, read_file, clock, say, counted_metrics, is_replaced
        )
        guest = ClusterConnection(
            "guest", guest_source(options, env), connect, read_file, clock, say, counted_metrics, is_replaced
        )
    except BadKubeconfig as error:
        print_failure(error, say)
        return 1
    program = Program(options, env, host, guest, clock, rng, say, counted_metrics)
    program.log_configuration()
    try:
        async with program.serving(serve):
            return await program.run()
    except CannotServe as error:
        print_failure(error, say)
        return 1


class RestartNeeded(Exception):
    """Only a new start of the process can help."""


class Program:
    """One life of the process."""

    def __init__(
        self,
        options: Options,
        env: Mapping[str, str],
        host: ClusterConnection,
        guest: ClusterConnection,
        clock: Clock,
        rng: Rng,
        say: Say,
        metrics: Metrics,
    ) -> None:
        self._options = options
        self._host, self._guest = host, guest
        self._clock, self._rng, self._say = clock, rng, say
        self._metrics = metrics
        self._health = ProcessHealth(options, metrics, clock)
        self._identity = f"{env.get('HOSTNAME') or PROGRAM}_{rng.uid()}"
        self._elector: LeaderElector | None = None
        self._connection_changed = asyncio.Event()
        # Why only a new start helps, once that is so; whether we lead or stand by.
        self._restart_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for way in (host, guest):
            way.on_changed = self._restart_controllers
            way.on_restart_needed = self._require_restart
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
        self._say(f"{NAME} effective configurations: {' '.join(flags)}")
        host, guest = self._host.access, self._guest.access
        self._say(f"Harvester is {host.server} ({host.credential}); the guest cluster is {guest.server}")
        if options.ignored:
            self._say(f"accepted without effect: {', '.join(options.ignored)}")
        for warning in (*options.warnings, self._host.namespace_warning()):
            if warning:
                self._say(f"warning: {warning}")

    @asynccontextmanager
    async def serving(self, serve: Serve | None) -> AsyncIterator[None]:
        """The port is open meanwhile, where there is one. Raises CannotServe."""
        wanted = serve is not None and self._options.secure_port != 0
        pages = self._health.endpoints(self._instrumented(self._guest))
        async with serve(self._options, pages, self._say) if wanted and serve else nullcontext():
            yield

    async def run(self) -> int:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._watch_files())
            try:
                await self._run_until_restart_needed()
            except LeadershipLost as error:
                self._say(f"leaderelection lost: {error}")
                return 1
            except RestartNeeded as error:
                self._say(f"{error}; ending, so that this is started anew")
                return 1
            finally:
                following.cancel()
        return 0

    async def _run_until_restart_needed(self) -> None:
        """Raises RestartNeeded as soon as we are, with the Lease given back."""
        leading = asyncio.ensure_future(self._run_elected())
        either: set[asyncio.Future[Any]] = {leading, self._restart_reason}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_leading = not leading.done()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
        if was_leading:
            raise RestartNeeded(self._restart_reason.result())
        leading.result()

    async def _run_elected(self) -> None:
        options = self._options
        if not options.leader_elect:
            await self._run_controllers()
            return
        terms = LeaderElectionConfig(options.lease_duration, options.renew_deadline, options.retry_period)
        # The Lease is renewed past the rate limit: a burst of other calls must not cost the lead.
        client = Client(self._instrumented(self._guest))
        candidate = LeaderElector(
            client,
            options.lease_namespace,
            options.lease_name,
            self._identity,
            self._clock,
            self._rng,
            terms,
        )
        self._elector = candidate
        self._health.set_elector(candidate)
        lease = f"{options.lease_namespace}/{options.lease_name}"
        self._say(f"attempting to acquire leader lease {lease}...")

        async def work() -> None:
            self._say(f"successfully acquired lease {lease}")
            await self._run_controllers()

        await candidate.run(work)

    async def _run_controllers(self) -> None:
        """Keep the guest in step with its VMs until cancelled; from the start again where the ways have changed."""
        while True:
            self._connection_changed.clear()
            await self._run_controllers_once()
            self._say("the work starts anew")

    async def _run_controllers_once(self) -> None:
        namespace = self._host.namespace
        self._say(f"leading; VMs are looked for in namespace {namespace!r}")
        options = self._options
        provider = Controllers(
            self._rate_limited(self._guest, options.qps, options.burst),
            self._rate_limited(self._host, options.host_qps, options.host_burst),
            namespace,
            options,
            self._clock,
            self._rng,
            self._say,
            self._metrics,
        )
        running = options.controllers - {ROUTE_CONTROLLER}
        self._health.controllers_started(running, provider.pending_caches)
        async with asyncio.TaskGroup() as group:
            providing = group.create_task(provider.run())
            try:
                await self._connection_changed.wait()
            finally:
                self._health.controllers_stopped(
                    running
                )  # before their end: one that does not come is an illness
            providing.cancel()

    def _restart_controllers(self, why: str) -> None:
        self._say(why)
        self._connection_changed.set()

    def _require_restart(self, why: str) -> None:
        if not self._restart_reason.done():
            self._restart_reason.set_result(why)

    # --- requests -------------------------------------------------------------------------------------------------

    def _rate_limited(self, way: ClusterConnection, per_second: float, burst: int) -> Transport:
        def limited() -> Transport:
            return RateLimitedTransport(
                self._instrumented(way), self._clock, per_second=per_second, burst=burst
            )

        return RetryingTransport(SeparateEventBudget(limited(), limited()), self._clock, self._rng)

    def _instrumented(self, way: ClusterConnection) -> Transport:
        def on_reply(request: Request, code: str, seconds: float) -> None:
            parts = urlsplit(way.access.server)
            self._metrics.observe_request(parts.netloc, request.method, code, seconds)
            if self._options.verbosity >= LOG_REQUESTS:
                method = "WATCH" if request.query_parameter("watch") else request.method
                log.info(
                    "%s %s%s %s in %.0f ms", method, way.access.server, request.path, code, seconds * 1000
                )

        return InstrumentedTransport(way.transport, self._clock, on_reply)

    # --- credentials ----------------------------------------------------------------------------------------------

    async def _watch_files(self) -> None:
        """Notice renewed credentials, and warn of those that end soon."""
        while True:
            for way in (self._host, self._guest):
                await way.reload()
                warning = way.expiry_warning()
                if warning:
                    self._say(f"warning: {warning}")
                    await self._record_event(warning)
            await sleep(self._clock, FILE_CHECK_PERIOD)

    async def _check_namespace(self, host: Transport, namespace: str) -> str:
        return await check_namespace(Client(self._instrumented(self._guest)), Client(host), namespace)

    async def _record_event(self, warning: str) -> None:
        """An event about the Lease: who does not read this log may read the events of kube-system."""
        if self._elector is None or not self._elector.is_leader:
            return
        recorder = EventRecorder(Client(self._instrumented(self._guest)), PROGRAM, self._clock, self._rng)
        told = EventNote(self._elector.ref, "", "CredentialExpires", warning, "Warning")
        with suppress(TimeoutError):  # a guest that does not answer must not keep us from the files
            async with asyncio.timeout(EVENT_TIMEOUT_S):
                await recorder.write(told)
