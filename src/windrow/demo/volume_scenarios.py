"""The demo's volume: a claim in the guest, for which the CSI driver makes one on Harvester, and takes it away again."""

from __future__ import annotations

from windrow.app.guest_programs import has_csi_driver
from windrow.client.client import Client
from windrow.demo.cluster import DemoCluster
from windrow.demo.waiting import Objects, WaitTimedOut
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import EVENT, PVC, STORAGE_CLASS

NAMESPACE, NAME = "default", "data"
CLAIM = PVC.ref(NAME, NAMESPACE)
CLASS = STORAGE_CLASS.ref("harvester")
CHECKS = ("volume-bound", "volume-gone")
WITHOUT_LIBRARIES = "the CSI driver's libraries are not installed; they come with the extra csi: windrow[csi]"
WITHOUT_DRIVER = (
    "no chart of Harvester's CSI driver is installed in the guest, so there is no StorageClass harvester"
)


async def create_volume(cluster: DemoCluster) -> None:
    """Create a claim of the StorageClass `harvester`: it must be bound to a volume that is a claim on Harvester."""
    if not has_csi_driver():
        cluster.report.skip(CHECKS, WITHOUT_LIBRARIES)
        return
    guest = await cluster.guest_client()
    if await guest.find(CLASS) is None:
        cluster.report.skip(CHECKS, WITHOUT_DRIVER)
        return
    begun = cluster.clock.now()
    cluster.report.add(f"{CLAIM} of the guest is created, of {CLASS}")
    await guest.create(PVC, render_claim())
    try:
        volume = await _wait_until_bound(cluster, guest)
    except WaitTimedOut as error:
        cluster.report.check("volume-bound", False, f"{error}; {await _last_event(guest)}")
        return
    took = (cluster.clock.now() - begun).total_seconds()
    namespace = await _vm_namespace(cluster)
    on_harvester = await cluster.harvester.find(PVC.ref(volume, namespace))
    cluster.report.check(
        "volume-bound",
        on_harvester is not None,
        f"{CLAIM} is bound to {PVC.ref(volume, namespace)} on Harvester after {took:.1f} s",
    )


async def delete_volume(cluster: DemoCluster) -> None:
    """Delete the claim: its volume on Harvester must go. Does nothing without a claim."""
    if not has_csi_driver():
        return
    guest = await cluster.guest_client()
    volume = str(nested(await guest.find(CLAIM), "spec", "volumeName", default=""))
    if not volume:
        return
    namespace = await _vm_namespace(cluster)
    cluster.report.add(f"{CLAIM} of the guest is deleted")
    await guest.delete(CLAIM)
    ref = PVC.ref(volume, namespace)
    await cluster.wait_on(
        cluster.harvester,
        PVC,
        lambda objects: (namespace, volume) not in objects,
        f"{ref} on Harvester to be gone",
    )
    cluster.report.check("volume-gone", True, f"{ref} on Harvester is gone with the claim")


def render_claim() -> Raw:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": CLASS.name,
    }
    return new_object(PVC, NAME, NAMESPACE, spec=spec)


async def _wait_until_bound(cluster: DemoCluster, guest: Client) -> str:
    """The name of the volume. Raises WaitTimedOut."""

    def find_volume(objects: Objects) -> str:
        found = objects.get((NAMESPACE, NAME))
        is_bound = nested(found, "status", "phase") == "Bound"
        return str(nested(found, "spec", "volumeName", default="")) if is_bound else ""

    return await cluster.wait_on(guest, PVC, find_volume, f"{CLAIM} of the guest to be Bound", NAMESPACE)


async def _vm_namespace(cluster: DemoCluster) -> str:
    """The namespace on Harvester that has the cluster's VMs and volumes."""
    vm = await cluster.get_vm((await cluster.list_machines())[0])
    return str(vm["metadata"]["namespace"])


async def _last_event(guest: Client) -> str:
    """The message of the claim's last event."""
    events = await guest.list(EVENT, NAMESPACE)
    about = [raw for raw in events if nested(raw, "involvedObject", "name") == NAME]
    return str(about[-1]["message"]) if about else "no event about it"
