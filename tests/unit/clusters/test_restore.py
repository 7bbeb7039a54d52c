"""Restore of a cluster from a snapshot: what is refused before anything is touched, and each phase."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SECRETS,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    look,
    missing,
    silent,
    some,
    unordered,
    unready,
)
from tests.unit.clusters.supervisors import a_file

from windrow.clusters.api.endpoint import ControlPlaneEndpoint
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.operations.recorded import (
    Operations,
    RecordedOperations,
    RecordedRestore,
    RestorePhase,
    RestoreRequest,
    read_operations,
    read_recorded_operations,
)
from windrow.clusters.api.operations.snapshot import (
    ETCDSnapshot,
    NoClusterSpec,
    encode_spec,
    read_snapshot,
    read_snapshot_file,
    render_snapshot,
    spec_digest,
    token_hash,
)
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.plan.actions import DeleteMachine, DeleteVM, RemoveMachineFinalizer
from windrow.clusters.plan.diagnosis import loss_hint
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import restore
from windrow.clusters.plan.operations.conditions import operation_conditions
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import ClusterState, GuestState, MachineState, Node
from windrow.machines.port import Problem

SERVERS, WORKERS = a_pool("servers", 3, SERVER), a_pool("workers", 2)
RAW = {
    "metadata": {"name": "prod", "namespace": "fleet-default", "uid": "cluster-uid"},
    "spec": {"kubernetesVersion": "v1.35.1+rke2r1"},
}
REQUEST = RestoreRequest("prod-s3-one", 1)
UNDER_WAY = [one for one in get_args(RestorePhase) if one not in ("", "Finished", "Failed")]
THEN = {"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": {"a": 1}}


def a_state(
    recorded: RecordedRestore | None = None, request: RestoreRequest | None = REQUEST, **rest: Any
) -> ClusterState:
    cluster = a_cluster(SERVERS, WORKERS, raw=RAW, operations=Operations(restore=request))
    operations = RecordedOperations(restore=recorded or RecordedRestore(), specs=rest.pop("specs", ()))
    status = replace(cluster.recorded, operations=operations, initialized=rest.pop("initialized", True))
    cluster = replace(cluster, recorded=status, **rest.pop("cluster", {}))
    machines = rest.pop("machines", [*some("s", 3, SERVERS), *some("w", 2, WORKERS)])
    return look(cluster, machines, **rest)


def at(phase: RestorePhase, **rest: Any) -> RecordedRestore:
    rest.setdefault("replaced", ("uid-s1", "uid-s2", "uid-s3"))
    return RecordedRestore(1, phase, "prod-s3-one", id="1-7", file="one", s3={"bucket": "b"}, **rest)


def actions(state: ClusterState) -> list[Any]:
    return list(restore.plan(state).actions)


# -- what is asked for -----------------------------------------------------------------------------------------------


def test_a_restore_begins_with_the_machines_that_it_replaces():
    state = a_state()
    assert restore.is_exclusive(state)
    everyone = ("uid-s1", "uid-s2", "uid-s3", "uid-w1", "uid-w2")
    assert actions(state) == [do.BeginRestore("etcdSnapshotRestore.generation is 1", REQUEST, everyone)]


def test_workers_that_find_the_new_servers_by_an_endpoint_stay():
    endpoint = ControlPlaneEndpoint("address", "10.9.9.9")

    state = a_state(cluster={"control_plane_endpoint": endpoint})

    assert restore.list_replaced(state) == ("uid-s1", "uid-s2", "uid-s3")


@pytest.mark.parametrize("phase", ["", "Finished", "Failed"])
def test_what_was_carried_out_is_not_begun_again(phase: RestorePhase):
    state = a_state(RecordedRestore(1, phase))

    assert not restore.is_exclusive(state)
    assert not restore.is_under_way(state)
    assert actions(state) == []


def test_a_cluster_that_never_started_is_not_restored():
    assert actions(a_state(initialized=False)) == []


@pytest.mark.parametrize("phase", ["Shutdown", "Restore", "InitialRestartCluster"])
def test_a_higher_generation_takes_the_place_of_a_restore_that_does_not_end(phase: RestorePhase):
    state = a_state(at(phase), RestoreRequest("prod-s3-two", 2), initialized=False)

    assert restore.is_exclusive(state)
    assert [type(one) for one in actions(state)] == [do.BeginRestore]


@pytest.mark.parametrize("phase", UNDER_WAY)
@pytest.mark.parametrize("member", ["", "uid-s1"])
@pytest.mark.parametrize("initialized", [True, False])
def test_a_version_that_a_restore_has_written_keeps_no_later_restore_from_its_turn(
    phase: RestorePhase, member: str, initialized: bool
):
    """A restore goes back to an older release, which is what a spec may not ask for otherwise."""
    lower = Problem("lower than the cluster runs", "the way back is a restore", "spec.kubernetesVersion")
    begun = at(phase, member=member)

    going_on = plan_cluster(a_state(begun, initialized=initialized, problems=(lower,)))
    assert going_on.refused == ()
    assert going_on.actions or going_on.waits

    newer = RestoreRequest("prod-s3-two", 2, "kubernetesVersion")
    plan = plan_cluster(a_state(begun, newer, initialized=initialized, problems=(lower,)))
    assert [type(one) for one in plan.actions] == [do.BeginRestore]


def test_a_version_that_is_too_low_still_holds_a_cluster_that_was_never_started():
    lower = Problem("no such release", "name another", "spec.kubernetesVersion")

    assert plan_cluster(a_state(initialized=False, problems=(lower,))).refused == (lower,)


def test_a_restore_that_failed_without_servers_is_followed_by_another_and_by_no_empty_cluster():
    elected = unordered(a_machine("s1", SERVERS))
    elected = replace(elected, record=replace(elected.record, is_init_server=True))
    machines: list[MachineState]
    for machines in ([], [elected]):
        state = a_state(at("Failed"), initialized=False, machines=machines, guest=silent(), unrecorded=())
        plan = plan_cluster(state)
        assert plan.actions == ()
        assert any("would begin an empty cluster" in wait.what for wait in plan.waits)
        again = replace(
            state, cluster=replace(state.cluster, operations=Operations(restore=RestoreRequest("two", 2)))
        )
        assert [type(one) for one in plan_cluster(again).actions] == [do.BeginRestore]


def reading(asked: dict[str, Any], done: int = 0) -> tuple[RestoreRequest | None, list[str]]:
    problems = ProblemCollector()
    rke = Fields({"etcdSnapshotRestore": asked}, "spec.rkeConfig", problems)
    found = read_operations(rke, RecordedOperations(restore=RecordedRestore(done))).restore
    return found, [problem.message for problem in problems.found]


def test_the_request_has_ranchers_fields():
    assert reading({"name": "a", "generation": 2}) == (RestoreRequest("a", 2), [])
    assert reading({"name": "a", "generation": 2, "restoreRKEConfig": "all"})[0] == RestoreRequest(
        "a", 2, "all"
    )
    assert reading({}) == (None, [])
    assert reading({"generation": 0, "name": "a"}) == (None, [])


def test_what_cannot_be_meant_is_told_and_does_nothing():
    field = "spec.rkeConfig.etcdSnapshotRestore"
    assert reading({"generation": 1}) == (
        None,
        [f"{field}.name is '', which no ETCDSnapshot may be called: nothing is done"],
    )
    assert reading({"name": "a", "generation": 1, "restoreRKEConfig": "some"}) == (
        None,
        [f"{field}.restoreRKEConfig is 'some': nothing is done"],
    )
    found, problems = reading({"name": "a", "generation": 1}, done=3)
    assert found == RestoreRequest("a", 3)
    assert problems == [f"{field}.generation is 1, and 3 was carried out before: nothing is done"]


def test_what_is_recorded_is_read_back_and_what_others_wrote_is_not():
    status = {
        "etcdSnapshotRestore": {"name": "prod-s3-one", "generation": 1, "restoreRKEConfig": "all"},
        "etcdSnapshotRestorePhase": "Shutdown",
        "etcdSnapshotRestoreRun": {
            "id": "1-7",
            "file": "one",
            "s3": {"bucket": "b"},
            "replaced": ["uid-s1"],
            "since": "2026-01-01T12:00:00Z",
        },
    }
    assert read_recorded_operations(status).restore == at(
        "Shutdown", config="all", replaced=("uid-s1",), since=NOON
    )
    odd = {
        "etcdSnapshotRestore": [],
        "etcdSnapshotRestorePhase": "x",
        "etcdSnapshotRestoreRun": {"replaced": 1},
    }
    assert read_recorded_operations(odd).restore == RecordedRestore()


# -- what a snapshot has to be ---------------------------------------------------------------------------------------


def a_snapshot(version: str = "v1.35.1+rke2r1", **rest: Any) -> dict[str, Any]:
    metadata = {
        "provisioning-cluster-spec": encode_spec({"kubernetesVersion": version, "rkeConfig": {"a": 1}})
    }
    spec = {"s3": {"bucket": "b"}, "metadata": metadata} | rest.pop("spec", {})
    file = read_snapshot_file(a_file("one", spec=spec, **rest))
    assert file is not None
    raw = render_snapshot(a_cluster(SERVERS, raw=RAW), file, "Unknown")
    raw["metadata"]["uid"] = "uid-1"
    return raw


def refusal(raw: dict[str, Any] | None, request: RestoreRequest = REQUEST, **rest: Any) -> str:
    problem = restore.check_snapshot(raw, request, a_state(**rest))
    if problem is None:
        return ""
    assert problem.hint.endswith(
        "; nothing was touched, raise spec.rkeConfig.etcdSnapshotRestore.generation to try again"
    )
    return problem.message.removeprefix("ETCDSnapshot fleet-default/prod-s3-one ")


def test_a_snapshot_of_the_cluster_in_s3_is_fit():
    assert refusal(a_snapshot()) == ""
    assert refusal(a_snapshot("v1.35.9+rke2r1")) == ""
    assert refusal(a_snapshot("v1.34.1+rke2r1")) == ""


def test_one_that_is_not_fit_is_refused_with_the_reason():
    mark = "etcd.rke2.cattle.io/snapshot-token-hash"
    other = a_snapshot()
    other["metadata"]["annotations"] = {"windrow.io/cluster-uid": "another"}
    going = a_snapshot()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"

    assert refusal(None) == "does not exist"
    assert refusal(other) == "is of prod, not of this Cluster"
    other["spec"]["clusterName"] = ""
    assert refusal(other) == "is of another Cluster, not of this Cluster"
    assert refusal(going) == "is being deleted"
    assert refusal(a_snapshot(status={"readyToUse": False})) == "failed when it was made (no reason given)"
    assert (
        refusal(a_snapshot(status={"error": {"message": "truncated"}}))
        == "failed when it was made (truncated)"
    )
    assert refusal(a_snapshot(status={"size": "0"})) == "is empty"
    assert refusal(a_snapshot(annotations={mark: "ffff"})).startswith(
        f"was made with another server token (digest ffff, that of the Cluster is {token_hash('server')})"
    )
    assert refusal(a_snapshot(annotations={mark: token_hash("server")})) == ""


def test_an_older_release_does_not_read_what_a_newer_one_has_written():
    newer = a_snapshot("v1.36.0+rke2r1")

    assert refusal(newer) == (
        "was made by v1.36.0+rke2r1, and the cluster would be v1.35.1+rke2r1, which cannot read it"
    )
    assert refusal(newer, replace(REQUEST, config="kubernetesVersion")) == ""
    # What runs counts, not what is asked for in the same breath.
    assert "cannot read it" in refusal(newer, cluster={"version": "v1.36.0+rke2r1"})
    assert "cannot read it" in refusal(a_snapshot("v1.35.1+k3s1"))
    # A Cluster from before its version was recorded runs the one that it asks for.
    known = a_state()
    unrecorded = replace(known, cluster=replace(known.cluster, recorded=RecordedStatus(initialized=True)))
    assert restore.check_snapshot(newer, REQUEST, unrecorded) is not None
    assert restore.check_snapshot(a_snapshot(), REQUEST, unrecorded) is None
    assert refusal(a_snapshot("odd")) == ""


def test_a_snapshot_of_a_former_token_that_is_kept_is_fit():
    mark = {"annotations": {"etcd.rke2.cattle.io/snapshot-token-hash": token_hash("former")}}
    keeping = replace(SECRETS, former_server_passwords=("former",))

    assert refusal(a_snapshot(**mark)).startswith("was made with another server token")
    assert refusal(a_snapshot(**mark), secrets=keeping) == ""
    assert refusal(a_snapshot(**mark), secrets=None).startswith("was made with another server token")
    assert refusal(a_snapshot(), secrets=None) == ""


def test_of_a_snapshot_on_a_disk_the_server_that_has_it_keeps_its_release():
    on_disk, wanted = {"spec": {"s3": None}}, replace(REQUEST, config="kubernetesVersion")

    assert refusal(a_snapshot(**on_disk)) == ""
    assert refusal(a_snapshot(**on_disk), wanted) == ""
    assert refusal(a_snapshot("v1.34.1+rke2r1", **on_disk)) == ""  # the data alone, by what runs
    assert refusal(a_snapshot("v1.34.1+rke2r1", **on_disk), wanted) == (
        "is on a disk, its server runs v1.35.1+rke2r1 and keeps that, and the cluster would be v1.34.1+rke2r1"
    )
    assert refusal(a_snapshot("v1.34.1+rke2r1"), wanted) == ""
    # What runs counts, not what is asked for in the same breath.
    asked = {"version": "v1.34.1+rke2r1"}
    assert "its server runs v1.35.1" in refusal(
        a_snapshot("v1.34.1+rke2r1", **on_disk), wanted, cluster=asked
    )


def test_a_snapshot_on_a_disk_is_restored_by_the_server_that_has_it():
    gone = [one for one in some("s", 3, SERVERS) if one.name != "s1"]
    on_disk = a_snapshot(spec={"s3": None})

    assert refusal(on_disk, machines=gone) == (
        "is on the disk of Node s1 only, and no server of the Cluster is that Node any more"
    )
    assert refusal(a_snapshot(), machines=gone) == ""


def test_a_file_whose_end_is_missing_is_refused():
    assert refusal(a_snapshot(status={"size": str(512 * 8)})) == (
        "has 4096 bytes, and its end is missing: it was cut off when it was written"
    )


@pytest.mark.parametrize("phase", [one for one in get_args(RestorePhase) if one])
def test_nothing_else_is_done_until_the_servers_of_before_are_gone(phase: RestorePhase):
    by_new_machines, in_place = ("Started", "Shutdown"), ("Restore", "PostRestorePodCleanup")

    assert restore.is_exclusive(a_state(at(phase))) is (phase in by_new_machines)
    kept = a_state(at(phase, member="uid-s1"))
    assert restore.is_exclusive(kept) is (phase in (*by_new_machines, *in_place))


def test_without_a_spec_only_the_data_can_be_restored():
    bare = a_snapshot(spec={"metadata": None})

    assert refusal(bare) == ""
    assert "it carries no spec of a Cluster" in refusal(bare, replace(REQUEST, config="all"))


def test_a_whole_spec_that_the_manager_did_not_write_is_refused_with_what_works_instead():
    """What an ETCDSnapshotFile says was written by any user who may write to the guest."""
    request = replace(REQUEST, config="all")
    specs = ("of another", spec_digest(THEN))

    assert refusal(a_snapshot(), request, specs=specs) == ""
    assert "the manager has no record that it wrote the spec that it carries" in refusal(
        a_snapshot(), request
    )
    assert "no record" in refusal(a_snapshot("v1.34.1+rke2r1"), request, specs=specs)
    problem = restore.check_snapshot(a_snapshot(), request, a_state())
    assert problem is not None
    assert problem.hint.startswith(
        "set restoreRKEConfig to none or kubernetesVersion, and apply your own manifest"
    )
    # The object may have changed since it was found fit.
    with pytest.raises(NoClusterSpec, match="no record"):
        restore.restored_spec(a_snapshot(), "all", {}, ["of another"])


def test_a_version_that_is_none_is_never_written():
    request = replace(REQUEST, config="kubernetesVersion")
    assert "names no version" in refusal(a_snapshot("odd"), request)


def test_a_snapshot_that_says_it_is_elsewhere_than_the_cluster_reads_is_refused():
    own = {"etcd": {"s3": {"bucket": "b", "folder": "/prod/", "endpoint": "s3.example.org"}}}

    assert (
        refusal(a_snapshot(spec={"s3": {"bucket": "b", "prefix": "prod", "endpoint": "evil"}}), cluster=own)
        == ""
    )
    assert refusal(a_snapshot(spec={"s3": {"bucket": "evil"}}), cluster=own) == (
        "is in bucket evil, and spec.rkeConfig.etcd.s3 names b, where it is read"
    )
    assert "folder" in refusal(a_snapshot(spec={"s3": {"bucket": "b", "prefix": "other"}}), cluster=own)
    assert refusal(a_snapshot(spec={"s3": {"bucket": "b"}}), cluster=own) == ""


def test_the_spec_is_restored_as_far_as_was_asked_for():
    now = {
        "kubernetesVersion": "v1.36.0+rke2r1",
        "cloudCredentialSecretName": "ns:cc",
        "rkeConfig": {"b": 2, "etcdSnapshotRestore": {"generation": 1}},
    }
    raw = a_snapshot()

    assert restore.restored_spec(raw, "none", now, ()) == now
    assert restore.restored_spec(raw, "kubernetesVersion", now, ()) == {
        **now,
        "kubernetesVersion": "v1.35.1+rke2r1",
    }
    assert restore.restored_spec(raw, "all", now, [spec_digest(THEN)]) == {
        **now,
        "kubernetesVersion": "v1.35.1+rke2r1",
        "rkeConfig": {"a": 1, "etcdSnapshotRestore": {"generation": 1}},
    }


def test_what_the_snapshot_does_not_say_stays_as_it_is():
    now = {"kubernetesVersion": "v1.36.0+rke2r1", "rkeConfig": {"b": 2}}

    def carrying(spec: dict[str, Any]) -> dict[str, Any]:
        return a_snapshot(spec={"metadata": {"provisioning-cluster-spec": encode_spec(spec)}})

    bare: dict[str, Any] = {"paused": True}
    assert restore.restored_spec(carrying(bare), "kubernetesVersion", now, ()) == now
    assert restore.restored_spec(carrying(bare), "all", now, [spec_digest(bare)]) == now
    assert restore.restored_spec(carrying(THEN), "all", {}, [spec_digest(THEN)]) == THEN
    with pytest.raises(NoClusterSpec, match="it carries no spec"):
        restore.restored_spec(a_snapshot(spec={"metadata": None}), "all", now, ())
    with pytest.raises(NoClusterSpec, match="it carries no spec"):
        restore.restored_spec({}, "all", now, ())


# -- the phases ------------------------------------------------------------------------------------------------------


def test_first_the_spec_is_written():
    assert [type(one) for one in actions(a_state(at("Started")))] == [do.RestoreSpec]
    assert restore.is_exclusive(a_state(at("Started")))


def test_then_the_servers_are_deleted_whatever_the_guest_says_and_nothing_else_is_done():
    servers = some("s", 3, SERVERS)
    machines = [servers[0], leaving(servers[1]), leaving(missing(servers[2])), a_machine("w1", WORKERS)]
    state = a_state(at("Shutdown"), machines=machines, guest=silent())

    plan = plan_cluster(state)

    assert [(type(one), one.subject) for one in plan.actions] == [
        (DeleteMachine, "s1"),
        (DeleteVM, "s2"),
        (DeleteVM, "s3"),
        (RemoveMachineFinalizer, "s3"),
    ]
    assert plan.waits[-1].what == (
        "Machine s1, Machine s2, Machine s3 to be deleted before etcd is restored from snapshot one"
    )


def test_once_they_are_gone_the_cluster_begins_anew():
    state = a_state(at("Shutdown"), machines=some("w", 2, WORKERS))

    assert actions(state) == [do.StartRestore("the machines of before are gone; snapshot one is next")]


def test_while_the_first_server_restores_the_status_says_where_to_look():
    first = a_machine("s1", SERVERS)
    state = a_state(at("Restore"), machines=[first], initialized=False, guest=silent())
    assert not restore.is_exclusive(state)
    (wait,) = restore.plan(state).waits
    assert wait.what == (
        "Machine s1 to restore etcd from snapshot one (windrow machine console s1 shows how it goes on)"
    )


@pytest.mark.parametrize(
    ("phase", "following"),
    [
        ("Restore", "PostRestorePodCleanup"),
        ("PostRestorePodCleanup", "InitialRestartCluster"),
        ("InitialRestartCluster", "PostRestoreNodeCleanup"),
        ("PostRestoreNodeCleanup", "RestartCluster"),
    ],
)
def test_the_phases_follow_each_other(phase: RestorePhase, following: RestorePhase):
    plan = restore.plan(a_state(at(phase)))

    (action,) = plan.actions
    assert isinstance(action, do.AdvanceRestore)
    assert action.phase == following
    assert not plan.waits


@pytest.mark.parametrize("machines", [[], [unordered(a_machine("s1", SERVERS))]])
def test_before_there_is_a_vm_of_the_first_server_no_console_is_shown(machines: list[MachineState]):
    state = a_state(at("Restore"), machines=machines, initialized=False, guest=silent())
    plan = restore.plan(state)
    assert (plan.actions, plan.waits) == ([], [])


def test_the_first_server_is_waited_for_while_the_guest_does_not_answer():
    plan = restore.plan(a_state(at("InitialRestartCluster"), guest=silent()))
    assert (plan.actions, len(plan.waits)) == ([], 1)


def test_a_first_server_that_is_not_ready_and_a_guest_that_is_away_are_waited_for():
    servers = some("s", 3, SERVERS)
    plan = restore.plan(a_state(at("InitialRestartCluster"), machines=[unready(servers[0])]))
    assert (plan.actions, len(plan.waits)) == ([], 1)
    for guest in (silent(), GuestState("reachable", interruption="reset")):
        plan = restore.plan(a_state(at("PostRestoreNodeCleanup"), guest=guest))
        assert (plan.actions, [wait.what for wait in plan.waits]) == ([], ["the guest API to answer"])


def test_nodes_of_the_snapshot_that_no_machine_is_are_deleted():
    nodes = tuple(
        Node(name, machine_uid=f"uid-{name}") for name in ("s1", "old-3", "old-1", "old-2", "w1", "old-4")
    )
    nodes += (Node("by-hand"),)  # joined without us, as its owner wants
    (action,) = actions(a_state(at("PostRestoreNodeCleanup"), guest=GuestState("reachable", nodes=nodes)))

    assert action == do.DeleteStaleNodes(
        "no Machine is Node old-1, old-2, old-3 and 1 more, which the snapshot holds",
        ("old-1", "old-2", "old-3", "old-4"),
    )


def test_of_nodes_without_a_machine_three_are_named():
    nodes = tuple(Node(name, machine_uid="of-old") for name in ("s1", "old-3", "old-1", "old-2"))
    (action,) = actions(a_state(at("PostRestoreNodeCleanup"), guest=GuestState("reachable", nodes=nodes)))

    assert action.because == "no Machine is Node old-1, old-2, old-3, which the snapshot holds"


def test_it_ends_with_all_machines_or_without_those_that_do_not_come():
    all_there = a_state(at("RestartCluster", since=NOON))
    assert actions(all_there) == [do.FinishRestore("snapshot one", 1)]

    late = a_state(at("RestartCluster", since=NOON), machines=some("s", 3, SERVERS))
    plan = restore.plan(late)
    assert plan.actions == []
    assert plan.waits[0].until == NOON + timedelta(minutes=10)
    (end,) = actions(replace(late, now=NOON + timedelta(minutes=10)))
    assert end.because == (
        "snapshot one; machines of pool workers are not Ready yet, and are looked after as ever"
    )


@pytest.mark.parametrize("phase", [one for one in get_args(RestorePhase) if one])
def test_remediation_waits_for_machines_to_find_the_restored_cluster(phase: RestorePhase):
    running, begun = a_state(at(phase)), a_state(at(phase), initialized=False)

    assert restore.holds_remediation(running) is (phase not in ("Finished", "Failed"))
    assert not restore.holds_remediation(begun)
    worker = unready(a_machine("w1", WORKERS), NOON - timedelta(minutes=30))
    machines = [*some("s", 3, SERVERS), worker, a_machine("w2", WORKERS)]
    plan = plan_cluster(a_state(at(phase, replaced=()), machines=machines))
    deleted = [one for one in plan.actions if isinstance(one, DeleteMachine)]
    assert bool(deleted) is (phase in ("Finished", "Failed"))


def test_conditions_tell_phase_reason_and_success():
    def told(recorded: RecordedRestore) -> list[tuple[str, str, str, str]]:
        found = operation_conditions(a_state(recorded))
        return [(one.type, one.status, one.reason, one.message) for one in found]

    name = "etcdSnapshotRestore of generation 1"
    assert told(RecordedRestore()) == []
    assert told(at("Shutdown")) == [
        ("SnapshotRestored", "Unknown", "Shutdown", f"{name} is at phase Shutdown; snapshot one")
    ]
    assert told(at("Failed", message="no such file; x")) == [
        ("SnapshotRestored", "False", "Failed", f"{name} failed: no such file; x")
    ]
    assert told(at("Finished")) == [("SnapshotRestored", "True", "Finished", "snapshot one")]


def test_a_cluster_without_quorum_names_the_newest_snapshot_that_can_be_restored():
    def an_object(name: str, hour: int, openable: str = "Unknown", **rest: Any) -> ETCDSnapshot:
        raw = a_snapshot(
            status={"creationTime": f"2026-01-01T{hour:02}:00:00Z", **rest.pop("status", {})}, **rest
        )
        raw["metadata"]["name"], raw["status"]["openable"] = name, openable
        return read_snapshot(raw)

    known = (
        an_object("old", 1),
        an_object("newest", 5, "True"),
        an_object("other-token", 6, "False"),
        an_object("failed", 7, status={"readyToUse": False}),
        an_object("on-a-disk", 8, spec={"s3": None}),
    )
    lost = missing(a_machine("s1", SERVERS))

    assert loss_hint(lost, a_state(snapshots=known)) == (
        "restore VirtualMachine default/s1 on Harvester, or the newest etcd snapshot in S3: windrow restore fleet-default/prod "
        "newest"
    )
    assert loss_hint(lost, a_state(snapshots=known[2:])).endswith("then apply the manifest again")
