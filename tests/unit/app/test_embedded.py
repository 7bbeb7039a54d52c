from __future__ import annotations

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.core.rng import Rng
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    LEASE,
    NODE,
    POD,
    PVC,
    ROLE,
    SECRET,
    SERVICE,
    ApiResource,
)


def client() -> Client:
    return Client(management_api(MemoryStore(), LoopClock(), Rng(1)).local())


@pytest.mark.parametrize("kind", [DEPLOYMENT, NODE, POD, PVC, SERVICE], ids=lambda kind: kind.plural)
async def test_the_management_api_takes_no_workloads(kind: ApiResource):
    """So that a kubeconfig of the wrong cluster is noticed."""
    with pytest.raises(NotFound, match="the server could not find the requested resource"):
        await client().create(kind, new_object(kind, "a", "default" if kind.namespaced else ""))


@pytest.mark.parametrize(
    "kind", [CLUSTER, CONFIG_MAP, EVENT, LEASE, ROLE, SECRET], ids=lambda kind: kind.plural
)
async def test_the_management_api_has_its_own_kinds_and_what_its_clients_need(kind: ApiResource):
    assert isinstance(await client().list(kind), list)
