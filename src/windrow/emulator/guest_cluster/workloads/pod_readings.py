"""Readings of a pod: whether it is Ready, whether it is active, which uid controls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, is_deleting, nested


def is_ready(pod: Raw) -> bool:
    return is_true(nested(pod, "status", "conditions"), "Ready")


def is_active(pod: Raw) -> bool:
    """Whether the pod is neither deleting nor Succeeded or Failed."""
    return not is_deleting(pod) and nested(pod, "status", "phase") not in ("Succeeded", "Failed")


def controller_uid(raw: Mapping[str, Any]) -> str:
    """The uid of the owner that controls a pod, or a ReplicaSet; "" where none does."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
