"""The real external-attacher, external-snapshotter and snapshot-controller drive our CSI driver, beside a real kube-apiserver and a
real kube-controller-manager. The test plays the scheduler and the provisioner: no Go module has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import Guest, Host, a_host, eventually, run_beside
from tests.conformance.csi_driver_objects import NAMESPACE, NODE, OTHER_NODE, create, delete
from tests.conformance.csi_driver_rig import Driver, a_driver, our_program, require_namespaces
from tests.conformance.real_cluster import ENDING_WITH_US, Cluster
from tests.conformance.test_chart_rights_real import token_of

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats import yaml
from windrow.emulator import kinds
from windrow.kubernetes.errors import AlreadyExists, KubeError, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, mappings_at, name_of, nested, new_object
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    PVC,
    SERVICE_ACCOUNT,
    VOLUME_ATTACHMENT,
    ApiResource,
)

pytestmark = [pytest.mark.go, pytest.mark.long, pytest.mark.timeout(240)]

POD = ApiResource("", "v1", "Pod", "pods")
NODE_KIND = ApiResource("", "v1", "Node", "nodes", namespaced=False)
CSI_NODE = ApiResource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False)
CSI_DRIVER = ApiResource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False)
CRD = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
DRIVER = "driver.harvesterhci.io"
VOLUME = "pvc-5f0e4c57-0001-4d8f-9d8f-2a54c5a6a001"
CLASS = "snapshots"


@dataclass
class Town:
    """A guest cluster of real programs, whose volumes our driver makes on an emulated Harvester."""

    host: Host
    guest: Guest
    client: Client
    driver_at: Callable[[], Any]
    folder: Path
    drivers: AsyncExitStack = field(default_factory=AsyncExitStack)
    driver: Driver | None = None

    async def start_driver(self) -> None:
        self.driver = await self.drivers.enter_async_context(self.driver_at())

    async def kill_driver(self) -> None:
        """As the kernel does when memory is short."""
        await self.drivers.aclose()
        self.driver = None

    async def provision(self) -> None:
        """A volume, its PersistentVolume and its claim, as the provisioner makes them."""
        assert self.driver is not None
        made: Any = await self.driver.done(create(VOLUME))
        reference = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": "data"}
        spec: Raw = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "harvester",
            "claimRef": reference,
            "csi": {
                "driver": DRIVER,
                "volumeHandle": made.volume.volume_id,
                "fsType": "ext4",
                "volumeAttributes": dict(made.volume.volume_context),
            },
        }
        claim: Raw = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "harvester",
            "volumeName": VOLUME,
        }
        await self.client.create(kinds.PV, new_object(kinds.PV, VOLUME, spec=spec))
        await self.client.create(PVC, new_object(PVC, "data", NAMESPACE, spec=claim))

        async def is_bound() -> bool:
            raw = await self.client.get(PVC.ref("data", NAMESPACE))
            return nested(raw, "status", "phase") == "Bound"

        await eventually(is_bound, "the claim is bound")

    async def start_pod(self, name: str, node: str) -> None:
        """A pod that uses the claim, where a scheduler would have put it: kube-controller-manager attaches what it needs."""
        spec: Raw = {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "app", "image": "app", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
            ],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        }

        async def made() -> bool:
            try:
                await self.client.create(POD, new_object(POD, name, NAMESPACE, spec=spec))
            except AlreadyExists:
                return True
            except KubeError:  # its service account is made by kube-controller-manager
                return False
            return True

        await eventually(made, f"pod {name} is made")

    async def attachment(self) -> Raw | None:
        """The VolumeAttachment of the volume."""
        found = await self.client.list(VOLUME_ATTACHMENT)
        own = [one for one in found if nested(one, "spec", "source", "persistentVolumeName") == VOLUME]
        return own[0] if own else None

    async def until_attached(self, node: str) -> Raw:
        async def attached() -> Raw | None:
            found = await self.attachment()
            there = found is not None and found["spec"]["nodeName"] == node
            return found if there and nested(found, "status", "attached") else None

        made: Raw = await eventually(attached, f"the volume is attached to {node}", 90)
        return made

    async def until_detached(self) -> None:
        async def gone() -> bool:
            return await self.attachment() is None

        await eventually(gone, "the VolumeAttachment is gone", 90)

    async def disk_of(self, node: str) -> Raw | None:
        """The disk that the VM has of the volume, once or not at all."""
        vm = await self.host.api.get(kinds.VM.ref(node, NAMESPACE))
        spec = nested(vm, "spec", "template", "spec")
        disks = [one for one in mappings_at(spec, "domain", "devices", "disks") if one["name"] == VOLUME]
        assert len(disks) <= 1
        return dict(disks[0]) if disks else None

    async def unplug(self, node: str) -> None:
        """Take the disk from the VM behind the driver's back."""
        ref = kinds.VM.ref(node, NAMESPACE)
        vm = await self.host.api.get(ref)
        spec = vm["spec"]["template"]["spec"]
        spec["volumes"] = [one for one in spec["volumes"] if one["name"] != VOLUME]
        devices = spec["domain"]["devices"]
        devices["disks"] = [one for one in devices["disks"] if one["name"] != VOLUME]
        await self.host.api.update(kinds.VM, vm)


