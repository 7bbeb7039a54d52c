"""The certificate authorities and passwords of a new cluster, the files that hold them on its init server, and the
cluster controller's client certificate.

`server-ca` is one self-signed certificate, not an issuing authority under a per-cluster root. Two certificates would
let the join hash outlive a renewal of the server authority, but the hash rule for bundles differs, and the renewal that
would profit from it does not exist yet. One certificate is what distributions make themselves, so each of their
releases reads it; a cluster that is to change its server authority gets new join tokens with it.

Every cluster has its own authorities: a client certificate of one cluster must never be good for another. The cluster
controller's is issued on demand, in memory, and valid for hours: there is nothing to copy out of a guest or to revoke.
"""

from __future__ import annotations

import secrets as operating_system
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.spec import CertKeyPair, ClusterSecrets
from windrow.core import pki
from windrow.kubernetes.kubeconfig import ClientConfig

DAYS = 365 * 10
USER = "windrow-manager"
# Every API server grants this group everything, so lifetimes are short.
ADMINISTRATORS = "system:masters"

# Certificates are for the group too, keys for root only; the modes distributions give their own.
CERTIFICATE_MODE = "0640"
KEY_MODE = "0600"

_AUTHORITIES = {
    "server-ca": "server_ca",
    "client-ca": "client_ca",
    "request-header-ca": "request_header_ca",
    "etcd/peer-ca": "etcd_peer_ca",
    "etcd/server-ca": "etcd_server_ca",
}
# Rancher's names for the two passwords.
_OTHERS = {"service.key": "service_key", "serverToken": "server_password", "agentToken": "agent_password"}


def new_cluster_secrets(now: datetime) -> ClusterSecrets:
    """New authorities and passwords. Create them once per cluster and keep them: a second set is another cluster."""
    authorities: dict[str, Any] = {field: _new_authority(name, now) for name, field in _AUTHORITIES.items()}
    return ClusterSecrets(
        **authorities,
        service_key=pki.new_rsa_signing_key(),
        server_password=new_password(),
        agent_password=new_password(),
    )


def new_password() -> str:
    """Another password of a token."""
    return operating_system.token_hex(32)


def list_ca_files(cluster: ClusterSecrets, tls: str) -> Iterator[File]:
    """What the first server, and no other machine, finds in its `tls` directory before it starts.

    A distribution generates only those that are absent; later servers fetch all of them from the first.
    """
    for name, field in _AUTHORITIES.items():
        pair: CertKeyPair = getattr(cluster, field)
        yield File(f"{tls}/{name}.crt", pair.certificate, CERTIFICATE_MODE)
        yield File(f"{tls}/{name}.key", pair.key, KEY_MODE)
    yield File(f"{tls}/service.key", cluster.service_key, KEY_MODE)


def render_secrets(cluster: ClusterSecrets) -> dict[str, str]:
    """The cluster's secrets as the `stringData` of the one Secret that keeps them."""
    data = {}
    for name, field in _AUTHORITIES.items():
        pair: CertKeyPair = getattr(cluster, field)
        data[f"{_key(name)}.crt"], data[f"{_key(name)}.key"] = pair.certificate, pair.key
    return data | {key: getattr(cluster, field) for key, field in _OTHERS.items()}


def read_secrets(data: Mapping[str, str]) -> ClusterSecrets:
    """The reverse of `render_secrets`, from decoded data. Raises KeyError, naming the key that is missing."""
    fields: dict[str, Any] = {
        field: CertKeyPair(data[f"{_key(name)}.crt"], data[f"{_key(name)}.key"])
        for name, field in _AUTHORITIES.items()
    }
    fields |= {field: data[key] for key, field in _OTHERS.items()}
    return ClusterSecrets(**fields)


def _key(name: str) -> str:
    # A key of a Secret may hold no slash.
    return name.replace("/", "-")


def _new_authority(name: str, now: datetime) -> CertKeyPair:
    # The time in the name distinguishes an old authority from its successor.
    name = f"windrow-{_key(name)}@{int(now.timestamp())}"
    certificate, key = pki.new_ca(name, now, DAYS, pki.DAYS_BEFORE)
    return CertKeyPair(certificate, key)


def issue_client_config(
    cluster: ClusterSecrets,
    endpoint: str,
    now: datetime,
    lifetime: timedelta,
    proxy_url: str = "",
    user: str = USER,
) -> ClientConfig:
    """Administrator's access to the API at `endpoint` (`https://10.0.0.5:6443`) until `now` + `lifetime`.

    A clock from before the cluster was created is behind; then the lifetime begins with the cluster.
    """
    created = pki.read_certificate(cluster.client_ca.certificate).not_after - timedelta(days=DAYS)
    certificate, key = pki.issue_certificate(
        cluster.client_ca.certificate,
        cluster.client_ca.key,
        common_name=user,
        organizations=(ADMINISTRATORS,),
        client=True,
        now=max(now, created),
        lifetime=lifetime,
    )
    return ClientConfig(
        server=endpoint,
        ca=cluster.server_ca.certificate,
        certificate=certificate,
        key=key,
        proxy_url=proxy_url,
        user=user,
    )
