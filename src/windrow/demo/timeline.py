"""The manager's events as lines of the demo's timeline: what it did, to which object, and why.

Small steps, and Cluster events that repeat a Machine's, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.kubernetes.objects import nested

# Reasons of events, by the kind of the object that they are about.
SHOWN = {
    "Cluster": {"CreateSecrets", "MarkInitialized", "PublishKubeconfig", "DeleteServiceAccount"},
    "Machine": {
        "ElectInitServer",
        "ProvisionVM",
        "StartVM",
        "DeleteMachine",
        "RemoveEtcdMember",
        "DeleteVM",
        "RemoveMachineFinalizer",
        "RemediationRestricted",
    },
}

# What the timeline has already for all machines at once.
_REPEATED = (": the Cluster is deleted", ": its Machine is deleted")


def describe_event(event: Mapping[str, Any]) -> str | None:
    """The event as one line, or None for one that adds nothing to the timeline."""
    kind, reason = nested(event, "involvedObject", "kind"), event.get("reason")
    message = str(event.get("message") or "")
    if reason not in SHOWN.get(kind, ()) or (kind == "Machine" and message.endswith(_REPEATED)):
        return None
    return message
