"""K3s' own cloud controller: it initialises Nodes from what their kubelets annotated (reference/10-day2 §4).

It is off with `disable-cloud-controller`; then Nodes whose kubelet has `cloud-provider=external` wait for another one.
"""

from __future__ import annotations

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.kubelet import UNINITIALIZED
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested
from windrow.kubernetes.resources import NODE

_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


async def run_cloud_controller(guest: GuestOS, cluster: GuestCluster) -> None:
    """Initialise every Node that waits for a cloud provider, until cancelled."""
    while True:
        await cluster.wait_usable()
        async with cluster.client().watch(NODE) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED") and is_uninitialized(event.object):
                    await _initialize(guest, cluster, name_of(event.object))
        await guest.sleep(1)


def is_uninitialized(node: Raw) -> bool:
    return any(one["key"] == UNINITIALIZED for one in nested(node, "spec", "taints", default=[]))


async def _initialize(guest: GuestOS, cluster: GuestCluster, name: str) -> None:
    program = cluster.distribution.name

    def set_addresses(node: Raw) -> None:
        node.setdefault("status", {})["addresses"] = list_addresses(node, cluster)

    def initialize(node: Raw) -> None:
        kept = [one for one in nested(node, "spec", "taints", default=[]) if one["key"] != UNINITIALIZED]
        spec = node.setdefault("spec", {})
        spec.setdefault("providerID", f"{program}://{name}")
        spec["taints"] = kept
        if not kept:
            del spec["taints"]
        node["metadata"]["labels"] = {**dict.fromkeys(_INSTANCE_TYPES, program), **labels_of(node)}

    found = await cluster.client().find(NODE.ref(name))
    if found is None or not is_uninitialized(found):
        return  # the event was an old one
    await cluster.edit(NODE.ref(name), set_addresses, subresource="status")
    await cluster.edit(NODE.ref(name), initialize)
    guest.log("cloud-controller-manager", f"Successfully initialized node {name} with cloud provider")
    cluster.changed.notify()


def list_addresses(node: Raw, cluster: GuestCluster) -> list[Raw]:
    """The addresses that a Node's kubelet has annotated."""
    annotations, key = annotations_of(node), cluster.distribution.node_annotation
    found: list[Raw] = []
    for type, name in (
        ("InternalIP", "internal-ip"),
        ("ExternalIP", "external-ip"),
        ("Hostname", "hostname"),
    ):
        values = annotations.get(key(name), "").split(",")
        found += [{"type": type, "address": value} for value in values if value]
    return found
