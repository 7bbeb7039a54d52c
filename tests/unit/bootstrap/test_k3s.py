from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.bootstrap import DISTRIBUTIONS, k3s, rke2
from windrow.bootstrap.charts import Charts
from windrow.bootstrap.k3s.charts import pinned_charts
from windrow.bootstrap.k3s.flags import dropped_keys
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec, Role
from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.core.formats import yaml

Make = Callable[..., BootstrapSpec]
CONFIG = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
DATA = "/var/lib/rancher/k3s"
CREDENTIAL = f"{DATA}/etc/config-files/cloud-provider-config"
MANIFESTS = f"{DATA}/server/manifests/rancher"
ETCD, CONTROL, WORKER = Role.ETCD, Role.CONTROL_PLANE, Role.WORKER
# What makes a K3s machine of conftest's specs: VMs of Harvester, and no word about a cloud provider.
K3S: dict[str, Any] = {"version": "v1.35.1+k3s1", "global_config": {}, "on_harvester": True}


@pytest.fixture
def server(a_spec: Make) -> Make:
    """Makes the first server; a test names what differs."""
    return lambda **changes: a_spec(**(K3S | changes))


@pytest.fixture
def joiner(a_joiner: Make) -> Make:
    joining = K3S | {"join_server": "https://10.0.0.5:6443"}
    return lambda *roles, **changes: a_joiner(*roles, **(joining | changes))


def files(spec: BootstrapSpec) -> dict[str, str]:
    document = yaml.load(k3s.render(spec))
    return {file["path"]: file["content"] for file in document["write_files"]}


def config(spec: BootstrapSpec) -> dict[str, Any]:
    found = yaml.load(files(spec)[CONFIG])
    assert isinstance(found, dict)
    return found


def charts(spec: BootstrapSpec) -> dict[str, dict[str, Any]]:
    """The spec of each HelmChart, by name."""
    documents = yaml.load_all(files(spec).get(f"{MANIFESTS}/harvester-charts.yaml", ""))
    return {raw["metadata"]["name"]: raw["spec"] for raw in documents if raw}


def test_k3s_is_a_distribution() -> None:
    assert DISTRIBUTIONS["k3s"] is k3s


# --- roles ---


def test_the_first_server_starts_an_etcd_cluster(server: Make) -> None:
    found = config(server())

    assert found["cluster-init"] is True
    assert "server" not in found
    assert "::server:" in found["token"]


def test_a_later_server_joins_on_the_port_of_the_api(server: Make, joiner: Make) -> None:
    first, later = config(server()), config(joiner(*Role))

    assert later == {key: value for key, value in first.items() if key != "cluster-init"} | {
        "server": "https://10.0.0.5:6443"
    }
    assert k3s.LAYOUT.join_url("10.0.0.5") == k3s.LAYOUT.api_url("10.0.0.5") == later["server"]


def test_a_worker_joins_with_the_agent_password_and_knows_no_other(joiner: Make) -> None:
    spec = joiner(WORKER, global_config={"disable": ["traefik"], "cluster-domain": "example.org"})

    assert config(spec)["token"].endswith(f"::node:{spec.secrets.agent_password}")
    assert set(config(spec)) == {"node-name", "node-label", "kubelet-arg", "server", "token"}
    assert spec.secrets.server_password not in k3s.render(spec)


@pytest.mark.parametrize(
    ("roles", "keys"),
    [
        ({ETCD, CONTROL, WORKER}, set()),
        ({ETCD}, {"disable-apiserver", "disable-controller-manager", "disable-scheduler"}),
        ({CONTROL, WORKER}, {"disable-etcd"}),
    ],
)
def test_a_server_runs_the_parts_of_its_roles_only(joiner: Make, roles: set[Role], keys: set[str]) -> None:
    found = config(joiner(*roles))

    assert {key for key in found if key.startswith("disable-")} == keys | {"disable-cloud-controller"}


