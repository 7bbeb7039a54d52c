"""Volumes that pods of several nodes have: NetworkFilesystems on the emulated Harvester, and pods of a guest that mount them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.harvester import Harvester
from windrow.emulator.storage.nfs import MountRefused
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import NODE, POD, PVC, SERVICE, STORAGE_CLASS, VOLUME_ATTACHMENT

from .cluster_rig import compare
from .guest_storage_rig import GuestStorage, a_guest
from .harvester_rig import NAMESPACE, a_harvester, eventually
from .test_guest_volumes import Narrator

SYSTEM, LONGHORN = "harvester-system", "longhorn-system"
SHARED_CLASS: Raw = {
    "metadata": {"name": "longhorn-rwx"},
    "provisioner": "driver.longhorn.io",
    "parameters": {"migratable": "false", "nfsOptions": "vers=4.2,softerr"},
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}


class Export:
    """A shared volume with its NetworkFilesystem, turned off."""

    def __init__(self, harvester: Harvester, claim: Raw) -> None:
        self.harvester, self.claim = harvester, claim
        self.client = harvester.api.local()
        self.name = claim["spec"]["volumeName"]
        self.ref = kinds.NETWORK_FILE_SYSTEM.ref(self.name, SYSTEM)

    async def turn(self, state: str, **spec: Any) -> None:
        await self.client.patch(self.ref, {"spec": {"desiredState": state, **spec}})

    async def until(self, field: str, value: str, seconds: float = 20) -> Raw:
        found = await eventually(
            self.harvester, self.ref, lambda raw: nested(raw, "status", field) == value, seconds
        )
        return dict(found["status"])

    def answers(self, address: str) -> bool:
        return self.harvester.network.nfs.find(address, f"/{self.name}") is not None

    async def pause(self, seconds: float) -> None:
        await sleep(self.harvester.clock.base, timedelta(seconds=seconds))


def with_export(story: Callable[[Export], Any], storage_class: Raw = SHARED_CLASS) -> None:
    async def run() -> None:
        async with a_harvester() as harvester:
            client = harvester.api.local()
            await client.create(STORAGE_CLASS, storage_class)
            spec = {
                "accessModes": ["ReadWriteMany"],
                "volumeMode": "Filesystem",
                "storageClassName": storage_class["metadata"]["name"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
            made = await client.create(PVC, new_object(PVC, "data", NAMESPACE, spec=spec), NAMESPACE)
            bound = await eventually(
                harvester,
                PVC.ref("data", NAMESPACE),
                lambda raw: nested(raw, "status", "phase") == "Bound",
                20,
            )
            assert uid_of(made) == uid_of(bound)
            export = Export(harvester, bound)
            files = {"networkFSName": export.name, "desiredState": "Disabled", "provisioner": "Longhorn"}
            await client.create(export.ref.kind, new_object(export.ref.kind, export.name, SYSTEM, spec=files))
            await story(export)

    run_driven(run())


def test_a_network_filesystem_follows_its_desired_state():
    async def story(export: Export) -> None:
        status = await export.until("state", "Disabled")
        assert status["status"] == "Unknown"
        await export.turn("Enabled")
        assert (await export.until("state", "Enabling"))["status"] == "NotReady"
        status = await export.until("state", "Enabled")
        assert status == {
            "state": "Enabled",
            "status": "Ready",
            "type": "NFS",
            "endpoint": "10.53.200.10",
            "mountOpts": "vers=4.2,softerr",
        }
        own = await export.client.get(SERVICE.ref(export.name, LONGHORN))
        assert own["spec"]["clusterIP"] == "10.53.200.10"
        mounted = export.harvester.network.nfs.mount("10.53.200.10", f"/{export.name}")
        assert mounted.disk is export.harvester.hypervisor.disk(uid_of(export.claim))
        assert mounted.size() == 2**30
        await export.turn("Disabled")
        assert not (await export.until("state", "Disabling"))["endpoint"]
        with pytest.raises(MountRefused, match=r"^mount\.nfs: Connection refused$"):
            export.harvester.network.nfs.mount("10.53.200.10", f"/{export.name}")
        assert (await export.until("state", "Disabled"))["status"] == "NotReady"
        await export.turn("Enabled")
        assert (await export.until("state", "Enabled"))["endpoint"] == "10.53.200.10", "its Service stayed"

    with_export(story)


def test_a_labelled_service_says_where_a_shared_volume_is_reached():
    async def story(export: Export) -> None:
        await export.turn("Enabled")
        await export.until("endpoint", "10.53.200.10")
        labels = {"harvesterhci.io/rwx-vol-service": export.name}
        ports = [{"name": "nfs", "port": 2049}]
        service = new_object(SERVICE, "stable", LONGHORN, labels=labels, spec={"ports": ports})
        await export.client.create(SERVICE, service, LONGHORN)
        await export.until("status", "NotReady")
        assert not export.answers("10.53.200.10"), "the labelled one prevails while it has no address"
        await export.client.patch(
            SERVICE.ref("stable", LONGHORN), {"spec": {"loadBalancerIP": "192.168.100.77"}}
        )
        assert (await export.until("endpoint", "192.168.100.77"))["status"] == "Ready"
        assert export.answers("192.168.100.77")
        other = new_object(SERVICE, "another", LONGHORN, labels=labels, spec={"ports": ports})
        await export.client.create(SERVICE, other, LONGHORN)
        assert not (await export.until("status", "NotReady"))["endpoint"], "two that are labelled are none"

    with_export(story)


def test_a_share_manager_runs_on_the_host_that_is_preferred_and_moves_when_its_host_is_lost():
    async def story(export: Export) -> None:
        network = kinds.SETTING.ref("rwx-network")
        await export.client.patch(network, {"value": '{"vlan":100}'})
        await export.turn("Enabled", perferredNodes="host-2")
        there = (await export.until("state", "Enabled"))["endpoint"]
        assert there.startswith("10.52."), "a headless Service: the endpoint is the pod's address"
        await export.turn("Enabled", perferredNodes="")
        export.harvester.fail_host("host-2")
        await export.pause(5)
        assert not export.answers(there), "the host has no power"
        assert (await export.client.get(export.ref))["status"]["endpoint"] == there, "which is noticed later"
        await export.until("status", "Reconciling", 120)
        moved = (await export.until("status", "Ready", 120))["endpoint"]
        assert moved != there
        assert export.answers(moved)
        assert not export.answers(there)

    with_export(story)


def test_a_volume_that_longhorn_does_not_share_is_never_exported():
    async def story(export: Export) -> None:
        await export.turn("Enabled")
        await export.pause(60)
        status = (await export.client.get(export.ref))["status"]
        assert (status["state"], status["endpoint"]) == ("Disabled", "")

    parameters = {"migratable": "true", "numberOfReplicas": "3"}
    with_export(story, {**SHARED_CLASS, "metadata": {"name": "vm-disks"}, "parameters": parameters})


def test_the_address_of_a_shared_volume_ends_with_the_volume():
    async def story(export: Export) -> None:
        await export.turn("Enabled")
        await export.until("state", "Enabled")
        await export.client.delete(export.ref)
        await export.pause(5)
        assert not export.answers("10.53.200.10")
        assert await export.client.find(SERVICE.ref(export.name, LONGHORN)) is not None
        await export.client.delete(PVC.ref("data", NAMESPACE))
        await export.pause(30)
        assert await export.client.find(kinds.PV.ref(export.name)) is None
        assert await export.client.find(SERVICE.ref(export.name, LONGHORN)) is None
        with pytest.raises(MountRefused, match="timed out"):
            export.harvester.network.nfs.mount("10.53.200.10", f"/{export.name}")

    with_export(story)


# --- pods of two nodes ------------------------------------------------------------------------------------------------


def a_pod(name: str, node: str) -> Raw:
    """A pod on this node that adds its name to a file of the volume, and serves the file."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", f"echo {name} >> /data/names"],
        "env": [{"name": "SERVE_FILE", "value": "/data/names"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists", "key": "node.cloudprovider.kubernetes.io/uninitialized"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return new_object(POD, name, "default", spec=spec)


class Sharing:
    """A guest of two nodes with a class for shared volumes, and what its pods serve."""

    def __init__(self, guest: GuestStorage) -> None:
        self.guest = guest

    async def prepare(self) -> None:
        guest = self.guest
        address = await guest.boot("one", cluster_wide=True)
        await guest.boot("two", address, cluster_wide=True)
        await guest.wait_for_driver("one", "two")
        await guest.host.create(STORAGE_CLASS, SHARED_CLASS)
        shared = new_object(
            STORAGE_CLASS,
            "shared",
            provisioner="driver.harvesterhci.io",
            parameters={"hostStorageClass": "longhorn-rwx"},
        )
        await guest.client.create(STORAGE_CLASS, shared)

    async def run(self, name: str, node: str) -> None:
        await self.guest.client.create(POD, a_pod(name, node), "default")

    async def runs(self, name: str) -> bool:
        pod = await self.guest.client.find(POD.ref(name, "default"))
        return is_true(nested(pod, "status", "conditions"), "Ready") and not is_deleting(
            pod or {"metadata": {}}
        )

    async def is_gone(self, name: str) -> bool:
        return await self.guest.client.find(POD.ref(name, "default")) is None

    def names(self, pod: str) -> list[str]:
        return self.guest.cluster.served_files["default", pod]().split()

    async def lose(self, node: str) -> None:
        """The node's VM is stopped, and its Node is taken out of service."""
        await self.guest.host.patch(kinds.VM.ref(node, NAMESPACE), {"spec": {"runStrategy": "Halted"}})
        await self.guest.until(lambda: self.is_unknown(node), f"{node} is Unknown")
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        await self.guest.client.patch(NODE.ref(node), {"spec": {"taints": [taint]}})

    async def is_unknown(self, node: str) -> bool:
        raw = await self.guest.client.get(NODE.ref(node))
        ready = next((one for one in raw["status"]["conditions"] if one["type"] == "Ready"), {})
        return ready.get("status") == "Unknown"

    async def export(self) -> Raw:
        (found,) = await self.guest.host.list(kinds.NETWORK_FILE_SYSTEM, SYSTEM)
        return found

    async def is_exported(self, state: str) -> bool:
        return bool(nested(await self.export(), "status", "state") == state)

    async def nodes_attached(self) -> list[str]:
        return sorted(raw["spec"]["nodeName"] for raw in await self.guest.client.list(VOLUME_ATTACHMENT))


def test_pods_of_two_nodes_share_a_volume_that_outlives_one_of_them():
    async def story() -> list[str]:
        async with a_guest() as guest:
            sharing = Sharing(guest)
            await sharing.prepare()
            told = Narrator(guest)
            claim = guest.claim("data", accessModes=["ReadWriteMany"], storageClassName="shared")
            await told.step("a claim for many", claim, lambda: guest.is_bound("data"))
            await told.step("a pod on one", sharing.run("a", "one"), lambda: sharing.runs("a"))
            await told.step("a pod on two", sharing.run("b", "two"), lambda: sharing.runs("b"))
            told.log(f"pod a reads {sharing.names('a')}, pod b reads {sharing.names('b')}")

            async def lose_two() -> None:
                await sharing.lose("two")
                await guest.client.delete(POD.ref("b", "default"), grace_s=0)

            async def is_detached() -> bool:
                return await sharing.nodes_attached() == ["one"]

            await told.step("node two is lost", lose_two(), is_detached)
            told.log(f"pod a reads {sharing.names('a')}")
            await told.step("another pod on one", sharing.run("c", "one"), lambda: sharing.runs("c"))
            told.log(f"pod c reads {sharing.names('c')}")
            for name in ("a", "c"):
                await guest.client.delete(POD.ref(name, "default"))
            await told.step(
                "the last pod is gone",
                guest.until(lambda: sharing.is_gone("c"), "c"),
                lambda: sharing.is_exported("Disabled"),
            )
            (disk,) = [raw for raw in await guest.host.list(PVC, NAMESPACE) if "-disk-" not in name_of(raw)]
            files: dict[str, File] = guest.harvester.hypervisor.disk(uid_of(disk)).files
            told.log(f"on the volume: {files['/names'].content.decode().split()}")
            await guest.client.delete(PVC.ref("data", "default"))

            async def is_deleted() -> bool:
                return not await guest.host.list(kinds.NETWORK_FILE_SYSTEM, SYSTEM) and not any(
                    "<data>" in key for key in await guest.observe()
                )

            await told.step("the claim is deleted", guest.until(is_deleted, "deleted"), is_deleted)
            return told.lines

    lines = run_driven(story())
    compare("shared-volume", lines)


def test_an_export_that_is_turned_off_fails_the_mount_with_the_words_of_mount_nfs():
    async def story() -> None:
        async with a_guest() as guest:
            sharing = Sharing(guest)
            await sharing.prepare()
            await guest.claim("data", accessModes=["ReadWriteMany"], storageClassName="shared")
            await guest.until(lambda: guest.is_bound("data"), "bound")
            await sharing.run("a", "one")
            await guest.until(lambda: sharing.runs("a"), "the pod runs")
            ref = kinds.NETWORK_FILE_SYSTEM.ref(name_of(await sharing.export()), SYSTEM)
            await guest.host.patch(ref, {"spec": {"desiredState": "Disabled"}})
            await guest.until(lambda: sharing.is_exported("Disabling"), "turned off")
            volume = await guest.volume_of("data")
            (attachment,) = await guest.client.list(VOLUME_ATTACHMENT)
            request = {
                "volume_id": volume["spec"]["csi"]["volumeHandle"],
                "publish_context": nested(attachment, "status", "attachmentMetadata"),
                "staging_target_path": "/staged",
                "volume_capability": {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}},
            }
            refused = rf"cannot mount 10\.53\.200\.10:/{ref.name} at /staged: mount\.nfs: Connection refused"
            with pytest.raises(CsiFailed, match=refused):
                await guest.node("two")("NodeStageVolume", request)
            assert sharing.names("a") == [], "what is mounted does not answer"
            await guest.until(lambda: sharing.is_exported("Enabled"), "the attacher has it turned on again")
            assert sharing.names("a") == ["a"]
            await guest.node("two")("NodeStageVolume", request)

    run_driven(story())
