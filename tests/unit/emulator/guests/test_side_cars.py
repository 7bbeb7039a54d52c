"""What the simulated side-cars make of a driver that fails, is late, or says something else than they know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE, PV, SNAPSHOT, SNAPSHOT_CONTENT
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_cluster.csi.registrar import NODE_IDS
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import EVENT, NODE, PVC, STORAGE_CLASS, VOLUME_ATTACHMENT

from .testbed import ClusterFixture, MachineTestbed, a_testbed

DRIVER = "driver.harvesterhci.io"
CREDENTIAL = "/etc/kubernetes/cloud-config"
_SERVED = (
    "CREATE_DELETE_VOLUME PUBLISH_UNPUBLISH_VOLUME EXPAND_VOLUME CREATE_DELETE_SNAPSHOT LIST_SNAPSHOTS CLONE_VOLUME "
    "LIST_VOLUMES LIST_VOLUMES_PUBLISHED_NODES SINGLE_NODE_MULTI_WRITER"
)
CAPABILITIES = _SERVED.split()
GIB = 1 << 30


class ScriptedDriver:
    """A driver that keeps its volumes in memory, remembers calls, and fails as told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Raw]] = []
        self.failures: dict[str, list[CsiFailed]] = defaultdict(list)
        self.hangs: set[str] = set()
        self.published: dict[str, set[str]] = {}
        self.snapshots_ready = True
        self.needs_node = False
        self.is_ready = True
        self.capabilities = CAPABILITIES

    async def __call__(self, context: ProgramContext) -> int:
        path = next(one for one in context.argv if one.startswith("--endpoint=")).partition("://")[2]
        assert context.storage is not None
        context.storage.listen(path, self.call)
        try:
            await asyncio.Event().wait()
        finally:
            context.storage.close(path, self.call)
        return 0

    async def call(self, method: str, request: Raw) -> Raw:
        self.calls.append((method, request))
        if method in self.hangs:
            await asyncio.Event().wait()
        if self.failures[method]:
            raise self.failures[method].pop(0)
        return dict(getattr(self, method)(request))

    def requests(self, method: str) -> list[Raw]:
        return [request for name, request in self.calls if name == method]

    def fail(self, method: str, *codes: str) -> None:
        self.failures[method] += [CsiFailed(code, f"no {method}") for code in codes]

    # -- methods

    def Probe(self, request: Raw) -> Raw:
        return {"ready": self.is_ready}

    def GetPluginInfo(self, request: Raw) -> Raw:
        return {"name": DRIVER}

    def NodeGetInfo(self, request: Raw) -> Raw:
        return {
            "node_id": "vm-one",
            "max_volumes_per_node": 240,
            "accessible_topology": {"segments": {"zone": "a"}},
        }

    def ControllerGetCapabilities(self, request: Raw) -> Raw:
        return {"capabilities": [{"rpc": {"type": one}} for one in self.capabilities]}

    def CreateVolume(self, request: Raw) -> Raw:
        self.published[request["name"]] = set()
        size = request["capacity_range"]["required_bytes"]
        return {
            "volume": {"volume_id": request["name"], "capacity_bytes": size, "volume_context": {"a": "b"}}
        }

    def DeleteVolume(self, request: Raw) -> Raw:
        self.published.pop(request["volume_id"], None)
        return {}

    def ControllerPublishVolume(self, request: Raw) -> Raw:
        self.published[request["volume_id"]].add(request["node_id"])
        return {"publish_context": {"serial": request["volume_id"]}}

    def ControllerUnpublishVolume(self, request: Raw) -> Raw:
        self.published[request["volume_id"]].discard(request["node_id"])
        return {}

    def ListVolumes(self, request: Raw) -> Raw:
        names = sorted(self.published)
        place = int(request.get("starting_token") or 0)
        entries = [
            {"volume": {"volume_id": one}, "status": {"published_node_ids": sorted(self.published[one])}}
            for one in names[place : place + 1]
        ]
        return {"entries": entries, **({"next_token": str(place + 1)} if place + 1 < len(names) else {})}

    def ControllerExpandVolume(self, request: Raw) -> Raw:
        size = request["capacity_range"]["required_bytes"]
        return {"capacity_bytes": size, **({"node_expansion_required": True} if self.needs_node else {})}

    def CreateSnapshot(self, request: Raw) -> Raw:
        found = {
            "snapshot_id": request["name"],
            "size_bytes": GIB,
            "creation_time": {"seconds": 1_700_000_000},
        }
        return {"snapshot": {**found, **({"ready_to_use": True} if self.snapshots_ready else {})}}

    def DeleteSnapshot(self, request: Raw) -> Raw:
        return {}

    def ListSnapshots(self, request: Raw) -> Raw:
        found = {"snapshot_id": request["snapshot_id"], "size_bytes": GIB, "ready_to_use": True}
        return {"entries": [{"snapshot": found}]}


