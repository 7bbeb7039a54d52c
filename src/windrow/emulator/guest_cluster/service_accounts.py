"""Service accounts of bundled programs in their guest cluster, with the rights of their charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.kit.network import bracketed
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, SERVICE_ACCOUNT

_NAMESPACE = "kube-system"
_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """The in-cluster credential of a pod, as environment and files, and the same as a kubeconfig."""

    env: Mapping[str, str]
    files: Mapping[str, File] = field(repr=False)
    kubeconfig: str = field(repr=False)


async def ensure_service_account(
    cluster: GuestCluster, name: str, rules: Sequence[Mapping[str, Any]]
) -> None:
    """The account of a chart, its cluster role and the binding of the two."""
    await cluster.ensure(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, name, _NAMESPACE))
    await cluster.ensure(CLUSTER_ROLE, new_object(CLUSTER_ROLE, name, rules=[dict(rule) for rule in rules]))
    subject = {"kind": "ServiceAccount", "name": name, "namespace": _NAMESPACE}
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name}
    binding = new_object(CLUSTER_ROLE_BINDING, name, roleRef=role, subjects=[subject])
    await cluster.ensure(CLUSTER_ROLE_BINDING, binding)


async def pod_access(cluster: GuestCluster, account: str, server: ServerInstance) -> PodAccess:
    """Access as a service account, to the API at a server's address.

    A real pod uses the Service address 10.43.0.1, which exists only inside its node; the hourly renewal of the token is
    not simulated.
    """
    raw = await cluster.client().get(SERVICE_ACCOUNT.ref(account, _NAMESPACE))
    token = await cluster.api.service_account_tokens.issue(raw)
    ca, address, port = cluster.authorities.server_ca, server.address, server.settings.api_port
    return PodAccess(
        {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(port)},
        {
            f"{_FILES}/token": File(token.encode(), 0o600),
            f"{_FILES}/ca.crt": File(ca.encode()),
            f"{_FILES}/namespace": File(_NAMESPACE.encode()),
        },
        render_kubeconfig(
            ClientConfig(f"https://{bracketed(address)}:{port}", ca=ca, token=token), "default"
        ),
    )
