from datetime import datetime, timedelta

import pytest

from windrow.bootstrap.pki import (
    issue_client_config,
    list_ca_files,
    new_cluster_secrets,
    read_secrets,
    render_secrets,
)
from windrow.bootstrap.spec import ClusterSecrets
from windrow.core import pki

TLS = "/var/lib/rancher/rke2/server/tls"


def test_a_first_server_gets_the_whole_set_with_keys_for_root_only(cluster_secrets: ClusterSecrets) -> None:
    files = {file.path.removeprefix(f"{TLS}/"): file.mode for file in list_ca_files(cluster_secrets, TLS)}

    assert files == {
        "server-ca.crt": "0640",
        "server-ca.key": "0600",
        "client-ca.crt": "0640",
        "client-ca.key": "0600",
        "request-header-ca.crt": "0640",
        "request-header-ca.key": "0600",
        "etcd/peer-ca.crt": "0640",
        "etcd/peer-ca.key": "0600",
        "etcd/server-ca.crt": "0640",
        "etcd/server-ca.key": "0600",
        "service.key": "0600",
    }


def test_every_authority_has_its_own_key_and_may_sign(cluster_secrets: ClusterSecrets) -> None:
    files = {file.path.removeprefix(f"{TLS}/"): file.content for file in list_ca_files(cluster_secrets, TLS)}
    names = [path.removesuffix(".crt") for path in files if path.endswith(".crt")]

    assert all(pki.matches_key(files[f"{name}.crt"], files[f"{name}.key"]) for name in names)
    assert all(pki.read_certificate(files[f"{name}.crt"]).is_ca for name in names)
    assert len({files[f"{name}.key"] for name in names}) == 5


def test_two_clusters_share_nothing(cluster_secrets: ClusterSecrets, now: datetime) -> None:
    other = render_secrets(new_cluster_secrets(now))

    assert set(other.values()).isdisjoint(render_secrets(cluster_secrets).values())


def test_secrets_survive_being_kept(cluster_secrets: ClusterSecrets) -> None:
    assert read_secrets(render_secrets(cluster_secrets)) == cluster_secrets


def test_the_names_under_which_secrets_are_kept_fit_a_secret(cluster_secrets: ClusterSecrets) -> None:
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyzAT-.") for key in render_secrets(cluster_secrets))


def test_secrets_do_not_show_when_printed(cluster_secrets: ClusterSecrets) -> None:
    assert cluster_secrets.server_password not in repr(cluster_secrets)
    assert "PRIVATE KEY" not in repr(cluster_secrets)


@pytest.mark.parametrize("ahead", [timedelta(hours=25), timedelta(days=-2), timedelta(days=300)])
def test_a_cluster_that_was_created_with_a_wrong_clock_works_with_the_right_one(
    ahead: timedelta, now: datetime
) -> None:
    secrets = new_cluster_secrets(now + ahead)
    client = issue_client_config(secrets, "https://10.0.0.5:6443", now, timedelta(hours=24))

    assert pki.verify_client(client.certificate, secrets.client_ca.certificate, now) is None


def test_a_clock_that_is_behind_the_cluster_issues_no_certificate_that_has_expired(
    cluster_secrets: ClusterSecrets, now: datetime
) -> None:
    behind = now - timedelta(days=2)
    client = issue_client_config(cluster_secrets, "https://10.0.0.5:6443", behind, timedelta(hours=24))

    assert pki.verify_client(client.certificate, cluster_secrets.client_ca.certificate, now) is None
