"""References from Clusters to Secrets, `namespace:name`, and the consent that a Secret of another namespace gives.

The manager reads every Secret, so it must not read one for an account that could not. A reference within a namespace is
as good as the right to write a Cluster there. One that leaves it works only where the Secret itself names the namespace
of the Cluster, in annotation `windrow.io/allowed-namespaces`, as a ReferenceGrant of the Gateway API does. Consent is a
property of the object that is read, so a Secret that replaces another gives its own, and it holds while it stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import ALLOWED_NAMESPACES
from windrow.kubernetes.kubectl import render_kubectl
from windrow.kubernetes.objects import (
    annotations_of,
    is_dns_label,
    is_dns_subdomain,
    mappings_at,
    namespace_of,
    nested,
    text_at,
)
from windrow.kubernetes.resources import SECRET, ObjectRef

ALL_NAMESPACES = "*"


def parse_secret_reference(text: str) -> ObjectRef | None:
    """The Secret that `namespace:name` names; None for anything else."""
    namespace, _, name = text.partition(":")
    if not (is_dns_label(namespace) and is_dns_subdomain(name)):
        return None
    return SECRET.ref(name, namespace)


def qualify_credential(name: str, namespace: str) -> str:
    """A `cloudCredentialSecretName` as `namespace:name`: a name alone is a Secret of the Cluster's namespace, as in Rancher."""
    return f"{namespace or 'default'}:{name}" if name and ":" not in name else name


def read_allowed_namespaces(raw: Mapping[str, Any]) -> frozenset[str]:
    """The namespaces that a Secret allows beside its own."""
    text = str(annotations_of(raw).get(ALLOWED_NAMESPACES) or "")
    return frozenset(part for part in (one.strip() for one in text.split(",")) if part)


def render_allowed_namespaces(namespaces: Iterable[str]) -> dict[str, str]:
    """The annotation that allows them; {} for none."""
    text = ",".join(sorted(namespaces))
    return {ALLOWED_NAMESPACES: text} if text else {}


def allow_command(ref: ObjectRef, namespace: str) -> str:
    """The command by which the owner of a Secret lets Clusters of `namespace` use it; typed as it is, others lose the use."""
    command = f"annotate --overwrite secret {ref.name} {ALLOWED_NAMESPACES}={namespace}"
    return f"{render_kubectl(command, ref.namespace)} (a list with commas; keep the namespaces that it has)"


def list_secret_references(raw: Mapping[str, Any]) -> frozenset[str]:
    """The Secrets that the Cluster names as `namespace:name`: cloud credentials, that for S3 too, and `secret://` references."""
    configs = [nested(raw, "spec", "rkeConfig", "machineGlobalConfig")]
    configs += [one.get("config") for one in mappings_at(raw, "spec", "rkeConfig", "machineSelectorConfig")]
    pools = mappings_at(raw, "spec", "rkeConfig", "machinePools")
    found: list[Any] = [
        qualify_credential(text_at(place, "cloudCredentialSecretName"), namespace_of(raw))
        for place in (nested(raw, "spec"), *pools)
        if isinstance(nested(place, "cloudCredentialSecretName"), str)
    ]
    for config in configs:
        value = config.get("cloud-provider-config") if isinstance(config, dict) else None
        if isinstance(value, str) and value.startswith("secret://"):
            found.append(value.removeprefix("secret://"))
    found.append(nested(raw, "spec", "rkeConfig", "etcd", "s3", "cloudCredentialName"))
    return frozenset(name for name in found if isinstance(name, str) and ":" in name)


def list_grants(documents: Iterable[Mapping[str, Any]]) -> dict[ObjectRef, frozenset[str]]:
    """The namespaces that each Secret must allow so that the Clusters in `documents` may use it."""
    wanted: dict[ObjectRef, frozenset[str]] = {}
    for raw in documents:
        if raw.get("kind") != CLUSTER.kind:
            continue
        namespace = namespace_of(raw) or "default"
        for reference in list_secret_references(raw):
            ref = parse_secret_reference(reference)
            if ref is not None and ref.namespace != namespace:
                wanted[ref] = wanted.get(ref, frozenset()) | {namespace}
    return wanted
