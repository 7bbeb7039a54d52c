"""Taints of Nodes: that of a Node which was shut down without notice, and that of one which no cloud provider has seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from windrow.core.clock import format_time
from windrow.kubernetes.objects import Raw, objects_at

# Set by a person, or by a program that vouches for it: nothing on the Node writes any more. kube-controller-manager then deletes its
# pods and detaches their volumes at once. Its value means nothing to Kubernetes, so each program that sets the taint has one of
# its own, by which it knows what it may remove: a kubelet can write annotations of its Node, but no taints.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Kubelets started with an external cloud provider register with it.
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"

# After this long kube-controller-manager detaches volumes by force from a Node that is not healthy, taint or not.
FORCED_DETACH_TIMEOUT = timedelta(minutes=6)


def list_out_of_service(raw_node: Mapping[str, Any]) -> list[Raw]:
    """The taints of the Node that say so, by whichever program."""
    return [taint for taint in objects_at(raw_node, "spec", "taints") if taint.get("key") == OUT_OF_SERVICE]


def render_out_of_service(value: str, now: datetime) -> Raw:
    """The taint of the program that sets this value."""
    return {"key": OUT_OF_SERVICE, "value": value, "effect": "NoExecute", "timeAdded": format_time(now)}


def without_out_of_service(raw_node: Mapping[str, Any], value: str) -> list[Raw]:
    """All taints of the Node but that of the program that sets this value."""
    ours = OUT_OF_SERVICE, value
    taints = objects_at(raw_node, "spec", "taints")
    return [taint for taint in taints if (taint.get("key"), taint.get("value")) != ours]
