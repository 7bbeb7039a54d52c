"""The executor of node plans: one patch of the Node, one of its status, then events and deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from windrow.kubernetes.resources import NODE


def render_node_patch(node: GuestNode, changes: Sequence[Change]) -> dict[str, Any]:
    """One merge patch for everything outside the status; {} when nothing is to be written there.

    It names the version that was read, so a taint that was added meanwhile is not lost.
    """
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    spec: dict[str, Any] = {}
    taints = list(node.taints)
    for change in changes:
        match change:
            case SetProviderId(provider_id=provider_id):
                spec["providerID"] = provider_id
            case SetLabels(labels=wanted):
                labels.update(wanted)
            case RecordAnnotation(topology=topology):
                annotations[names.TOPOLOGY_RECORD] = topology or None
            case RemoveTaint(key=key):
                taints = [taint for taint in taints if taint.key != key]
            case AddTaint(taint=taint):
                taints.append(taint)
            case _:
                pass
    if tuple(taints) != node.taints:
        spec["taints"] = [_render_taint(taint) for taint in taints] or None
    if not (labels or annotations or spec):
        return {}
    metadata: dict[str, Any] = {"resourceVersion": node.version}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _render_taint(taint: Taint) -> dict[str, str]:
    raw = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: value for key, value in raw.items() if value}


def render_status_patch(changes: Sequence[Change]) -> dict[str, Any]:
    """A merge patch for the status; {} when nothing is to be written there."""
    for change in changes:
        if isinstance(change, SetAddresses):
            addresses = [{"type": one.type, "address": one.address} for one in change.addresses]
            return {"status": {"addresses": addresses}}
    return {}


async def execute(
    client: Client, recorders: Mapping[str, EventRecorder], node: GuestNode, changes: Sequence[Change]
) -> None:
    """Raises Conflict when the node has changed since it was read (then nothing was written), and Forbidden.

    Events are written also where the patch of the status fails.
    """
    ref = NODE.ref(node.name)
    patch = render_node_patch(node, changes)
    if patch:
        await client.patch(ref, patch)
    problem: KubeError | None = None
    status = render_status_patch(changes)
    if status:
        try:
            await client.patch(ref, status, "status")
        except KubeError as error:
            problem = error
    await _finish(client, recorders, node, changes)
    if problem is not None:
        raise problem


async def _finish(
    client: Client, recorders: Mapping[str, EventRecorder], node: GuestNode, changes: Sequence[Change]
) -> None:
    ref = NODE.ref(node.name)
    for change in changes:
        match change:
            case EmitEvent(source, reason, message):
                await recorders[source].write(EventNote(ref, node.uid, reason, message))
            case DeleteNode():
                await _delete(client, recorders, node)
            case _:
                pass


def _why_not_deleted(error: KubeError) -> str:
    if not isinstance(error, Forbidden):
        return error.message
    return (
        "its VM is gone, but the cloud provider lacks the right: add the verb delete on nodes to the ClusterRole of its "
        "service account, as in the chart (templates/clusterrole.yaml), or delete the node yourself "
        f"({error.message.partition('; ')[0]})"
    )


async def _delete(client: Client, recorders: Mapping[str, EventRecorder], node: GuestNode) -> None:
    ref = NODE.ref(node.name)
    try:
        await client.delete(ref, uid=node.uid)
    except NotFound:
        return
    except KubeError as error:
        note = EventNote(
            ref,
            node.uid,
            "DeletingNodeFailed",
            f"Failed deleting node {node.name}: {_why_not_deleted(error)}",
            "Warning",
        )
        await recorders[names.LIFECYCLE_CONTROLLER].write(note)
        raise
