"""A pod's claims and their volumes, and what the scheduler's plugins for volumes say about a node. Pure.

Texts are those of kube-scheduler. Not simulated: generic ephemeral volumes, static volumes that the scheduler would choose
for a claim that waits for its first consumer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windrow.emulator.guest_cluster.csi.kinds import CSI_DRIVER, CSI_NODE, PV
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.scheduling import matches_terms
from windrow.emulator.names import SELECTED_NODE
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
)
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, VOLUME_ATTACHMENT, ApiResource

# Watched once a pod mounts a claim.
VOLUME_KINDS = (PVC, PV, STORAGE_CLASS, VOLUME_ATTACHMENT, CSI_NODE, CSI_DRIVER)
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
OTHER_NODE = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY = "node(s) exceed max volume count"
ONE_POD = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"

Objects = Mapping[ApiResource, Mapping[Key, Raw]]


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A volume of a pod: its name there, its claim, and the PersistentVolume that a CSI driver serves."""

    name: str
    claim: Raw
    volume: Raw
    read_only: bool = False

    @property
    def driver(self) -> str:
        return str(nested(self.volume, "spec", "csi", "driver", default=""))

    @property
    def handle(self) -> str:
        return str(nested(self.volume, "spec", "csi", "volumeHandle", default=""))

    @property
    def unique_name(self) -> str:
        """The name of the volume in the status of Nodes."""
        return unique_name(self.volume)

    @property
    def is_block(self) -> bool:
        return bool(nested(self.volume, "spec", "volumeMode") == "Block")


def unique_name(volume: Raw) -> str:
    """The name by which kubelets and the attach-detach controller know a volume."""
    source = nested(volume, "spec", "csi", default={})
    return f"kubernetes.io/csi/{source.get('driver', '')}^{source.get('volumeHandle', '')}"


def find_mode_problem(pod: Raw, volume: PodVolume) -> str:
    """Why the kubelet does not set up the volume, in its words: containers have a device as a filesystem, or the reverse."""
    mode = "Block" if volume.is_block else "Filesystem"
    for field, needed in (("volumeMounts", "Filesystem"), ("volumeDevices", "Block")):
        if volume.name in _named_in(pod, field) and mode != needed:
            return f"volume {volume.name} has volumeMode {mode}, but is specified in {field}"
    return ""


def _named_in(pod: Raw, field: str) -> set[str]:
    """The volumes that the pod's containers have in this way."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return {str(one.get("name")) for container in containers for one in container.get(field) or ()}


def claims_of(pod: Raw) -> list[tuple[str, str, bool]]:
    """Of each volume of the pod that is a claim: the volume's name, the claim's, and whether it is read-only."""
    found = []
    for volume in nested(pod, "spec", "volumes", default=[]):
        source = volume.get("persistentVolumeClaim")
        if source and source.get("claimName"):
            found.append((str(volume["name"]), str(source["claimName"]), bool(source.get("readOnly"))))
    return found


def claim_keys(pod: Raw) -> list[Key]:
    return [(namespace_of(pod), claim) for _, claim, _ in claims_of(pod)]


def volumes_of(pod: Raw, objects: Objects) -> list[PodVolume] | None:
    """The pod's volumes; None while one of its claims is not bound to a volume of a CSI driver."""
    found = []
    for name, claimed, read_only in claims_of(pod):
        claim = objects[PVC].get((namespace_of(pod), claimed))
        volume = bound_volume(claim, objects) if claim is not None else None
        if claim is None or volume is None or not nested(volume, "spec", "csi"):
            return None
        found.append(PodVolume(name, claim, volume, read_only))
    return found


def is_bound(claim: Raw) -> bool:
    return bool(nested(claim, "status", "phase") == "Bound" and nested(claim, "spec", "volumeName"))


def bound_volume(claim: Raw, objects: Objects) -> Raw | None:
    return objects[PV].get(("", str(nested(claim, "spec", "volumeName")))) if is_bound(claim) else None


def waits_for_consumer(claim: Raw, objects: Objects) -> bool:
    """Whether its class makes the volume for the first pod, on the node that is chosen for it."""
    found = objects[STORAGE_CLASS].get(("", str(nested(claim, "spec", "storageClassName", default=""))))
    return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"


