"""What the command line asks of `emulate`, `serve` and `demo`, and where they speak: the seam to `windrow.cli`.

Each of the three modules has one coroutine `run(options, out) -> int` whose result is the exit code. They read no
argv and no environment, print nothing themselves, and end when their task is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from windrow.assembly.report import Check, Moment

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EmulateOptions:
    """`state` is the directory for the kubeconfig and the store, `stock` the objects whose images, networks and
    credentials shall exist, `speed` divides every stated delay, `port` 0 lets the system choose. `cloud_provider` is
    the program that guests start as a process in the place of ours, with `env`."""

    state: Path
    stock: tuple[dict[str, Any], ...] = ()
    speed: float = 1.0
    port: int = 0
    plain: bool = False
    cloud_provider: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`kubeconfig` names an outside Kubernetes that holds the management API; None means the embedded store in
    `state`. `proxy` is an HTTP proxy for every Harvester and guest whose kubeconfig names none. `env` is what exec
    plugins of kubeconfigs get. `driver` is the docker-machine plugin that makes machines on Harvester; None means
    that they are made directly. `driver_files` lets the catalogue take drivers from `file:` URLs."""

    state: Path
    port: int = 0
    kubeconfig: Path | None = None
    proxy: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    driver_files: bool = False


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`documents` are the objects to play with; none means our own example. `state` None means a directory that lives as long as the demo.
    `driver` and `env` as for ServeOptions."""

    documents: tuple[dict[str, Any], ...] = ()
    speed: float = 1.0
    keep: bool = False
    plain: bool = False
    report: Path | None = None
    state: Path | None = None
    driver: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Out(Protocol):
    """Whoever listens: a live view on a terminal, plain lines in a log, a list in a test."""

    def say(self, line: str = "") -> None:
        """One line for people, as it shall be read."""
        ...

    def moment(self, moment: Moment) -> None:
        """Something happened."""
        ...

    def check(self, check: Check) -> None:
        """Something was looked at, and held or not."""
        ...

    def show(self, clusters: Iterable[Raw], machines: Iterable[Raw]) -> None:
        """The present Cluster and Machine objects, for a view that stands still. May be called at any rate."""
        ...
