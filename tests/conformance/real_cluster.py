"""A guest cluster's control plane of programs that we did not write, given the files that our user data writes."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.pki import issue_client_config, new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, ClusterSecrets, Role
from windrow.core import pki
from windrow.core.formats import yaml
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig

VERSIONS = {"rke2": "v1.34.4+rke2r1", "k3s": "v1.34.4+k3s1"}
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
# The controller manager's patience with silent nodes, shortened from 40 s.
GRACE_S = 4
READY_S = 60
# Before a command: it is killed when this process is.
ENDING_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


@dataclass(frozen=True)
class Cluster:
    """`audit` has a line for each request of a service account that was answered."""

    secrets: ClusterSecrets
    url: str
    audit: Path

    def access(self) -> ClientConfig:
        return issue_client_config(self.secrets, self.url, datetime.now(UTC), HOUR)


@dataclass(frozen=True)
class Disk:
    """The files of a first server of a distribution, under a directory of the test."""

    root: Path
    distribution: str

    def path(self, name: str) -> str:
        return str(self.root / f"var/lib/rancher/{self.distribution}/server/tls" / name)

    def text(self, name: str) -> str:
        return Path(self.path(name)).read_text()

    def issue(self, ca: str, name: str) -> str:
        """What the distribution would do next: a certificate of one of the authorities, for this machine. Gives its path."""
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


def write_files(user_data: str, root: Path, distribution: str) -> Disk:
    """Do with `write_files` what cloud-init does, under `root`."""
    for file in yaml.load(user_data)["write_files"]:
        path = root / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"])
        path.chmod(int(file["permissions"], 8))
    return Disk(root, distribution)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(log: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            (*ENDING_WITH_US, *argv), stdout=out, stderr=subprocess.STDOUT, cwd=log.parent
        )
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


# Who asked for what, without what was in it.
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts"]}
  - {level: None}
"""


def apiserver_arguments(disk: Disk, port: int, etcd: int, audit: Path) -> list[str]:
    serving, store = (
        disk.issue("server-ca", "serving-kube-apiserver"),
        disk.issue("etcd/server-ca", "etcd/client"),
    )
    policy = audit.with_name("audit-policy.yaml")
    policy.write_text(AUDIT_POLICY)
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit}",
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
        "--allow-privileged",  # as the distributions do
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


def manager_arguments(kubeconfig: Path, key: str, ca: str, port: int) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--cloud-provider=external",
        f"--service-account-private-key-file={key}",
        f"--root-ca-file={ca}",
        "--node-monitor-period=500ms",
        f"--node-monitor-grace-period={GRACE_S}s",
    ]


FindProgram = Callable[[str], str]


@contextmanager
def a_real_cluster(
    find_program: FindProgram, directory: Path, *, managed: bool = False, distribution: str = "rke2"
) -> Iterator[Cluster]:
    """A store and an API server, made of nothing but the first server's user data; `managed`, a controller manager too."""
    etcd, apiserver = find_program("etcd"), find_program("kube-apiserver")
    manager = find_program("kube-controller-manager") if managed else ""
    secrets = new_cluster_secrets(datetime.now(UTC))
    intent = BootstrapSpec(
        "demo", "demo-a", "uid", VERSIONS[distribution], frozenset(Role), secrets, init_server=True
    )
    disk = write_files(DISTRIBUTIONS[distribution].render(intent), directory, distribution)
    clients, peers, port = free_port(), free_port(), free_port()
    made = Cluster(secrets, f"https://127.0.0.1:{port}", directory / "audit.log")
    log = directory / "kube-apiserver.log"
    with (
        running(directory / "etcd.log", etcd, *etcd_arguments(disk, clients, peers)),
        running(log, apiserver, *apiserver_arguments(disk, port, clients, made.audit)) as process,
    ):
        wait_until_ready(made, process, log, directory)
        if not manager:
            yield made
            return
        kubeconfig = directory / "manager.kubeconfig"
        kubeconfig.write_text(render_kubeconfig(made.access(), "manager"))
        arguments = manager_arguments(
            kubeconfig, disk.path("service.key"), disk.path("server-ca.crt"), free_port()
        )
        with running(directory / "kube-controller-manager.log", manager, *arguments):
            yield made
