"""The manager's wall clock is set while machines have their turns, are replaced, and while keys are rotated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.seeds import partly_long

from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import DEPLOYMENT

from .cluster_rig import ALL, SERVERS, a_pool, machines_of
from .test_clock_jumps import Managed, a_managed_cluster
from .test_updates import BUDGET, NEXT

HOUR, YEAR = 3600, 365 * 24 * 3600


async def updates_of(managed: Managed) -> dict[str, Raw]:
    machines = await machines_of(managed.sim, managed.ref)
    found = {name_of(raw): nested(raw, "status", "update") for raw in machines}
    return {name: update for name, update in found.items() if update}


async def until(
    managed: Managed, what: Callable[[dict[str, Raw], Raw], bool], within: timedelta = timedelta(hours=1)
) -> None:
    """Return once that is so of the turns and the Cluster. Fails where a turn does."""
    end = managed.sim.clock.monotonic() + within
    while True:
        updates, cluster = await updates_of(managed), await managed.stage.get_cluster()
        failed = {name: update["failure"] for name, update in updates.items() if update.get("failure")}
        assert not failed
        if what(updates, cluster):
            return
        assert managed.sim.clock.monotonic() < end, (updates, cluster["status"].get("waiting"))
        await managed.sim.advance(seconds=1)


def is_at(step: str) -> Callable[[dict[str, Raw], Raw], bool]:
    return lambda updates, _: any(update["step"] == step for update in updates.values())


def is_worker_drained(updates: dict[str, Raw], _: Raw) -> bool:
    return any("-workers-" in name and one["step"] == "Drain" for name, one in updates.items())


def runs_next(updates: dict[str, Raw], cluster: Raw) -> bool:
    return nested(cluster, "status", "version") == NEXT and not updates


def run_story(story: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await story()

    return run_driven(run())


async def set_version(managed: Managed) -> None:
    await managed.sim.management_client.patch(managed.ref, {"spec": {"kubernetesVersion": NEXT}})


@pytest.mark.parametrize("jump_s", partly_long([HOUR, -HOUR, YEAR, -YEAR], [HOUR]))
def test_no_turn_fails_while_the_service_restarts_though_the_clock_is_set(jump_s: int) -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1)) as managed:
            await managed.stage.wait_for_settled()
            await set_version(managed)
            await until(managed, is_at("Apply"))
            managed.set_wall(jump_s)
            await until(managed, runs_next)

    run_story(story)


async def run_shop(managed: Managed) -> None:
    guest, labels = await managed.stage.guest_client(), {"app": "shop"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "shop:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
    await guest.create(DEPLOYMENT, new_object(DEPLOYMENT, "shop", "default", spec=spec))
    budget = {"minAvailable": 2, "selector": {"matchLabels": labels}}
    await guest.create(BUDGET, new_object(BUDGET, "shop", "default", spec=budget))
    await managed.sim.advance(seconds=60)


@asynccontextmanager
async def a_worker_being_drained() -> AsyncIterator[Managed]:
    """In an upgrade, with ten minutes of time, and a budget that does not let go."""
    async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as managed:
        await managed.stage.wait_for_settled()
        drained = {"workerDrainOptions": {"enabled": True, "timeout": 600}}
        change = {"spec": {"rkeConfig": {"upgradeStrategy": drained}}}
        await managed.sim.management_client.patch(managed.ref, change)
        await run_shop(managed)
        await set_version(managed)
        await until(managed, is_worker_drained)
        yield managed


async def let_go(managed: Managed) -> None:
    await (await managed.stage.guest_client()).delete(BUDGET.ref("shop", "default"))


@pytest.mark.long
def test_a_drain_has_its_whole_time_though_the_clock_is_set() -> None:
    async def story() -> None:
        async with a_worker_being_drained() as managed:
            await managed.sim.advance(seconds=60)
            managed.set_wall(HOUR)
            await managed.sim.advance(seconds=60)
            await let_go(managed)
            await until(managed, runs_next)

    run_story(story)


@pytest.mark.long
def test_a_drain_has_its_whole_time_after_an_absence_of_the_manager() -> None:
    async def story() -> None:
        async with a_worker_being_drained() as managed:
            await managed.sim.kill_manager()
            await managed.sim.advance(hours=1)
            managed.sim.start_manager()
            await managed.sim.advance(minutes=1)
            await let_go(managed)
            await until(managed, runs_next)

    run_story(story)


@pytest.mark.long
@pytest.mark.parametrize("step", ["Stop", "Start"])
def test_a_vm_that_stops_or_starts_is_not_late_when_the_clock_is_set(step: str) -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as managed:
            await managed.stage.wait_for_settled()
            config = HARVESTER_CONFIG.ref("nc-workers", managed.ref.namespace)
            await managed.sim.management_client.patch(config, {"memorySize": "8"})
            await until(managed, is_at(step))
            managed.set_wall(HOUR)
            await until(managed, is_at("Stop"))  # the other one, too
            machines = await machines_of(managed.sim, managed.ref, "workers")
            names = {name_of(raw) for raw in machines}
            await until(managed, lambda updates, _: not updates)
            machines = await machines_of(managed.sim, managed.ref, "workers")
            assert {name_of(raw) for raw in machines} == names
            assert {raw["spec"]["options"]["memorySize"] for raw in machines} == {"8"}

    run_story(story)


@pytest.mark.long
def test_a_rollout_replaces_each_machine_once_though_the_clock_is_set() -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as managed:
            await managed.stage.wait_for_settled()
            before = await managed.names("workers")
            config = HARVESTER_CONFIG.ref("nc-workers", managed.ref.namespace)
            await managed.sim.management_client.patch(config, {"enableEfi": "true"})
            ever: set[str] = set()
            end = managed.sim.clock.monotonic() + timedelta(hours=1)
            while len(await managed.names("workers")) == 2:
                await managed.sim.advance(seconds=1)
            await managed.sim.advance(seconds=20)
            managed.set_wall(HOUR)
            while before & await managed.names("workers"):
                ever |= await managed.names("workers")
                assert managed.sim.clock.monotonic() < end
                await managed.sim.advance(seconds=1)
            await managed.stage.wait_for_settled()
            assert len((ever | await managed.names("workers")) - before) == 2

    run_story(story)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["Rotate", pytest.param("PostRotateRestart", marks=pytest.mark.nightly)])
def test_keys_are_rotated_and_every_server_restarts_though_the_clock_is_set(phase: str) -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as managed:
            await managed.stage.wait_for_settled()
            await managed.sim.management_client.patch(
                managed.ref, {"spec": {"rkeConfig": {"rotateEncryptionKeys": {"generation": 1}}}}
            )

            def is_in(wanted: str) -> Callable[[dict[str, Raw], Raw], bool]:
                return lambda _, cluster: nested(cluster, "status", "rotateEncryptionKeysPhase") == wanted

            await until(managed, is_in(phase))
            managed.set_wall(HOUR)
            await until(managed, is_in("Done"))
            request = nested(await managed.stage.get_cluster(), "status", "rotateEncryptionKeysRun", "id")
            servers = await machines_of(managed.sim, managed.ref, "servers")
            assert {nested(raw, "status", "restarted") for raw in servers} == {request}

    run_story(story)


@pytest.mark.long
def test_every_machine_restarts_for_its_certificates_though_the_clock_is_set() -> None:
    async def story() -> None:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as managed:
            await managed.stage.wait_for_settled()
            change = {"spec": {"rkeConfig": {"rotateCertificates": {"generation": 1}}}}
            await managed.sim.management_client.patch(managed.ref, change)
            await until(managed, is_at("Apply"))
            request = nested(await managed.stage.get_cluster(), "status", "certificateRotationRun", "id")
            managed.set_wall(HOUR)
            await until(managed, lambda _, raw: nested(raw, "status", "certificateRotationGeneration") == 1)
            machines = await machines_of(managed.sim, managed.ref)
            assert {nested(raw, "status", "restarted") for raw in machines} == {request}

    run_story(story)