@pytest.mark.parametrize(
    ("roles", "taints"),
    [
        ({ETCD}, ["node-role.kubernetes.io/etcd:NoExecute"]),
        ({ETCD, CONTROL}, ["node-role.kubernetes.io/control-plane:NoSchedule"]),
        ({CONTROL}, ["node-role.kubernetes.io/control-plane:NoSchedule"]),
        ({ETCD, CONTROL, WORKER}, []),
    ],
)
def test_the_charts_of_k3s_tolerate_the_taints_of_the_control_plane(
    joiner: Make, roles: set[Role], taints: list[str]
) -> None:
    assert config(joiner(*roles)).get("node-taint", []) == taints


def test_the_authorities_are_those_of_an_rke2_server(a_spec: Make, server: Make) -> None:
    """A real API server judges the latter in each run of tests/conformance."""

    def authorities(document: str) -> dict[str, tuple[str, str]]:
        found = yaml.load(document)["write_files"]
        return {
            file["path"].partition("/server/tls/")[2]: (file["content"], file["permissions"])
            for file in found
            if "/server/tls/" in file["path"]
        }

    found = authorities(k3s.render(server()))

    assert len(found) == 11
    assert found == authorities(rke2.render(a_spec()))


def test_only_the_first_server_gets_the_authorities(server: Make, joiner: Make) -> None:
    spec = server()

    assert files(spec)[f"{DATA}/server/tls/server-ca.crt"] == spec.secrets.server_ca.certificate
    assert not [
        path for roles in ({ETCD}, {WORKER}) for path in files(joiner(*roles)) if "server/tls" in path
    ]


@pytest.mark.parametrize(
    ("roles", "kind", "unit"), [({ETCD}, "server", "k3s.service"), ({WORKER}, "agent", "k3s-agent.service")]
)
def test_the_install_unit_is_told_version_and_role_and_no_token(
    joiner: Make, roles: set[Role], kind: str, unit: str
) -> None:
    spec = joiner(*roles)
    found = files(spec)["/etc/windrow/k3s.env"].splitlines()

    assert found == [
        "INSTALL_K3S_VERSION=v1.35.1+k3s1",
        f"INSTALL_K3S_EXEC={kind}",
        "INSTALL_K3S_SKIP_START=true",
        "INSTALL_K3S_SKIP_ENABLE=true",
        f"WINDROW_SERVICE={unit}",
        f"WINDROW_IMAGES={DATA}/agent/images",
    ]


def test_another_data_directory_moves_all_that_lies_in_it(server: Make) -> None:
    spec = server(data_directory="/data/k3s")

    assert config(spec)["data-dir"] == "/data/k3s"
    assert DATA not in k3s.render(spec)


# --- the user's keys ---


def test_keys_of_tutorials_come_through(server: Make) -> None:
    given = {
        "disable": ["traefik", "local-storage"],
        "cluster-domain": "example.org",
        "flannel-backend": "host-gw",
    }

    found = config(server(global_config=given))

    assert {key: found[key] for key in ("cluster-domain", "flannel-backend")} == {
        "cluster-domain": "example.org",
        "flannel-backend": "host-gw",
    }
    assert found["disable"] == ["traefik", "local-storage", "servicelb"]
    assert k3s.check(server(global_config=given)) == []


@pytest.mark.parametrize("given", ["traefik,servicelb", ["traefik", "servicelb"]])
def test_servicelb_is_named_once(server: Make, given: Any) -> None:
    assert config(server(global_config={"disable": given}))["disable"] == given


def test_lists_of_the_user_are_added_to(server: Make, joiner: Make) -> None:
    given = {"kubelet-arg": "max-pods=200", "tls-san": "api.example.org"}

    for spec in (server(global_config=given), joiner(WORKER, global_config=given)):
        assert config(spec)["kubelet-arg"] == ["max-pods=200", "cloud-provider=external"]