def find_claim_problem(pod: Raw, objects: Objects) -> str:
    """Why no node can take the pod, whichever it is; "" where its claims are no reason."""
    unbound = False
    for _, claimed, _ in claims_of(pod):
        claim = objects[PVC].get((namespace_of(pod), claimed))
        if claim is None:
            return f'persistentvolumeclaim "{claimed}" not found'
        if nested(claim, "status", "phase") == "Lost":
            volume = nested(claim, "spec", "volumeName", default="")
            return f'persistentvolumeclaim "{claimed}" bound to non-existent persistentvolume "{volume}"'
        if is_deleting(claim):
            return f'persistentvolumeclaim "{claimed}" is being deleted'
        unbound = unbound or not (is_bound(claim) or waits_for_consumer(claim, objects))
    return UNBOUND if unbound else ""


def claims_to_provision(pod: Raw, objects: Objects) -> list[Raw]:
    """The pod's claims whose volumes are made once a node is chosen."""
    found = (objects[PVC].get(key) for key in claim_keys(pod))
    return [claim for claim in found if claim is not None and not is_bound(claim)]


def is_taken(pod: Raw, pods: Sequence[Raw], objects: Objects) -> bool:
    """Whether a claim that one pod alone may have is another's already. `pods` are those that are scheduled."""
    exclusive = {key for key in claim_keys(pod) if _is_for_one_pod(objects[PVC].get(key))}
    return bool(exclusive) and any(not exclusive.isdisjoint(claim_keys(one)) for one in pods)


def _is_for_one_pod(claim: Raw | None) -> bool:
    return "ReadWriteOncePod" in nested(claim, "spec", "accessModes", default=[])


def find_volume_obstacle(pod: Raw, node: Raw, pods: Sequence[Raw], objects: Objects) -> str:
    """Why this node cannot take the pod; "" where its volumes are no reason. `pods` are those of the node."""
    for key in claim_keys(pod):
        claim = objects[PVC][key]
        if not is_bound(claim):
            if annotations_of(claim).get(SELECTED_NODE, name_of(node)) != name_of(node):
                return NOTHING_TO_BIND
            continue
        volume = bound_volume(claim, objects)
        if volume is None:
            return NO_VOLUME
        terms = nested(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
        if terms and not matches_terms(terms, labels_of(node)):
            return OTHER_NODE
    return TOO_MANY if _exceeds_limit(pod, node, pods, objects) else ""


def _exceeds_limit(pod: Raw, node: Raw, pods: Sequence[Raw], objects: Objects) -> bool:
    """Whether the node would have more volumes of a driver than its CSINode allows. An attachment counts while it exists."""
    limits = {
        one["name"]: nested(one, "allocatable", "count")
        for one in nested(objects[CSI_NODE].get(("", name_of(node))), "spec", "drivers", default=[])
    }
    held = {
        (nested(one, "spec", "attacher"), nested(one, "spec", "source", "persistentVolumeName"))
        for one in objects[VOLUME_ATTACHMENT].values()
        if nested(one, "spec", "nodeName") == name_of(node)
    }
    for other in pods:
        held |= {_counted(key, objects) for key in claim_keys(other)}
    new = {_counted(key, objects) for key in claim_keys(pod)} - held
    for driver in {driver for driver, _ in new}:
        limit, count = limits.get(driver), sum(one[0] == driver for one in held | new)
        if limit is not None and count > int(limit):
            return True
    return False


def _counted(key: Key, objects: Objects) -> tuple[str, str]:
    """The driver and the volume of a claim; of one that has none yet its provisioner and its own name."""
    claim = objects[PVC].get(key)
    volume = bound_volume(claim, objects) if claim is not None else None
    if volume is not None:
        return str(nested(volume, "spec", "csi", "driver", default="")), name_of(volume)
    storage_class = objects[STORAGE_CLASS].get(
        ("", str(nested(claim, "spec", "storageClassName", default="")))
    )
    return str((storage_class or {}).get("provisioner", "")), "/".join(key)


def needs_attach(driver: str, objects: Objects) -> bool:
    """Whether the driver's volumes are attached before they are mounted."""
    return bool(nested(objects[CSI_DRIVER].get(("", driver)), "spec", "attachRequired", default=True))
