"""The side-cars of a CSI driver, as the pods of its chart have them: four beside the controller, one on each node.

Of the controller's replicas the emulator runs one, so no side-car elects a leader.
"""

from __future__ import annotations

import asyncio

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.attacher import Attacher
from windrow.emulator.guest_cluster.csi.context import StorageContext, connect
from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE, PV, SNAPSHOT, SNAPSHOT_CLASS, SNAPSHOT_CONTENT
from windrow.emulator.guest_cluster.csi.provisioner import Provisioner
from windrow.emulator.guest_cluster.csi.resizer import Resizer
from windrow.emulator.guest_cluster.csi.snapshots import SIDE_CAR, Snapshotter
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.informer import start_informers
from windrow.kubernetes.resources import CRD, PVC, STORAGE_CLASS, VOLUME_ATTACHMENT

_SNAPSHOT_KINDS = (SNAPSHOT, SNAPSHOT_CONTENT, SNAPSHOT_CLASS)


async def run_controller_side_cars(
    guest: GuestOS, cluster: GuestCluster, socket: str, *, extra_metadata: bool = False
) -> None:
    """Provisioner, attacher, resizer, and the snapshotter where the snapshot API is served; until cancelled.

    `extra_metadata` is the provisioner's --extra-create-metadata, which the bundled chart does not set.
    """
    await guest.storage.changed.wait_for(lambda: guest.storage.is_listening(socket))
    driver = await connect(guest.storage.dial(socket), guest, "csi-provisioner")
    await cluster.wait_usable()
    has_snapshots = await cluster.client().find(CRD.ref(SNAPSHOT.group_resource)) is not None
    watched = (PVC, PV, STORAGE_CLASS, VOLUME_ATTACHMENT, CSI_NODE)
    served = (*watched, *_SNAPSHOT_KINDS) if has_snapshots else watched
    identity = f"{int(guest.now().timestamp() * 1000)}-{guest.host.rng.below(10000)}-{driver.name}"
    context = StorageContext(guest, cluster, served, f"{driver.name}_{identity}")
    side_cars: list[Provisioner | Attacher | Resizer | Snapshotter] = [
        Provisioner(context, driver, identity, extra_metadata=extra_metadata),
        Attacher(context, driver),
        Resizer(context, driver),
    ]
    if has_snapshots:
        side_cars.append(Snapshotter(context, driver))
    else:
        guest.log(SIDE_CAR, "the snapshot API is not served; no snapshots are taken")
    async with asyncio.TaskGroup() as group:
        await start_informers(group, context.informers.values())
        for one in side_cars:
            group.create_task(one.run())