def test_ports_and_the_start_of_a_cluster_are_not_the_users_to_set(joiner: Make) -> None:
    """A second server with cluster-init would start a cluster of its own; machines join on one port."""
    given = {"cluster-init": True, "https-listen-port": 7443, "disable-agent": True, "token": "mine"}
    spec = joiner(*Role, global_config=given)

    assert not {"cluster-init", "https-listen-port", "disable-agent"} & config(spec).keys()
    assert config(spec)["token"] != "mine"
    assert [text.partition(" ")[0] for text in k3s.check(spec)][:3] == [
        "'https-listen-port'",
        "'disable-agent'",
        "'token'",
    ]


def test_keys_of_rke2_are_left_out_and_told(joiner: Make) -> None:
    """An agent would not start with them."""
    given = {"cni": "calico", "profile": "cis", "etcd-image": "x", "ingress-controller": "y", "prime": True}
    spec = joiner(WORKER, global_config=given)

    assert not given.keys() & config(spec).keys()
    words = ["flannel-backend", "its own process", "Traefik", "remove it", "protect-kernel-defaults"]
    for warning, word in zip(k3s.check(spec), words, strict=False):
        assert word in warning
        assert "a key of RKE2 that K3s has not" in warning


@pytest.mark.parametrize("version", ["v1.35.1+k3s1", "v1.99.1+k3s1"])
def test_what_an_agent_would_not_start_with_only_servers_get(
    server: Make, joiner: Make, version: str
) -> None:
    """A K3s server skips a key that it does not know; an agent exits. `no-flannel` was one of agents up to v1.25."""
    given = {
        "disable-local-storage": True,
        "no-flannel": True,
        "disable": ["traefik"],
        "kubelet-arg": ["a=b"],
    }
    worker = joiner(WORKER, global_config=given, version=version)

    assert given.keys() <= config(server(global_config=given, version=version)).keys()
    assert given.keys() & config(worker).keys() == {"kubelet-arg"}
    told = k3s.check(worker)[:2]
    assert [text.partition(" ")[0] for text in told] == ["'disable-local-storage'", "'no-flannel'"]
    assert all("agents" in text for text in told)


# --- the cloud provider ---


@pytest.mark.parametrize("given", [{}, {"cloud-provider-name": "harvester"}])
def test_on_harvester_its_provider_is_installed_unasked(server: Make, given: dict[str, Any]) -> None:
    spec = server(global_config=given)
    found = config(spec)

    assert found["disable-cloud-controller"] is True
    assert found["disable"] == ["servicelb"]
    assert found["kubelet-arg"] == ["cloud-provider=external"]
    assert "cloud-provider-name" not in found
    assert list(charts(spec)) == ["harvester-cloud-provider", "harvester-csi-driver"]


def test_the_charts_find_harvester_by_a_secret_of_the_cluster(server: Make) -> None:
    spec = server(chart_values={"harvester-cloud-provider": {"replicasCount": 2}, "traefik": {"a": 1}})
    provider, storage = charts(spec).values()

    assert {key: value for key, value in provider.items() if key != "valuesContent"} == {
        "repo": "https://charts.harvesterhci.io",
        "chart": "harvester-cloud-provider",
        "version": "0.2.14",
        "targetNamespace": "kube-system",
        "bootstrap": True,
    }
    assert "bootstrap" not in storage
    assert yaml.load(provider["valuesContent"]) == {
        "global": {"cattle": {"clusterName": "prod"}},
        "cloudConfigPath": CREDENTIAL,
        "cloudConfig": {
            "secretName": "harvester-cloud-provider-config",
            "secretKey": "cloud-provider-config",
        },
        "replicasCount": 2,
    }
    assert yaml.load(storage["valuesContent"]) == {
        "cloudConfig": {"secretName": "harvester-cloud-provider-config"}
    }
    assert "hunter2" in files(spec)[f"{MANIFESTS}/harvester-credential.yaml"]
    (values,) = yaml.load_all(files(spec)[f"{MANIFESTS}/managed-chart-config.yaml"])
    assert values["metadata"]["name"] == "traefik"


