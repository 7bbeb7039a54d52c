"""Actions for a service in the words of the log. Pure."""

from __future__ import annotations

from windrow.cloudprovider.entries import tell_entries
from windrow.cloudprovider.services.actions import (
    Action,
    Amend,
    ClearStatus,
    Confirm,
    LetGo,
    Mark,
    Release,
    Reserve,
    Tell,
)


def tell_action(action: Action) -> str:
    """What was done for the service, and why; "" for what people read as an event, and for what only asks."""
    return "" if isinstance(action, (Confirm, Tell)) else f"{_deed(action)} because {action.because}"


def _deed(action: Mark | ClearStatus | Reserve | Amend | Release | LetGo) -> str:
    match action:
        case Mark(protects=protects):
            return _joined("finalizer added" if protects else "", action)
        case LetGo():
            return _joined("finalizer removed", action)
        case ClearStatus():
            return "addresses removed from its status"
        case Reserve(name=name):
            return f"load balancer {name} created"
        case Amend(balancer=balancer):
            return f"load balancer {balancer.name} updated"
        case Release(balancer=balancer):
            return f"load balancer {balancer.name} deleted"


def _joined(deed: str, action: Mark | LetGo) -> str:
    entries = (
        tell_entries("annotations", action.annotations.items()),
        tell_entries("labels", action.labels.items()),
    )
    return "; ".join(part for part in (deed, *entries) if part)