class Rig:
    """A server of RKE2 with the driver, and its objects."""

    def __init__(self, testbed: MachineTestbed, driver: ScriptedDriver) -> None:
        self.testbed, self.driver = testbed, driver

    @property
    def cluster(self) -> Any:
        return next(iter(self.testbed.clusters.values()))

    @property
    def client(self) -> Any:
        return self.cluster.client()

    async def boot(self) -> None:
        config = {"cloud_provider_name": "harvester", "cloud_provider_config": CREDENTIAL}
        charts = {"/var/lib/rancher/rke2/server/manifests/csi.yaml": CONFIG}
        files = {CREDENTIAL: "of the node", **charts}
        self.testbed.power_on("one", ClusterFixture().first("one", files=files, **config))
        await self.testbed.wait_for(lambda: self.testbed.hosts["one"].logged("node is Ready"))
        await self.client.patch(NODE.ref("one"), {"spec": {"taints": None}})
        await self.until(lambda: self.cluster.csi.find("one", DRIVER))
        await self.until(lambda: self.driver.requests("ControllerGetCapabilities"))

    async def until(self, holds: Callable[[], Any], within: float = 900) -> float:
        return await self.testbed.wait_for(holds, within)

    async def claim(self, name: str = "data", **spec: Any) -> None:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        await self.client.create(PVC, new_object(PVC, name, "default", spec=asked), "default")

    async def bound_claim(self, name: str = "data", **spec: Any) -> Raw:
        """A claim with its volume; the volume."""
        await self.claim(name, **spec)
        await self.until(lambda: self.is_bound(name))
        found = await self.client.get(PVC.ref(name, "default"))
        return dict(await self.client.get(PV.ref(found["spec"]["volumeName"])))

    async def is_bound(self, name: str = "data") -> bool:
        return nested(await self.client.find(PVC.ref(name, "default")), "status", "phase") == "Bound"

    async def attach(self, volume: Raw, node: str = "one") -> None:
        spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": name_of(volume)}}
        await self.client.create(VOLUME_ATTACHMENT, new_object(VOLUME_ATTACHMENT, "a", spec=spec))

    async def attachment(self) -> Raw:
        return await self.client.find(VOLUME_ATTACHMENT.ref("a")) or {}

    async def is_attached(self) -> bool:
        return bool(nested(await self.attachment(), "status", "attached", default=False))

    async def find(self, kind: Any, name: str) -> Raw | None:
        found: Raw | None = await self.client.find(kind.ref(name, "default" if kind.namespaced else ""))
        return found

    async def events(self, reason: str) -> list[str]:
        return [str(raw["message"]) for raw in await self.client.list(EVENT) if raw["reason"] == reason]


CONFIG = f"""
apiVersion: helm.cattle.io/v1
kind: HelmChartConfig
metadata: {{name: harvester-csi-driver, namespace: kube-system}}
spec: {{valuesContent: "cloudConfig: {{hostPath: {CREDENTIAL}}}"}}
"""


