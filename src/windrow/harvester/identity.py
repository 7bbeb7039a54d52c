"""Which Harvester this is, and which VM a guest node is.

A Harvester has no id of its own; the uid of its `kube-system` namespace is born with it and never changes, also not
when its address, certificate or credential does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from windrow.harvester.names import CLUSTER_UID, MACHINE_UID
from windrow.kubernetes import requests
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import annotations_of, uid_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import NAMESPACE

IDENTITY = NAMESPACE.ref("kube-system")
PROVIDER = "harvester://"

# How an identity begins that was taken from the CA.
CA_PREFIX = "ca-"


def identity_request() -> Request:
    """The request whose answer `read_identity` understands."""
    return requests.get(IDENTITY)


def read_identity(raw: Mapping[str, Any]) -> str:
    """The Harvester's identity, from its `kube-system` namespace."""
    return uid_of(raw)


def ca_fingerprint(access: ClientConfig) -> str:
    """An identity for those who may not read kube-system, or will not ask: the CA that signs this API is Harvester's
    own, and as old as it. Only where there is none does the address have to do."""
    source = access.ca.strip() or access.server
    return f"{CA_PREFIX}{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def provider_id(vm_uid: str) -> str:
    """The providerID of the guest node that runs in this VM."""
    return f"{PROVIDER}{vm_uid}"


def vm_uid_of(provider_id: str) -> str:
    """The VM uid in a providerID, "" when it is not one of Harvester's. Uids are compared as they are written by
    Kubernetes, in lower case, whoever wrote the providerID."""
    return provider_id.removeprefix(PROVIDER).lower() if provider_id.startswith(PROVIDER) else ""


def owner_annotations(cluster_uid: str, machine_uid: str) -> dict[str, str]:
    """The annotations that make an object ours, and this machine's."""
    wanted = {CLUSTER_UID: cluster_uid, MACHINE_UID: machine_uid}
    return {key: value for key, value in wanted.items() if value}


def is_owned_by(raw: Mapping[str, Any], cluster_uid: str, machine_uid: str) -> bool:
    """Whether the object carries exactly these marks. Without a machine uid to look for, it never does."""
    found = annotations_of(raw)
    matches = (found.get(MACHINE_UID, ""), found.get(CLUSTER_UID, "")) == (machine_uid, cluster_uid)
    return matches and bool(machine_uid)
