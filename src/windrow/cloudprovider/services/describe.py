"""Actions for a service in the words of the log. Pure."""

from __future__ import annotations

from windrow.cloudprovider.entries import describe_entries
from windrow.cloudprovider.services.actions import (
    Action,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)


def describe_action(action: Action) -> str:
    """What was done for the service, and why; "" for what people read as an event, and for what only asks."""
    return (
        ""
        if isinstance(action, (ConfirmDeleted, EmitEvent))
        else f"{_describe(action)} because {action.because}"
    )


def _describe(
    action: PatchService
    | ClearStatus
    | CreateLoadBalancer
    | UpdateLoadBalancer
    | DeleteLoadBalancer
    | RemoveFinalizer,
) -> str:
    match action:
        case PatchService(add_finalizer=protects):
            return _joined("finalizer added" if protects else "", action)
        case RemoveFinalizer():
            return _joined("finalizer removed", action)
        case ClearStatus():
            return "addresses removed from its status"
        case CreateLoadBalancer(name=name):
            return f"load balancer {name} created"
        case UpdateLoadBalancer(balancer=balancer):
            return f"load balancer {balancer.name} updated"
        case DeleteLoadBalancer(balancer=balancer):
            return f"load balancer {balancer.name} deleted"


def _joined(text: str, action: PatchService | RemoveFinalizer) -> str:
    entries = (
        describe_entries("annotations", action.annotations.items()),
        describe_entries("labels", action.labels.items()),
    )
    return "; ".join(part for part in (text, *entries) if part)
