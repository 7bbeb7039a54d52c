"""An upgrade and a rollout, asked for and waited for with kubectl, under a service that is asked all the while."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.processes import MANIFEST, SPEED, Shell, needs_kubectl

from windrow.core.formats.yaml import dump_all, load_all
from windrow.demo.service_scenarios import render_deployment, render_service
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import ApiResource

pytestmark = needs_kubectl

HARVESTER, MANAGER, GUEST = "site/harvester.yaml", "manager/manager.yaml", "guest.yaml"
CLUSTER = "clusters.provisioning.cattle.io/orchard"
NEXT = "v1.35.4+rke2r1"
INTERVAL = 0.1
BUDGET = ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
IP_POOL = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "IPPool", "ippools", namespaced=False)


def orchard() -> list[Raw]:
    """The demo's cluster of 3 servers and 2 workers, which are drained before they are changed."""
    documents = load_all(MANIFEST.read_text())
    documents[0]["spec"]["rkeConfig"]["upgradeStrategy"] = {"workerDrainOptions": {"enabled": True}}
    return documents


def workload() -> list[Raw]:
    """Two replicas of which one may be away, behind a load balancer."""
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    return [render_deployment(), render_service(), new_object(BUDGET, "web", "default", spec=budget)]


def pool() -> Raw:
    """Addresses of the machines' network for the cluster's load balancers."""
    scope = [{"project": "*", "namespace": "*", "guestCluster": "orchard"}]
    ranges = [{"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.240", "rangeEnd": "192.168.50.243"}]
    selector = {"scope": scope, "network": "default/vlan-50"}
    return new_object(IP_POOL, "orchard", spec={"ranges": ranges, "selector": selector})


@dataclass
class Visitor:
    """Asks `url` ten times a second, each time over a connection of its own; `failed` says when and why it got no answer."""

    url: str
    proxy: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._ask_all_the_while)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _ask_all_the_while(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": self.proxy}))
        begun = due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + INTERVAL, time.monotonic())
            try:
                opener.open(self.url, timeout=10).read()
            except OSError as error:
                self.failed.append(f"after {time.monotonic() - begun:.1f} s: {error}")
            else:
                self.answered += 1


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell beside an emulated Harvester and a manager, in which the cluster runs and serves its workload."""
    shell = Shell(tmp_path)
    (tmp_path / "orchard.yaml").write_text(dump_all(orchard()))
    site = ("emulate", "--state-dir", "site", "--preload", "orchard.yaml", "--time-scale", SPEED)
    with (
        shell.process(*site, until=[HARVESTER, "site/credentials.yaml"]),
        shell.process("serve", "--state-dir", "manager", until=[MANAGER]),
    ):
        shell.kubectl(HARVESTER, "apply", "-f", "-", given=dump_all([pool()]))
        shell.kubectl(MANAGER, "apply", "-f", "site/credentials.yaml", "-f", "orchard.yaml")
        on_cluster(shell, "wait", CLUSTER, "--for=condition=Ready", "--timeout=100s")
        (tmp_path / GUEST).write_text(shell.windrow("kubeconfig", "orchard", "--kubeconfig", MANAGER))
        shell.kubectl(GUEST, "apply", "-f", "-", given=dump_all(workload()))
        shell.kubectl(GUEST, "wait", "deployment/web", "--for=condition=Available", "--timeout=60s")
        address = "--for=jsonpath={.status.loadBalancer.ingress[0].ip}"
        shell.kubectl(GUEST, "wait", "service/web", address, "--timeout=60s")
        yield shell


def on_cluster(shell: Shell, *arguments: str) -> str:
    return shell.kubectl(MANAGER, "-n", "fleet-default", *arguments)


def pods_of_web(shell: Shell) -> set[str]:
    return {raw["metadata"]["name"] for raw in shell.objects(GUEST, "pods", "-l", "app=web")}


def visitor_of(shell: Shell) -> Visitor:
    address = shell.kubectl(GUEST, "get", "svc/web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
    return Visitor(f"http://{address}/", parse_kubeconfig((shell.folder / HARVESTER).read_text()).proxy_url)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_service_answers_throughout_an_upgrade_that_kubectl_asks_for_and_waits_for(shell: Shell) -> None:
    """The wait begins right after the edit, so the condition must not be that of the spec before."""
    before, visitor = pods_of_web(shell), visitor_of(shell)

    with visitor.asking():
        on_cluster(
            shell, "patch", CLUSTER, "--type=merge", "-p", f'{{"spec": {{"kubernetesVersion": "{NEXT}"}}}}'
        )
        on_cluster(shell, "wait", CLUSTER, "--for=condition=UpToDate", "--timeout=100s")
        nodes = shell.objects(GUEST, "nodes")

    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes} == {NEXT}
    assert len(nodes) == 5
    assert not before & pods_of_web(shell), "each worker was drained, so no pod of before is left"
    assert visitor.failed == []
    assert visitor.answered > 20


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_service_answers_throughout_a_rollout_of_workers_with_another_disk(shell: Shell) -> None:
    """An edit of a HarvesterConfig is no new generation of the Cluster, whose status says which generation of it it is about:
    UpToDate is that of the edit, once it does."""
    before, visitor = pods_of_web(shell), visitor_of(shell)
    machines = shell.objects(MANAGER, "machines", "-A")
    names = [raw["metadata"]["name"] for raw in machines if raw["spec"]["pool"] == "workers"]
    disks = [{"imageName": "default/leap-micro", "size": 40 // place, "bootOrder": place} for place in (1, 2)]
    change = json.dumps({"diskInfo": json.dumps({"disks": disks})})

    with visitor.asking():
        on_cluster(shell, "patch", "harvesterconfigs/nc-orchard-workers", "--type=merge", "-p", change)
        config = ("harvesterconfigs/nc-orchard-workers", "-o", "jsonpath={.metadata.generation}")
        generation = on_cluster(shell, "get", *config)
        observed = f"--for=jsonpath={{.status.observedMachineConfigs.nc-orchard-workers}}={generation}"
        on_cluster(shell, "wait", CLUSTER, observed, "--timeout=20s")
        told = on_cluster(
            shell, "get", CLUSTER, "-o", 'jsonpath={.status.conditions[?(@.type=="RollingOut")].message}'
        )
        on_cluster(shell, "wait", CLUSTER, "--for=condition=UpToDate", "--timeout=100s")
        machines = shell.objects(MANAGER, "machines", "-A")

    assert len(names) == 2
    assert told.startswith("2 machines of pool workers to be replaced (orchard-workers-")
    assert not {raw["metadata"]["name"] for raw in machines} & set(names), (
        "UpToDate came before they were gone"
    )
    assert len(machines) == 5
    assert not before & pods_of_web(shell)
    assert visitor.failed == []
    assert visitor.answered > 20
