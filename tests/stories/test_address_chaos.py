"""Load balancers and pools in any order, through a faulty door: no address is held twice, and each comes back once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.random_faults import random_faults
from tests.support.clock import run_driven

from windrow.core.formats.json import loads
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.kubernetes import requests
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested
from windrow.kubernetes.requests import Request

from .harvester_rig import a_harvester
from .test_load_balancers import a_balancer, a_pool, address, lb_ref, pool_ref, ready

BALANCERS = tuple("abcdefgh")
STEPS = 300
RANGES = {
    "one": [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.4"}],
    "two": [{"subnet": "10.2.0.0/30"}, {"subnet": "10.2.1.7/32"}],
}
WIDER = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.9"}]


class Client:
    """A client of the emulated Harvester: each request passes the faults, and no reply is taken for granted."""

    def __init__(self, harvester: Harvester) -> None:
        self.door = harvester.handler
        self.headers = (("Authorization", f"Bearer {harvester.new_token()}"),)
        self.answers: dict[int, int] = {}

    async def send(self, request: Request) -> Raw | None:
        """The object of the reply; None where the request is refused or its outcome unknown."""
        with suppress(KubeError):
            reply = await self.door.send(replace(request, headers=self.headers), Peer())
            self.answers[reply.status] = self.answers.get(reply.status, 0) + 1
            if reply.status < 300:
                return dict(loads(reply.body))
        return None


async def something(client: Client, rng: Rng) -> None:
    """One thing that cloud providers, administrators or their mistakes do."""
    name, pool = BALANCERS[rng.below(len(BALANCERS))], ("one", "two")[rng.below(2)]
    ipam = ("pool", "pool", "dhcp")[rng.below(3)]
    other: Any = {"spec": {"ranges": (WIDER, RANGES["one"])[rng.below(2)]}}
    requested: list[Request] = [
        requests.create(kinds.LOAD_BALANCER, a_balancer(name, ipam=ipam)),
        requests.create(kinds.LOAD_BALANCER, a_balancer(name)),
        requests.create(kinds.LOAD_BALANCER, a_balancer(name, ipPool=pool)),
        requests.delete(lb_ref(name)),
        requests.delete(lb_ref(name)),
        requests.merge_patch(lb_ref(name), {"spec": {"ipPool": pool}}),
        requests.merge_patch(lb_ref(name), {"status": {"allocatedAddress": None}}),
        requests.merge_patch(lb_ref(name), {"status": {"address": "10.1.0.2"}}),
        requests.merge_patch(lb_ref(name), {"spec": {"ipam": "dhcp"}}),
        requests.create(kinds.IP_POOL, a_pool(pool, ranges=RANGES[pool], priority=len(pool))),
        requests.delete(pool_ref(pool)),
        requests.merge_patch(pool_ref("one"), other),
    ]
    await client.send(requested[rng.below(len(requested))])


async def follow_books(harvester: Harvester, seen: list[str]) -> None:
    """The books of every pool add up at every single write."""
    async with harvester.api.local().watch(kinds.IP_POOL) as events:
        async for event in events:
            status = event.object.get("status")
            if event.type == "DELETED" or not status:
                continue
            held = status.get("allocated") or {}
            if status["available"] != status["total"] - len(held):
                seen.append(f"{name_of(event.object)}: {status}")
            if len(set(held.values())) != len(held):
                seen.append(f"{name_of(event.object)}: a holder has two addresses: {held}")


async def holds(harvester: Harvester) -> None:
    """What holds while no request is under way."""
    line = harvester.api.local()
    balancers = [raw for raw in await line.list(kinds.LOAD_BALANCER) if not is_deleting(raw)]
    given = [address(raw) for raw in balancers if nested(raw, "status", "allocatedAddress", "ipPool")]
    assert len(given) == len(set(given)), given
    books = {
        name_of(raw): nested(raw, "status", "allocated", default={}) for raw in await line.list(kinds.IP_POOL)
    }
    for raw in balancers:
        held = nested(raw, "status", "allocatedAddress", default={})
        if held.get("ipPool"):
            assert books[held["ipPool"]][held["ip"]] == f"default/{name_of(raw)}"
            assert held["ip"] != held["gateway"]


@pytest.mark.parametrize("seed", range(6))
def test_no_address_is_held_twice_and_every_one_comes_back(seed: int):
    async def story() -> None:
        rng = Rng(f"addresses {seed}")
        # What a load balancer forgets is healed by releases since 1.5; a leak of older ones is no accident.
        async with a_harvester(
            seed, version="v1.9.0", faults=random_faults(Rng(seed), probability=0.03)
        ) as harvester:
            client, wrong = Client(harvester), list[str]()
            books = asyncio.ensure_future(follow_books(harvester, wrong))
            for _ in range(STEPS):
                await something(client, rng)
                await harvester.clock.sleep(rng.uniform(0, 3))
                await harvester.clock.sleep(0.5 if rng.below(4) == 0 else 0)
                await holds(harvester)
            await end(harvester)
            books.cancel()
            assert wrong == []
            assert client.answers.keys() >= {200, 201, 404, 409, 500}

    run_driven(story())


async def end(harvester: Harvester) -> None:
    """Everybody leaves; then every pool is as full as on its first day, and may go."""
    line = harvester.api.local()
    await harvester.clock.sleep(120)
    await holds(harvester)
    for raw in await line.list(kinds.LOAD_BALANCER):
        await line.delete(lb_ref(name_of(raw)))
    await harvester.clock.sleep(120)
    assert await line.list(kinds.LOAD_BALANCER) == []
    for raw in await line.list(kinds.IP_POOL):
        assert ready(raw)
        assert "allocated" not in raw["status"]
        assert raw["status"]["available"] == raw["status"]["total"]
        await line.delete(pool_ref(name_of(raw)))
