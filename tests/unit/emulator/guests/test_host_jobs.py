"""Jobs whose containers act on their node: hostPath, chroot, nsenter; images that a node does not have; logs of pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.text import encode_base64
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import name_of, nested, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import EVENT, JOB, POD, SECRET

from .test_jobs import status, wait_for_condition
from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
PAUSE = "rancher/mirrored-pause:3.6"
USERLAND = ("/usr", "/bin", "/lib", "/lib64")


def a_host_job(
    *command: str,
    image: str = "busybox:1.36",
    directories: tuple[str, ...] = (),
    host: bool = True,
    pod: Raw | None = None,
    container: Raw | None = None,
    **spec: Any,
) -> Raw:
    """A Job on node w1 with the node's `directories` at the same paths and, with `host`, its root at /host."""
    paths = {"/host": "/"} if host else {}
    paths |= {path: path for path in directories}
    names = {path: f"v{place}" for place, path in enumerate(paths)}
    work = {
        "name": "work",
        "image": image,
        "command": list(command),
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": names[path], "mountPath": path} for path in paths],
        **(container or {}),
    }
    given = {
        "nodeName": "w1",
        "restartPolicy": "Never",
        "hostPID": True,
        "containers": [work],
        "volumes": [{"name": names[path], "hostPath": {"path": source}} for path, source in paths.items()],
        **(pod or {}),
    }
    return new_object(JOB, "work", "default", spec={"backoffLimit": 0, "template": {"spec": given}, **spec})


async def run_job(rig: Rig, job: Raw, end: str = "Complete") -> Raw:
    """The pod of the Job once that has the condition."""
    await rig.create(JOB, job)
    await wait_for_condition(rig, end)
    (pod,) = await rig.pods()
    return pod


def terminated(pod: Raw) -> Raw:
    found: Raw = nested(pod, "status", "containerStatuses", 0, "state", "terminated")
    return found


def waiting(pod: Raw) -> Raw:
    found: Raw = nested(pod, "status", "containerStatuses", 0, "state", "waiting", default={})
    return found


async def log_of(rig: Rig, pod: Raw, **query: str) -> Reply:
    door = rig.testbed.network.find("10.0.0.11", 6443)
    assert door is not None
    path = f"/api/v1/namespaces/default/pods/{name_of(pod)}/log"
    return await door.send(Request("GET", path, tuple(query.items())), Peer(rig.cluster.admin[0]))


def node_os(rig: Rig, name: str = "w1") -> Any:
    return rig.testbed.machines[name].guest  # type: ignore[attr-defined]


def test_a_script_in_a_chroot_of_the_node_writes_its_files_and_speaks_to_its_systemd():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = "echo hello > /etc/motd; systemctl is-active rke2-agent; hostname"
            pod = await run_job(rig, a_host_job("chroot", "/host", "/bin/sh", "-c", script))
            log = await log_of(rig, pod)

            assert node_os(rig).read_text("/etc/motd") == "hello\n"
            assert log.body.decode() == "active\nw1\n"
            assert nested(pod, "status", "phase") == "Succeeded"
            assert terminated(pod)["reason"] == "Completed"

    run_driven(scenario())


def test_the_programs_of_the_node_run_in_an_image_without_any_where_their_directories_are_mounted():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = "mkdir -p /host/run/job && cp /given/* /host/run/job/ && exec chroot /host /bin/sh /run/job/apply"
            secret = new_object(SECRET, "given", "default")
            secret["data"] = {
                "apply": encode_base64("cat /run/job/value > /etc/value\n"),
                "value": encode_base64("7\n"),
            }
            job = a_host_job("/bin/sh", "-c", script, image=PAUSE, directories=USERLAND)
            spec = job["spec"]["template"]["spec"]
            spec["volumes"].append({"name": "given", "secret": {"secretName": "given", "defaultMode": 0o400}})
            spec["containers"][0]["volumeMounts"].append({"name": "given", "mountPath": "/given"})
            await rig.create(JOB, job)
            await rig.testbed.sleep(5)
            (pod,) = await rig.pods()
            events = [
                raw["message"]
                for raw in await rig.kubectl.list(EVENT, "default")
                if raw["reason"] == "FailedMount"
            ]
            await rig.create(SECRET, secret)
            await wait_for_condition(rig, "Complete")

            assert waiting(pod) == {"reason": "ContainerCreating"}
            assert events == ['MountVolume.SetUp failed for volume "given" : secret "given" not found']
            assert node_os(rig).read_text("/etc/value") == "7\n"
            assert node_os(rig).find("/run/job/value").mode == 0o400

    run_driven(scenario())


