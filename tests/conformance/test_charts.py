"""helm's judgement of our chart, and what the chart makes of the original's values."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripts.chart import chart_files, pack, unpack
from scripts.chart import main as chart_of
from tests.conformance.chart_rig import (
    CHART,
    KUBERNETES,
    NAME,
    NAMESPACE,
    ORIGINAL,
    Helm,
    Refused,
    command_of,
    container_of,
    of_kind,
    pod_of,
    the,
)

from windrow import __version__
from windrow.core.formats.yaml import load, load_all
from windrow.emulator.guest_cluster.charts import default_values, merge_values, render_arguments
from windrow.kubernetes.objects import Raw, nested

pytestmark = pytest.mark.go

FILE = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
K3S = {
    "cloudConfigPath": "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config",
    "global": {"cattle": {"clusterName": "edge"}},
}
BY_SECRET = {"cloudConfig": {"secretName": "access", "secretKey": "cloud-provider-config"}}
NAMED = {"global": {"cattle": {"clusterName": "demo"}}}
EVERYTHING: dict[str, Any] = {
    **NAMED,
    "replicasCount": 3,
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "serviceAccount": {"name": "provider", "annotations": {"a": "b"}},
    "imagePullSecrets": [{"name": "pull"}],
    "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://10.0.0.1:3128"}],
    "podAnnotations": {"c": "d"},
    "podLabels": {"e": "f"},
    "kube-vip": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "config": {"address": "10.0.0.9"},
        "env": {"cp_enable": "true"},
        "envValueFrom": {"bgp_routerid": {"fieldRef": {"fieldPath": "status.podIP"}}},
        "envFrom": [{"secretRef": {"name": "bgp"}}],
        "extraArgs": {"log": 4},
        "extraLabels": {"g": "h"},
        "podAnnotations": {"i": "j"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["api"]}],
        "volumes": [{"name": "spare", "emptyDir": {}}],
        "volumeMounts": [{"name": "spare", "mountPath": "/spare"}],
        "resources": {"requests": {"cpu": "10m"}},
        "podSecurityContext": {"fsGroup": 7},
    },
}
SHAPES: dict[str, Mapping[str, Any]] = {
    "nothing set": {},
    "named": NAMED,
    "K3s": K3S,
    "credential in a Secret": BY_SECRET,
    "everything": EVERYTHING,
    "arguments": {"extraArgs": ["--v=5", "--management-network=default/vlan-100"]},
    "without kube-vip": {"kube-vip": {"enabled": False}},
    "keys taken out": {"cloudConfig": None, "global": {"cattle": None}, "kube-vip": {"env": None}},
    "other names": {"nameOverride": "ccm", "fullnameOverride": "my-ccm"},
}


@pytest.fixture(scope="module")
def helm(reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(reference_program("helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def original() -> Path:
    if not ORIGINAL.exists():
        pytest.skip("the original's values are not beside this tree (shared/charts)")
    return ORIGINAL


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    said = helm.lint()

    assert "WARNING" not in said
    assert "ERROR" not in said


@pytest.mark.parametrize("shape", SHAPES)
def test_helm_finds_nothing_in_it_whatever_the_values(helm: Helm, shape: str) -> None:
    helm.lint("--values", str(helm.file(SHAPES[shape])))


def test_our_archive_holds_what_helm_packs_and_renders_alike(helm: Helm, tmp_path: Path) -> None:
    packed = pack(chart_files())
    ours = tmp_path / "ours.tgz"
    ours.write_bytes(packed)

    helm.run("package", str(CHART), "--destination", str(tmp_path))
    [theirs] = tmp_path.glob(f"{NAME}-*.tgz")

    files, expected = unpack(packed), unpack(theirs.read_bytes())
    assert set(files) == set(expected)
    # helm writes Chart.yaml anew.
    assert [name for name in files if files[name] != expected[name]] in (
        [name for name in files if name.endswith("/Chart.yaml")],
        [f"{NAME}/Chart.yaml"],
        [],
    )
    argv = ("--kube-version", KUBERNETES, "--namespace", NAMESPACE)
    assert helm.run("template", NAME, str(ours), *argv) == helm.run("template", NAME, str(CHART), *argv)


def test_the_chart_is_of_this_version_of_windrow() -> None:
    chart = load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == __version__
    assert (
        load((CHART / "charts/kube-vip/Chart.yaml").read_text())["version"]
        == (chart["dependencies"][0]["version"])
    )


# --- the original's values ------------------------------------------------------------------------------------------


def keys(values: Mapping[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in values.items():
        found.add(f"{prefix}{key}")
        if isinstance(value, Mapping):
            found |= keys(value, f"{prefix}{key}.")
    return found


def test_every_key_of_the_original_s_values_stands_in_ours(original: Path) -> None:
    ours = keys(load((CHART / "values.yaml").read_text()))
    # We prefer several nodes where the original requires them.
    other = {"affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"}

    assert keys(load(original.read_text())) - ours == other


def test_the_original_s_values_are_rendered_as_they_say(helm: Helm, original: Path) -> None:
    objects = helm.render(original)

    assert command_of(objects) == [NAME, "--cloud-config=/etc/kubernetes/cloud-config"]
    container, pod = container_of(objects), pod_of(objects)
    assert container["image"] == "rancher/harvester-cloud-provider:master-head"
    assert container["imagePullPolicy"] == "Always"
    assert nested(pod, "volumes", 0, "hostPath") == {"path": FILE, "type": "File"}
    assert pod["tolerations"] == load(original.read_text())["tolerations"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in pod["affinity"]["podAntiAffinity"]
    vip = container_of(objects, "DaemonSet", "kube-vip")
    assert vip["image"] == "rancher/mirrored-kube-vip-kube-vip-iptables:v1.2.3"
    wanted = load(original.read_text())["kube-vip"]
    env = {one["name"]: one.get("value") for one in vip["env"]}
    assert {name: env[name] for name in wanted["env"]} == wanted["env"]
    assert pod_of(objects, "DaemonSet", "kube-vip")["tolerations"] == wanted["tolerations"]
    assert pod_of(objects, "DaemonSet", "kube-vip")["affinity"] == wanted["affinity"]


@pytest.mark.parametrize(
    ("values", "volume", "mount"),
    [
        ({}, {"hostPath": {"path": FILE, "type": "File"}}, "/etc/kubernetes/cloud-config"),
        (
            {"cloudConfigPath": "/etc/mine", "cloudConfig": {"hostPath": "/etc/other"}},
            {"hostPath": {"path": "/etc/mine", "type": "File"}},
            "/etc/kubernetes/cloud-config",
        ),
        (
            {"cloudConfigPath": "", "cloudConfig": {"hostPath": "/etc/other"}},
            {"hostPath": {"path": "/etc/other", "type": "File"}},
            "/etc/kubernetes/cloud-config",
        ),
        (
            {"cloudConfigPath": "/etc/mine", **BY_SECRET},
            {
                "secret": {
                    "secretName": "access",
                    "defaultMode": 0o440,
                    "items": [{"key": "cloud-provider-config", "path": "cloud-config"}],
                }
            },
            "/etc/kubernetes",
        ),
    ],
    ids=["default", "path over nested path", "nested path", "Secret over all"],
)
def test_the_first_credential_that_is_set_counts(helm: Helm, values: Raw, volume: Raw, mount: str) -> None:
    objects = helm.render(values)

    assert pod_of(objects)["volumes"][0] == {"name": "cloud-config", **volume}
    mounted = container_of(objects)["volumeMounts"][0]
    assert mounted == {"name": "cloud-config", "mountPath": mount, "readOnly": True}
    assert command_of(objects)[1] == "--cloud-config=/etc/kubernetes/cloud-config"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cloudConfigPath": "", "cloudConfig": {"hostPath": ""}}, "no credential for Harvester"),
        ({"cloudConfigPath": "/etc/config-files/"}, "is a directory; name the file in it"),
        ({"cloudConfigPath": "etc/config"}, "is relative; write the absolute path"),
        ({"cloudConfig": {"secret": "x"}}, "additional properties 'secret' not allowed"),
        ({"extraArgs": "--v=5"}, "at '/extraArgs': got string, want array"),
        ({"image": {"tag": 1.1}}, "at '/image/tag': got number, want string"),
        ({"replicasCount": "two"}, "at '/replicasCount': got string, want integer"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name has to name an account"),
    ],
)
def test_a_mistake_in_the_values_is_told(helm: Helm, values: Raw, said: str) -> None:
    with pytest.raises(Refused, match=said):
        helm.render(values)


@pytest.mark.parametrize("distribution", ["k3s", "rke2"])
def test_a_cluster_that_is_given_the_manifest_gets_its_pod(
    helm: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str], distribution: str
) -> None:
    """What the Helm controller does with a HelmChart: unpack the content, render it with the values."""
    chart_of(["--cluster-name=edge", f"--distribution={distribution}", "--set=extraArgs=[--v=3]"])
    spec = load(capsys.readouterr().out)["spec"]
    archive, values = tmp_path / "chart.tgz", tmp_path / "values.yaml"
    archive.write_bytes(b64decode(spec["chartContent"]))
    values.write_text(spec["valuesContent"])

    argv = ("--kube-version", KUBERNETES, "--namespace", spec["targetNamespace"], "--values", str(values))
    objects = load_all(helm.run("template", NAME, str(archive), *argv))

    assert command_of(objects)[1:] == [
        "--cloud-config=/etc/kubernetes/cloud-config",
        "--cluster-name=edge",
        "--v=3",
    ]
    path = nested(pod_of(objects), "volumes", 0, "hostPath", "path")
    assert path == f"/var/lib/rancher/{distribution}/etc/config-files/cloud-provider-config"


# --- the arguments, and the emulator's idea of them -----------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_emulator_starts_the_program_with_what_the_chart_renders(helm: Helm, shape: str) -> None:
    values = SHAPES[shape]

    rendered = command_of_any(helm.render(values))

    assert render_arguments(merge_values(default_values(NAME, "/var/lib/rancher/rke2"), values)) == rendered


def command_of_any(objects: list[Raw]) -> list[str]:
    [deployment] = of_kind(objects, "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return [*container["command"], *container["args"]]


# --- what is better -------------------------------------------------------------------------------------------------


def test_a_single_node_can_be_upgraded(helm: Helm) -> None:
    objects = helm.render()

    assert the(objects, "Deployment")["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    apart = pod_of(objects)["affinity"]["podAntiAffinity"]
    assert list(apart) == ["preferredDuringSchedulingIgnoredDuringExecution"]


def test_a_credential_in_a_secret_needs_no_root(helm: Helm) -> None:
    by_secret, by_file = pod_of(helm.render(BY_SECRET)), pod_of(helm.render())

    assert by_secret["securityContext"]["runAsNonRoot"] is True
    assert by_secret["securityContext"]["fsGroup"] == by_secret["securityContext"]["runAsUser"]
    # The file is readable for root alone.
    assert by_file["securityContext"]["runAsUser"] == 0


@pytest.mark.parametrize("values", [{}, BY_SECRET], ids=["file", "Secret"])
def test_the_container_can_do_nothing_but_run(helm: Helm, values: Raw) -> None:
    objects = helm.render(values)

    assert container_of(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod_of(objects)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_user_s_security_settings_are_laid_over_ours(helm: Helm) -> None:
    objects = helm.render(
        {
            "podSecurityContext": {"runAsUser": 7, "seLinuxOptions": {"type": "spc_t"}},
            "securityContext": {"a": 1},
        }
    )

    assert pod_of(objects)["securityContext"]["runAsUser"] == 7
    assert pod_of(objects)["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert container_of(objects)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("arguments", "port", "host"),
    [
        ([], 10258, None),
        (["--secure-port=12345"], 12345, None),
        (["--secure-port", "12345"], 12345, None),
        (["--secure-port=1", "--secure-port=2"], 2, None),
        (["--secure_port=12345"], 12345, None),
        (["--secure_port", "12345", "--v=4"], 12345, None),
        (["--bind-address=127.0.0.1"], 10258, "127.0.0.1"),
        (["--bind-address=::"], 10258, None),
    ],
)
def test_probes_go_where_the_program_serves(
    helm: Helm, arguments: list[str], port: int, host: str | None
) -> None:
    container = container_of(helm.render({"extraArgs": arguments}))

    assert container["ports"] == [{"name": "https", "containerPort": port, "protocol": "TCP"}]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "https"
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
        assert container[probe]["httpGet"].get("host") == host


def test_a_program_that_serves_nothing_is_not_probed(helm: Helm) -> None:
    objects = helm.render({"extraArgs": ["--secure-port=0"], "metrics": {"service": {"enabled": True}}})

    assert not {"ports", "livenessProbe", "readinessProbe"} & set(container_of(objects))
    assert of_kind(objects, "Service") == []


def test_the_pod_runs_before_its_node_is_ready(helm: Helm) -> None:
    pod = pod_of(helm.render())

    assert pod["hostNetwork"] is True
    tolerated = {one["key"] for one in pod["tolerations"]}
    assert {"node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready"} <= tolerated
    assert pod["priorityClassName"] == "system-cluster-critical"


def test_names_that_a_user_gives_are_used_everywhere(helm: Helm) -> None:
    objects = helm.render(EVERYTHING | {"fullnameOverride": "mine", "nameOverride": "ccm"}, namespace="here")

    pod = pod_of(objects, name="mine")
    assert pod["serviceAccountName"] == "provider"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert the(objects, "ServiceAccount", "provider")["metadata"]["annotations"] == {"a": "b"}
    subject = {"kind": "ServiceAccount", "name": "provider", "namespace": "here"}
    bindings = [*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")]
    ours = [one for one in bindings if one["metadata"]["name"].startswith("mine")]
    assert len(ours) == 3
    assert all(one["subjects"] == [subject] for one in ours)
    labels = the(objects, "Deployment", "mine")["spec"]["selector"]["matchLabels"]
    assert labels["app.kubernetes.io/name"] == "ccm"
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        assert nested(the(objects, kind, "mine"), "spec", "selector", "matchLabels") == labels


def test_the_registry_of_the_cluster_comes_before_both_images(helm: Helm) -> None:
    objects = helm.render({"global": {"cattle": {"systemDefaultRegistry": "registry.local:5000"}}})

    for image in (container_of(objects)["image"], container_of(objects, "DaemonSet", "kube-vip")["image"]):
        assert image.startswith("registry.local:5000/")


REGISTRY = "registry.local:5000"


@pytest.mark.parametrize("registry", [REGISTRY, f"{REGISTRY}/", f"{REGISTRY}/mirror"])
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_the_registry_of_the_cluster_is_not_put_twice_before_an_image(
    helm: Helm, kind: str, registry: str
) -> None:
    """The original puts none before kube-vip's image, so its users wrote it into the repository."""
    image = {"repository": f"{registry.rstrip('/')}/mine/one", "tag": "v1"}
    values = {"image": image, "kube-vip": {"image": image}}
    objects = helm.render({"global": {"cattle": {"systemDefaultRegistry": registry}}, **values})

    name = {"Deployment": NAME, "DaemonSet": "kube-vip"}[kind]
    assert container_of(objects, kind, name)["image"] == f"{registry.rstrip('/')}/mine/one:v1"


