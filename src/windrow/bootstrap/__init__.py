"""From a BootstrapSpec to the files on a machine, for each Kubernetes distribution.

`DISTRIBUTIONS` lists one module for each; all have the shape of `Distribution`. Only complete ones are listed, so a name
that is absent is a distribution that Windrow cannot bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from windrow.bootstrap import k3s, rke2
from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.unit import Installer
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec
from windrow.bootstrap.support_matrix.matrix import Numbers, SupportMatrix


class Distribution(Protocol):
    """One distribution, as a module. Everything here is pure."""

    NAME: str
    LAYOUT: Layout
    INSTALLER: Installer

    def render(self, spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> str:
        """The cloud-config document for one machine; without a `matrix` by that of this release of Windrow. Raises
        InvalidBootstrapSpec."""

    def list_files(self, spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> Iterator[File]:
        """The files of that document, in their order. Raises InvalidBootstrapSpec."""

    def scrub(self, document: str) -> str:
        """The document that remains once the machine has joined."""

    def config_hash(self, spec: BootstrapSpec) -> str:
        """A digest of what would have to be applied again if it changed."""

    def config_hashes(self, specs: Iterable[BootstrapSpec]) -> list[str]:
        """The `config_hash` of each, for specs with much in common."""

    def find_cloud_provider(self, config: Mapping[str, Any], on_harvester: bool) -> str:
        """The cloud provider that a cluster with the user's `config` runs, "" for none that Windrow knows of.
        `on_harvester`: whether machines of it are VMs of Harvester."""

    def find_harvester_charts(self, spec: BootstrapSpec, matrix: SupportMatrix) -> Mapping[str, Numbers]:
        """The versions of the Harvester charts that a cluster of the spec gets, by chart; without those that the user brings,
        and those that `matrix` does not know."""

    def list_contradictions(self, spec: BootstrapSpec) -> list[InvalidBootstrapSpec]:
        """What in the user's keys cannot be read or cannot be together; `render` raises the first."""

    def check(self, spec: BootstrapSpec) -> list[str]:
        """Warnings about the spec."""


DISTRIBUTIONS: Mapping[str, Distribution] = {rke2.NAME: rke2, k3s.NAME: k3s}
# Of every distribution, for where only the objects of a cluster are at hand.
LAYOUTS = tuple(distribution.LAYOUT for distribution in DISTRIBUTIONS.values())
