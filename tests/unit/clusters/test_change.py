"""The plan of changes: what of each machine is not as its Cluster asks, what that means for it, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    ALL_ROLES,
    NOON,
    OPTIONS,
    SERVER,
    WORKER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    minutes,
    record_of,
)

from windrow.app.manifest_checks.changes import OPTION_RULES
from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS
from windrow.clusters.api.updates.strategy import DrainOptions, UpgradeStrategy
from windrow.clusters.change.compare import compare_fields
from windrow.clusters.change.fields import CHANGES
from windrow.clusters.change.pending import MachineChange, PendingChanges, pending_changes
from windrow.clusters.change.revisions import list_fields, render_revision
from windrow.clusters.plan.planner import Plan
from windrow.clusters.state import ClusterState, MachineState
from windrow.clusters.status import derive_cluster
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 1, SERVER)
WORKERS = a_pool("workers", 2)
RUNNING = "v1.35.1+rke2r1"


def made(name: str, pool: Pool, **rest: Any) -> MachineState:
    """A machine that this release has made: everything of its pool is recorded."""
    rest = {"config_hash": f"old-{pool.name}", "labels": pool.labels, "taints": pool.taints, **rest}
    return record_of(a_machine(name, pool), **rest)


def changed(
    before: Cluster, after: Cluster, machines: list[MachineState] | None = None, **rest: Any
) -> ClusterState:
    """A cluster whose machines were made as `before` asks, and that asks for `after` now."""
    revisions = {f"old-{pool.name}": render_revision(list_fields(before, pool)) for pool in before.pools}
    recorded = replace(after.recorded, revisions={**after.recorded.revisions, **revisions})
    if machines is None:
        machines = [
            made(f"{pool.name[0]}{number}", pool, created=NOON - minutes(60 - number))
            for pool in before.pools
            for number in range(1, pool.quantity + 1)
        ]
    hashes = {
        pool.name: f"old-{pool.name}" if _is_same(before, after, pool) else f"new-{pool.name}"
        for pool in after.pools
    }
    rest.setdefault("config_hashes", hashes)
    return look(
        replace(after, recorded=recorded), machines, option_rules=OPTION_RULES, reserved=False, **rest
    )


def _is_same(before: Cluster, after: Cluster, pool: Pool) -> bool:
    return list_fields(before, pool) == list_fields(after, pool)


def told(pending: PendingChanges) -> list[tuple[str, str, list[str]]]:
    return [(one.machine, one.change, [field.path for field in one.fields]) for one in pending.machines]


def test_of_a_cluster_that_is_as_asked_nothing_is_pending():
    cluster = a_cluster(SERVERS, WORKERS, global_config={"cni": "cilium"}, chart_values={"a": {"b": 1}})

    assert pending_changes(changed(cluster, cluster)).is_empty


def test_a_version_restarts_the_service_of_every_machine_servers_first():
    before = a_cluster(SERVERS, WORKERS)
    after = replace(before, version="v1.35.2+rke2r1")

    pending = pending_changes(changed(before, after, wanted_hashes={"servers": "ns", "workers": "nw"}))

    assert [
        (one.machine, one.order, one.change, one.version, one.config_hash) for one in pending.machines
    ] == [
        ("s1", 1, "service restart", "v1.35.2+rke2r1", "ns"),
        ("w1", 2, "service restart", "v1.35.2+rke2r1", "nw"),
        ("w2", 3, "service restart", "v1.35.2+rke2r1", "nw"),
    ]
    (field,) = pending.machines[0].fields
    assert (field.path, field.old, field.new) == ("spec.kubernetesVersion", RUNNING, "v1.35.2+rke2r1")


def test_the_server_that_machines_join_through_has_its_turn_last_of_the_first():
    pools = [
        a_pool("both", 2, SERVER),
        a_pool("control", 1, frozenset({Role.CONTROL_PLANE})),
        a_pool("etcd", 1, frozenset({Role.ETCD})),
        a_pool("workers", 1),
    ]
    before = a_cluster(*pools)

    pending = pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1")))

    assert [one.machine for one in pending.machines] == ["b2", "b1", "c1", "e1", "w1"]


def test_the_only_api_server_says_that_the_api_is_away_meanwhile():
    one = a_cluster(a_pool("all", 1, ALL_ROLES))
    three = a_cluster(a_pool("all", 3, ALL_ROLES))

    def disrupts(before):
        return (
            pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1"))).machines[0].disrupts
        )

    assert "the API of the cluster is away" in disrupts(one)
    assert "the API of the cluster is away" not in disrupts(three)


def test_a_key_of_servers_restarts_no_worker():
    before = a_cluster(SERVERS, WORKERS, global_config={"kube-apiserver-arg": ["v=2"], "selinux": False})
    arg = replace(before, global_config={"kube-apiserver-arg": ["v=4"], "selinux": False})
    both = replace(before, global_config={"kube-apiserver-arg": ["v=4"], "selinux": True})
    key = "spec.rkeConfig.machineGlobalConfig."

    assert told(pending_changes(changed(before, arg))) == [
        ("s1", "service restart", [f"{key}kube-apiserver-arg"])
    ]
    assert told(pending_changes(changed(before, both))) == [
        ("s1", "service restart", [f"{key}kube-apiserver-arg", f"{key}selinux"]),
        ("w1", "service restart", [f"{key}selinux"]),
        ("w2", "service restart", [f"{key}selinux"]),
    ]


def test_settings_of_etcd_are_read_by_etcd_members_alone():
    before = a_cluster(SERVERS, WORKERS, etcd={"snapshotRetention": 5})

    pending = pending_changes(changed(before, replace(before, etcd={"snapshotRetention": 7})))

    assert told(pending) == [("s1", "service restart", ["spec.rkeConfig.etcd.snapshotRetention"])]


def test_chart_values_and_manifests_are_objects_of_the_cluster_and_restart_nothing():
    before = a_cluster(SERVERS, WORKERS, chart_values={"rke2-cilium": {"mtu": 1400, "hubble": True}})
    after = replace(
        before,
        chart_values={"rke2-cilium": {"mtu": 1450, "hubble": True}},
        additional_manifest="kind: Namespace",
    )

    pending = pending_changes(changed(before, after))

    assert pending.machines == ()
    assert [(one.path, one.old, one.new, one.change) for one in pending.cluster] == [
        ("spec.rkeConfig.additionalManifest", None, "kind: Namespace", "live"),
        ("spec.rkeConfig.chartValues.rke2-cilium.mtu", 1400, 1450, "live"),
    ]


def test_chart_values_that_were_applied_are_not_pending_although_machines_were_made_with_others():
    before = a_cluster(SERVERS, chart_values={"rke2-cilium": {"mtu": 1400}})
    after = replace(before, chart_values={"rke2-cilium": {"mtu": 1450}})
    recorded = replace(
        after.recorded,
        applied_revision="applied",
        revisions={"applied": render_revision(list_fields(after, SERVERS))},
    )

    assert pending_changes(changed(before, replace(after, recorded=recorded))).is_empty


@pytest.mark.parametrize(
    ("option", "value", "change"),
    [
        ("cpuCount", "4", "VM restart"),
        ("vmAffinity", "{}", "VM restart"),
        ("imageName", "default/other", "replace"),
        ("diskSize", "80", "VM restart"),
        ("vmNamespace", "other", "new machines only"),
        ("addressPools", [{"network": "a"}], "replace"),
    ],
)
def test_an_option_of_the_driver_has_the_class_of_its_row(option, value, change):
    before = a_cluster(WORKERS)
    after = a_cluster(replace(WORKERS, options={**OPTIONS, option: value}))

    pending = pending_changes(changed(before, after))

    assert {(one.change, one.order > 0) for one in pending.machines} == {
        (change, change in ("VM restart", "replace"))
    }
    assert pending.machines[0].fields[0].path == f"HarvesterConfig nc-workers: {option}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("memorySize", "ten gigs"),
        ("memorySize", "-4"),
        ("memorySize", "0"),
        ("cpuCount", "two"),
        ("cpuCount", "0"),
        ("diskSize", "big"),
        ("diskSize", "0"),
        ("diskSize", "-1"),
    ],
)
def test_a_size_that_no_vm_can_have_is_refused_before_any_turn(option, value):
    options = {**OPTIONS, "imageName": "default/noble", "diskSize": "40"}
    before = a_cluster(replace(WORKERS, options=options))
    after = a_cluster(replace(WORKERS, options={**options, "cpuCount": "4", option: value}))

    pending = pending_changes(changed(before, after))

    assert pending.turns == ()
    assert {one.change for one in pending.machines} == {"refused"}
    problem = pending.refused[0]
    assert problem.field in (f"HarvesterConfig nc-workers: {option}", "HarvesterConfig nc-workers: diskInfo")
    assert problem.hint


def test_a_refused_size_holds_back_no_option_that_only_new_machines_get():
    options = {**OPTIONS, "vmNamespace": "default"}
    before = a_cluster(replace(WORKERS, options=options))
    after = a_cluster(replace(WORKERS, options={**options, "vmNamespace": "other", "cpuCount": "two"}))

    fields = pending_changes(changed(before, after)).machines[0].fields

    assert {one.path.rpartition(" ")[2]: one.change for one in fields} == {
        "cpuCount": "refused",
        "vmNamespace": "new machines only",
    }


def test_a_refused_size_is_told_in_accepted_and_holds_back_no_version():
    before = a_cluster(SERVERS, WORKERS)
    typo = replace(WORKERS, options={**OPTIONS, "memorySize": "ten gigs"})
    state = changed(before, replace(a_cluster(SERVERS, typo), version="v1.35.2+rke2r1"))

    conditions = derive_cluster(state, Plan(), None)["conditions"]
    accepted = next(one for one in conditions if one["type"] == "Accepted")

    assert {one.change for one in pending_changes(state).turns} == {"service restart"}
    assert (accepted["status"], "ten gigs" in accepted["message"]) == ("False", True)


def test_a_value_in_another_form_is_no_change():
    before = a_cluster(WORKERS)
    after = a_cluster(replace(WORKERS, options={**OPTIONS, "cpuCount": 2, "memorySize": "4Gi"}))

    assert pending_changes(changed(before, after)).is_empty


def test_an_option_of_another_driver_replaces_the_machine():
    before = a_cluster(replace(WORKERS, kind="DigitaloceanConfig", driver="digitalocean"))
    pool = replace(before.pools[0], options={**OPTIONS, "cpuCount": "3"})
    machines = [made("w1", before.pools[0], driver="digitalocean")]

    (one,) = pending_changes(changed(before, replace(before, pools=(pool,)), machines)).machines

    assert one.change == "replace"


def test_labels_and_taints_are_live_and_take_no_turn():
    before = a_cluster(replace(WORKERS, labels={"tier": "a", "old": "1"}, taints=("a=b:NoSchedule",)))
    after = a_cluster(replace(WORKERS, labels={"tier": "b"}))

    (one, _) = pending_changes(changed(before, after)).machines

    assert (one.change, one.order) == ("live", 0)
    assert [(field.path, field.old, field.new) for field in one.fields] == [
        ("spec.rkeConfig.machinePools[workers].labels.old", "1", None),
        ("spec.rkeConfig.machinePools[workers].labels.tier", "a", "b"),
        ("spec.rkeConfig.machinePools[workers].taints", ["a=b:NoSchedule"], None),
    ]


def test_a_machine_of_an_earlier_release_is_not_told_to_have_other_labels():
    cluster = a_cluster(replace(WORKERS, labels={"tier": "a"}))
    machines = [made("w1", WORKERS, labels=None, taints=None)]

    assert pending_changes(changed(cluster, cluster, machines)).is_empty


def test_machines_that_differ_in_their_credential_alone_are_compared_each():
    cluster = a_cluster(WORKERS)
    machines = [made("w1", WORKERS), record_of(made("w2", WORKERS), credential="ns:other")]

    for order in (machines, machines[::-1]):
        pending = pending_changes(changed(cluster, cluster, order))
        assert [one.machine for one in pending.machines] == ["w2"]


def test_the_most_disruptive_of_several_changes_counts_and_turns_come_first():
    before = a_cluster(WORKERS)
    pool = replace(WORKERS, options={**OPTIONS, "cpuCount": "8", "imageName": "i"}, labels={"a": "b"})
    machines = [made("w1", WORKERS, labels={"a": "b"}, options=pool.options, version="v1.35.1+rke2r1")]
    machines[0] = record_of(machines[0], credential="ns:other")
    machines.append(made("w2", WORKERS))

    pending = pending_changes(changed(before, replace(before, pools=(pool,)), machines))

    assert [(one.machine, one.change, one.order) for one in pending.machines] == [
        ("w2", "replace", 1),
        ("w1", "new machines only", 0),
    ]


# -- what earlier releases did not record ------------------------------------------------------------------------


def test_a_hash_that_nothing_is_recorded_of_is_told_and_has_no_turn():
    cluster = a_cluster(WORKERS)
    machines = [made("w1", WORKERS, config_hash="of an earlier release")]

    (one,) = pending_changes(changed(cluster, cluster, machines)).machines

    assert (one.change, one.order, one.fields[0].old, one.fields[0].new) == ("none", 0, None, None)
    assert "is not known" in one.because


def test_a_version_is_changed_on_machines_of_which_nothing_is_recorded():
    before = a_cluster(WORKERS)
    machines = [made("w1", WORKERS, config_hash="of an earlier release")]

    (one,) = pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1"), machines)).machines

    assert (one.change, one.order) == ("service restart", 1)


def test_machines_without_a_hash_are_taken_as_they_are():
    cluster = a_cluster(WORKERS)

    assert pending_changes(changed(cluster, cluster, [made("w1", WORKERS, config_hash="")])).is_empty


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ("v1.37.1+rke2r1", "no minor may be skipped", "a release of v1.36, then v1.37.1+rke2r1"),
        (
            "v1.38.0+rke2r1",
            "no minor may be skipped",
            "a release of v1.36, then a release of v1.37, then v1.38.0",
        ),
        ("v2.0.0+rke2r1", "no minor may be skipped", "v2.0.0+rke2r1"),
        ("v1.35.0+rke2r1", "lower than v1.35.1+rke2r1", "a restore of a snapshot that was made with v1.35"),
        ("v1.34.9+rke2r1", "lower than v1.35.1+rke2r1", "a restore of a snapshot that was made with v1.34"),
    ],
)
def test_a_version_that_machines_may_not_go_to_is_refused_with_the_way(wanted, message, hint):
    before = a_cluster(SERVERS, WORKERS)

    pending = pending_changes(changed(before, replace(before, version=wanted)))

    assert pending.turns == ()
    assert {one.change for one in pending.machines} == {"refused"}
    (problem,) = pending.refused
    assert message in problem.message
    assert hint in problem.hint
    assert problem.field == "spec.kubernetesVersion"


def test_a_version_that_cannot_be_read_is_refused_with_its_problem():
    before = a_cluster(WORKERS)
    problem = Problem("not a version", "write one", "spec.kubernetesVersion")

    pending = pending_changes(changed(before, replace(before, version="latest"), problems=(problem,)))

    assert pending.refused == (problem,)
    assert pending.turns == ()


def test_a_refused_version_does_not_hold_back_other_changes():
    before = a_cluster(SERVERS)
    after = replace(before, version="v1.34.1+rke2r1", global_config={"selinux": True})

    pending = pending_changes(changed(before, after))

    (one,) = pending.turns
    assert (one.change, one.version, one.config_hash) == ("service restart", RUNNING, "new-servers")
    assert [field.change for field in one.fields] == ["refused", "service restart"]


def test_no_second_minor_begins_while_a_machine_lags():
    before = a_cluster(WORKERS)
    machines = [made("w1", WORKERS, version="v1.34.9+rke2r1"), made("w2", WORKERS)]

    pending = pending_changes(changed(before, replace(before, version="v1.36.0+rke2r1"), machines))

    assert pending.turns == ()
    assert "v1.34.9" in pending.refused[0].message


def test_a_version_that_was_taken_back_before_its_first_turn_leaves_nothing():
    before = a_cluster(SERVERS, WORKERS)

    assert not pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1"))).is_empty
    assert pending_changes(changed(before, before)).is_empty


def test_a_version_that_was_taken_back_after_the_first_turn_is_refused_for_the_machine_that_has_it():
    before = a_cluster(WORKERS)
    machines = [made("w1", WORKERS, version="v1.36.0+rke2r1"), made("w2", WORKERS)]

    pending = pending_changes(changed(before, before, machines))

    assert told(pending) == [("w1", "refused", ["spec.kubernetesVersion"])]
    assert "v1.36.0+rke2r1" in pending.refused[0].message


def test_another_role_of_a_pool_is_refused_with_the_way():
    before = a_cluster(SERVERS, WORKERS)
    after = a_cluster(SERVERS, replace(WORKERS, roles=WORKER | {Role.ETCD}))

    pending = pending_changes(changed(before, after))

    assert {(one.machine, one.change) for one in pending.machines} == {("w1", "refused"), ("w2", "refused")}
    (problem,) = pending.refused
    assert problem.message.startswith(
        "pool workers has the roles etcd,worker, and 2 machines of it have worker"
    )
    assert "add a pool" in problem.hint


def test_a_key_that_the_cluster_keeps_is_refused_where_no_earlier_value_is_recorded():
    before = a_cluster(SERVERS, global_config={"cni": "cilium", "selinux": True})
    after = replace(before, global_config={"cni": "calico", "selinux": True})

    (one,) = pending_changes(changed(before, after)).machines

    assert one.change == "refused"


# -- the table ---------------------------------------------------------------------------------------------------


def test_every_field_that_works_has_a_class():
    assert [path for path in CLUSTER_FIELDS.works if CLUSTER_FIELDS.find_change(path) is None] == []


def test_classes_are_listed_from_none_to_refused():
    assert CHANGES[0] == "none"
    assert CHANGES[-1] == "refused"
    assert {row.change for row in CLUSTER_FIELDS.changes.values()} <= set(CHANGES)


def test_two_equal_configurations_have_no_changes():
    cluster = a_cluster(
        SERVERS,
        global_config={"a": [1, None], "b": {"c": {}}, "agent-token": "x", "long": "y" * 5000},
        chart_values={"chart": {str(number): number for number in range(500)}},
    )
    fields = list_fields(cluster, SERVERS)

    assert compare_fields(render_revision(fields), fields, "rke2") == ()
    assert compare_fields(render_revision(fields, short=True), fields, "rke2") == ()


def test_a_change_among_very_many_values_is_told_as_one():
    before = a_cluster(SERVERS, chart_values={"chart": {str(number): number for number in range(500)}})
    after = replace(before, chart_values={"chart": {str(number): number for number in range(501)}})

    (one,) = pending_changes(changed(before, after)).cluster

    assert one.path == "spec.rkeConfig.chartValues"
    assert one.old.keys() == {"length", "sha256"}


def test_a_machine_of_a_pool_that_is_gone_is_deleted_and_not_changed():
    before = a_cluster(SERVERS, WORKERS)

    assert pending_changes(changed(before, a_cluster(SERVERS))).is_empty


def test_before_it_runs_and_while_it_is_deleted_nothing_is_pending():
    before = a_cluster(SERVERS)
    after = replace(before, version="v1.35.2+rke2r1")
    deleted = replace(after, deletion_timestamp=NOON)
    state = changed(before, after)
    unborn = replace(state, cluster=replace(after, recorded=replace(after.recorded, version="")))

    assert pending_changes(changed(before, deleted)) == PendingChanges()
    assert pending_changes(unborn) == PendingChanges()


def test_a_thousand_machines_made_alike_are_compared_once():
    pool = a_pool("workers", 1000)
    before = a_cluster(pool)

    pending = pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1")))

    assert len(pending.machines) == 1000
    assert len({id(one.fields) for one in pending.machines}) == 1
    assert isinstance(pending.find("w7"), MachineChange)


def test_of_machines_alike_the_oldest_has_its_turn_first_whatever_its_name():
    before = a_cluster(WORKERS)
    machines = [
        made("a", WORKERS, created=NOON - minutes(1)),
        made("b", WORKERS, created=NOON - minutes(9)),
    ]

    pending = pending_changes(changed(before, replace(before, version="v1.35.2+rke2r1"), machines))

    assert [one.machine for one in pending.turns] == ["b", "a"]


def test_a_hash_that_differs_by_the_roles_is_no_unknown_configuration():
    before = a_cluster(SERVERS, WORKERS)
    machines = [made("w1", WORKERS, config_hash="of an earlier release")]
    after = a_cluster(SERVERS, replace(WORKERS, roles=WORKER | {Role.ETCD}))

    (one,) = pending_changes(changed(before, after, machines)).machines

    assert [field.change for field in one.fields] == ["refused"]


def test_a_turn_that_drains_says_which_pods_are_deleted():
    before = a_cluster(
        SERVERS, WORKERS, upgrade_strategy=UpgradeStrategy(worker_drain=DrainOptions(enabled=True))
    )
    upgraded = replace(before, version="v1.35.2+rke2r1")
    configured = replace(before, global_config={"kubelet-arg": ["v=4"]})

    server, worker, _ = pending_changes(changed(before, upgraded)).machines
    others = pending_changes(changed(before, configured)).machines

    assert server.disrupts.startswith("its API server and etcd member restart; its pods go on")
    assert worker.disrupts == "its kubelet restarts; its pods move, those without a controller stay and go on"
    assert all("its pods go on" in one.disrupts for one in others), "drain options are for another version"


@pytest.mark.parametrize(
    ("force", "service", "vm"),
    [
        (False, "those without a controller stay and go on", "those without a controller come back with it"),
        (True, "those without a controller are deleted", "a drain deletes those without a controller"),
    ],
)
def test_pods_without_a_controller_are_said_to_be_deleted_where_the_drain_has_force(force, service, vm):
    strategy = UpgradeStrategy(worker_drain=DrainOptions(enabled=True, force=force))
    before = a_cluster(SERVERS, WORKERS, upgrade_strategy=strategy)
    larger = a_cluster(
        SERVERS, replace(WORKERS, options={**OPTIONS, "cpuCount": "4"}), upgrade_strategy=strategy
    )
    upgraded = replace(before, version="v1.35.2+rke2r1")

    assert pending_changes(changed(before, upgraded)).machines[1].disrupts.endswith(service)
    assert pending_changes(changed(before, larger)).machines[0].disrupts.endswith(vm)
