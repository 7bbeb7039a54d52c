"""Health checks by name, and their responses in the words of Kubernetes' own components."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from windrow.probes.metrics import Registry

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
