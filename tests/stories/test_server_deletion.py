"""Servers as a user handles them: the only one deleted by hand, and two that cannot join asked for and given up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stories.cluster_rig import (
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    machines_of,
    post,
    scale,
    stock,
    until,
)
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import HARVESTER_CONFIG, MACHINE
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import EVENT, ObjectRef

NO_NETWORK = "version: 2\nethernets: {}\n"


async def status_of(sim: Simulation, ref: ObjectRef) -> Any:
    return (await sim.management_client.get(ref))["status"]


def test_the_only_server_deleted_by_hand_goes_once_others_have_joined() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS))
        async with simulation(seed=11, with_manager=False) as sim:
            transcript = Transcript(sim.api.local())
            await stock(sim, documents)
            sim.start_manager(transcript)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            transcript.lines.clear()
            (first,) = await machines_of(sim, ref)
            transcript.say("kubectl delete machine, the only one")
            await sim.management_client.delete(MACHINE.ref(name_of(first), ref.namespace))
            await until(stage, "another etcd member to join")
            await sim.advance(minutes=5)
            assert len(await sim.harvester_client.list(VM)) == 1
            events = [
                raw for raw in await sim.management_client.list(EVENT) if raw["reason"] == "DeletionHeld"
            ]
            assert {raw["involvedObject"]["kind"] for raw in events} == {"Cluster", "Machine"}
            assert {raw.get("count") or 1 for raw in events} == {1}

            transcript.say("servers 1 -> 2")
            await scale(sim, ref, 0, 2)
            machines = await stage.wait_for_settled(without=name_of(first))
            assert len(machines) == 2
            done = [line.split()[0] for line in transcript.lines]
            assert done.count("DeletionHeld") == 1
            assert done.index("CreateMachine") < done.index("RemoveEtcdMember") < done.index("DeleteVM")
            assert transcript.lines[-1] == "  waits for nothing"

    run_driven(story())


@pytest.mark.long
def test_servers_that_cannot_join_are_given_up_without_waiting_for_each_other() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS))
        async with simulation(seed=12) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            config = HARVESTER_CONFIG.ref("nc-servers", ref.namespace)
            await sim.management_client.patch(config, {"networkData": NO_NETWORK})
            await scale(sim, ref, 0, 3)
            await sim.advance(minutes=3)
            assert len(await sim.harvester_client.list(VM)) == 4  # one to take the place of the first

            await sim.management_client.patch(config, {"networkData": None})
            await scale(sim, ref, 0, 1)
            await sim.advance(seconds=20)
            assert not (await status_of(sim, ref))["ready"] or len(await machines_of(sim, ref)) == 1
            await sim.advance(minutes=1)

            assert len(await sim.harvester_client.list(VM)) == 1
            status = await status_of(sim, ref)
            assert (status["ready"], status["phase"], nested(status, "waiting")) == (True, "Ready", None)

    run_driven(story())
