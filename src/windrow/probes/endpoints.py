"""Health checks by name, the endpoints for probes and metrics, and who may read them, in the words of Kubernetes' own
components. Pure but for `authorize`; `server` has the sockets.

Some paths are open to anybody, because the kubelet sends no credential. For the others `authorize` gets the bearer token
("" for none), verb and path, and returns status and reason; 200 is yes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import KubeError
from windrow.probes.metrics import CONTENT_TYPE, Registry

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: str
    content_type: str = TEXT


# Why it is unhealthy; "" when it is healthy.
Check = Callable[[], str]


class HealthChecks:
    """The checks behind one path, such as `healthz`. `ping` is always among them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._checks: dict[str, Check] = {"ping": lambda: ""}

    def add(self, name: str, check: Check) -> None:
        """Add a check, in place of an earlier one of the same name."""
        self._checks[name] = check

    def problems(self) -> dict[str, str]:
        """The problem of each check now, "" for those that pass."""
        return {name: check() for name, check in self._checks.items()}

    def respond(self, rest: str, verbose: bool = False, excluded: Collection[str] = ()) -> Response:
        """`rest` is the path below that of these checks: the name of one check, or ""."""
        if rest:
            return self._one(rest)
        problems = {name: why for name, why in self.problems().items() if name not in excluded}
        if any(problems.values()):
            return Response(500, "".join(self._lines(problems, "failed")))
        return Response(200, "".join(self._lines(problems, "passed")) if verbose else "ok")

    def _one(self, name: str) -> Response:
        check = self._checks.get(name)
        if check is None:
            return Response(404, "404 page not found\n")
        why = check()
        return Response(500, f"internal server error: {why}\n") if why else Response(200, "ok")

    def _lines(self, problems: dict[str, str], end: str) -> Iterator[str]:
        for name, why in problems.items():
            yield f"[-]{name} failed: {why}\n" if why else f"[+]{name} ok\n"
        yield f"{self.name} check {end}\n"


def health_metrics(*healths: HealthChecks) -> Registry:
    """The metrics of `/metrics/slis`: each check as 1 or 0."""
    registry = Registry()
    gauge = registry.gauge(
        "kubernetes_healthcheck", "1 for each check that passes, 0 for the others.", ("name", "type")
    )
    for health in healths:
        for name, why in health.problems().items():
            gauge.labels(name, health.name).set(0 if why else 1)
    return registry


Authorize = Callable[[str, str, str], Awaitable[tuple[int, str]]]

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    405: "MethodNotAllowed",
    429: "TooManyRequests",
    500: "InternalError",
}


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One request. `query` has every value of each name."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    token: str = ""


class Endpoints:
    """`/healthz`, `/livez`, `/readyz` with their checks, `/metrics`, `/metrics/slis`.

    An entry of `open_paths` is a path, or a beginning of paths with `*` at its end.
    """

    def __init__(
        self,
        healths: Sequence[HealthChecks],
        metrics: Registry,
        open_paths: Collection[str],
        authorize: Authorize,
    ) -> None:
        self._healths = tuple(healths)
        self._metrics = metrics
        self._open = frozenset(path for path in open_paths if not path.endswith("*"))
        self._open_below = tuple(path[:-1] for path in open_paths if path.endswith("*"))
        self._authorize = authorize

    async def respond(self, request: ProbeRequest) -> Response:
        if not self._is_open(request.path):
            verb = {"HEAD": "head", "GET": "get"}.get(request.method, request.method.lower())
            try:
                status, why = await self._authorize(request.token, verb, request.path)
            except KubeError as error:
                return refusal(500, f"the guest API server did not review the request: {error.message}")
            if status != 200:
                return refusal(status, why)
        if request.method not in ("GET", "HEAD"):
            return refusal(405, f"{request.method} is not supported here; only GET is")
        return self._show(request)

    def _is_open(self, path: str) -> bool:
        return path in self._open or any(path.startswith(start) for start in self._open_below)

    def _show(self, request: ProbeRequest) -> Response:
        if request.path == "/metrics":
            return Response(200, self._metrics.render(), CONTENT_TYPE)
        if request.path == "/metrics/slis":
            return Response(200, health_metrics(*self._healths).render(), CONTENT_TYPE)
        for health in self._healths:
            root, _, rest = request.path[1:].partition("/")
            if root == health.name:
                excluded = [name for text in request.query.get("exclude", ()) for name in text.split(",")]
                return health.respond(rest.rstrip("/"), "verbose" in request.query, excluded)
        return Response(404, "404 page not found\n")


def refusal(status: int, why: str) -> Response:
    """A response with a Status object, as API servers write it."""
    status_object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": why,
        "reason": _REASONS.get(status, "Unknown"),
        "code": status,
    }
    return Response(status, dumps(status_object).decode() + "\n", "application/json")
