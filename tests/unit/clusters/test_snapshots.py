"""Snapshots of etcd: which are recorded, and how one on demand goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    leaving,
    look,
    record_of,
    silent,
    some,
    unready,
)
from tests.unit.clusters.supervisors import a_file

from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.operations.recorded import (
    NodeSnapshot,
    Operations,
    RecordedOperations,
    RecordedRestore,
    RecordedSnapshot,
    RestorePhase,
    SnapshotFailure,
    read_operations,
    read_recorded_operations,
)
from windrow.clusters.api.operations.snapshot import (
    MAX_RECORDED,
    SNAPSHOT_FINALIZER,
    SPEC_KEY,
    ETCDSnapshot,
    NoClusterSpec,
    SnapshotFile,
    decode_spec,
    encode_spec,
    find_openable,
    object_name,
    read_snapshot,
    read_snapshot_file,
    render_snapshot,
    spec_digest,
    token_hash,
)
from windrow.clusters.api.secrets import SecretData
from windrow.clusters.api.updates.turn import (
    SERVICE_RESTART,
    MachineUpdate,
    UpdateFailure,
    render_machine_update,
)
from windrow.clusters.bootstrap_secrets import find_s3_digest
from windrow.clusters.change.carried_spec import carried_spec, with_credentials
from windrow.clusters.change.way_back import name_way_back
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import snapshots
from windrow.clusters.plan.operations.conditions import operation_conditions
from windrow.clusters.state import ClusterState, GuestState
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.resources import SECRET
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 3, SERVER)
RAW = {
    "metadata": {"name": "prod", "namespace": "fleet-default", "uid": "cluster-uid"},
    "spec": {"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": {"etcdSnapshotCreate": {"generation": 1}}},
}
DIGEST = spec_digest(carried_spec(RAW["spec"]))
UID = "windrow.io/cluster-uid"


def a_state(
    asked: int = 0, recorded: RecordedSnapshot | None = None, digest: str = DIGEST, **rest: Any
) -> ClusterState:
    cluster = a_cluster(SERVERS, raw=RAW, operations=Operations(asked))
    operations = RecordedOperations(recorded or RecordedSnapshot(), spec_digest=digest)
    cluster = replace(cluster, recorded=replace(cluster.recorded, operations=operations))
    rest.setdefault("snapshot_files", ())
    machines = rest.pop("machines", some("s", 3, SERVERS))
    return look(cluster, machines, **rest)


def file_of(name: str = "one", **rest: Any) -> SnapshotFile:
    file = read_snapshot_file(a_file(name, **rest))
    assert file is not None
    return file


def recorded(file: SnapshotFile, **rest: Any) -> ETCDSnapshot:
    """The object of the file, as it is recorded."""
    raw = render_snapshot(a_cluster(SERVERS, raw=RAW), file, find_openable(file, "server"))
    raw["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
    return replace(read_snapshot(raw), **rest)


def test_a_higher_generation_begins_a_snapshot_on_each_member():
    plan = snapshots.plan(a_state(asked=1))

    assert plan.actions == [
        do.BeginSnapshot(
            "etcdSnapshotCreate.generation is 1",
            1,
            f"on-demand-1-{int(NOON.timestamp())}",
            ("s1", "s2", "s3"),
        )
    ]


@pytest.mark.parametrize(("asked", "done"), [(0, 0), (1, 1), (0, 3)])
def test_what_was_done_and_what_is_not_asked_for_is_not_begun(asked, done):
    assert snapshots.plan(a_state(asked, RecordedSnapshot(done, "Finished"))).actions == []
    assert snapshots.plan(a_state(asked, RecordedSnapshot(done, "Failed"))).actions == []


def test_machines_that_leave_or_have_no_etcd_are_not_asked():
    servers = some("s", 3, SERVERS)
    machines = [servers[0], leaving(servers[1]), a_machine("w1", a_pool())]

    (begin,) = snapshots.plan(a_state(asked=1, machines=machines)).actions

    assert isinstance(begin, do.BeginSnapshot)
    assert begin.machines == ("s1",)


def test_a_snapshot_waits_for_a_guest_that_does_not_answer_and_says_so():
    plan = snapshots.plan(a_state(asked=2, guest=silent()))

    assert plan.actions == []
    assert [wait.what for wait in plan.waits] == [
        "the guest API to answer, for the etcd snapshot of generation 2"
    ]


def test_nothing_is_done_for_a_cluster_that_never_started_or_lost_its_secrets():
    state = a_state(asked=1)
    early = replace(state.cluster, recorded=replace(state.recorded, initialized=False))

    assert snapshots.plan(replace(state, cluster=early)).actions == []
    assert snapshots.plan(replace(state, secrets=None)).actions == []


def started(*nodes: NodeSnapshot) -> RecordedSnapshot:
    return RecordedSnapshot(1, "Started", "on-demand-1-7", nodes)


def test_each_member_is_asked_until_it_has_made_its_snapshot():
    nodes = (NodeSnapshot("s1"), NodeSnapshot("s2", tries=1), NodeSnapshot("s3", tries=1, snapshot="x"))

    plan = snapshots.plan(a_state(1, started(*nodes)))

    why = "etcdSnapshotCreate.generation is 1"
    assert plan.actions == [
        do.SaveSnapshot(why, "s1", 1, "on-demand-1-7"),
        do.SaveSnapshot(why, "s2", 2, "on-demand-1-7"),
    ]
    assert [action.subject for action in plan.actions] == ["s1", "s2"]


def test_a_try_that_failed_is_repeated_when_it_is_due():
    due = NOON + timedelta(seconds=10)
    state = a_state(1, started(NodeSnapshot("s1", 1, message="no disk", retry_at=due)))

    early = snapshots.plan(state)
    assert early.actions == []
    assert [(wait.what, wait.until) for wait in early.waits] == [
        ("Machine s1 to make an etcd snapshot (try 1 of 3 failed: no disk)", due)
    ]
    assert len(snapshots.plan(replace(state, now=due)).actions) == 1


def test_a_member_is_asked_once_its_turn_is_over_or_has_failed():
    state = a_state(1, started(NodeSnapshot("s1")))
    s1 = next(one for one in state.machines if one.name == "s1")

    def with_turn(failure: UpdateFailure | None):
        update = MachineUpdate("abc", SERVICE_RESTART, "v1", "", "Apply", failure=failure)
        status = {**s1.record.status, "update": render_machine_update(update)}
        others = [one for one in state.machines if one is not s1]
        return snapshots.plan(replace(state, machines=(record_of(s1, status=status), *others)))

    in_turn = with_turn(None)
    assert in_turn.actions == []
    assert [(one.what, one.then) for one in in_turn.waits] == [
        ("the turn of Machine s1 to end (its service or its VM restarts)", "it makes an etcd snapshot")
    ]
    assert [type(one) for one in with_turn(UpdateFailure("Apply", "no")).actions] == [do.SaveSnapshot]


def test_all_made_is_finished_and_one_missing_is_failed_with_its_reason():
    made = NodeSnapshot("s1", 1, snapshot="a")
    (finished,) = snapshots.plan(a_state(1, started(made, replace(made, machine="s2")))).actions
    assert finished == do.FinishSnapshot("a, a", 1)

    lost = NodeSnapshot("s2", 3, message="no disk", is_final=True)
    (failed,) = snapshots.plan(a_state(1, started(made, lost))).actions
    assert failed == do.FailSnapshot(
        "Machine s2: no disk; snapshots of the other members are kept; raise etcdSnapshotCreate.generation to try again",
        1,
    )


def test_a_run_without_nodes_is_failed_and_never_finished():
    assert isinstance(snapshots.plan(a_state(1, started())).actions[0], do.FailSnapshot)


def test_of_many_failed_members_three_are_named():
    failed = [NodeSnapshot(f"s{n}", 3, message="no") for n in range(5)]

    assert "; and 2 more; snapshots" in snapshots.describe_failed(failed)
    assert "more" not in snapshots.describe_failed(failed[:3])


def test_what_was_begun_is_finished_before_a_higher_generation_begins():
    plan = snapshots.plan(a_state(2, started(NodeSnapshot("s1"))))

    assert [type(action) for action in plan.actions] == [do.SaveSnapshot]


# -- the objects -----------------------------------------------------------------------------------------------------


def test_what_the_guest_lists_is_recorded_once():
    file = file_of()
    (action,) = snapshots.plan(a_state(snapshot_files=(file,))).actions
    assert isinstance(action, do.RecordSnapshots)
    assert (action.present, action.gone) == ((file,), ())

    assert snapshots.plan(a_state(snapshot_files=(file,), snapshots=(recorded(file),))).actions == []


def test_a_file_that_changed_is_recorded_anew_and_one_that_is_gone_is_forgotten():
    file, other = file_of(), recorded(file_of("other"))
    changed = replace(file, size=2048)

    (action,) = snapshots.plan(a_state(snapshot_files=(changed,), snapshots=(recorded(file), other))).actions

    assert isinstance(action, do.RecordSnapshots)
    assert (action.present, action.gone) == ((changed,), (other,))


def in_s3(name: str, *, carries: bool = True) -> SnapshotFile:
    metadata = {"metadata": {SPEC_KEY: encode_spec({"a": 1})}} if carries else {}
    return file_of(name, spec={"s3": {"bucket": "b"}, **metadata})


def restoring(phase: RestorePhase, since: datetime | None, **rest: Any) -> ClusterState:
    state = a_state(**rest)
    operations = replace(state.recorded.operations, restore=RecordedRestore(1, phase, since=since))
    cluster = replace(state.cluster, recorded=replace(state.recorded, operations=operations))
    return replace(state, cluster=cluster)


def test_what_a_file_carried_is_kept_where_the_guest_lists_it_without():
    known = (recorded(in_s3("one")),)

    assert (
        snapshots.plan(a_state(snapshots=known, snapshot_files=(in_s3("one", carries=False),))).actions == []
    )
    (record,) = snapshots.plan(
        a_state(snapshots=known, snapshot_files=(replace(in_s3("one", carries=False), size=7),))
    ).actions
    assert isinstance(record, do.RecordSnapshots)
    left_out = in_s3("one").without_metadata("too large")
    assert snapshots.plan(a_state(snapshots=known, snapshot_files=(left_out,))).actions != []


def test_a_restored_guest_has_half_an_hour_to_list_what_is_in_s3_again():
    known = (recorded(in_s3("one")), recorded(file_of("two")))
    ago = NOON - timedelta(minutes=29)

    (record,) = snapshots.plan(restoring("Finished", ago, snapshots=known)).actions
    assert isinstance(record, do.RecordSnapshots)
    assert record.gone == (known[1],)
    (wait,) = snapshots.plan(restoring("Finished", ago, snapshots=known)).waits
    assert wait.what == f"the restored cluster to list {known[0]} again"
    assert wait.until == NOON + timedelta(minutes=1)

    late = NOON - timedelta(minutes=30)
    for state in (restoring("Finished", late, snapshots=known), restoring("", None, snapshots=known)):
        (record,) = snapshots.plan(state).actions
        assert isinstance(record, do.RecordSnapshots)
        assert record.gone == known
    deleting = (recorded(in_s3("one"), is_deleting=True),)
    (record,) = snapshots.plan(restoring("Finished", ago, snapshots=deleting)).actions
    assert isinstance(record, do.RecordSnapshots)
    assert record.gone == deleting


@pytest.mark.parametrize("rest", [{"snapshot_files": None}, {"guest": silent()}])
def test_a_guest_that_does_not_say_what_there_is_leaves_every_object(rest):
    state = a_state(**{"snapshot_files": (), **rest}, snapshots=(recorded(file_of()),))

    assert snapshots.plan(state).actions == []


def test_an_object_tells_whether_the_token_of_the_cluster_opens_it():
    own = file_of(annotations={"etcd.rke2.cattle.io/snapshot-token-hash": token_hash("server")})
    other = file_of(annotations={"etcd.rke2.cattle.io/snapshot-token-hash": token_hash("another")})

    assert [find_openable(one, "server") for one in (own, other, file_of())] == ["True", "False", "Unknown"]
    assert recorded(own).openable == "True"
    assert recorded(other).openable == "False"
    assert recorded(file_of()).openable == "Unknown"


def test_the_object_has_ranchers_fields_and_goes_with_its_cluster():
    file = file_of(
        spec={"s3": {"bucket": "b", "accessKey": "no", "skipSSLVerify": True}, "metadata": {"k": "v"}},
        status={"readyToUse": False, "error": {"message": "bucket not found"}},
    )
    raw = render_snapshot(a_cluster(SERVERS, raw=RAW), file, "Unknown")

    assert raw["metadata"]["name"] == "prod-local-one-51401b6d55"
    assert raw["metadata"]["annotations"] == {UID: "cluster-uid"}
    assert raw["metadata"]["finalizers"] == [SNAPSHOT_FINALIZER]
    assert raw["metadata"]["ownerReferences"][0]["uid"] == "cluster-uid"
    assert raw["snapshotFile"]["s3"] == {"bucket": "b", "skipSSLVerify": True}
    assert (raw["snapshotFile"]["status"], raw["snapshotFile"]["message"]) == ("failed", "bucket not found")
    assert raw["status"] == {"openable": "Unknown", "storage": "s3"}
    read = read_snapshot(raw)
    assert (read.file.is_ready, read.file.error, read.has_spec) == (False, "bucket not found", True)


def test_a_long_name_is_cut_and_stays_the_names_own():
    one, other = file_of("a" * 260 + "1"), file_of("a" * 260 + "2")
    cluster = a_cluster(SERVERS, raw=RAW)

    assert len(object_name(cluster, one)) == 253
    assert object_name(cluster, one) != object_name(cluster, other)
    assert object_name(cluster, replace(one, name="x" * 236 + "..y")).startswith("prod-" + "x" * 236 + "-")


def test_no_guest_can_name_a_file_so_that_its_object_is_that_of_another_cluster():
    a, ab = (replace(a_cluster(SERVERS, raw=RAW), name=name, uid=name) for name in ("a", "a-b"))

    assert object_name(a, replace(file_of(), name="b-x")) != object_name(ab, replace(file_of(), name="x"))
    # Nor of an earlier one of its own name.
    assert object_name(a, file_of()) != object_name(replace(a, uid="earlier"), file_of())


def failing(name: str, **rest: Any) -> dict[str, Any]:
    state = a_state()
    failure = SnapshotFailure("refused", 1, NOON + timedelta(seconds=30))
    operations = replace(state.recorded.operations, failures={name: failure}, **rest)
    return {"recorded": replace(state.recorded, operations=operations)}


def test_what_was_refused_is_tried_again_when_it_is_due_and_nothing_else_waits_for_it():
    one, two = file_of(), file_of("two")
    held = recorded(file_of("three"), is_deleting=True)
    for name in (object_name(a_cluster(SERVERS, raw=RAW), one), held.name):
        state = a_state(snapshot_files=(one, two, file_of("three")), snapshots=(held,))
        state = replace(state, cluster=replace(state.cluster, **failing(name)))
        early, late = snapshots.plan(state), snapshots.plan(replace(state, now=NOON + timedelta(seconds=30)))
        files = {
            file.name for one in early.actions if isinstance(one, do.RecordSnapshots) for file in one.present
        }
        deleted = [one.snapshot.name for one in early.actions if isinstance(one, do.DeleteSnapshot)]
        assert files == ({"local-one", "local-two"} if name == held.name else {"local-two"})
        assert deleted == ([] if name == held.name else [held.name])
        assert [(wait.what, wait.until) for wait in early.waits] == [
            (f"another try of what is to be done about {name} (refused)", NOON + timedelta(seconds=30))
        ]
        assert late.waits == []
        assert len(late.actions) == 2


def test_a_failure_of_what_is_there_no_more_is_forgotten():
    state = a_state()
    state = replace(state, cluster=replace(state.cluster, **failing("prod-x")))
    (action,) = snapshots.plan(state).actions
    assert isinstance(action, do.RecordSnapshots)
    assert action.forgotten == ("prod-x",)
    kept = replace(state, cluster=replace(state.cluster, **failing(snapshots.METADATA)))
    assert snapshots.plan(kept).actions == []


def test_what_the_guest_refused_to_be_given_is_not_sent_before_it_is_due():
    state = a_state(digest="")
    refused = replace(state, cluster=replace(state.cluster, **failing(snapshots.METADATA)))
    failures = refused.recorded.operations.failures
    operations = replace(state.recorded.operations, failures=failures)
    recorded_status = replace(state.recorded, operations=operations)
    waiting = replace(state, cluster=replace(state.cluster, recorded=recorded_status))
    assert snapshots.plan(waiting).actions == []
    assert len(snapshots.plan(replace(waiting, now=NOON + timedelta(seconds=30))).actions) == 1


def test_the_same_spec_gives_the_same_text_at_any_time(monkeypatch):
    first = encode_spec({"a": 1})
    monkeypatch.setattr("time.time", lambda: 1_999_999_999.0)
    assert encode_spec({"a": 1}) == first


def test_a_credential_is_found_wherever_it_stands_in_a_long_text():
    for at in range(0, 30_000, 2_500):
        text = "x" * at + " https://user:s3cr3t@host/ " + "y" * 30_000
        assert "s3cr3t" not in str(carried_spec({"rkeConfig": {"chartValues": {"notes": text}}})), at


def test_while_very_many_are_refused_nothing_else_is_tried():
    state = a_state(snapshot_files=tuple(file_of(f"f{n}") for n in range(51)))
    due = NOON + timedelta(seconds=30)
    names = [object_name(state.cluster, file) for file in state.snapshot_files or ()]
    failures = {name: SnapshotFailure("refused", 1, due) for name in names[:50]}
    recorded_status = replace(
        state.recorded, operations=replace(state.recorded.operations, failures=failures)
    )
    plan = snapshots.plan(replace(state, cluster=replace(state.cluster, recorded=recorded_status)))
    assert plan.actions == []


def test_what_a_guest_says_in_another_type_is_left_out():
    odd = file_of(
        spec={"s3": {"bucket": ["b"], "endpoint": {"a": 1}, "region": "eu", "skipSSLVerify": "yes"}}
    )
    assert odd.s3 == {"region": "eu"}
    assert file_of(spec={"s3": {"bucket": "b", "folder": "", "skipSSLVerify": False}}).s3 == {"bucket": "b"}
    assert [file_of().is_deleting, file_of(deletionTimestamp="2026-01-01T11:00:00Z").is_deleting] == [
        False,
        True,
    ]
    assert read_snapshot_file({**a_file("one"), "status": "nonsense"}) is not None
    assert read_snapshot_file({**a_file("one"), "spec": "nonsense"}) is None
    assert len(file_of(spec={"s3": {"bucket": "b" * 5000}}).s3["bucket"]) == 1024


SECRET_SPEC = {
    "kubernetesVersion": "v1",
    "agentEnvVars": [
        {"name": "HTTPS_PROXY", "value": "http://user:s3cr3t@proxy:3128"},
        {"name": "NO_PROXY", "value": "10.0.0.0/8"},
        {"name": "MY_TOKEN", "value": "s3cr3t"},
    ],
    "rkeConfig": {
        "etcdSnapshotCreate": {"generation": 1},
        "additionalManifest": "x" * 20_000 + "\npassword: s3cr3t",
        "chartValues": {"a": {"password": "s3cr3t", "b": 1}, "tokens": ["s3cr3t"]},
        "machineGlobalConfig": {
            "etcd-s3-secret-key": "s3cr3t",
            "cni": "calico",
            "kubelet-arg": ["--token=s3cr3t", "v=2"],
        },
        "machineSelectorConfig": [
            {"config": {"cloud-provider-config": "secret://ns:name", "agent-token": "s3cr3t"}}
        ],
        "machineSelectorFiles": [{"fileSources": [{"secret": {"name": "mine"}}]}],
        "registries": {"configs": {"r": {"authConfigSecretName": "auth"}}},
    },
}


def test_snapshots_carry_no_credentials_and_names_of_secrets():
    carried = carried_spec(SECRET_SPEC)

    assert "s3cr3t" not in str(carried)
    assert carried["agentEnvVars"] == [{"name": "NO_PROXY", "value": "10.0.0.0/8"}]
    assert carried["rkeConfig"] == {
        "chartValues": {"a": {"b": 1}},
        "machineGlobalConfig": {"cni": "calico", "kubelet-arg": ["v=2"]},
        "machineSelectorConfig": [{"config": {"cloud-provider-config": "secret://ns:name"}}],
        "machineSelectorFiles": [{"fileSources": [{"secret": {"name": "mine"}}]}],
        "registries": {"configs": {"r": {"authConfigSecretName": "auth"}}},
    }
    assert carried_spec(carried) == carried


def test_a_restored_spec_keeps_the_credentials_of_now():
    then, now = carried_spec(SECRET_SPEC)["rkeConfig"], SECRET_SPEC["rkeConfig"]
    changed = {**now, "chartValues": {"a": {"password": "n3w", "b": 2}}, "extra": 1}

    kept = with_credentials(then, changed)

    assert kept["chartValues"] == {"a": {"password": "n3w", "b": 1}}
    assert kept["machineGlobalConfig"] == now["machineGlobalConfig"]
    assert kept["machineSelectorConfig"] == now["machineSelectorConfig"]
    assert "extra" not in kept


def test_no_more_than_the_newest_are_recorded():
    old = file_of("old", status={"creationTime": "2025-01-01T00:00:00Z"})
    dateless = replace(file_of("dateless"), created=None)
    many = tuple(file_of(f"f{n:04}") for n in range(MAX_RECORDED))

    kept = snapshots.select_recorded((old, dateless, *many))

    assert sorted(one.name for one in kept) == [one.name for one in many]
    assert snapshots.select_recorded((old,)) == (old,)


def test_too_much_metadata_and_what_names_no_file_is_left_out():
    large = file_of(spec={"metadata": {"k": "x" * (512 * 1024)}})
    assert large.metadata == {}
    assert large.left_out == "metadata of 524289 characters is more than the 131072 that are kept"
    raw = render_snapshot(a_cluster(SERVERS, raw=RAW), large, "True")
    assert (raw["status"]["metadataLeftOut"], raw["snapshotFile"].get("metadata")) == (large.left_out, None)
    assert file_of(spec={"metadata": {"k": "x" * (128 * 1024 - 1)}}).metadata
    assert file_of(spec={"metadata": {"k": "x" * (128 * 1024)}}).metadata == {}
    assert read_snapshot_file({"metadata": {"name": "x"}, "spec": {}}) is None
    assert read_snapshot_file(a_file("x" * 1025)) is None
    assert file_of(status={"size": "12Gi"}).size == 0


def test_the_guest_is_given_the_spec_when_it_changed():
    (action,) = snapshots.plan(a_state(digest="")).actions
    assert action == do.WriteSnapshotMetadata("etcd snapshots carry the spec of their Cluster", DIGEST)
    assert snapshots.plan(a_state(digest="", snapshot_files=None)).actions == []


def test_a_snapshot_carries_the_spec_without_what_is_done_once():
    spec = {"kubernetesVersion": "v1", "rkeConfig": {"etcdSnapshotRestore": {"name": "x"}, "chartValues": {}}}
    file = file_of(spec={"metadata": {"provisioning-cluster-spec": encode_spec(carried_spec(spec))}})
    metadata = render_snapshot(a_cluster(SERVERS, raw=RAW), file, "True")["snapshotFile"]["metadata"]

    assert decode_spec(metadata) == {"kubernetesVersion": "v1", "rkeConfig": {"chartValues": {}}}
    same = {"rkeConfig": {"chartValues": {}}, "kubernetesVersion": "v1"}
    assert spec_digest(carried_spec(spec)) == spec_digest(same) != spec_digest(spec)


@pytest.mark.parametrize(
    "text", ["", "no base64", "e30=", "W10=", "eyJwcm92aXNpb25pbmctY2x1c3Rlci1zcGVjIjoiQUFBQSJ9"]
)
def test_what_carries_no_spec_that_can_be_read_says_so(text):
    with pytest.raises(NoClusterSpec):
        decode_spec(text)


def test_the_guest_is_told_of_s3_when_that_changed():
    state = replace(a_state(), s3_digest="d1")
    (action,) = snapshots.plan(state).actions
    assert isinstance(action, do.WriteS3Secret)
    assert action.digest == "d1"
    told = replace(state.recorded.operations, s3_digest="d1")
    recorded_status = replace(state.recorded, operations=told)
    assert (
        snapshots.plan(replace(state, cluster=replace(state.cluster, recorded=recorded_status))).actions == []
    )


def test_what_a_guest_is_to_know_of_s3_changes_with_the_spec_and_with_the_secret():
    keys = {"s3credentialConfig-secretKey": "k"}
    held = {SECRET.ref("cc-s3", "fleet-default"): SecretData("fleet-default", "cc-s3", data=keys)}
    other = {SECRET.ref("cc-s3", "fleet-default"): SecretData("fleet-default", "cc-s3")}
    s3 = {"bucket": "b", "cloudCredentialName": "cc-s3"}

    def digest(s3: Any, secrets: Any) -> str:
        return find_s3_digest(a_cluster(SERVERS, etcd={"s3": s3}), secrets.get)

    found = {digest(s3, held), digest(s3, other), digest(s3, {}), digest({**s3, "folder": "f"}, held)}
    assert len(found) == 3  # of a Secret that is empty as much is known as of none
    assert digest(s3, held) == digest(dict(s3), held)
    assert digest({"cloudCredentialName": "cc-s3"}, held) == digest(None, held) == ""
    assert digest({"bucket": "b"}, held)


# -- deletion --------------------------------------------------------------------------------------------------------


def test_the_file_of_a_deleted_object_is_deleted_by_the_server_that_has_it():
    file = file_of(node="s2")
    file = replace(file, node="s2")
    gone = recorded(file, is_deleting=True)

    (action,) = snapshots.plan(a_state(snapshot_files=(file,), snapshots=(gone,))).actions

    assert action == do.DeleteSnapshot("its object is deleted", gone, "s2")


def test_one_in_s3_is_deleted_by_any_and_one_on_a_disk_waits_for_its_node():
    in_s3 = replace(file_of(spec={"s3": {"bucket": "b"}}), node="gone")
    gone = recorded(in_s3, is_deleting=True)
    (action,) = snapshots.plan(a_state(snapshot_files=(in_s3,), snapshots=(gone,))).actions
    assert isinstance(action, do.DeleteSnapshot)
    assert action.machine == "s1"

    local = replace(file_of(), node="s1")
    held = recorded(local, is_deleting=True)
    servers = some("s", 3, SERVERS)
    state = a_state(snapshot_files=(local,), snapshots=(held,), machines=[unready(servers[0]), *servers[1:]])
    plan = snapshots.plan(state)
    assert plan.actions == []
    assert "Node s1 to be Ready" in plan.waits[0].what


def test_an_object_whose_file_is_gone_goes_too():
    held = recorded(file_of(), is_deleting=True)

    (action,) = snapshots.plan(a_state(snapshots=(held,))).actions

    assert isinstance(action, do.RecordSnapshots)
    assert action.gone == (held,)


def test_the_objects_of_a_deleted_cluster_are_let_go_and_what_stays_in_s3_is_said():
    local, in_s3 = recorded(file_of()), recorded(file_of("two", spec={"s3": {"bucket": "backups"}}))
    state = a_state(snapshots=(local, in_s3, replace(local, has_finalizer=False)))

    (action,) = snapshots.plan_deletion(state).actions

    assert isinstance(action, do.KeepSnapshots)
    assert (action.reason, action.snapshots) == ("KeepSnapshots", (local, in_s3))
    assert action.because == (
        "the Cluster is deleted; 1 snapshots stay in bucket backups, which nothing deletes, and only the server token of the "
        "Cluster opens them, which is deleted too"
    )
    (quiet,) = snapshots.plan_deletion(a_state(snapshots=(local,))).actions
    assert quiet.because == "the Cluster is deleted, and the snapshots on its disks with its machines"
    assert quiet.done == ""
    assert not isinstance(quiet, do.KeepSnapshots)
    assert snapshots.plan_deletion(a_state()).actions == []


# -- what is asked for, and what is recorded -------------------------------------------------------------------------


def reading(generation: object, done: int) -> tuple[Operations, list[str]]:
    problems = ProblemCollector()
    rke = Fields({"etcdSnapshotCreate": {"generation": generation}}, "spec.rkeConfig", problems)
    operations = read_operations(rke, RecordedOperations(RecordedSnapshot(done)))
    return operations, [str(problem) for problem in problems.found]


def test_a_generation_that_was_lowered_does_nothing_and_says_so():
    operations, problems = reading(2, 3)

    assert operations.snapshot_create == 3
    assert problems == [
        "spec.rkeConfig.etcdSnapshotCreate.generation is 2, and 3 was carried out before: nothing is done; write 4 to have it "
        "done once more"
    ]
    assert reading(3, 3) == (Operations(3), [])
    assert reading(0, 3) == (Operations(0), [])
    assert reading("x", 3)[0] == Operations(0)


def test_a_status_of_another_writer_reads_as_nothing_recorded():
    odd = {"etcdSnapshotCreate": "x", "etcdSnapshotCreatePhase": "Dancing", "etcdSnapshotCreateRun": [1]}

    assert read_recorded_operations(odd) == RecordedOperations()
    assert read_recorded_operations({}) == RecordedOperations()
    digests = {"etcdSnapshotMetadata": {"digest": "spec"}, "etcdSnapshotS3": {"digest": "s3"}}
    assert read_recorded_operations(digests) == RecordedOperations(spec_digest="spec", s3_digest="s3")
    nodes = {"s1": {"tries": -1, "snapshot": "a", "final": "yes"}, "s2": 3}
    read = read_recorded_operations({"etcdSnapshotCreateRun": {"name": "n", "nodes": nodes}})
    assert read.snapshot == RecordedSnapshot(0, "", "n", (NodeSnapshot("s1", snapshot="a"),))


def test_what_a_member_has_answered_is_read_as_it_was_recorded():
    nodes = {
        "s1": {"tries": 2, "message": "no space", "retryAt": "2026-01-01T12:00:00Z"},
        "s2": {"tries": 1, "message": "refused", "final": True},
        "s3": {"tries": 1, "snapshot": "one"},
    }
    read = read_recorded_operations({"etcdSnapshotCreateRun": {"nodes": nodes}})
    assert read.snapshot.nodes == (
        NodeSnapshot("s1", 2, message="no space", retry_at=NOON),
        NodeSnapshot("s2", 1, message="refused", is_final=True),
        NodeSnapshot("s3", 1, snapshot="one"),
    )


def test_a_guest_that_is_not_reachable_keeps_a_run_going():
    """Its members may answer while its API does not: a member that is asked says so itself."""
    plan = snapshots.plan(a_state(1, started(NodeSnapshot("s1")), guest=GuestState("unreachable")))

    assert len(plan.actions) == 1


def too_many(files: int | None, **rest: Any) -> list[Condition]:
    listed = None if files is None else tuple(file_of(f"f{n:04}") for n in range(files))
    found = operation_conditions(a_state(snapshot_files=listed, **rest))
    return [one for one in found if one.type == "SnapshotsRecorded"]


@pytest.mark.parametrize(
    ("files", "words"),
    [(500, ""), (501, "lists 501 etcd snapshots, and"), (2000, "lists 2000 etcd snapshots or more, and")],
)
def test_that_not_all_snapshots_are_recorded_is_told(files: int, words: str) -> None:
    found = too_many(files)
    assert bool(found) is bool(words)
    assert all(words in one.message and one.status == "False" for one in found)


def test_it_is_told_as_before_while_the_guest_does_not_answer() -> None:
    state = a_state(snapshot_files=None)
    before = {"type": "SnapshotsRecorded", "status": "False", "reason": "TooMany", "message": "m"}
    recorded = replace(state.cluster.recorded, raw={"conditions": [before]})
    state = replace(state, cluster=replace(state.cluster, recorded=recorded))
    (found,) = operation_conditions(state)
    assert (found.status, found.reason, found.message) == ("False", "TooMany", "m")
    assert too_many(None) == []


def test_a_snapshot_carries_the_newest_release_that_runs_and_not_the_one_that_is_asked_for():
    asked = {**RAW, "spec": {"kubernetesVersion": "v1.36.0+rke2r1", "paused": True}}
    state = a_state(machines=some("s", 2, SERVERS))
    before = replace(state, cluster=replace(state.cluster, raw=asked))
    assert snapshots.spec_of_snapshots(before) == {"kubernetesVersion": "v1.35.1+rke2r1", "paused": True}

    one, other = state.machines
    during = replace(before, machines=(record_of(one, version="v1.36.0+rke2r1"), other))
    assert snapshots.spec_of_snapshots(during)["kubernetesVersion"] == "v1.36.0+rke2r1"


def test_the_refusal_of_a_lower_version_names_the_snapshot_in_s3_of_before_the_upgrade():
    def made_with(version: str) -> ETCDSnapshot:
        carried = {SPEC_KEY: encode_spec({"kubernetesVersion": version})}
        file = file_of(spec={"s3": {"bucket": "backups"}, "metadata": carried})
        return replace(read_snapshot(render_snapshot(a_state().cluster, file, "True")), openable="True")

    kept = made_with("v1.34.8+rke2r1")
    file = kept.file
    refusal = Problem("lower", "set it to v1.35.1", "spec.kubernetesVersion")

    def way_back(wanted: str = "v1.34.9+rke2r1", *known: ETCDSnapshot, name: str = file.snapshot) -> str:
        state = a_state(machines=[])
        raw = {"upgradeSnapshot": {"version": "v1.35.1+rke2r1", "name": name}}
        recorded = replace(state.recorded, raw=raw)
        cluster = replace(state.cluster, recorded=recorded, version=wanted)
        return name_way_back(refusal, replace(state, cluster=cluster, snapshots=known)).hint

    assert way_back("v1.34.9+rke2r1", kept) == (
        "set it to v1.35.1; that of before the upgrade to v1.35.1+rke2r1, made with v1.34.8+rke2r1: windrow restore fleet-default/prod "
        f"{kept.name} --config kubernetesVersion"
    )
    another = replace(kept, name="another", file=replace(kept.file, snapshot="another"))
    assert f"fleet-default/prod {kept.name} --config" in way_back("v1.34.9+rke2r1", another, kept)
    assert way_back("v1.34.9+rke2r1", another) == refusal.hint
    on_disk = replace(kept, file=replace(kept.file, s3=None))
    for known in ((), (on_disk,), (replace(kept, openable="False"),)):
        assert way_back("v1.34.9+rke2r1", *known) == refusal.hint
    assert way_back("v1.36.0+rke2r1", kept) == refusal.hint
    assert way_back("v1.34.9+rke2r1", kept, name="") == refusal.hint
    assert kept.name in way_back("v1.34.8+rke2r1", kept)
    for other in ("v1.35.0+rke2r1", "v1.34.10+rke2r1", "v1.33.9+rke2r1", "", "banana"):
        assert way_back("v1.34.9+rke2r1", made_with(other)) == refusal.hint, f"it leads to {other!r}"
    assert way_back("v1.34.9+rke2r1", replace(kept, metadata="")) == refusal.hint
