"""The manifests that come with Windrow."""

from __future__ import annotations

from importlib.resources import files

from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw

# Three servers and two workers, by distribution.
THREE_AND_TWO = {"rke2": "three-and-two.yaml", "k3s": "three-and-two-k3s.yaml"}


def shipped(distribution: str = "rke2") -> list[Raw]:
    """The objects of our manifest for a distribution."""
    return list(load_all(files(__package__).joinpath(THREE_AND_TWO[distribution]).read_text()))
