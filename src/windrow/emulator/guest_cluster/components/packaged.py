"""K3s' packaged components: manifests that a server stages below `<data>/server/manifests` unless they are disabled.

What is in them is the least that shows: the objects that others see, and pods that run nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.core.formats.yaml import dump_all
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.components.helm_archive import Chart
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import CONFIG_MAP, DEPLOYMENT, SERVICE, STORAGE_CLASS

NAMESPACE = "kube-system"
TRAEFIK = "traefik"
_CHART_URL = "https://%{KUBERNETES_API}%/static/charts/"
_TRAEFIK_CHARTS = ("traefik-crd", TRAEFIK)
_TOLERATIONS = [
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
]


def stage_manifests(guest: GuestOS, settings: Settings) -> None:
    """Write the manifests of what is not disabled; those of what is are removed. May be repeated."""
    disabled = set(settings.list("disable"))
    for component, files in render_components(settings).items():
        for name, objects in files.items():
            path = f"{settings.data_directory}/server/manifests/{name}"
            if component in disabled:
                guest.remove(path)
            elif not guest.is_file(f"{path}.skip"):
                guest.write(path, dump_all(objects).encode(), 0o600)


def list_disabled_objects(settings: Settings) -> Mapping[str, list[Raw]]:
    """By the name of its file, the objects of each component that is disabled."""
    disabled = set(settings.list("disable"))
    components = render_components(settings)
    return {name: objects for one in disabled & set(components) for name, objects in components[one].items()}


def render_components(settings: Settings) -> Mapping[str, Mapping[str, list[Raw]]]:
    """By component, by the name of the file: the objects."""
    dns = (settings.list("cluster-dns") or ("10.43.0.10",))[0]
    domain = settings.text("cluster-domain", "cluster.local")
    return {
        "coredns": {"coredns.yaml": _render_coredns(dns, domain)},
        "local-storage": {"local-storage.yaml": _render_local_storage(settings)},
        "metrics-server": {
            "metrics-server/metrics-server-deployment.yaml": [
                _deployment("metrics-server", "metrics-server")
            ],
            "metrics-server/metrics-server-service.yaml": [
                _service("metrics-server", "metrics-server", [("https", 443, "TCP")])
            ],
        },
        TRAEFIK: {"traefik.yaml": [_render_helm_chart(name) for name in _TRAEFIK_CHARTS]},
    }


def find_packaged_chart(url: str) -> Chart | None:
    """The chart behind a URL of K3s' own charts."""
    name = url.removeprefix(_CHART_URL).removesuffix(".tgz") if url.startswith(_CHART_URL) else ""
    return Chart(name) if name in _TRAEFIK_CHARTS else None


async def install_traefik(cluster: GuestCluster, namespace: str) -> None:
    """What K3s' chart of Traefik makes: a Deployment, and a Service of type LoadBalancer. May be repeated."""
    await cluster.ensure(DEPLOYMENT, _deployment(TRAEFIK, TRAEFIK, namespace))
    service = _service(TRAEFIK, TRAEFIK, [("web", 80, "TCP"), ("websecure", 443, "TCP")], namespace)
    service["spec"]["type"] = "LoadBalancer"
    await cluster.ensure(SERVICE, service)


def _render_coredns(address: str, domain: str) -> list[Raw]:
    corefile = f".:53 {{\n    kubernetes {domain} in-addr.arpa ip6.arpa\n    forward . /etc/resolv.conf\n}}\n"
    service = _service(
        "kube-dns",
        "kube-dns",
        [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", 9153, "TCP")],
    )
    service["spec"]["clusterIP"] = address
    return [
        new_object(CONFIG_MAP, "coredns", NAMESPACE, data={"Corefile": corefile}),
        _deployment("coredns", "kube-dns"),
        service,
    ]


def _render_local_storage(settings: Settings) -> list[Raw]:
    path = settings.text("default-local-storage-path") or f"{settings.data_directory}/storage"
    return [
        _deployment("local-path-provisioner", "local-path-provisioner"),
        new_object(
            STORAGE_CLASS,
            "local-path",
            annotations={
                "defaultVolumeType": "local",
                "storageclass.kubernetes.io/is-default-class": "true",
            },
            provisioner="rancher.io/local-path",
            volumeBindingMode="WaitForFirstConsumer",
            reclaimPolicy="Delete",
        ),
        new_object(CONFIG_MAP, "local-path-config", NAMESPACE, data={"path": path}),
    ]


def _render_helm_chart(name: str) -> Raw:
    spec = {"chart": f"{_CHART_URL}{name}.tgz", "targetNamespace": NAMESPACE}
    return new_object(HELM_CHART, name, NAMESPACE, spec=spec)


def _deployment(name: str, app: str, namespace: str = NAMESPACE) -> Raw:
    labels = {"k8s-app": app}
    pod: dict[str, Any] = {
        "containers": [{"name": name, "image": f"rancher/mirrored-{name}"}],
        "tolerations": _TOLERATIONS,
        "priorityClassName": "system-cluster-critical",
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return new_object(DEPLOYMENT, name, namespace, labels=labels, spec=spec)


def _service(name: str, app: str, ports: list[tuple[str, int, str]], namespace: str = NAMESPACE) -> Raw:
    listed = [{"name": one, "port": port, "protocol": protocol} for one, port, protocol in ports]
    return new_object(SERVICE, name, namespace, spec={"selector": {"k8s-app": app}, "ports": listed})
