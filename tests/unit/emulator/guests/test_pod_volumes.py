"""Volumes of pods in a guest cluster: scheduler, attach-detach controller and kubelets, with a driver that notes its calls.

The test plays the provisioner, the attacher and the driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE, PV
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.volumes.attach_detach import render_attachment
from windrow.emulator.guest_os.hardware import Disk
from windrow.emulator.guest_os.storage import MountedVolume
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import annotations_of, is_deleting, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import EVENT, NODE, POD, PVC, STORAGE_CLASS, VOLUME_ATTACHMENT, ref_of

from .test_workloads import Rig, a_rig

Raw = dict[str, Any]
DRIVER = "driver.harvesterhci.io"
APP = POD.ref("app", "default")


@dataclass
class Driver:
    """The driver on each node. `failing` are methods that answer with an error."""

    rig: Rig
    calls: list[str] = field(default_factory=list)
    requests: dict[str, Raw] = field(default_factory=dict)  # the last one of each method
    failing: set[str] = field(default_factory=set)
    disks: dict[str, Disk] = field(default_factory=dict)

    def register(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.csi.register(
                node, DRIVER, lambda method, request, node=node: self.call(node, method, request)
            )

    @property
    def cluster(self) -> Any:
        (found,) = self.rig.testbed.machines["one"].clusters.values()  # type: ignore[attr-defined]
        return found

    async def call(self, node: str, method: str, request: Raw) -> Raw:
        self.requests[method] = request
        if method == "NodeGetCapabilities":
            types = ("STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME")
            return {"capabilities": [{"rpc": {"type": one}} for one in types]}
        self.calls.append(f"{node} {method}")
        if method in self.failing:
            raise CsiFailed("INTERNAL", "mkfs failed")
        mounts = self.rig.testbed.machines[node].guest.storage.mounts  # type: ignore[attr-defined]
        if method == "NodePublishVolume":
            disk = self.disks.setdefault(request["volume_id"], Disk())
            mounts.mount(request["target_path"], MountedVolume(disk))
        elif method == "NodeUnpublishVolume":
            mounts.unmount(request["target_path"])
        return {}

    async def attach(self) -> None:
        """What an attacher does."""
        while True:
            for raw in await self.rig.kubectl.list(VOLUME_ATTACHMENT):
                if not nested(raw, "status", "attached"):
                    status = {"attached": True, "attachmentMetadata": {"serial": "s-1"}}
                    await self.rig.kubectl.patch(ref_of(VOLUME_ATTACHMENT, raw), {"status": status}, "status")
            await self.rig.testbed.sleep(0.5)


@asynccontextmanager
async def a_driver(*workers: str) -> AsyncIterator[Driver]:
    async with a_rig(*workers) as rig:
        driver = Driver(rig)
        driver.register(*workers)
        attacher = asyncio.create_task(driver.attach())
        try:
            yield driver
        finally:
            attacher.cancel()


def a_claim(name: str = "data", storage_class: str = "harvester") -> Raw:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return new_object(PVC, name, "default", spec=spec)


def a_pod(name: str = "app", node: str = "", **spec: Any) -> Raw:
    mount = {"name": "data", "mountPath": "/data"}
    given = {
        "containers": [{"name": "c", "image": "app:1", "volumeMounts": [mount]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        **spec,
    }
    return new_object(POD, name, "default", labels={"app": "web"}, spec=given)


async def bind(rig: Rig, name: str = "data", **spec: Any) -> None:
    """What a provisioner and the PersistentVolume controller do."""
    claim = await rig.kubectl.get(PVC.ref(name, "default"))
    given = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "default", "name": name, "uid": uid_of(claim)},
        "csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}", "fsType": "ext4"},
        **spec,
    }
    await rig.create(PV, new_object(PV, f"pv-{name}", spec=given))
    await rig.kubectl.patch(PVC.ref(name, "default"), {"spec": {"volumeName": f"pv-{name}"}})
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    await rig.kubectl.patch(PVC.ref(name, "default"), {"status": status}, "status")


async def with_claim(rig: Rig) -> None:
    await rig.create(PVC, a_claim())
    await bind(rig)


async def wait_ready(rig: Rig, name: str = "app") -> float:
    async def holds() -> bool:
        return name in [name_of(pod) for pod in await rig.ready()]

    return await rig.testbed.wait_for(holds)


async def wait_gone(rig: Rig, kind: Any) -> float:
    async def holds() -> bool:
        return not await rig.kubectl.list(kind, "default" if kind.namespaced else "")

    return await rig.testbed.wait_for(holds)


async def events(rig: Rig, reason: str) -> list[str]:
    return [raw["message"] for raw in await rig.kubectl.list(EVENT, "default") if raw["reason"] == reason]


async def why_unscheduled(rig: Rig) -> str:
    pod = await rig.kubectl.get(APP)
    found = find_condition(nested(pod, "status", "conditions"), "PodScheduled")
    return found.message if found is not None else ""


def test_a_pod_waits_for_its_claim_then_for_the_attachment_and_runs_once_the_volume_is_mounted():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            driver = Driver(rig)
            driver.register("w1")
            await rig.create(POD, a_pod())
            await rig.testbed.sleep(1)
            first = await why_unscheduled(rig)
            await rig.create(PVC, a_claim())
            await rig.testbed.sleep(1)
            second = await why_unscheduled(rig)
            await bind(rig)
            await rig.testbed.sleep(10)
            creating = await rig.kubectl.get(APP)
            (attachment,) = await rig.kubectl.list(VOLUME_ATTACHMENT)
            early = list(driver.calls)
            attacher = asyncio.create_task(driver.attach())
            await wait_ready(rig)
            attacher.cancel()
            node = await rig.kubectl.node("w1")

            assert first == '0/2 nodes are available: persistentvolumeclaim "data" not found.'
            assert second == "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
            assert first in await events(rig, "FailedScheduling")
            assert nested(creating, "status", "phase") == "Pending"
            state = nested(creating, "status", "containerStatuses", 0, "state")
            assert state == {"waiting": {"reason": "ContainerCreating"}}
            assert early == []
            expected = {"attacher": DRIVER, "nodeName": "w1", "source": {"persistentVolumeName": "pv-data"}}
            assert attachment["spec"] == expected
            assert driver.calls == ["w1 NodeStageVolume", "w1 NodePublishVolume"]
            assert driver.requests["NodeStageVolume"]["publish_context"] == {"serial": "s-1"}
            unique = f"kubernetes.io/csi/{DRIVER}^handle-data"
            assert node["status"]["volumesInUse"] == [unique]
            assert node["status"]["volumesAttached"] == [{"name": unique, "devicePath": ""}]
            message = 'AttachVolume.Attach succeeded for volume "pv-data" '
            assert await events(rig, "SuccessfulAttachVolume") == [message]

    run_driven(scenario())


def test_a_deleted_pod_stays_until_its_volume_is_unpublished_and_then_the_volume_is_detached():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            driver.failing.add("NodeUnpublishVolume")
            await rig.kubectl.delete(APP)
            await rig.testbed.sleep(10)
            kept = await rig.pods()
            driver.failing.clear()
            await wait_gone(rig, POD)
            await wait_gone(rig, VOLUME_ATTACHMENT)
            await rig.testbed.sleep(1)
            status = (await rig.kubectl.node("w1"))["status"]

            assert [name_of(pod) for pod in kept] == ["app"]
            assert driver.calls[-2:] == ["w1 NodeUnpublishVolume", "w1 NodeUnstageVolume"]
            assert "volumesInUse" not in status
            assert "volumesAttached" not in status

    run_driven(scenario())


def test_a_volume_of_one_node_is_not_attached_to_another_before_the_first_lets_it_go():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod(node="w1"))
            await wait_ready(rig)
            await rig.create(POD, a_pod("other", node="w2"))
            await rig.testbed.sleep(20)
            attached = [nested(raw, "spec", "nodeName") for raw in await rig.kubectl.list(VOLUME_ATTACHMENT)]
            await rig.kubectl.delete(APP)
            await wait_ready(rig, "other")
            first, last = driver.calls.index("w1 NodeUnstageVolume"), driver.calls.index("w2 NodeStageVolume")

            assert attached == ["w1"]
            said = 'Multi-Attach error for volume "pv-data" Volume is already used by pod(s) app'
            assert said in await events(rig, "FailedAttachVolume")
            assert first < last

    run_driven(scenario())


async def lose_node(driver: Driver) -> None:
    """Its pod's node loses power, and the pod is deleted for good."""
    rig = driver.rig
    await with_claim(rig)
    await rig.create(POD, a_pod())
    await wait_ready(rig)
    await rig.testbed.cut_power("w1")
    await rig.testbed.sleep(60)
    await driver.cluster.client().delete(APP, grace_s=0)


