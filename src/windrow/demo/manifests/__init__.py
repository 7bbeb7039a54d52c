"""The manifests that come with Windrow."""

from __future__ import annotations

from importlib.resources import files

from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw

THREE_AND_TWO = "three-and-two.yaml"


def shipped(name: str = THREE_AND_TWO) -> list[Raw]:
    """The objects of a manifest of ours."""
    return list(load_all(files(__package__).joinpath(name).read_text()))
