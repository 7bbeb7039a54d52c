"""What the command line asks of `emulate`, `serve` and `demo`, and where they speak: the seam to `windrow.cli`.

Each of the three modules has one coroutine `run(options, out) -> int` whose result is the exit code. They read no
argv and no environment, print nothing themselves, and end when their task is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class EmulateOptions:
    """`state` is the directory for the kubeconfig and the store, `stock` the objects whose images, networks and
    credentials shall exist, `speed` divides every stated delay, `port` 0 lets the system choose. `cloud_provider` is
    the program that guests start as a process in the place of ours, with `env`."""

    state_dir: Path
    preload: tuple[dict[str, Any], ...] = ()
    time_scale: float = 1.0
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

    state_dir: Path
    port: int = 0
    kubeconfig: Path | None = None
    proxy: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    allow_file_urls: bool = False


class Output(Protocol):
    """Whoever listens: a live view on a terminal, plain lines in a log, a list in a test."""

    def print_line(self, line: str = "") -> None:
        """One line for people, as it shall be read."""
        ...
