from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from windrow.bootstrap.spec import CertKeyPair, ClusterSecrets
from windrow.bootstrap.tokens import agent_token, ca_hash, server_token
from windrow.core import pki


def test_one_certificate_is_hashed_byte_for_byte_as_it_is_served(cluster_secrets: ClusterSecrets) -> None:
    served = cluster_secrets.server_ca.certificate

    assert served.endswith("-----END CERTIFICATE-----\n")
    assert ca_hash(served) == sha256(served.encode()).hexdigest()
    assert ca_hash(served.rstrip("\n")) != ca_hash(served)


def test_several_certificates_are_hashed_by_the_root_they_lead_to(now: datetime) -> None:
    root, _ = pki.new_ca("root", now, 1)
    other_ca, other_key = pki.new_ca("foreign", now, 1)
    leaf, _ = pki.issue_certificate(
        other_ca, other_key, common_name="x", now=now, lifetime=timedelta(hours=1)
    )

    assert ca_hash(leaf + root + other_ca) == sha256(pki.der(other_ca)).hexdigest()
    assert ca_hash(root + other_ca) == sha256(pki.der(root)).hexdigest()


def test_servers_and_workers_join_with_their_own_user_and_password(cluster_secrets: ClusterSecrets) -> None:
    digest = ca_hash(cluster_secrets.server_ca.certificate)

    assert server_token(cluster_secrets) == f"K10{digest}::server:{cluster_secrets.server_password}"
    assert agent_token(cluster_secrets) == f"K10{digest}::node:{cluster_secrets.agent_password}"


def test_a_token_for_another_authority_is_another_token(
    cluster_secrets: ClusterSecrets, now: datetime
) -> None:
    other = replace(cluster_secrets, server_ca=CertKeyPair(*pki.new_ca("windrow-server-ca", now, 1)))

    assert server_token(other) != server_token(cluster_secrets)
