"""What the watches of a Harvester show of a Cluster there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.clusters.state import Place
from windrow.core.rng import Rng
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET, SERVICE_ACCOUNT

HERE = Place("ns:cc", "default", "ns")
TOKEN = "kubernetes.io/service-account-token"


def test_the_account_of_a_guest_is_there_when_its_token_is_and_both_are_its_own() -> None:
    """In between it is not: what is told to guests is the token. Of what is not watched nothing is known."""

    async def story() -> None:
        clock = LoopClock()
        harvester = Client(ApiServer(MemoryStore(), clock, Rng(1)).local())
        clients: Any = SimpleNamespace(
            get_client=lambda *_: SimpleNamespace(transport=harvester.transport), get_config=lambda *_: None
        )
        objects = HarvesterObjects(clients, clock, Rng(1), lambda *_: None, lambda _: None)

        def found(uid: str = "u", place: Place = HERE) -> bool | None:
            return objects.has_account("prod", "prod-token", uid, place)

        async with asyncio.TaskGroup() as group:
            objects.watch(group, CLUSTER.ref("prod", "ns"), frozenset({HERE}))
            assert found() is None
            await asyncio.sleep(1)
            assert found() is False
            ours: Any = {"annotations": {CLUSTER_UID: "u"}}
            account = await harvester.create(
                SERVICE_ACCOUNT,
                new_object(SERVICE_ACCOUNT, "prod", "default", finalizers=["x/keeps"], **ours),
            )
            await asyncio.sleep(1)
            assert found() is False
            token: Any = {
                "annotations": {**ours["annotations"], "kubernetes.io/service-account.name": "prod"}
            }
            await harvester.create(SECRET, new_object(SECRET, "prod-token", "default", type=TOKEN, **token))
            await asyncio.sleep(1)
            assert (found(), found("other")) == (True, False)
            assert found(place=Place("ns:cc", "elsewhere", "ns")) is None
            await harvester.delete(SERVICE_ACCOUNT.ref("prod", "default"), uid=account["metadata"]["uid"])
            await asyncio.sleep(1)
            assert found() is False
            objects.watch(group, CLUSTER.ref("prod", "ns"), frozenset())
            assert found() is None

    run_driven(story())
