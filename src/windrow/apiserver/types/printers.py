"""Printer columns of the built-in types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow.apiserver.types.registry import Column
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import nested

Raw = dict[str, Any]
Cell = Callable[[Raw], Any]

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"
ROLE = "node-role.kubernetes.io/"


def cell_at(*path: str | int, default: Any = None) -> Cell:
    return lambda raw: nested(raw, *path, default=default)


NAME = Column("Name", cell_at("metadata", "name"), format="name")
AGE = Column("Age", cell_at("metadata", "creationTimestamp"), "date")
CREATED = Column("Created At", cell_at("metadata", "creationTimestamp"))
DEFAULT_COLUMNS = (NAME, AGE)


def _number(name: str, *path: str) -> Column:
    return Column(name, cell_at(*path, default=0), "integer")


def _text(name: str, *path: str, default: Any = "") -> Column:
    return Column(name, cell_at(*path, default=default))


def _wide(name: str, cell: Cell) -> Column:
    return Column(name, cell, priority=1)


def _joined(values: Any) -> str:
    return ",".join(str(one) for one in values) if values else NONE


def _pairs(values: Any) -> str:
    return _joined(f"{key}={value}" for key, value in sorted(values.items())) if values else NONE


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(*path: str) -> Column:
    modes = cell_at(*path, default=[])
    return Column("Access Modes", lambda raw: ",".join(_MODES.get(one, one) for one in modes(raw)))


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node_status(raw: Raw) -> str:
    ready = find_condition(nested(raw, "status", "conditions"), "Ready")
    states = [{"True": "Ready"}.get(ready.status, "NotReady") if ready else "Unknown"]
    if nested(raw, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _node_roles(raw: Raw) -> str:
    labels = nested(raw, "metadata", "labels", default={})
    roles = {key.removeprefix(ROLE) for key in labels if key.startswith(ROLE) and key != ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return _joined(sorted(roles))


def _address(type: str) -> Cell:
    addresses = cell_at("status", "addresses", default=[])
    return lambda raw: next(
        (str(one.get("address")) for one in addresses(raw) if one.get("type") == type), NONE
    )


def _info(name: str) -> Cell:
    return cell_at("status", "nodeInfo", name, default=UNKNOWN)


# --- pods -------------------------------------------------------------------------------------------------------------


def _containers(raw: Raw) -> list[Raw]:
    return list(nested(raw, "status", "containerStatuses", default=[]))


def _pod_ready(raw: Raw) -> str:
    ready = sum(bool(one.get("ready")) for one in _containers(raw))
    return f"{ready}/{len(nested(raw, 'spec', 'containers', default=[]))}"


def _pod_status(raw: Raw) -> str:
    if nested(raw, "metadata", "deletionTimestamp"):
        return "Terminating"
    for one in _containers(raw):
        reason = nested(one, "state", "waiting", "reason") or nested(one, "state", "terminated", "reason")
        if reason:
            return str(reason)
    return str(nested(raw, "status", "reason") or nested(raw, "status", "phase", default=""))


def _pod_restarts(raw: Raw) -> str:
    return str(sum(int(one.get("restartCount", 0)) for one in _containers(raw)))


# --- services, storage, workloads -------------------------------------------------------------------------------------


def _external(raw: Raw) -> str:
    shown = [
        one.get("ip") or one.get("hostname")
        for one in nested(raw, "status", "loadBalancer", "ingress", default=[])
    ]
    shown += nested(raw, "spec", "externalIPs", default=[])
    if shown:
        return _joined(shown)
    return "<pending>" if nested(raw, "spec", "type") == "LoadBalancer" else NONE


def _ports(raw: Raw) -> str:
    shown = []
    for port in nested(raw, "spec", "ports", default=[]):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return _joined(shown)


def _endpoints(raw: Raw) -> str:
    shown = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in nested(raw, "subsets", default=[])
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    more = f" + {len(shown) - 3} more..." if len(shown) > 3 else ""
    return _joined(shown[:3]) + more


def _slice_endpoints(raw: Raw) -> str:
    return _joined(address for one in raw.get("endpoints") or () for address in one.get("addresses") or ())


def _class_name(raw: Raw) -> str:
    marks = nested(raw, "metadata", "annotations", default={})
    is_default = marks.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{raw['metadata']['name']} (default)" if is_default else str(raw["metadata"]["name"])


def _claim_state(raw: Raw) -> str:
    if nested(raw, "metadata", "deletionTimestamp"):
        return "Terminating"
    return str(nested(raw, "status", "phase", default=""))


def _volume_claim(raw: Raw) -> str:
    claim = nested(raw, "spec", "claimRef", default={})
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _ready_of(wanted: tuple[str, ...], ready: tuple[str, ...]) -> Cell:
    return lambda raw: f"{nested(raw, *ready, default=0)}/{nested(raw, *wanted, default=0)}"


def _job_state(raw: Raw) -> str:
    for type in ("Complete", "Failed", "Suspended"):
        found = find_condition(nested(raw, "status", "conditions"), type)
        if found and found.status == "True":
            return type
    return "Running"


def _event_object(raw: Raw) -> str:
    about = raw.get("involvedObject") or raw.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_seen(*fields: str) -> Cell:
    return lambda raw: next(filter(None, map(raw.get, fields)), raw["metadata"].get("creationTimestamp"))


def _role_ref(raw: Raw) -> str:
    ref = raw.get("roleRef") or {}
    return f"{ref.get('kind')}/{ref.get('name')}"


COLUMNS_BY_RESOURCE: dict[str, tuple[Column, ...]] = {
    "namespaces": (NAME, _text("Status", "status", "phase"), AGE),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        _text("Version", "status", "nodeInfo", "kubeletVersion"),
        _wide("Internal-IP", _address("InternalIP")),
        _wide("External-IP", _address("ExternalIP")),
        _wide("OS-Image", _info("osImage")),
        _wide("Kernel-Version", _info("kernelVersion")),
        _wide("Container-Runtime", _info("containerRuntimeVersion")),
    ),
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        _wide("IP", cell_at("status", "podIP", default=NONE)),
        _wide("Node", cell_at("spec", "nodeName", default=NONE)),
        _wide("Nominated Node", cell_at("status", "nominatedNodeName", default=NONE)),
        _wide("Readiness Gates", lambda raw: NONE),
    ),
    "secrets": (
        NAME,
        _text("Type", "type"),
        Column("Data", lambda raw: len(raw.get("data") or {}), "integer"),
        AGE,
    ),
    "configmaps": (
        NAME,
        Column("Data", lambda raw: len(raw.get("data") or {}) + len(raw.get("binaryData") or {}), "integer"),
        AGE,
    ),
    "services": (
        NAME,
        _text("Type", "spec", "type"),
        _text("Cluster-IP", "spec", "clusterIP", default=NONE),
        Column("External-IP", _external),
        Column("Port(s)", _ports),
        AGE,
        _wide("Selector", lambda raw: _pairs(nested(raw, "spec", "selector"))),
    ),
    "endpoints": (NAME, Column("Endpoints", _endpoints), AGE),
    "endpointslices": (
        NAME,
        _text("AddressType", "addressType"),
        Column("Ports", lambda raw: _joined(port.get("port") for port in raw.get("ports") or ())),
        Column("Endpoints", _slice_endpoints),
        AGE,
    ),
    "serviceaccounts": (NAME, Column("Secrets", lambda raw: len(raw.get("secrets") or ()), "integer"), AGE),
    "events": (
        Column("Last Seen", _event_seen("lastTimestamp", "eventTime", "deprecatedLastTimestamp"), "date"),
        _text("Type", "type"),
        _text("Reason", "reason"),
        Column("Object", _event_object),
        _wide("Subobject", cell_at("involvedObject", "fieldPath", default="")),
        _wide("Source", cell_at("source", "component", default="")),
        Column("Message", lambda raw: str(raw.get("message") or raw.get("note") or "").strip()),
        Column("First Seen", _event_seen("firstTimestamp", "eventTime"), "date", priority=1),
        Column("Count", cell_at("count", default=1), "integer", priority=1),
        Column("Name", cell_at("metadata", "name"), format="name", priority=1),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _claim_state),
        _text("Volume", "spec", "volumeName"),
        _text("Capacity", "status", "capacity", "storage"),
        _modes("status", "accessModes"),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        AGE,
        _wide("VolumeMode", cell_at("spec", "volumeMode", default=UNSET)),
    ),
    "persistentvolumes": (
        NAME,
        _text("Capacity", "spec", "capacity", "storage"),
        _modes("spec", "accessModes"),
        _text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        Column("Status", _claim_state),
        Column("Claim", _volume_claim),
        _text("StorageClass", "spec", "storageClassName"),
        _text("VolumeAttributesClass", "spec", "volumeAttributesClassName", default=UNSET),
        _text("Reason", "status", "reason"),
        AGE,
        _wide("VolumeMode", cell_at("spec", "volumeMode", default=UNSET)),
    ),
    "storageclasses": (
        Column("Name", _class_name, format="name"),
        _text("Provisioner", "provisioner"),
        _text("ReclaimPolicy", "reclaimPolicy", default="Delete"),
        _text("VolumeBindingMode", "volumeBindingMode", default=UNSET),
        _text("AllowVolumeExpansion", "allowVolumeExpansion", default=False),
        AGE,
    ),
    "volumeattachments": (
        NAME,
        _text("Attacher", "spec", "attacher"),
        _text("PV", "spec", "source", "persistentVolumeName"),
        _text("Node", "spec", "nodeName"),
        Column("Attached", cell_at("status", "attached", default=False), "boolean"),
        AGE,
    ),
    "leases": (NAME, _text("Holder", "spec", "holderIdentity"), AGE),
    "deployments": (
        NAME,
        Column("Ready", _ready_of(("spec", "replicas"), ("status", "readyReplicas"))),
        _number("Up-to-date", "status", "updatedReplicas"),
        _number("Available", "status", "availableReplicas"),
        AGE,
    ),
    "statefulsets": (
        NAME,
        Column("Ready", _ready_of(("spec", "replicas"), ("status", "readyReplicas"))),
        AGE,
    ),
    "replicasets": (
        NAME,
        _number("Desired", "spec", "replicas"),
        _number("Current", "status", "replicas"),
        _number("Ready", "status", "readyReplicas"),
        AGE,
    ),
    "daemonsets": (
        NAME,
        _number("Desired", "status", "desiredNumberScheduled"),
        _number("Current", "status", "currentNumberScheduled"),
        _number("Ready", "status", "numberReady"),
        _number("Up-to-date", "status", "updatedNumberScheduled"),
        _number("Available", "status", "numberAvailable"),
        Column("Node Selector", lambda raw: _pairs(nested(raw, "spec", "template", "spec", "nodeSelector"))),
        AGE,
    ),
    "jobs": (
        NAME,
        Column("Status", _job_state),
        Column("Completions", _ready_of(("spec", "completions"), ("status", "succeeded"))),
        AGE,
    ),
    "poddisruptionbudgets": (
        NAME,
        _text("Min Available", "spec", "minAvailable", default="N/A"),
        _text("Max Unavailable", "spec", "maxUnavailable", default="N/A"),
        _number("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    "roles": (NAME, CREATED),
    "clusterroles": (NAME, CREATED),
    "rolebindings": (NAME, Column("Role", _role_ref), AGE),
    "clusterrolebindings": (NAME, Column("Role", _role_ref), AGE),
    "customresourcedefinitions": (NAME, CREATED),
}