def test_an_rke2_manifest_with_another_version_has_its_credential(server: Make) -> None:
    """Rancher's form writes the path of RKE2, where K3s has no file."""
    path = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
    spec = server(chart_values={"harvester-cloud-provider": {"cloudConfigPath": path}})

    values = yaml.load(charts(spec)["harvester-cloud-provider"]["valuesContent"])

    assert values["cloudConfigPath"] == CREDENTIAL
    assert values["cloudConfig"]["secretName"] == "harvester-cloud-provider-config"


def test_files_of_rke2_that_an_rke2_manifest_names_have_the_credential(server: Make) -> None:
    values = {
        "harvester-csi-driver": {"cloudConfig": {"hostPath": "/var/lib/rancher/rke2/etc/config-files/"}}
    }
    commands = yaml.load(k3s.render(server(chart_values=values)))["runcmd"]

    path = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
    assert commands[0] == ["sh", "-c", f"[ -e {path} ] || install -D -m 0600 {CREDENTIAL} {path}"]


def test_a_cloud_config_path_that_the_chart_cannot_mount_is_warned_about(server: Make) -> None:
    def told(path: str) -> list[str]:
        values = {"harvester-cloud-provider": {"cloudConfigPath": path}}
        config = {"disable": ["local-storage"]}
        return k3s.check(server(chart_values=values, global_config=config))

    (warning,) = told("etc/cloud-config")
    assert "not the absolute path of a file" in warning
    assert told("/etc/cloud-config") == []


def test_a_credential_that_is_a_file_of_the_image_stays_one(server: Make) -> None:
    spec = server(chart_values={"harvester-cloud-provider": {"cloudConfigPath": "/etc/mine"}})

    values = yaml.load(charts(spec)["harvester-cloud-provider"]["valuesContent"])

    assert values["cloudConfigPath"] == "/etc/mine"
    assert "cloudConfig" not in values


def test_images_of_the_charts_come_from_the_registry_of_the_site(server: Make) -> None:
    spec = server(global_config={"system-default-registry": "registry.example.org"})

    for chart in charts(spec).values():
        cattle = yaml.load(chart["valuesContent"])["global"]["cattle"]
        assert cattle["systemDefaultRegistry"] == "registry.example.org"


def test_objects_are_brought_by_one_server(joiner: Make) -> None:
    """A later one would bring older or newer ones back: its files are as old as it is."""
    later = files(joiner(*Role))

    assert not [path for path in later if "harvester-c" in path and MANIFESTS in path]
    assert f"{MANIFESTS}/harvester-charts.yaml" in files(joiner(CONTROL))


OWN_CHART = """\
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata:
  name: {name}
  namespace: kube-system
spec:
  targetNamespace: kube-system
  bootstrap: true
  chart: {chart}
"""


@pytest.mark.parametrize(
    ("name", "chart"),
    [
        ("harvester-cloud-provider", "harvester-cloud-provider"),
        ("harvester-cloud-provider", ""),
        ("provider", "https://charts.example.org/harvester-cloud-provider-0.2.9.tgz"),
    ],
)
def test_a_chart_that_the_user_installs_is_the_users(server: Make, name: str, chart: str) -> None:
    """Harvester's documentation: HelmChart as additional manifest, the credential's file by user data."""
    manifest = OWN_CHART.format(name=name, chart=chart)
    spec = server(
        additional_manifest=manifest,
        global_config={"disable": ["servicelb", "local-storage"], "disable-cloud-controller": True},
        selector_config=[
            {"config": {"kubelet-arg": ["cloud-provider=external"], "protect-kernel-defaults": False}}
        ],
        chart_values={"harvester-cloud-provider": {"a": 1}},
    )

    assert list(charts(spec)) == ["harvester-csi-driver"]
    assert files(spec)[f"{MANIFESTS}/addons.yaml"] == manifest
    assert "a: 1" in files(spec)[f"{MANIFESTS}/managed-chart-config.yaml"]
    assert config(spec)["kubelet-arg"] == ["cloud-provider=external"]
    (warning,) = k3s.check(spec)
    assert warning.startswith(
        "additionalManifest installs the chart harvester-cloud-provider, so Windrow does not"
    )


