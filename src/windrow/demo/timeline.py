"""The manager's events as lines of the demo's timeline: what it did, to which object, and why.

An event's reason names the action and its message why it was taken; `kubectl describe` shows both. A timeline has one
column, so the action is put into words here. Small steps, and Cluster events that repeat a Machine's, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.kubernetes.objects import nested

# By reason. `{name}` is the machine or cluster, `{why}` the event's message.
PHRASES = {
    "CreateSecrets": "Cluster {name}: certificate authorities and join tokens are created",
    "ElectInitServer": "Machine {name} is elected as init server",
    "ProvisionVM": "VM {name} is created on Harvester: {why}",
    "MarkInitialized": "Cluster {name} is initialized: {why}",
    "PublishKubeconfig": "Cluster {name}: the kubeconfig is published",
    "StartVM": "VM {name} is started: {why}",
    "DeleteMachine": "Machine {name} is deleted: {why}",
    "RemoveEtcdMember": "the etcd member of {name} is removed: {why}",
    "DeleteVM": "VM {name} is deleted on Harvester: {why}",
    "RemoveMachineFinalizer": "Machine {name} is gone: {why}",
    "DeleteServiceAccount": "Cluster {name}: its ServiceAccount on Harvester is deleted",
    "RemediationRestricted": "remediation of {name} is restricted: {why}",
}

# Messages that the timeline has already for all machines at once.
REPEATED = frozenset({"the Cluster is deleted", "its Machine is deleted"})


def describe_event(event: Mapping[str, Any]) -> str | None:
    """The event as one line, or None for one that adds nothing to the timeline."""
    involved = nested(event, "involvedObject", default={})
    phrase = PHRASES.get(str(event.get("reason")))
    if phrase is None or involved.get("kind") not in ("Cluster", "Machine"):
        return None
    name, message = str(involved.get("name")), str(event.get("message") or "")
    repeats = involved["kind"] == "Cluster" and message.startswith(f"{name}-")
    if repeats or message in REPEATED:
        return None
    return phrase.format(name=name, why=message)
