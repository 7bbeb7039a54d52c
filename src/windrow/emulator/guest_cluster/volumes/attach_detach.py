"""The attach-detach controller: a VolumeAttachment for each volume and node whose pods mount it, and no others.

What is written: VolumeAttachments, without their status, and `status.volumesAttached` of Nodes. A volume is detached once
its kubelet does not name it in `status.volumesInUse`; at once from a Node with the taint out-of-service; and after six minutes
from one that is not Ready, or is gone. A volume that one node alone may have waits until it is detached elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.emulator.guest_cluster.csi.kinds import PV
from windrow.emulator.guest_cluster.volumes.binding import (
    bound_volume,
    claim_keys,
    needs_attach,
    unique_name,
)
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested, new_object, uid_of
from windrow.kubernetes.resources import NODE, POD, PVC, VOLUME_ATTACHMENT

NAME = "attachdetach-controller"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_EXCLUSIVE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


@dataclass(frozen=True, slots=True)
class Attach:
    node: str
    because: str


@dataclass(frozen=True, slots=True)
class Detach:
    attachment: Raw
    because: str


@dataclass(frozen=True, slots=True)
class ReportMultiAttach:
    """The volume is attached elsewhere, and may not be attached twice."""

    node: str
    because: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    until: timedelta
    because: str


AttachStep = Attach | Detach | ReportMultiAttach | WaitUntil


@dataclass(frozen=True, slots=True)
class VolumeState:
    """What is observed of one volume. `pods` are those that mount it, by their nodes; `unwanted_since` says since when no
    pod of a node mounts it any more."""

    volume: Raw
    attachments: Mapping[str, Raw]  # by node
    pods: Mapping[str, Sequence[Raw]]
    nodes: Mapping[str, Raw]
    in_use: frozenset[str]  # the nodes whose kubelets name it
    now: timedelta
    unwanted_since: Mapping[str, timedelta] = field(default_factory=dict)
    patience: timedelta = timedelta(minutes=6)

    @property
    def is_exclusive(self) -> bool:
        return _EXCLUSIVE.issuperset(nested(self.volume, "spec", "accessModes", default=[]))


def plan_volume(state: VolumeState) -> list[AttachStep]:
    """What is detached, then what is attached."""
    steps: list[AttachStep] = []
    for node, attachment in state.attachments.items():
        if node not in state.pods and not is_deleting(attachment):
            steps.append(_plan_detach(state, node, attachment))
    missing = [node for node in state.pods if node not in state.attachments]
    elsewhere = bool(state.attachments) and state.is_exclusive
    for node in missing:
        pods = state.pods[node]
        if not state.is_exclusive or (not elsewhere and node == missing[0]):
            steps.append(Attach(node, f"pod {namespace_of(pods[0])}/{name_of(pods[0])} mounts it"))
        elif elsewhere:
            steps.append(ReportMultiAttach(node, multi_attach_message(state, node)))
    return steps


def _plan_detach(state: VolumeState, node: str, attachment: Raw) -> AttachStep:
    raw = state.nodes.get(node)
    taints = nested(raw, "spec", "taints", default=[])
    if node not in state.in_use:
        return Detach(attachment, "no pod of the node mounts it")
    if any(one.get("key") == OUT_OF_SERVICE for one in taints):
        return Detach(attachment, f"node {node} is out of service")
    due = state.unwanted_since.get(node, state.now) + state.patience
    if state.now < due:
        return WaitUntil(due, f"node {node} still has it mounted")
    if is_true(nested(raw, "status", "conditions"), "Ready"):
        return WaitUntil(state.now + state.patience, f"node {node} is Ready and still has it mounted")
    return Detach(attachment, f"node {node} has not been able to unmount it for {state.patience}")


def multi_attach_message(state: VolumeState, node: str) -> str:
    """The event's text: with the pods of the same namespace that have the volume, the number of others."""
    prefix = f'Multi-Attach error for volume "{name_of(state.volume)}"'
    others = [
        pod for name, pods in state.pods.items() if name != node and name in state.attachments for pod in pods
    ]
    if not others:
        return f"{prefix} Volume is already exclusively attached to one node and can't be attached to another"
    own = namespace_of(state.pods[node][0])
    near = [name_of(pod) for pod in others if namespace_of(pod) == own]
    far = len(others) - len(near)
    if not near:
        return f"{prefix} Volume is already used by {far} pod(s) in different namespaces"
    rest = f" and {far} pod(s) in different namespaces" if far else ""
    return f"{prefix} Volume is already used by pod(s) {', '.join(near)}{rest}"


