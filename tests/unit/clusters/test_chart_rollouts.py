"""Harvester's charts in the guest while a release is installed: what is read of them, what holds them, and the cure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from windrow.clusters.api.names import STALLED_ROLLOUT
from windrow.clusters.api.updates.turn import render_machine_update
from windrow.clusters.plan.actions import DeleteStalledPod, RecordVersion, RelaxRollout
from windrow.clusters.plan.updates.charts import (
    CHARTS_TIMEOUT,
    JOBS_BEGIN,
    MAX_DELETIONS,
    STALL_TIMEOUT,
    is_upgrading,
    list_blockers,
    may_not_be_short,
)
from windrow.clusters.state import MachineState
from windrow.clusters.updates.charts import (
    ChartDeployment,
    ChartPod,
    ChartReplicaSet,
    HelmJob,
    ObservedCharts,
    read_chart_pod,
    read_deployment,
    read_helm_job,
    read_replica_set,
)
from windrow.kubernetes.objects import Raw

from .builders import NOON, condition, look, of_kind, record_of, some
from .test_update_turns import NEW, SERVERS, an_update, at, plan_of, upgraded

APART = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
PROVIDER = "harvester-cloud-provider"
STALLED = ChartDeployment(
    PROVIDER, 1, updated=1, total=2, available=1, revision="2", uid="d", resource_version="7"
)
RELAXED = replace(STALLED, max_unavailable=1)
OLD = ChartPod("old", "uid-old", template="a", has_node=True, replica_set="rs-a")
NEW_POD = ChartPod("new", "uid-new", template="b", problem=APART, since=NOON, replica_set="rs-b")
SETS = (ChartReplicaSet("rs-a", "d"), ChartReplicaSet("rs-b", "d"), ChartReplicaSet("rs-x", "x"))
DONE = ChartDeployment(PROVIDER, 1, 1, 1, 1, uid="d")
JOB = HelmJob("helm-install-harvester-csi-driver", "harvester-csi-driver", is_complete=False)


def server() -> MachineState:
    """One whose turn has just ended."""
    (one,) = some("s", 1, SERVERS)
    return record_of(at(one, NEW), conditions=(*one.record.conditions, condition("Updating", "False")))


def planned(*deployments: ChartDeployment, pods: Any = (OLD, NEW_POD), jobs: Any = (), **rest: Any) -> Any:
    charts = ObservedCharts(deployments, tuple(pods), tuple(jobs), SETS)
    return plan_of(upgraded(SERVERS), [server()], charts=rest.pop("charts", charts), **rest)


def test_a_rollout_that_stalls_may_be_one_pod_short_once_its_new_pod_exists() -> None:
    (relax,) = of_kind(planned(STALLED), RelaxRollout, DeleteStalledPod)

    assert relax == RelaxRollout(f"Pod kube-system/new: {APART}", PROVIDER, "7")
    assert not of_kind(planned(STALLED, pods=[OLD]), RelaxRollout), "its new pod is not there"
    assert not of_kind(planned(STALLED, pods=[NEW_POD]), RelaxRollout), "no old pod is in its way"
    assert not of_kind(planned(STALLED, pods=[OLD, replace(NEW_POD, template="a")]), RelaxRollout)
    assert not of_kind(planned(DONE), RelaxRollout)
    other = replace(NEW_POD, problem="0/1 nodes are available: 1 Insufficient cpu.")
    assert not of_kind(planned(STALLED, pods=[OLD, other]), RelaxRollout)


@pytest.mark.parametrize("change", [{"has_node": True}, {"is_deleting": True}])
def test_a_new_pod_that_has_a_node_or_goes_is_not_stalled(change: Any) -> None:
    assert not of_kind(planned(STALLED, pods=[OLD, replace(NEW_POD, **change)]), RelaxRollout)


@pytest.mark.parametrize(
    ("bound", "replicas", "keeps_all"),
    [
        (None, 1, True),
        (None, 3, True),
        (None, 4, False),
        ("25%", 4, False),
        ("99%", 1, True),
        ("100%", 1, False),
        (0, 1, True),
        (1, 1, False),
        ("x%", 5, True),
        ("1000%", 5, True),
    ],
)
def test_which_rollouts_keep_all_their_pods(bound: Any, replicas: int, keeps_all: bool) -> None:
    one = replace(STALLED, max_unavailable=bound, replicas=replicas)
    assert may_not_be_short(one) is keeps_all
    assert not may_not_be_short(replace(one, rolls=False))


def test_an_old_pod_is_deleted_where_its_successor_finds_no_node_for_a_minute() -> None:
    sooner = planned(RELAXED, now=NOON + STALL_TIMEOUT - timedelta(seconds=1))
    assert not of_kind(sooner, DeleteStalledPod, RelaxRollout)
    assert any(one.until == NOON + STALL_TIMEOUT for one in sooner.waits)

    (delete,) = of_kind(planned(RELAXED, now=NOON + STALL_TIMEOUT), DeleteStalledPod)

    assert (delete.pod, delete.uid, delete.record, delete.resource_version) == ("old", "uid-old", "2/1", "7")
    going = [replace(OLD, is_deleting=True), NEW_POD]
    assert not of_kind(planned(RELAXED, pods=going, now=NOON + STALL_TIMEOUT), DeleteStalledPod)


@pytest.mark.parametrize(
    ("recorded", "record"),
    [("2/1", "2/2"), ("2/2", "2/3"), ("1/3", "2/1"), ("2/x", "2/1"), ("2/999", "2/1"), ("", "2/1")],
)
def test_deletions_are_counted_by_revision(recorded: str, record: str) -> None:
    (delete,) = of_kind(
        planned(replace(RELAXED, deletions=recorded), now=NOON + STALL_TIMEOUT), DeleteStalledPod
    )
    assert delete.record == record


def test_no_more_than_three_old_pods_are_deleted() -> None:
    given_up = replace(RELAXED, deletions=f"2/{MAX_DELETIONS}")
    assert not of_kind(planned(given_up, now=NOON + STALL_TIMEOUT), DeleteStalledPod)


@pytest.mark.parametrize("replica_set", ["", "rs-x", "rs-unknown"])
def test_a_pod_that_only_bears_the_charts_label_is_neither_deleted_nor_taken_for_a_stalled_one(
    replica_set: str,
) -> None:
    late = NOON + STALL_TIMEOUT
    foreign = ChartPod("a-copy", "uid-x", has_node=True, replica_set=replica_set)

    (delete,) = of_kind(planned(RELAXED, pods=[foreign, OLD, NEW_POD], now=late), DeleteStalledPod)

    assert (delete.pod, delete.uid) == ("old", "uid-old")
    for pods in ([foreign, NEW_POD], [OLD, replace(NEW_POD, replica_set=replica_set)]):
        for deployment in (STALLED, RELAXED, replace(RELAXED, uid="")):
            assert not of_kind(planned(deployment, pods=pods, now=late), DeleteStalledPod, RelaxRollout)


def test_actions_on_charts_stop_no_others() -> None:
    (relax,) = of_kind(planned(STALLED), RelaxRollout)
    assert relax.subject == "charts/harvester-cloud-provider"


# -- the end of an upgrade ---------------------------------------------------------------------------------------


def test_an_upgrade_ends_once_its_charts_are_installed() -> None:
    late = NOON + JOBS_BEGIN
    early = planned(DONE, pods=(), now=late - timedelta(seconds=1))
    assert not of_kind(early, RecordVersion)
    assert early.waits[-1].what == "the Jobs of the release's charts to begin"
    assert early.waits[-1].until == late

    (record,) = of_kind(planned(DONE, pods=(), now=late), RecordVersion)

    assert record.because == "all its machines do"
    (record,) = of_kind(planned(charts=ObservedCharts()), RecordVersion)
    assert record.because == "all its machines do", "a cluster without these charts waits for none"


@pytest.mark.parametrize(
    ("rest", "missing"),
    [
        ({"charts": None}, "the Harvester charts of the release to be listed"),
        (
            {
                "jobs": [JOB],
                "pods": [ChartPod("p", chart="harvester-csi-driver", problem="CrashLoopBackOff: no")],
            },
            "Job kube-system/helm-install-harvester-csi-driver to complete (Pod p: CrashLoopBackOff: no)",
        ),
        ({"jobs": [JOB], "pods": []}, "Job kube-system/helm-install-harvester-csi-driver to complete"),
    ],
)
def test_an_upgrade_waits_ten_minutes_for_its_charts_and_says_what_is_missing(
    rest: Any, missing: str
) -> None:
    waiting = planned(DONE, now=NOON + CHARTS_TIMEOUT - timedelta(seconds=1), **rest)
    assert not of_kind(waiting, RecordVersion)
    assert (waiting.waits[-1].what, waiting.waits[-1].until) == (missing, NOON + CHARTS_TIMEOUT)

    (record,) = of_kind(planned(DONE, now=NOON + CHARTS_TIMEOUT, **rest), RecordVersion)

    assert record.because == f"all its machines do; still waiting for {missing}"


def test_what_holds_a_rollout_is_its_new_pod() -> None:
    charts = ObservedCharts((STALLED, replace(DONE, is_observed=False)), (OLD, NEW_POD), (), SETS)
    assert list(list_blockers(charts)) == [
        f"Deployment kube-system/{PROVIDER} to be rolled out (Pod new: {APART})",
        f"Deployment kube-system/{PROVIDER} to be rolled out (Pod new: {APART})",
    ]
    assert not list(list_blockers(ObservedCharts((DONE,), (), (replace(JOB, is_complete=True),))))


def test_charts_are_watched_while_machines_go_to_another_version() -> None:
    (one,) = some("s", 1, SERVERS)
    cluster = upgraded(SERVERS)
    status = {**one.record.status, "update": render_machine_update(an_update())}

    assert not is_upgrading(look(cluster, [one]))
    assert is_upgrading(look(cluster, [record_of(one, status=status)]))
    assert is_upgrading(look(cluster, [server()]))
    ended = replace(cluster, recorded=replace(cluster.recorded, raw={**cluster.recorded.raw, "version": NEW}))
    assert ended.recorded.version != NEW or not is_upgrading(look(ended, [server()]))


# -- what is read ------------------------------------------------------------------------------------------------


HELM = {"meta.helm.sh/release-name": PROVIDER, "meta.helm.sh/release-namespace": "kube-system"}
HEAD = {"name": PROVIDER, "annotations": HELM}


def a_deployment(**status: Any) -> Raw:
    return {
        "metadata": {
            "name": PROVIDER,
            "generation": 3,
            "resourceVersion": "9",
            "annotations": {"deployment.kubernetes.io/revision": "2", STALLED_ROLLOUT: "2/1", **HELM},
        },
        "spec": {
            "replicas": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        },
        "status": {
            "observedGeneration": 3,
            "updatedReplicas": 1,
            "replicas": 3,
            "availableReplicas": 2,
            **status,
        },
    }


def test_a_deployment_is_read_with_its_rollout() -> None:
    read = read_deployment(a_deployment())
    assert read == ChartDeployment(PROVIDER, 2, 1, 3, 2, True, "25%", True, "2", "2/1")
    assert read is not None
    assert not read.is_rolled_out
    assert read.chart == PROVIDER
    done = read_deployment(a_deployment(updatedReplicas=2, replicas=2))
    assert done is not None
    assert done.is_rolled_out
    stale = read_deployment(a_deployment(updatedReplicas=2, replicas=2, observedGeneration=2))
    assert stale is not None
    assert not stale.is_rolled_out
    assert read_deployment({"metadata": {"name": "coredns"}}) is None
    assert read_deployment({"metadata": {**HEAD, "deletionTimestamp": "now"}}) is None


def test_a_deployment_is_of_a_chart_if_its_release_owns_it() -> None:
    for notes in (
        {},
        {**HELM, "meta.helm.sh/release-name": "mine"},
        {**HELM, "meta.helm.sh/release-namespace": "x"},
    ):
        raw = a_deployment()
        raw["metadata"]["annotations"] = notes
        assert read_deployment(raw) is None


def test_a_pod_belongs_to_the_replica_set_that_controls_it_and_that_to_a_deployment() -> None:
    def owned(kind: str, group: str = "apps/v1", controller: Any = True) -> Raw:
        owner = {"apiVersion": group, "kind": kind, "uid": "o", "controller": controller}
        return {"metadata": {"name": "x", "uid": "u", "ownerReferences": [{"uid": "gc"}, owner]}}

    for raw, wanted in (
        (owned("ReplicaSet"), "o"),
        (owned("ReplicaSet", controller=False), ""),
        (owned("ReplicaSet", "mine/v1"), ""),
        (owned("StatefulSet"), ""),
        ({"metadata": {"name": "x"}}, ""),
    ):
        pod = read_chart_pod(raw)
        assert pod is not None
        assert pod.replica_set == wanted
    assert read_replica_set(owned("Deployment")) == ChartReplicaSet("u", "o")
    assert read_replica_set(owned("ReplicaSet")) is None


def test_a_deployment_of_wrong_types_is_read_as_far_as_it_goes() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": "x"}
    odd = {"replicas": True, "strategy": strategy, "template": None}
    read = read_deployment({"metadata": HEAD, "spec": odd, "status": {"replicas": -1}})
    assert read == ChartDeployment(PROVIDER, 1, 0, 0, 0)
    assert ChartDeployment(PROVIDER).replicas == 1
    none = read_deployment({"metadata": HEAD, "spec": {"replicas": 0}, "status": {}})
    assert none is not None
    assert none.replicas == 0
    negative, long = (
        read_deployment(
            {
                "metadata": HEAD,
                "spec": {"strategy": {"rollingUpdate": {"maxUnavailable": bound}}},
            }
        )
        for bound in (-3, "9" * 9999)
    )
    assert negative is not None
    assert long is not None
    assert negative.max_unavailable == 0
    assert len(str(long.max_unavailable)) <= 300
    recreated = read_deployment({"metadata": HEAD, "spec": {"strategy": {"type": "Recreate"}}})
    assert recreated is not None
    assert not may_not_be_short(recreated)


def test_a_pod_says_why_it_has_no_node_or_does_not_run() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "message": APART}
    head = {
        "name": "new",
        "uid": "u",
        "labels": {"pod-template-hash": "b"},
        "creationTimestamp": "2026-01-01T12:00:00Z",
    }
    pod = {"metadata": head, "spec": {}, "status": {"conditions": [scheduled]}}
    read = read_chart_pod(pod)
    assert read is not None
    assert (read.template, read.problem, read.is_kept_apart) == ("b", APART, True)
    assert read.since is not None

    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    crashed = {"state": waiting, "lastState": {"terminated": {"message": "no\x1b such\nvalue"}}}
    labels = {"helmcharts.helm.cattle.io/chart": "harvester-csi-driver"}
    head = {"name": "helm", "labels": labels}
    read = read_chart_pod(
        {"metadata": head, "spec": {"nodeName": "n"}, "status": {"containerStatuses": [crashed]}}
    )
    assert read is not None
    assert read.problem.startswith("CrashLoopBackOff: no")
    assert "\x1b" not in read.problem
    assert "\n" not in read.problem
    assert not read.is_kept_apart
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    read = read_chart_pod({"metadata": head, "status": {"containerStatuses": [creating]}})
    assert read is not None
    assert read.problem == ""
    assert (
        read_chart_pod({"metadata": {"name": "x", "labels": {"helmcharts.helm.cattle.io/chart": "x"}}})
        is None
    )


def test_a_pod_that_no_replica_set_made_has_no_template() -> None:
    read = read_chart_pod({"metadata": {"name": "bare", "labels": {"pod-template-hash": None}}})

    assert read is not None
    assert read.template == ""


def test_a_helm_job_is_one_of_these_charts() -> None:
    labels = {"helmcharts.helm.cattle.io/chart": "harvester-csi-driver"}
    raw = {"metadata": {"name": JOB.name, "labels": labels}}
    assert read_helm_job(raw) == JOB
    done = {**raw, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert read_helm_job(done) == replace(JOB, is_complete=True)
    assert (
        read_helm_job(
            {"metadata": {"name": "x", "labels": {**labels, "helmcharts.helm.cattle.io/chart": "traefik"}}}
        )
        is None
    )
    assert read_helm_job({"metadata": {**raw["metadata"], "deletionTimestamp": "now"}}) is None
