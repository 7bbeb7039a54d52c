"""The guest credential: the ServiceAccount, rights and kubeconfig of a guest's cloud provider and CSI driver.

Harvester's own generator makes five things: a ServiceAccount, a token that does not expire, a binding for the cloud provider
in the machines' namespace, a cluster-wide binding for the CSI driver, and a kubeconfig. These are the same five, with
the same names as Harvester's users expect. Each object carries the cluster's uid: two clusters of
one name in two management namespaces would otherwise share, and delete, one account.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object, text_at
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
    ObjectRef,
)

CLOUD_PROVIDER_ROLE = "harvesterhci.io:cloudprovider"
CSI_DRIVER_ROLE = "harvesterhci.io:csi-driver"
TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
VIP = CONFIG_MAP.ref("vip", "harvester-system")
VIP_PORT = 6443
# The name of cluster, user and context in Harvester's kubeconfigs.
NAME = "default"


@dataclass(frozen=True, slots=True)
class GuestAccount:
    """One cluster's ServiceAccount in one Harvester namespace. Create `refs` in this order; delete them in the reverse."""

    cluster: str
    namespace: str
    cluster_uid: str

    @property
    def account(self) -> ObjectRef:
        return SERVICE_ACCOUNT.ref(self.cluster, self.namespace)

    @property
    def token(self) -> ObjectRef:
        return SECRET.ref(f"{self.cluster}-token", self.namespace)

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """The four objects, in the order of creation; the fifth thing, the kubeconfig, is text."""
        binding = f"{self.namespace}-{self.cluster}"
        return (
            self.account,
            self.token,
            ROLE_BINDING.ref(binding, self.namespace),
            CLUSTER_ROLE_BINDING.ref(binding),
        )

    def render_objects(self) -> list[tuple[ApiResource, Raw]]:
        """The objects of `refs`, as they are created."""
        account, token, binding, cluster_binding = self.refs
        return [
            (account.kind, self._object(account)),
            (token.kind, self._object(token, {ACCOUNT_NAME: self.cluster}, type=TOKEN_TYPE)),
            (binding.kind, self._object(binding, **self._bind(CLOUD_PROVIDER_ROLE))),
            (cluster_binding.kind, self._object(cluster_binding, **self._bind(CSI_DRIVER_ROLE))),
        ]

    def is_owned(self, raw: Mapping[str, Any]) -> bool:
        """Whether an existing object was created for this cluster, by its uid."""
        return annotations_of(raw).get(CLUSTER_UID) == self.cluster_uid

    def _object(self, ref: ObjectRef, annotations: Mapping[str, str] | None = None, **rest: Any) -> Raw:
        merged = {**(annotations or {}), CLUSTER_UID: self.cluster_uid}
        return new_object(ref.kind, ref.name, ref.namespace, annotations=merged, **rest)

    def _bind(self, role: str) -> dict[str, Any]:
        return {
            "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": role},
            "subjects": [{"kind": SERVICE_ACCOUNT.kind, "name": self.cluster, "namespace": self.namespace}],
        }


def find_vip_server(vip: Mapping[str, Any] | None) -> str:
    """Harvester as guests reach it, `https://<VIP>:6443`, from the ConfigMap VIP; "" where it holds no address."""
    try:
        address = ip_address(text_at(vip or {}, "data", "ip"))
    except (TypeError, ValueError):
        return ""
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"https://{host}:{VIP_PORT}"


def find_access(token_secret: Mapping[str, Any], server: str, namespace: str) -> ClientConfig | None:
    """The credential of the account whose token Secret this is; None until the token controller has filled it.

    `server` is Harvester as guests reach it. Raises ValueError where the Secret holds no base64.
    """
    token, ca = _decoded(token_secret, "token"), _decoded(token_secret, "ca.crt")
    if not token or not ca:
        return None
    return ClientConfig(server=server, ca=ca, token=token, namespace=namespace)


def find_kubeconfig(token_secret: Mapping[str, Any], server: str, namespace: str) -> str | None:
    """`find_access` as a kubeconfig with Harvester's names."""
    access = find_access(token_secret, server, namespace)
    return render_kubeconfig(access, NAME) if access else None


def _decoded(secret: Mapping[str, Any], key: str) -> str:
    text = nested(secret, "data", key, default="")
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"{key} of Secret {name_of(secret)} is not base64 text; delete the Secret"
        ) from error
