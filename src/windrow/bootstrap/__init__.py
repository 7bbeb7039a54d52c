"""From intent to files on a machine: how each Kubernetes distribution is born.

`DISTRIBUTIONS` lists the modules that know one; all have the shape of `Distribution`. Only those that are whole are
listed, so a name that is absent is a distribution that Windrow cannot make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from windrow.bootstrap import rke2
from windrow.bootstrap.spec import BootstrapSpec
from windrow.core.version import Version


class Distribution(Protocol):
    """One distribution, as a module. Everything here is pure."""

    NAME: str
    SUPERVISOR_PORT: int
    API_PORT: int

    def render(self, spec: BootstrapSpec) -> str:
        """The cloud-config document for one machine. Raises InvalidBootstrapSpec."""
        ...

    def scrub(self, document: str) -> str:
        """The document that is left in place once the machine has joined."""
        ...

    def config_hash(self, spec: BootstrapSpec) -> str:
        """A digest of what would have to be applied again if it changed."""
        ...

    def check(self, spec: BootstrapSpec) -> list[str]:
        """Warnings about the intent."""
        ...

    def check_config(self, config: Mapping[str, Any], version: Version) -> list[str]:
        """Warnings about the user's configuration keys."""
        ...

    def join_url(self, address: str) -> str:
        """What joiners take as their server."""
        ...

    def api_url(self, address: str) -> str:
        """Where clients reach the API."""
        ...


DISTRIBUTIONS: Mapping[str, Distribution] = {rke2.NAME: rke2}
