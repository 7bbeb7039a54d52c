"""The executor of node plans: one patch of the Node, one of its status, then events and deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.planning import (
    AddTaint,
    Change,
    DeleteNode,
    EmitEvent,
    RecordAnnotation,
    RemoveTaint,
    SetAddresses,
    SetLabels,
    SetProviderId,
)
from windrow.cloudprovider.nodes.readings import GuestNode, Taint
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import NODE


def render_patches(node: GuestNode, changes: Sequence[Change]) -> tuple[Raw, Raw]:
    """A merge patch for everything outside the status, and one for the status; {} where nothing is to be written.

    The first names the version that was read, so a taint that was added meanwhile is not lost.
    """
    metadata: Raw = {}
    spec: Raw = {}
    status: Raw = {}
    taints = list(node.taints)
    for change in changes:
        match change:
            case SetProviderId(provider_id=provider_id):
                spec["providerID"] = provider_id
            case SetLabels(labels=labels):
                metadata.setdefault("labels", {}).update(labels)
            case RecordAnnotation(topology=topology):
                metadata["annotations"] = {names.TOPOLOGY_RECORD: topology or None}
            case RemoveTaint(key=key):
                taints = [taint for taint in taints if taint.key != key]
            case AddTaint(taint=taint):
                taints.append(taint)
            case SetAddresses(addresses=addresses):
                status["addresses"] = [{"type": one.type, "address": one.address} for one in addresses]
            case EmitEvent() | DeleteNode():
                pass  # no patches
            case _:
                assert_never(change)
    if tuple(taints) != node.taints:
        spec["taints"] = [_render_taint(taint) for taint in taints] or None
    patch: Raw = {"spec": spec} if spec else {}
    if metadata or spec:
        patch["metadata"] = {"resourceVersion": node.version, **metadata}
    return patch, {"status": status} if status else {}


def _render_taint(taint: Taint) -> dict[str, str]:
    raw = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {key: value for key, value in raw.items() if value}


async def execute(
    client: Client, recorders: Mapping[str, EventRecorder], node: GuestNode, changes: Sequence[Change]
) -> None:
    """Raises Conflict when the node has changed since it was read (then nothing was written), and Forbidden.

    Events are recorded also where the patch of the status fails.
    """
    ref = NODE.ref(node.name)
    patch, status = render_patches(node, changes)
    if patch:
        await client.patch(ref, patch)
    problem: KubeError | None = None
    if status:
        try:
            await client.patch(ref, status, "status")
        except KubeError as error:
            problem = error
    is_deleted = any(isinstance(change, DeleteNode) for change in changes)
    for change in changes:
        if isinstance(change, EmitEvent):
            recorder, note = recorders[change.source], EventNote(ref, node.uid, change.reason, change.message)
            if is_deleted:
                await recorder.write(note)  # while the node is still there
            else:
                recorder.record(note)
        elif isinstance(change, DeleteNode):
            await _delete(client, recorders[names.LIFECYCLE_CONTROLLER], node)
    if problem is not None:
        raise problem


async def _delete(client: Client, recorder: EventRecorder, node: GuestNode) -> None:
    ref = NODE.ref(node.name)
    try:
        await client.delete(ref, uid=node.uid)
    except NotFound:
        return
    except KubeError as error:
        message = f"Failed deleting node {node.name}: {_why_not_deleted(error)}"
        recorder.record(EventNote(ref, node.uid, "DeletingNodeFailed", message, "Warning"))
        raise


def _why_not_deleted(error: KubeError) -> str:
    if not isinstance(error, Forbidden):
        return error.message
    return (
        "its VM is gone, but the cloud provider lacks the right: add the verb delete on nodes to the ClusterRole of its "
        "service account, as in the chart (templates/clusterrole.yaml), or delete the node yourself "
        f"({error.message.partition('; ')[0]})"
    )
