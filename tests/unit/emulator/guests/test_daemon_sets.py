"""DaemonSets in a guest cluster: one pod on each node that takes it."""

from __future__ import annotations

from typing import Any

from tests.support.clock import run_driven

from windrow.kubernetes.objects import is_deleting, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import DAEMON_SET, NODE

from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
AGENT = DAEMON_SET.ref("agent", "default")
LABELS = {"app": "agent"}


def a_daemon_set(image: str = "agent:1", **pod: Any) -> Raw:
    spec = {"containers": [{"name": "agent", "image": image}], **pod}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    given = {"selector": {"matchLabels": LABELS}, "template": template}
    return new_object(DAEMON_SET, "agent", "default", spec=given)


async def wait_for_nodes(rig: Rig, *wanted: str) -> None:
    async def holds() -> bool:
        kept = all(not is_deleting(pod) for pod in await rig.pods())
        return kept and await rig.where() == list(wanted)

    await rig.testbed.wait_for(holds)


def test_every_node_whose_taints_are_tolerated_gets_a_pod_and_a_new_node_one_too():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DAEMON_SET, a_daemon_set())
            await wait_for_nodes(rig, "w1", "w2")
            rig.testbed.power_on("w3", rig.cluster.worker("w3"))
            await wait_for_nodes(rig, "w1", "w2", "w3")
            await rig.testbed.sleep(1)
            status = (await rig.kubectl.get(AGENT))["status"]
            tolerations = [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
            await rig.kubectl.patch(AGENT, {"spec": {"template": {"spec": {"tolerations": tolerations}}}})
            await wait_for_nodes(rig, "one", "w1", "w2", "w3")

            assert status["desiredNumberScheduled"] == status["numberAvailable"] == 3
            assert status["numberMisscheduled"] == 0

    run_driven(scenario())


def test_a_node_that_loses_the_label_of_the_selector_loses_its_pod():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            for name in ("w1", "w2"):
                await rig.kubectl.patch(NODE.ref(name), {"metadata": {"labels": {"disk": "ssd"}}})
            await rig.create(DAEMON_SET, a_daemon_set(nodeSelector={"disk": "ssd"}))
            await wait_for_nodes(rig, "w1", "w2")
            await rig.kubectl.patch(NODE.ref("w2"), {"metadata": {"labels": {"disk": None}}})
            await wait_for_nodes(rig, "w1")

    run_driven(scenario())


def test_its_pods_stay_on_a_cordoned_node_and_on_one_that_is_not_ready():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(DAEMON_SET, a_daemon_set())
            await wait_for_nodes(rig, "w1")
            (before,) = await rig.pods()
            await rig.kubectl.patch(NODE.ref("w1"), {"spec": {"unschedulable": True}})
            await rig.testbed.sleep(3)
            await rig.testbed.cut_power("w1")
            await rig.testbed.sleep(400)
            (after,) = await rig.pods()

            assert not is_deleting(after)
            assert name_of(after) == name_of(before)

    run_driven(scenario())


def test_a_new_template_replaces_one_pod_after_the_other():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(DAEMON_SET, a_daemon_set())
            await wait_for_nodes(rig, "w1", "w2")
            await rig.kubectl.patch(AGENT, {"spec": a_daemon_set("agent:2")["spec"]})
            fewest = 2

            async def is_updated() -> bool:
                nonlocal fewest
                ready = await rig.ready()
                fewest = min(fewest, len(ready))
                images = [nested(pod, "spec", "containers", 0, "image") for pod in ready]
                return images == ["agent:2", "agent:2"]

            await rig.testbed.wait_for(is_updated)
            await rig.testbed.sleep(1)

            assert fewest == 1
            assert {labels_of(pod)["pod-template-generation"] for pod in await rig.ready()} == {"2"}
            assert (await rig.kubectl.get(AGENT))["status"]["updatedNumberScheduled"] == 2

    run_driven(scenario())
