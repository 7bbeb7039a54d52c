"""Options of `emulate` and `serve`, and the port on which they print: what `windrow.cli` hands in.

Both modules have one coroutine `run(options, output) -> int` whose result is the exit code. They read no argv and no
environment, print nothing themselves, and end when their task is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from windrow.emulator.release import find_release
from windrow.emulator.site import DEFAULT_VERSION, parse_inventory
from windrow.emulator.site import BadInventory as BadInventory  # of `read_site`, for its callers
from windrow.emulator.site import Site as Site


@dataclass(frozen=True, slots=True)
class EmulateOptions:
    """`state_dir` is for the kubeconfigs, `preload` are the objects whose references shall exist, `time_scale` divides every
    delay, `port` 0 is any free port, `site` is the release, the hosts and the networks. `cloud_provider` is the program that guests start as a process, with `env`."""

    state_dir: Path
    preload: tuple[dict[str, Any], ...] = ()
    time_scale: float = 1.0
    port: int = 0
    cloud_provider: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    site: Site = field(default_factory=Site)


def harvester_release(text: str) -> str:
    """The version of an emulated Harvester that `text` stands for. Raises ValueError."""
    return find_release(text)


def read_site(release: str | None, inventory: object = None) -> Site:
    """The site of a release and of the content of an inventory file, either None for the usual. Raises BadInventory."""
    version = release or DEFAULT_VERSION
    return Site(version) if inventory is None else parse_inventory(inventory, version)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`kubeconfig` is of a Kubernetes that holds the management API; None means the embedded store in `state_dir`. `proxy` is
    the HTTP proxy to every Harvester and guest whose kubeconfig names none. `env` is for the kubeconfigs' exec plugins.
    `driver` is the docker-machine plugin for machines on Harvester, None to create them directly. `allow_file_urls`:
    NodeDrivers may have `file:` URLs. `support_matrix` is the text of a file that replaces parts of Windrow's, "" for none. The API listens on the address `bind`; `port` 0 is the one that it had before."""

    state_dir: Path
    port: int = 0
    bind: str = "127.0.0.1"
    kubeconfig: Path | None = None
    proxy: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    driver: Path | None = None
    allow_file_urls: bool = False
    support_matrix: str = ""


class Output(Protocol):
    """Where a command prints: plain lines, a live view on a terminal, or a list in a test."""

    def print_line(self, line: str = "") -> None:
        """One line for people."""