@pytest.mark.parametrize(
    "manifest",
    [
        "kind: HelmChart\nmetadata: {name: harvester-csi\n",
        "kind: HelmChart\n---\n- harvester-csi-driver\n",
        "kind: HelmChart\nmetadata: [harvester-csi-driver]\nspec: {chart: 5}\n",
    ],
)
def test_a_manifest_without_the_charts_replaces_none(server: Make, manifest: str) -> None:
    assert len(charts(server(additional_manifest=manifest))) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"global_config": {"cloud-provider-name": "none"}},
        {"global_config": {"cloud-provider-name": ""}},
        {"global_config": {"cloud-provider-name": None}},
        {"on_harvester": False},
    ],
)
def test_without_harvesters_provider_k3s_keeps_its_own(server: Make, changes: dict[str, Any]) -> None:
    spec = server(**changes)

    assert (
        not {"disable", "disable-cloud-controller", "kubelet-arg", "cloud-provider-name"}
        & config(spec).keys()
    )
    assert "harvester" not in k3s.render(spec)
    assert k3s.check(spec) == []


def test_a_provider_of_the_users_finds_its_place_free(server: Make) -> None:
    spec = server(global_config={"cloud-provider-name": "external"})

    assert config(spec)["disable-cloud-controller"] is True
    assert config(spec)["kubelet-arg"] == ["cloud-provider=external"]
    assert "harvester" not in k3s.render(spec)


@pytest.mark.parametrize("given", [None, "secret://fleet-default:harvesterconfigndk26"])
def test_every_node_gets_the_credential_as_a_file(joiner: Make, given: str | None) -> None:
    spec = joiner(WORKER, global_config={"cloud-provider-config": given} if given else {})

    assert "hunter2" in files(spec)[CREDENTIAL]
    assert "cloud-provider-config" not in config(spec)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cloud-provider-name": "aws"}, "K3s brings no such cloud provider"),
        ({"disable-cloud-controller": False}, "leaves K3s' own cloud controller beside it"),
        ({"cloud-provider-name": "external", "disable-cloud-controller": "false"}, "beside it"),
        ({"disable": {"traefik": True}}, "disable has a map or a list as an entry"),
        ({"kubelet-arg": {"max-pods": 250}}, "kubelet-arg has a map or a list as an entry"),
        ({"kubelet-arg": ["--cloud-provider=aws"]}, "kubelet-arg has '--cloud-provider=aws'"),
        ({"disable-helm-controller": True}, "the Helm controller is to install harvester-cloud-provider"),
    ],
)
def test_contradictions_are_refused_with_a_cure(server: Make, given: dict[str, Any], message: str) -> None:
    spec = server(global_config=given)

    (found,) = k3s.list_contradictions(spec)
    assert message in found.message
    assert found.hint
    with pytest.raises(InvalidBootstrapSpec):
        k3s.render(spec)


