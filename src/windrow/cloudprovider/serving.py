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
from windrow.client.lease import Candidate
from windrow.client.limited import LimitedTransport
from windrow.client.reviews import Reviews
from windrow.client.transport import Transport
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.kube.kubeconfig import ReadFile
from windrow.probes.health import Health
from windrow.probes.pages import Pages
from windrow.values.clock import Clock

TOLERANCE = timedelta(seconds=20)
# Strangers can make us ask; they shall not make us ask much.
REVIEWS_PER_SECOND, REVIEWS_AT_ONCE = 5.0, 10

Say = Callable[[str], None]
Serve = Callable[[Options, Pages, Say], AbstractAsyncContextManager[None]]


class CannotServe(Exception):
    """The port or its certificate cannot be had; the message carries the cure."""


class Vitals:
    """What the program knows of itself, for the pages."""

    def __init__(self, options: Options, measures: Measures, clock: Clock) -> None:
        self.measures = measures
        self._options = options
        self._clock = clock
        self._candidate: Candidate | None = None
        self._waits_for: Callable[[], str] = lambda: ""
        self._running: frozenset[str] = frozenset()
        self._healthz, self._livez, self._readyz = (Health(name) for name in ("healthz", "livez", "readyz"))
        for health in self._healths:
            health.add("leaderElection", self._overdue)
        self._readyz.add("caches", lambda: self._waits_for())

    @property
    def _healths(self) -> tuple[Health, ...]:
        return self._healthz, self._livez, self._readyz

    def stands_for(self, candidate: Candidate) -> None:
        """This candidate is ours."""
        self._candidate = candidate
        self.measures.leads(lambda: candidate.is_leader, candidate.ref.name)

    def works(self, controllers: frozenset[str], waits_for: Callable[[], str]) -> None:
        """These controllers run from now on; `waits_for` says which lists are not known yet."""
        self._waits_for = waits_for
        self._running |= controllers
        for name in sorted(controllers):
            self.measures.controller_runs(name)
            for health in self._healths:
                health.add(name, partial(self._rests, name))

    def rests(self, controllers: frozenset[str]) -> None:
        """They do not run any more."""
        self._waits_for = lambda: ""
        self._running -= controllers
        for name in controllers:
            self.measures.controller_runs(name, False)

    def pages(self, guest: Transport) -> Pages:
        def polite() -> Client:
            return Client(
                LimitedTransport(guest, self._clock, per_second=REVIEWS_PER_SECOND, burst=REVIEWS_AT_ONCE)
            )

        reviews = Reviews(polite(), self._clock, strangers=polite())
        return Pages(
            self._healths, lambda: list(self.measures), self._options.always_allow_paths, reviews.allow
        )

    def _rests(self, controller: str) -> str:
        return "" if controller in self._running else "it was started and does not run any more"

    def _overdue(self) -> str:
        candidate = self._candidate
        if candidate is None or not candidate.is_leader or candidate.renewed is None:
            return ""
        if self._clock.now() - candidate.renewed > self._options.lease_duration + TOLERANCE:
            return f"failed election to renew leadership on lease {candidate.ref.name}"
        return ""


def serve_over_sockets(clock: Clock, read_file: ReadFile) -> Serve:
    """Serves at `--bind-address` and `--secure-port`. Raises CannotServe on entry."""

    @asynccontextmanager
    async def serve(options: Options, pages: Pages, say: Say) -> AsyncIterator[None]:
        from windrow.probes.http import PortTaken, Site
        from windrow.probes.identity import BadCertificate, FromFiles, Identity, MadeUp

        identity: Identity = MadeUp(clock, "localhost")
        if options.tls_cert_file:
            identity = FromFiles(options.tls_cert_file, options.tls_key_file, read_file, say)
        site = Site(
            pages.answer,
            identity,
            options.bind_address,
            options.secure_port,
            share_port=options.share_port,
            minimum_version=_TLS[options.tls_min_version],
        )
        try:
            await site.__aenter__()
        except PortTaken as error:
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