@pytest.mark.parametrize(
    ("repository", "prefix"),
    [
        ("ghcr.io/kube-vip/kube-vip", ""),
        ("localhost/kube-vip", ""),
        ("other:5000/kube-vip", ""),
        ("rancher/mirrored-kube-vip", f"{REGISTRY}/"),
        ("kube-vip", f"{REGISTRY}/"),
    ],
)
def test_an_image_of_kube_vip_that_names_a_registry_comes_from_there(
    helm: Helm, repository: str, prefix: str
) -> None:
    image = {"repository": repository, "tag": "v1"}
    cattle = {"systemDefaultRegistry": REGISTRY}
    objects = helm.render({"global": {"cattle": cattle}, "kube-vip": {"image": image}})

    assert container_of(objects, "DaemonSet", "kube-vip")["image"] == f"{prefix}{repository}:v1"


def test_kube_vip_may_read_the_secret_of_its_tunnels_and_no_other(helm: Helm) -> None:
    values = {"namespaceOverride": "away", "fullnameOverride": "vip", "serviceAccount": {"name": "mine"}}
    objects = helm.render({"kube-vip": values})

    role, binding = the(objects, "Role", "vip"), the(objects, "RoleBinding", "vip")
    one = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["wireguard"], "verbs": ["get"]}
    assert role["rules"] == [one]
    assert {raw["metadata"]["namespace"] for raw in (role, binding)} == {"away"}
    assert binding["roleRef"]["name"] == "vip"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "mine", "namespace": "away"}]


