"""node-driver-registrar and the kubelet's plugin manager: a driver that answers on a node's socket is registered there, in
the node's CSINode and in its annotation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.context import with_timeout
from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE
from windrow.emulator.guest_cluster.csi.port import CsiCall, CsiFailed
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    name_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import NODE

NODE_IDS = "csi.volume.kubernetes.io/nodeid"


async def run_registrar(guest: GuestOS, cluster: GuestCluster, node: str, socket: str) -> None:
    """Register the driver at `socket` once it answers, and again when its Node is made anew; until cancelled.

    A registrar that ends as its pod does leaves the cluster without the driver. One whose machine loses power cannot: its
    CSINode stays as it is.
    """
    call = guest.storage.dial(socket)
    await guest.storage.changed.wait_for(lambda: guest.storage.is_listening(socket))
    driver, info = await _ask(guest, with_timeout(call, guest))
    try:
        registered = ""
        while True:
            await cluster.wait_usable()
            # Every change of the cluster comes here, for each node: only a Node that is new is decoded.
            stored = await cluster.api.context.find(NODE, node)
            is_new = stored is not None and uid_of(stored.raw) != registered
            found = await cluster.client().find(NODE.ref(node)) if is_new else None
            if found is not None:
                await _write(cluster, found, driver, info)
                registered = uid_of(found)
                cluster.csi.register(node, driver, call)
                guest.log("kubelet", f"Register new plugin with name: {driver} at endpoint: {socket}")
            await cluster.changed.wait()
    finally:
        cluster.csi.unregister(node, driver, call)


async def _ask(guest: GuestOS, call: CsiCall) -> tuple[str, Raw]:
    """The driver's name, and what it says of its node; asked until it answers."""
    pause = 0.5
    while True:
        try:
            name = str((await call("GetPluginInfo", {}))["name"])
            return name, await call("NodeGetInfo", {})
        except CsiFailed as error:
            guest.log("node-driver-registrar", f"{error}; asked again")
        await guest.sleep(pause)
        pause = min(pause * 2, 120)


async def _write(cluster: GuestCluster, node: Raw, driver: str, info: Raw) -> None:
    """The node's CSINode and its annotation. May be repeated."""
    node_id = str(info["node_id"])
    entry: Raw = {"name": driver, "nodeID": node_id, "topologyKeys": None}
    if segments := nested(info, "accessible_topology", "segments"):
        entry["topologyKeys"] = sorted(segments)
    if count := int(info.get("max_volumes_per_node") or 0):
        entry["allocatable"] = {"count": count}

    def add_driver(raw: Raw) -> None:
        others = [one for one in nested(raw, "spec", "drivers", default=[]) or [] if one["name"] != driver]
        raw["spec"] = {"drivers": [*others, entry]}

    await _edit_csi_node(cluster, node, add_driver)

    def add_id(raw: Raw) -> None:
        annotate(raw, {NODE_IDS: dumps({**_node_ids(raw), driver: node_id}).decode()})

    await cluster.edit(NODE.ref(name_of(node)), add_id)


async def _edit_csi_node(cluster: GuestCluster, node: Raw, edit: Callable[[Raw], None]) -> None:
    """Edit the node's CSINode, which is made where there is none."""
    client, ref = AdminClient(cluster.client()), CSI_NODE.ref(name_of(node))
    while True:
        owner = owner_reference(NODE, node)
        found = await client.ensure(
            CSI_NODE, new_object(CSI_NODE, ref.name, owners=[owner], spec={"drivers": []})
        )
        owners = found["metadata"].get("ownerReferences") or ()
        if not any(one["uid"] == uid_of(node) for one in owners):
            await client.delete(CSI_NODE, found)  # of a Node that is gone
            continue
        try:
            await client.mutate(ref, edit)
        except Conflict:
            await asyncio.sleep(0)
            continue
        return


def _node_ids(node: Raw) -> Raw:
    try:
        found = loads(annotations_of(node).get(NODE_IDS, "{}").encode())
    except NotJson:
        return {}
    return found if isinstance(found, dict) else {}
