"""Which Harvester this is, and which VM a guest node is.

A Harvester has no id of its own; the uid of its `kube-system` namespace never changes, also not when its address,
certificate or credential does.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from windrow.harvester.names import CLUSTER_UID, MACHINE_UID
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import annotations_of, uid_of
from windrow.kubernetes.resources import NAMESPACE

IDENTITY = NAMESPACE.ref("kube-system")
PROVIDER = "harvester://"

# The prefix of an identity that was derived from the CA.
CA_PREFIX = "ca-"


def read_identity(raw: Mapping[str, Any]) -> str:
    """The Harvester's identity, from its `kube-system` namespace."""
    return uid_of(raw)


def ca_fingerprint(access: ClientConfig) -> str:
    """An identity where kube-system may not be read: a digest of the CA of this API, which is Harvester's own. Where the
    kubeconfig has no CA, a digest of the address."""
    source = access.ca.strip() or access.server
    return f"{CA_PREFIX}{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def is_certain(identity: str) -> bool:
    """Whether every credential for this Harvester that may read its kube-system gives this identity: one from a CA follows
    from the text of a kubeconfig, which may differ."""
    return bool(identity) and not identity.startswith(CA_PREFIX)


def compare_identity(recorded: str, found: str, fingerprint: str) -> Literal["same", "other", "unknown"]:
    """Whether a credential leads to the recorded Harvester, where one is recorded.

    `fingerprint` is the identity from its CA; `found` is that one too where kube-system may not be read, which tells
    nothing about a recorded uid. Like is compared with like, also if the credential may read more by now.
    """
    by_ca = recorded.startswith(CA_PREFIX)
    if not recorded or (fingerprint if by_ca else found) == recorded:
        return "same"
    return "unknown" if found.startswith(CA_PREFIX) and not by_ca else "other"


def provider_id(vm_uid: str) -> str:
    """The providerID of the guest node that runs in this VM."""
    return f"{PROVIDER}{vm_uid}"


def vm_uid_of(provider_id: str) -> str:
    """The VM uid in a providerID, "" when it is not one of Harvester's. Uids are compared in lower case, as Kubernetes
    writes them, whichever program wrote the providerID."""
    return provider_id.removeprefix(PROVIDER).lower() if provider_id.startswith(PROVIDER) else ""


def ssh_key_digest(public_key: str) -> str:
    """The fingerprint of an OpenSSH public key, as `ssh-keygen -l` writes it; "" for no key. Its comment does not count."""
    words = public_key.split()
    if not words:
        return ""
    try:
        blob = binascii.a2b_base64(words[min(1, len(words) - 1)])
    except ValueError:
        blob = words[0].encode()
    digest = binascii.b2a_base64(hashlib.sha256(blob).digest(), newline=False)
    return f"SHA256:{digest.decode().rstrip('=')}"


def owner_annotations(cluster_uid: str, machine_uid: str) -> dict[str, str]:
    """The annotations that name the cluster and machine that own an object."""
    wanted = {CLUSTER_UID: cluster_uid, MACHINE_UID: machine_uid}
    return {key: value for key, value in wanted.items() if value}


def is_owned_by(raw: Mapping[str, Any], cluster_uid: str, machine_uid: str) -> bool:
    """Whether the object has exactly these owner annotations. Never without a machine uid."""
    found = annotations_of(raw)
    matches = (found.get(MACHINE_UID, ""), found.get(CLUSTER_UID, "")) == (machine_uid, cluster_uid)
    return matches and bool(machine_uid)
