"""Executing a plan: which actions a failure, the Lease or the bound of a reconcile stops, and what Events say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import MemoryMachines
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    condition,
    leaving,
    look,
    missing,
    record_of,
)

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.client.client import Client
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.bootstrap_secrets import BootstrapSecretError
from windrow.clusters.context import ReconcileContext
from windrow.clusters.execute.cluster_actions import ClusterActions
from windrow.clusters.execute.executor import MAX_CONCURRENT, MAX_PER_RECONCILE, Executor
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.orphans import MachineClaim
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.actions import Action, Disruption, HeldDisruption
from windrow.clusters.plan.disruptions import HOLDS_ALL_DATA
from windrow.clusters.plan.operations.actions import SaveUpgradeSnapshot
from windrow.clusters.plan.planner import Plan
from windrow.clusters.state import (
    ActionFailure,
    ClusterState,
    CredentialProblem,
    MachineState,
    ManagerLease,
)
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.harvester.names import CLUSTER_UID, MACHINE_UID
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, name_of, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import EVENT, NAMESPACE, SECRET
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import DRIVER_KEY, InfrastructureUnknown, MachineRefused, Machines, Problem

POOL, SERVERS = a_pool(quantity=120), a_pool("servers", 1, SERVER)
NAMES = [f"w{number}" for number in range(1, 121)]
MACHINES = [
    record_of(
        a_machine(name, POOL),
        driver_config={
            "MachineName": name,
            "VMNamespace": "default",
            "WindrowMachineUID": f"uid-{name}",
            "WindrowCredential": "ns:cc",
        },
    )
    for name in NAMES
]
STATE = look(a_cluster(POOL, SERVERS), MACHINES)
HELD = ManagerLease()
TAKEN = ManagerLease("taken", "default/windrow-1", "another")


@dataclass
class Site:
    executor: Executor
    machines: MemoryMachines
    api: Client
    context: ReconcileContext

    async def execute(self, *actions: Action, state: ClusterState = STATE) -> dict[str, ActionFailure]:
        return await self.executor.execute(Plan(actions), state)

    @property
    def removed(self) -> list[str]:
        return [call.machine for call in self.machines.calls if call.verb == "remove"]

    async def events(self) -> list[tuple[str, str]]:
        """The object of each Event, and its message."""
        listed = await self.api.list(EVENT, "fleet-default")
        return sorted((raw["involvedObject"]["kind"], raw["message"]) for raw in listed)


class Shown:
    """A Harvester that shows these objects, and keeps what it is asked for."""

    def __init__(self, *objects: Raw) -> None:
        self._objects: dict[str, Raw] = {}
        self.asked: list[str] = []
        system = new_object(NAMESPACE, "kube-system")
        system["metadata"]["uid"] = "harvester-1"
        self.show(system, *objects)

    def show(self, *objects: Raw) -> None:
        self._objects |= {f"{raw['kind']}/{name_of(raw)}": raw for raw in objects}

    def hide(self, name: str) -> None:
        self._objects = {key: raw for key, raw in self._objects.items() if name_of(raw) != name}

    async def send(self, request: Request) -> Reply:
        *_, plural, name = request.path.split("/")
        self.asked.append(f"{plural}/{name}")
        kind = {kind.plural: kind.kind for kind in (VM, VMI, NAMESPACE)}[plural]
        if (found := self._objects.get(f"{kind}/{name}")) is not None:
            return Reply(200, dumps(found))
        status = {"kind": "Status", "reason": "NotFound", "code": 404, "details": {"name": name}}
        return Reply(404, dumps(status))

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        pass


def on_a_site(
    story: Callable[[Site], Any],
    leases: Iterator[ManagerLease] | None = None,
    harvester: Shown | None = None,
) -> None:
    async def run() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        unused: Any = None
        access = render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token="t"), "harvester")
        here = frozenset({"fleet-default"})
        may = SecretData("ns", "cc", allowed_namespaces=here, data={CREDENTIAL_KEY: access})
        secrets: Any = {SECRET.ref("cc", "ns"): may}
        context = ReconcileContext(api, unused, unused, secrets, clock, Rng(2), unused)
        machines = MemoryMachines(clock)
        infrastructure: Machines = machines
        if harvester is not None:

            async def kubeconfig(credential: str) -> str:
                return access

            infrastructure = HarvesterMachines(kubeconfig, lambda _: harvester, clock, Rng(3))
        executor = Executor(
            context,
            cluster_actions=ClusterActions(context, unused, unused),
            machine_actions=MachineActions(context, infrastructure, unused),
            address_actions=unused,
            endpoint_actions=unused,
            update_actions=unused,
            read_lease=lambda state: HELD if leases is None else next(leases),
            operations=unused,
            maintenance_actions=unused,
        )
        await story(Site(executor, machines, api, context))

    run_driven(run())


def delete_vm(name: str) -> do.DeleteVM:
    return do.DeleteVM("it is due", name)


def test_a_failure_ends_the_actions_of_its_machine_and_of_no_other() -> None:
    async def story(site: Site) -> None:
        start = do.StartVM("it is due", "w1")
        failures = await site.execute(start, delete_vm("w1"), delete_vm("w2"))

        assert failures == {
            "w1": ActionFailure("machine w1 not found", "delete the Machine; its pool creates another")
        }
        assert site.removed == ["w2"]
        assert await site.events() == [
            ("Machine", "Requested deletion of VirtualMachine default/w2: it is due")
        ]

    on_a_site(story)


def test_one_reconcile_changes_a_bounded_number_of_machines_and_failures_do_not_count() -> None:
    async def story(site: Site) -> None:
        site.machines.fail("remove", InfrastructureUnknown("Harvester does not answer", "wait"), 10)

        failures = await site.execute(*map(delete_vm, NAMES))

        assert sorted(failures) == sorted(NAMES[:10])
        done = set(site.removed) - set(failures)
        assert MAX_PER_RECONCILE <= len(done) < MAX_PER_RECONCILE + MAX_CONCURRENT

    on_a_site(story)


def test_equal_actions_on_the_cluster_are_one_event_and_bounded_too() -> None:
    async def story(site: Site) -> None:
        kept = do.KeepVMs("they have disks")
        assert await site.execute(kept) == {}
        assert await site.events() == [
            ("Cluster", "Kept VirtualMachines of Cluster fleet-default/prod on Harvester: they have disks")
        ]
        await site.execute(*[do.KeepClaims("they have data")] * (MAX_PER_RECONCILE + 6))
        assert (await site.events())[0] == (
            "Cluster",
            "Kept PersistentVolumeClaims of Cluster fleet-default/prod on Harvester: they have data (64 times)",
        )

    on_a_site(story)


def test_what_a_cluster_leaves_is_reported_after_any_number_of_events() -> None:
    """KeepVolumes of a retained claim was dropped when 25 events, many of them of machines, were before it."""

    async def story(site: Site) -> None:
        for number in range(40):
            assert await site.execute(do.DeleteServiceAccount(f"attempt {number}")) == {}
        await site.execute(do.KeepVolumes("they are retained"), do.KeepClaims("a VM uses them"))
        written = [message for _, message in await site.events()]
        assert "Kept volumes of Cluster fleet-default/prod on Harvester: they are retained" in written, (
            written
        )
        assert any(message.startswith("Kept PersistentVolumeClaims") for message in written)

    on_a_site(story)


def test_a_failed_update_and_the_snapshot_before_it_are_reported_after_any_number_of_events() -> None:
    """Ten minutes of turns had used up the budget: neither was written in the next upgrade."""
    assert SaveUpgradeSnapshot.final
    assert do.FailUpdate.final

    class Followed(do.DeleteMachine, reason="UpdateFailed", done="It failed", on_cluster=True, final=True):
        """Carried out as a deletion, told as a failed update."""

    async def story(site: Site) -> None:
        for number in range(40):
            assert await site.execute(do.DeleteServiceAccount(f"attempt {number}")) == {}
        await site.execute(Followed("step Apply: no", "w1"))
        assert ("Cluster", "It failed: step Apply: no") in await site.events()

    on_a_site(story)


def test_a_lease_that_is_lost_stops_the_next_action_and_is_no_failure() -> None:
    async def story(site: Site) -> None:
        assert await site.execute(delete_vm("w1"), delete_vm("w1"), delete_vm("w1")) == {}
        assert site.removed == ["w1"]
        assert len(await site.events()) == 1

    on_a_site(story, iter([HELD, TAKEN]))


def test_what_is_done_to_a_machine_that_people_follow_is_an_event_of_its_cluster_too() -> None:
    async def story(site: Site) -> None:
        await site.execute(do.DeleteMachine("it is due", "w1"))
        assert await site.events() == [
            ("Cluster", "Deleted Machine w1: it is due"),
            ("Machine", "Deleted Machine w1: it is due"),
        ]

    on_a_site(story)


def servers_on_harvester(name: str) -> list[Raw]:
    """The VM of a server that runs, and its instance."""
    owner = {MACHINE_UID: f"uid-{name}", CLUSTER_UID: "cluster-uid"}
    vm = new_object(VM, name, "default", spec={"runStrategy": "RerunOnFailure"})
    vm["metadata"] |= {"uid": f"vm-{name}", "annotations": owner}
    return [vm, new_object(VMI, name, "default", status={"phase": "Running"})]


def going(raw: Raw) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}


VM2, VMI2 = servers_on_harvester("s2")
LOST: dict[str, list[Raw]] = {
    "its VM is gone": [],
    "its VM is being deleted": [going(VM2), VMI2],
    "its VM stops": [VM2, going(VMI2)],
    "its VM has crashed for good": [
        {**VM2, "spec": {"runStrategy": "Manual"}},
        {**VMI2, "status": {"phase": "Failed"}},
    ],
    "its VM is another's": [{**VM2, "metadata": {**VM2["metadata"], "annotations": {}}}, VMI2],
}
COUNTED = ("s1", "s2")


def a_made_server(name: str) -> MachineState:
    config = {
        "MachineName": name,
        "VMNamespace": "default",
        "WindrowMachineUID": f"uid-{name}",
        "WindrowClusterUID": "cluster-uid",
        "WindrowVMUID": f"vm-{name}",
        "WindrowCredential": "ns:cc",
    }
    return record_of(a_machine(name, SERVERS), driver_config=config)


MEMBERS = look(a_cluster(SERVERS), [a_made_server(name) for name in COUNTED])
REMOVALS = (
    do.DeleteMachine("it is due", "s1", counted=COUNTED),
    do.RemoveEtcdMember("it is due", "s1", "s1", counted=COUNTED),
)


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("action", REMOVALS, ids=["DeleteMachine", "RemoveEtcdMember"])
def test_no_member_goes_when_harvester_says_that_another_one_is_lost(action: Action, how: str) -> None:
    """The watch has not shown it yet: the state still has it as running."""
    harvester = Shown(*servers_on_harvester("s1"), *LOST[how])

    async def story(site: Site) -> None:
        assert await site.execute(action, state=MEMBERS) == {}  # the next plan is another
        assert await site.events() == []

    on_a_site(story, harvester=harvester)


def test_a_watch_that_does_not_catch_up_is_told_until_it_does() -> None:
    """At first the next reconcile plans again at once: a watch may be a moment late."""
    harvester = Shown(*servers_on_harvester("s1"))

    async def story(site: Site) -> None:
        told = "VirtualMachine default/s2 is missing on Harvester, and its watch does not show that; no other etcd member is removed"
        context, last = site.context, REMOVALS[0]
        await asyncio.sleep(7)
        for seconds in (0, 4.9):
            await asyncio.sleep(seconds)
            assert await site.execute(last, state=MEMBERS) == {}
            assert context.refresh_stale_watch(MEMBERS) == ""
        await asyncio.sleep(0.1)
        failure = (await site.execute(last, state=MEMBERS))["s1"]
        assert (failure.message, failure.waits_for) == (told, "the watch of Harvester to catch up")
        assert "proxy or load balancer" in failure.hint
        assert context.refresh_stale_watch(MEMBERS) == told
        await asyncio.sleep(600)
        assert context.refresh_stale_watch(MEMBERS) == told
        await asyncio.sleep(0.1)
        assert context.refresh_stale_watch(MEMBERS) == ""  # it has not been asked for long

        await site.execute(last, state=MEMBERS)
        await asyncio.sleep(5)
        await site.execute(last, state=MEMBERS)
        assert context.refresh_stale_watch(MEMBERS) == told
        caught_up = replace(MEMBERS, machines=(MEMBERS.machines[0], missing(MEMBERS.machines[1])))
        for state in (caught_up, replace(MEMBERS, machines=MEMBERS.machines[:1])):
            await site.execute(last, state=MEMBERS)
            await asyncio.sleep(5)
            await site.execute(last, state=MEMBERS)
            assert context.refresh_stale_watch(state) == ""
            assert context.refresh_stale_watch(MEMBERS) == ""

        await site.execute(last, state=MEMBERS)
        await asyncio.sleep(5)
        harvester.show(VM2, VMI2)
        harvester.hide("s1")
        assert await site.execute(last, state=MEMBERS) == {}  # another one, since now
        harvester.show(*servers_on_harvester("s1"))
        assert await site.execute(last, state=MEMBERS) == {}
        assert context.refresh_stale_watch(MEMBERS) == ""

    on_a_site(story, harvester=harvester)


def test_a_member_goes_when_those_that_were_counted_run_and_nothing_is_asked_where_none_was() -> None:
    harvester = Shown(*servers_on_harvester("s1"), VM2, VMI2)

    async def story(site: Site) -> None:
        await site.execute(replace(REMOVALS[0], counted=()), state=MEMBERS)
        assert harvester.asked == []
        assert len(await site.events()) == 2

        await site.execute(REMOVALS[0], state=MEMBERS)
        plurals = ("virtualmachineinstances", "virtualmachines")
        asked = [one for one in harvester.asked if one.startswith("virtual")]
        assert sorted(asked) == [f"{plural}/{name}" for plural in plurals for name in COUNTED]
        assert len(await site.api.list(EVENT, "fleet-default")) == 2
        assert {raw.get("count") for raw in await site.api.list(EVENT, "fleet-default")} == {2}

    on_a_site(story, harvester=harvester)


@pytest.mark.parametrize("action", REMOVALS, ids=["DeleteMachine", "RemoveEtcdMember"])
def test_of_another_driver_the_status_of_this_moment_counts_too(action: Action) -> None:
    members = [
        record_of(
            member, driver="noop", driver_config={**(member.record.driver_config or {}), DRIVER_KEY: "noop"}
        )
        for member in MEMBERS.machines
    ]
    state = replace(MEMBERS, machines=tuple(members))

    async def story(site: Site) -> None:
        assert await site.execute(action, state=state) == {}
        assert await site.events() == []
        assert sorted(call.machine for call in site.machines.calls if call.verb == "read_status") == [
            "s1",
            "s2",
        ]
        await asyncio.sleep(5)
        told = (await site.execute(action, state=state))["s1"].message
        assert (
            told
            == "Machine fleet-default/s1 is missing to driver noop, and its last poll does not show that; no other etcd member is removed"
        )

    on_a_site(story)


def test_a_deletion_that_is_requested_again_is_no_second_event_and_what_follows_it_is_one() -> None:
    async def story(site: Site) -> None:
        state = look(a_cluster(POOL), [replace(MACHINES[0], deletion_requested=NOON)])
        await site.execute(delete_vm("w1"), state=state)
        assert site.removed == ["w1"]
        assert await site.events() == []

        await site.execute(do.DeleteMachine("it is due", "w1"), state=state)
        assert len(await site.events()) == 2

    on_a_site(story)


def test_the_log_says_which_machine_an_action_is_about_and_how_it_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(site: Site) -> None:
        site.machines.fail("remove", Forbidden("you may not", status=403))
        site.machines.fail("remove", KeyError("x"))
        await site.execute(delete_vm("w1"))
        await site.execute(delete_vm("w2"))
        await site.execute(do.KeepVMs("they have disks"))

    with caplog.at_level("INFO", logger="windrow.clusters.execute"):
        on_a_site(story)
    of_cluster = {"cluster": "fleet-default/prod"}
    of = {
        name: {**of_cluster, "machine": f"fleet-default/{name}", "reason": "DeleteVM"}
        for name in ("w1", "w2")
    }
    said = [
        (one.levelname, one.getMessage(), vars(one)["fields"], one.exc_info and str(one.exc_info[1]))
        for one in caplog.records
        if one.name.startswith("windrow.clusters.execute")  # and not a loop that says how slow it is
    ]
    assert said == [
        ("INFO", "DeleteVM: it is due", of["w1"], None),
        ("WARNING", "DeleteVM: it is due: you may not", of["w1"], None),
        ("INFO", "DeleteVM: it is due", of["w2"], None),
        ("ERROR", "DeleteVM: it is due", of["w2"], "'x'"),
        ("WARNING", "KeepVMs: they have disks", {**of_cluster, "reason": "KeepVMs"}, None),
    ]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(STATE, lease=TAKEN), "AnotherManager"),
        (
            replace(STATE, unrecorded_claims=(MachineClaim("default", "d", "uid-x", "cluster-uid"),)),
            "UnrecordedDisks",
        ),
        (STATE, ""),
    ],
    ids=["another manager", "a disk of no machine", "neither"],
)
def test_another_manager_and_what_no_machine_records_are_events(state: ClusterState, reason: str) -> None:
    async def story(site: Site) -> None:
        await site.executor.record_lease(state)
        await site.executor.record_unrecorded_vms(state)
        listed = await site.api.list(EVENT, "fleet-default")
        assert [raw["reason"] for raw in listed] == [reason] * bool(reason)

    on_a_site(story)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (
            CredentialError("the Secret is gone", "create it"),
            ("the Secret is gone", "create it", "a credential that may be used"),
        ),
        (
            BootstrapSecretError("it has no key tls.crt", "add it", "Secret a/b"),
            ("it has no key tls.crt", "add it", "Secret a/b to be corrected"),
        ),
        (
            InvalidBootstrapSpec("it cannot join", "correct it"),
            ("it cannot join", "correct it", "the spec of the Cluster to be corrected"),
        ),
        (InfrastructureUnknown("it does not answer", "wait"), ("it does not answer", "wait", "")),
        (MachineRefused([Problem("no image", "name one")]), ("no image", "name one", "")),
        (
            MachineRefused([Problem("no image", "name one"), Problem("no network", "name one")]),
            ("no image (and 1 more)", "name one", ""),
        ),
        (Forbidden("you may not", status=403), ("DeleteVM failed: you may not", "it is retried", "")),
        (KeyError("x"), ("DeleteVM failed: KeyError('x')", "this is a defect; please report it", "")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_says_what_was_found_and_what_to_do(error: Exception, failure: Sequence[str]) -> None:
    async def story(site: Site) -> None:
        site.machines.fail("remove", error)
        assert await site.execute(delete_vm("w1")) == {"w1": ActionFailure(*failure)}

    on_a_site(story)


# -- what is held ----------------------------------------------------------------------------------------------------


def a_held(kind: Any = "replace", because: str = "2 of 3 are unhealthy", name: str = "w1") -> HeldDisruption:
    return HeldDisruption(Disruption(kind, do.DeleteMachine("it is due", name)), because)


def with_condition(type: str, message: str, machines: Sequence[Any] = MACHINES) -> ClusterState:
    said = {**condition(type, "False"), "message": message}
    return look(a_cluster(POOL, recorded=RecordedStatus(raw={"conditions": [said]})), machines)


@pytest.mark.parametrize(
    ("held", "state", "kinds"),
    [
        (a_held(), STATE, ["Cluster", "Machine"]),
        (a_held("scale-down"), STATE, []),
        (a_held(), with_condition("RemediationAllowed", "w1: 2 of 3 are unhealthy; and w2"), []),
        (a_held(), with_condition("RemediationAllowed", "w2: 2 of 3 are unhealthy"), ["Cluster", "Machine"]),
        (a_held(name="gone"), STATE, ["Cluster"]),
    ],
    ids=["newly held", "not a replacement", "said before", "another was said", "no such Machine"],
)
def test_a_replacement_that_is_newly_held_is_an_event(
    held: HeldDisruption, state: ClusterState, kinds: list[str]
) -> None:
    async def story(site: Site) -> None:
        await site.executor.record_held(Plan(held=(held,)), state)
        name = held.disruption.machine
        message = f"Restricted remediation of Machine {name}: 2 of 3 are unhealthy"
        assert await site.events() == [(kind, message) for kind in kinds]

    on_a_site(story)


@pytest.mark.parametrize("is_said", [False, True])
def test_the_last_etcd_member_that_is_deleted_is_an_event_once(is_said: bool) -> None:
    member = leaving(a_machine("s1", SERVERS))
    waiting = {"waiting": {"for": f"{HOLDS_ALL_DATA}; apply it again"}} if is_said else {}
    state = look(a_cluster(SERVERS), [record_of(member, status=waiting)])
    held = HeldDisruption(
        Disruption("remove-member", do.RemoveEtcdMember("it is due", "s1", "s1")),
        f"{HOLDS_ALL_DATA}; add a server",
    )

    async def story(site: Site) -> None:
        await site.executor.record_held(Plan(held=(held,)), state)
        message = f"Held deletion of Machine s1: {HOLDS_ALL_DATA}; add a server"
        assert await site.events() == ([] if is_said else [("Cluster", message), ("Machine", message)])

    on_a_site(story)


@pytest.mark.parametrize(
    ("problems", "before", "expected"),
    [
        ((CredentialProblem("401", "renew it", is_rejected=True),), "", ["401; renew it"]),
        ((CredentialProblem("401", "renew it", is_rejected=True),), "401; renew it", []),
        ((CredentialProblem("401", "renew it", is_rejected=True),), "403; renew it", ["401; renew it"]),
        ((), "401; renew it", []),
        (None, "401; renew it", []),
    ],
    ids=["rejected", "as before", "for another reason", "accepted", "not probed"],
)
def test_a_credential_that_is_rejected_for_another_reason_than_before_is_an_event(
    problems: Any, before: str, expected: list[str]
) -> None:
    state = replace(
        with_condition("CredentialValid", before) if before else STATE, credential_problems=problems
    )

    async def story(site: Site) -> None:
        await site.executor.record_credential_problem(state)
        assert [message for _, message in await site.events()] == expected

    on_a_site(story)
