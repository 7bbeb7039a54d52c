"""Whether a program is well: named checks, told in the words of Kubernetes' own components."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from windrow.probes.metrics import Measure
from windrow.probes.responses import Response

# Why the thing is not well; "" when it is.
Check = Callable[[], str]


class HealthChecks:
    """The checks behind one path, such as `healthz`. `ping` is always among them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._checks: dict[str, Check] = {"ping": lambda: ""}

    def add(self, name: str, ask: Check) -> None:
        """Ask this, too. A later check of the same name takes the place of the earlier."""
        self._checks[name] = ask

    def problems(self) -> dict[str, str]:
        """What each check says now, "" for those that are well."""
        return {name: ask() for name, ask in self._checks.items()}

    def respond(self, rest: str, verbose: bool = False, excluded: Collection[str] = ()) -> Response:
        """`rest` is the path below ours: the name of one check, or ""."""
        if rest:
            return self._one(rest)
        problems = {name: why for name, why in self.problems().items() if name not in excluded}
        if any(problems.values()):
            return Response(500, "".join(self._lines(problems, "failed")))
        return Response(200, "".join(self._lines(problems, "passed")) if verbose else "ok")

    def _one(self, name: str) -> Response:
        ask = self._checks.get(name)
        if ask is None:
            return Response(404, "404 page not found\n")
        why = ask()
        return Response(500, f"internal server error: {why}\n") if why else Response(200, "ok")

    def _lines(self, problems: dict[str, str], end: str) -> Iterator[str]:
        for name, why in problems.items():
            yield f"[-]{name} failed: {why}\n" if why else f"[+]{name} ok\n"
        yield f"{self.name} check {end}\n"


def health_metrics(*healths: HealthChecks) -> list[Measure]:
    """What `/metrics/slis` shows: each check as 1 or 0."""
    measure = Measure(
        "kubernetes_healthcheck",
        "gauge",
        "1 for each check that is well, 0 for the others.",
        ("name", "type"),
    )
    for health in healths:
        for name, why in health.problems().items():
            measure.set(0 if why else 1, name=name, type=health.name)
    return [measure]