@pytest.mark.parametrize(
    ("directories", "code", "reason", "words"),
    [
        ((), 128, "StartError", 'exec: "/bin/sh": stat /bin/sh: no such file or directory'),
        (("/usr", "/bin"), 255, "Error", "exec /bin/sh: no such file or directory"),
    ],
)
def test_without_the_directories_a_shell_of_the_node_does_not_start(
    directories: tuple[str, ...], code: int, reason: str, words: str
):
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
            job = a_host_job("/bin/sh", "-c", "true", image=PAUSE, directories=directories, container=policy)
            pod = await run_job(rig, job, "Failed")

            assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (code, reason)
            assert words in terminated(pod)["message"]

    run_driven(scenario())


def test_systemctl_of_the_node_needs_the_nodes_run_directory():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
            job = a_host_job(
                "/bin/sh",
                "-c",
                "systemctl restart rke2-agent",
                image=PAUSE,
                directories=USERLAND,
                container=policy,
            )
            pod = await run_job(rig, job, "Failed")

            assert "System has not been booted with systemd as init system" in terminated(pod)["message"]

    run_driven(scenario())


def test_what_a_container_prints_last_is_its_termination_message_where_it_asks_for_that():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
            job = a_host_job("sh", "-c", "echo one; echo two; exit 3", container=policy)
            pod = await run_job(rig, job, "Failed")
            all_of_it = await log_of(rig, pod)
            last = await log_of(rig, pod, tailLines="1")
            other = await log_of(rig, pod, container="none")

            assert nested(pod, "status", "phase") == "Failed"
            assert (terminated(pod)["exitCode"], terminated(pod)["message"]) == (3, "one\ntwo\n")
            assert (all_of_it.body, last.body) == (b"one\ntwo\n", b"two\n")
            assert other.status == 400
            assert b"container none is not valid for pod" in other.body
            assert (await status(rig))["failed"] == 1

    run_driven(scenario())


def test_a_container_may_write_its_termination_message_itself():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            pod = await run_job(rig, a_host_job("sh", "-c", "echo done > /dev/termination-log"))

            assert terminated(pod)["message"] == "done\n"

    run_driven(scenario())


def test_nsenter_reaches_the_node_only_with_its_processes_and_privileges():
    async def scenario(pod: Raw, container: Raw) -> tuple[Raw, str]:
        async with a_rig("w1") as rig:
            command = (
                "nsenter",
                "-t",
                "1",
                "-m",
                "-u",
                "-i",
                "-n",
                "-p",
                "--",
                "sh",
                "-c",
                "echo x > /etc/entered",
            )
            await rig.create(JOB, a_host_job(*command, host=False, pod=pod, container=container))

            async def has_ended() -> bool:
                return bool((await status(rig)).get("conditions"))

            await rig.testbed.wait_for(has_ended)
            (found,) = await rig.pods()
            return found, node_os(rig).read_text("/etc/entered")

    both, text = run_driven(scenario({}, {}))
    assert (terminated(both)["exitCode"], text) == (0, "x\n")

    unprivileged, text = run_driven(scenario({}, {"securityContext": {}}))
    assert (terminated(unprivileged)["exitCode"], text) == (1, "")

    alone, text = run_driven(scenario({"hostPID": False}, {}))
    assert (terminated(alone)["exitCode"], text) == (0, "")  # it has entered its own namespaces


def test_a_container_without_the_right_to_chroot_says_so():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            drop = {"securityContext": {"capabilities": {"drop": ["ALL"]}}}
            pod = await run_job(rig, a_host_job("chroot", "/host", "true", container=drop), "Failed")
            log = await log_of(rig, pod)

            assert terminated(pod)["exitCode"] == 125
            assert log.body == b"chroot: cannot change root directory to '/host': Operation not permitted\n"

    run_driven(scenario())


def test_environment_comes_from_secrets_and_fields_of_the_pod():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            secret = new_object(SECRET, "given", "default")
            secret["data"] = {"word": encode_base64("abc")}
            await rig.create(SECRET, secret)
            env = [
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}},
                {"name": "BOTH", "value": "$(NODE)-$(WORD)-$(NONE)"},
            ]
            pod = await run_job(rig, a_host_job("sh", "-c", "echo $BOTH", container={"env": env}))

            assert (await log_of(rig, pod)).body == b"w1-abc-$(NONE)\n"

    run_driven(scenario())


