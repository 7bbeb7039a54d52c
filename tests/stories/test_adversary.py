"""What a manager may conclude from what it did not see, and from orders that were not taken: nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.app.guest_programs import guest_programs
from windrow.app.loop import running
from windrow.app.network import in_process_connector
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.rng import Rng
from windrow.demo.cluster import NODE_MACHINE, DemoCluster
from windrow.emulator.faults import CONFLICT, Fault, Refuse
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.names import CLUSTER_UID, MACHINE_UID
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, new_object
from windrow.kubernetes.requests import Reply, put_subresource
from windrow.kubernetes.resources import EVENT, NODE, SECRET

from .cluster_phases import delete, manifest

SECRETS = SECRET.ref("orchard-windrow-secrets", "fleet-default")


async def begin(sim: Simulation, servers: int = 1, workers: int = 1) -> DemoCluster:
    await sim.apply(manifest(servers, workers))
    return sim.cluster("orchard", timeout=timedelta(minutes=30))


async def until(sim: Simulation, stage: DemoCluster, is_so: Callable[[list[Raw]], bool]) -> None:
    for _ in range(600):
        if is_so(await stage.list_machines()):
            return
        await sim.advance(seconds=1)
    raise AssertionError("the machines never came that far")


def all_made(count: int) -> Callable[[list[Raw]], bool]:
    def is_so(machines: list[Raw]) -> bool:
        return [bool(nested(raw, "status", "driverConfig", "WindrowVMUID")) for raw in machines] == [
            True
        ] * count

    return is_so


async def names(stage: DemoCluster) -> set[str]:
    return {name_of(raw) for raw in await stage.list_machines()}


def test_a_cluster_that_started_while_its_manager_was_away_is_kept() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await until(sim, stage, all_made(2))
            assert not (await stage.get_cluster())["status"].get("initialized")
            before = await names(stage)
            await sim.kill_manager()
            await sim.advance(hours=1)
            sim.start_manager()
            await stage.wait_for_settled()
            assert await names(stage) == before

    run_driven(story())


def test_two_members_that_joined_unseen_leave_etcd_one_after_the_other() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim, servers=3, workers=0)
            await until(sim, stage, all_made(3))
            while not (await stage.get_cluster())["status"].get("initialized"):
                await sim.advance(seconds=1)
            await sim.kill_manager()
            await sim.advance(minutes=20)
            _, *others = [
                name_of(raw) for raw in await stage.list_machines() if not nested(raw, "status", "nodeRef")
            ]
            for name in others:
                await sim.management_client.delete(MACHINE.ref(name, "fleet-default"))
            sim.start_manager()
            await stage.wait_for_settled()
            told = [
                (event["reason"], event["involvedObject"]["name"])
                for event in sorted(await sim.management_client.list(EVENT), key=_age)
                if event["involvedObject"]["name"] in others
                and event["reason"] in ("RemoveEtcdMember", "DeleteVM")
            ]
            assert [reason for reason, _ in told] == ["RemoveEtcdMember", "DeleteVM"] * len(others)

    run_driven(story())


def _age(event: Raw) -> Any:
    return int(event["metadata"]["resourceVersion"])


def test_lost_authorities_are_not_replaced_by_others() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await stage.wait_for_settled()
            kept = await sim.management_client.get(SECRETS)
            await sim.management_client.delete(SECRETS)
            await sim.advance(minutes=2)
            assert await sim.management_client.find(SECRETS) is None
            assert (
                "Secret fleet-default/orchard-windrow-secrets to be restored"
                in (await stage.get_cluster())["status"]["waiting"]["for"]
            )
            fields = ("name", "namespace", "labels", "annotations", "ownerReferences")
            metadata = {key: kept["metadata"][key] for key in fields if key in kept["metadata"]}
            await sim.management_client.create(SECRET, {**kept, "metadata": metadata})
            await sim.advance(minutes=1)
            assert not (await stage.wait_for_ready())["status"].get("waiting")

    run_driven(story())


def test_a_start_that_harvester_did_not_take_is_no_start_in_vain() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await stage.wait_for_settled()
            before = await names(stage)
            worker = next(name for name in before if "workers" in name)
            faults = sim.harvester.faults
            deaf = faults.add(
                Fault(Refuse(403, "Forbidden"), where=lambda request: request.path.endswith("/start"))
            )
            await sim.harvester_client.call(put_subresource(VM_ACTIONS.ref(worker, "default"), "stop"))
            await sim.advance(minutes=15)
            assert faults.times_injected(deaf) > 1
            faults.end(deaf)
            await stage.wait_for_settled()
            assert await names(stage) == before

    run_driven(story())


@pytest.mark.parametrize("plural", ["serviceaccounts", "secrets", "rolebindings", "clusterrolebindings"])
def test_a_conflict_is_not_the_end_of_the_guests_account(plural: str) -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            before = await inventory(sim.harvester.api)
            stage = await begin(sim)
            await stage.wait_for_settled()
            conflict = Fault(CONFLICT, frozenset({"delete"}), frozenset({plural}), name="*orchard*", times=1)
            sim.harvester.faults.add(conflict)
            await delete(stage)
            await sim.advance(minutes=1)
            assert sim.harvester.faults.times_injected(conflict) == 1
            left = {item for item in await inventory(sim.harvester.api) if item not in before}
            assert {item[0] for item in left} <= {"VirtualMachineImage", "NetworkAttachmentDefinition"}

    run_driven(story())


def test_a_vm_that_lost_its_marks_is_not_left_behind() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await stage.wait_for_settled()
            worker = VM.ref(next(name for name in await names(stage) if "workers" in name), "default")
            marks = (await sim.harvester_client.get(worker))["metadata"]["annotations"]
            nothing = dict.fromkeys((MACHINE_UID, CLUSTER_UID))
            await sim.harvester_client.patch(worker, {"metadata": {"annotations": nothing}})
            await sim.advance(minutes=10)
            await sim.management_client.delete(MACHINE.ref(worker.name, "fleet-default"))
            await sim.advance(minutes=5)
            assert worker.name in await names(stage)
            found = await sim.harvester_client.get(worker)
            assert "deletionTimestamp" not in found["metadata"]
            again = {key: marks[key] for key in nothing}
            await sim.harvester_client.patch(worker, {"metadata": {"annotations": again}})
            await stage.wait_for_settled(without=worker.name)
            assert await sim.harvester_client.find(worker) is None

    run_driven(story())


def test_a_page_of_a_proxy_in_between_is_not_the_end_of_a_vm(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Reply(404, b"404 page not found", "text/plain")
    monkeypatch.setattr("windrow.emulator.faults.render_refusal", lambda refusal: page)

    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await stage.wait_for_settled()
            await sim.kill_manager()
            before = await inventory(sim.harvester.api)
            fault = sim.harvester.faults.add(Fault(Refuse(404), plurals=frozenset({"virtualmachines"})))
            worker = next(name for name in await names(stage) if "workers" in name)
            await sim.management_client.delete(MACHINE.ref(worker, "fleet-default"))
            sim.start_manager()
            await sim.advance(minutes=10)
            assert sim.harvester.faults.times_injected(fault)
            waiting = (await sim.management_client.get(MACHINE.ref(worker, "fleet-default")))["status"][
                "waiting"
            ]
            assert "404 page not found" in waiting["for"]
            assert await inventory(sim.harvester.api) == before
            sim.harvester.faults.end(fault)
            await stage.wait_for_settled(without=worker)

    run_driven(story())


def test_an_account_is_not_gone_because_another_harvester_has_none() -> None:
    async def story() -> None:
        async with simulation(seed=1, with_manager=False) as sim:
            factory = machine_factory(guest_programs())
            other = Harvester(sim.clock, Rng(2), machine_factory=factory, vip="192.168.200.10")

            def dial(access: ClientConfig) -> Transport:
                return (
                    in_process_connector(other.network, sim.clock)
                    if other.vip in access.server
                    else sim.connect
                )(access)

            async with running(other.run):
                sim.start_manager(connect=dial)
                before = await inventory(sim.harvester.api)
                documents = manifest(1, 1)
                cluster = next(raw for raw in documents if raw["kind"] == "Cluster")
                for pool in cluster["spec"]["rkeConfig"]["machinePools"]:
                    pool["cloudCredentialSecretName"] = "cattle-global-data:spare"
                await sim.apply(documents)
                stage = sim.cluster("orchard", timeout=timedelta(minutes=30))
                await stage.wait_for_settled()
                ref = SECRET.ref("cc-harvester", "cattle-global-data")
                right = (await sim.management_client.get(ref))["data"]
                wrong = {key: b64encode(other.admin_kubeconfig().encode()).decode() for key in right}
                await sim.management_client.patch(ref, {"data": wrong})
                await sim.management_client.delete(CLUSTER.ref("orchard", "fleet-default"))
                await sim.advance(minutes=5)
                assert await stage.list_machines() == []
                assert "other Harvester" in (await stage.get_cluster())["status"]["waiting"]["for"]
                await sim.management_client.patch(ref, {"data": right})
                await sim.advance(minutes=10)
                assert await sim.management_client.find(CLUSTER.ref("orchard", "fleet-default")) is None
                left = {item for item in await inventory(sim.harvester.api) if item not in before}
                assert {item[0] for item in left} <= {"VirtualMachineImage", "NetworkAttachmentDefinition"}

    run_driven(story())


def test_a_node_that_lost_its_label_is_not_taken_for_deleted() -> None:
    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim)
            await stage.wait_for_settled()
            before = await names(stage)
            guest = await stage.guest_client()
            for node in await stage.list_nodes():
                await guest.patch(NODE.ref(name_of(node)), {"metadata": {"labels": {NODE_MACHINE: None}}})
            await sim.advance(minutes=12)
            assert await names(stage) == before
            await stage.wait_for_ready()

    run_driven(story())


def test_a_node_with_the_label_of_another_s_machine_does_not_stand_for_it() -> None:
    """Every kubelet may write that label: a worker's Node, or one that does not exist, stood for a server, which was deleted."""

    async def story() -> None:
        async with simulation(seed=1) as sim:
            stage = await begin(sim, 3, 1)
            await stage.wait_for_settled()
            before = await names(stage)
            guest = await stage.guest_client()
            nodes = {name_of(node): node for node in await stage.list_nodes()}
            servers = [name for name in nodes if "servers" in name]
            [worker] = [name for name in nodes if "workers" in name]
            label, other = ({NODE_MACHINE: labels_of(nodes[name])[NODE_MACHINE]} for name in servers[:2])
            removed = {"etcd.rke2.cattle.io/removed-node-name": "x"}
            await guest.create(NODE, new_object(NODE, "zz-forged", labels=label, annotations=removed))
            await guest.patch(NODE.ref(worker), {"metadata": {"labels": other}})
            await sim.advance(minutes=12)
            assert await names(stage) == before
            assert name_of(await guest.get(NODE.ref("zz-forged"))) == "zz-forged"
            await stage.wait_for_ready()

    run_driven(story())
