"""The Secrets of the management API that the controller reads and writes: credentials, and those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.bootstrap.spec import CertKeyPair, ClusterSecrets, GuestCredential
from windrow.clusters.api import names
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.references import (
    ALL_NAMESPACES,
    allow_command,
    parse_secret_reference,
    read_allowed_namespaces,
)
from windrow.core.clock import format_time, parse_time
from windrow.core.errors import UserError
from windrow.core.text import encode_base64
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    new_object,
    owner_reference,
    secret_texts,
)
from windrow.kubernetes.resources import SECRET

# In the keys of a cloud credential, of any driver: `<driver>credentialConfig-<field>`.
_CREDENTIAL_MARK = "credentialConfig-"


@dataclass(frozen=True, slots=True)
class SecretData:
    """What a Secret holds, decoded. Of Secrets that do not matter here only their existence is kept in memory."""

    namespace: str
    name: str
    cluster_uid: str = ""
    allowed_namespaces: frozenset[str] = frozenset()  # beside its own
    resource_version: str = field(default="", compare=False)
    data: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_deleting: bool = False
    finalizers: frozenset[str] = field(default=frozenset(), compare=False)


def read_secret_data(raw: Raw) -> SecretData:
    """The reading of a Secret. Of one that does not concern clusters, the data are left out: it may be named as a credential, and
    has not the key. One with our finalizer does, whatever it holds: the finalizer is to be removed."""
    data = raw.get("data") or {}
    cluster_uid = annotations_of(raw).get(CLUSTER_UID, "")
    concerns_clusters = (
        cluster_uid
        or names.GUEST_CREDENTIAL_KEY in data
        or any(_CREDENTIAL_MARK in key for key in data)
        or names.IN_USE_FINALIZER in finalizers_of(raw)
    )
    metadata = raw["metadata"]
    return SecretData(
        metadata.get("namespace", ""),
        metadata["name"],
        cluster_uid,
        read_allowed_namespaces(raw),
        metadata.get("resourceVersion", ""),
        secret_texts(raw) if concerns_clusters else {},
        is_deleting(raw),
        frozenset(finalizers_of(raw)),
    )


class CredentialError(UserError):
    """A credential Secret is absent, empty, or not for this namespace. `message` says which, `hint` what to do."""


def require_consent(reference: str, secret: SecretData | None, namespace: str) -> None:
    """Raises CredentialError unless Clusters of `namespace` may use the Secret `reference`, which is `secret` now.

    The error does not say whether the Secret of another namespace exists.
    """
    ref = parse_secret_reference(reference)
    if ref is None:
        raise CredentialError(f"{reference!r} names no Secret", "write namespace:name")
    if ref.namespace == namespace:
        return
    if secret is not None and not secret.allowed_namespaces.isdisjoint({namespace, ALL_NAMESPACES}):
        return
    raise CredentialError(
        f"the credential Secret {ref.namespace}/{ref.name} does not exist or does not allow its use from namespace "
        f"{namespace}",
        f"create it there if it does not exist; its owner allows the use with: {allow_command(ref, namespace)}",
    )


def read_credential(name: str, secret: SecretData | None) -> ClientConfig:
    """The access to Harvester in credential Secret `namespace:name`. Raises CredentialError, BadKubeconfig."""
    if secret is None:
        raise CredentialError(
            f"the credential Secret {name.replace(':', '/')} does not exist",
            f"create it with the Harvester's kubeconfig under the key {names.CREDENTIAL_KEY}",
        )
    text = secret.data.get(names.CREDENTIAL_KEY, "")
    if not text.strip():
        raise CredentialError(
            f"the credential Secret {name.replace(':', '/')} has no key {names.CREDENTIAL_KEY}",
            "put the Harvester's kubeconfig there",
        )
    try:
        return parse_kubeconfig(text)
    except BadKubeconfig as error:
        raise CredentialError(
            f"the credential Secret {name.replace(':', '/')}: {error.message}", error.hint
        ) from error


# -- certificate authorities and tokens of a cluster --------------------------------------------------------------

_CERTIFICATES = ("server_ca", "client_ca", "request_header_ca", "etcd_peer_ca", "etcd_server_ca")
_TEXTS = ("service_key", "server_password", "agent_password")
GUEST_KUBECONFIG = "guest-kubeconfig"
# Keys of the server token, beside those that every cluster has.
PASSWORD, NEXT_PASSWORD = "server-password", "server-password-next"
FORMER_PASSWORDS, ROTATION = "server-passwords-former", "server-password-rotation"
MAX_FORMER = 50


def render_secrets(cluster: Cluster, secrets: ClusterSecrets) -> Raw:
    """The Secret that holds them. Its owner is the Cluster, so that it is garbage-collected if the finalizer was removed."""
    data: dict[str, str] = {}
    for name in _CERTIFICATES:
        signer: CertKeyPair = getattr(secrets, name)
        data[f"{_key(name)}.crt"] = signer.certificate
        data[f"{_key(name)}.key"] = signer.key
    data |= {_key(name): getattr(secrets, name) for name in _TEXTS}
    return _owned(cluster, names.secrets_name(cluster.name), data)


def render_kubeconfig_secret(cluster: Cluster, text: str, server: str, renew: datetime) -> Raw:
    """The Secret with the kubeconfig for people; its server and its date of renewal are beside it, and what the Cluster
    says of its endpoint."""
    data = {names.KUBECONFIG_KEY: text, "server": server, "renew-after": format_time(renew)}
    return _owned(cluster, names.kubeconfig_name(cluster.name), data | _endpoint(cluster))


def _endpoint(cluster: Cluster) -> dict[str, str]:
    """Every key, since the data of a Secret that exists is merged with it."""
    return {"endpoint": cluster.endpoint_name, "endpoint-ca": cluster.endpoint_ca}


def read_published_server(secret: SecretData | None, cluster: Cluster, now: datetime) -> str:
    """The server in the kubeconfig for people; "" where there is none of this cluster, or it is to be renewed, also because
    the Cluster has another endpoint now."""
    if secret is None or secret.cluster_uid != cluster.uid:
        return ""
    if any(secret.data.get(key, "") != text for key, text in _endpoint(cluster).items()):
        return ""
    renew = secret.data.get("renew-after", "")
    return secret.data.get("server", "") if renew and now < parse_time(renew) else ""


def _owned(cluster: Cluster, name: str, data: Mapping[str, str]) -> Raw:
    return new_object(
        SECRET,
        name,
        cluster.namespace,
        labels={names.CLUSTER_NAME: cluster.name},
        annotations={CLUSTER_UID: cluster.uid},
        owners=[owner_reference(CLUSTER, cluster.raw)],
        type="Opaque",
        data={key: encode_base64(text) for key, text in data.items()},
    )


def _key(name: str) -> str:
    return name.replace("_", "-")


def read_secrets(secret: SecretData | None, cluster_uid: str) -> ClusterSecrets | None:
    """The secrets of this very cluster; None when there are none yet, or of an earlier Cluster of that name."""
    if secret is None or secret.cluster_uid != cluster_uid:
        return None
    data = secret.data
    try:
        parts: dict[str, Any] = {
            name: CertKeyPair(data[f"{_key(name)}.crt"], data[f"{_key(name)}.key"]) for name in _CERTIFICATES
        }
        parts |= {name: data[_key(name)] for name in _TEXTS}
    except KeyError:
        return None
    return ClusterSecrets(
        **parts,
        next_server_password=data.get(NEXT_PASSWORD, ""),
        former_server_passwords=tuple(data.get(FORMER_PASSWORDS, "").split()),
        rotation=data.get(ROTATION, ""),
    )


def render_next_password(password: str | None) -> dict[str, str | None]:
    """The change of the Secret's data by which this becomes the password of the server token that is going to be; None: there is
    none."""
    return {NEXT_PASSWORD: None if password is None else encode_base64(password)}


def render_server_password(secrets: ClusterSecrets, password: str, rotation: str) -> dict[str, str | None]:
    """The change of the Secret's data by which this is the password of the server token from now on. The one of before is kept:
    etcd snapshots of its time are opened by it."""
    before = (secrets.server_password, *secrets.former_server_passwords)
    former = [one for one in dict.fromkeys(before) if one != password][:MAX_FORMER]
    return {
        PASSWORD: encode_base64(password),
        FORMER_PASSWORDS: encode_base64("\n".join(former)),
        ROTATION: encode_base64(rotation),
        NEXT_PASSWORD: None,
    }


def read_guest_credential(secret: SecretData | None, cluster: Cluster) -> GuestCredential | None:
    """The credential of the guest that we made and kept."""
    if secret is None or secret.cluster_uid != cluster.uid or not secret.data.get(GUEST_KUBECONFIG):
        return None
    return GuestCredential(secret.data[GUEST_KUBECONFIG], cluster.vm_namespace)


def read_given_credential(secret: SecretData | None, cluster: Cluster) -> GuestCredential | None:
    """The credential of the guest in the Secret that the user's `secret://` names."""
    if secret is None or not secret.data.get(names.GUEST_CREDENTIAL_KEY, "").strip():
        return None
    return GuestCredential(secret.data[names.GUEST_CREDENTIAL_KEY], cluster.vm_namespace)
