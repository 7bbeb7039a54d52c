"""Commands of kubectl in messages."""

from __future__ import annotations

from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete, render_kubectl


def test_a_command_for_another_api_server_names_its_kubeconfig() -> None:
    ref = LOAD_BALANCER.ref("mail", "default")

    assert render_delete(ref, "web", kubeconfig=ON_HARVESTER) == (
        "kubectl --kubeconfig HARVESTER.yaml -n default delete loadbalancers.loadbalancer.harvesterhci.io mail web"
    )


def test_a_command_for_the_api_server_that_shows_the_message_names_none() -> None:
    assert render_kubectl("get nodes") == "kubectl get nodes"
    assert render_kubectl("get pods", "kube-system") == "kubectl -n kube-system get pods"
