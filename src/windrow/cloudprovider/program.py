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
from windrow.client.lease import Candidate, LeadershipLost, Terms
from windrow.client.limited import EventsApart, LimitedTransport
from windrow.client.measured import MeasuredTransport
from windrow.client.recording import Recorder, Told
from windrow.client.retrying import RetryingTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.kinship import find_doubt
from windrow.cloudprovider.measures import Measures
from windrow.cloudprovider.names import ROUTE_CONTROLLER
from windrow.cloudprovider.provider import Provider
from windrow.cloudprovider.serving import CannotServe, Serve, Vitals
from windrow.cloudprovider.start import NAME, PROGRAM, begin, complain
from windrow.cloudprovider.ways import Way, guest_source, host_source
from windrow.kube.kubeconfig import Access, BadKubeconfig, ReadFile
from windrow.kube.requests import Request
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

log = logging.getLogger(__name__)

# How soon a renewed credential is noticed, should nobody be refused before.
LOOK_AT_FILES = timedelta(seconds=5)
ANNOUNCE_S = 5.0
# From this `-v` on each request has a line, as in client-go.
LOG_REQUESTS = 6

Say = Callable[[str], None]


async def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    read_file: ReadFile,
    dial: Callable[[Access], Transport],
    clock: Clock,
    chance: Chance,
    out: Say,
    *,
    serve: Serve | None = None,
    measures: Measures | None = None,
    is_replaced: Callable[[str], bool] = lambda path: False,
) -> int:
    """Run until cancelled; then the Lease is released. Returns 1 for a bad start, for a lost lead, and where only a new
    start brings a new credential.

    Without `serve` no port is opened, whatever the flags say. `is_replaced` is explained in `ways`.
    """
    options = begin(argv, out)
    if isinstance(options, int):
        return options
    counted = measures or Measures()
    try:
        host = Way("host", host_source(options), dial, read_file, clock, out, counted, is_replaced)
        guest = Way("guest", guest_source(options, env), dial, read_file, clock, out, counted, is_replaced)
    except BadKubeconfig as error:
        complain(error, out)
        return 1
    program = Program(options, env, host, guest, clock, chance, out, counted)
    program.introduce()
    try:
        async with program.served(serve):
            return await program.run()
    except CannotServe as error:
        complain(error, out)
        return 1


class Stuck(Exception):
    """Only a new start of the process can help."""


