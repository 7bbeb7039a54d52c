"""VMs on Harvester that no Machine records, of a Cluster that lives and of one that is deleted; disks that terminate."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.bootstrap.pki import USER
from windrow.client.transport import Transport, TransportMiddleware
from windrow.clusters.api.kinds import MACHINE
from windrow.core.formats.json import dumps, loads
from windrow.demo.cluster import DemoCluster
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.names import CLAIM_TEMPLATES, MACHINE_UID, VM_NAME
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    new_object,
    uid_of,
)
from windrow.kubernetes.requests import Request, WatchEvent
from windrow.kubernetes.resources import EVENT, PVC, SECRET, SERVICE_ACCOUNT, ApiResource, ObjectRef

from .cluster_rig import ALL, SERVERS, a_cluster, a_pool, gone, machines_of, post, scale, stock, until

CLUSTER_UID = "windrow.io/cluster-uid"


@pytest.mark.parametrize("cloud_provider", ["harvester", ""])
def test_a_vm_whose_machine_was_lost_with_a_restored_state_goes_with_the_cluster(cloud_provider: str) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        config = documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]
        config["cloud-provider-name"] = cloud_provider
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            await sim.advance(minutes=15)
            await sim.kill_manager()
            lost = (await machines_of(sim, ref, "workers"))[0]
            machine = MACHINE.ref(name_of(lost), namespace_of(lost))
            await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
            await sim.management_client.delete(machine)
            await scale(sim, ref, 1, 1)  # so that it is not adopted
            sim.start_manager()
            await sim.advance(minutes=2)
            vms = {name_of(raw) for raw in await sim.harvester_client.list(VM)}
            assert name_of(lost) in vms
            assert len(vms) == 3

            await sim.management_client.delete(ref)
            await gone(sim, ref)

            assert await sim.harvester_client.list(VM) == []
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == before
            told = [
                e
                for e in await sim.management_client.list(EVENT, ref.namespace)
                if e["reason"] == "DeleteUnrecordedVMs"
            ]
            assert name_of(lost) in told[0]["message"]

    run_driven(story())


def test_a_disk_of_a_machine_that_nothing_records_is_named_and_goes_with_the_cluster() -> None:
    """Its Machine was lost with a restored state, its VM on Harvester; a copy of the disk has another name, and stays."""

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            await sim.advance(minutes=15)
            await sim.kill_manager()
            (lost,) = await machines_of(sim, ref, "workers")
            machine = MACHINE.ref(name_of(lost), namespace_of(lost))
            await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
            await sim.management_client.delete(machine)
            claims = await sim.harvester_client.list(PVC, "default")
            (disk,) = [raw for raw in claims if name_of(raw).startswith(name_of(lost))]
            await sim.harvester_client.delete(VM.ref(name_of(lost), "default"))
            name = f"{name_of(lost)}-disk-0-copy1"
            copy = new_object(
                PVC, name, "default", annotations={CLUSTER_UID: annotations_of(disk)[CLUSTER_UID]}
            )
            copy["metadata"]["annotations"][MACHINE_UID] = annotations_of(disk)[MACHINE_UID]
            await sim.harvester_client.create(PVC, {**copy, "spec": new_claim_spec(disk)}, "default")
            sim.start_manager()
            await sim.advance(minutes=2)

            left = {name_of(raw) for raw in await sim.harvester_client.list(PVC, "default")}
            assert {name_of(disk), name} <= left
            raw = await sim.management_client.get(ref)
            condition = find_condition(raw["status"]["conditions"], "VMsRecorded")
            assert condition is not None
            assert condition.reason == "UnrecordedDisks"
            assert f"default/{name_of(disk)}" in condition.message

            await sim.management_client.delete(ref)
            await gone(sim, ref)

            told = {e["reason"]: e["message"] for e in await sim.management_client.list(EVENT, ref.namespace)}
            assert name_of(disk) in told["DeleteUnrecordedClaims"]
            assert (
                f"kubectl --kubeconfig HARVESTER.yaml -n default delete persistentvolumeclaims {name}"
                in told["KeepClaims"]
            )
            await sim.harvester_client.delete(PVC.ref(name, "default"))
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == before

    run_driven(story())


def new_claim_spec(raw: Raw) -> Raw:
    return {key: value for key, value in raw["spec"].items() if key != "volumeName"}


async def clone_vm(sim: Simulation, source: str, name: str, changed_labels: dict[str, str]) -> set[str]:
    """A VM as Harvester clones it, stopped: with labels and annotations of the source and claims of its own.

    Returns the names of its claims.
    """
    raw = await sim.harvester_client.get(VM.ref(source, "default"))
    annotations = annotations_of(raw)
    templates = loads(annotations[CLAIM_TEMPLATES])
    text = dumps(raw["spec"]).decode()
    claims = set()
    for template in templates:
        old = template["metadata"]["name"]
        template["metadata"]["name"] = f"{name}-{old[-5:]}"
        text = text.replace(old, template["metadata"]["name"])
        claims.add(template["metadata"]["name"])
    spec = loads(text.encode())
    spec.pop("running", None)
    spec["runStrategy"] = "Halted"
    for nic in spec["template"]["spec"]["domain"]["devices"]["interfaces"]:
        nic.pop("macAddress", None)
    copied = {**annotations, CLAIM_TEMPLATES: dumps(templates).decode()}
    body = new_object(VM, name, "default", labels={**labels_of(raw), **changed_labels}, annotations=copied)
    await sim.harvester_client.create(VM, {**body, "spec": spec}, "default")
    return claims


def test_a_clone_of_a_machine_is_kept_with_its_disks_where_the_cluster_is_deleted() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            (machine,) = await machines_of(sim, ref)
            stem, relabelled = "precious-copy", f"{name_of(machine)[:-5]}clone"
            claims = await clone_vm(sim, name_of(machine), stem, {})
            # Its label is its own, and so the name could be a machine's; the cloud-init Secret shows that it is not.
            claims |= await clone_vm(sim, name_of(machine), relabelled, {VM_NAME: relabelled})
            await sim.advance(seconds=10)

            await sim.management_client.delete(ref)
            await gone(sim, ref)

            assert {name_of(raw) for raw in await sim.harvester_client.list(VM)} == {stem, relabelled}
            await sim.advance(minutes=1)
            assert {name_of(raw) for raw in await sim.harvester_client.list(PVC, "default")} >= claims
            listed = await sim.management_client.list(EVENT, ref.namespace)
            told = sorted(raw["message"] for raw in listed if raw["reason"] == "KeepVMs")
            assert len(told) == 2
            assert f"its label {VM_NAME} is '{name_of(machine)}'" in " ".join(told)
            assert (
                f"kubectl --kubeconfig HARVESTER.yaml -n default delete virtualmachines.kubevirt.io {stem}"
                in " ".join(told)
            )
            assert f"Secret {relabelled}-cloudinit cannot be read" in " ".join(told)

    run_driven(story())


def test_a_cluster_stays_while_a_disk_of_it_terminates_and_names_what_holds_it() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            claims = await sim.harvester_client.list(PVC, "default")
            held = next(raw for raw in claims if CLUSTER_UID in annotations_of(raw))
            claim = PVC.ref(name_of(held), "default")
            finalizers = [*held["metadata"].get("finalizers", []), "example.com/hold"]
            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": finalizers}})

            await sim.management_client.delete(ref)
            shown = await until(stage, f"PersistentVolumeClaim default/{name_of(held)}")
            assert "example.com/hold" in shown["status"]["waiting"]["for"]
            await sim.advance(minutes=5)
            assert await sim.management_client.find(ref) is not None
            # What is needed to look for it is still there.
            assert await sim.management_client.find(SECRET.ref(f"{ref.name}-windrow-secrets", ref.namespace))

            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": []}})
            await gone(sim, ref, within=timedelta(minutes=2))
            assert await inventory(sim.harvester.api) == before

    run_driven(story())


def test_disks_of_others_that_terminate_and_bear_the_uids_do_not_hold_the_deletion() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            (machine,) = await machines_of(sim, ref)
            cluster_uid = uid_of(await sim.management_client.get(ref))
            copies = {"copy-of-a-machines-disk": uid_of(machine), "copy-of-an-older-disk": "another"}
            for name, machine_uid in copies.items():
                uids = {CLUSTER_UID: cluster_uid, MACHINE_UID: machine_uid}
                copy = new_object(PVC, name, "default", annotations=uids)
                copy["metadata"]["finalizers"] = ["example.com/hold"]
                copy["spec"] = {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
                await sim.harvester_client.create(PVC, copy)
                await sim.harvester_client.delete(PVC.ref(name, "default"))

            await sim.management_client.delete(ref)
            await gone(sim, ref, within=timedelta(minutes=1))

            assert {name_of(raw) for raw in await sim.harvester_client.list(PVC, "default")} == set(copies)

    run_driven(story())


@dataclass
class Restored:
    sim: Simulation
    ref: ObjectRef
    stage: DemoCluster
    lost: Raw
    before: Any

    async def vms(self) -> set[str]:
        return {name_of(raw) for raw in await self.sim.harvester_client.list(VM)}

    async def events(self, reason: str) -> list[str]:
        listed = await self.sim.management_client.list(EVENT, self.ref.namespace)
        return [raw["message"] for raw in listed if raw["reason"] == reason]

    async def condition(self) -> Condition | None:
        raw = await self.sim.management_client.get(self.ref)
        return find_condition(raw["status"]["conditions"], "VMsRecorded")


@asynccontextmanager
async def a_restored_state(*pools: Raw, lose: str, quantity: int | None = None) -> AsyncIterator[Restored]:
    """A settled cluster whose management API was restored to a state without the last Machine of pool `lose`.

    With `quantity`, that state asks for so many machines of the last pool.
    """
    documents = a_cluster(*pools)
    async with simulation(seed=3) as sim:
        await stock(sim, documents)
        before = await inventory(sim.harvester.api)
        ref = await post(sim, documents)
        stage = sim.cluster(ref.name, ref.namespace)
        await stage.wait_for_settled()
        await sim.kill_manager()
        lost = (await machines_of(sim, ref, lose))[-1]
        machine = MACHINE.ref(name_of(lost), namespace_of(lost))
        await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
        await sim.management_client.delete(machine)
        if quantity is not None:
            await scale(sim, ref, len(pools) - 1, quantity)
        sim.start_manager()
        await sim.advance(minutes=5)
        yield Restored(sim, ref, stage, lost, before)


def run_story(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    run_driven(run())


def test_a_vm_that_a_restored_state_does_not_know_is_adopted_where_its_pool_asks_for_one() -> None:
    async def story() -> None:
        pools = (a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        async with a_restored_state(*pools, lose="workers") as restored:
            sim, name = restored.sim, name_of(restored.lost)
            assert len(await restored.vms()) == 3
            machines = {name_of(raw): raw for raw in await machines_of(sim, restored.ref)}
            assert len(machines) == 3
            adopted = machines[name]
            assert adopted["status"]["phase"] == "Ready"
            # The VM and the Node still carry the uid of the first record.
            assert adopted["spec"]["machineUID"] == restored.lost["metadata"]["uid"]
            assert adopted["metadata"]["uid"] != restored.lost["metadata"]["uid"]
            assert adopted["status"]["driverConfig"] == restored.lost["status"]["driverConfig"]
            assert [name in told for told in await restored.events("AdoptVM")] == [True]
            assert (await restored.stage.get_cluster())["status"]["ready"]

            # It is a Machine like any other.
            await sim.kill_manager()
            sim.start_manager()
            await sim.advance(minutes=2)
            await scale(sim, restored.ref, 1, 1)
            await restored.stage.wait_for_settled()
            assert len(await restored.vms()) == 2
            await sim.management_client.delete(restored.ref)
            await gone(sim, restored.ref)
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == restored.before

    run_story(story)


@pytest.mark.long
def test_a_vm_that_no_pool_asks_for_is_held_and_named_until_a_person_decides() -> None:
    async def story() -> None:
        pools = (a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        async with a_restored_state(*pools, lose="workers", quantity=1) as restored:
            sim, name = restored.sim, name_of(restored.lost)
            assert name in await restored.vms()
            assert len(await restored.vms()) == 3
            told = await restored.condition()
            assert told is not None
            assert (told.status, told.reason) == ("False", "UnrecordedVMs")
            assert f"VirtualMachine default/{name}" in told.message
            assert "pool workers asks for 1, and 1 exist" in told.message
            assert (
                f"kubectl --kubeconfig HARVESTER.yaml -n default delete virtualmachines.kubevirt.io {name}"
                in told.message
            )
            assert told.message in (await restored.stage.get_cluster())["status"]["warnings"]
            await sim.advance(minutes=30)
            assert len(await restored.events("UnrecordedVMs")) == 1

            await scale(sim, restored.ref, 1, 2)
            await restored.stage.wait_for_settled()
            assert name in {name_of(raw) for raw in await machines_of(sim, restored.ref)}
            assert len(await restored.vms()) == 3
            told = await restored.condition()
            assert told is not None
            assert told.status == "True"

    run_story(story)


@pytest.mark.long
def test_a_cluster_that_may_run_already_is_not_started_a_second_time() -> None:
    """The state was restored to before the init server was recorded: the Cluster is there, and its Secrets."""

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            await sim.kill_manager()
            (lost,) = await machines_of(sim, ref)
            machine = MACHINE.ref(name_of(lost), namespace_of(lost))
            await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
            await sim.management_client.delete(machine)
            forgotten = dict.fromkeys(("initServer", "initialized", "guestUID", "conditions", "version"))
            await sim.management_client.patch(ref, {"status": forgotten}, "status")

            sim.start_manager()
            told = await until(stage, f"VirtualMachine default/{name_of(lost)}")
            await sim.advance(minutes=30)
            assert [name_of(raw) for raw in await sim.harvester_client.list(VM)] == [name_of(lost)]
            assert "restore" in told["status"]["waiting"]["for"]

            await sim.harvester_client.delete(VM.ref(name_of(lost), "default"))
            await stage.wait_for_settled()

    run_story(story)


@pytest.mark.long
def test_a_vm_whose_machine_was_deleted_by_force_is_named_while_the_manager_runs() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            (lost,) = await machines_of(sim, ref, "workers")
            pause = {"op": "add", "path": "/spec/rkeConfig/machinePools/1/paused", "value": True}
            await sim.management_client.json_patch(ref, [pause])
            await sim.advance(seconds=10)
            machine = MACHINE.ref(name_of(lost), namespace_of(lost))
            await sim.management_client.patch(machine, {"metadata": {"finalizers": []}})
            await sim.management_client.delete(machine)
            await until(stage, f"VirtualMachine default/{name_of(lost)} carries the uid of this Cluster")

    run_story(story)


def test_a_machine_stays_while_a_disk_of_it_terminates_and_names_what_holds_it() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            (worker,) = await machines_of(sim, ref, "workers")
            claim = PVC.ref(worker["status"]["driverConfig"]["WindrowClaims"][0], "default")
            held = await sim.harvester_client.get(claim)
            finalizers = [*held["metadata"].get("finalizers", []), "example.com/hold"]
            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": finalizers}})

            await scale(sim, ref, 1, 0)
            await sim.advance(minutes=10)

            machine = await sim.management_client.get(MACHINE.ref(name_of(worker), ref.namespace))
            assert (
                f"PersistentVolumeClaim {claim.namespace}/{claim.name}" in machine["status"]["waiting"]["for"]
            )
            assert "example.com/hold" in machine["status"]["waiting"]["for"]
            assert {name_of(raw) for raw in await sim.harvester_client.list(VM)}.isdisjoint({name_of(worker)})

            await sim.harvester_client.patch(claim, {"metadata": {"finalizers": []}})
            await gone(sim, MACHINE.ref(name_of(worker), ref.namespace), within=timedelta(seconds=10))

    run_driven(story())


@pytest.mark.parametrize(
    "deleted", [SERVICE_ACCOUNT, pytest.param(SECRET, marks=pytest.mark.long)], ids=["account", "token"]
)
def test_the_account_of_the_guest_is_made_again_where_it_was_deleted_on_harvester(
    deleted: ApiResource,
) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            (machine,) = await machines_of(sim, ref)
            secret = SECRET.ref(f"{ref.name}-windrow-secrets", ref.namespace)
            first = (await sim.management_client.get(secret))["data"]

            gone_ref = deleted.ref(ref.name if deleted == SERVICE_ACCOUNT else f"{ref.name}-token", "default")
            await sim.harvester_client.delete(gone_ref)
            await sim.advance(seconds=30)

            assert await sim.harvester_client.find(SERVICE_ACCOUNT.ref(ref.name, "default"))
            token = await sim.harvester_client.get(SECRET.ref(f"{ref.name}-token", "default"))
            now = (await sim.management_client.get(secret))["data"]
            changed = {key for key in first if first[key] != now.get(key)}
            assert len(changed) == 1
            kubeconfig = b64decode(now[changed.pop()])
            assert b64decode(token["data"]["token"]) in kubeconfig
            raw = await sim.management_client.get(ref)
            told = find_condition(raw["status"]["conditions"], "GuestCredentialValid")
            assert told is not None
            assert (told.status, told.reason) == ("False", "TokenVoid")
            assert name_of(machine) in told.message
            events = await sim.management_client.list(EVENT, ref.namespace)
            assert [event["reason"] for event in events].count("RecreateServiceAccount") == 1
            assert raw["status"]["ready"]

            await sim.management_client.delete(ref)
            await gone(sim, ref)
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == before

    run_driven(story())


class OpenWatches(TransportMiddleware):
    """Counts the watches that are open."""

    count = 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(request) as events:
            type(self).count += 1
            try:
                yield events
            finally:
                type(self).count -= 1


def test_the_guest_of_a_cluster_that_is_deleted_is_not_watched_so_that_its_end_is_no_alarm() -> None:
    """Its API ends with its machines; a broken watch is logged as a warning."""

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=3, with_manager=False) as sim:

            def connect(access: ClientConfig) -> Transport:
                transport = sim.connect(access)
                return OpenWatches(transport) if access.user == USER else transport

            sim.start_manager(connect=connect)
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            assert OpenWatches.count == 2  # of Nodes, and of ETCDSnapshotFiles

            await sim.management_client.delete(ref)
            await sim.advance(seconds=1)
            assert await sim.harvester_client.list(VM)
            assert OpenWatches.count == 0
            await gone(sim, ref)
            await sim.advance(seconds=1)
            assert not [task.get_name() for task in asyncio.all_tasks() if " of default" in task.get_name()]

    run_driven(story())