@asynccontextmanager
async def supervised(log: Path, *argv: str) -> AsyncIterator[None]:
    """A program that is started again whenever it ends, as a kubelet does: side-cars end when their driver does."""
    running: list[Process] = []

    async def run() -> None:
        with log.open("ab") as out:
            while True:
                process = await asyncio.create_subprocess_exec(
                    *ENDING_WITH_US, *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
                )
                running.append(process)
                await process.wait()
                await asyncio.sleep(0.5)

    async with run_beside(run()):
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                if running:
                    running[-1].kill()


async def install(client: Client, definitions: Path) -> None:
    """What the charts of the driver and of the snapshot controller bring to the cluster, and the kubelets of its nodes."""
    for path in sorted(definitions.glob("*.yaml")):  # noqa: ASYNC240
        with contextlib.suppress(AlreadyExists):
            await client.create(CRD, yaml.load(path.read_text()))
    for name in (NODE, OTHER_NODE):
        managed = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        node = await client.create(NODE_KIND, new_object(NODE_KIND, name, annotations=managed))
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        registered = new_object(CSI_NODE, name, spec={"drivers": [{"name": DRIVER, "nodeID": name}]})
        registered["metadata"]["ownerReferences"] = [owner]
        await client.create(CSI_NODE, registered)
    driver = new_object(CSI_DRIVER, DRIVER, spec={"attachRequired": True, "podInfoOnMount": True})
    await client.create(CSI_DRIVER, driver)

    async def are_served() -> bool:
        found = await client.list(CRD)
        return len(found) >= 3 and all(_is_established(one) for one in found)

    await eventually(are_served, "the kinds of snapshots are served")
    fields = {"driver": DRIVER, "deletionPolicy": "Delete"}
    await client.create(kinds.SNAPSHOT_CLASS, new_object(kinds.SNAPSHOT_CLASS, CLASS, **fields))


async def uninstall(client: Client) -> None:
    """What is left is another test's cluster."""
    for ref in (
        *(NODE_KIND.ref(name) for name in (NODE, OTHER_NODE)),
        *(CSI_NODE.ref(name) for name in (NODE, OTHER_NODE)),
        CSI_DRIVER.ref(DRIVER),
        PVC.ref("data", NAMESPACE),
        kinds.PV.ref(VOLUME),
        kinds.SNAPSHOT_CLASS.ref(CLASS),
    ):
        with contextlib.suppress(NotFound):
            await client.delete(ref)


def _is_established(raw: Raw) -> bool:
    conditions = nested(raw, "status", "conditions", default=[])
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def account(client: Client, cluster: Cluster) -> str:
    """A kubeconfig with a token, as programs in pods have."""
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "csi", "namespace": "kube-system"}
    with contextlib.suppress(AlreadyExists):
        await client.create(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, "csi", "kube-system"))
        await client.create(
            CLUSTER_ROLE_BINDING, new_object(CLUSTER_ROLE_BINDING, "csi", roleRef=role, subjects=[subject])
        )
    token = await token_of(client, "csi", "kube-system")
    return render_kubeconfig(ClientConfig(cluster.url, ca=cluster.access().ca, token=token), "guest")


