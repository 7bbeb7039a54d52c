"""The program's port: its health checks, its metrics, and who may read them.

| Path                 | Healthy while                                                                             |
|----------------------|-------------------------------------------------------------------------------------------|
| `/healthz`, `/livez` | the Lease is not 20 s overdue, and each controller that was started runs                  |
| `/readyz`            | that, and the caches of a leader have synced; a process that stands by is ready           |

`/metrics` is authorized by the guest: the role needs `create` on `tokenreviews.authentication.k8s.io` and
`subjectaccessreviews.authorization.k8s.io`, unless `--authorization-always-allow-paths` names the path.
"""

from __future__ import annotations

import logging
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
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import ReadFile
from windrow.probes.endpoints import Endpoints, HealthChecks

LEASE_TOLERANCE = timedelta(seconds=20)
# Anybody on the network can cause a TokenReview; the rate bounds how many.
REVIEWS_PER_SECOND, REVIEWS_BURST = 5.0, 10

Serve = Callable[[Options, Endpoints, logging.Logger], AbstractAsyncContextManager[None]]


class CannotServe(Exception):
    """The port or its certificate cannot be used; the message ends with a hint."""


class ProcessHealth:
    """The health of the process: its Lease, its controllers and their caches."""

    def __init__(self, options: Options, metrics: Metrics, clock: Clock) -> None:
        self.metrics = metrics
        self._options = options
        self._clock = clock
        self._elector: LeaderElector | None = None
        self._pending_caches: Callable[[], str] = lambda: ""
        self._running: frozenset[str] = frozenset()
        self._readyz = HealthChecks("readyz")
        self._checks = HealthChecks("healthz"), HealthChecks("livez"), self._readyz
        for health in self._checks:
            health.add("leaderElection", self._lease_problem)
        self._readyz.add("caches", lambda: self._pending_caches())

    def set_elector(self, elector: LeaderElector) -> None:
        """Check the Lease of this elector from now on."""
        self._elector = elector
        self.metrics.register_leader(lambda: elector.is_leader, elector.ref.name)

    def controllers_started(self, controllers: frozenset[str], pending_caches: Callable[[], str]) -> None:
        """These controllers run from now on; `pending_caches` says which caches have not synced, "" for none."""
        self._pending_caches = pending_caches
        self._running |= controllers
        for name in sorted(controllers):
            self.metrics.set_controller_running(name)
            for health in self._checks:
                health.add(name, partial(self._stopped_problem, name))

    def controllers_stopped(self, controllers: frozenset[str]) -> None:
        """These controllers are unhealthy until they are started again."""
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
            self._checks, self.metrics.registry, self._options.always_allow_paths, reviews.authorize
        )

    def _stopped_problem(self, controller: str) -> str:
        return "" if controller in self._running else "the controller was started and has stopped"

    def _lease_problem(self) -> str:
        elector = self._elector
        if elector is None or not elector.is_leader or elector.last_renewed is None:
            return ""
        if self._clock.monotonic() - elector.last_renewed > self._options.lease_duration + LEASE_TOLERANCE:
            return f"failed election to renew leadership on lease {elector.ref.name}"
        return ""


def serve_over_sockets(clock: Clock, read_file: ReadFile) -> Serve:
    """Serves at `--bind-address` and `--secure-port`. Raises CannotServe on entry."""

    @asynccontextmanager
    async def serve(options: Options, endpoints: Endpoints, log: logging.Logger) -> AsyncIterator[None]:
        from windrow.probes.identity import BadCertificate, FileIdentity, SelfSignedIdentity, ServingIdentity
        from windrow.probes.server import CannotListen, HealthServer

        identity: ServingIdentity = SelfSignedIdentity(clock, "localhost")
        if options.tls_cert_file:
            identity = FileIdentity(options.tls_cert_file, options.tls_key_file, read_file, log)
        server = HealthServer(
            endpoints.respond,
            identity,
            options.bind_address,
            options.secure_port,
            share_port=options.share_port,
            minimum_version=_TLS[options.tls_min_version],
        )
        try:
            async with server.serving():
                log.info("serving probes and metrics at https://%s:%d", options.bind_address, server.port)
                yield
        except CannotListen as error:
            raise CannotServe(
                f"{error}; another cloud controller manager may run on this node (K3s has its own: start K3s with "
                "--disable-cloud-controller); or choose another --secure-port, or 0 for none"
            ) from error
        except BadCertificate as error:
            raise CannotServe(str(error)) from error

    return serve


_TLS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
