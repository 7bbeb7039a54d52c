"""A new Cluster that begins with a snapshot of another: what is asked for, and when nothing else is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_machine, a_pool, look, some

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
from windrow.clusters.api.operations.snapshot import SnapshotFile
from windrow.clusters.api.operations.source import (
    RecordedSource,
    RestoreSource,
    is_same_place,
    without_foreign_place,
    without_s3_keys,
)
from windrow.clusters.bootstrap_data import find_restore
from windrow.clusters.plan.operations import actions as do
from windrow.clusters.plan.operations import new_cluster, restore
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import ClusterState, GuestState
from windrow.core.clock import format_time

SERVERS, WORKERS = a_pool("servers", 1, SERVER), a_pool("workers", 2)
PLACE = {"bucket": "backups", "folder": "orchard", "cloudCredentialName": "cc-s3"}
SOURCE = RestoreSource("orchard", "orchard-windrow-secrets", PLACE)
REQUEST = RestoreRequest("one", 1, source=SOURCE)
BEGUN = RecordedSource("orchard", "orchard-windrow-secrets", PLACE)
FIELD = "spec.rkeConfig.etcdSnapshotRestore"


def reading(done: int = 0, **said: Any) -> tuple[RestoreRequest | None, list[str]]:
    """What is read of `etcdSnapshotRestore`, and the fields that have errors."""
    problems = ProblemCollector()
    recorded = RecordedOperations(restore=RecordedRestore(done))
    fields = Fields({"etcdSnapshotRestore": said}, "spec.rkeConfig", problems)
    found = read_operations(fields, recorded).restore
    return found, [one.field.removeprefix(f"{FIELD}.") for one in problems.found if one.severity == "error"]


def of(**changed: Any) -> dict[str, Any]:
    return {"clusterName": "orchard", "s3": PLACE, **changed}


def test_the_secret_is_that_of_the_original_unless_another_is_named():
    assert reading(name="one", generation=1, **{"from": of()}) == (REQUEST, [])
    named, _ = reading(name="one", generation=1, **{"from": of(secretName="kept")})
    assert named == replace(REQUEST, source=replace(SOURCE, secret="kept"))
    unverified, _ = reading(name="one", generation=1, **{"from": of(s3={**PLACE, "skipSSLVerify": True})})
    assert unverified is not None
    assert unverified.source == replace(SOURCE, s3={**PLACE, "skipSSLVerify": True})


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": "one", "from": of()}, "generation"),
        ({"name": "../one", "generation": 1, "from": of()}, "name"),
        ({"name": "a" * 254, "generation": 1, "from": of()}, "name"),
        ({"generation": 1, "from": of()}, "name"),
        (
            {"name": "one", "generation": 1, "from": of(clusterName="O!", secretName="kept")},
            "from.clusterName",
        ),
        ({"name": "one", "generation": 1, "from": of(secretName="K!")}, "from.secretName"),
        (
            {"name": "one", "generation": 1, "from": of(s3={**PLACE, "endpointCA": "a" * 32769})},
            "from.s3.endpointCA",
        ),
        (
            {"name": "one", "generation": 1, "from": of(s3={"bucket": "b"})},
            "from.s3.cloudCredentialName",
        ),
        ({"name": "one", "generation": 1, "from": of(), "clusterResetMember": "s1"}, "clusterResetMember"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_so_that_no_empty_cluster_begins(
    said: dict[str, Any], field: str
):
    found, errors = reading(**said)
    assert errors == [field]
    assert found is None or (found.member == "" and field == "clusterResetMember")


def test_without_the_name_of_the_original_there_is_no_secret_either():
    assert reading(name="one", generation=1, **{"from": {"s3": PLACE}}) == (
        None,
        ["from.clusterName", "from.secretName"],
    )


def test_what_was_carried_out_is_not_checked_again():
    found, errors = reading(1, name="../one", generation=1, **{"from": {}})
    assert errors == []
    assert found is not None
    assert found.source is not None


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"bucket": "b", "folder": "f"}, {"bucket": "b", "folder": "/f/"}, True),
        ({"bucket": "b", "folder": "f"}, {"bucket": "c", "folder": "f"}, False),
        ({"bucket": "b", "folder": "f"}, {"bucket": "b", "folder": "g"}, False),
        ({"bucket": "b"}, {"bucket": "b", "folder": "g"}, False),
        (
            {"bucket": "b", "endpoint": "S3.example.org.:443"},
            {"bucket": "b", "endpoint": "s3.example.org"},
            True,
        ),
        ({"bucket": "b", "folder": "F"}, {"bucket": "b", "folder": "f"}, False),  # a key of S3 has its case
        ({"bucket": "b", "folder": "a/../f/."}, {"bucket": "b", "folder": "./f"}, True),
        ({"folder": "f"}, {"bucket": "b", "folder": "f"}, True),
        ({"bucket": "b", "endpoint": "https://s3:9000/"}, {"bucket": "b", "endpoint": "s3:9000"}, True),
        ({"bucket": "b", "endpoint": "http://s3"}, {"bucket": "b", "endpoint": "s4"}, False),
    ],
)
def test_two_settings_name_one_folder(one: dict[str, str], other: dict[str, str], is_same: bool):
    assert is_same_place(one, other) is is_same
    assert is_same_place(other, one) is is_same


@pytest.mark.parametrize(
    ("source", "s3", "kept", "warnings"),
    [
        (None, PLACE, True, 0),
        (BEGUN, {**PLACE, "folder": "copy"}, False, 0),
        (replace(BEGUN, separated=NOON), {**PLACE, "folder": "copy"}, True, 0),
        (BEGUN, PLACE, False, 1),
        (replace(BEGUN, separated=NOON), PLACE, False, 1),
    ],
)
def test_a_copy_has_no_s3_before_it_is_separated_and_never_that_of_the_original(
    source: RecordedSource | None, s3: dict[str, str], kept: bool, warnings: int
):
    problems = ProblemCollector()
    etcd = without_foreign_place({"s3": s3, "a": 1}, source, Fields({}, "spec.rkeConfig", problems))
    assert etcd == ({"s3": s3, "a": 1} if kept else {"a": 1})
    assert [(one.field, one.severity) for one in problems.found] == [
        ("spec.rkeConfig.etcd.s3", "warning")
    ] * warnings


@pytest.mark.parametrize(
    ("source", "given"), [(None, True), (BEGUN, False), (replace(BEGUN, separated=NOON), False)]
)
def test_a_copy_is_not_given_keys_that_name_s3_past_the_field_that_is_compared(
    source: RecordedSource | None, given: bool
):
    config, selector = {"etcd-s3-folder": "orchard", "a": 1}, {"config": {"etcd-s3": True, "b": 2}, "x": 1}
    problems = ProblemCollector()

    found = without_s3_keys((config, (selector,)), source, Fields({}, "spec.rkeConfig", problems))

    assert found == ((config, (selector,)) if given else ({"a": 1}, ({"config": {"b": 2}, "x": 1},)))
    assert ["etcd-s3, etcd-s3-folder" in one.message for one in problems.found] == ([] if given else [True])


def test_what_is_recorded_is_read_back():
    said = {
        "clusterName": "orchard",
        "secretName": "orchard-windrow-secrets",
        "s3": PLACE,
        "guestUID": "g",
        "clean": True,
        "separated": format_time(NOON),
    }
    expected = replace(BEGUN, guest_uid="g", is_clean=True, separated=NOON)
    assert read_recorded_operations({"restoredFrom": said}).source == expected
    assert read_recorded_operations({"restoredFrom": {"clusterName": "orchard"}}).source == RecordedSource(
        "orchard"
    )
    assert read_recorded_operations({"restoredFrom": "orchard"}).source is None


# -- the plan ----------------------------------------------------------------------------------------------------


def a_state(
    phase: RestorePhase = "",
    source: RecordedSource | None = None,
    request: RestoreRequest | None = REQUEST,
    *,
    initialized: bool = False,
    **rest: Any,
) -> ClusterState:
    run = RecordedRestore(1 if phase else 0, phase, "one", id="1-7", file="one", **rest.pop("run", {}))
    cluster = a_cluster(SERVERS, WORKERS, operations=Operations(restore=request))
    operations = RecordedOperations(restore=run, source=source)
    status = replace(
        cluster.recorded, operations=operations, initialized=initialized, **rest.pop("status", {})
    )
    machines = rest.pop("machines", [])
    return look(replace(cluster, recorded=status), machines, **rest)


def test_a_new_cluster_begins_with_nothing_else():
    state = a_state()
    assert restore.is_exclusive(state)
    assert list(plan_cluster(state).actions) == [
        do.BeginRestore("etcdSnapshotRestore.generation is 1", REQUEST, ())
    ]


def test_one_that_was_refused_waits_and_makes_nothing():
    plan = plan_cluster(a_state("Failed", run={"message": "no"}))
    assert plan.actions == ()
    assert [one.what for one in plan.waits] == [f"a higher {FIELD}.generation (no)"]


def test_without_from_a_refused_one_begins_as_any_other():
    assert not restore.is_exclusive(a_state("Failed", request=None))
    assert not restore.is_exclusive(a_state("", request=None))


@pytest.mark.parametrize(
    ("phase", "initialized", "is_exclusive"),
    [
        ("Restore", False, False),
        ("Restore", True, True),
        ("PostRestorePodCleanup", True, True),
        ("RestartCluster", True, False),
        ("Finished", True, False),
    ],
)
def test_nothing_else_is_done_from_the_first_answer_of_the_api_until_the_copy_is_separated(
    phase: RestorePhase, initialized: bool, is_exclusive: bool
):
    assert restore.is_exclusive(a_state(phase, BEGUN, initialized=initialized)) is is_exclusive
    assert not restore.is_exclusive(a_state(phase, replace(BEGUN, separated=NOON), initialized=initialized))


def test_only_the_first_server_is_made_before():
    plan = plan_cluster(a_state("Restore", BEGUN))
    assert {getattr(one, "pool", "servers") for one in plan.actions} == {"servers"}
    assert new_cluster.holds_pools(a_state("Restore", BEGUN))
    assert not new_cluster.holds_pools(a_state("Restore", replace(BEGUN, separated=NOON)))
    assert not new_cluster.holds_pools(a_state("Restore", None))


def separating(source: RecordedSource = BEGUN, **rest: Any) -> ClusterState:
    servers = some("s", 1, SERVERS)
    elected = {"init_server_name": servers[0].name, "init_server_uid": servers[0].record.uid}
    rest.setdefault("status", elected)
    return a_state("PostRestorePodCleanup", source, initialized=True, machines=servers, **rest)


def test_the_copy_is_separated_once_its_api_answers():
    state = separating()
    assert list(restore.plan(state).actions) == [
        do.SeparateCopy("its etcd is that of Cluster orchard in snapshot one", state.machines[0].node_name)
    ]
    silent = replace(state, guest=GuestState("unreachable", "it is gone"))
    assert [one.what for one in restore.plan(silent).waits] == [
        f"the guest API to answer, which only Machine s1 has (a higher {FIELD}.generation begins anew without it)"
    ]
    assert restore.plan(silent).actions == []


def test_what_is_not_done_yet_is_looked_at_again_after_some_seconds():
    told = {"message": "Node s1 to register", "since": NOON}
    state = separating(run=told)
    now, due = state.now, state.now + timedelta(seconds=5)
    waiting = separating(run={**told, "since": now})
    assert [(one.what, one.until) for one in restore.plan(waiting).waits] == [("Node s1 to register", due)]
    later = separating(run={**told, "since": now - timedelta(seconds=5)})
    assert [type(one) for one in restore.plan(later).actions] == [do.SeparateCopy]


def test_a_clean_copy_is_released():
    found = restore.plan(separating(replace(BEGUN, is_clean=True))).actions
    assert [type(one) for one in found] == [do.ReleaseCopy]


@pytest.mark.parametrize(
    ("created", "separated", "is_refused"),
    [
        (NOON, NOON, True),
        (NOON + timedelta(minutes=2), NOON, True),
        (NOON + timedelta(minutes=2, seconds=1), NOON, False),
        (None, NOON, True),
        (NOON, None, True),
    ],
)
def test_a_snapshot_of_before_the_separation_is_not_restored(created: Any, separated: Any, is_refused: bool):
    state = a_state("Finished", replace(BEGUN, separated=separated), initialized=True)
    file = SnapshotFile("one", "one", "s1", created=created)
    assert (new_cluster.check_separated(file, "ETCDSnapshot a/one", state) is not None) is is_refused
    assert new_cluster.check_separated(file, "ETCDSnapshot a/one", a_state("Finished")) is None


def test_the_first_server_restores_the_file_of_the_original():
    machine = replace(a_machine("s1", SERVERS).record, is_init_server=True)
    found = find_restore(machine, a_state("Restore", BEGUN).cluster)
    assert found is not None
    assert found.snapshot == "one"
