"""Deployments, their pods and the endpoints of Services in a guest cluster whose machines are powered off and on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.clock import run_driven

from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import is_deleting, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import DEPLOYMENT, NODE, POD, REPLICA_SET, SERVICE

from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed

Raw = dict[str, Any]
WEB = DEPLOYMENT.ref("web", "default")


def a_deployment(replicas: int = 2, image: str = "web:1", **pod: Any) -> Raw:
    labels = {"app": "web"}
    container = {"name": "web", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return new_object(DEPLOYMENT, "web", "default", spec=spec)


def a_service(**spec: Any) -> Raw:
    given = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}], **spec}
    return new_object(SERVICE, "web", "default", spec=given)


class Rig:
    """A server and workers without a cloud provider."""

    def __init__(self, testbed: MachineTestbed) -> None:
        self.testbed = testbed
        self.cluster = ClusterFixture()
        self.kubectl = Kubectl(testbed, self.cluster)

    async def start(self, *workers: str) -> None:
        taint = ["CriticalAddonsOnly=true:NoExecute"]
        self.testbed.power_on("one", self.cluster.first("one", **{"node-taint": taint} if workers else {}))
        await self.testbed.wait_for(self.all_ready("one"))
        for name in workers:
            self.testbed.power_on(name, self.cluster.worker(name))
        await self.testbed.wait_for(self.all_ready("one", *workers))

    def all_ready(self, *names: str) -> Any:
        async def holds() -> bool:
            return await self.kubectl.ready() >= set(names)

        return holds

    async def create(self, kind: Any, raw: Raw) -> None:
        await self.kubectl.send(requests.create(kind, raw))

    async def pods(self) -> list[Raw]:
        return await self.kubectl.list(POD, "default")

    async def ready(self) -> list[Raw]:
        """Pods that are Ready and stay."""
        found = await self.pods()
        return [
            pod
            for pod in found
            if is_true(nested(pod, "status", "conditions"), "Ready") and not is_deleting(pod)
        ]

    async def where(self) -> list[str]:
        """The nodes of the pods that are Ready."""
        return sorted(nested(pod, "spec", "nodeName") for pod in await self.ready())

    async def ready_pods(self, count: int) -> float:
        async def holds() -> bool:
            return len(await self.ready()) == count

        return await self.testbed.wait_for(holds)

    async def endpoints(self) -> list[Raw]:
        slices = await self.kubectl.list(ENDPOINT_SLICE, "default")
        return [one for raw in slices for one in raw.get("endpoints") or ()]

    async def addresses(self) -> list[str]:
        """Those of endpoints that are ready."""
        return [one["addresses"][0] for one in await self.endpoints() if nested(one, "conditions", "ready")]


@asynccontextmanager
async def a_rig(*workers: str) -> AsyncIterator[Rig]:
    async with a_testbed() as testbed:
        rig = Rig(testbed)
        await rig.start(*workers)
        yield rig


def test_a_deployment_gets_its_pods_on_different_nodes_within_seconds():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DEPLOYMENT, a_deployment())
            took = await rig.ready_pods(2)
            pods = await rig.ready()

            assert took <= 4
            assert await rig.where() == ["w1", "w2"]
            assert len({pod["status"]["podIP"] for pod in pods}) == 2
            assert all(labels_of(pod)["pod-template-hash"] for pod in pods)
            sets = await rig.kubectl.list(REPLICA_SET, "default")
            assert {owner["uid"] for pod in pods for owner in pod["metadata"]["ownerReferences"]} == {
                sets[0]["metadata"]["uid"]
            }

    run_driven(scenario())


def test_the_counts_in_the_statuses_are_those_of_the_pods():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(DEPLOYMENT, a_deployment(3))
            await rig.ready_pods(3)
            await rig.testbed.sleep(1)
            status = (await rig.kubectl.get(WEB))["status"]
            (one,) = await rig.kubectl.list(REPLICA_SET, "default")

            counts = {key: value for key, value in status.items() if key.endswith("eplicas")}
            assert counts == dict.fromkeys(
                ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 3
            )
            assert is_true(status["conditions"], "Available")
            assert one["status"]["readyReplicas"] == 3

    run_driven(scenario())


def test_a_deployment_scales_and_its_objects_are_deleted_with_it():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DEPLOYMENT, a_deployment(2))
            await rig.ready_pods(2)
            await rig.kubectl.patch(WEB, {"spec": {"replicas": 5}})
            await rig.ready_pods(5)
            await rig.kubectl.patch(WEB, {"spec": {"replicas": 1}})
            await rig.ready_pods(1)
            await rig.testbed.sleep(3)
            assert len(await rig.pods()) == 1
            await rig.kubectl.delete(WEB)
            await rig.testbed.sleep(5)

            assert await rig.pods() == []
            assert await rig.kubectl.list(REPLICA_SET, "default") == []

    run_driven(scenario())


def test_a_new_template_rolls_through_without_ever_being_below_what_is_allowed():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DEPLOYMENT, a_deployment(4))
            await rig.ready_pods(4)
            await rig.kubectl.patch(WEB, {"spec": a_deployment(4, "web:2")["spec"]})
            least, most = 4, 0

            async def rolled() -> bool:
                nonlocal least, most
                ready, pods = await rig.ready(), await rig.pods()
                least = min(least, len(ready))
                most = max(most, sum(not is_deleting(pod) for pod in pods))
                images = [pod["spec"]["containers"][0]["image"] for pod in pods]
                return images == ["web:2"] * 4 and len(ready) == 4

            await rig.testbed.wait_for(rolled)
            assert (least, most) == (3, 5)

    run_driven(scenario())


def test_endpoints_are_the_ready_pods_of_a_service():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(SERVICE, a_service())
            await rig.testbed.sleep(1)
            assert await rig.endpoints() == []
            await rig.create(DEPLOYMENT, a_deployment())
            await rig.ready_pods(2)
            await rig.testbed.sleep(1)
            (slice_,) = await rig.kubectl.list(ENDPOINT_SLICE, "default")
            pods = {name_of(pod): pod for pod in await rig.ready()}

            assert labels_of(slice_)["endpointslice.kubernetes.io/managed-by"] == (
                "endpointslice-controller.k8s.io"
            )
            assert slice_["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
            for one in slice_["endpoints"]:
                pod = pods.pop(one["targetRef"]["name"])
                assert one["addresses"] == [pod["status"]["podIP"]]
                assert one["nodeName"] == pod["spec"]["nodeName"]
                assert one["conditions"] == {"ready": True, "serving": True, "terminating": False}
            assert pods == {}
            await rig.kubectl.delete(SERVICE.ref("web", "default"))
            await rig.testbed.sleep(1)
            assert await rig.kubectl.list(ENDPOINT_SLICE, "default") == []

    run_driven(scenario())


def test_pods_of_a_node_without_power_are_no_endpoints_after_its_grace_and_are_replaced_after_their_toleration():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(SERVICE, a_service())
            await rig.create(DEPLOYMENT, a_deployment())
            await rig.ready_pods(2)
            await rig.testbed.sleep(1)
            await rig.testbed.cut_power("w1")
            await rig.testbed.sleep(20)
            assert len(await rig.addresses()) == 2
            await rig.testbed.sleep(25)
            assert len(await rig.addresses()) == 1
            assert await rig.where() == ["w2"]
            await rig.testbed.sleep(280)
            assert len(await rig.pods()) == 2
            await rig.testbed.sleep(30)
            assert await rig.where() == ["w2", "w2"]
            assert len(await rig.addresses()) == 2
            # The old pod stays: its kubelet does not report.
            assert sum(is_deleting(pod) for pod in await rig.pods()) == 1
            await rig.kubectl.delete(NODE.ref("w1"))
            await rig.testbed.sleep(1)
            assert len(await rig.pods()) == 2

    run_driven(scenario())


def test_a_node_that_comes_back_in_time_has_its_pods_ready_again():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DEPLOYMENT, a_deployment())
            await rig.ready_pods(2)
            before = {name_of(pod) for pod in await rig.ready()}
            await rig.testbed.cut_power("w1")
            await rig.ready_pods(1)
            rig.testbed.power_on("w1")
            await rig.ready_pods(2)

            assert {name_of(pod) for pod in await rig.ready()} == before

    run_driven(scenario())


def test_a_deleted_nodes_pods_are_replaced_at_once():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DEPLOYMENT, a_deployment())
            await rig.ready_pods(2)
            await rig.testbed.cut_power("w1")
            await rig.kubectl.delete(NODE.ref("w1"))
            await rig.testbed.sleep(4)

            assert await rig.where() == ["w2", "w2"]

    run_driven(scenario())


def test_unschedulable_pods_have_a_message_and_are_scheduled_when_a_node_fits():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.kubectl.patch(NODE.ref("w1"), {"spec": {"unschedulable": True}})
            await rig.create(DEPLOYMENT, a_deployment(1))
            await rig.testbed.sleep(5)
            (pod,) = await rig.pods()
            condition = find_condition(pod["status"]["conditions"], "PodScheduled")
            assert condition is not None
            assert condition.message == (
                "0/2 nodes are available: 1 node(s) had untolerated taint {CriticalAddonsOnly: true}, "
                "1 node(s) were unschedulable."
            )
            await rig.kubectl.patch(NODE.ref("w1"), {"spec": {"unschedulable": None}})
            await rig.ready_pods(1)

    run_driven(scenario())


def test_tolerations_and_node_selectors_are_respected():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            tolerations = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
            here = {"kubernetes.io/hostname": "one"}
            await rig.create(DEPLOYMENT, a_deployment(1, tolerations=tolerations, nodeSelector=here))
            await rig.ready_pods(1)

            assert await rig.where() == ["one"]

    run_driven(scenario())


def test_an_evicted_pod_ends_in_its_time_and_is_replaced_elsewhere():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(SERVICE, a_service())
            await rig.create(DEPLOYMENT, a_deployment(1, nodeSelector={}))
            await rig.ready_pods(1)
            (pod,) = await rig.ready()
            await rig.kubectl.patch(
                NODE.ref(nested(pod, "spec", "nodeName")), {"spec": {"unschedulable": True}}
            )
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod["metadata"]}
            ref = POD.ref(name_of(pod), "default")
            await rig.kubectl.send(requests.create_subresource(ref, "eviction", body))
            leaving = await rig.kubectl.get(ref)
            await rig.testbed.sleep(0.5)
            (one,) = [one for one in await rig.endpoints() if one["targetRef"]["name"] == name_of(pod)]
            await rig.ready_pods(1)
            await rig.testbed.sleep(2)

            assert is_deleting(leaving)
            assert one["conditions"] == {"ready": False, "serving": True, "terminating": True}
            assert [name_of(other) != name_of(pod) for other in await rig.pods()] == [True]
            assert await rig.where() != [nested(pod, "spec", "nodeName")]

    run_driven(scenario())


def test_another_server_leads_when_the_leader_loses_power():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            rig = Rig(testbed)
            await rig.start()
            for name in ("two", "three"):
                testbed.power_on(name, rig.cluster.server(name))
                await testbed.wait_for(rig.all_ready("one", name))
            await rig.create(DEPLOYMENT, a_deployment(3))
            await rig.ready_pods(3)
            await testbed.cut_power("one")
            rig.kubectl.address = "10.0.0.12"
            await testbed.sleep(60)
            assert await rig.where() == ["three", "two"]
            await testbed.sleep(320)
            assert len(await rig.ready()) == 3

    run_driven(scenario())
