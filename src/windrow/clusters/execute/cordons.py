"""Cordons of Nodes, which a person makes as well: what the manager has cordoned has an annotation, and only that is uncordoned.

`kubectl cordon` of a Node that is cordoned already writes nothing. So a person who wants such a Node to stay cordoned removes the
annotation.
"""

from __future__ import annotations

from typing import Any

from windrow.clusters.api.names import CORDONED
from windrow.clusters.state import Node


def render_cordon(node: Node | None) -> dict[str, Any]:
    """A merge patch. A Node that is cordoned already was so by a person, or by the manager with its annotation."""
    change: dict[str, Any] = {"spec": {"unschedulable": True}}
    if node is not None and node.unschedulable:
        return change
    return {**change, "metadata": {"annotations": {CORDONED: "true"}}}


def render_uncordon(node: Node | None) -> dict[str, Any]:
    """A merge patch, {} where the cordon is that of a person."""
    if node is not None and node.unschedulable and not node.is_cordoned_by_manager:
        return {}
    return {"spec": {"unschedulable": None}, "metadata": {"annotations": {CORDONED: None}}}
