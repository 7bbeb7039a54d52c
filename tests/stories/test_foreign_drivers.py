"""Machines that another node driver makes: any driver in the NodeDriver controller, through its own machine config kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, stock
from tests.support.clock import run_driven
from tests.support.fake_machines import MemoryMachines
from tests.support.simulation import Simulation, simulation

from windrow.app.embedded import read_credential
from windrow.app.machines import running
from windrow.clusters.api.cluster import ResolveDriver
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE, machine_config
from windrow.clusters.controller import ClusterController
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import CRD
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import DriverConfig, Problem, ReplaceUserDataUnsupported
from windrow.machines.status_store import StatusStore

NOOP_CONFIG = machine_config("NoopConfig")


def a_crd() -> Raw:
    kind = NOOP_CONFIG
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind.kind, "plural": kind.plural, "singular": "noopconfig", "listKind": "NoopConfigList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.group_resource},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def noop_cluster() -> list[Raw]:
    """A cluster of one pool whose machines driver `noop` makes."""
    pool = a_pool("pool1", 1, ALL, machineConfigRef={"kind": "NoopConfig", "name": "nc-pool1"})
    documents = a_cluster(pool, cloudCredentialSecretName="cattle-global-data:cc-noop")
    documents[0] = {
        "apiVersion": NOOP_CONFIG.api_version,
        "kind": "NoopConfig",
        "metadata": {"name": "nc-pool1", "namespace": "fleet-default"},
        "size": "large",
        "clusterName": "is a field like any other here",
    }
    documents[1]["spec"]["rkeConfig"]["machineGlobalConfig"] = {"cni": "calico"}
    return documents


class Hands:
    """Two drivers' machines in memory: `harvester`'s, and every other driver's."""

    def __init__(self, room: Simulation) -> None:
        board = StatusStore()
        self.harvesters = MemoryMachines(room.clock, store=board)
        self.others = MemoryMachines(room.clock, store=board)
        self.machines = DriverDispatch({"harvester": self.harvesters}, self.others, board)


@asynccontextmanager
async def managed(room: Simulation, judge_kind: ResolveDriver) -> AsyncIterator[Hands]:
    hands = Hands(room)
    manager = ClusterController(
        room.management_client, hands.machines, room.connect, room.clock, room.rng, resolve_driver=judge_kind
    )
    async with running(manager.run):
        yield hands


def knows_noop(kind: str) -> str | Problem:
    return {"NoopConfig": "noop", "HarvesterConfig": "harvester"}.get(kind) or Problem("no driver", "none")


async def apply(room: Simulation, documents: list[Raw]) -> None:
    kinds = {"NoopConfig": NOOP_CONFIG, "Cluster": CLUSTER, "HarvesterConfig": HARVESTER_CONFIG}
    for raw in documents:
        await room.management_client.create(kinds[raw["kind"]], raw)


def test_a_pool_of_another_drivers_kind_gets_its_machines_from_that_driver() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as room:
            await room.management_client.create(CRD, a_crd())
            before = await inventory(room.harvester.api)
            async with managed(room, knows_noop) as hands:
                await apply(room, noop_cluster())
                await room.advance(seconds=30)

                (machine,) = await room.management_client.list(MACHINE)
                assert machine["spec"]["driver"] == "noop"
                assert machine["spec"]["options"] == {
                    "clusterName": "is a field like any other here",
                    "size": "large",
                }
                assert nested(machine, "status", "driverConfig", "WindrowDriver") == "noop"
                assert hands.others.vm_names() == [machine["metadata"]["name"]]
                assert hands.harvesters.calls == []
                assert await inventory(room.harvester.api) == before

                await room.management_client.delete(CLUSTER.ref("orchard", "fleet-default"))
                await room.advance(minutes=5)
                assert hands.others.vm_names() == []
                assert await room.management_client.list(MACHINE) == []

    run_driven(story())


class CannotScrub(HarvesterMachines):
    """Makes machines like any, and has no means to replace what they read at their next start."""

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        raise ReplaceUserDataUnsupported(
            "driver noop cannot replace it: the document stays there", "guard it"
        )


def test_a_machine_whose_driver_cannot_scrub_it_reports_that_and_never_counts_as_scrubbed() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as room:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(room, documents)
            client = room.management_client

            async def credential(name: str) -> str:
                return await read_credential(client, name)

            machines = CannotScrub(credential, room.connect, room.clock, room.rng)
            manager = ClusterController(client, machines, room.connect, room.clock, room.rng)
            async with running(machines.run, manager.run):
                await apply(room, documents)
                await room.cluster("orchard").wait_for_settled()
                await room.advance(seconds=30)
                (machine,) = await client.list(MACHINE)
                told = find_condition(machine["status"]["conditions"], "BootstrapDataScrubbed")
                assert told is not None
                assert (told.status, told.reason) == ("False", "NotSupported")
                assert "the document stays there" in told.message

    run_driven(story())


def test_a_kind_without_a_driver_is_reported_and_works_once_there_is_one() -> None:
    given: dict[str, Any] = {}

    def judge_kind(kind: str) -> str | Problem:
        return given.get(kind) or Problem("no NodeDriver provides that kind", "add one: windrow driver add")

    async def story() -> None:
        async with simulation(with_manager=False) as room, managed(room, judge_kind) as hands:
            cluster = noop_cluster()[1]
            await apply(room, [cluster])
            await room.advance(seconds=30)
            told = str((await room.management_client.get(CLUSTER.ref("orchard", "fleet-default")))["status"])
            assert "machineConfigRef.kind is NoopConfig, and no NodeDriver provides that kind" in told
            assert "windrow driver add" in told

            given["NoopConfig"] = "noop"
            await room.management_client.create(CRD, a_crd())
            await apply(room, noop_cluster()[:1])
            await room.advance(minutes=3)
            assert len(hands.others.vm_names()) == 1

    run_driven(story())


def test_a_change_of_a_foreign_machine_config_wakes_its_cluster() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as room:
            await room.management_client.create(CRD, a_crd())
            async with managed(room, knows_noop) as hands:
                await apply(room, noop_cluster()[1:])
                await room.advance(seconds=30)
                assert hands.others.vm_names() == []

                await apply(room, noop_cluster()[:1])
                await room.advance(seconds=10)
                assert len(hands.others.vm_names()) == 1

    run_driven(story())


def test_the_kind_of_a_driver_that_vanished_makes_no_machine() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as room, managed(room, knows_noop) as hands:
            await apply(room, noop_cluster()[1:])
            await room.advance(seconds=30)
            try:
                await room.management_client.list(NOOP_CONFIG)
            except NotFound:
                pass
            else:
                raise AssertionError("the kind was never installed")
            status = (await room.management_client.get(CLUSTER.ref("orchard", "fleet-default")))["status"]
            assert "names NoopConfig 'nc-pool1', which does not exist" in str(status)
            assert hands.others.calls == []

    run_driven(story())
