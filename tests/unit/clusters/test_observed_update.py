"""Readings of the Job that changes a machine, of its pod, and of static pods."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.bootstrap.install.update_job import MACHINE_LABEL
from windrow.clusters.updates.observed import (
    MAX_MESSAGE,
    ObservedJob,
    UpdateJobObject,
    UpdatePod,
    list_former_jobs,
    list_outdated_static_pods,
    observe_job,
    read_update_job,
    read_update_pod,
)

JOB = "windrow-update-1"


def a_pod(phase: str, **container: Any) -> dict[str, Any]:
    statuses = [{"name": "update", "state": container}] if container else []
    labels = {"batch.kubernetes.io/job-name": JOB}
    return {
        "metadata": {"name": f"{JOB}-x", "labels": labels},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def of_pod(phase: str, **container: Any) -> ObservedJob:
    pod = read_update_pod(a_pod(phase, **container))
    assert pod is not None
    return observe_job(JOB, UpdateJobObject(JOB, False, ""), [pod])


def test_a_job_is_as_its_pod() -> None:
    assert of_pod("Succeeded") == ObservedJob(JOB, "succeeded")
    assert of_pod("Running") == ObservedJob(JOB, "running")
    assert of_pod("Pending") == ObservedJob(JOB, "waiting")


@pytest.mark.parametrize(
    ("reason", "is_missing"),
    [("ImagePullBackOff", True), ("ErrImagePull", True), ("ContainerCreating", False)],
)
def test_a_pod_that_does_not_run_says_why_and_whether_it_is_its_image(reason: str, is_missing: bool) -> None:
    found = of_pod("Pending", waiting={"reason": reason, "message": "no such host"})

    assert found == ObservedJob(JOB, "waiting", f"{reason}: no such host", is_missing)


def test_a_pod_that_has_failed_has_the_last_whole_lines_of_its_output() -> None:
    lines = "one\n\n two \nthree\nfour\nfive\n"
    long = f"early\n{'x' * MAX_MESSAGE}\nlast\n"

    assert of_pod("Failed", terminated={"message": lines}).message == "two | three | four | five"
    assert of_pod("Failed", terminated={"message": long}).message == "last"
    again = "12:00:01 no such release\n12:00:02 no such release\nold runs on"
    assert of_pod("Failed", terminated={"message": again}).message == "12:00:02 no such release | old runs on"
    assert of_pod("Failed", terminated={"exitCode": 255}).message == "exit code 255"
    assert of_pod("Failed").message == "its pod has failed"
    evicted = a_pod("Failed")
    for told, message in (
        ("the node was low on memory", "the node was low on memory"),
        (None, "its pod has failed"),
    ):
        evicted["status"]["message"] = told
        pod = read_update_pod(evicted)
        assert pod is not None
        assert pod.message == message


def test_what_a_pod_says_holds_no_control_characters_and_is_bounded() -> None:
    told = "\x1b]0;owned\x07\x1b[2Jrun\u202e this"
    failed = {"type": "Failed", "status": "True", "message": told * 100}
    raw = {"metadata": {"name": JOB}, "status": {"conditions": [failed]}}

    ended = of_pod("Failed", terminated={"message": told}).message
    waiting = of_pod("Pending", waiting={"reason": "X\n", "message": told * 100}).message
    of_job = observe_job(JOB, read_update_job(raw), []).message
    assert ended == "?]0;owned??[2Jrun? this"
    assert waiting.isprintable()
    assert of_job.isprintable()
    assert max(len(waiting), len(of_job)) <= MAX_MESSAGE


def test_former_jobs_of_a_machine_are_those_besides_the_present_and_pods_without_one() -> None:
    jobs = [UpdateJobObject(name, False, "", uid) for name, uid in (("now", "m"), ("old", "m"), ("x", "n"))]
    pods = [
        UpdatePod("now", "running", machine_uid="m"),
        UpdatePod("left", "running", machine_uid="m"),
        UpdatePod("over", "succeeded", machine_uid="m"),
        UpdatePod("y", "running", machine_uid="n"),
    ]

    assert list_former_jobs("m", "now", jobs, pods) == (
        ObservedJob("left", "running"),
        ObservedJob("old", "waiting"),
        ObservedJob("over", "succeeded"),
    )


def test_the_machine_of_a_job_and_of_its_pod_is_in_their_label() -> None:
    labels = {"batch.kubernetes.io/job-name": JOB, MACHINE_LABEL: "m"}
    for phase in ("Pending", "Running", "Succeeded", "Failed"):
        pod = read_update_pod({"metadata": {"name": "p", "labels": labels}, "status": {"phase": phase}})
        assert pod is not None
        assert pod.machine_uid == "m"
    job = read_update_job({"metadata": {"name": JOB, "labels": labels}})
    assert job is not None
    assert job.machine_uid == "m"


def test_without_a_pod_the_job_itself_says_whether_it_goes_on() -> None:
    failed = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    raw = {"metadata": {"name": JOB}, "status": {"conditions": [failed]}}

    assert observe_job(JOB, read_update_job(raw), []) == ObservedJob(JOB, "failed", "BackoffLimitExceeded")
    assert observe_job(JOB, UpdateJobObject(JOB, False, ""), []) == ObservedJob(JOB, "waiting")
    assert observe_job(JOB, None, []) == ObservedJob(JOB, "absent")


@pytest.mark.parametrize(
    ("type", "status", "failed"),
    [("Failed", "True", True), ("Failed", "False", False), ("Complete", "True", False)],
)
def test_a_job_has_failed_where_its_condition_says_so(type: str, status: str, failed: bool) -> None:
    condition = {"type": type, "status": status}
    job = read_update_job({"metadata": {"name": JOB}, "status": {"conditions": [condition]}})
    assert job is not None
    assert job.failed is failed


def test_a_job_that_is_being_deleted_is_gone_but_for_what_its_pod_has_shown() -> None:
    assert read_update_job({"metadata": {"name": JOB, "deletionTimestamp": "2026-01-01T12:00:00Z"}}) is None
    done, running = read_update_pod(a_pod("Succeeded")), read_update_pod(a_pod("Running"))
    assert done is not None
    assert running is not None
    assert observe_job(JOB, None, [done]).state == "succeeded"
    assert observe_job(JOB, None, [running]).state == "absent"


def test_the_pod_of_another_job_says_nothing() -> None:
    done = read_update_pod(a_pod("Succeeded"))
    assert done is not None

    assert observe_job("windrow-update-2", None, [done]) == ObservedJob("windrow-update-2", "absent")


def a_static_pod(name: str, image: str, **annotations: str) -> dict[str, Any]:
    marks = annotations or {"kubernetes.io/config.mirror": "1"}
    return {"metadata": {"name": name, "annotations": marks}, "spec": {"containers": [{"image": image}]}}


def test_static_pods_of_kubernetes_are_compared_with_the_release_and_others_are_not() -> None:
    pods = [
        a_static_pod("kube-apiserver-s1", "rancher/hardened-kubernetes:v1.35.4-rke2r1-build20260101"),
        a_static_pod("kube-scheduler-s1", "registry.site:5000/rancher/hardened-kubernetes:v1.35.1-rke2r1"),
        a_static_pod("kube-proxy-s1", "rancher/hardened-kubernetes:v1.35.40-rke2r1"),
        a_static_pod("etcd-s1", "rancher/hardened-etcd:v3.5.9"),
        a_static_pod("app", "rancher/hardened-kubernetes:v1.30.0", other="1"),
    ]

    assert list_outdated_static_pods(pods, "v1.35.4+rke2r1") == ("kube-proxy-s1", "kube-scheduler-s1")


def test_a_pod_that_failed_without_a_word_has_its_exit_code() -> None:
    pod = a_pod("Failed", terminated={"exitCode": 3, "message": None})
    pod["status"]["message"] = None

    read = read_update_pod(pod)

    assert read is not None
    assert read.message == "exit code 3"


def test_a_pod_and_a_job_are_the_same_whatever_version_they_were_read_in() -> None:
    """So that nothing is planned anew where only a version has changed."""
    assert UpdatePod(JOB, "running", resource_version="1") == UpdatePod(JOB, "running", resource_version="2")
    first, second = (UpdateJobObject(JOB, False, "", resource_version=version) for version in "12")
    assert first == second