class Program:
    """One life of the process."""

    def __init__(
        self,
        options: Options,
        env: Mapping[str, str],
        host: Way,
        guest: Way,
        clock: Clock,
        chance: Chance,
        say: Say,
        measures: Measures,
    ) -> None:
        self._options = options
        self._host, self._guest = host, guest
        self._clock, self._chance, self._say = clock, chance, say
        self._measures = measures
        self._vitals = Vitals(options, measures, clock)
        self._identity = f"{env.get('HOSTNAME') or PROGRAM}_{chance.uid()}"
        self._candidate: Candidate | None = None
        self._moved = asyncio.Event()
        # Why only a new start helps, once that is so; whether we lead or stand by.
        self._stuck: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for way in (host, guest):
            way.moved = self._start_anew
            way.stuck = self._give_way
        host.vet = self._find_doubt

    def introduce(self) -> None:
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
        for warning in (*options.warnings, self._host.find_doubt()):
            if warning:
                self._say(f"warning: {warning}")

    @asynccontextmanager
    async def served(self, serve: Serve | None) -> AsyncIterator[None]:
        """The port is open meanwhile, where there is one. Raises CannotServe."""
        wanted = serve is not None and self._options.secure_port != 0
        pages = self._vitals.pages(self._counted(self._guest))
        async with serve(self._options, pages, self._say) if wanted and serve else nullcontext():
            yield

    async def run(self) -> int:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow_files())
            try:
                await self._lead_unless_stuck()
            except LeadershipLost as error:
                self._say(f"leaderelection lost: {error}")
                return 1
            except Stuck as error:
                self._say(f"{error}; ending, so that this is started anew")
                return 1
            finally:
                following.cancel()
        return 0

    async def _lead_unless_stuck(self) -> None:
        """Raises Stuck as soon as we are, with the Lease given back."""
        leading = asyncio.ensure_future(self._lead())
        either: set[asyncio.Future[Any]] = {leading, self._stuck}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_leading = not leading.done()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
        if was_leading:
            raise Stuck(self._stuck.result())
        leading.result()

    async def _lead(self) -> None:
        options = self._options
        if not options.leader_elect:
            await self._work()
            return
        terms = Terms(options.lease_duration, options.renew_deadline, options.retry_period)
        # The Lease is renewed past the rate limit: a burst of other calls must not cost the lead.
        client = Client(self._counted(self._guest))
        candidate = Candidate(
            client,
            options.lease_namespace,
            options.lease_name,
            self._identity,
            self._clock,
            self._chance,
            terms,
        )
        self._candidate = candidate
        self._vitals.stands_for(candidate)
        lease = f"{options.lease_namespace}/{options.lease_name}"
        self._say(f"attempting to acquire leader lease {lease}...")

        async def work() -> None:
            self._say(f"successfully acquired lease {lease}")
            await self._work()

        await candidate.lead(work)

    async def _work(self) -> None:
        """Keep the guest in step with its VMs until cancelled; from the start again where the ways have changed."""
        while True:
            self._moved.clear()
            await self._work_here()
            self._say("the work starts anew")

    async def _work_here(self) -> None:
        namespace = self._host.namespace
        self._say(f"leading; VMs are looked for in namespace {namespace!r}")
        options = self._options
        provider = Provider(
            self._polite(self._guest, options.qps, options.burst),
            self._polite(self._host, options.host_qps, options.host_burst),
            namespace,
            options,
            self._clock,
            self._chance,
            self._say,
            self._measures,
        )
        running = options.controllers - {ROUTE_CONTROLLER}
        self._vitals.works(running, provider.waits_for)
        async with asyncio.TaskGroup() as group:
            providing = group.create_task(provider.run())
            try:
                await self._moved.wait()
            finally:
                self._vitals.rests(running)  # before their end: one that does not come is an illness
            providing.cancel()

    def _start_anew(self, why: str) -> None:
        self._say(why)
        self._moved.set()

    def _give_way(self, why: str) -> None:
        if not self._stuck.done():
            self._stuck.set_result(why)

    # --- requests -------------------------------------------------------------------------------------------------

    def _polite(self, way: Way, per_second: float, burst: int) -> Transport:
        def limited() -> Transport:
            return LimitedTransport(self._counted(way), self._clock, per_second=per_second, burst=burst)

        return RetryingTransport(EventsApart(limited(), limited()), self._clock, self._chance)

    def _counted(self, way: Way) -> Transport:
        def heard(request: Request, code: str, seconds: float) -> None:
            parts = urlsplit(way.access.server)
            self._measures.called(parts.netloc, request.method, code, seconds)
            if self._options.verbosity >= LOG_REQUESTS:
                method = "WATCH" if request.parameter("watch") else request.method
                log.info(
                    "%s %s%s %s in %.0f ms", method, way.access.server, request.path, code, seconds * 1000
                )

        return MeasuredTransport(way.transport, self._clock, heard)

    # --- credentials ----------------------------------------------------------------------------------------------

    async def _follow_files(self) -> None:
        """Notice renewed credentials, and warn of those that end soon."""
        while True:
            for way in (self._host, self._guest):
                await way.look()
                warning = way.warning()
                if warning:
                    self._say(f"warning: {warning}")
                    await self._announce(warning)
            await pause(self._clock, LOOK_AT_FILES)

    async def _find_doubt(self, host: Transport, namespace: str) -> str:
        return await find_doubt(Client(self._counted(self._guest)), Client(host), namespace)

    async def _announce(self, warning: str) -> None:
        """An event about the Lease: who does not read this log may read the events of kube-system."""
        if self._candidate is None or not self._candidate.is_leader:
            return
        recorder = Recorder(Client(self._counted(self._guest)), PROGRAM, self._clock, self._chance)
        told = Told(self._candidate.ref, "", "CredentialExpires", warning, "Warning")
        with suppress(TimeoutError):  # a guest that does not answer must not keep us from the files
            async with asyncio.timeout(ANNOUNCE_S):
                await recorder.tell(told)
