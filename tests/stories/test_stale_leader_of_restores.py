"""A manager that stalls in a restore in place loses the Lease; what it had sent to Harvester arrives when another has finished it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.clusters.api.kinds import ETCD_SNAPSHOT
from windrow.harvester.resources import VM_ACTIONS
from windrow.kubernetes.objects import name_of, nested, new_object, uid_of
from windrow.kubernetes.requests import Request, put_subresource
from windrow.kubernetes.resources import CONFIG_MAP

from .cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, stock
from .test_stale_leader_of_changes import Contender, Matches, Stall


def stops_a_vm(request: Request) -> bool:
    return request.method == "PUT" and request.path.endswith("/stop")


def writes_the_reset(request: Request) -> bool:
    """The user data by which the server resets etcd at its next start."""
    return request.method in ("PATCH", "PUT") and "/namespaces/default/secrets/" in request.path


@pytest.mark.long
@pytest.mark.parametrize("matches", [pytest.param(stops_a_vm, marks=pytest.mark.nightly), writes_the_reset])
def test_what_a_manager_sent_before_another_finished_the_restore_restores_nothing_again(
    matches: Matches,
) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 2, SERVERS))
        async with simulation(seed=7, with_manager=False) as sim:
            await stock(sim, documents)
            stall, never = Stall(matches), Stall(lambda _: False)
            first = Contender(sim, "one", stall)
            await sim.advance(seconds=1)
            second = Contender(sim, "two", never)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            async def ask(**operations: object) -> None:
                await sim.management_client.patch(ref, {"spec": {"rkeConfig": operations}})

            async def until(path: str, wanted: str) -> None:
                end = sim.clock.now() + timedelta(hours=1)
                while (await stage.get_cluster())["status"].get(path) != wanted:
                    assert sim.clock.now() < end
                    await sim.advance(seconds=1)

            await ask(etcdSnapshotCreate={"generation": 1})
            await until("etcdSnapshotCreatePhase", "Finished")
            await sim.advance(seconds=30)
            (member, *_) = await machines_of(sim, ref)
            snapshots = await sim.management_client.list(ETCD_SNAPSHOT, ref.namespace)
            own = [raw for raw in snapshots if nested(raw, "snapshotFile", "nodeName") == name_of(member)]
            assert first.elector.may_write
            stall.is_armed = True
            await ask(etcdSnapshotRestore={"name": name_of(own[0]), "generation": 1})
            end = sim.clock.now() + timedelta(hours=1)
            while stall.late is None:
                await sim.advance(seconds=1)
                assert sim.clock.now() < end
            await until("etcdSnapshotRestorePhase", "Finished")
            assert second.elector.may_write
            await stage.wait_for_settled()
            guest = await stage.guest_client()
            await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "since", "default"))
            machines = {uid_of(raw) for raw in await machines_of(sim, ref)}

            stall.arrives.set()
            await stall.late
            await sim.advance(minutes=1)
            restart = put_subresource(VM_ACTIONS.ref(name_of(member), "default"), "restart")
            if matches is writes_the_reset:  # it reads its user data when it starts
                await sim.harvester_client.call(restart)
            await sim.advance(minutes=20)

            await stage.wait_for_settled()
            assert {uid_of(raw) for raw in await machines_of(sim, ref)} == machines
            assert nested(await stage.get_cluster(), "status", "ready") is True
            guest = await stage.guest_client()
            assert "since" in {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}
            for manager in (first, second):
                await manager.stop()

    run_driven(story())
