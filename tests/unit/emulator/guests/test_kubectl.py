"""kubectl and k3s on a machine of a K3s cluster, as tutorials use them."""

from __future__ import annotations

from tests.support.clock import run_driven

from windrow.core.formats.yaml import dump
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP

from .k3s_fixture import render_script
from .testbed import a_testbed

INSTALL = (
    "curl -sfL https://get.k3s.io | sh -s - server --disable traefik,coredns,metrics-server,local-storage"
)


def test_the_commands_of_tutorials_work_after_the_installation():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = {
                f"/root/{name}.yaml": dump(
                    new_object(CONFIG_MAP, "mine", labels={"app": "web"}, data={"a": value})
                )
                for name, value in (("map", "before"), ("later", "after"))
            }
            commands = [
                "kubectl get nodes || echo too early",
                INSTALL,
                "k3s --version",
                "until kubectl get node one; do sleep 2; done",
                "kubectl wait --for=condition=Ready node/one --timeout=60s",
                "sudo k3s kubectl get nodes",
                "kubectl get no one -o name",
                "kubectl apply -f /root/map.yaml",
                "cat /root/later.yaml | kubectl apply -f -",
                "kubectl get cm mine -o yaml",
                "kubectl get configmaps -l app=web -o name",
                "kubectl get cm -A",
                "kubectl delete cm mine",
                "kubectl get cm mine || echo gone",
                "kubectl get nonsense || echo unknown",
                "kubectl version",
                "kubectl top nodes",
                "kubectl apply -f /root/none.yaml || echo no file",
                "kubectl wait --for=condition=Ready node/two --timeout=1s || echo no node",
                "kubectl wait --for=condition=Ready node/one --timeout=30 || echo no unit",
                "kubectl wait --for=condition=Ready node/one --timeout=1m30s",
                "KUBECONFIG=/etc/rancher/k3s/k3s.yaml kubectl get helmcharts -A || echo failed",
                "cat /var/lib/rancher/k3s/server/node-token",
                "/usr/local/bin/k3s kubectl create namespace harvester",
                "kubectl -n harvester create secret generic access --from-file=cloud-config=/root/map.yaml --from-literal=a=b",
                "kubectl get secrets -n harvester -o name --no-headers",
                "kubectl -n harvester create secret generic other --from-file=/root/none || echo no such file",
                "kubectl create deployment web --image=nginx",
            ]
            host = testbed.power_on("one", render_script("one", commands, files))
            await testbed.wait_for(lambda: host.logged("cloud-init: finished"))

            for line in (
                "too early",
                "k3s version v1.34.3+k3s1",
                "node/one condition met",
                "one   Ready   control-plane,master   v1.34.3+k3s1",
                "cloud-init: node/one",
                "configmap/mine created",
                "configmap/mine configured",
                "a: after",
                "cloud-init: default   mine",
                'configmap "mine" deleted',
                'Error from server (NotFound): configmaps "mine" not found',
                "gone",
                'the server doesn\'t have a resource type "nonsense"',
                "unknown",
                "Server Version: v1.34.3+k3s1",
                "not simulated: kubectl top nodes",
                'the path "/root/none.yaml" does not exist',
                "no node",
                'error: invalid argument "30" for "--timeout" flag: time: missing unit in duration "30"',
                "no unit",
                "No resources found",
                "::server:",
                "namespace/harvester created",
                "secret/access created",
                "cloud-init: secret/access",
                "no such file",
                "not simulated: kubectl create deployment web",
            ):
                assert host.logged(line), (line, testbed.console("one"))
            assert testbed.disks["one"].files["/etc/rancher/k3s/k3s.yaml"].mode == 0o600

    run_driven(scenario())


def test_a_readable_kubeconfig_on_request():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            script = f"export K3S_KUBECONFIG_MODE=644; {INSTALL} --write-kubeconfig /root/.kube/config"
            host = testbed.power_on("one", render_script("one", [script]))
            await testbed.wait_for(lambda: host.logged("Wrote kubeconfig /root/.kube/config"))

            assert testbed.disks["one"].files["/root/.kube/config"].mode == 0o644

    run_driven(scenario())
