"""What the pods of a cluster need of volumes, told to the kubelets of their nodes: the leader resolves claims and attachments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windrow.emulator.guest_cluster.containers.runtime import ContainerState
from windrow.emulator.guest_cluster.csi.kinds import CSI_NODE, PV
from windrow.emulator.guest_cluster.volumes.attach_detach import attachment_name
from windrow.emulator.guest_cluster.volumes.binding import (
    PodVolume,
    claim_keys,
    claims_of,
    find_mode_problem,
    needs_attach,
    volumes_of,
)
from windrow.emulator.guest_cluster.volumes.volume_manager import VolumeManager, VolumeToMount
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.objects import Raw, is_deleting, nested, uid_of
from windrow.kubernetes.resources import POD, PVC, STORAGE_CLASS, VOLUME_ATTACHMENT


@dataclass(frozen=True, slots=True)
class Mounts:
    """Whether all volumes of a pod are mounted, and whether any is."""

    complete: bool = True
    any: bool = False


class PodVolumes:
    """The volumes of all pods. Create it before the informers run."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._needs: dict[Key, tuple[str, str]] = {}  # node and uid of the pods that need volumes
        informers = context.informers
        self._by_claim = informers[POD].add_index(claim_keys)
        informers[POD].add_event_handler(self._on_pod)
        informers[PVC].add_event_handler(self._on_claim)
        informers[PV].add_event_handler(self._on_volume)
        informers[VOLUME_ATTACHMENT].add_event_handler(self._on_attachment)
        for kind in (STORAGE_CLASS, CSI_NODE):
            informers[kind].add_event_handler(self._on_new_choice)

    def observe(self, key: Key, pod: Raw) -> Mounts:
        """Tell the kubelet what the pod needs, unless its containers have ended; what is mounted for it."""
        node = str(nested(pod, "spec", "nodeName", default=""))
        if not claims_of(pod) or not node:
            return Mounts()
        manager = self._manager(node)
        if manager is None:
            return Mounts(complete=False)
        if self._needs.get(key, (node, uid_of(pod))) != (node, uid_of(pod)):
            self.forget(key)  # one of the same name has taken its place
        self._needs[key] = node, uid_of(pod)
        self._require(manager, node, pod)
        return Mounts(manager.is_mounted(pod), manager.has_mounts(pod))

    def start_containers(self, pod: Raw) -> None:
        """Run the pod's scripts on its node, with its volumes."""
        node = str(nested(pod, "spec", "nodeName", default=""))
        manager, containers = self._manager(node), self._context.cluster.containers.get(node)
        if containers is not None and manager is not None:
            self._needs[key_of(pod)] = node, uid_of(pod)
            containers.start(pod, manager.mounts_of(pod))

    def restart_containers(self, pod: Raw) -> None:
        """Run those of the pod's scripts again that have not ended well."""
        node = str(nested(pod, "spec", "nodeName", default=""))
        manager, containers = self._manager(node), self._context.cluster.containers.get(node)
        if containers is not None and manager is not None:
            self._needs[key_of(pod)] = node, uid_of(pod)
            containers.restart(pod, manager.mounts_of(pod))

    def observe_containers(self, pod: Raw, *, alive: bool) -> ContainerState:
        """Have the kubelet prepare the pod's containers; what is known of those that act."""
        node = str(nested(pod, "spec", "nodeName", default=""))
        containers = self._context.cluster.containers.get(node)
        if containers is None or is_final(pod):
            return ContainerState()
        if nested(pod, "status", "phase") == "Running":
            return ContainerState(None, containers.is_running(pod), containers.find_end(pod))
        if not alive or is_deleting(pod):
            return ContainerState()
        self._needs[key_of(pod)] = node, uid_of(pod)
        return ContainerState(containers.prepare(pod))

    def release(self, pod: Raw) -> None:
        """The pod's containers have ended."""
        self._stop(key_of(pod), str(nested(pod, "spec", "nodeName", default="")), uid_of(pod))
        if (manager := self._manager(str(nested(pod, "spec", "nodeName", default="")))) is not None:
            manager.release(uid_of(pod))

    def forget(self, key: Key) -> None:
        """The pod is gone."""
        node, uid = self._needs.pop(key, ("", ""))
        self._stop(key, node, uid)
        if (containers := self._context.cluster.containers.get(node)) is not None:
            containers.forget(uid)
        if (manager := self._manager(node)) is not None:
            manager.release(uid)

    def _stop(self, key: Key, node: str, uid: str) -> None:
        if (containers := self._context.cluster.containers.get(node)) is not None:
            containers.stop(key, uid)

    def sync(self, node: str, pods: Iterable[Raw]) -> None:
        """Tell a kubelet that has just been started, or one that another server told so far, what its pods need."""
        manager = self._manager(node)
        if manager is None:
            return
        mounting = [pod for pod in pods if claims_of(pod)]
        for pod in mounting:
            self._require(manager, node, pod)
            if is_deleting(pod) and manager.has_mounts(pod):
                self._want(manager, node, pod)
        manager.synced(frozenset(map(uid_of, mounting)))

    def _require(self, manager: VolumeManager, node: str, pod: Raw) -> None:
        if not is_final(pod) and not is_deleting(pod):
            self._want(manager, node, pod)

    def _want(self, manager: VolumeManager, node: str, pod: Raw) -> None:
        volumes = volumes_of(pod, self._context.informers)
        if volumes is None:
            return
        problems = {one.name: problem for one in volumes if (problem := find_mode_problem(pod, one))}
        manager.refuse(pod, problems)
        manager.want(pod, [self._to_mount(pod, node, one) for one in volumes if one.name not in problems])

    def _to_mount(self, pod: Raw, node: str, volume: PodVolume) -> VolumeToMount:
        return VolumeToMount(
            pod,
            volume.name,
            volume.unique_name,
            volume.volume,
            volume.claim,
            volume.read_only,
            self._publish_context(volume, node),
        )

    def _publish_context(self, volume: PodVolume, node: str) -> dict[str, str] | None:
        """What the driver said when it attached the volume; None while it is not attached."""
        informers = self._context.informers
        if not needs_attach(volume.driver, informers):
            return {}
        attachment = informers[VOLUME_ATTACHMENT].get(("", attachment_name(volume.volume, node)))
        if attachment is None or is_deleting(attachment) or not nested(attachment, "status", "attached"):
            return None
        return dict(nested(attachment, "status", "attachmentMetadata", default={}))

    def _manager(self, node: str) -> VolumeManager | None:
        return self._context.cluster.volume_managers.get(node)

    # -- what concerns which pod

    def _enqueue(self, claim: Key) -> None:
        for key in sorted(self._by_claim.get(claim, ())):
            self._context.queue.add((POD, key))

    def _on_pod(self, pod: Raw) -> None:
        """A claim that one pod alone may have is free for another."""
        if is_final(pod) or key_of(pod) not in self._context.informers[POD]:
            for claim in claim_keys(pod):
                self._enqueue(claim)

    def _on_claim(self, claim: Raw) -> None:
        self._enqueue((str(claim["metadata"].get("namespace", "")), str(claim["metadata"]["name"])))

    def _on_volume(self, volume: Raw) -> None:
        claim = nested(volume, "spec", "claimRef", default={})
        self._enqueue((str(claim.get("namespace", "")), str(claim.get("name", ""))))

    def _on_attachment(self, attachment: Raw) -> None:
        name = str(nested(attachment, "spec", "source", "persistentVolumeName", default=""))
        if (volume := self._context.informers[PV].get(("", name))) is not None:
            self._on_volume(volume)

    def _on_new_choice(self, _: Raw) -> None:
        """Any pod that mounts a claim may be scheduled otherwise."""
        for claim in sorted(self._by_claim):
            self._enqueue(claim)
