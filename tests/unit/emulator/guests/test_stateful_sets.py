"""StatefulSets in a guest cluster: ordinals, claims that outlive pods, and one pod at a time."""

from __future__ import annotations

from typing import Any

from tests.support.clock import run_driven

from windrow.kubernetes.objects import is_deleting, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import CONTROLLER_REVISION, NODE, POD, PVC, STATEFUL_SET

from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
DB = STATEFUL_SET.ref("db", "default")
LABELS = {"app": "db"}


def a_stateful_set(replicas: int = 2, image: str = "db:1", *, claims: bool = True, **spec: Any) -> Raw:
    container = {"name": "db", "image": image}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    claim = {
        "metadata": {"name": "data", "labels": {"tier": "gold"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    given = {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": LABELS},
        "template": template,
        **({"volumeClaimTemplates": [claim]} if claims else {}),
        **spec,
    }
    return new_object(STATEFUL_SET, "db", "default", spec=given)


async def ready_names(rig: Rig) -> list[str]:
    return sorted(name_of(pod) for pod in await rig.ready())


async def claims(rig: Rig) -> list[str]:
    """Claims that are there to stay."""
    found = await rig.kubectl.list(PVC, "default")
    return sorted(name_of(raw) for raw in found if not is_deleting(raw))


async def wait_for_names(rig: Rig, *wanted: str) -> None:
    async def holds() -> bool:
        gone = all(not is_deleting(pod) for pod in await rig.pods())
        return gone and await ready_names(rig) == list(wanted)

    await rig.testbed.wait_for(holds)


def test_its_pods_are_created_one_after_the_other_and_have_names_and_claims_by_their_ordinals():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(STATEFUL_SET, a_stateful_set(2, claims=False))
            seen: list[list[str]] = []

            async def watch() -> bool:
                names = sorted(name_of(pod) for pod in await rig.pods())
                if not seen or seen[-1] != names:
                    seen.append(names)
                return await ready_names(rig) == ["db-0", "db-1"]

            await rig.testbed.wait_for(watch)

            assert [names for names in seen if names] == [["db-0"], ["db-0", "db-1"]]
            pod = await rig.kubectl.get(POD.ref("db-1", "default"))
            assert labels_of(pod)["statefulset.kubernetes.io/pod-name"] == "db-1"
            assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")

    run_driven(scenario())


def test_with_parallel_all_pods_are_created_at_once():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            raw = a_stateful_set(3, claims=False, podManagementPolicy="Parallel")
            await rig.create(STATEFUL_SET, raw)
            await rig.testbed.sleep(0.5)

            assert sorted(name_of(pod) for pod in await rig.pods()) == ["db-0", "db-1", "db-2"]

    run_driven(scenario())


def test_each_pod_has_claims_of_the_templates_that_stay_when_it_is_scaled_away_and_when_the_set_is_deleted():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(STATEFUL_SET, a_stateful_set(2, podManagementPolicy="Parallel"))
            await rig.testbed.sleep(1)
            claim = await rig.kubectl.get(PVC.ref("data-db-0", "default"))
            pod = await rig.kubectl.get(POD.ref("db-0", "default"))
            await rig.kubectl.patch(DB, {"spec": {"replicas": 1}})
            await rig.testbed.sleep(5)
            left = await rig.pods()
            await rig.kubectl.delete(DB)
            await rig.testbed.sleep(5)

            assert labels_of(claim) == {"app": "db", "tier": "gold"}
            assert pod["spec"]["volumes"] == [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
            ]
            assert [name_of(one) for one in left] == ["db-0"]
            assert await rig.pods() == []
            assert await claims(rig) == ["data-db-0", "data-db-1"]

    run_driven(scenario())


def test_a_claim_is_deleted_with_its_pod_or_with_the_set_where_the_retention_policy_says_so():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
            raw = a_stateful_set(
                2, podManagementPolicy="Parallel", persistentVolumeClaimRetentionPolicy=policy
            )
            await rig.create(STATEFUL_SET, raw)
            await rig.testbed.sleep(3)
            await rig.kubectl.patch(DB, {"spec": {"replicas": 1}})
            await rig.testbed.sleep(5)
            scaled = await claims(rig)
            policy = {"whenScaled": "Retain", "whenDeleted": "Delete"}
            await rig.kubectl.patch(DB, {"spec": {"persistentVolumeClaimRetentionPolicy": policy}})
            await rig.testbed.sleep(3)
            (owner,) = (await rig.kubectl.get(PVC.ref("data-db-0", "default")))["metadata"]["ownerReferences"]

            assert scaled == ["data-db-0"]
            assert (owner["kind"], owner["name"]) == ("StatefulSet", "db")

    run_driven(scenario())


def test_a_new_template_replaces_the_pods_from_the_highest_ordinal_down_to_the_partition():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(STATEFUL_SET, a_stateful_set(3, claims=False))
            await wait_for_names(rig, "db-0", "db-1", "db-2")
            strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
            spec = a_stateful_set(3, "db:2", claims=False, updateStrategy=strategy)["spec"]
            await rig.kubectl.patch(DB, {"spec": spec})

            async def images() -> list[str]:
                pods = sorted(await rig.ready(), key=name_of)
                return [nested(pod, "spec", "containers", 0, "image") for pod in pods]

            async def is_updated() -> bool:
                return await images() == ["db:1", "db:2", "db:2"]

            await rig.testbed.wait_for(is_updated)
            await rig.testbed.sleep(5)
            held = await is_updated()
            await rig.kubectl.delete(POD.ref("db-0", "default"))
            await rig.testbed.sleep(2)
            await wait_for_names(rig, "db-0", "db-1", "db-2")
            again = await images()
            status = (await rig.kubectl.get(DB))["status"]
            await rig.kubectl.patch(DB, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
            await rig.testbed.wait_for(lambda: all_updated(rig))

            assert held
            assert again == ["db:1", "db:2", "db:2"], "a pod below the partition is of the template before"
            assert (status["currentReplicas"], status["updatedReplicas"]) == (1, 2)
            assert len(await rig.kubectl.list(CONTROLLER_REVISION, "default")) == 2

    async def all_updated(rig: Rig) -> bool:
        status = (await rig.kubectl.get(DB))["status"]
        return (
            status.get("updatedReplicas") == status.get("readyReplicas") == 3
            and status["currentRevision"] == status["updateRevision"]
        )

    run_driven(scenario())


def test_the_pod_of_a_lost_node_is_not_created_elsewhere_until_its_node_is_deleted():
    async def scenario() -> None:
        async with a_rig("w1", "w2") as rig:
            await rig.create(STATEFUL_SET, a_stateful_set(1, claims=False))
            await wait_for_names(rig, "db-0")
            (node,) = await rig.where()
            await rig.testbed.cut_power(node)
            await rig.testbed.sleep(400)
            (pod,) = await rig.pods()
            terminating = is_deleting(pod)
            await rig.kubectl.delete(NODE.ref(node))
            await wait_for_names(rig, "db-0")

            assert terminating
            assert await rig.where() != [node]

    run_driven(scenario())
