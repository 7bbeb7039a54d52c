"""Jobs in a guest cluster: pods until enough have succeeded, or too many failed."""

from __future__ import annotations

from typing import Any

from tests.support.clock import run_driven

from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import finalizers_of, labels_of, nested, new_object, uid_of
from windrow.kubernetes.resources import JOB, POD, ref_of

from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
WORK = JOB.ref("work", "default")


def a_job(restart: str = "Never", **spec: Any) -> Raw:
    pod = {"containers": [{"name": "work", "image": "work:1"}], "restartPolicy": restart}
    return new_object(JOB, "work", "default", spec={"template": {"spec": pod}, **spec})


async def status(rig: Rig) -> Raw:
    found: Raw = (await rig.kubectl.get(WORK)).get("status") or {}
    return found


async def wait_for_condition(rig: Rig, type: str) -> float:
    async def holds() -> bool:
        return is_true((await status(rig)).get("conditions"), type)

    return await rig.testbed.wait_for(holds)


async def fail_pods(rig: Rig) -> None:
    """What a kubelet writes when a container exits with an error."""
    for pod in await rig.pods():
        if nested(pod, "status", "phase") in ("Pending", "Running"):
            await rig.kubectl.patch(ref_of(POD, pod), {"status": {"phase": "Failed"}}, "status")


def test_a_job_runs_as_many_pods_at_once_as_its_parallelism_until_its_completions_are_reached():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job(completions=3, parallelism=2))
            most = 0

            async def watch() -> bool:
                nonlocal most
                found = await status(rig)
                most = max(most, found.get("active", 0))
                return is_true(found.get("conditions"), "Complete")

            await rig.testbed.wait_for(watch)
            found, pods = await status(rig), await rig.pods()

            assert most == 2
            assert found["succeeded"] == len(pods) == 3
            assert found["uncountedTerminatedPods"] == {}
            assert [one["type"] for one in found["conditions"]] == ["SuccessCriteriaMet", "Complete"]
            assert all(nested(pod, "status", "phase") == "Succeeded" for pod in pods)
            assert not any(finalizers_of(pod) for pod in pods)

    run_driven(scenario())


def test_a_job_knows_its_pods_by_a_selector_of_its_own():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job())
            await rig.testbed.sleep(1)
            job, (pod,) = await rig.kubectl.get(WORK), await rig.pods()

            assert job["spec"]["selector"]["matchLabels"] == {
                "batch.kubernetes.io/controller-uid": uid_of(job)
            }
            assert labels_of(pod)["job-name"] == "work"
            assert finalizers_of(pod) == ["batch.kubernetes.io/job-tracking"]

    run_driven(scenario())


def test_pods_that_fail_are_replaced_with_a_growing_delay_until_the_backoff_limit():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job(backoffLimit=2))
            starts: list[float] = []
            for number in range(1, 4):

                async def has_created(number: int = number) -> bool:
                    return len(await rig.pods()) == number

                starts.append(await rig.testbed.wait_for(has_created))
                await fail_pods(rig)
            await wait_for_condition(rig, "Failed")
            found = await status(rig)
            failed = find_condition(found["conditions"], "Failed")

            assert 9 <= starts[1] <= 12
            assert 19 <= starts[2] <= 22
            assert found["failed"] == 3
            assert "completionTime" not in found
            assert failed is not None
            assert (failed.reason, failed.message) == (
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            )

    run_driven(scenario())


def test_a_job_ends_at_its_deadline_and_its_pods_with_it():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            pod = {"nodeSelector": {"disk": "none"}}
            raw = a_job(activeDeadlineSeconds=30)
            raw["spec"]["template"]["spec"] |= pod
            await rig.create(JOB, raw)
            took = await wait_for_condition(rig, "Failed")

            assert 29 <= took <= 33
            assert await rig.pods() == []
            assert (await status(rig))["failed"] == 1

    run_driven(scenario())


def test_a_finished_job_is_deleted_after_its_time_to_live():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job(ttlSecondsAfterFinished=60))
            await wait_for_condition(rig, "Complete")
            await rig.testbed.sleep(58)
            kept = await rig.kubectl.list(JOB, "default")
            await rig.testbed.sleep(5)

            assert len(kept) == 1

            assert await rig.kubectl.list(JOB, "default") == []
            assert await rig.pods() == []

    run_driven(scenario())


def test_a_suspended_job_has_no_pods_until_it_is_resumed():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job(suspend=True))
            await rig.testbed.sleep(5)
            before, pods = await status(rig), await rig.pods()
            await rig.kubectl.patch(WORK, {"spec": {"suspend": False}})
            await wait_for_condition(rig, "Complete")

            assert pods == []
            assert is_true(before["conditions"], "Suspended")
            assert "startTime" not in before

    run_driven(scenario())


def test_a_deleted_job_takes_its_pods_with_it_though_they_were_not_counted():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_job(completions=5, parallelism=5))
            await rig.testbed.sleep(1)
            await rig.kubectl.delete(WORK)
            await rig.testbed.sleep(5)

            assert await rig.pods() == []

    run_driven(scenario())