def test_kube_vip_is_left_out_on_request(helm: Helm) -> None:
    assert of_kind(helm.render({"kube-vip": {"enabled": False}}), "DaemonSet") == []


def test_kube_vip_takes_no_port_without_a_service(helm: Helm) -> None:
    assert "ports" not in container_of(helm.render(), "DaemonSet", "kube-vip")


def test_kube_vip_has_three_capabilities(helm: Helm) -> None:
    container = container_of(helm.render(), "DaemonSet", "kube-vip")

    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"],
    }
    assert container["args"] == ["manager"]


@pytest.mark.parametrize("svc_election", ["true", "false"])
def test_the_provider_knows_whether_kube_vip_elects_a_leader_per_service(
    helm: Helm, svc_election: str
) -> None:
    objects = helm.render({"kube-vip": {"env": {"svc_election": svc_election}}})
    arguments = container_of(objects)["args"]

    assert ("--kube-vip-svc-election" in arguments) == (svc_election == "true")


def test_kube_vip_takes_all_of_its_values(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    pod = pod_of(objects, "DaemonSet", "kube-vip")
    container = container_of(objects, "DaemonSet", "kube-vip")
    env = {one["name"]: one.get("value") or one.get("valueFrom") for one in container["env"]}
    assert (env["vip_address"], env["lb_enable"], env["cp_namespace"]) == ("10.0.0.9", "true", NAMESPACE)
    assert env["bgp_routerid"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    wanted = EVERYTHING["kube-vip"]
    for key in ("envFrom", "volumeMounts", "resources"):
        assert container[key] == wanted[key]
    for key in ("volumes", "hostAliases"):
        assert pod[key] == wanted[key]
    assert pod["securityContext"] == wanted["podSecurityContext"]
    assert container["args"] == ["manager", "--log=4"]
    assert the(objects, "PodMonitor", "kube-vip")["metadata"]["labels"]["release"] == "prometheus"


def test_the_lease_s_rights_follow_the_flags(helm: Helm) -> None:
    objects = helm.render(
        {"extraArgs": ["--leader-elect-resource-namespace=away", "--leader-elect-resource-name=mine"]}
    )

    role = the(objects, "Role", f"{NAME}-lease")
    assert role["metadata"]["namespace"] == "away"
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["mine"]]


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_are_in_a_namespace_or_belong_to_none(helm: Helm, shape: str) -> None:
    loose = {"ClusterRole", "ClusterRoleBinding"}

    for raw in helm.render(SHAPES[shape]):
        assert ("namespace" in raw["metadata"]) is (raw["kind"] not in loose), raw


def test_the_same_values_give_the_same_objects_for_every_version_of_kubernetes(helm: Helm) -> None:
    argv = ("template", NAME, str(CHART), "--namespace", NAMESPACE, "--kube-version")

    assert helm.run(*argv, "1.23.0") == helm.run(*argv, KUBERNETES)
