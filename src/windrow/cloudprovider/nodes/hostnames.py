"""How guests call themselves: asked of their agents, one by one, through Harvester.

Nothing tells when an answer changes, and an agent is slow to ask. So only those are asked that could be a node nobody
has found, and nodes that wait at the same moment share the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.cloudprovider.nodes.readings import Instance
from windrow.core.clock import Clock
from windrow.harvester.resources import VMI_ACTIONS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Request

FRESH = timedelta(seconds=5)


class GuestHostnames:
    def __init__(self, host: Client, namespace: str, clock: Clock) -> None:
        self._host = host
        self._namespace = namespace
        self._clock = clock
        self._lock = asyncio.Lock()
        # Instance uid -> its answer, and when it gave it.
        self._answers: dict[str, tuple[str, datetime]] = {}

    async def fetch(self, instances: Iterable[Instance]) -> dict[str, str]:
        """Host name by VM name, of those whose agent can answer; "" where it did not. Raises no KubeError."""
        async with self._lock:
            self._answers = {uid: one for uid, one in self._answers.items() if self._is_fresh(one[1])}
            return {one.name: await self._cached_hostname(one) for one in instances if _can_answer(one)}

    def _is_fresh(self, asked: datetime) -> bool:
        return self._clock.now() - asked <= FRESH

    async def _cached_hostname(self, instance: Instance) -> str:
        if instance.uid not in self._answers:
            self._answers[instance.uid] = (await self._hostname(instance.name), self._clock.now())
        return self._answers[instance.uid][0]

    async def _hostname(self, vm_name: str) -> str:
        path = VMI_ACTIONS.path(self._namespace, vm_name, "guestosinfo")
        try:
            return str((await self._host.call(Request("GET", path))).get("hostname") or "")
        except KubeError:
            return ""  # the agent does not answer now; we come again


def _can_answer(instance: Instance) -> bool:
    return instance.has_agent and instance.phase == "Running" and not instance.is_migrating