def on_a_server(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        driver = ScriptedDriver()
        async with a_testbed(programs={"harvester-csi-driver": driver}) as testbed:
            rig = Rig(testbed, driver)
            await rig.boot()
            await story(rig)

    run_driven(run())


async def is_gone(rig: Rig, kind: Any, name: str) -> bool:
    return await rig.find(kind, name) is None


# -- registrar


def test_a_driver_is_registered_with_its_node_and_forgotten_with_its_chart():
    async def story(rig: Rig) -> None:
        found = await rig.find(CSI_NODE, "one")
        node = await rig.client.get(NODE.ref("one"))
        assert nested(found, "spec", "drivers") == [
            {"name": DRIVER, "nodeID": "vm-one", "topologyKeys": ["zone"], "allocatable": {"count": 240}}
        ]
        assert nested(found, "metadata", "ownerReferences", 0, "uid") == uid_of(node)
        assert annotations_of(node)[NODE_IDS] == '{"driver.harvesterhci.io":"vm-one"}'
        assert list(rig.cluster.csi.nodes_of(DRIVER)) == ["one"]
        await rig.testbed.cut_power("one")
        assert rig.cluster.csi.find("one", DRIVER) is None

    on_a_server(story)


# -- provisioner


def test_a_volume_is_made_with_what_its_class_and_claim_say():
    async def story(rig: Rig) -> None:
        made = new_object(
            STORAGE_CLASS,
            "fast",
            provisioner=DRIVER,
            parameters={"hostStorageClass": "ssd", "csi.storage.k8s.io/fstype": "xfs"},
            mountOptions=["noatime"],
        )
        await rig.client.create(STORAGE_CLASS, made)
        volume = await rig.bound_claim(storageClassName="fast")
        (request,) = rig.driver.requests("CreateVolume")
        assert request == {
            "name": name_of(volume),
            "capacity_range": {"required_bytes": GIB},
            "parameters": {"hostStorageClass": "ssd"},
            "volume_capabilities": [
                {
                    "mount": {"fs_type": "xfs", "mount_flags": ["noatime"]},
                    "access_mode": {"mode": "SINGLE_NODE_MULTI_WRITER"},
                }
            ],
        }
        assert volume["spec"]["csi"]["fsType"] == "xfs"
        assert volume["spec"]["mountOptions"] == ["noatime"]
        attributes = volume["spec"]["csi"]["volumeAttributes"]
        assert attributes["a"] == "b"
        assert attributes["storage.kubernetes.io/csiProvisionerIdentity"].endswith(f"-{DRIVER}")
        assert set(finalizers_of(volume)) == {
            "kubernetes.io/pv-protection",
            "external-provisioner.volume.kubernetes.io/finalizer",
        }
        block = await rig.bound_claim("raw", volumeMode="Block", accessModes=["ReadWriteOncePod"])
        assert rig.driver.requests("CreateVolume")[1]["volume_capabilities"] == [
            {"block": {}, "access_mode": {"mode": "SINGLE_NODE_SINGLE_WRITER"}}
        ]
        assert "fsType" not in block["spec"]["csi"]
        assert block["spec"]["storageClassName"] == "harvester", "the default class"

    on_a_server(story)


def test_a_call_that_fails_is_repeated_after_growing_pauses():
    async def story(rig: Rig) -> None:
        rig.driver.fail("CreateVolume", "UNAVAILABLE", "INTERNAL", "INTERNAL")
        await rig.claim()
        took = await rig.until(rig.is_bound)
        assert 7 <= took <= 9, "after 1, 2 and 4 s"
        messages = await rig.events("ProvisioningFailed")
        wanted = 'with StorageClass "harvester": rpc error: code = Unavailable desc = no CreateVolume'
        assert any(wanted in one for one in messages)
        assert await rig.events("ProvisioningSucceeded")

    on_a_server(story)


def test_a_volume_that_may_have_been_made_is_followed_up_when_its_claim_is_deleted():
    async def story(rig: Rig) -> None:
        rig.driver.fail("CreateVolume", "DEADLINE_EXCEEDED")
        await rig.claim()
        await rig.until(lambda: rig.driver.requests("CreateVolume"))
        await rig.client.delete(PVC.ref("data", "default"))
        await rig.until(lambda: rig.driver.requests("DeleteVolume"))
        assert not rig.driver.published
        await rig.until(lambda: no_volumes(rig))

    on_a_server(story)


def test_a_volume_that_was_refused_is_not_followed_up():
    async def story(rig: Rig) -> None:
        rig.driver.fail("CreateVolume", "INVALID_ARGUMENT")
        await rig.claim()
        await rig.until(lambda: rig.driver.requests("CreateVolume"))
        await rig.client.delete(PVC.ref("data", "default"))
        await rig.testbed.sleep(60)
        assert len(rig.driver.requests("CreateVolume")) == 1

    on_a_server(story)


async def no_volumes(rig: Rig) -> bool:
    return not await rig.client.list(PV)


def test_a_node_without_room_is_chosen_anew():
    async def story(rig: Rig) -> None:
        late = new_object(STORAGE_CLASS, "late", provisioner=DRIVER, volumeBindingMode="WaitForFirstConsumer")
        await rig.client.create(STORAGE_CLASS, late)
        rig.driver.fail("CreateVolume", "RESOURCE_EXHAUSTED")
        await rig.claim(storageClassName="late")
        await rig.until(lambda: rig.events("WaitForFirstConsumer"))
        chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "one"}}}
        await rig.client.patch(PVC.ref("data", "default"), chosen)
        await rig.until(lambda: is_unplaced(rig))

    on_a_server(story)


