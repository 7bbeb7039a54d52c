"""Admission: hooks that change or deny a write before it is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from windrow.apiserver.request.info import UserInfo
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]


@dataclass(slots=True)
class AdmissionRequest:
    """A write before its commit. A hook may change or replace `object`; it raises a KubeError to deny.

    `object` is None for a delete; `old_object` is None for a create and must not be changed.
    """

    verb: Literal["create", "update", "delete"]
    kind: ApiResource
    namespace: str
    name: str
    subresource: str
    object: Raw | None
    old_object: Raw | None
    user: UserInfo
    dry_run: bool = False


AdmissionHook = Callable[[AdmissionRequest], Awaitable[None]]


async def admit(hooks: list[AdmissionHook], operation: AdmissionRequest) -> Raw | None:
    """Run every hook in order; the object as they leave it. Raises the KubeError of the first that denies."""
    for hook in tuple(hooks):
        await hook(operation)
    return operation.object
