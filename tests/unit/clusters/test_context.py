"""What every write of a reconcile leaves: on the server, in the caches, and of what is yet to be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import NOON, LoopClock, run_driven
from tests.unit.clusters.builders import SERVER, a_cluster, a_machine, a_pool, look, record_of, stopped
from tests.unit.clusters.test_cluster import a_raw_cluster

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.machine import Machine, read_machine, render_machine
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.api.status import Breaker
from windrow.clusters.context import (
    STALE_KEPT,
    WATCH_LAG,
    ReconcileContext,
    StalePlan,
    StaleWatch,
    delete_if_exists,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.rng import Rng
from windrow.core.stamps import ObservedStamps
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.objects import finalizers_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SECRET

POOL = a_pool("servers", 3, SERVER)
REF, CLUSTER_REF = MACHINE.ref("s1", "fleet-default"), CLUSTER.ref("prod", "fleet-default")
UNUSED: Any = None


@dataclass
class Site:
    context: ReconcileContext
    api: Client
    clock: LoopClock
    state: ClusterState

    async def machine(self) -> Machine:
        return read_machine(await self.api.get(REF))

    async def phase(self) -> Any:
        return nested(await self.api.get(REF), "status", "phase")

    @property
    def cached(self) -> Any:
        """The phase of the Machine that is cached."""
        found = self.context.machines.get(REF)
        return None if found is None else found.status.get("phase")


def on_a_site(story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = LoopClock()
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        raw = await api.create(CLUSTER, a_raw_cluster())
        cluster = replace(a_cluster(POOL, raw=raw), uid=raw["metadata"]["uid"])
        rendered = render_machine(
            cluster, POOL, "s1", version="v1.35.1+rke2r1", config_hash="", join_server="", is_init_server=True
        )
        await api.create(MACHINE, rendered)

        def cache(kind: Any, read: Any, version: Any) -> Any:
            return MutationCache(Informer(server.local(), kind, "", read, clock, Rng(2)), version, clock)

        context = ReconcileContext(
            api,
            cache(CLUSTER, lambda one: one, lambda one: one["metadata"]["resourceVersion"]),
            cache(MACHINE, read_machine, lambda one: one.resource_version),
            UNUSED,
            clock,
            Rng(3),
            ObservedStamps(clock),
        )
        await story(Site(context, api, clock, look(cluster)))

    run_driven(main())


def test_a_status_that_was_written_is_cached_and_replaces_what_waits_of_the_same_fields() -> None:
    async def story(site: Site) -> None:
        machine = await site.machine()
        later = site.context.patch_machine_status_later
        later(machine, {"phase": "Joining", "host": "h1"})
        assert site.context.with_unwritten_status(machine).status["phase"] == "Joining"

        await site.context.patch_machine_status(machine, {"phase": "Ready"})
        assert (await site.phase(), site.cached) == ("Ready", "Ready")
        assert site.context.process_state.machine_statuses[machine.uid] == {"host": "h1"}

    on_a_site(story)


async def test_where_nothing_changes_nothing_is_sent() -> None:
    context = ReconcileContext(UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED)

    await context.patch_machine_status(a_machine("s1", POOL).record, {})
    await context.patch_cluster_status(look(a_cluster(POOL)), {})


def test_what_rests_on_an_observation_is_written_where_that_is_the_present_state_only() -> None:
    async def story(site: Site) -> None:
        observed = await site.machine()
        await site.context.patch_observed_machine(observed, {"phase": "Provisioning"})
        assert (await site.phase(), site.cached) == ("Provisioning", "Provisioning")
        await site.api.patch(REF, {"status": {"phase": "Joining"}}, "status")
        with pytest.raises(StalePlan):
            await site.context.patch_observed_machine(observed, {"phase": "Ready"})
        assert (await site.phase(), site.cached) == ("Joining", "Joining"), "what is newer is known at once"

        await site.context.patch_observed_cluster(site.state, {"phase": "Pending"})
        with pytest.raises(StalePlan):
            await site.context.patch_observed_cluster(site.state, {"phase": "Ready"})
        raw = await site.api.get(CLUSTER_REF)
        assert raw["status"]["phase"] == "Pending"
        assert site.context.clusters.get(CLUSTER_REF) == raw

    on_a_site(story)


def test_the_status_of_a_machine_that_is_gone_is_not_needed() -> None:
    async def story(site: Site) -> None:
        machine = await site.machine()
        await site.api.patch(REF, {"metadata": {"finalizers": None}})
        await site.api.delete(REF)

        await site.context.patch_machine_status(machine, {"phase": "Ready"})
        with pytest.raises(StalePlan):
            await site.context.patch_observed_machine(machine, {"phase": "Ready"})
        await site.context.refresh_machine(REF)
        assert site.cached is None

    on_a_site(story)


def test_a_finalizer_is_added_and_removed_beside_those_of_others_on_the_very_object() -> None:
    async def story(site: Site) -> None:
        ref = CONFIG_MAP.ref("m", "fleet-default")
        made = await site.api.create(CONFIG_MAP, new_object(CONFIG_MAP, "m", "fleet-default"))
        uid = made["metadata"]["uid"]
        patch = site.context.patch_finalizers

        for name in ("ours/f", "theirs/f", "ours/f"):
            await patch(ref, uid, add=name)
        assert finalizers_of(await site.api.get(ref)) == ["ours/f", "theirs/f"]
        before = await site.api.get(ref)
        assert await patch(ref, uid, drop="none/f") == before
        assert await patch(ref, uid, add="ours/f") == before
        assert await patch(ref, "another", drop="ours/f") is None
        assert await patch(CONFIG_MAP.ref("none", "fleet-default"), uid, add="x/f") is None
        assert finalizers_of(await patch(ref, uid, drop="ours/f") or {"metadata": {}}) == ["theirs/f"]

    on_a_site(story)


def test_a_finalizer_that_another_adds_meanwhile_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        ref = CONFIG_MAP.ref("m", "fleet-default")
        made = await site.api.create(CONFIG_MAP, new_object(CONFIG_MAP, "m", "fleet-default"))
        find = site.api.find

        async def find_before_another(ref: Any) -> Any:
            found = await find(ref)
            await site.api.patch(ref, {"metadata": {"finalizers": ["theirs/f"]}})
            return found

        monkeypatch.setattr(site.api, "find", find_before_another)
        with pytest.raises(Conflict):
            await site.context.patch_finalizers(ref, made["metadata"]["uid"], add="ours/f")
        assert finalizers_of(await site.api.get(ref)) == ["theirs/f"]

    on_a_site(story)


def test_an_object_is_deleted_if_it_is_there_and_still_is_that_one() -> None:
    async def story(site: Site) -> None:
        ref = CONFIG_MAP.ref("m", "fleet-default")
        await delete_if_exists(site.api, ref)
        made = await site.api.create(CONFIG_MAP, new_object(CONFIG_MAP, "m", "fleet-default"))
        with pytest.raises(Conflict):
            await delete_if_exists(site.api, ref, "another")
        assert await site.api.find(ref) is not None
        await delete_if_exists(site.api, ref, made["metadata"]["uid"])
        assert await site.api.find(ref) is None

    on_a_site(story)


def test_after_actions_machines_are_as_they_were_written_and_those_that_are_gone_or_others_are_left_out() -> (
    None
):
    async def story(site: Site) -> None:
        machine = await site.machine()
        gone = replace(machine, name="s2", uid="uid-s2", object_uid="uid-s2")
        other = replace(machine, object_uid="another")
        state = replace(site.state, machines=tuple(MachineState(one, None) for one in (machine, gone)))
        await site.context.patch_machine_status(machine, {"phase": "Joining"})
        site.context.patch_machine_status_later(machine, {"host": "h1"})

        (found,) = site.context.refreshed(state).machines
        assert (found.record.status["phase"], found.record.status["host"]) == ("Joining", "h1")
        replaced = replace(site.state, machines=(MachineState(other, None),))
        assert site.context.refreshed(replaced).machines == ()

    on_a_site(story)


TRIO = [a_machine(f"s{number}", POOL) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("machine", "lasted", "elapsed", "is_told", "is_kept"),
    [
        ("s2", WATCH_LAG, timedelta(), True, True),
        ("s2", WATCH_LAG - timedelta(seconds=1), timedelta(), False, True),
        ("s2", WATCH_LAG, STALE_KEPT, True, True),
        ("s2", WATCH_LAG, STALE_KEPT + timedelta(seconds=1), False, False),
        ("s3", WATCH_LAG, timedelta(), False, False),  # the watch shows it by now
        ("s9", WATCH_LAG, timedelta(), False, False),
    ],
)
def test_a_watch_is_behind_until_it_shows_what_harvester_said(
    machine: str, lasted: timedelta, elapsed: timedelta, is_told: bool, is_kept: bool
) -> None:
    async def story(site: Site) -> None:
        now = site.clock.monotonic()
        stale = site.context.process_state.stale_watches
        state = look(a_cluster(POOL), [TRIO[0], TRIO[1], stopped(TRIO[2])])
        stale[state.cluster.uid] = StaleWatch(machine, now - lasted, now, "it is missing on Harvester")
        await asyncio.sleep(elapsed.total_seconds())

        assert bool(site.context.refresh_stale_watch(state)) is is_told
        assert (state.cluster.uid in stale) is is_kept
        assert site.context.refresh_stale_watch(replace(state, cluster=a_cluster())) == (
            "it is missing on Harvester" if is_told else ""
        )

    on_a_site(story)


def test_stamps_are_as_long_ago_as_they_were_however_the_clock_is_set() -> None:
    async def story(site: Site) -> None:
        read_recorded, by_wall_clock = site.context.read_recorded, site.context.by_wall_clock
        cluster = a_cluster(POOL)
        dated = replace(
            cluster.recorded, initialized_since=NOON, breakers={"a": Breaker(NOON), "b": Breaker(None)}
        )
        cluster = replace(cluster, recorded=dated)
        assert read_recorded(cluster).recorded == dated
        assert (by_wall_clock(None), by_wall_clock(timedelta(seconds=7))) == (
            None,
            NOON + timedelta(seconds=7),
        )

        hour = timedelta(hours=1)
        site.clock.set_wall(hour)
        found = read_recorded(cluster).recorded
        assert (found.initialized_since, found.breakers["a"].released) == (NOON + hour, NOON + hour)
        assert found.breakers["b"].released is None
        assert by_wall_clock(timedelta(seconds=7)) == NOON + hour + timedelta(seconds=7)

    on_a_site(story)


@pytest.mark.parametrize(
    ("config", "lacking", "is_allowed"),
    [
        (None, "", True),
        ({"WindrowCredential": "theirs:cc"}, "", True),
        ({"WindrowCredential": "theirs:cc"}, "theirs", False),
        ({"WindrowCredential": "theirs:cc"}, "ns", False),
        ({}, "theirs", True),
        (None, "ns", False),
    ],
)
def test_a_machine_needs_consent_to_each_credential_that_it_names(
    config: Any, lacking: str, is_allowed: bool
) -> None:
    here = frozenset({"fleet-default"})
    secrets: Any = {
        SECRET.ref("cc", one): SecretData(one, "cc", allowed_namespaces=here)
        for one in ("ns", "theirs")
        if one != lacking
    }
    context = ReconcileContext(UNUSED, UNUSED, UNUSED, secrets, UNUSED, UNUSED, UNUSED)
    machine = record_of(a_machine("s1", POOL), driver_config=config, credential="ns:cc").record
    if is_allowed:
        context.require_machine_consent(machine)
        context.require_machine_consent(replace(machine, credential=""))
    else:
        with pytest.raises(CredentialError):
            context.require_machine_consent(machine)
