"""The cluster controller's access to a guest cluster: a client certificate, issued on demand and valid for hours.

Made from the cluster's client authority, in memory, so there is nothing to copy out of a guest and nothing to revoke.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from windrow.bootstrap.spec import ClusterSecrets
from windrow.core import pki
from windrow.kubernetes.kubeconfig import ClientConfig

USER = "windrow-manager"
# Every API server grants this group everything; so keep lifetimes short.
ADMINISTRATORS = "system:masters"


def issue_client_config(
    cluster: ClusterSecrets,
    endpoint: str,
    now: datetime,
    lifetime: timedelta,
    proxy_url: str = "",
    user: str = USER,
) -> ClientConfig:
    """Administrator's access to the API at `endpoint` (`https://10.0.0.5:6443`) until `now` + `lifetime`."""
    certificate, key = pki.issue_certificate(
        cluster.client_ca.certificate,
        cluster.client_ca.key,
        common_name=user,
        organizations=(ADMINISTRATORS,),
        client=True,
        now=now,
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