def attachment_name(volume: Raw, node: str) -> str:
    source = nested(volume, "spec", "csi", default={})
    text = f"{source.get('volumeHandle', '')}{source.get('driver', '')}{node}"
    return f"csi-{hashlib.sha256(text.encode()).hexdigest()}"


def render_attachment(volume: Raw, node: str) -> Raw:
    spec = {
        "attacher": nested(volume, "spec", "csi", "driver"),
        "nodeName": node,
        "source": {"persistentVolumeName": name_of(volume)},
    }
    return new_object(VOLUME_ATTACHMENT, attachment_name(volume, node), spec=spec)


def render_volumes_attached(node: str, attachments: Sequence[Raw], volumes: Mapping[Key, Raw]) -> list[Raw]:
    """What the Node's status says is attached to it."""
    names = set()
    for one in attachments:
        volume = volumes.get(("", str(nested(one, "spec", "source", "persistentVolumeName"))))
        if volume is not None and nested(one, "status", "attached") and not is_deleting(one):
            names.add(unique_name(volume))
    return [{"name": name, "devicePath": ""} for name in sorted(names)]


class AttachDetachController:
    """Keys are those of PersistentVolumes."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._patience = context.guest.scaled(context.guest.delays.force_detach)
        informers = context.informers
        self._pods_by_claim = informers[POD].add_index(claim_keys)
        self._by_volume = informers[VOLUME_ATTACHMENT].add_index(
            lambda raw: [("", str(nested(raw, "spec", "source", "persistentVolumeName")))]
        )
        self._by_node = informers[VOLUME_ATTACHMENT].add_index(
            lambda raw: [("", str(nested(raw, "spec", "nodeName")))]
        )
        self._unwanted: dict[tuple[str, str], timedelta] = {}  # by volume and node
        self._last_in_use: dict[str, frozenset[str]] = {}  # by node, also when it is gone
        self._reported: set[tuple[str, str, str]] = set()  # by volume, pod's uid and message
        informers[POD].add_event_handler(self._on_pod)
        informers[PVC].add_event_handler(self._on_claim)
        informers[PV].add_event_handler(lambda raw: self._enqueue(name_of(raw)))
        informers[VOLUME_ATTACHMENT].add_event_handler(self._on_attachment)
        informers[NODE].add_event_handler(self._on_node)

    async def reconcile(self, key: Key) -> None:
        context = self._context
        volume = context.informers[PV].get(key)
        driver = nested(volume, "spec", "csi", "driver", default="")
        if volume is None or not driver or not needs_attach(driver, context.informers):
            return
        state = self._observe(volume)
        for step in plan_volume(state):
            match step:
                case Attach(node, _):
                    await context.create(VOLUME_ATTACHMENT, render_attachment(volume, node))
                case Detach(attachment, _):
                    await context.delete(VOLUME_ATTACHMENT, attachment)
                case ReportMultiAttach(node, because):
                    await self._report(state, node, "FailedAttachVolume", because)
                case WaitUntil(until, _):
                    context.queue.add_after((PV, key), until - context.monotonic())
        await self._report_attachments(state)
        for node in {*state.attachments, *state.pods}:
            await self._write_attached(node)

    def _observe(self, volume: Raw) -> VolumeState:
        context, name = self._context, name_of(volume)
        attachments = {
            str(nested(raw, "spec", "nodeName")): raw
            for raw in map(
                context.informers[VOLUME_ATTACHMENT].__getitem__, sorted(self._by_volume.get(("", name), ()))
            )
        }
        pods = self._pods_of(volume)
        now = context.monotonic()
        for node in attachments:
            if node in pods:
                self._unwanted.pop((name, node), None)
            else:
                self._unwanted.setdefault((name, node), now)
        unwanted = {node: since for (one, node), since in self._unwanted.items() if one == name}
        for node in unwanted.keys() - attachments.keys():
            del self._unwanted[name, node]
        known = context.informers[NODE]
        nodes = {node: known["", node] for node in attachments if ("", node) in known}
        unique = unique_name(volume)
        in_use = frozenset(node for node in attachments if unique in self._last_in_use.get(node, ()))
        return VolumeState(volume, attachments, pods, nodes, in_use, now, unwanted, self._patience)

    def _pods_of(self, volume: Raw) -> dict[str, list[Raw]]:
        claim = nested(volume, "spec", "claimRef", default={})
        key = (str(claim.get("namespace", "")), str(claim.get("name", "")))
        found: dict[str, list[Raw]] = {}
        for one in sorted(self._pods_by_claim.get(key, ())):
            pod = self._context.informers[POD][one]
            node = nested(pod, "spec", "nodeName", default="")
            held = self._context.informers[PVC].get(key)
            is_its = held is not None and nested(held, "spec", "volumeName") == name_of(volume)
            if node and is_its and not is_final(pod):
                found.setdefault(node, []).append(pod)
        return found

    async def _report_attachments(self, state: VolumeState) -> None:
        """Say to the pods what became of the attachments that they wait for."""
        name = name_of(state.volume)
        for node, attachment in state.attachments.items():
            if node not in state.pods or is_deleting(attachment):
                continue
            error = nested(attachment, "status", "attachError", "message", default="")
            if nested(attachment, "status", "attached"):
                message = f'AttachVolume.Attach succeeded for volume "{name}" '
                await self._report(state, node, "SuccessfulAttachVolume", message)
            elif error:
                message = f'AttachVolume.Attach failed for volume "{name}" : {error}'
                await self._report(state, node, "FailedAttachVolume", message)

    async def _report(self, state: VolumeState, node: str, reason: str, message: str) -> None:
        for pod in state.pods.get(node, ()):
            key = (name_of(state.volume), uid_of(pod), message)
            if key not in self._reported:
                self._reported.add(key)
                type = "Normal" if reason == "SuccessfulAttachVolume" else "Warning"
                await self._context.events.record(pod, reason, message, NAME, type)

    async def _write_attached(self, node: str) -> None:
        raw = self._context.informers[NODE].get(("", node))
        if raw is None:
            return
        attachments = [
            self._context.informers[VOLUME_ATTACHMENT][key] for key in self._by_node.get(("", node), ())
        ]
        wanted = render_volumes_attached(node, attachments, self._context.informers[PV])
        if nested(raw, "status", "volumesAttached", default=[]) != wanted:
            await self._context.update(
                NODE, raw, lambda found: _set_or_drop(found["status"], "volumesAttached", wanted), "status"
            )

    # -- what concerns which volume

    def _enqueue(self, name: str) -> None:
        if name:
            self._context.queue.add((PV, ("", name)))

    def _on_claim(self, claim: Raw) -> None:
        self._enqueue(str(nested(claim, "spec", "volumeName", default="")))

    def _on_pod(self, pod: Raw) -> None:
        if key_of(pod) not in self._context.informers[POD]:
            self._reported = {one for one in self._reported if one[1] != uid_of(pod)}
        for key in claim_keys(pod):
            claim = self._context.informers[PVC].get(key)
            if claim is not None and (volume := bound_volume(claim, self._context.informers)) is not None:
                self._enqueue(name_of(volume))

    def _on_attachment(self, attachment: Raw) -> None:
        self._enqueue(str(nested(attachment, "spec", "source", "persistentVolumeName", default="")))

    def _on_node(self, node: Raw) -> None:
        name = name_of(node)
        self._last_in_use[name] = frozenset(nested(node, "status", "volumesInUse", default=[]))
        for key in self._by_node.get(("", name), ()):
            self._on_attachment(self._context.informers[VOLUME_ATTACHMENT][key])


def _set_or_drop(status: Raw, field: str, wanted: list[Raw]) -> None:
    if wanted:
        status[field] = wanted
    else:
        status.pop(field, None)
