"""Texts for the log: what a change did to a Node, and why. Pure."""

from __future__ import annotations

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
from windrow.cloudprovider.services.describe import describe_entries


def describe_change(change: Change) -> str:
    """What was done to the node, and why; "" for events."""
    text = _describe(change)
    return f"{text} because {change.because}" if text else ""


def _describe(change: Change) -> str:
    match change:
        case SetProviderId(provider_id=provider_id):
            return f"providerID {provider_id} set"
        case SetLabels(labels=labels):
            return describe_entries("labels", labels)
        case RecordAnnotation(topology=topology):
            return f"topology {topology} recorded" if topology else "record of its topology removed"
        case RemoveTaint(key=key):
            return f"taint {key} removed"
        case AddTaint(taint=taint):
            return f"taint {taint.key} added"
        case SetAddresses(addresses=addresses):
            return f"addresses set to {', '.join(one.address for one in addresses) or 'none'}"
        case DeleteNode():
            return "deleted"
        case EmitEvent():
            return ""