def test_a_volume_is_detached_by_force_six_minutes_after_its_pod_left_a_lost_node():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            await lose_node(driver)

            assert 358 <= await wait_gone(driver.rig, VOLUME_ATTACHMENT) <= 363

    run_driven(scenario())


def test_from_a_node_that_is_out_of_service_a_volume_is_detached_at_once():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            await lose_node(driver)
            taint = {
                "key": "node.kubernetes.io/out-of-service",
                "value": "nodeshutdown",
                "effect": "NoExecute",
            }
            await driver.rig.kubectl.patch(NODE.ref("w1"), {"spec": {"taints": [taint]}})

            assert await wait_gone(driver.rig, VOLUME_ATTACHMENT) <= 2

    run_driven(scenario())


def test_a_volume_stays_attached_while_a_ready_node_does_not_unmount_it():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            driver.failing.add("NodeUnstageVolume")
            await rig.kubectl.delete(APP)
            await rig.testbed.sleep(800)
            kept = await rig.kubectl.list(VOLUME_ATTACHMENT)
            tries = driver.calls.count("w1 NodeUnstageVolume")
            driver.failing.clear()

            assert await wait_gone(rig, VOLUME_ATTACHMENT) <= 130
            assert len(kept) == 1
            assert 8 <= tries <= 15, "the back-off doubles up to 122 s"

    run_driven(scenario())


