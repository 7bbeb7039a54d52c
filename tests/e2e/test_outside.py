"""The manager over a Kubernetes that is not its own: kinds installed, lease taken and given back."""

from pathlib import Path

import pytest
from tests.e2e.processes import SMALL, SPEED, Shell, needs_kubectl

pytestmark = needs_kubectl

KUBERNETES = "site/harvester.yaml"  # the emulator's own API serves as the outside Kubernetes, too
MANIFEST = "small.yaml"
LEASE = ("get", "lease", "windrow-manager", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / MANIFEST).write_text(SMALL)
    return Shell(tmp_path)


def test_a_manager_works_in_an_outside_kubernetes_and_gives_its_lease_back(shell: Shell) -> None:
    written = (KUBERNETES, "site/credentials.yaml")
    with shell.process(
        "emulate", "--state-dir", "site", "--preload", MANIFEST, "--time-scale", SPEED, until=written
    ):
        with shell.process("serve", "--kubeconfig", KUBERNETES, until=[]):
            shell.wait_for_any(KUBERNETES, "customresourcedefinitions", "clusters.provisioning.cattle.io")
            shell.wait_for_any(KUBERNETES, "namespaces", "cattle-global-data")
            shell.kubectl(KUBERNETES, "apply", "-f", "site/credentials.yaml", "-f", MANIFEST)
            cluster = ("clusters.provisioning.cattle.io/orchard", "-n", "fleet-default")
            shell.kubectl(KUBERNETES, "wait", *cluster, "--for=condition=Ready", "--timeout=90s")
            assert shell.kubectl(KUBERNETES, *LEASE) != ""
            shell.kubectl(KUBERNETES, "delete", *cluster, "--timeout=60s")
            assert shell.objects(KUBERNETES, "vms", "-A") == []

        assert shell.kubectl(KUBERNETES, *LEASE) == ""
