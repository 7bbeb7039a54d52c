"""From a BootstrapSpec to the files on a machine, for each Kubernetes distribution.

`DISTRIBUTIONS` lists one module for each; all have the shape of `Distribution`. Only complete ones are listed, so a name
that is absent is a distribution that Windrow cannot bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from windrow.bootstrap import rke2
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import BootstrapSpec


class Distribution(Protocol):
    """One distribution, as a module. Everything here is pure."""

    NAME: str
    LAYOUT: Layout

    def render(self, spec: BootstrapSpec) -> str:
        """The cloud-config document for one machine. Raises InvalidBootstrapSpec."""

    def scrub(self, document: str) -> str:
        """The document that remains once the machine has joined."""

    def config_hash(self, spec: BootstrapSpec) -> str:
        """A digest of what would have to be applied again if it changed."""

    def config_hashes(self, specs: Iterable[BootstrapSpec]) -> list[str]:
        """The `config_hash` of each, for specs with much in common."""

    def check(self, spec: BootstrapSpec) -> list[str]:
        """Warnings about the spec."""


DISTRIBUTIONS: Mapping[str, Distribution] = {rke2.NAME: rke2}
