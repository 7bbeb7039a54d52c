"""The manager over a Kubernetes that is not its own: kinds installed, lease taken and given back."""

import socket
import ssl
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.e2e.processes import SMALL, SPEED, Shell, needs_kubectl

pytestmark = needs_kubectl

KUBERNETES = "site/harvester.yaml"  # the emulator's own API serves as the outside Kubernetes, too
MANIFEST = "small.yaml"
LEASE = ("get", "lease", "windrow-manager", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")

MAY_READ_METRICS = ("--clusterrole", "windrow-metrics-reader", "--serviceaccount", "default:default")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def read(port: int, path: str, token: str) -> tuple[int, str]:
    """Status code and page of the manager's own port, whose certificate is self-signed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asked = Request(f"https://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(asked, context=context, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / MANIFEST).write_text(SMALL)
    return Shell(tmp_path)


def test_a_manager_works_in_an_outside_kubernetes_and_gives_its_lease_back(shell: Shell) -> None:
    written = (KUBERNETES, "site/credentials.yaml")
    with shell.process(
        "emulate", "--state-dir", "site", "--preload", MANIFEST, "--time-scale", SPEED, until=written
    ):
        port = free_port()
        address = ("--metrics-bind-address", f"127.0.0.1:{port}")
        with shell.process("serve", "--kubeconfig", KUBERNETES, *address, until=[]):
            shell.wait_for_any(KUBERNETES, "customresourcedefinitions", "clusters.provisioning.cattle.io")
            shell.wait_for_any(KUBERNETES, "namespaces", "cattle-global-data")
            shell.kubectl(KUBERNETES, "apply", "-f", "site/credentials.yaml", "-f", MANIFEST)
            cluster = ("clusters.provisioning.cattle.io/orchard", "-n", "fleet-default")
            shell.kubectl(KUBERNETES, "wait", *cluster, "--for=condition=Ready", "--timeout=90s")
            assert shell.kubectl(KUBERNETES, *LEASE) != ""
            assert read(port, "/readyz", "") == (200, "ok")
            assert read(port, "/metrics", "wrong")[0] == 401
            shell.kubectl(KUBERNETES, "create", "clusterrolebinding", "p", *MAY_READ_METRICS)
            token = shell.kubectl(KUBERNETES, "-n", "default", "create", "token", "default").strip()
            status, page = read(port, "/metrics", token)
            assert status == 200
            assert 'leader_election_master_status{name="windrow-manager"} 1.0' in page
            assert 'windrow_clusters{phase="Ready"} 1' in page
            shell.kubectl(KUBERNETES, "delete", *cluster, "--timeout=60s")
            assert shell.objects(KUBERNETES, "vms", "-A") == []

        assert shell.kubectl(KUBERNETES, *LEASE) == ""
