"""Restore by a server that stays: what is refused before anything is touched, and each phase."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_machine,
    a_pool,
    leaving,
    missing,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    unknown,
    unordered,
)
from tests.unit.clusters.supervisors import a_file
from tests.unit.clusters.test_restore import a_state

from windrow.bootstrap.spec import Role
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.operations.recorded import (
    RecordedOperations,
    RecordedRestore,
    RestorePhase,
    RestoreRequest,
    read_operations,
    read_recorded_operations,
)
from windrow.clusters.api.operations.snapshot import SnapshotFile, read_snapshot_file, token_hash
from windrow.clusters.bootstrap_data import find_restore
from windrow.clusters.plan.actions import DeleteMachine, DeleteVM, PowerVM
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import in_place, restore
from windrow.clusters.plan.operations.conditions import SNAPSHOT_RESTORED, operation_conditions
from windrow.clusters.state import ClusterState, GuestState, MachineState

SERVERS = a_pool("servers", 3, SERVER)
REQUEST = RestoreRequest("prod-local-one", 1)
RESET = RestoreRequest("", 1, member="s2")


def at(phase: RestorePhase, path: str = "/snapshots/one", **rest: Any) -> RecordedRestore:
    file = "one" if path else ""
    return RecordedRestore(
        1,
        phase,
        "prod-local-one",
        id="1-7",
        file=file,
        member="uid-s2",
        path=path,
        replaced=("uid-s1", "uid-s3"),
        **rest,
    )


def seen(recorded: RecordedRestore, machines: list[MachineState], **rest: Any) -> ClusterState:
    return a_state(recorded, REQUEST, machines=machines, **rest)


def off() -> list[MachineState]:
    return [stopped(one) for one in some("s", 3, SERVERS)]


def actions(state: ClusterState) -> list[Any]:
    return list(restore.plan(state).actions)


# -- what is asked for -----------------------------------------------------------------------------------------------


def reading(asked: dict[str, Any], done: int = 0) -> tuple[RestoreRequest | None, list[str]]:
    problems = ProblemCollector()
    rke = Fields({"etcdSnapshotRestore": asked}, "spec.rkeConfig", problems)
    found = read_operations(rke, RecordedOperations(restore=RecordedRestore(done))).restore
    return found, [problem.message for problem in problems.found]


def test_a_member_is_named_in_place_of_a_snapshot():
    field = "spec.rkeConfig.etcdSnapshotRestore.clusterResetMember"
    assert reading({"clusterResetMember": "s2", "generation": 1}) == (RESET, [])
    assert reading({"clusterResetMember": "s2", "name": "one", "generation": 1}) == (
        None,
        [f"{field} is there beside name: nothing is done"],
    )
    assert reading({"clusterResetMember": "S 2", "generation": 1}) == (
        None,
        [f"{field} is 'S 2', which no Machine may be called: nothing is done"],
    )
    assert reading({"clusterResetMember": "s2", "generation": 0}) == (None, [])


def test_what_is_recorded_is_read_back():
    status = {
        "etcdSnapshotRestore": {"name": "", "generation": 1},
        "etcdSnapshotRestorePhase": "Restore",
        "etcdSnapshotRestoreRun": {"id": "1-7", "member": "uid-s2", "path": "/a", "replaced": ["uid-s1"]},
    }
    found = read_recorded_operations(status).restore
    assert (found.member, found.path, found.replaced) == ("uid-s2", "/a", ("uid-s1",))


def test_all_servers_but_the_member_are_replaced_and_no_worker():
    machines = [*some("s", 3, SERVERS), *some("w", 2, a_pool("workers", 2))]
    state = a_state(machines=machines)

    assert in_place.list_other_servers(state, machines[1]) == ("uid-s1", "uid-s3")


def file_of(**rest: Any) -> SnapshotFile:
    found = read_snapshot_file(a_file("one", "s2", **rest))
    assert found is not None
    return found


def local_refusal(file: SnapshotFile, machines: list[MachineState] | None = None) -> str:
    problem = in_place.check_local(file, "S", a_state(machines=machines or some("s", 3, SERVERS)))
    return problem.message if problem else ""


def test_a_file_is_restored_by_the_server_that_has_it_and_by_no_other():
    s1, s2, s3 = some("s", 3, SERVERS)
    gone = "S is on the disk of Node s2 only, and no server of the Cluster is that Node any more"

    assert local_refusal(file_of()) == ""
    assert local_refusal(file_of(), [s1, s3]) == gone
    assert local_refusal(file_of(), [s1, missing(s2), s3]) == gone
    assert local_refusal(file_of(), [s1, leaving(s2), s3]) == gone
    assert "driver vsphere, which cannot give it" in local_refusal(
        file_of(), [record_of(s2, driver="vsphere")]
    )
    mark = {"annotations": {"etcd.rke2.cattle.io/snapshot-token-hash": "ffff"}}
    assert "made with a former server token" in local_refusal(file_of(**mark))


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:///var/lib/a%20b?c", "/var/lib/a%20b?c"),
        ("file:///snapshots/one", "/snapshots/one"),
        ("s3://bucket/one", ""),
        ("file://relative", ""),
        ("file:///a\nb", ""),
        ("file:///" + "a" * 2000, ""),
        ("", ""),
    ],
)
def test_only_a_path_on_the_disk_is_taken_from_the_guest(location: str, path: str):
    file = file_of(spec={"location": location})

    assert in_place.snapshot_path(file) == path
    assert (local_refusal(file) == "S does not say where its file is") is (path == "")


def test_a_file_that_was_cut_off_is_known_by_its_size():
    assert not in_place.is_cut_off(replace(file_of(), size=4096 + 32))
    assert in_place.is_cut_off(replace(file_of(), size=4096))
    assert not in_place.is_cut_off(replace(file_of(), snapshot="one.zip", size=100))


def reset_refusal(member: str = "s2", **rest: Any) -> str:
    rest.setdefault("guest", silent())
    rest.setdefault("machines", [*some("s", 3, SERVERS), a_machine("w1", a_pool("workers", 1))])
    problem = in_place.check_reset(replace(RESET, member=member), a_state(**rest))
    return problem.message if problem else ""


def test_the_data_of_a_member_are_taken_only_where_the_api_is_silent_and_the_member_is_there():
    s1, s2, s3 = some("s", 3, SERVERS)
    field = "spec.rkeConfig.etcdSnapshotRestore.clusterResetMember"

    assert reset_refusal() == ""
    assert reset_refusal(machines=[s1, stopped(s2), s3]) == ""
    assert reset_refusal(guest=a_state().guest).startswith("the guest API answers, so etcd has its quorum")
    for name in ("w1", "s9"):
        assert reset_refusal(name) == f"{field} is {name}, which is no Machine of the Cluster with etcd"
    assert "no Machine of the Cluster" in reset_refusal(machines=[s1, leaving(s2), s3])
    assert reset_refusal(machines=[s1, missing(s2), s3]) == (
        "VirtualMachine default/s2 is gone, and its data with it"
    )
    outside = {"global_config": {"datastore-endpoint": "postgres://"}}
    assert "so the cluster has no etcd" in reset_refusal(cluster=outside)


ETCD_ONLY = a_pool("etcd", 3, frozenset({Role.ETCD}))
CONTROL_PLANE_ONLY = a_pool("cp", 2, frozenset({Role.CONTROL_PLANE}))


def test_a_member_without_an_api_of_its_own_is_neither_reset_nor_restores_its_file():
    machines = [*some("s", 3, ETCD_ONLY), *some("c", 2, CONTROL_PLANE_ONLY)]
    words = "Machine s2 has etcd and no control plane, so no API of its own would show that etcd was reset"

    assert reset_refusal(machines=machines) == words
    assert local_refusal(file_of(), machines) == words
    problem = in_place.check_reset(RESET, a_state(machines=machines, guest=silent()))
    assert problem is not None
    assert problem.hint.startswith("restore a snapshot that is in S3, by new machines; nothing was touched")
    other = in_place.check_reset(
        replace(RESET, member="s9"), a_state(machines=[*machines, a_machine("s4", SERVERS)], guest=silent())
    )
    assert other is not None
    assert "there are: s4;" in other.hint


@pytest.mark.parametrize(
    ("because", "why"),
    [
        ("", "the guest API was not asked yet"),
        (
            "Node s1 of the guest cluster cannot be read (no name)",
            "Node s1 of the guest cluster cannot be read",
        ),
    ],
)
def test_no_member_is_reset_before_it_is_known_that_the_api_is_silent(because: str, why: str):
    state = a_state(request=RESET, guest=GuestState("unknown", because))
    plan = restore.plan(state)

    assert plan.actions == []
    (wait,) = plan.waits
    assert wait.what.startswith(f"the guest API, or its silence ({why}")
    assert wait.then == "Machine s2 resets etcd, unless the API answers"
    assert reset_refusal(guest=state.guest).startswith(f"it is not known whether etcd has its quorum: {why}")


def test_a_reset_begins_once_the_api_is_known_to_be_silent_or_no_server_of_it_runs():
    for guest in (silent(), a_state().guest):
        (begin,) = actions(a_state(request=RESET, guest=guest))
        assert isinstance(begin, do.BeginRestore)
    unasked = GuestState("unknown", "")
    workers = some("w", 2, a_pool("workers", 2))
    (begin,) = actions(a_state(request=RESET, guest=unasked, machines=[*off(), *workers]))
    assert isinstance(begin, do.BeginRestore)
    assert (
        actions(a_state(request=RESET, guest=unasked, machines=[*off()[:2], a_machine("s3", SERVERS)])) == []
    )
    # A snapshot is restored whatever the API says; it has to be asked first, since the guest may have that restore on record.
    for guest in (GuestState("unknown", "Node s1 cannot be read"), silent()):
        assert isinstance(actions(a_state(request=REQUEST, guest=guest))[0], do.BeginRestore)
    waiting = restore.plan(a_state(request=REQUEST, guest=unasked))
    assert waiting.actions == []
    assert [wait.what for wait in waiting.waits] == [
        "the guest API to be asked (the guest API was not asked yet)"
    ]
    gone = a_state(request=REQUEST, guest=unasked, machines=[*off(), *workers])
    assert isinstance(actions(gone)[0], do.BeginRestore)


# -- the phases ------------------------------------------------------------------------------------------------------


def test_every_server_is_stopped_and_nothing_is_deleted():
    state = seen(at("Shutdown"), [*some("s", 3, SERVERS), *some("w", 2, a_pool("workers", 2))])
    plan = restore.plan(state)

    assert restore.is_exclusive(state)
    assert plan.actions == [
        PowerVM("no server may run while one resets etcd", name, "off") for name in ("s1", "s2", "s3")
    ]
    assert plan.waits[0].what == "VirtualMachine default/s1 and those of 2 more servers to stop (running)"


def test_what_stops_is_waited_for_and_what_is_not_known_counts_as_running():
    s1, s2, s3 = some("s", 3, SERVERS)
    plan = restore.plan(seen(at("Shutdown"), [sighted(s1, state="stopping"), stopped(s2), unknown(s3)]))

    assert plan.actions == []
    assert plan.waits[0].what.startswith("VirtualMachine default/s1 and those of 1 more")
    going = restore.plan(seen(at("Shutdown"), [leaving(s1), stopped(s2), stopped(s3)]))
    assert [type(one) for one in going.actions] == [DeleteVM]


def test_the_member_is_told_once_no_server_runs():
    s1, s2, s3 = off()
    (action,) = actions(seen(at("Shutdown"), [missing(s1), s2, s3]))

    assert action == do.RequestClusterReset("no server runs; snapshot one is next", "s2")
    (action,) = actions(seen(at("Shutdown", ""), [s1, s2, s3]))
    assert action.because == "no server runs; the data of Machine s2 is next"


@pytest.mark.parametrize("phase", ["Shutdown", "Restore", "PostRestorePodCleanup"])
def test_without_the_member_the_restore_fails_and_says_what_is_left(phase: RestorePhase):
    s1, s2, s3 = off()
    for machines in ([s1, s3], [s1, missing(s2), s3], [s1, leaving(s2), s3]):
        (action,) = actions(seen(at(phase), machines, guest=silent()))
        assert isinstance(action, do.FailRestore)
        assert "the disks of the other servers are as they were" in action.because


def test_only_the_member_is_started_and_its_api_proves_that_etcd_was_reset():
    s1, s2, s3 = off()
    begun = seen(at("Restore"), [s1, s2, s3], guest=silent())
    assert restore.is_exclusive(begun)
    assert actions(begun) == [PowerVM("its service resets etcd before it starts", "s2", "on")]

    running = a_machine("s2", SERVERS)
    assert restore.plan(seen(at("Restore"), [s1, running, s3], guest=silent())).actions == []
    # What was known of the guest before does not count while the member does not run.
    assert not any(isinstance(one, do.AdvanceRestore) for one in actions(seen(at("Restore"), [s1, s2, s3])))
    (done,) = actions(seen(at("Restore"), [s1, running, s3]))
    assert (done.phase, done.because) == ("PostRestorePodCleanup", "the API answers with snapshot one")


def test_the_other_servers_are_deleted_after_that_and_then_the_member_forgets_the_reset():
    s1, _, s3 = off()
    member = a_machine("s2", SERVERS)
    why = "Machine s2 has begun the cluster anew with snapshot one"
    assert actions(seen(at("PostRestorePodCleanup"), [s1, member, s3])) == [
        DeleteMachine(why, "s1"),
        DeleteMachine(why, "s3"),
    ]
    (left,) = actions(seen(at("PostRestorePodCleanup"), [leaving(s1), member]))
    assert isinstance(left, DeleteVM)
    assert actions(seen(at("PostRestorePodCleanup"), [member])) == [
        do.EndClusterReset("the other servers are gone", "s2")
    ]


def test_the_member_is_the_first_server_that_becomes_ready():
    member = a_machine("s2", SERVERS)
    state = seen(at("InitialRestartCluster"), [member])

    assert not restore.is_exclusive(state)
    assert actions(state) == [do.AdvanceRestore("the first server is Ready", "PostRestoreNodeCleanup")]


def test_only_a_new_first_server_restores_from_s3():
    first = record_of(a_machine("s9", SERVERS), is_init_server=True).record
    later = a_machine("s9", SERVERS).record

    def restores(recorded: RecordedRestore, machine: Machine) -> bool:
        return find_restore(machine, a_state(recorded).cluster) is not None

    of_s3 = replace(at("Restore"), member="", path="")
    assert restores(of_s3, first)
    assert not restores(of_s3, later)
    assert not restores(replace(of_s3, phase="RestartCluster"), first)
    assert not restores(at("Restore"), first)


# -- case by case ----------------------------------------------------------------------------------------------------


def test_the_file_of_a_worker_or_of_the_present_token_and_paths_at_their_bounds():
    s1, s2, s3 = some("s", 3, SERVERS)
    worker = a_machine("w1", a_pool("workers", 1))
    of_worker = read_snapshot_file(a_file("one", "w1"))
    assert of_worker is not None
    assert "no server of the Cluster is that Node" in local_refusal(of_worker, [s1, s2, s3, worker])
    mark = {"annotations": {"etcd.rke2.cattle.io/snapshot-token-hash": token_hash("server")}}
    assert local_refusal(file_of(**mark)) == ""
    longest = "/" + "a" * 999
    assert in_place.snapshot_path(file_of(spec={"location": f"file://{longest}"})) == longest
    assert in_place.snapshot_path(file_of(spec={"location": f"file://{longest}a"})) == ""
    assert in_place.snapshot_path(file_of(spec={"location": "/snapshots/one"})) == ""
    assert not in_place.is_cut_off(replace(file_of(), size=512 + 32))


def test_a_member_that_cannot_be_reset_is_refused_with_those_that_can():
    s1, s2, s3 = some("s", 3, SERVERS)
    worker = a_machine("w1", a_pool("workers", 1))

    def hint(machines: list[MachineState], member: str = "s9") -> str:
        problem = in_place.check_reset(
            replace(RESET, member=member), a_state(machines=machines, guest=silent())
        )
        assert problem is not None
        return problem.hint

    assert "there are: s1, s3;" in hint([s1, missing(s2), s3, worker])
    assert "there are: s1, s2, s3;" in hint([s1, s2, s3, a_machine("s4", SERVERS)])
    assert "there are: none;" in hint([missing(s1), worker])
    assert "no Machine of the Cluster with etcd" in reset_refusal(machines=[s1, unordered(s2), s3])
    assert "driver vsphere, which cannot give it" in reset_refusal(
        machines=[s1, record_of(s2, driver="vsphere"), s3]
    )


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (a_machine("s1", SERVERS), "running"),
        (sighted(a_machine("s1", SERVERS), state="stopping"), "stopping"),
        (sighted(a_machine("s1", SERVERS), state=""), "running"),
        (unknown(a_machine("s1", SERVERS)), "401"),
        (unknown(a_machine("s1", SERVERS), ""), "its state is not known"),
        (replace(a_machine("s1", SERVERS), vm=None), "its state is not known"),
    ],
)
def test_a_server_that_has_yet_to_stop_is_named_with_its_state_and_looked_at_again(
    machine: MachineState, said: str
):
    (wait,) = restore.plan(seen(at("Shutdown"), [machine, *off()[1:]])).waits
    assert wait.what == f"VirtualMachine default/s1 to stop ({said})"
    assert wait.until == NOON + timedelta(seconds=30)


def test_a_server_of_which_nothing_was_ever_made_need_not_stop():
    (request,) = actions(seen(at("Shutdown"), [unordered(a_machine("s1", SERVERS)), *off()[1:]]))
    assert isinstance(request, do.RequestClusterReset)


def test_the_member_is_waited_for_until_its_api_answers_and_then_nothing_is():
    s1, _, s3 = off()
    running = a_machine("s2", SERVERS)
    silent_yet = restore.plan(seen(at("Restore"), [s1, running, s3], guest=silent()))
    assert silent_yet.actions == []
    assert silent_yet.waits[0].what.startswith("Machine s2 to reset etcd with snapshot one (windrow machine")
    answering = restore.plan(seen(at("Restore"), [s1, running, s3]))
    assert [type(one) for one in answering.actions] == [do.AdvanceRestore]
    assert answering.waits == []


def test_the_other_servers_are_waited_for_until_they_are_gone():
    s1, _, s3 = off()
    plan = restore.plan(seen(at("PostRestorePodCleanup"), [s1, a_machine("s2", SERVERS), s3]))
    assert [(type(one), one.subject) for one in plan.actions] == [
        (DeleteMachine, "s1"),
        (DeleteMachine, "s3"),
    ]
    assert [(wait.what, wait.until) for wait in plan.waits] == [
        ("Machine s1 to be deleted", NOON + timedelta(seconds=30))
    ]


# -- others that are started by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize("guest", [silent(), GuestState("reachable"), GuestState("unknown")])
@pytest.mark.parametrize("phase", ["Restore", "PostRestorePodCleanup"])
def test_a_server_that_is_started_meanwhile_is_stopped_again_and_nothing_is_believed_or_deleted(
    phase: RestorePhase, guest: GuestState
):
    s1, _, _ = off()
    for member in (a_machine("s2", SERVERS), off()[1]):
        plan = restore.plan(seen(at(phase), [s1, member, a_machine("s3", SERVERS)], guest=guest))
        assert plan.actions == [PowerVM("no server may run while one resets etcd", "s3", "off")]
        assert [wait.what for wait in plan.waits] == ["VirtualMachine default/s3 to stop (running)"]


@pytest.mark.parametrize("phase", ["Restore", "PostRestorePodCleanup"])
def test_a_server_of_which_it_is_not_known_whether_it_runs_keeps_all_as_it_is(phase: RestorePhase):
    s1, _, s3 = off()
    for doubted in (unknown(s3), sighted(s3, state="stopping"), replace(s3, vm=None)):
        plan = restore.plan(seen(at(phase), [s1, a_machine("s2", SERVERS), doubted]))
        assert plan.actions == []
        assert plan.waits[0].what.startswith("VirtualMachine default/s3 to stop (")
        assert plan.waits[0].until == NOON + timedelta(seconds=30)


def test_servers_whose_vms_are_gone_or_were_never_made_are_not_waited_for():
    s1, _, s3 = off()
    member = a_machine("s2", SERVERS)
    (done,) = actions(seen(at("Restore"), [missing(s1), member, unordered(a_machine("s3", SERVERS))]))
    assert isinstance(done, do.AdvanceRestore)
    going = actions(seen(at("PostRestorePodCleanup"), [leaving(a_machine("s1", SERVERS)), member, s3]))
    assert [type(one) for one in going] == [DeleteVM, DeleteMachine]


def test_an_api_that_is_not_watched_at_this_moment_proves_nothing():
    s1, _, s3 = off()
    interrupted = GuestState("reachable", interruption="connection lost")
    assert actions(seen(at("Restore"), [s1, a_machine("s2", SERVERS), s3], guest=interrupted)) == []


def test_only_the_member_is_asked_whether_etcd_was_reset():
    machines = [
        sighted(one, addresses=(f"10.0.0.{place}",)) for place, one in enumerate(some("s", 3, SERVERS))
    ]
    own = ("https://10.0.0.1:6443",)

    def asked(phase: RestorePhase, left: list[MachineState] = machines) -> tuple[str, ...]:
        return in_place.list_apis_to_ask(seen(at(phase), left))

    assert asked("Restore") == asked("PostRestorePodCleanup") == own
    assert len(asked("Shutdown")) == len(asked("InitialRestartCluster")) == 3
    assert asked("Restore", [machines[0], replace(stopped(machines[1]), node=None)]) == ()
    of_s3 = replace(at("Restore"), member="")
    assert len(in_place.list_apis_to_ask(seen(of_s3, machines))) == 3


def test_what_was_refused_meanwhile_is_said_beside_what_goes_on():
    recorded = replace(at("Restore"), generation=2, refused="ETCDSnapshot prod/typo does not exist")
    (said,) = [one for one in operation_conditions(seen(recorded, off())) if one.type == SNAPSHOT_RESTORED]
    assert (said.status, said.reason, said.message) == (
        "Unknown",
        "Restore",
        "etcdSnapshotRestore begun before is at phase Restore; snapshot one; generation 2 was refused (ETCDSnapshot prod/typo does "
        "not exist)",
    )