def test_what_fails_is_told_to_the_pod_and_tried_again():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            driver.failing.add("NodeStageVolume")
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await rig.testbed.sleep(20)
            told = await events(rig, "FailedMount")
            driver.failing.clear()
            await wait_ready(rig)

            assert told == [
                'MountVolume.MountDevice failed for volume "pv-data" : rpc error: code = Internal desc = mkfs failed'
            ]

    run_driven(scenario())


def test_a_pod_on_a_node_without_the_driver_is_told_so():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            driver.cluster.csi.unregister("w1", DRIVER, driver.cluster.csi.find("w1", DRIVER))
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await rig.testbed.sleep(20)
            (told,) = await events(rig, "FailedMount")
            driver.register("w1")
            await wait_ready(rig)

            assert told == (
                'MountVolume.MountDevice failed for volume "pv-data" : kubernetes.io/csi: attacher.MountDevice failed to '
                f"create newCsiDriverClient: driver name {DRIVER} not found in the list of registered CSI drivers"
            )

    run_driven(scenario())


def test_a_claim_that_waits_for_its_first_consumer_gets_the_node_and_the_pod_waits_for_the_volume():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            rig = driver.rig
            raw = new_object(
                STORAGE_CLASS, "late", provisioner=DRIVER, volumeBindingMode="WaitForFirstConsumer"
            )
            await rig.create(STORAGE_CLASS, raw)
            await rig.create(PVC, a_claim(storage_class="late"))
            await rig.create(POD, a_pod(node="w2"))
            await rig.testbed.sleep(3)
            chosen = annotations_of(await rig.kubectl.get(PVC.ref("data", "default")))
            before = await rig.kubectl.get(APP)
            await bind(rig)
            await wait_ready(rig)

            assert chosen["volume.kubernetes.io/selected-node"] == "w2"
            assert "nodeName" not in before["spec"]
            assert await rig.where() == ["w2"]

    run_driven(scenario())


