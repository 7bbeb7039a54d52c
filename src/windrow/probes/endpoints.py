"""Who may see which page. Knows requests as values; sockets are elsewhere.

Some paths are open to anybody, because the kubelet shows no credential. For the others somebody is asked: `allow` gets
the bearer token ("" where none was shown), verb and path, and says status and reason; 200 is yes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from windrow.core.json import dumps
from windrow.kubernetes.errors import KubeError
from windrow.probes.health import HealthChecks, health_metrics
from windrow.probes.metrics import CONTENT_TYPE, Measure, render_metrics
from windrow.probes.responses import Response

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
        measures: Callable[[], list[Measure]],
        open_paths: Collection[str],
        allow: Authorize,
    ) -> None:
        self._healths = tuple(healths)
        self._metrics = measures
        self._open = frozenset(path for path in open_paths if not path.endswith("*"))
        self._open_below = tuple(path[:-1] for path in open_paths if path.endswith("*"))
        self._allow = allow

    async def respond(self, asked: ProbeRequest) -> Response:
        if not self._is_open(asked.path):
            verb = {"HEAD": "head", "GET": "get"}.get(asked.method, asked.method.lower())
            try:
                status, why = await self._allow(asked.token, verb, asked.path)
            except KubeError as error:
                return refusal(500, f"who may see this cannot be asked of the guest cluster: {error.message}")
            if status != 200:
                return refusal(status, why)
        if asked.method not in ("GET", "HEAD"):
            return refusal(405, f"{asked.method} is not supported here; only GET is")
        return self._show(asked)

    def _is_open(self, path: str) -> bool:
        return path in self._open or any(path.startswith(start) for start in self._open_below)

    def _show(self, asked: ProbeRequest) -> Response:
        if asked.path == "/metrics":
            return Response(200, render_metrics(self._metrics()), CONTENT_TYPE)
        if asked.path == "/metrics/slis":
            return Response(200, render_metrics(health_metrics(*self._healths)), CONTENT_TYPE)
        for health in self._healths:
            root, _, rest = asked.path[1:].partition("/")
            if root == health.name:
                excluded = [name for text in asked.query.get("exclude", ()) for name in text.split(",")]
                return health.respond(rest.rstrip("/"), "verbose" in asked.query, excluded)
        return Response(404, "404 page not found\n")


def refusal(status: int, why: str) -> Response:
    """A refusal as API servers write it."""
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": why,
        "reason": _REASONS.get(status, "Unknown"),
        "code": status,
    }
    return Response(status, dumps(said).decode() + "\n", "application/json")
