"""What claiming and releasing addresses does: of two that want one address, one has it, and both know."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import a_cluster, a_pool
from tests.unit.clusters.test_addresses import NETWORK, a_claim
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import install_crds, management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.transport import TransportMiddleware
from windrow.clusters.api.addresses import IPAddress, read_ip_address, render_ip_address
from windrow.clusters.api.kinds import IP_ADDRESS, MACHINE
from windrow.clusters.api.machine import render_machine
from windrow.clusters.context import StalePlan
from windrow.clusters.execute.address_actions import AddressActions
from windrow.clusters.plan.actions import ClaimAddresses, ReleaseAddresses, ReleaseUnusedAddresses
from windrow.clusters.sources.addresses import AddressBook
from windrow.core.rng import Rng
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.requests import Reply, Request

OURS, THEIRS = a_claim("10.9.0.15"), a_claim("10.9.0.15", "w2")


class Releasing(TransportMiddleware):
    """What is read of an IPAddress was released just before."""

    async def send(self, request: Request) -> Reply:
        if request.method == "GET":
            await self._inner.send(replace(request, method="DELETE"))
        return await self._inner.send(request)


@dataclass
class Site:
    api: Client
    book: AddressBook
    actions: AddressActions

    async def claim(self, *claims: IPAddress) -> bool:
        """Whether they are the machine's; another was faster otherwise."""
        try:
            await self.actions.claim_addresses(ClaimAddresses("it is made", "w1", claims))
        except StalePlan:
            return False
        return True

    async def holders(self) -> dict[str, str]:
        found = [read_ip_address(raw) for raw in await self.api.list(IP_ADDRESS)]
        return {one.address: one.machine for one in found if one is not None}


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock, rng = LoopClock(), Rng(1)
        server = management_api(MemoryStore(), clock, rng)
        await server.prepare()
        api = Client(server.local())
        await install_crds(api)
        book = AddressBook(Informer(api.transport, IP_ADDRESS, "", read_ip_address, clock, rng))
        await story(Site(api, book, AddressActions(api, book)))

    run_driven(main())


def test_a_claim_may_be_repeated_and_is_known_at_once() -> None:
    async def story(site: Site) -> None:
        assert await site.claim(OURS, a_claim("fd00:9::15"))
        assert await site.claim(OURS)
        assert await site.holders() == dict.fromkeys(("10.9.0.15", "fd00:9::15"), "fleet-default/w1")
        assert {one.address for one in site.book.of_machine("uid-w1")} == {"10.9.0.15", "fd00:9::15"}

    on_a_site(story)


def test_an_address_that_another_machine_has_is_known_to_be_taken_and_nothing_more_is_claimed() -> None:
    async def story(site: Site) -> None:
        await site.api.create(IP_ADDRESS, render_ip_address(THEIRS))

        assert not await site.claim(OURS, a_claim("10.9.0.16"))
        assert await site.holders() == {"10.9.0.15": "fleet-default/w2"}
        assert site.book.list_taken(NETWORK, "hv") == {"10.9.0.15"}

    on_a_site(story)


@pytest.mark.parametrize("is_gone", [True, False], ids=["released meanwhile", "of another program"])
def test_what_has_the_name_and_cannot_be_read_is_not_the_machines(is_gone: bool) -> None:
    async def story(site: Site) -> None:
        raw = render_ip_address(OURS)
        if not is_gone:
            raw["spec"]["address"] = "none"
        await site.api.create(IP_ADDRESS, raw)
        if is_gone:
            site = replace(site, actions=AddressActions(Client(Releasing(site.api.transport)), site.book))

        assert not await site.claim(OURS)
        assert site.book.list_taken(NETWORK, "hv") == frozenset()

    on_a_site(story)


def test_what_is_released_is_free_and_that_may_be_repeated() -> None:
    async def story(site: Site) -> None:
        await site.claim(OURS)
        claims = site.book.of_machine("uid-w1")

        for _ in range(2):
            await site.actions.release_addresses(ReleaseAddresses("its VM is gone", "w1", claims))
            assert await site.holders() == {}
            assert site.book.list_taken(NETWORK, "hv") == frozenset()

    on_a_site(story)


@pytest.mark.parametrize("has_machine", [True, False])
def test_the_address_of_a_machine_that_exists_after_all_is_not_released(has_machine: bool) -> None:
    async def story(site: Site) -> None:
        machine = render_machine(
            a_cluster(raw=a_raw_cluster()),
            a_pool(),
            "w1",
            version="v1.35.1+rke2r1",
            config_hash="0",
            join_server="",
            is_init_server=False,
        )
        raw = await site.api.create(MACHINE, machine)
        uid = uid_of(raw) if has_machine else "uid-of-a-namesake-that-is-gone"
        await site.claim(replace(OURS, machine_uid=uid))
        unused = ReleaseUnusedAddresses("its Machine is gone", site.book.of_machine(uid))

        if has_machine:
            with pytest.raises(StalePlan):
                await site.actions.release_unused_addresses(unused)
        else:
            await site.actions.release_unused_addresses(unused)

        assert list(await site.holders()) == (["10.9.0.15"] if has_machine else [])

    on_a_site(story)
