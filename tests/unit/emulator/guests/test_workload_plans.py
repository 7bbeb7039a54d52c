"""What the controllers of workloads decide, without a cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.workloads import endpoint_slices, pod_lifecycle
from windrow.emulator.guest_cluster.workloads.context import MutationCache
from windrow.emulator.guest_cluster.workloads.deployments import (
    AnnotateDeployment,
    CreateReplicaSet,
    DeleteReplicaSet,
    ScaleReplicaSet,
    _Bounds,
    plan_deployment,
)
from windrow.emulator.guest_cluster.workloads.replica_sets import CreatePods, plan_replica_set
from windrow.emulator.guest_cluster.workloads.scheduler import find_node
from windrow.emulator.guest_cluster.workloads.templates import (
    hash_template,
    render_pod,
    render_replica_set,
    selector_matches_template,
)
from windrow.emulator.kit.client import AdminClient
from windrow.kubernetes.objects import annotations_of, new_object
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD, REPLICA_SET, SERVICE

Raw = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PACE = pod_lifecycle.PodTimings(timedelta(seconds=2), timedelta(seconds=1), timedelta(seconds=1))


def a_deployment(replicas: int = 3, image: str = "web:1", **spec: Any) -> Raw:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    given = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    made = new_object(DEPLOYMENT, "web", "default", spec=given)
    made["metadata"] |= {"uid": "of-web", "generation": 1}
    return made


def a_pod(
    name: str = "p", node: str = "n1", *, ready: bool = True, phase: str = "Running", **spec: Any
) -> Raw:
    made = new_object(POD, name, "default", labels={"app": "web"}, spec={"nodeName": node, **spec})
    made["metadata"] |= {"uid": f"of-{name}", "creationTimestamp": "2026-01-01T12:00:00Z"}
    made["status"] = {
        "phase": phase,
        "podIP": "10.42.0.2",
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    return made


def a_node(name: str = "n1", *, ready: bool = True, taints: list[Raw] | None = None, **labels: str) -> Raw:
    made = new_object(NODE, name, labels=labels, spec={"taints": taints or []})
    made["status"] = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return made


# --- rollouts -----------------------------------------------------------------------------------------------------


class Rollout:
    """ReplicaSets whose pods are created, become available and are deleted at random."""

    def __init__(self, deployment: Raw) -> None:
        self.deployment = deployment
        self.sets: list[Raw] = []

    def step(self) -> int:
        steps = plan_deployment(self.deployment, self.sets)
        for one in steps:
            match one:
                case CreateReplicaSet(replicas, marks, _):
                    made = render_replica_set(self.deployment, replicas, marks)
                    made["metadata"]["uid"] = f"set {len(self.sets)}"
                    self.sets.append(made)
                case ScaleReplicaSet(replica_set, replicas, marks, _):
                    replica_set["spec"]["replicas"] = replicas
                    replica_set["metadata"]["annotations"] |= marks
                case AnnotateDeployment(marks, _):
                    self.deployment["metadata"].setdefault("annotations", {}).update(marks)
                case DeleteReplicaSet(replica_set, _):
                    self.sets.remove(replica_set)
        return len(steps)

    def settle(self, *, available: int) -> None:
        """Pods follow `spec.replicas`; at most `available` more become available."""
        for one in self.sets:
            asked, before = one["spec"]["replicas"], one.get("status", {}).get("availableReplicas", 0)
            new = min(asked - min(before, asked), available)
            available -= new
            ready = min(before, asked) + new
            one["status"] = {"replicas": asked, "readyReplicas": ready, "availableReplicas": ready}

    def total(self) -> int:
        return sum(one["spec"]["replicas"] for one in self.sets)

    def available(self) -> int:
        return sum(one.get("status", {}).get("availableReplicas", 0) for one in self.sets)


BOUND = some.one_of(some.integers(0, 5), some.sampled_from(["0%", "25%", "50%", "100%"]))


@given(some.integers(1, 12), BOUND, BOUND, some.lists(some.integers(0, 3), min_size=1, max_size=8))
def test_a_rollout_stays_within_its_bounds_and_comes_to_an_end(
    replicas: int, surge: Any, below: Any, speeds: list[int]
):
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": below}}
    rollout = Rollout(a_deployment(replicas, strategy=strategy))
    while rollout.step():
        rollout.settle(available=99)
    rollout.settle(available=99)
    rollout.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2"
    bounds = _Bounds.read(rollout.deployment, replicas)
    rounds = [*speeds, *[3] * 60]
    for time_scale in rounds:
        rollout.step()
        assert rollout.total() <= replicas + bounds.max_surge
        # A pod that is deleted is no longer available.
        rollout.settle(available=0)
        assert rollout.available() >= replicas - bounds.max_unavailable
        rollout.settle(available=time_scale)

    assert [one["spec"]["replicas"] for one in rollout.sets] == [0, replicas]
    assert rollout.step() == 0


def test_a_recreated_deployment_ends_all_its_old_pods_first():
    rollout = Rollout(a_deployment(2, strategy={"type": "Recreate"}))
    while rollout.step():
        rollout.settle(available=9)
    rollout.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2"
    rollout.step()
    assert [one["spec"]["replicas"] for one in rollout.sets] == [0]
    rollout.settle(available=9)
    rollout.step()

    assert [one["spec"]["replicas"] for one in rollout.sets] == [0, 2]


def test_a_template_that_comes_back_is_a_new_revision_of_its_old_set():
    rollout = Rollout(a_deployment(1))
    for image in ("web:1", "web:2", "web:1"):
        rollout.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
        while rollout.step():
            rollout.settle(available=9)

    revisions = [annotations_of(one)["deployment.kubernetes.io/revision"] for one in rollout.sets]
    assert revisions == ["3", "2"]
    assert annotations_of(rollout.deployment)["deployment.kubernetes.io/revision"] == "3"


def test_old_sets_are_kept_up_to_the_limit():
    rollout = Rollout(a_deployment(1, revisionHistoryLimit=1))
    for number in range(4):
        rollout.deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"web:{number}"
        while rollout.step():
            rollout.settle(available=9)

    assert len(rollout.sets) == 2


def test_a_deployment_whose_selector_is_not_its_templates_does_nothing():
    assert not selector_matches_template(a_deployment(selector={"matchLabels": {"app": "other"}}))
    assert selector_matches_template(a_deployment())


def test_neither_the_order_of_a_templates_fields_nor_empty_ones_matter():
    assert hash_template({"a": 1, "b": {}, "c": None}) == hash_template({"a": 1})
    assert hash_template({"a": 1, "b": {"c": 2, "d": 3}}) == hash_template({"b": {"d": 3, "c": 2}, "a": 1})


# --- ReplicaSets --------------------------------------------------------------------------------------------------


def a_set(replicas: int) -> Raw:
    return new_object(REPLICA_SET, "web-abc", "default", spec={"replicas": replicas})


def test_unscheduled_and_unready_pods_are_deleted_first():
    pods = [
        a_pod("ready"),
        a_pod("running", ready=False),
        a_pod("pending", ready=False, phase="Pending"),
        a_pod("unplaced", node="", ready=False, phase="Pending"),
    ]
    going = [step.pod["metadata"]["name"] for step in plan_replica_set(a_set(1), pods)]  # type: ignore[union-attr]

    assert going == ["unplaced", "pending", "running"]


def test_deleting_and_final_pods_are_not_active():
    leaving, ended = a_pod("leaving"), a_pod("ended", phase="Failed")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    (step,) = plan_replica_set(a_set(2), [leaving, ended, a_pod()])

    assert isinstance(step, CreatePods)
    assert step.count == 1


# --- pods ---------------------------------------------------------------------------------------------------------


def plan(
    pod: Raw, node: Raw | None = None, *, alive: bool = True, after: float = 0, **tainted: timedelta
) -> Any:
    seen = pod_lifecycle.PodState(timedelta(seconds=after), timedelta(), node, alive, tainted, PACE)
    return pod_lifecycle.plan_pod(pod, seen)


NO_EXECUTE = {"key": "gone", "effect": "NoExecute"}


def test_a_scheduled_pod_starts_after_its_delay_on_a_reporting_kubelet():
    pod = a_pod(ready=False, phase="Pending")

    assert plan(pod, a_node()) == [pod_lifecycle.WaitUntil(PACE.start, "containers start")]
    assert plan(pod, a_node(), after=2) == [pod_lifecycle.StartPod("its containers run")]
    assert plan(pod, a_node(), after=2, alive=False) == []


def test_readiness_follows_the_node():
    assert plan(a_pod(), a_node(ready=False), alive=False) == [
        pod_lifecycle.SetPodReady(False, "node n1 is not Ready")
    ]
    assert plan(a_pod(ready=False), a_node(), after=1) == [
        pod_lifecycle.SetPodReady(True, "its probe succeeds")
    ]
    assert plan(a_pod(ready=False), a_node(), after=1, alive=False) == []
    assert plan(a_pod(), a_node()) == []


def test_a_pod_of_a_deleted_node_is_deleted_at_once():
    assert plan(a_pod(), None) == [pod_lifecycle.DeletePod(at_once=True, because="node n1 is gone")]


@pytest.mark.parametrize(
    ("tolerations", "patience"),
    [
        ([], 0),
        ([{"operator": "Exists"}], None),
        ([{"key": "gone", "operator": "Exists", "tolerationSeconds": 30}], 30),
        ([{"key": "gone", "operator": "Exists", "tolerationSeconds": -5}], 0),
        ([{"key": "gone", "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"operator": "Exists"}, {"key": "gone", "operator": "Exists", "tolerationSeconds": 30}], 30),
    ],
)
def test_how_long_a_taint_is_tolerated(tolerations: list[Raw], patience: float | None):
    assert pod_lifecycle.toleration_seconds(NO_EXECUTE, tolerations) == patience


def test_an_evicted_pod_gets_its_time_to_end():
    node = a_node(taints=[NO_EXECUTE])
    bearing = a_pod(tolerations=[{"key": "gone", "operator": "Exists", "tolerationSeconds": 30}])

    assert plan(bearing, node, gone=timedelta()) == [
        pod_lifecycle.WaitUntil(timedelta(seconds=30), "its toleration of the node's taints ends")
    ]
    (end,) = plan(bearing, node, after=30, gone=timedelta())
    assert end == pod_lifecycle.DeletePod(at_once=False, because="its toleration of taint gone has ended")


def test_a_deleting_pod_stays_while_its_kubelet_does_not_report():
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"

    assert plan(pod, a_node(), alive=False, after=900) == []
    assert plan(pod, a_node(), after=1) == [
        pod_lifecycle.DeletePod(at_once=True, because="its containers have ended")
    ]


OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}


def test_a_deleting_pod_is_collected_from_a_node_that_is_not_ready_and_out_of_service():
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"
    node = a_node(ready=False, taints=[{"key": "other", "effect": "NoExecute"}, OUT_OF_SERVICE])
    why = "node n1 is out of service"

    assert plan(pod, node, alive=False, after=19) == [pod_lifecycle.WaitUntil(timedelta(seconds=20), why)]
    assert plan(pod, node, alive=False, after=20) == [pod_lifecycle.DeletePod(at_once=True, because=why)]


def test_a_deleting_pod_is_not_collected_from_a_node_that_is_ready_or_has_no_such_taint():
    pod = a_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z"

    assert plan(pod, a_node(taints=[OUT_OF_SERVICE]), alive=False, after=900) == []
    other = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    assert plan(pod, a_node(ready=False, taints=[other]), alive=False, after=900) == []


def test_a_pod_that_is_not_deleted_is_evicted_by_the_taint_out_of_service_first():
    node = a_node(ready=False, taints=[OUT_OF_SERVICE])

    (step,) = plan(a_pod(), node, alive=False)

    assert step == pod_lifecycle.DeletePod(
        at_once=False, because="its toleration of taint node.kubernetes.io/out-of-service has ended"
    )


def test_a_pod_gets_default_tolerations_unless_it_has_its_own():
    replica_set = render_replica_set(a_deployment(), 1, {})
    replica_set["metadata"]["uid"] = "of-set"
    usual = render_pod(replica_set, REPLICA_SET, 300)["spec"]["tolerations"]
    replica_set["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]

    assert [(one["key"], one["tolerationSeconds"]) for one in usual] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert render_pod(replica_set, REPLICA_SET, 300)["spec"]["tolerations"] == [{"operator": "Exists"}]


# --- places -------------------------------------------------------------------------------------------------------


def test_a_pod_is_spread_and_avoids_nodes_with_prefer_no_schedule():
    soft = [{"key": "busy", "effect": "PreferNoSchedule"}]
    nodes = [a_node("n1"), a_node("n2"), a_node("n3", taints=soft)]

    assert find_node(a_pod("new", node=""), nodes, [a_pod("a", "n1")]).node == "n2"
    assert find_node(a_pod("new", node=""), [nodes[2]], []).node == "n3"


def test_a_toleration_of_no_schedule_does_not_cover_prefer_no_schedule():
    nodes = [a_node("n1", taints=[{"key": "busy", "effect": "PreferNoSchedule"}]), a_node("n2")]
    toleration = {"key": "busy", "operator": "Exists", "effect": "NoSchedule"}

    assert find_node(a_pod("new", node="", tolerations=[toleration]), nodes, []).node == "n2"


def test_an_affinity_term_without_expressions_matches_no_node():
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}

    assert not find_node(a_pod("new", node="", affinity={"nodeAffinity": required}), [a_node("n1")], []).node


def test_a_required_affinity_is_respected():
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = a_pod("new", node="", affinity={"nodeAffinity": required})

    assert find_node(pod, [a_node("n1"), a_node("n2", disk="fast")], []).node == "n2"
    assert find_node(pod, [a_node("n1")], []).message == (
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )


def apart(*, key: str = "kubernetes.io/hostname", selector: Raw | None = None) -> Raw:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}} if selector is None else selector,
        "topologyKey": key,
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def named(*names: str, **labels: str) -> list[Raw]:
    return [a_node(name, **{"kubernetes.io/hostname": name}, **labels) for name in names]


def test_pods_that_keep_apart_wait_for_a_node_without_one_of_them():
    pod, other = a_pod("new", node="", affinity=apart()), a_pod("a", "n1")
    message = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."

    assert find_node(pod, named("n1"), [other]).message == message
    assert find_node(pod, named("n1", "n2"), [other, pod]).node == "n2"
    assert find_node(pod, named("n1"), [a_pod("a", "n1", phase="Succeeded")]).node == "n1"
    other["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert find_node(pod, named("n1"), [other]).message == message, "until it is gone"


def test_a_pod_may_not_join_one_that_keeps_away_from_it():
    other = a_pod("a", "n1", affinity=apart(key="zone"))
    nodes = named("n1", "n2", zone="z1")

    assert find_node(a_pod("new", node=""), nodes, [other]).message == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )
    assert find_node(a_pod("new", node=""), [*nodes, *named("n3")], [other]).node == "n3", "has no zone"


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"app": "db"}}, {"matchExpressions": [{"operator": "?"}]}]
)
def test_an_anti_affinity_that_names_no_pod_here_excludes_no_node(selector: Raw):
    pod, elsewhere = a_pod("new", node="", affinity=apart(selector=selector)), a_pod("a", "n1")
    assert find_node(pod, named("n1"), [elsewhere]).node == "n1"
    elsewhere["metadata"]["namespace"] = "other"
    assert find_node(a_pod("new", node="", affinity=apart()), named("n1"), [elsewhere]).node == "n1"


# --- endpoints ----------------------------------------------------------------------------------------------------


def a_service(**spec: Any) -> Raw:
    made = new_object(
        SERVICE, "web", "default", spec={"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    )
    made["metadata"]["uid"] = "of-service"
    return made


def pages(service: Raw, pods: list[Raw]) -> list[Raw]:
    return endpoint_slices.plan_contents(service, pods, {"n1": "z1"})


def test_more_than_a_hundred_endpoints_need_another_slice():
    found = pages(a_service(), [a_pod(f"p-{number}") for number in range(250)])

    assert [len(page["endpoints"]) for page in found] == [100, 100, 50]


def test_pods_with_other_numbers_for_a_named_port_are_in_a_slice_of_their_own():
    def pod(name: str, number: int) -> Raw:
        return a_pod(name, containers=[{"name": "c", "ports": [{"name": "http", "containerPort": number}]}])

    service = a_service(ports=[{"port": 80, "targetPort": "http"}])
    found = pages(service, [pod("a", 8080), pod("b", 9090), a_pod("c")])

    assert [[one["port"] for one in page["ports"]] for page in found] == [[], [8080], [9090]]


def test_a_slice_with_equal_content_is_not_written():
    service = a_service()
    content = pages(service, [a_pod()])
    (made,) = endpoint_slices.plan_slices(service, content, [])
    assert isinstance(made, endpoint_slices.CreateSlice)

    assert endpoint_slices.plan_slices(service, content, [made.raw]) == []


def test_unready_pods_are_endpoints_with_publish_not_ready_addresses():
    pod = a_pod(ready=False)
    ((usual,), (always,)) = (
        pages(service, [pod])[0]["endpoints"]
        for service in (a_service(), a_service(publishNotReadyAddresses=True))
    )

    assert usual["conditions"] == {"ready": False, "serving": False, "terminating": False}
    assert always["conditions"] == {"ready": True, "serving": False, "terminating": False}
    assert usual["zone"] == "z1"


# --- cache --------------------------------------------------------------------------------------------------------


def test_own_writes_are_in_the_cache_at_once_and_older_events_do_not_replace_them():
    async def scenario() -> None:
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1))
        client, events = server.local(), list[Raw]()
        cache = MutationCache(AdminClient(client), POD)
        cache.add_event_handler(events.append)
        containers = [{"name": "c", "image": "i"}]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(cache.run())
            await cache.has_synced.wait()
            kept, gone = [
                await client.create(POD, new_object(POD, name, "default", spec={"containers": containers}))
                for name in ("kept", "gone")
            ]
            changed = await client.patch(POD.ref("kept", "default"), {"metadata": {"labels": {"a": "b"}}})
            cache.mutated(kept)
            cache.mutated(changed)
            cache.mutated(gone)
            assert len(cache) == 2
            await client.delete(POD.ref("gone", "default"))
            cache.deleted(gone)
            events.clear()
            await clock.sleep_until(clock.now() + timedelta(seconds=1))  # the watch brings all of it
            task.cancel()

        assert list(cache.values()) == [changed]
        assert [raw for raw in events if raw != changed] == []

    run_driven(scenario())