async def is_unplaced(rig: Rig) -> bool:
    claim = await rig.client.get(PVC.ref("data", "default"))
    called = bool(rig.driver.requests("CreateVolume"))
    return called and "volume.kubernetes.io/selected-node" not in annotations_of(claim)


def test_a_released_volume_is_deleted_once_it_is_attached_nowhere():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        await rig.attach(volume)
        await rig.until(rig.is_attached)
        await rig.client.delete(PVC.ref("data", "default"))
        await rig.until(lambda: rig.events("VolumeFailedDelete"))
        (why,) = await rig.events("VolumeFailedDelete")
        assert why == f"persistentvolume {name_of(volume)} is still attached to node one"
        assert not rig.driver.requests("DeleteVolume")
        await rig.client.delete(VOLUME_ATTACHMENT.ref("a"))
        rig.driver.fail("DeleteVolume", "ABORTED")
        await rig.until(lambda: is_gone(rig, PV, name_of(volume)))
        assert len(rig.driver.requests("DeleteVolume")) == 2

    on_a_server(story)


# -- attacher


def test_what_the_driver_says_of_an_attachment_is_in_its_status():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        rig.driver.fail("ControllerPublishVolume", "INTERNAL")
        await rig.attach(volume)
        await rig.until(lambda: has_error(rig, "attachError"))
        assert not await rig.is_attached()
        await rig.until(rig.is_attached)
        attachment = await rig.attachment()
        assert attachment["status"] == {"attached": True, "attachmentMetadata": {"serial": name_of(volume)}}
        assert finalizers_of(attachment) == ["external-attacher/driver-harvesterhci-io"]
        assert rig.driver.requests("ControllerPublishVolume")[-1]["node_id"] == "vm-one"
        rig.driver.fail("ControllerUnpublishVolume", "UNAVAILABLE")
        await rig.client.delete(VOLUME_ATTACHMENT.ref("a"))
        await rig.until(lambda: has_error(rig, "detachError"))
        await rig.until(lambda: is_gone(rig, VOLUME_ATTACHMENT, "a"))
        assert rig.driver.published == {name_of(volume): set()}

    on_a_server(story)


async def has_error(rig: Rig, field: str) -> bool:
    return "rpc error" in nested(await rig.attachment(), "status", field, "message", default="")


def test_an_attachment_waits_for_the_driver_of_its_node():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        await rig.attach(volume, "two")
        await rig.testbed.sleep(5)
        why = nested(await rig.attachment(), "status", "attachError", "message")
        assert why == 'csinode.storage.k8s.io "two" not found'
        drivers = [{"name": DRIVER, "nodeID": "vm-two", "topologyKeys": None}]
        await rig.client.create(CSI_NODE, new_object(CSI_NODE, "two", spec={"drivers": drivers}))
        await rig.until(rig.is_attached, 1)
        assert rig.driver.published == {name_of(volume): {"vm-two"}}

    on_a_server(story)


def test_a_call_without_an_answer_is_given_up_and_repeated():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        rig.driver.hangs.add("ControllerPublishVolume")
        await rig.attach(volume)
        took = await rig.until(lambda: has_error(rig, "attachError"))
        assert 110 <= took <= 111
        rig.driver.hangs.clear()
        await rig.until(rig.is_attached)

    on_a_server(story)


