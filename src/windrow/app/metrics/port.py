"""The port for probes and metrics of `windrow serve --metrics-bind-address`, as controller-runtime's managers have one.

`/healthz`, `/livez` and `/readyz` are open to anybody, because the kubelet sends no credential, and say nothing of Clusters.
`/metrics` is for whom the Kubernetes that holds the objects allows to `get` that path: the token is reviewed there, for which the
manager needs the rights of ClusterRole `system:auth-delegator`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from windrow.client.client import Client
from windrow.client.middleware.rate_limit import RateLimitedTransport
from windrow.client.token_review import TokenReviewer
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.probes.endpoints import Endpoints, HealthChecks
from windrow.probes.identity import SelfSignedIdentity
from windrow.probes.metrics import Registry
from windrow.probes.server import CannotListen, HealthServer

# Anybody on the network can cause a TokenReview; the rate bounds how many.
REVIEWS_PER_SECOND, REVIEWS_BURST = 5.0, 10
OPEN_PATHS = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*")


class NoMetricsPort(UserError):
    """The port for probes and metrics cannot be used."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `:PORT` or `[IPv6]:PORT`, as Go writes them; without a host, every address. Raises
    ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"wanted HOST:PORT or :PORT, found {text[:80]!r}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"wanted an IPv6 address in brackets, found {text[:80]!r}")
    return host.removeprefix("[").removesuffix("]") or "::", int(port)


def new_endpoints(
    registry: Registry,
    api: Transport,
    clock: Clock,
    is_leader: Callable[[], bool],
    watching: Callable[[], Mapping[str, bool]],
) -> Endpoints:
    """The pages of a manager. One that stands by is ready; the active one while it watches its objects."""

    def rate_limited() -> Client:
        return Client(RateLimitedTransport(api, clock, per_second=REVIEWS_PER_SECOND, burst=REVIEWS_BURST))

    def not_watched() -> str:
        names = sorted(name for name, is_on in watching().items() if not is_on) if is_leader() else []
        return f"not watched: {', '.join(names)}" if names else ""

    readyz = HealthChecks("readyz")
    readyz.add("watches", not_watched)
    reviews = TokenReviewer(rate_limited(), clock, unknown_client=rate_limited())
    healths = (HealthChecks("healthz"), HealthChecks("livez"), readyz)
    return Endpoints(healths, registry, OPEN_PATHS, reviews.authorize)


@asynccontextmanager
async def serving_metrics(address: str, endpoints: Endpoints, clock: Clock) -> AsyncIterator[int | None]:
    """Serves `endpoints` at `address` with TLS; the port. "" is no port. Raises NoMetricsPort on entry."""
    if not address:
        yield None
        return
    async with AsyncExitStack() as stack:
        try:
            host, port = parse_address(address)
            server = HealthServer(endpoints.respond, SelfSignedIdentity(clock, "windrow"), host, port)
            await stack.enter_async_context(server.serving())
        except (ValueError, CannotListen) as error:
            raise NoMetricsPort(
                f"--metrics-bind-address {address[:80]}: {error}",
                "write HOST:PORT with a port that is free, or leave it out",
            ) from error
        yield server.port
