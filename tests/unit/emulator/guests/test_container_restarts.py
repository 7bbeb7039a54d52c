"""Pods of Jobs whose containers fail: with restartPolicy OnFailure they restart in place, with Never the Job makes other pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import nested, uid_of
from windrow.kubernetes.resources import JOB

from .test_host_jobs import a_host_job, log_of, node_os, status, terminated, wait_for_condition, waiting
from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
IN_PLACE = {"restartPolicy": "OnFailure"}


async def container(rig: Rig, list: str = "containerStatuses") -> Raw:
    """The status of the only container of the only pod."""
    (pod,) = await rig.pods()
    found: Raw = nested(pod, "status", list, 0, default={})
    return found


async def wait_for_restarts(rig: Rig, count: int, list: str = "containerStatuses") -> float:
    async def holds() -> bool:
        return bool(await rig.pods()) and (await container(rig, list)).get("restartCount", 0) >= count

    return await rig.testbed.wait_for(holds)


def test_a_container_that_fails_is_started_again_in_its_pod_ever_later():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_host_job("sh", "-c", "echo no; exit 3", pod=IN_PLACE, backoffLimit=9))
            await wait_for_restarts(rig, 1)
            (first,) = await rig.pods()
            took = [await wait_for_restarts(rig, number) for number in (2, 3, 4)]
            await rig.testbed.sleep(5)
            (pod,) = await rig.pods()
            found = await container(rig)

            assert [round(one / 10) for one in took] == [1, 2, 4]
            assert uid_of(pod) == uid_of(first)
            assert nested(pod, "status", "phase") == "Running"
            assert not is_true(pod["status"]["conditions"], "Ready")
            assert waiting(pod)["reason"] == "CrashLoopBackOff"
            assert waiting(pod)["message"].startswith(
                "back-off 1m20s restarting failed container=work pod=work-"
            )
            assert (found["restartCount"], found["ready"]) == (4, False)
            ended = found["lastState"]["terminated"]
            assert (ended["exitCode"], ended["reason"]) == (3, "Error")
            assert (await status(rig))["active"] == 1
            assert "failed" not in await status(rig)
            assert (await log_of(rig, pod)).body == b"no\n"  # of its last run alone

    run_driven(scenario())


def test_a_container_that_ends_well_after_a_restart_completes_its_job():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = "test -e /host/go && echo done"
            await rig.create(JOB, a_host_job("sh", "-c", script, pod=IN_PLACE, backoffLimit=9))
            await wait_for_restarts(rig, 2)
            node_os(rig).write("/go", b"")
            await wait_for_condition(rig, "Complete")
            (pod,) = await rig.pods()

            assert nested(pod, "status", "phase") == "Succeeded"
            assert terminated(pod)["exitCode"] == 0
            assert (await container(rig))["restartCount"] == 3
            assert (await status(rig))["succeeded"] == 1
            assert "failed" not in await status(rig)

    run_driven(scenario())


@pytest.mark.parametrize(("limit", "restarts"), [(0, 1), (1, 1), (3, 3)])
def test_a_job_whose_container_restarts_as_often_as_its_backoff_limit_has_failed(limit: int, restarts: int):
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_host_job("sh", "-c", "exit 1", pod=IN_PLACE, backoffLimit=limit))
            await wait_for_restarts(rig, restarts)
            await wait_for_condition(rig, "Failed")
            await rig.testbed.sleep(60)
            found = await status(rig)
            failed = find_condition(found["conditions"], "Failed")

            assert failed is not None
            assert failed.reason == "BackoffLimitExceeded"
            assert found["failed"] == 1
            assert await rig.pods() == []  # the one that went on is deleted

    run_driven(scenario())


def test_with_never_each_failure_is_another_pod_and_all_of_them_stay():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_host_job("sh", "-c", "exit 1", backoffLimit=2))
            await wait_for_condition(rig, "Failed")
            pods = await rig.pods()

            assert [nested(pod, "status", "phase") for pod in pods] == ["Failed"] * 3
            assert [nested(pod, "status", "containerStatuses", 0, "restartCount") for pod in pods] == [0] * 3
            assert (await status(rig))["failed"] == 3

    run_driven(scenario())


def test_an_init_container_that_fails_is_started_again_and_those_before_it_are_not():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            before = {
                "name": "before",
                "image": "busybox:1.36",
                "command": ["sh", "-c", "echo one >> /host/ran"],
            }
            check = {"name": "check", "image": "busybox:1.36", "command": ["sh", "-c", "test -e /host/go"]}
            mounts = [{"name": "v0", "mountPath": "/host"}]
            pod = {**IN_PLACE, "initContainers": [one | {"volumeMounts": mounts} for one in (before, check)]}
            await rig.create(JOB, a_host_job("sh", "-c", "true", pod=pod, backoffLimit=9))
            await wait_for_restarts(rig, 2, "initContainerStatuses")
            node_os(rig).write("/go", b"")
            await wait_for_condition(rig, "Complete")

            assert node_os(rig).read_text("/ran") == "one\n"
            assert (await container(rig))["restartCount"] == 0

    run_driven(scenario())


def test_a_container_that_was_running_when_the_power_was_cut_is_started_again_in_place():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_host_job("sh", "-c", "sleep 60", pod=IN_PLACE, backoffLimit=9))
            await rig.testbed.sleep(10)
            (first,) = await rig.pods()
            await rig.testbed.cut_power("w1")
            rig.testbed.power_on("w1")
            await wait_for_condition(rig, "Complete")
            (pod,) = await rig.pods()
            found = await container(rig)

            assert uid_of(pod) == uid_of(first)
            assert found["restartCount"] == 1
            assert found["lastState"]["terminated"]["exitCode"] == 255

    run_driven(scenario())
