"""A real kube-apiserver and a real etcd, given the files that our user data writes, judge our certificates."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.bootstrap import rke2
from windrow.bootstrap.pki import issue_client_config, new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, ClusterSecrets, Role
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core import pki
from windrow.core.formats import yaml
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import CertificateError, Unauthorized
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, ApiResource

pytestmark = pytest.mark.go

TLS = "/var/lib/rancher/rke2/server/tls"
SELF = ApiResource("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
READY_S = 60


@dataclass(frozen=True)
class Cluster:
    secrets: ClusterSecrets
    url: str

    def access(self) -> ClientConfig:
        return issue_client_config(self.secrets, self.url, datetime.now(UTC), HOUR)


@dataclass(frozen=True)
class Disk:
    """The files of a first server, under a directory of the test."""

    root: Path

    def path(self, name: str) -> str:
        return str(self.root / TLS.lstrip("/") / name)

    def text(self, name: str) -> str:
        return Path(self.path(name)).read_text()

    def issue(self, ca: str, name: str) -> str:
        """What RKE2 would do next: a certificate of one of the authorities, for this machine. Gives its path."""
        certificate, key = pki.issue_certificate(
            self.text(f"{ca}.crt"),
            self.text(f"{ca}.key"),
            common_name=name,
            dns=["localhost"],
            ips=["127.0.0.1"],
            server=True,
            client=True,
            now=datetime.now(UTC),
            lifetime=DAY,
        )
        Path(self.path(f"{name}.crt")).write_text(certificate)
        Path(self.path(f"{name}.key")).write_text(key)
        return self.path(name)


def write_files(user_data: str, root: Path) -> Disk:
    """Do with `write_files` what cloud-init does, under `root`."""
    for file in yaml.load(user_data)["write_files"]:
        path = root / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"])
        path.chmod(int(file["permissions"], 8))
    return Disk(root)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(log: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def etcd_arguments(disk: Disk, clients: int, peers: int) -> list[str]:
    serving, peer = disk.issue("etcd/server-ca", "etcd/server"), disk.issue("etcd/peer-ca", "etcd/peer")
    return [
        f"--data-dir={disk.root}/etcd",
        f"--listen-client-urls=https://127.0.0.1:{clients}",
        f"--advertise-client-urls=https://127.0.0.1:{clients}",
        f"--listen-peer-urls=https://127.0.0.1:{peers}",
        f"--initial-advertise-peer-urls=https://127.0.0.1:{peers}",
        f"--initial-cluster=default=https://127.0.0.1:{peers}",
        f"--cert-file={serving}.crt",
        f"--key-file={serving}.key",
        f"--trusted-ca-file={disk.path('etcd/server-ca.crt')}",
        "--client-cert-auth",
        f"--peer-cert-file={peer}.crt",
        f"--peer-key-file={peer}.key",
        f"--peer-trusted-ca-file={disk.path('etcd/peer-ca.crt')}",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",
    ]


def apiserver_arguments(disk: Disk, port: int, etcd: int) -> list[str]:
    serving, store = (
        disk.issue("server-ca", "serving-kube-apiserver"),
        disk.issue("etcd/server-ca", "etcd/client"),
    )
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving}.crt",
        f"--tls-private-key-file={serving}.key",
        f"--client-ca-file={disk.path('client-ca.crt')}",
        f"--requestheader-client-ca-file={disk.path('request-header-ca.crt')}",
        f"--etcd-servers=https://127.0.0.1:{etcd}",
        f"--etcd-cafile={disk.path('etcd/server-ca.crt')}",
        f"--etcd-certfile={store}.crt",
        f"--etcd-keyfile={store}.key",
        f"--service-account-key-file={disk.path('service.key')}",
        f"--service-account-signing-key-file={disk.path('service.key')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.43.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
    ]


def wait_until_ready(cluster: Cluster, process: subprocess.Popen[bytes], log: Path, directory: Path) -> None:
    """Ask as a program of the operating system would: OpenSSL, with the files as they are."""
    access = cluster.access()
    pair = directory / "admin.pem"
    pair.write_text(access.certificate + access.key)
    context = ssl.create_default_context(cadata=access.ca)
    context.load_cert_chain(pair)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{cluster.url}/readyz", context=context, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"kube-apiserver did not become ready:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def cluster(
    reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster's store and API, made of nothing but the first server's user data."""
    etcd, apiserver = reference_program("etcd"), reference_program("kube-apiserver")
    directory = tmp_path_factory.mktemp("first-server")
    secrets = new_cluster_secrets(datetime.now(UTC))
    intent = BootstrapSpec(
        "prod", "prod-a", "uid", "v1.34.4+rke2r1", frozenset(Role), secrets, init_server=True
    )
    disk = write_files(rke2.render(intent), directory)
    clients, peers, port = free_port(), free_port(), free_port()
    log = directory / "kube-apiserver.log"
    made = Cluster(secrets, f"https://127.0.0.1:{port}")
    with ExitStack() as stack:
        stack.enter_context(running(directory / "etcd.log", etcd, *etcd_arguments(disk, clients, peers)))
        process = stack.enter_context(running(log, apiserver, *apiserver_arguments(disk, port, clients)))
        wait_until_ready(made, process, log, directory)
        yield made


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
