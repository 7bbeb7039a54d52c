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
from windrow.app.loop import running
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE, machine_config
from windrow.clusters.api.manifest.machine_config import ResolveDriver
from windrow.clusters.controller import ClusterController
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import CRD
from windrow.machines.dispatch import DriverDispatch
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import DriverConfig, InfrastructureUnknown, Problem, ReplaceUserDataUnsupported
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
    documents = a_cluster(pool, cloudCredentialSecretName="fleet-default:cc-noop")
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

    def __init__(self, sim: Simulation) -> None:
        board = StatusStore()
        self.harvesters = MemoryMachines(sim.clock, store=board)
        self.others = MemoryMachines(sim.clock, store=board)
        self.machines = DriverDispatch({"harvester": self.harvesters}, self.others, board)


@asynccontextmanager
async def managed(sim: Simulation, resolve_driver: ResolveDriver) -> AsyncIterator[Hands]:
    hands = Hands(sim)
    manager = ClusterController(
        sim.management_client, hands.machines, sim.connect, sim.clock, sim.rng, resolve_driver=resolve_driver
    )
    async with running(manager.run):
        yield hands


def knows_noop(kind: str) -> str | Problem:
    return {"NoopConfig": "noop", "HarvesterConfig": "harvester"}.get(kind) or Problem("no driver", "none")


async def apply(sim: Simulation, documents: list[Raw]) -> None:
    kinds = {"NoopConfig": NOOP_CONFIG, "Cluster": CLUSTER, "HarvesterConfig": HARVESTER_CONFIG}
    for raw in documents:
        await sim.management_client.create(kinds[raw["kind"]], raw)


def test_a_pool_of_another_drivers_kind_gets_its_machines_from_that_driver() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            await sim.management_client.create(CRD, a_crd())
            before = await inventory(sim.harvester.api)
            async with managed(sim, knows_noop) as hands:
                await apply(sim, noop_cluster())
                await sim.advance(seconds=30)

                (machine,) = await sim.management_client.list(MACHINE)
                assert machine["spec"]["driver"] == "noop"
                assert machine["spec"]["options"] == {
                    "clusterName": "is a field like any other here",
                    "size": "large",
                }
                assert nested(machine, "status", "driverConfig", "WindrowDriver") == "noop"
                assert hands.others.vm_names() == [machine["metadata"]["name"]]
                assert hands.harvesters.calls == []
                assert await inventory(sim.harvester.api) == before

                await sim.management_client.delete(CLUSTER.ref("orchard", "fleet-default"))
                await sim.advance(minutes=5)
                assert hands.others.vm_names() == []
                assert await sim.management_client.list(MACHINE) == []

    run_driven(story())


class CannotScrub(HarvesterMachines):
    """Makes machines like any, and has no means to replace what they read at their next start."""

    async def replace_user_data(self, config: DriverConfig, cloud_config: str) -> DriverConfig:
        raise ReplaceUserDataUnsupported(
            "driver noop cannot replace it: the document stays there", "guard it"
        )


def test_a_machine_whose_driver_cannot_scrub_it_reports_that_and_never_counts_as_scrubbed() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            client = sim.management_client

            async def credential(name: str) -> str:
                return await read_credential(client, name)

            machines = CannotScrub(credential, sim.connect, sim.clock, sim.rng)
            manager = ClusterController(client, machines, sim.connect, sim.clock, sim.rng)
            async with running(machines.run, manager.run):
                await apply(sim, documents)
                await sim.cluster("orchard").wait_for_settled()
                await sim.advance(seconds=30)
                (machine,) = await client.list(MACHINE)
                told = find_condition(machine["status"]["conditions"], "BootstrapDataScrubbed")
                assert told is not None
                assert (told.status, told.reason) == ("False", "NotSupported")
                assert "the document stays there" in told.message

    run_driven(story())


class NotAnswered(HarvesterMachines):
    """Its first removal learns that a creation has ended without an answer."""

    unanswered = True

    async def remove(self, config: DriverConfig, volumes: frozenset[str]) -> None:
        if self.unanswered:
            self.unanswered = False
            raise InfrastructureUnknown("the creation had no answer", "wait", may_be_made=True)
        await super().remove(config, volumes)


def test_a_machine_whose_removal_shows_that_its_creation_had_no_answer_stays_until_none_can_come() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            documents = a_cluster(a_pool("pool1", 1, ALL))
            await stock(sim, documents)
            client = sim.management_client

            async def credential(name: str) -> str:
                return await read_credential(client, name)

            machines = NotAnswered(credential, sim.connect, sim.clock, sim.rng)
            manager = ClusterController(client, machines, sim.connect, sim.clock, sim.rng)
            async with running(machines.run, manager.run):
                await apply(sim, documents)
                await sim.advance(seconds=5)
                await client.delete(CLUSTER.ref("orchard", "fleet-default"))
                await sim.advance(seconds=100)
                (machine,) = await client.list(MACHINE)
                assert "no answer to one is known" in str(machine["status"]["waiting"])

                await sim.advance(seconds=60)
                assert await client.list(MACHINE) == []
                assert await sim.harvester_client.list(VM) == []

    run_driven(story())


def test_a_kind_without_a_driver_is_reported_and_works_once_there_is_one() -> None:
    given: dict[str, Any] = {}

    def resolve_driver(kind: str) -> str | Problem:
        return given.get(kind) or Problem("no NodeDriver provides that kind", "add one: windrow driver add")

    async def story() -> None:
        async with simulation(with_manager=False) as sim, managed(sim, resolve_driver) as hands:
            cluster = noop_cluster()[1]
            await apply(sim, [cluster])
            await sim.advance(seconds=30)
            told = str((await sim.management_client.get(CLUSTER.ref("orchard", "fleet-default")))["status"])
            assert "machineConfigRef.kind is NoopConfig, and no NodeDriver provides that kind" in told
            assert "windrow driver add" in told

            given["NoopConfig"] = "noop"
            await sim.management_client.create(CRD, a_crd())
            await apply(sim, noop_cluster()[:1])
            await sim.advance(minutes=3)
            assert len(hands.others.vm_names()) == 1

    run_driven(story())


def test_a_change_of_a_foreign_machine_config_wakes_its_cluster() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim:
            await sim.management_client.create(CRD, a_crd())
            async with managed(sim, knows_noop) as hands:
                await apply(sim, noop_cluster()[1:])
                await sim.advance(seconds=30)
                assert hands.others.vm_names() == []

                await apply(sim, noop_cluster()[:1])
                await sim.advance(seconds=10)
                assert len(hands.others.vm_names()) == 1

    run_driven(story())


def test_the_kind_of_a_driver_that_vanished_makes_no_machine() -> None:
    async def story() -> None:
        async with simulation(with_manager=False) as sim, managed(sim, knows_noop) as hands:
            await apply(sim, noop_cluster()[1:])
            await sim.advance(seconds=30)
            try:
                await sim.management_client.list(NOOP_CONFIG)
            except NotFound:
                pass
            else:
                raise AssertionError("the kind was never installed")
            status = (await sim.management_client.get(CLUSTER.ref("orchard", "fleet-default")))["status"]
            assert "names NoopConfig 'nc-pool1', which does not exist" in str(status)
            assert hands.others.calls == []

    run_driven(story())
