"""Which `etcdSnapshotRestore.generation` a guest was restored by, as an annotation of its Namespace kube-system.

The manager's own record goes back where a backup of the manager is put back; the guest does not. A restore that the guest has on record
is not carried out once more on a cluster that has lived on. A guest can write another number there: then that generation is not
carried out while its API answers, which is told, and a higher one is.
"""

from __future__ import annotations

from windrow.client.client import Client
from windrow.clusters.api.names import RESTORED_GENERATION
from windrow.clusters.api.operations.rotations import MAX_GENERATION
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.resources import NAMESPACE

KUBE_SYSTEM = NAMESPACE.ref("kube-system")
_MAX_DIGITS = 12


async def read_restored_generation(client: Client, cluster_uid: str) -> int:
    """The generation, 0 where there is none for this Cluster: the guest of a copy has that of its original. Raises KubeError."""
    found = await client.find(KUBE_SYSTEM)
    uid, _, number = annotations_of(found or {}).get(RESTORED_GENERATION, "").partition("/")
    if uid != cluster_uid or not number.isdecimal() or len(number) > _MAX_DIGITS:
        return 0
    generation = int(number)
    return generation if generation < MAX_GENERATION else 0


async def write_restored_generation(client: Client, cluster_uid: str, generation: int) -> None:
    """Record it. May be repeated. Raises KubeError."""
    annotations = {RESTORED_GENERATION: f"{cluster_uid}/{generation}"}
    await client.patch(KUBE_SYSTEM, {"metadata": {"annotations": annotations}})
