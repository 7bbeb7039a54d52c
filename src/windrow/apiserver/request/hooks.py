"""What is called for each request, so that requests can be counted by who composes the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _ignore_request(verb: str, resource: str, code: int, seconds: float) -> None:
    pass


def _ignore_watch(resource: str, change: int) -> None:
    pass


@dataclass(slots=True)
class RequestHooks:
    """`on_request` gets the verb as RBAC names it, the resource with its group, the status code and the duration in seconds; of a
    watch when it was opened or refused. `on_watch` gets 1 for a watch that was opened, and -1 for one that has ended.

    The resource is one that is served, or "": a path that is asked for at random makes no new one. The verb is one of RBAC, or
    `other`.
    """

    on_request: Callable[[str, str, int, float], None] = _ignore_request
    on_watch: Callable[[str, int], None] = _ignore_watch
