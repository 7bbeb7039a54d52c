from datetime import datetime, timedelta

from windrow.bootstrap.pki import issue_client_config
from windrow.bootstrap.spec import ClusterSecrets
from windrow.core import pki
from windrow.kubernetes.kubeconfig import parse_kubeconfig, render_kubeconfig

HOUR = timedelta(hours=1)


def test_the_manager_is_an_administrator_for_as_long_as_was_asked(
    cluster_secrets: ClusterSecrets, now: datetime
) -> None:
    access = issue_client_config(cluster_secrets, "https://10.0.0.5:6443", now, HOUR)
    subject = pki.read_certificate(access.certificate)

    assert (subject.common_name, subject.organizations) == ("windrow-manager", ("system:masters",))
    assert subject.not_after == now + HOUR
    assert pki.verify_client(access.certificate, cluster_secrets.client_ca.certificate, now) is None
    assert pki.matches_key(access.certificate, access.key)


def test_the_certificate_opens_this_cluster_by_its_client_authority_only(
    cluster_secrets: ClusterSecrets, now: datetime
) -> None:
    access = issue_client_config(cluster_secrets, "https://10.0.0.5:6443", now, HOUR)

    assert access.ca == cluster_secrets.server_ca.certificate
    assert not pki.is_signed_by(access.certificate, cluster_secrets.server_ca.certificate)


def test_an_access_can_be_given_away_as_a_kubeconfig(cluster_secrets: ClusterSecrets, now: datetime) -> None:
    access = issue_client_config(
        cluster_secrets, "https://10.0.0.5:6443", now, HOUR, proxy_url="http://127.0.0.1:3128"
    )

    found = parse_kubeconfig(render_kubeconfig(access, "prod"))

    assert (found.server, found.proxy_url) == ("https://10.0.0.5:6443", "http://127.0.0.1:3128")
    assert (found.certificate, found.key, found.ca) == (access.certificate, access.key, access.ca)