def test_a_variable_of_a_secret_that_is_not_there_keeps_the_container_from_being_created():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}}]
            await rig.create(JOB, a_host_job("sh", "-c", "true", container={"env": env}))
            await rig.testbed.sleep(10)
            (pod,) = await rig.pods()

            assert waiting(pod) == {
                "reason": "CreateContainerConfigError",
                "message": 'secret "given" not found',
            }

    run_driven(scenario())


def test_in_an_air_gap_only_the_images_of_the_release_and_of_registries_that_answer_can_be_had():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            rig.testbed.network.internet.is_reachable = False
            await rig.create(JOB, a_host_job("sh", "-c", "true"))
            reasons: set[str] = set()
            for _ in range(30):
                reasons |= {waiting(pod).get("reason", "") for pod in await rig.pods()}
                await rig.testbed.sleep(0.5)
            (pod,) = await rig.pods()
            log = await log_of(rig, pod)
            before = waiting(pod)
            rig.testbed.network.internet.is_reachable = True
            await wait_for_condition(rig, "Complete")

            assert reasons >= {"ErrImagePull", "ImagePullBackOff"}
            assert before["reason"] == "ImagePullBackOff"
            assert before["message"].startswith(
                'Back-off pulling image "busybox:1.36": ErrImagePull: failed to pull'
            )
            assert log.status == 400
            assert b"is waiting to start: ImagePullBackOff" in log.body

    run_driven(scenario())


def test_the_pause_image_of_the_release_is_on_each_node_in_an_air_gap():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            rig.testbed.network.internet.is_reachable = False
            pod = await run_job(rig, a_host_job("/bin/sh", "-c", "true", image=PAUSE, directories=USERLAND))
            node = await rig.kubectl.node("w1")
            names = [name for one in node["status"]["images"] for name in one["names"]]

            assert terminated(pod)["exitCode"] == 0
            assert f"docker.io/{PAUSE}" in names

    run_driven(scenario())


def test_a_container_that_was_running_when_the_power_was_cut_has_failed():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            await rig.create(JOB, a_host_job("sh", "-c", "sleep 600"))
            await rig.testbed.sleep(10)
            await rig.testbed.cut_power("w1")
            rig.testbed.power_on("w1")
            await wait_for_condition(rig, "Failed")
            (pod,) = await rig.pods()

            assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (255, "Unknown")

    run_driven(scenario())


def test_a_container_outlives_the_restart_of_the_service_that_it_asks_for():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = "timeout 600 systemctl restart rke2-agent && echo up"
            pod = await run_job(rig, a_host_job("chroot", "/host", "/bin/sh", "-c", script))

            assert (await log_of(rig, pod)).body == b"up\n"
            assert rig.testbed.hosts["w1"].logged("was previously registered")

    run_driven(scenario())


def test_the_log_of_a_pod_on_a_node_whose_kubelet_is_away_cannot_be_read():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            pod = await run_job(rig, a_host_job("sh", "-c", "echo x"))
            await rig.testbed.cut_power("w1")
            reply = await log_of(rig, pod)

            assert reply.status == 500
            assert b":10250: connect: connection refused" in reply.body

    run_driven(scenario())


def test_timeout_ends_what_it_runs():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = "timeout 5 sleep 100; echo $?; timeout 5 true; echo $?"
            pod = await run_job(rig, a_host_job("sh", "-c", script))

            assert (await log_of(rig, pod)).body == b"124\n0\n"

    run_driven(scenario())


def test_the_state_of_a_service_and_its_last_lines_are_told_in_the_chroot():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            script = (
                "systemctl show -p NRestarts --value rke2-agent; systemctl show --property=ActiveState rke2-agent; "
                "journalctl -u rke2-agent -n 1 --no-pager; systemctl start none || true"
            )
            pod = await run_job(rig, a_host_job("chroot", "/host", "sh", "-c", script))
            lines = (await log_of(rig, pod)).body.decode().splitlines()

            assert lines[:2] == ["0", "ActiveState=active"]
            assert " w1 rke2-agent: " in lines[2]
            assert "Failed to start none.service: Unit none.service not found." in lines

    run_driven(scenario())


def test_a_job_on_a_read_only_root_changes_nothing():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            mounts = {"volumeMounts": [{"name": "v0", "mountPath": "/host", "readOnly": True}]}
            await run_job(
                rig, a_host_job("chroot", "/host", "sh", "-c", "echo x > /etc/new", container=mounts)
            )

            assert not node_os(rig).exists("/etc/new")

    run_driven(scenario())


def test_the_log_of_a_pod_that_is_not_there_is_not_found():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            reply = await log_of(rig, new_object(POD, "none", "default"))

            assert reply.status == 404

    run_driven(scenario())