def test_a_pod_goes_where_its_volume_may_be_and_no_node_takes_more_volumes_than_its_driver_allows():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            rig = driver.rig
            await rig.create(PVC, a_claim())
            term = {
                "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w2"]}]
            }
            await bind(rig, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
            full = {"drivers": [{"name": DRIVER, "nodeID": "w2", "allocatable": {"count": 0}}]}
            await rig.create(CSI_NODE, new_object(CSI_NODE, "w2", spec=full))
            await rig.testbed.sleep(1)
            await rig.create(POD, a_pod())
            await rig.testbed.sleep(2)
            why = await why_unscheduled(rig)
            free = {"drivers": [{"name": DRIVER, "nodeID": "w2", "allocatable": {"count": 1}}]}
            await rig.kubectl.patch(CSI_NODE.ref("w2"), {"spec": free})
            await wait_ready(rig)

            assert "1 node(s) didn't match PersistentVolume's node affinity" in why
            assert "1 node(s) exceed max volume count" in why
            assert await rig.where() == ["w2"]

    run_driven(scenario())


def test_a_kubelet_that_is_started_again_keeps_what_is_mounted_and_one_whose_machine_lost_power_mounts_it_anew():
    async def scenario() -> None:
        async with a_driver() as driver:
            rig = driver.rig
            restart = "- [sh, -c, 'sleep 150; systemctl restart rke2-agent']\n"
            rig.testbed.power_on("w1", rig.cluster.worker("w1") + restart)
            await rig.testbed.wait_for(rig.all_ready("one", "w1"))
            await rig.kubectl.patch(NODE.ref("one"), {"spec": {"unschedulable": True}})
            driver.register("w1")
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            await rig.testbed.sleep(250)
            starts = rig.testbed.console("w1").count("Starting rke2 agent")
            kept = list(driver.calls)
            await rig.testbed.cut_power("w1")
            rig.testbed.power_on("w1")
            await rig.testbed.sleep(90)

            assert starts == 2
            assert kept == ["w1 NodeStageVolume", "w1 NodePublishVolume"]
            assert driver.calls[2:] == kept

    run_driven(scenario())


def test_a_volume_is_grown_on_its_node_where_the_claim_says_that_this_is_pending():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            await rig.kubectl.patch(PV.ref("pv-data"), {"spec": {"capacity": {"storage": "2Gi"}}})
            pending = {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}
            await rig.kubectl.patch(PVC.ref("data", "default"), {"status": pending}, "status")
            await rig.testbed.sleep(3)
            status = (await rig.kubectl.get(PVC.ref("data", "default")))["status"]

            assert driver.requests["NodeExpandVolume"]["capacity_range"] == {"required_bytes": 2 << 30}
            assert status["capacity"] == {"storage": "2Gi"}
            assert not is_true(status.get("conditions"), "FileSystemResizePending")
            told = await events(rig, "FileSystemResizeSuccessful")
            assert told == ['MountVolume.NodeExpandVolume succeeded for volume "pv-data" ']

    run_driven(scenario())


def test_two_pods_of_one_node_share_the_volume_that_is_staged_once():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await rig.create(POD, a_pod("second"))
            await wait_ready(rig)
            await wait_ready(rig, "second")
            await rig.kubectl.delete(APP)
            await rig.testbed.sleep(5)
            left = [one for one in driver.calls if "Un" in one]
            attachments = await rig.kubectl.list(VOLUME_ATTACHMENT)

            assert driver.calls.count("w1 NodeStageVolume") == 1
            assert driver.calls.count("w1 NodePublishVolume") == 2
            assert left == ["w1 NodeUnpublishVolume"]
            assert not is_deleting(attachments[0])
            assert name_of(attachments[0]) == name_of(
                render_attachment(await rig.kubectl.get(PV.ref("pv-data")), "w1")
            )

    run_driven(scenario())


def test_a_pod_that_takes_the_name_of_one_that_was_deleted_by_force_has_a_mount_of_its_own():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            await driver.cluster.client().delete(APP, grace_s=0)
            await rig.create(POD, a_pod())
            await wait_ready(rig)
            await rig.testbed.sleep(2)

            assert driver.calls.count("w1 NodePublishVolume") == 2
            assert driver.calls.count("w1 NodeUnpublishVolume") == 1
            assert driver.calls.count("w1 NodeUnstageVolume") == 0

    run_driven(scenario())


# --- what scripts of containers write ---------------------------------------------------------------------------------


def a_writer(script: str, **spec: Any) -> Raw:
    raw = a_pod(**spec)
    raw["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", script]
    return raw


def test_what_a_pod_writes_into_its_volume_is_there_for_the_pod_that_follows_it_on_another_node():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            rig = driver.rig
            await with_claim(rig)
            await rig.create(
                POD, a_writer("mkdir -p /data/a; echo $HOSTNAME >> /data/a/x; echo no > /tmp/y", node="w1")
            )
            await wait_ready(rig)
            await rig.kubectl.delete(APP)
            await wait_gone(rig, POD)
            again = a_writer(
                "cat /data/a/x >> /data/copy; echo second >> /data/a/x; rm /data/a/none", node="w2"
            )
            again["metadata"]["name"] = "second"
            await rig.create(POD, again)
            await wait_ready(rig, "second")
            files = {path: one.content for path, one in driver.disks["handle-data"].files.items()}

            assert files == {"/a/x": b"app\nsecond\n", "/copy": b"app\n"}

    run_driven(scenario())


def test_a_pod_serves_the_file_that_its_container_names():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            raw = a_writer("echo kept > /data/x")
            raw["spec"]["containers"][0]["env"] = [{"name": "SERVE_FILE", "value": "/data/x"}]
            await rig.create(POD, raw)
            await wait_ready(rig)
            read = driver.cluster.served_files["default", "app"]
            text = read()
            await rig.kubectl.delete(APP)
            await wait_gone(rig, POD)

            assert text == "kept\n"
            assert driver.cluster.served_files == {}

    run_driven(scenario())


def test_a_mount_that_is_read_only_is_not_written():
    async def scenario() -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            await with_claim(rig)
            raw = a_writer("echo lost > /data/x")
            raw["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] = True
            await rig.create(POD, raw)
            await wait_ready(rig)

            assert driver.disks["handle-data"].files == {}
            assert "cannot write /data/x: Read-only file system" in rig.testbed.console("w1")

    run_driven(scenario())


def test_a_pod_that_is_not_started_again_ends_as_its_script_does():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            for name, script in (
                ("good", "sleep 20; true"),
                ("bad", "exit 3"),
                ("broken", "case x in x) ;; esac"),
            ):
                container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
                spec = {"containers": [container], "restartPolicy": "Never"}
                await rig.create(POD, new_object(POD, name, "default", spec=spec))
            await rig.testbed.sleep(15)
            running = await rig.kubectl.get(POD.ref("good", "default"))
            await rig.testbed.sleep(15)
            pods = {name_of(pod): pod["status"] for pod in await rig.pods()}
            codes = {
                name: nested(status, "containerStatuses", 0, "state", "terminated", "exitCode")
                for name, status in pods.items()
            }

            assert running["status"]["phase"] == "Running"
            assert {name: status["phase"] for name, status in pods.items()} == {
                "good": "Succeeded",
                "bad": "Failed",
                "broken": "Failed",
            }
            assert codes == {"good": 0, "bad": 3, "broken": 2}

    run_driven(scenario())


def test_a_volume_of_another_mode_than_its_containers_have_it_in_keeps_the_pod_from_starting():
    async def scenario(mode: str, field: str, needed: str) -> None:
        async with a_driver("w1") as driver:
            rig = driver.rig
            for name in ("data", "logs"):
                await rig.create(PVC, a_claim(name))
                await bind(rig, name, **({"volumeMode": mode} if name == "data" else {}))
            logs = {"name": "logs", "mountPath": "/logs"}
            container = {"name": "c", "image": "app:1", "volumeMounts": [logs]}
            container[field] = [*container.get(field, []), {"name": "data", "devicePath": "/dev/x"}]
            volumes = [
                {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "logs")
            ]
            await rig.create(POD, a_pod(containers=[container], volumes=volumes))
            await rig.testbed.sleep(30)
            pod = await rig.kubectl.get(APP)

            assert pod["spec"]["nodeName"] == "w1", "the scheduler knows nothing of it"
            assert nested(pod, "status", "phase") == "Pending"
            assert await events(rig, "FailedMount") == [
                "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process "
                f"volumes=[data]: volume data has volumeMode {mode}, but is specified in {field}"
            ]
            published = driver.requests["NodePublishVolume"]
            assert published["volume_id"] == "handle-logs", "the other one is mounted"
            await rig.kubectl.delete(APP)
            await wait_gone(rig, POD)
            await wait_gone(rig, VOLUME_ATTACHMENT)

    run_driven(scenario("Block", "volumeMounts", "Filesystem"))
    run_driven(scenario("Filesystem", "volumeDevices", "Block"))


def test_a_second_pod_with_a_claim_for_one_pod_waits_on_every_node_until_the_first_is_gone():
    async def scenario() -> None:
        async with a_driver("w1", "w2") as driver:
            rig = driver.rig
            claim = a_claim()
            claim["spec"]["accessModes"] = ["ReadWriteOncePod"]
            await rig.create(PVC, claim)
            await bind(rig, accessModes=["ReadWriteOncePod"])
            await rig.create(POD, a_pod("first", node="w1"))
            await wait_ready(rig, "first")
            await rig.create(POD, a_pod())
            await rig.testbed.sleep(5)
            why = await why_unscheduled(rig)
            await rig.kubectl.delete(POD.ref("first", "default"))
            await wait_ready(rig)

            assert why == (
                "0/3 nodes are available: 2 node has pod using PersistentVolumeClaim with the same name and "
                "ReadWriteOncePod access mode, 1 node(s) had untolerated taint {CriticalAddonsOnly: true}."
            )
            assert why in await events(rig, "FailedScheduling")

    run_driven(scenario())


def test_a_claim_of_a_guest_grows_where_its_class_allows_it_alone():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            for name, allowed in (("fixed", {}), ("growing", {"allowVolumeExpansion": True})):
                await rig.create(
                    STORAGE_CLASS, new_object(STORAGE_CLASS, name, provisioner=DRIVER, **allowed)
                )
                await rig.create(PVC, a_claim(name, name))
                await bind(rig, name)
            more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
            await rig.kubectl.patch(PVC.ref("growing", "default"), more)
            with pytest.raises(AssertionError, match="only dynamically provisioned pvc can be resized"):
                await rig.kubectl.patch(PVC.ref("fixed", "default"), more)

    run_driven(scenario())


def test_a_claim_of_a_guest_without_a_class_gets_the_newest_default_one():
    async def scenario() -> None:
        async with a_rig("w1") as rig:
            marks = {"storageclass.kubernetes.io/is-default-class": "true"}
            for name in ("z-old", "new", "a-new"):
                raw = new_object(STORAGE_CLASS, name, annotations=marks, provisioner=DRIVER)
                await rig.create(STORAGE_CLASS, raw)
                if name == "z-old":
                    await rig.testbed.sleep(2)
            claim = a_claim()
            del claim["spec"]["storageClassName"]
            await rig.create(PVC, claim)
            made = await rig.kubectl.get(PVC.ref("data", "default"))

            assert made["spec"]["storageClassName"] == "a-new"

    run_driven(scenario())
