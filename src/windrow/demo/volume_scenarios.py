"""The demo's volume: a claim in the guest, for which the CSI driver makes one on Harvester; a pod that writes into it, whose
node is lost; and the pod that takes its place and must read the same.

No state is kept between scenarios: what the volume holds is read through the pod's Service.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.app.guest_programs import has_csi_driver
from windrow.client.client import Client
from windrow.demo.cluster import DemoCluster, PoolSpec
from windrow.demo.service_scenarios import (
    PodReply,
    address_of,
    find_service,
    render_service,
    wait_for_address,
    wait_for_reply,
)
from windrow.demo.waiting import Objects, WaitTimedOut
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.resources import DEPLOYMENT, EVENT, PVC, SERVICE, STORAGE_CLASS

NAMESPACE, NAME, STORE = "default", "data", "store"
CLAIM = PVC.ref(NAME, NAMESPACE)
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
CLASS = STORAGE_CLASS.ref("harvester")
STORE_DEPLOYMENT, STORE_SERVICE = DEPLOYMENT.ref(STORE, NAMESPACE), SERVICE.ref(STORE, NAMESPACE)
# The pod adds a line with its own name at each of its starts, and answers with all of them.
FILE = "/data/log"
CHECKS = ("volume-bound", "volume-written", "volume-survives", "volume-gone")
WITH_POD = ("volume-written", "volume-survives")
WITHOUT_SERVICE = "there is no Service through which a pod could be asked for what is in its volume"
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
    when = "at once" if took < 0.1 else f"after {took:.1f} s"
    namespace = await _vm_namespace(cluster)
    on_harvester = await cluster.harvester.find(PVC.ref(volume, namespace))
    cluster.report.check(
        "volume-bound",
        on_harvester is not None,
        f"{CLAIM} became Bound {when}; its volume is {PVC.ref(volume, namespace)} on Harvester",
    )
    if await find_service(cluster) is None:
        cluster.report.skip(WITH_POD, WITHOUT_SERVICE)
        return
    await _write(cluster, guest)


async def _write(cluster: DemoCluster, guest: Client) -> None:
    """Have a pod write into the volume; the check is what it answers."""
    pools = await cluster.list_pools()
    await guest.create(DEPLOYMENT, render_store(on_workers=find_workers(pools) is not None))
    await guest.create(SERVICE, render_service(STORE))
    try:
        answer = await wait_for_reply(cluster, await wait_for_address(cluster, guest, STORE))
    except WaitTimedOut as error:
        cluster.report.check("volume-written", False, f"{error}; {await _last_event(guest)}")
        return
    written = render_lines(answer.file)
    text = f"Pod {NAMESPACE}/{answer.pod} on Node {answer.node} has written into its volume: {written}"
    cluster.report.check("volume-written", answer.file == line_of(answer.pod), text)
    machines = {name_of(raw): raw for raw in await cluster.list_machines()}
    if not may_be_lost(machines.get(answer.node), pools):
        cluster.report.skip(
            ("volume-survives",), f"the demo does not lose {answer.node}, on which its pod runs"
        )


def find_workers(pools: Sequence[PoolSpec]) -> PoolSpec | None:
    """The pool whose worker the demo loses."""
    return next((pool for pool in pools if pool.is_worker_only and pool.quantity), None)


def may_be_lost(machine: Raw | None, pools: Sequence[PoolSpec]) -> bool:
    """Whether the demo loses this machine once a pod with the volume runs on it: a worker, or one of three members of etcd."""
    workers = find_workers(pools)
    members = sum(pool.quantity for pool in pools if pool.etcd)
    if machine is None:
        return False
    is_worker = workers is not None and machine["spec"]["pool"] == workers.name
    return is_worker or ("etcd" in machine["spec"]["roles"] and members >= 3)


async def find_store(cluster: DemoCluster) -> PodReply | None:
    """What the pod with the volume answers now; None where there is none."""
    service = await find_service(cluster, STORE_SERVICE)
    return await wait_for_reply(cluster, address_of(service)) if service is not None else None


async def check_volume_survives(cluster: DemoCluster, before: PodReply | None, lost: str) -> None:
    """Once the machine of the pod with the volume is lost, a pod elsewhere must read what that one wrote. Does nothing where
    another machine was lost."""
    if before is None or before.node != lost:
        return
    service = await find_service(cluster, STORE_SERVICE)
    assert service is not None, "it has answered before"
    answer = await wait_for_reply(cluster, address_of(service), without=lost)
    cluster.report.check(
        "volume-survives",
        answer.file == before.file + line_of(answer.pod),
        f"Pod {NAMESPACE}/{answer.pod} on Node {answer.node}, in place of the pod that was lost with Node {lost}, reads that "
        f"one's line in the volume and has added its own: {render_lines(answer.file)}",
    )


def line_of(pod: str) -> str:
    """What a pod of this name writes."""
    return f"written by {pod}\n"


def render_lines(text: str) -> str:
    return ", ".join(f'"{line}"' for line in text.splitlines()) or "nothing"


async def delete_volume(cluster: DemoCluster) -> None:
    """Delete pod and claim: the volume on Harvester must go. Does nothing without a claim."""
    if not has_csi_driver():
        return
    guest = await cluster.guest_client()
    for ref in (STORE_SERVICE, STORE_DEPLOYMENT):
        if await guest.find(ref) is not None:
            await guest.delete(ref)
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


def render_store(*, on_workers: bool) -> Raw:
    """One pod with the volume. Each of its starts writes a line; asked, it answers with all of them."""
    labels = {"app": STORE}
    pod: Raw = {
        "containers": [
            {
                "name": STORE,
                "image": "example/store:1",
                "command": ["sh", "-c", f"echo written by $HOSTNAME >> {FILE}"],
                "env": [{"name": "SERVE_FILE", "value": FILE}],
                "ports": [{"containerPort": 8080}],
                "volumeMounts": [{"name": NAME, "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": NAME, "persistentVolumeClaim": {"claimName": NAME}}],
    }
    if on_workers:
        # A worker is the first machine that the demo loses.
        term = {"matchExpressions": [{"key": CONTROL_PLANE, "operator": "DoesNotExist"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod["affinity"] = {"nodeAffinity": required}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return new_object(DEPLOYMENT, STORE, NAMESPACE, spec=spec)


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
