"""Options of `serve`, and the port on which it and `emulate` print: what `windrow.cli` hands in.

Both modules have one coroutine `run(options, output) -> int` whose result is the exit code. They read no argv and no
environment, print nothing themselves, and end when their task is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

# The command line reads its options before it loads what they are for.
if TYPE_CHECKING:
    from windrow.app.access.service import DashboardOptions


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`kubeconfig` is of a Kubernetes that holds the management API; None means the embedded store in `state_dir`, unless
    `in_cluster`: then the Kubernetes in which this process is a pod holds it, read as the pod's service account. `proxy` is
    the HTTP proxy to every Harvester and guest whose kubeconfig names none. `env` is for the kubeconfigs' exec plugins.
    `driver` is the docker-machine plugin for machines on Harvester, None to create them directly. `allow_file_urls`:
    NodeDrivers may have `file:` URLs. `support_matrix` is the text of a file that replaces parts of Windrow's, "" for none. `dashboard` is what serves pages, None for none. The API listens on the address `bind`; `port` 0 is the one that it had before. `metrics_bind_address` is where probes and metrics are served on a port of their own, "" for none."""

    state_dir: Path
    port: int = 0
    bind: str = "127.0.0.1"
    kubeconfig: Path | None = None
    in_cluster: bool = False
    proxy: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    allow_file_urls: bool = False
    support_matrix: str = ""
    metrics_bind_address: str = ""
    dashboard: DashboardOptions | None = None


class Output(Protocol):
    """Where a command prints: plain lines, a live view on a terminal, or a list in a test."""

    def print_line(self, line: str = "") -> None:
        """One line for people."""