def test_what_is_published_no_more_is_published_again():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        await rig.bound_claim("other")
        await rig.attach(volume)
        await rig.until(rig.is_attached)
        rig.driver.published[name_of(volume)].clear()
        await rig.until(lambda: rig.driver.published[name_of(volume)], 61)
        assert len(rig.driver.requests("ControllerPublishVolume")) == 2

    on_a_server(story)


# -- resizer


def test_a_claim_has_its_new_size_once_the_driver_says_so():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        rig.driver.fail("ControllerExpandVolume", "INTERNAL")
        asked = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await rig.client.patch(PVC.ref("data", "default"), asked)
        await rig.until(lambda: has_capacity(rig, "2Gi"))
        assert (await rig.client.get(PV.ref(name_of(volume))))["spec"]["capacity"] == {"storage": "2Gi"}
        claim = await rig.client.get(PVC.ref("data", "default"))
        assert "conditions" not in claim["status"]
        assert len(await rig.events("VolumeResizeFailed")) == 1
        rig.driver.needs_node = True
        asked = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        await rig.client.patch(PVC.ref("data", "default"), asked)
        await rig.until(lambda: rig.events("FileSystemResizeRequired"))
        claim = await rig.client.get(PVC.ref("data", "default"))
        assert [one["type"] for one in claim["status"]["conditions"]] == ["FileSystemResizePending"]
        assert claim["status"]["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
        assert claim["status"]["capacity"] == {"storage": "2Gi"}
        await rig.testbed.sleep(60)
        assert len(rig.driver.requests("ControllerExpandVolume")) == 3

    on_a_server(story)


async def has_capacity(rig: Rig, size: str) -> bool:
    found = await rig.client.get(PVC.ref("data", "default"))
    return bool(nested(found, "status", "capacity", "storage") == size)


# -- snapshots


async def snapshot(rig: Rig, name: str = "s", **spec: Any) -> None:
    source = {"source": {"persistentVolumeClaimName": "data"}, **spec}
    await rig.client.create(SNAPSHOT, new_object(SNAPSHOT, name, "default", spec=source), "default")


async def is_ready(rig: Rig, name: str = "s") -> bool:
    return bool(nested(await rig.find(SNAPSHOT, name), "status", "readyToUse", default=False))


def test_a_snapshot_is_asked_for_until_it_is_ready_and_deleted_with_its_object():
    async def story(rig: Rig) -> None:
        await rig.bound_claim()
        rig.driver.snapshots_ready = False
        rig.driver.fail("CreateSnapshot", "UNAVAILABLE")
        await snapshot(rig)
        await rig.until(lambda: len(rig.driver.requests("CreateSnapshot")) == 3)
        assert not await is_ready(rig)
        rig.driver.snapshots_ready = True
        await rig.until(lambda: is_ready(rig))
        found = await rig.find(SNAPSHOT, "s")
        assert nested(found, "status", "restoreSize") == "1Gi"
        assert nested(found, "status", "creationTime") == "2023-11-14T22:13:20Z"
        assert nested(found, "spec", "volumeSnapshotClassName") == "harvester-snapshot"
        claim = await rig.client.get(PVC.ref("data", "default"))
        assert finalizers_of(claim) == ["kubernetes.io/pvc-protection"]
        await rig.client.delete(SNAPSHOT.ref("s", "default"))
        await rig.until(lambda: is_gone(rig, SNAPSHOT, "s"))
        assert rig.driver.requests("DeleteSnapshot") == [{"snapshot_id": f"snapshot-{uid_of(found or {})}"}]
        assert not await rig.client.list(SNAPSHOT_CONTENT)

    on_a_server(story)


def test_a_snapshot_whose_claim_is_missing_says_so_and_is_taken_later():
    async def story(rig: Rig) -> None:
        await snapshot(rig)
        await rig.until(lambda: rig.events("SnapshotContentCreationFailed"))
        found = await rig.find(SNAPSHOT, "s")
        assert "the PVC data is not yet bound to a PV" in nested(found, "status", "error", "message")
        await rig.bound_claim()
        await rig.until(lambda: is_ready(rig))
        assert "error" not in (await rig.find(SNAPSHOT, "s") or {})["status"]

    on_a_server(story)


def test_a_snapshot_that_was_there_before_is_bound_and_kept():
    async def story(rig: Rig) -> None:
        content = new_object(
            SNAPSHOT_CONTENT,
            "kept",
            spec={
                "deletionPolicy": "Retain",
                "driver": DRIVER,
                "source": {"snapshotHandle": "before"},
                "volumeSnapshotRef": {"name": "s", "namespace": "default"},
            },
        )
        await rig.client.create(SNAPSHOT_CONTENT, content)
        await snapshot(rig, source={"volumeSnapshotContentName": "kept"})
        await rig.until(lambda: is_ready(rig))
        assert rig.driver.requests("ListSnapshots") == [{"snapshot_id": "before"}]
        await rig.client.delete(SNAPSHOT.ref("s", "default"))
        await rig.until(lambda: is_gone(rig, SNAPSHOT, "s"))
        assert await rig.find(SNAPSHOT_CONTENT, "kept") is not None
        assert not rig.driver.requests("DeleteSnapshot")

    on_a_server(story)


def test_a_restore_waits_for_its_snapshot_and_names_it():
    async def story(rig: Rig) -> None:
        source = {"apiGroup": SNAPSHOT.group, "kind": "VolumeSnapshot", "name": "s"}
        await rig.claim("restored", dataSource=source)
        await rig.until(lambda: rig.events("ProvisioningFailed"))
        await rig.bound_claim()
        await snapshot(rig)
        await rig.until(lambda: rig.is_bound("restored"))
        found = await rig.find(SNAPSHOT, "s")
        wanted = {"snapshot": {"snapshot_id": f"snapshot-{uid_of(found or {})}"}}
        assert rig.driver.requests("CreateVolume")[-1]["volume_content_source"] == wanted

    on_a_server(story)


# -- volumes of administrators


def test_a_claim_is_bound_to_the_smallest_volume_of_an_administrator_that_fits():
    async def story(rig: Rig) -> None:
        for name, size in (("large", "5Gi"), ("small", "2Gi"), ("tiny", "512Mi")):
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": size},
                "csi": {"driver": DRIVER, "volumeHandle": name},
            }
            await rig.client.create(PV, new_object(PV, name, spec=spec))
        await rig.until(lambda: has_phase(rig, "tiny", "Available"))
        volume = await rig.bound_claim(storageClassName="")
        assert name_of(volume) == "small"
        await rig.client.delete(PVC.ref("data", "default"))
        await rig.until(lambda: has_phase(rig, "small", "Released"))
        await rig.testbed.sleep(10)
        assert not rig.driver.requests("DeleteVolume"), "it was not provisioned"

    on_a_server(story)


