"""The program's port: which checks and which counts are behind it, and who may see them.

| Path            | Well while                                                                                   |
|-----------------|----------------------------------------------------------------------------------------------|
| `/healthz`, `/livez` | the Lease is not 20 s overdue, and each controller that was started runs               |
| `/readyz`       | that, and the leader has read every list once; who stands by is ready                        |

`/metrics` asks the guest who reads it: the role needs `create` on `tokenreviews.authentication.k8s.io` and
`subjectaccessreviews.authorization.k8s.io`. Where `--authorization-always-allow-paths` names it, nobody is asked.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial

from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector
from windrow.client.middleware.rate_limit import RateLimitedTransport
from windrow.client.token_review import TokenReviewer
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd.flags import Options
from windrow.cloudprovider.metrics import Metrics
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import ReadFile
from windrow.probes.endpoints import Endpoints
from windrow.probes.health import HealthChecks

LEASE_TOLERANCE = timedelta(seconds=20)
# Strangers can make us ask; they shall not make us ask much.
REVIEWS_PER_SECOND, REVIEWS_BURST = 5.0, 10

Say = Callable[[str], None]
Serve = Callable[[Options, Endpoints, Say], AbstractAsyncContextManager[None]]


class CannotServe(Exception):
    """The port or its certificate cannot be had; the message carries the cure."""


class ProcessHealth:
    """What the program knows of itself, for the pages."""

    def __init__(self, options: Options, measures: Metrics, clock: Clock) -> None:
        self.metrics = measures
        self._options = options
        self._clock = clock
        self._elector: LeaderElector | None = None
        self._pending_caches: Callable[[], str] = lambda: ""
        self._running: frozenset[str] = frozenset()
        self._healthz, self._livez, self._readyz = (
            HealthChecks(name) for name in ("healthz", "livez", "readyz")
        )
        for health in self._checks:
            health.add("leaderElection", self._lease_problem)
        self._readyz.add("caches", lambda: self._pending_caches())

    @property
    def _checks(self) -> tuple[HealthChecks, ...]:
        return self._healthz, self._livez, self._readyz

    def set_elector(self, elector: LeaderElector) -> None:
        """This candidate is ours."""
        self._elector = elector
        self.metrics.register_leader(lambda: elector.is_leader, elector.ref.name)

    def controllers_started(self, controllers: frozenset[str], pending_caches: Callable[[], str]) -> None:
        """These controllers run from now on; `waits_for` says which lists are not known yet."""
        self._pending_caches = pending_caches
        self._running |= controllers
        for name in sorted(controllers):
            self.metrics.set_controller_running(name)
            for health in self._checks:
                health.add(name, partial(self._stopped_problem, name))

    def controllers_stopped(self, controllers: frozenset[str]) -> None:
        """They do not run any more."""
        self._pending_caches = lambda: ""
        self._running -= controllers
        for name in controllers:
            self.metrics.set_controller_running(name, False)

    def endpoints(self, guest: Transport) -> Endpoints:
        def rate_limited() -> Client:
            return Client(
                RateLimitedTransport(guest, self._clock, per_second=REVIEWS_PER_SECOND, burst=REVIEWS_BURST)
            )

        reviews = TokenReviewer(rate_limited(), self._clock, unknown_client=rate_limited())
        return Endpoints(
            self._checks, lambda: list(self.metrics), self._options.always_allow_paths, reviews.authorize
        )

    def _stopped_problem(self, controller: str) -> str:
        return "" if controller in self._running else "it was started and does not run any more"

    def _lease_problem(self) -> str:
        candidate = self._elector
        if candidate is None or not candidate.is_leader or candidate.last_renewed is None:
            return ""
        if self._clock.now() - candidate.last_renewed > self._options.lease_duration + LEASE_TOLERANCE:
            return f"failed election to renew leadership on lease {candidate.ref.name}"
        return ""


def serve_over_sockets(clock: Clock, read_file: ReadFile) -> Serve:
    """Serves at `--bind-address` and `--secure-port`. Raises CannotServe on entry."""

    @asynccontextmanager
    async def serve(options: Options, pages: Endpoints, say: Say) -> AsyncIterator[None]:
        from windrow.probes.identity import BadCertificate, FileIdentity, SelfSignedIdentity, ServingIdentity
        from windrow.probes.server import CannotListen, HealthServer

        identity: ServingIdentity = SelfSignedIdentity(clock, "localhost")
        if options.tls_cert_file:
            identity = FileIdentity(options.tls_cert_file, options.tls_key_file, read_file, say)
        site = HealthServer(
            pages.respond,
            identity,
            options.bind_address,
            options.secure_port,
            share_port=options.share_port,
            minimum_version=_TLS[options.tls_min_version],
        )
        try:
            await site.__aenter__()
        except CannotListen as error:
            raise CannotServe(
                f"{error}; another cloud controller manager may run on this node (K3s has its own: start K3s with "
                "--disable-cloud-controller); or choose another --secure-port, or 0 for none"
            ) from error
        except BadCertificate as error:
            raise CannotServe(str(error)) from error
        try:
            say(f"probes and metrics are at https://{options.bind_address}:{site.port}")
            yield
        finally:
            await site.__aexit__(None, None, None)

    return serve


_TLS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
