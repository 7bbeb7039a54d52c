"""What the watches of a Harvester show of its hosts, its upgrades and its release."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.sources.hosts import RETRY_INTERVAL, UNKNOWN, HarvesterHosts, ObservedHosts
from windrow.core.rng import Rng
from windrow.emulator import definitions
from windrow.harvester.resources import SETTING, UPGRADE
from windrow.kubernetes.errors import Forbidden, Unreachable
from windrow.kubernetes.objects import name_of, new_object
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import NAMESPACE as NAMESPACES
from windrow.kubernetes.resources import NODE

CREDENTIAL = "ns:cc"
NAMESPACE = "harvester-system"


@dataclass(eq=False)
class Door:
    """A transport that refuses paths which contain one of `shut`, and is unreachable while `away`, or where they contain `lost`."""

    inner: Transport
    shut: set[str] = field(default_factory=set)
    away: bool = False
    lost: str = ""
    asked: list[str] = field(default_factory=list)
    watches: set[asyncio.Timeout] = field(default_factory=set)

    def check(self, request: Request) -> None:
        self.asked.append(request.path)
        if self.away or (self.lost and self.lost in request.path):
            raise Unreachable("no route to host")
        if any(word in request.path for word in self.shut):
            raise Forbidden(f"{request.path} is forbidden", status=403)

    async def send(self, request: Request) -> Reply:
        self.check(request)
        return await self.inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self.check(request)
        scope = asyncio.timeout(None)
        try:
            async with scope, self.inner.stream(request) as events:
                self.watches.add(scope)
                yield events
        except TimeoutError as error:
            raise Unreachable("connection reset by peer") from error
        finally:
            self.watches.discard(scope)

    def leave(self) -> None:
        self.away = True
        for scope in self.watches:
            scope.reschedule(asyncio.get_running_loop().time())

    async def aclose(self) -> None: ...


@dataclass
class Site:
    harvester: Client
    door: Door
    hosts: HarvesterHosts
    group: asyncio.TaskGroup
    changed: list[str]
    released: list[str]

    def watch(self, cluster: str = "prod", *credentials: str) -> None:
        self.hosts.watch(self.group, CLUSTER.ref(cluster, "ns"), credentials or (CREDENTIAL,))

    def end(self, cluster: str = "prod") -> None:
        self.hosts.watch(self.group, CLUSTER.ref(cluster, "ns"), ())

    @property
    def observed(self) -> ObservedHosts:
        return self.hosts.find(CREDENTIAL)


def run_story(
    story: Callable[[Site], Awaitable[None]],
    *,
    shut: set[str] | None = None,
    has_upgrades: bool = True,
) -> None:
    async def run() -> None:
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1))
        settings = next(raw for raw in definitions.crds() if name_of(raw).startswith("settings."))
        for raw in (settings, *([definitions.upgrade()] if has_upgrades else ())):
            server.install_crd(raw)
        harvester = Client(server.local())
        door = Door(harvester.transport, shut or set())
        clients: Any = SimpleNamespace(get_client=lambda *_: SimpleNamespace(transport=door))
        changed: list[str] = []
        released: list[str] = []
        hosts = HarvesterHosts(clients, clock, changed.append, released.append)
        await harvester.create(NAMESPACES, new_object(NAMESPACES, NAMESPACE, ""))
        for name in ("a", "b"):
            await harvester.create(NODE, a_node(name))
        async with asyncio.TaskGroup() as group:
            site = Site(harvester, door, hosts, group, changed, released)
            await story(site)
            for cluster in ("prod", "other"):
                site.end(cluster)

    run_driven(run())


def a_node(name: str) -> dict[str, Any]:
    return new_object(NODE, name, "", status={"conditions": [{"type": "Ready", "status": "True"}]})


async def cordon(site: Site, name: str) -> None:
    await site.harvester.patch(NODE.ref(name), {"spec": {"unschedulable": True}})


async def upgrade(site: Site, namespace: str = NAMESPACE, **states: str) -> None:
    raw = new_object(UPGRADE, "hvst", namespace, spec={"version": "v1.9.0"})
    raw["status"] = {"nodeStatuses": {host: {"state": state} for host, state in states.items()}}
    await site.harvester.create(UPGRADE, raw)


def test_nothing_is_known_before_the_first_lists_and_then_what_is_so_now() -> None:
    async def story(site: Site) -> None:
        assert site.observed == UNKNOWN
        site.watch()
        assert site.observed == UNKNOWN
        await asyncio.sleep(1)
        assert site.observed == ObservedHosts({}, is_current=True)
        await upgrade(site, a="Pre-draining")
        await asyncio.sleep(1)
        assert list(site.observed.maintenance) == ["a"]
        assert site.changed[-1] == CREDENTIAL
        site.end()
        assert site.observed == UNKNOWN

    run_story(story)


def test_for_all_clusters_of_a_credential_there_is_one_set_of_watches() -> None:
    async def story(site: Site) -> None:
        site.watch()
        await asyncio.sleep(1)
        asked = len(site.door.asked)
        site.watch("other")
        await asyncio.sleep(1)
        site.end("prod")
        assert site.observed.is_current
        assert len(site.door.asked) == asked

    run_story(story)


def test_what_changes_nothing_about_maintenance_reaches_no_cluster() -> None:
    async def story(site: Site) -> None:
        site.watch()
        await asyncio.sleep(1)
        site.changed.clear()
        await cordon(site, "a")  # no VM leaves it for that
        await site.harvester.patch(
            NODE.ref("a"), {"metadata": {"annotations": {"kubevirt.io/heartbeat": "now"}}}
        )
        await asyncio.sleep(1)
        assert site.changed == []

    run_story(story)


def test_while_harvester_is_away_what_was_so_last_stays_and_is_not_current() -> None:
    async def story(site: Site) -> None:
        site.watch()
        await upgrade(site, a="Draining")
        await asyncio.sleep(1)
        site.door.leave()
        await asyncio.sleep(5)
        assert list(site.observed.maintenance) == ["a"]
        assert not site.observed.is_current
        site.door.away = False
        await site.harvester.delete(UPGRADE.ref("hvst", NAMESPACE))
        await asyncio.sleep(60)
        assert site.observed == ObservedHosts({}, is_current=True)

    run_story(story)


def test_a_harvester_without_upgrades_has_maintenance_mode_alone() -> None:
    async def story(site: Site) -> None:
        site.watch()
        await site.harvester.patch(
            NODE.ref("b"), {"metadata": {"annotations": {"harvesterhci.io/drain-requested": "true"}}}
        )
        await asyncio.sleep(1)
        assert list(site.observed.maintenance) == ["b"]
        assert (site.observed.is_current, site.observed.hidden) == (True, "")

    run_story(story, has_upgrades=False)


def test_who_may_not_watch_upgrades_knows_of_maintenance_mode_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(site: Site) -> None:
        site.watch()
        await asyncio.sleep(1)
        assert site.observed.is_current
        assert "forbidden" in site.observed.hidden

    run_story(story, shut={"upgrades"})


def test_who_may_not_watch_nodes_knows_nothing_is_told_once_and_asked_again_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def story(site: Site) -> None:
        site.watch()
        await asyncio.sleep(2 * RETRY_INTERVAL.total_seconds() + 1)
        assert (site.observed.maintenance, site.observed.is_current) == ({}, False)
        assert "nodes" in site.observed.hidden
        assert sum(path.endswith("/nodes") for path in site.door.asked) == 3
        assert site.changed.count(CREDENTIAL) == 1
        site.door.shut.clear()  # the right was given
        site.hosts.restart(CREDENTIAL)
        await asyncio.sleep(1)
        assert site.observed == ObservedHosts({}, is_current=True)

    run_story(story, shut={"nodes"})
    told = [one.getMessage() for one in caplog.records if "may not watch nodes" in one.getMessage()]
    assert len(told) == 1
    assert "let its user get, list and watch nodes and upgrades.harvesterhci.io" in told[0]


def test_another_release_is_told_and_the_first_that_is_read_is_not() -> None:
    async def story(site: Site) -> None:
        ref = SETTING.ref("server-version")
        await site.harvester.create(SETTING, {**new_object(SETTING, "server-version", ""), "value": "v1.8.2"})
        await site.harvester.create(SETTING, {**new_object(SETTING, "other", ""), "value": "1"})
        site.watch()
        await asyncio.sleep(1)
        assert site.released == []
        await site.harvester.patch(SETTING.ref("other"), {"value": "2"})
        await asyncio.sleep(1)
        assert site.released == []
        await site.harvester.patch(ref, {"value": "v1.9.0"})
        await asyncio.sleep(1)
        assert site.released == [CREDENTIAL]

    run_story(story)


def test_hosts_are_not_current_before_the_upgrades_are() -> None:
    """An upgrade may be under way that is not listed yet: nothing of it may be taken for over."""

    async def story(site: Site) -> None:
        site.door.lost = "/upgrades"
        site.watch()
        await asyncio.sleep(2)
        assert not site.observed.is_current
        site.door.lost = ""
        await asyncio.sleep(60)
        assert site.observed.is_current

    run_story(story)


def test_an_upgrade_of_another_namespace_is_none_of_harvesters() -> None:
    async def story(site: Site) -> None:
        await site.harvester.create(NAMESPACES, new_object(NAMESPACES, "tenant", ""))
        await upgrade(site, "tenant", a="Draining")
        site.watch()
        await asyncio.sleep(1)
        assert site.observed == ObservedHosts({}, is_current=True)

    run_story(story)


def test_a_credential_that_changes_is_used_at_once_and_what_the_one_before_showed_is_forgotten() -> None:
    async def story(site: Site) -> None:
        site.watch()
        await upgrade(site, a="Draining")
        await asyncio.sleep(1)
        site.hosts.restart(CREDENTIAL)
        await asyncio.sleep(1)
        assert list(site.observed.maintenance) == ["a"]
        assert site.observed.is_current
        site.door.shut.add("/upgrades")  # the next one may not see them
        site.hosts.restart(CREDENTIAL)
        await asyncio.sleep(1)
        assert site.observed.maintenance == {}
        assert "forbidden" in site.observed.hidden
        site.hosts.restart("another:credential")

    run_story(story)