async def has_phase(rig: Rig, volume: str, phase: str) -> bool:
    return nested(await rig.find(PV, volume), "status", "phase") == phase


def test_a_claim_without_a_class_or_volume_says_what_it_lacks():
    async def story(rig: Rig) -> None:
        await rig.claim("one", storageClassName="none")
        await rig.claim("two", storageClassName="")
        await rig.until(lambda: rig.events("FailedBinding"))
        assert await rig.events("ProvisioningFailed") == ['storageclass.storage.k8s.io "none" not found']

    on_a_server(story)


def test_a_claim_whose_volume_is_taken_away_is_lost():
    async def story(rig: Rig) -> None:
        volume = await rig.bound_claim()
        await rig.client.delete(PV.ref(name_of(volume)))
        edit = {"metadata": {"finalizers": None}}
        await rig.client.patch(PV.ref(name_of(volume)), edit)
        await rig.until(lambda: rig.events("ClaimLost"))
        claim = await rig.client.get(PVC.ref("data", "default"))
        assert claim["status"]["phase"] == "Lost"

    on_a_server(story)


def test_a_driver_that_is_not_ready_is_asked_again():
    async def run() -> None:
        driver = ScriptedDriver()
        driver.is_ready = False
        driver.fail("Probe", "UNAVAILABLE")
        async with a_testbed(programs={"harvester-csi-driver": driver}) as testbed:
            rig = Rig(testbed, driver)
            booting = asyncio.create_task(rig.boot())
            await rig.until(lambda: len(driver.requests("Probe")) > 3)
            assert testbed.hosts["one"].logged("csi-provisioner: CSI driver is not ready")
            driver.is_ready = True
            await booting

    run_driven(run())
