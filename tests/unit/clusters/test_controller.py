"""Which change leads to a reconcile of which Cluster, and what follows from a reconcile that is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import MemoryMachines
from tests.unit.client.test_informer import Server
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
    a_pool,
    leaving,
    look,
    missing,
    record_of,
    silent,
    stopped,
    unknown,
)

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import install_crds, management_api
from windrow.client.client import Client
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.controller import (
    RECHECK_INTERVAL,
    ClusterController,
    _only_waits,
    _outcome,
    _status_patch,
    _stopped_urls,
    _without_deleted,
)
from windrow.clusters.endpoint_balancer import ObservedBalancer
from windrow.clusters.orphans import MachineClaim, OrphanVm
from windrow.clusters.plan.actions import (
    CreateMachine,
    CreateServiceAccount,
    DeleteMachine,
    Disruption,
    EvictPods,
    HeldDisruption,
    Wait,
)
from windrow.clusters.plan.diagnosis import diagnose_all
from windrow.clusters.plan.planner import Plan
from windrow.clusters.sources.harvester_objects import AccountObject, Owned
from windrow.clusters.state import ActionFailure, ClusterState
from windrow.controller.outcomes import SETTLED, Failed, Outcome, Waiting
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import SECRET, ObjectRef
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 3, SERVER)
FLEET = "fleet-default"


# -- which change leads to a reconcile of which Cluster


class Recorded(ClusterController):
    """One whose reconcile does nothing but to name the Cluster, which counts as one of so many machines."""

    reconciled: list[str]
    size = 0

    async def reconcile(self, key: ObjectRef) -> Outcome:
        self.reconciled.append(key.name)
        self._spacing.on_reconciled(key, self.size)
        return SETTLED


class Rig:
    def __init__(self, api: Client, machines: MemoryMachines, controller: Recorded, clock: LoopClock) -> None:
        self.api, self.machines, self.controller, self.clock = api, machines, controller, clock

    async def settle(self) -> list[str]:
        """The Clusters that are reconciled by what happened since the last time."""
        await self.clock.sleep_until(self.clock.now() + timedelta(seconds=2))
        found, self.controller.reconciled = self.controller.reconciled, []
        return sorted(found)


def a_raw_cluster(name: str, **given: Any) -> Raw:
    pool = {"name": "p", "quantity": 1, "machineConfigRef": {"kind": "HarvesterConfig", "name": f"nc-{name}"}}
    spec = {"cloudCredentialSecretName": f"{FLEET}:cc-{name}", "rkeConfig": {"machinePools": [pool]}}
    return new_object(CLUSTER, name, FLEET, spec=spec, **given)


def a_raw_machine(name: str, cluster: str, uid: str) -> Raw:
    spec = {"clusterName": cluster, "clusterUID": uid, "pool": "p", "roles": ["worker"], "options": {}}
    spec |= {"credential": f"{FLEET}:cc-{cluster}", "version": "v1.35.1+rke2r1"}
    return new_object(MACHINE, name, FLEET, spec=spec)


@asynccontextmanager
async def running(*clusters: str) -> AsyncIterator[Rig]:
    """A controller of these Clusters, none of which is to be reconciled any more."""
    clock, rng = LoopClock(), Rng(1)
    server = management_api(MemoryStore(), clock, rng)
    api, machines = Client(server.local()), MemoryMachines(clock)
    await install_crds(api)
    unused: Any = None
    controller = Recorded(api, machines, unused, clock, rng)
    controller.reconciled = []
    tasks = [asyncio.ensure_future(one) for one in (server.run(), controller.run())]
    rig = Rig(api, machines, controller, clock)
    for name in clusters:
        await api.create(CLUSTER, a_raw_cluster(name))
    assert set(await rig.settle()) == set(clusters)
    try:
        yield rig
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_cluster_is_reconciled_when_it_or_one_of_its_machines_changes() -> None:
    async def story() -> None:
        async with running("a", "b") as rig:
            ref = CLUSTER.ref("a", FLEET)
            uid = (await rig.api.get(ref))["metadata"]["uid"]
            await rig.api.patch(ref, {"metadata": {"labels": {"k": "v"}}})
            assert await rig.settle() == ["a"]

            await rig.api.create(MACHINE, a_raw_machine("m-1", "a", uid))
            assert await rig.settle() == ["a"]
            await rig.api.patch(MACHINE.ref("m-1", FLEET), {"status": {"phase": "Joining"}}, "status")
            assert await rig.settle() == ["a"]
            await rig.api.delete(MACHINE.ref("m-1", FLEET))
            assert await rig.settle() == ["a"]

            await rig.api.delete(CLUSTER.ref("b", FLEET))
            assert await rig.settle() == ["b"]

    run_driven(story())


@pytest.mark.parametrize(
    ("vm_uid", "is_deleted", "is_tracked"),
    [("", True, True), ("", False, False), ("vm-1", False, True), ("vm-1", True, True)],
    ids=["deleted before that was recorded", "not created", "created", "deleted"],
)
def test_a_machine_is_tracked_once_its_vm_is_created_or_it_is_deleted(
    vm_uid: str, is_deleted: bool, is_tracked: bool
) -> None:
    """A manager that dies as the VM is made records no uid, and of a Machine that is deleted nothing is made again that would
    record it: an etcd member goes by what is observed of its VM alone."""

    async def story() -> None:
        async with running("a") as rig:
            uid = (await rig.api.get(CLUSTER.ref("a", FLEET)))["metadata"]["uid"]
            raw = a_raw_machine("m-1", "a", uid)
            raw["metadata"]["finalizers"] = ["windrow.io/machine"]
            machine = (await rig.api.create(MACHINE, raw))["metadata"]["uid"]
            config = {"MachineName": "m-1", "VMNamespace": "default", "WindrowMachineUID": machine}
            config |= {"WindrowCredential": f"{FLEET}:cc-a", "WindrowVMUID": vm_uid}
            status = {"status": {"driverConfig": config}}
            await rig.api.patch(MACHINE.ref("m-1", FLEET), status, "status")
            await rig.settle()
            if is_deleted:
                await rig.api.delete(MACHINE.ref("m-1", FLEET))
                await rig.settle()

            assert (machine in rig.machines._tracked) is is_tracked

    run_driven(story())


@pytest.mark.parametrize(("size", "reconciles"), [(24, 9), (100, 2)])
def test_the_changes_of_a_large_cluster_are_reconciled_together(size: int, reconciles: int) -> None:
    async def story() -> None:
        async with running("a") as rig:
            ref = CLUSTER.ref("a", FLEET)
            uid = (await rig.api.get(ref))["metadata"]["uid"]
            rig.controller.size = size
            for number in range(3):
                await rig.api.create(MACHINE, a_raw_machine(f"m-{number}", "a", uid))
                for phase in ("Provisioning", "Joining"):
                    await rig.clock.sleep_until(rig.clock.now() + timedelta(seconds=0.1))
                    change = {"status": {"phase": phase}}
                    await rig.api.patch(MACHINE.ref(f"m-{number}", FLEET), change, "status")
                await rig.clock.sleep_until(rig.clock.now() + timedelta(seconds=0.1))

            assert await rig.settle() == ["a"] * reconciles, "at once, and all others a second later"

    run_driven(story())


def test_a_cluster_is_reconciled_when_its_machine_config_or_its_credential_comes_changes_or_goes() -> None:
    async def story() -> None:
        async with running("a", "b") as rig:
            config = new_object(HARVESTER_CONFIG, "nc-a", FLEET)
            credential = new_object(SECRET, "cc-b", FLEET)
            other: Raw = {"cpuCount": "2"}
            rotated: Raw = {"data": {CREDENTIAL_KEY: "dA=="}}
            for kind, raw, change, name in (
                (HARVESTER_CONFIG, config, other, "a"),
                (SECRET, credential, rotated, "b"),
            ):
                ref = kind.ref(raw["metadata"]["name"], FLEET)
                await rig.api.create(kind, raw)
                assert await rig.settle() == [name], f"{ref} has come"
                await rig.api.patch(ref, change)
                assert await rig.settle() == [name], f"{ref} has changed"
                await rig.api.delete(ref)
                assert await rig.settle() == [name], f"{ref} is gone"

    run_driven(story())


def test_a_kind_of_machines_that_can_be_used_now_concerns_the_clusters_that_name_it() -> None:
    async def story() -> None:
        async with running("a", "b") as rig:
            rig.controller.on_kind("NoopConfig")
            assert await rig.settle() == []
            rig.controller.on_kind("HarvesterConfig")
            assert await rig.settle() == ["a", "b"]

    run_driven(story())


VM = OrphanVm(FLEET, "m-1", "vm-1", "uid-m-1", cluster_uid="u")
CLAIM = MachineClaim(FLEET, "disk", "uid-m-1", "u", False, ())
ACCOUNT = AccountObject("a", "u")
BALANCER = ObservedBalancer("default", "lb", "uid", "u")


@pytest.mark.parametrize(
    ("before", "after", "is_reconciled"),
    [
        (None, VM, True),
        (VM, None, True),
        (None, replace(VM, machine_uid="recorded"), False),  # its machine's status says it
        (CLAIM, None, True),
        (None, CLAIM, False),  # a VM that uses it comes too
        (CLAIM, replace(CLAIM, is_deleting=True), False),
        (ACCOUNT, None, True),
        (None, ACCOUNT, False),
        (None, BALANCER, True),
        (BALANCER, None, True),
        (BALANCER, replace(BALANCER, address="10.0.0.9"), True),
        (BALANCER, BALANCER, False),
    ],
    ids=str,
)
def test_what_changes_on_harvester_concerns_the_cluster_where_something_follows_from_it(
    before: Owned | None, after: Owned | None, is_reconciled: bool
) -> None:
    async def story() -> None:
        async with running("a", "b") as rig:
            uid = (await rig.api.get(CLUSTER.ref("a", FLEET)))["metadata"]["uid"]
            machine = await rig.api.create(MACHINE, a_raw_machine("m-2", "a", uid))
            recorded = machine["metadata"]["uid"]
            await rig.settle()

            rig.controller._on_harvester_object(*(of_cluster(one, uid, recorded) for one in (before, after)))

            assert await rig.settle() == (["a"] if is_reconciled else [])

    run_driven(story())


def of_cluster(one: Any, uid: str, recorded: str) -> Any:
    """The object of that Cluster; `recorded` is the uid of a Machine that it has."""
    if one is None:
        return None
    if getattr(one, "machine_uid", "") == "recorded":
        one = replace(one, machine_uid=recorded)
    return replace(one, cluster_uid=uid)


WAITS = CLUSTER.ref("b", FLEET)  # a Cluster with a machine that may wait for an address
ADDRESS = IPAddress("ip", "uid-ip", "10.0.0.5", 24, "default/vlan", "hv", f"{FLEET}/m-1", "uid-m-1", "u")


@pytest.mark.parametrize(
    ("before", "after", "reconciled"),
    [
        (ADDRESS, None, ["a", "b"]),  # it may be another's now, or is claimed again
        (None, ADDRESS, ["a"]),  # of a machine that is not recorded
        (None, replace(ADDRESS, machine_uid="recorded"), []),
        (ADDRESS, replace(ADDRESS, gateway="10.0.0.1"), []),
    ],
    ids=["gone", "of no Machine", "of a Machine", "changed"],
)
def test_an_address_that_is_released_or_has_come_back_concerns_its_cluster_and_those_that_wait_for_one(
    before: IPAddress | None, after: IPAddress | None, reconciled: list[str]
) -> None:
    async def story() -> None:
        async with running("a", "b") as rig:
            uid = (await rig.api.get(CLUSTER.ref("a", FLEET)))["metadata"]["uid"]
            machine = await rig.api.create(MACHINE, a_raw_machine("m-2", "a", uid))
            await rig.settle()
            rig.controller._awaiting_address.add(WAITS)

            recorded = machine["metadata"]["uid"]
            rig.controller._on_address(*(of_cluster(one, uid, recorded) for one in (before, after)))

            assert await rig.settle() == reconciled

    run_driven(story())


def test_what_a_probe_has_found_concerns_the_users_of_the_credential_and_who_waits_for_an_address() -> None:
    async def story() -> None:
        async with running("a", "b", "c") as rig:
            rig.controller._on_probe(f"{FLEET}:cc-a")
            assert await rig.settle() == ["a"]

            rig.controller._awaiting_address.add(WAITS)
            rig.controller._on_probe(f"{FLEET}:cc-a")
            assert await rig.settle() == ["a", "b"]

    run_driven(story())


# -- what follows from a reconcile that is over

LATER = [NOON + timedelta(minutes=number) for number in range(4)]
UNTIL_TOKEN = Wait("the token", "machines are created", until=LATER[2])
PROBLEM = Problem("no such image", "name another", "imageName")
HELD = HeldDisruption(Disruption("replace", DeleteMachine("it is lost", "s1")), "no quorum", LATER[3])
FAILURE = ActionFailure("Harvester refused it", "look there")


def outcome(
    plan: Plan | None = None,
    failures: Mapping[str, ActionFailure] | None = None,
    wait: Wait | None = None,
    instants: Sequence[datetime | None] = (),
) -> Outcome:
    return _outcome(look(a_cluster(SERVERS)), plan or Plan(), dict(failures or {}), wait, instants)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, SETTLED),
        ({"instants": [None]}, SETTLED),
        ({"wait": UNTIL_TOKEN}, Waiting("the token", NOON, "machines are created", None)),
        ({"instants": [LATER[2], None, LATER[1]]}, Waiting("", NOON, "", LATER[1])),
        ({"plan": Plan(waits=(UNTIL_TOKEN,)), "instants": [LATER[3]]}, Waiting("", NOON, "", LATER[2])),
        ({"plan": Plan(held=(HELD,), waits=(Wait("x", "y"),))}, Waiting("", NOON, "", LATER[3])),
        (
            {"plan": Plan(refused=(PROBLEM,), waits=(UNTIL_TOKEN,)), "instants": [LATER[0]]},
            Waiting(str(PROBLEM), NOON, "the preflight is repeated", NOON + RECHECK_INTERVAL),
        ),
    ],
)
def test_a_cluster_is_reconciled_again_at_the_earliest_instant_that_changes_something(
    given: dict[str, Any], expected: Outcome
) -> None:
    assert outcome(**given) == expected


@pytest.mark.parametrize(("subject", "said"), [("s1", "s1"), ("", "prod")])
def test_a_failure_names_the_machine_or_else_the_cluster(subject: str, said: str) -> None:
    found = outcome(Plan(refused=(PROBLEM,)), {subject: FAILURE})

    assert isinstance(found, Failed)
    assert str(found.error) == f"{said}: Harvester refused it; look there"


@pytest.mark.parametrize(
    ("before", "wanted", "change"),
    [
        ({"phase": "Ready"}, {"phase": "Ready"}, {}),
        ({"phase": "Ready", "other": 1}, {"phase": "Degraded"}, {"phase": "Degraded"}),
        ({}, {"phase": "Ready", "waiting": None}, {"phase": "Ready"}),
        ({"waiting": {"for": "x"}, "other": 1}, {"waiting": None}, {"waiting": None}),
    ],
)
def test_of_a_status_only_what_is_derived_and_differs_is_written(
    before: dict[str, Any], wanted: dict[str, Any], change: dict[str, Any]
) -> None:
    assert _status_patch(before, wanted) == change


def test_a_server_whose_vm_does_not_run_is_not_asked() -> None:
    s1, s2, s3 = (a_machine(f"s{number}", SERVERS) for number in (1, 2, 3))

    assert _stopped_urls(look(a_cluster(SERVERS), [s1, stopped(s2), s3])) == {"https://10.0.0.2:6443"}
    assert _stopped_urls(look(a_cluster(SERVERS), [s1, s2, s3])) == set()


def test_a_machine_that_was_just_deleted_counts_as_deleted_and_one_whose_deletion_failed_does_not() -> None:
    before = NOON - timedelta(minutes=1)
    machines = [a_machine(f"s{number}", SERVERS) for number in (1, 2, 3)]
    state = look(a_cluster(SERVERS), [*machines, leaving(a_machine("s4", SERVERS), before)])
    deleted = tuple(DeleteMachine("it is lost", name) for name in ("s1", "s2", "s4"))
    plan = Plan(actions=(*deleted, CreateMachine("one is missing", "servers", "s5")))

    found = _without_deleted(state, plan, {"s2": FAILURE})

    assert [one.record.deletion_timestamp for one in found.machines] == [NOON, None, None, before]
    assert _without_deleted(state, Plan(actions=plan.actions[1:2]), {"s2": FAILURE}) is state


ASK = CreateServiceAccount("the guest needs one")
EVICT = EvictPods("the Node is drained", "w1", (("shop", "cart-0"),))


@pytest.mark.parametrize(
    ("actions", "waits", "expected"),
    [
        ((ASK,), (UNTIL_TOKEN,), True),
        ((ASK,), (), False),
        ((ASK, DeleteMachine("it is lost", "s1")), (UNTIL_TOKEN,), False),
        ((EVICT,), (UNTIL_TOKEN,), True),
        ((EVICT,), (Wait("a pod", "it is drained"),), False),
        ((EVICT, ASK), (UNTIL_TOKEN,), True),
    ],
)
def test_a_token_that_is_not_issued_and_a_pod_that_does_not_leave_are_waited_for_and_not_asked_for_at_once(
    actions: Any, waits: Any, expected: bool
) -> None:
    assert _only_waits(Plan(actions=actions, waits=waits)) is expected


# -- after a start


class Written:
    """A management API that takes every patch, and where it is put."""

    def __init__(self) -> None:
        self.transport = Server()
        self.patches: list[tuple[str, str, Mapping[str, Any]]] = []

    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str) -> Raw:
        self.patches.append((ref.kind.kind, ref.name, change["status"]))
        spec = {"clusterName": "prod", "clusterUID": "u", "pool": "servers"}
        raw = new_object(ref.kind, ref.name, ref.namespace, spec=spec)
        raw["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T12:00:00Z"}
        return raw


def a_controller(api: Any = None) -> ClusterController:
    unused: Any = None
    return ClusterController(api or Written(), unused, unused, LoopClock(), Rng(1))


def test_before_the_management_api_is_watched_nothing_is_observed() -> None:
    async def story() -> None:
        found = await a_controller().reconcile(CLUSTER.ref("prod", FLEET))

        again = NOON + timedelta(seconds=1)
        assert found == Waiting("the management API", NOON, "reconciliation resumes", again)

    run_driven(story())


TRIO = [a_machine(f"s{number}", SERVERS) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("state", "elapsed", "left"),
    [
        (look(a_cluster(SERVERS), TRIO), 0, None),
        (look(a_cluster(SERVERS), TRIO, guest=silent()), 0, 10),
        (look(a_cluster(SERVERS), TRIO, guest=silent()), 4, 6),
        (look(a_cluster(SERVERS), TRIO, guest=silent()), 10, None),
        (look(a_newborn(SERVERS), guest=silent()), 0, None),  # there is none to answer
        (look(a_cluster(SERVERS), [*TRIO[1:], unknown(TRIO[0])]), 0, 10),
        (look(a_cluster(SERVERS), [*TRIO[1:], unknown(record_of(TRIO[0], driver_config=None))]), 0, None),
        (look(a_cluster(SERVERS, deletion_timestamp=NOON), TRIO, guest=silent()), 0, None),
    ],
)
def test_for_ten_seconds_after_a_start_what_does_not_answer_is_waited_for(
    state: ClusterState, elapsed: int, left: int | None
) -> None:
    async def story() -> None:
        controller = a_controller()
        await asyncio.sleep(elapsed)
        expected = None if left is None else state.now + timedelta(seconds=left)
        assert controller._find_startup_deadline(state) == expected

    run_driven(story())


def with_status(state: ClusterState, **status: Any) -> ClusterState:
    recorded = replace(state.recorded, raw={**state.recorded.raw, **status})
    return replace(state, cluster=replace(state.cluster, recorded=recorded))


DOWN = [missing(TRIO[0]), *TRIO[1:]]
ACTS = Plan(actions=(CreateMachine("one is missing", "servers", "s5"),))


@pytest.mark.parametrize(
    ("state", "plan", "elapsed", "expected"),
    [
        (with_status(look(a_cluster(SERVERS), TRIO[1:]), ready=True), ACTS, 0, True),
        (with_status(look(a_cluster(SERVERS), TRIO[1:]), ready=False), ACTS, 0, False),
        (with_status(look(a_cluster(SERVERS), TRIO[1:]), ready=True), Plan(), 0, False),
        (with_status(look(a_cluster(SERVERS), TRIO), ready=True), ACTS, 0, False),  # and so it is
        (with_status(look(a_cluster(SERVERS), TRIO[1:], guest=silent()), ready=True), ACTS, 0, False),
        (with_status(look(a_cluster(SERVERS), TRIO[1:], guest=silent()), ready=True), ACTS, 11, True),
        (
            with_status(look(a_cluster(SERVERS, deletion_timestamp=NOON), TRIO[1:]), ready=True),
            ACTS,
            0,
            False,
        ),
    ],
)
def test_ready_is_withdrawn_before_work_is_begun(
    state: ClusterState, plan: Plan, elapsed: int, expected: bool
) -> None:
    async def story() -> None:
        controller = a_controller()
        await asyncio.sleep(elapsed)
        assert controller._claims_too_much(state, plan) is expected

    run_driven(story())


@pytest.mark.parametrize(
    ("preflight", "passed"),
    [(None, None), ((), (1, ())), ((replace(PROBLEM, severity="warning"),), 1), ((PROBLEM,), None)],
)
def test_a_preflight_that_has_passed_is_not_repeated_for_this_spec(preflight: Any, passed: Any) -> None:
    async def story() -> None:
        controller = a_controller()
        process = controller._context.process_state
        process.account_taken.add("cluster-uid")
        controller._remember_preflight(look(a_newborn(SERVERS), preflight=preflight))

        found = process.preflight_passed.get("cluster-uid")
        assert (found is None) == (passed is None)
        assert found is None or found == (1, preflight)
        assert ("cluster-uid" in process.account_taken) == (found is None)

    run_driven(story())


def test_what_harvester_shows_to_be_down_is_withdrawn_at_once_after_a_start_and_nothing_else() -> None:
    async def story() -> None:
        api = Written()
        controller = a_controller(api)
        machines = [record_of(one, status={"phase": "Ready"}) for one in DOWN]
        state = with_status(look(a_cluster(SERVERS), machines), ready=True, phase="Ready")

        await controller._withdraw_ready(state, Plan(diagnoses=diagnose_all(state)))

        written = {(kind, name): status for kind, name, status in api.patches}
        assert written.keys() == {("Machine", "s1"), ("Cluster", "prod")}
        assert (written["Cluster", "prod"]["ready"], written["Cluster", "prod"]["phase"]) == (
            False,
            "Degraded",
        )
        assert "observedGeneration" not in written["Cluster", "prod"]

        api.patches.clear()
        await controller._withdraw_ready(with_status(state, ready=False), Plan(diagnoses=diagnose_all(state)))
        assert api.patches == []

    run_driven(story())