def test_all_contradictions_are_listed(server: Make) -> None:
    given = {
        "disable-cloud-controller": False,
        "disable-helm-controller": "true",
        "kubelet-arg": "cloud-provider=x",
    }

    assert len(k3s.list_contradictions(server(global_config=given))) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "disable: [local-storage]"),
        (
            {"disable": ["local-storage"], "node-external-ip": "1.2.3.4"},
            "K3s' own cloud controller, which is off",
        ),
        (
            {"cloud-provider-name": "none", "cloud-provider-config": "x"},
            "means nothing without a cloud provider",
        ),
        ({"disable": ["local-storage"], "disabel": 1}, "did you mean 'disable'?"),
        ({"disable": ["local-storage"], "cluster-init": False}, "is set by Windrow"),
    ],
)
def test_each_doubt_is_one_warning_with_a_cure(server: Make, given: dict[str, Any], words: str) -> None:
    (warning,) = k3s.check(server(global_config=given))

    assert words in warning
    assert "; " in warning


# --- refusals and facts ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "v1.35.1+rke2r1"}, "no release of K3s"),
        ({"roles": frozenset({CONTROL, WORKER})}, "is first but has no etcd"),
        ({"init_server": False}, "would start a cluster of its own"),
    ],
)
def test_a_machine_that_could_never_join_is_refused(
    server: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidBootstrapSpec) as caught:
        k3s.render(server(**changes))

    assert message in caught.value.message


def test_the_pinned_charts_are_those_of_the_newest_rke2_and_read_the_secret() -> None:
    pinned = pinned_charts()

    assert pinned == shipped_matrix().bundled[-1][1] == Charts((0, 2, 14), (0, 1, 30))
    assert pinned.cloud_provider_reads_secret
    assert pinned.csi_driver_reads_secret


HELM_SCHEMA = Path(__file__).parents[4] / "shared/crds/helm.cattle.io_helmcharts.yaml"


@pytest.mark.skipif(not HELM_SCHEMA.exists(), reason="the real schemas are not beside this clone")
def test_the_charts_fit_the_real_schema_of_the_helm_controller(server: Make) -> None:
    crd = yaml.load(HELM_SCHEMA.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    for raw in yaml.load_all(files(server())[f"{MANIFESTS}/harvester-charts.yaml"]):
        assert raw["kind"] == crd["spec"]["names"]["kind"]
        jsonschema.validate(raw, schema)
        assert set(raw["spec"]) <= set(schema["properties"]["spec"]["properties"])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("harvester-cloud-provider", "harvester-csi-driver"),
        ("harvester-csi-driver", "harvester-cloud-provider"),
    ],
)
def test_our_own_chart_takes_the_place_of_harvesters(server: Make, ours: str, theirs: str) -> None:
    """What `make chart` prints carries the archive and names no chart."""
    packed = Path(__file__).parents[3] / f"deploy/manifests/{ours}-k3s.yaml"

    assert list(charts(server(additional_manifest=packed.read_text()))) == [theirs]


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=8), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
SPECIAL = (
    "disable",
    "kubelet-arg",
    "cloud-provider-name",
    "disable-cloud-controller",
    "cluster-init",
    "tls-san",
)


@settings(max_examples=25)
@given(given=st.dictionaries(st.sampled_from(SPECIAL), VALUES, max_size=4))
def test_whatever_the_user_writes_is_rendered_or_refused_in_words(
    a_spec: Make, given: dict[str, Any]
) -> None:
    spec = a_spec(**(K3S | {"global_config": given}))
    refused = k3s.list_contradictions(spec)

    k3s.check(spec)
    if not refused:
        assert config(spec)["cluster-init"] is True
    assert all(one.message and one.hint for one in refused)


@settings(max_examples=15)
@given(
    given=st.dictionaries(
        st.text(min_size=1).filter(lambda key: key not in dropped_keys()), VALUES, max_size=4
    )
)
def test_keys_that_are_not_windrows_reach_a_server_unchanged(a_spec: Make, given: dict[str, Any]) -> None:
    found = config(a_spec(**(K3S | {"global_config": given})))

    assert {key: found[key] for key in given if key not in (*SPECIAL, "node-label", "node-taint")} == {
        key: value for key, value in given.items() if key not in (*SPECIAL, "node-label", "node-taint")
    }
