"""The pods on a Node that is drained: those that have to leave it, and the volumes of those that stay.

As `kubectl drain --ignore-daemonsets` has it: a pod of a DaemonSet, and one that a file on the node describes, is not evicted,
since it would be made there again. So their volumes are detached when the machine is off, and no sooner.
"""

from __future__ import annotations

from windrow.client.client import Client
from windrow.clusters.api.names import MIRROR_POD
from windrow.clusters.state import Pod
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    objects_at,
    text_at,
)
from windrow.kubernetes.resources import POD, PVC, ObjectRef


async def list_pods_to_evict(client: Client, node: str) -> list[Pod]:
    """The pods that must leave the Node: not those that belong to it (DaemonSets, mirrors) or have ended. Raises KubeError."""
    pods = await _list_pods(client, node)
    return [
        Pod(
            namespace_of(raw),
            name_of(raw),
            is_deleting(raw),
            is_bare=not _has_controller(raw),
            has_empty_dir=any("emptyDir" in volume for volume in objects_at(raw, "spec", "volumes")),
        )
        for raw in pods
        if not _belongs_to_node(raw) and not _has_ended(raw)
    ]


async def list_staying_volumes(client: Client, node: str) -> frozenset[str]:
    """The PersistentVolumes of pods that belong to the Node; none where the guest does not say."""
    try:
        pods = await _list_pods(client, node)
        claims = {
            claim
            for raw in pods
            if _belongs_to_node(raw) and not _has_ended(raw)
            for claim in _claims_of(raw)
        }
        found = [await client.find(claim) for claim in sorted(claims, key=str)]
    except KubeError:
        return frozenset()
    return frozenset(text_at(raw, "spec", "volumeName") for raw in found if raw is not None) - {""}


async def _list_pods(client: Client, node: str) -> list[Raw]:
    return await client.list(POD, fields=f"spec.nodeName={node}") if node else []


def _belongs_to_node(raw: Raw) -> bool:
    owners = objects_at(raw, "metadata", "ownerReferences")
    return any(owner.get("kind") == "DaemonSet" for owner in owners) or MIRROR_POD in annotations_of(raw)


def _has_controller(raw: Raw) -> bool:
    return any(owner.get("controller") is True for owner in objects_at(raw, "metadata", "ownerReferences"))


def _has_ended(raw: Raw) -> bool:
    return nested(raw, "status", "phase") in ("Succeeded", "Failed")


def _claims_of(raw: Raw) -> set[ObjectRef]:
    """A claim that a pod brings along is called after the pod and the volume."""
    names = set()
    for volume in objects_at(raw, "spec", "volumes"):
        if "ephemeral" in volume:
            names.add(f"{name_of(raw)}-{text_at(volume, 'name')}")
        else:
            names.add(text_at(volume, "persistentVolumeClaim", "claimName"))
    return {PVC.ref(name, namespace_of(raw)) for name in names - {""}}
