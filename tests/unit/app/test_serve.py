from __future__ import annotations

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.serve import RancherPresent, refuse_if_rancher_present
from windrow.client.client import Client
from windrow.core.rng import Rng
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import LEASE


def with_lease(holder: str | None) -> None:
    async def story() -> None:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        if holder is not None:
            spec = {"holderIdentity": holder} if holder else {}
            await client.create(LEASE, new_object(LEASE, "cattle-controllers", "kube-system", spec=spec))
        await refuse_if_rancher_present(client)

    run_driven(story())


def test_a_kubernetes_without_rancher_is_free():
    with_lease(None)


def test_a_rancher_that_has_left_is_no_hindrance():
    with_lease("")


def test_beside_a_rancher_at_work_the_manager_does_not_start():
    with pytest.raises(RancherPresent, match="a Rancher manages clusters here") as refused:
        with_lease("rancher-1")

    assert "windrow serve --state-dir DIR" in refused.value.hint
