"""Fields that never change before a real kube-apiserver and before ours: the same refusals."""

from __future__ import annotations

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.unit.apiserver.validation_rules import STONE, answers_to_changes, stones

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import CRD

pytestmark = pytest.mark.go


async def test_what_never_changes_is_refused_alike(cluster: Cluster) -> None:
    here = Client(ApiServer(MemoryStore(), SystemClock(), Rng(1)).local())
    await here.create(CRD, stones())
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        there = Client(transport)
        await there.create(CRD, stones())

        async def is_served() -> bool:
            try:
                await there.list(STONE, "default")
            except KubeError:
                return False
            return True

        await eventually(is_served, "stones are served")
        real = await answers_to_changes(there)

    assert await answers_to_changes(here) == real
