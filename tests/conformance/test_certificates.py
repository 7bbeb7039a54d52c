"""A real kube-apiserver and a real etcd, given the files that our user data writes, judge our certificates."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conformance.real_cluster import HOUR, Cluster, FindProgram, a_real_cluster

from windrow.app.clock import SystemClock
from windrow.bootstrap.pki import issue_client_config, new_cluster_secrets
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core import pki
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import CertificateError, Unauthorized
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, ApiResource

pytestmark = pytest.mark.go

SELF = ApiResource("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}


async def ask_who_i_am(access: ClientConfig) -> Raw:
    async with HttpTransport(access, SystemClock()) as transport:
        review = await Client(transport).create(
            SELF, {"apiVersion": SELF.api_version, "kind": SELF.kind, "metadata": {}}
        )
    user: Raw = nested(review, "status", "userInfo", default={})
    return user


async def test_a_real_api_server_takes_the_manager_for_an_administrator(cluster: Cluster) -> None:
    user = await ask_who_i_am(cluster.access())

    assert user["username"] == "windrow-manager"
    assert "system:masters" in user["groups"]


@pytest.mark.long
async def test_it_does_so_with_the_files_of_a_k3s_server(
    reference_program: FindProgram, tmp_path: Path
) -> None:
    """They are those of an RKE2 server, in another directory (tests/unit/bootstrap/test_k3s.py)."""
    with a_real_cluster(reference_program, tmp_path, distribution="k3s") as made:
        user = await ask_who_i_am(made.access())

    assert user["username"] == "windrow-manager"
    assert "system:masters" in user["groups"]


async def test_the_manager_may_write_what_it_likes(cluster: Cluster) -> None:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        client = Client(transport)
        await client.create(NAMESPACE, {"metadata": {"name": "mine"}})
        await client.create(
            CONFIG_MAP, {"metadata": {"name": "note", "namespace": "mine"}, "data": {"a": "b"}}
        )
        found = await client.get(CONFIG_MAP.ref("note", "mine"))

    assert found["data"] == {"a": "b"}


async def test_the_service_key_signs_tokens_that_the_api_server_believes(cluster: Cluster) -> None:
    access = cluster.access()
    wanted = Request(
        "POST", SERVICE_ACCOUNT.path("default", "robot", "token"), body=dumps(TOKEN), content_type=JSON
    )
    async with HttpTransport(access, SystemClock()) as transport:
        client = Client(transport)
        await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot", "namespace": "default"}})
        token = (await client.call(wanted))["status"]["token"]

    user = await ask_who_i_am(ClientConfig(server=access.server, ca=access.ca, token=token))

    assert user["username"] == "system:serviceaccount:default:robot"


async def test_a_certificate_of_another_cluster_is_refused(cluster: Cluster) -> None:
    foreign = replace(cluster, secrets=new_cluster_secrets(datetime.now(UTC))).access()

    with pytest.raises(Unauthorized):
        await ask_who_i_am(replace(foreign, ca=cluster.access().ca))


async def test_a_certificate_that_has_run_out_is_refused(cluster: Cluster) -> None:
    start = pki.read_certificate(cluster.secrets.client_ca.certificate).not_before

    with pytest.raises(Unauthorized):
        await ask_who_i_am(
            issue_client_config(cluster.secrets, cluster.url, start, timedelta(milliseconds=1))
        )


async def test_a_client_that_knows_another_authority_does_not_talk_to_the_api_server(
    cluster: Cluster,
) -> None:
    other = new_cluster_secrets(datetime.now(UTC))

    with pytest.raises(CertificateError):
        await ask_who_i_am(replace(cluster.access(), ca=other.server_ca.certificate))


@pytest.mark.parametrize("authority", ["server_ca", "request_header_ca", "etcd_server_ca", "etcd_peer_ca"])
async def test_no_other_authority_of_the_cluster_makes_administrators(
    cluster: Cluster, authority: str
) -> None:
    swapped = replace(cluster.secrets, client_ca=getattr(cluster.secrets, authority))

    with pytest.raises(Unauthorized):
        await ask_who_i_am(issue_client_config(swapped, cluster.url, datetime.now(UTC), HOUR))