@asynccontextmanager
async def a_town(
    cluster: Cluster, folder: Path, reference_program: Callable[[str], str]
) -> AsyncIterator[Town]:
    names = ("csi-attacher", "csi-snapshotter", "snapshot-controller")
    attacher, snapshotter, controller = map(reference_program, names)
    definitions = Path(reference_program("csi_sidecars.definitions"))
    require_namespaces()
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(a_host())
        transport = await stack.enter_async_context(HttpTransport(cluster.access(), SystemClock()))
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="csi-"))
        client, socket = Client(transport), Path(short) / "csi.sock"
        for name in (NODE, OTHER_NODE):
            await host.make_vm(name)
        config = await account(client, cluster)
        await install(client, definitions)
        kubeconfig = folder / "sidecars.kubeconfig"
        kubeconfig.write_text(config)
        town = Town(
            host,
            Guest(client, transport, config),
            client,
            lambda: a_driver(our_program(), folder, host.kubeconfig, config, NODE, socket=socket),
            folder,
        )
        await stack.enter_async_context(town.drivers)
        await town.start_driver()
        address = (f"--csi-address={socket}", f"--kubeconfig={kubeconfig}", "--timeout=110s")
        quick = ("--retry-interval-start=200ms", "--retry-interval-max=2s")
        for argv in (
            (attacher, *address, *quick, "--default-fstype=ext4", "--reconcile-sync=3s"),
            (snapshotter, *address, *quick),
            (controller, f"--kubeconfig={kubeconfig}"),
        ):
            log = folder / f"{Path(argv[0]).name}.log"
            await stack.enter_async_context(supervised(log, *argv))
        try:
            yield town
            await uninstall(client)
        except BaseException:
            for log in sorted(folder.glob("*.log")):  # noqa: ASYNC240
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            raise


async def test_real_sidecars_attach_repair_snapshot_and_detach_over_a_restart_of_the_driver(
    managed_cluster: Cluster, tmp_path: Path, reference_program: Callable[[str], str]
) -> None:
    async with a_town(managed_cluster, tmp_path, reference_program) as town:
        await town.provision()

        # kube-controller-manager makes a VolumeAttachment for the pod, and the attacher carries it out.
        await town.start_pod("app-1", NODE)
        attachment = await town.until_attached(NODE)
        disk = await town.disk_of(NODE)
        assert disk is not None
        assert attachment["status"]["attachmentMetadata"]["serial"] == disk["serial"]

        # What is unplugged behind the driver's back, the attacher finds in ListVolumes, and attaches again.
        await town.unplug(NODE)
        await eventually(lambda: town.disk_of(NODE), "the disk is plugged in again", 60)

        await snapshot_and_delete_it(town)

        # The pod goes while there is no driver; the next one finishes what is due.
        await town.kill_driver()
        await town.client.delete(POD.ref("app-1", NAMESPACE))
        await asyncio.sleep(1)
        assert await town.disk_of(NODE) is not None
        await town.start_driver()
        await town.until_detached()
        assert await town.disk_of(NODE) is None

        await town.start_pod("app-2", OTHER_NODE)
        await town.until_attached(OTHER_NODE)
        assert await town.disk_of(OTHER_NODE) is not None
        assert await town.disk_of(NODE) is None
        await town.client.delete(POD.ref("app-2", NAMESPACE))
        await town.until_detached()

        assert town.driver is not None
        await town.driver.done(delete(VOLUME))
        assert await town.host.api.find(PVC.ref(VOLUME, NAMESPACE)) is None


async def snapshot_and_delete_it(town: Town) -> None:
    spec = {"volumeSnapshotClassName": CLASS, "source": {"persistentVolumeClaimName": "data"}}
    ref = kinds.SNAPSHOT.ref("before", NAMESPACE)
    await town.client.create(kinds.SNAPSHOT, new_object(kinds.SNAPSHOT, "before", NAMESPACE, spec=spec))

    async def is_ready() -> Raw | None:
        raw = await town.client.get(ref)
        return raw if nested(raw, "status", "readyToUse") else None

    made = await eventually(is_ready, "the snapshot is ready", 90)
    (on_host,) = await town.host.api.list(kinds.SNAPSHOT, NAMESPACE)
    assert name_of(on_host) == f"snapshot-{made['metadata']['uid']}"
    assert made["status"]["restoreSize"] == "1Gi"

    await town.client.delete(ref)

    async def is_gone() -> bool:
        return not await town.client.list(kinds.SNAPSHOT_CONTENT)

    await eventually(is_gone, "the content of the snapshot is gone", 90)
    assert not await town.host.api.list(kinds.SNAPSHOT, NAMESPACE)
