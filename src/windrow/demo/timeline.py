"""The manager's events as lines of a story: what it did, to which machine, and why.

An event's reason is the name of the action and its message the reason for it; `kubectl describe` shows both side by
side. A timeline has one column, so the action is put into words here. Small steps are left out, and so is what a
Cluster's event repeats of a Machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.kubernetes.objects import nested

# By reason. `{name}` is the machine or cluster, `{why}` the manager's own words.
PHRASES = {
    "CreateSecrets": "{name}: certificate authorities and join tokens are made",
    "ElectInitServer": "{name} is elected to start the cluster",
    "ProvisionVM": "{name} is ordered from Harvester: {why}",
    "MarkInitialized": "{name}: {why}",
    "PublishKubeconfig": "{name}: the kubeconfig for people is ready",
    "StartVM": "{name} is started: {why}",
    "DeleteMachine": "{name} is given up: {why}",
    "RemoveEtcdMember": "{name} leaves etcd: {why}",
    "DeleteVM": "{name} is removed from Harvester: {why}",
    "RemoveMachineFinalizer": "{name} is gone: {why}",
    "DeleteServiceAccount": "{name}: its account on Harvester is removed",
    "RepairHeld": "{name} is not repaired now: {why}",
}

# Reasons that the story has given before, for all machines at once.
REPEATED = frozenset({"the cluster is deleted", "it was given up"})


def describe_event(event: Mapping[str, Any]) -> str | None:
    """The event as one line, or None for one that adds nothing to the story."""
    involved = nested(event, "involvedObject", default={})
    phrase = PHRASES.get(str(event.get("reason")))
    if phrase is None or involved.get("kind") not in ("Cluster", "Machine"):
        return None
    name, message = str(involved.get("name")), str(event.get("message") or "")
    repeats = involved["kind"] == "Cluster" and message.startswith(f"{name}-")
    if repeats or message in REPEATED:
        return None
    return phrase.format(name=name, why=message)
