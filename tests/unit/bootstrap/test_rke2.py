import posixpath
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.bootstrap import k3s, rke2
from windrow.bootstrap.config.keys import MANAGED
from windrow.bootstrap.server_config import render_s3_secret
from windrow.bootstrap.spec import BootstrapSpec, GuestCredential, InvalidBootstrapSpec, Role
from windrow.bootstrap.support_matrix.matrix import read_matrix
from windrow.core.formats import yaml
from windrow.core.text import decode_base64

Make = Callable[..., BootstrapSpec]
CONFIG = "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml"
CREDENTIAL = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
MANIFESTS = "/var/lib/rancher/rke2/server/manifests/rancher"
ETCD, CONTROL, WORKER = Role.ETCD, Role.CONTROL_PLANE, Role.WORKER


def files(spec: BootstrapSpec) -> dict[str, str]:
    document = yaml.load(rke2.render(spec))
    return {file["path"]: file["content"] for file in document["write_files"]}


def config(spec: BootstrapSpec) -> dict[str, Any]:
    found = yaml.load(files(spec)[CONFIG])
    assert isinstance(found, dict)
    return found


def chart_values(spec: BootstrapSpec) -> dict[str, Any]:
    documents = yaml.load_all(files(spec)[f"{MANIFESTS}/managed-chart-config.yaml"])
    return {chart["metadata"]["name"]: yaml.load(chart["spec"]["valuesContent"]) for chart in documents}


# --- roles ---


def test_the_first_server_starts_its_cluster(a_spec: Make) -> None:
    found = config(a_spec())

    assert "server" not in found
    assert found["token"].startswith("K10")
    assert "::server:" in found["token"]
    assert found["node-name"] == "prod-pool1-abcde-fghij"


def test_a_later_server_joins_with_the_same_tokens(a_spec: Make, a_joiner: Make) -> None:
    first, later = config(a_spec()), config(a_joiner(*Role))

    assert later == first | {"server": "https://10.0.0.5:9345"}


def test_a_worker_joins_with_the_agent_password_and_knows_no_other(a_joiner: Make) -> None:
    spec = a_joiner(WORKER)
    found = config(spec)

    assert found["server"] == "https://10.0.0.5:9345"
    assert found["token"].endswith(f"::node:{spec.secrets.agent_password}")
    assert "agent-token" not in found
    assert spec.secrets.server_password not in rke2.render(spec)


def test_the_password_workers_join_with_is_the_one_servers_are_given(a_spec: Make, a_joiner: Make) -> None:
    password = config(a_joiner(WORKER))["token"].rpartition(":")[2]

    assert config(a_spec())["agent-token"] == password


@pytest.mark.parametrize(
    ("roles", "keys"),
    [
        ({ETCD, CONTROL, WORKER}, set()),
        ({ETCD, CONTROL}, set()),
        ({ETCD}, {"disable-apiserver", "disable-controller-manager", "disable-scheduler"}),
        ({ETCD, WORKER}, {"disable-apiserver", "disable-controller-manager", "disable-scheduler"}),
        ({CONTROL}, {"disable-etcd"}),
        ({CONTROL, WORKER}, {"disable-etcd"}),
        ({WORKER}, set()),
    ],
)
def test_a_server_runs_the_parts_of_its_roles_only(a_joiner: Make, roles: set[Role], keys: set[str]) -> None:
    assert {
        key for key, value in config(a_joiner(*roles)).items() if key.startswith("disable-") and value
    } == keys


@pytest.mark.parametrize("roles", [{ETCD, CONTROL, WORKER}, {ETCD}, {CONTROL}, {WORKER}])
def test_keys_of_the_authorities_go_to_no_machine_that_joins(a_joiner: Make, roles: set[Role]) -> None:
    text = rke2.render(a_joiner(*roles))

    assert "PRIVATE KEY" not in text
    assert "server/tls" not in text


def test_the_first_server_gets_the_authorities_byte_for_byte(a_spec: Make) -> None:
    spec = a_spec()

    found = files(spec)["/var/lib/rancher/rke2/server/tls/server-ca.crt"]

    assert found == spec.secrets.server_ca.certificate


@pytest.mark.parametrize(
    ("roles", "kind"), [({ETCD}, "server"), ({CONTROL, WORKER}, "server"), ({WORKER}, "agent")]
)
def test_the_install_unit_is_told_version_and_role(a_joiner: Make, roles: set[Role], kind: str) -> None:
    spec = a_joiner(*roles)

    assert files(spec)["/etc/windrow/rke2.env"].splitlines() == [
        "INSTALL_RKE2_VERSION=v1.35.1+rke2r1",
        f"INSTALL_RKE2_TYPE={kind}",
        f"RKE2_SERVICE=rke2-{kind}.service",
    ]


# --- the user's keys ---


def test_keys_for_servers_are_kept_from_workers(a_spec: Make, a_joiner: Make) -> None:
    given = {"cni": "cilium", "disable-kube-proxy": False, "kubelet-arg": ["x=1"], "unheard-of": True}

    server, worker = config(a_spec(global_config=given)), config(a_joiner(WORKER, global_config=given))

    assert {key: server[key] for key in given} == given
    assert {key: worker[key] for key in given if key in worker} == {
        "kubelet-arg": ["x=1"],
        "unheard-of": True,
    }


def test_calico_is_the_network_unless_another_is_named(a_spec: Make) -> None:
    assert config(a_spec())["cni"] == "calico"
    assert config(a_spec(global_config={"cni": ["multus", "canal"]}))["cni"] == ["multus", "canal"]


def test_what_makes_a_machine_itself_is_not_the_users_to_set(a_spec: Make) -> None:
    given = {"token": "mine", "server": "https://elsewhere:9345", "node-name": "x", "agent-token-file": "/x"}

    found = config(a_spec(global_config=given))

    assert "server" not in found
    assert "agent-token-file" not in found
    assert found["node-name"] == "prod-pool1-abcde-fghij"
    assert found["token"] != "mine"


def test_lists_of_the_user_are_added_to(a_spec: Make) -> None:
    given = {"node-label": "a=b", "node-taint": ["c=d:NoSchedule"], "tls-san": "api.example.org"}
    spec = a_spec(global_config=given, taints=("e=f:NoExecute",), tls_san=("10.0.0.9", "api.example.org"))

    found = config(spec)

    assert found["node-label"] == ["a=b", "rke.cattle.io/machine=5d0c1a6e-machine", "cattle.io/os=linux"]
    assert found["node-taint"] == ["c=d:NoSchedule", "e=f:NoExecute"]
    assert found["tls-san"] == ["api.example.org", "10.0.0.9"]


@pytest.mark.parametrize("key", ["node-label", "node-taint", "tls-san"])
@pytest.mark.parametrize("value", [{"a": "b"}, ["c=d:NoExecute", {"a": "b"}], [["c=d"]]])
def test_a_map_where_a_list_of_texts_belongs_is_refused_with_the_form(
    a_spec: Make, key: str, value: Any
) -> None:
    """It ended the rendering with a TypeError, at every reconcile."""
    spec = a_spec(global_config={key: value})

    (refused,) = rke2.list_contradictions(spec)
    assert refused.message == f"{key} has a map or a list as an entry, and takes texts"
    assert refused.hint.startswith(f"write {key}: [")
    with pytest.raises(InvalidBootstrapSpec):
        rke2.render(spec)


def test_labels_that_a_kubelet_may_not_set_are_not_in_its_configuration(a_spec: Make) -> None:
    spec = a_spec(labels={"node-role.kubernetes.io/db": "true", "tier": "db"})

    assert "node-role" not in files(spec)[CONFIG]
    assert "tier=db" in config(spec)["node-label"]


def test_snapshots_are_made_as_asked_and_only_where_etcd_is(a_spec: Make, a_joiner: Make) -> None:
    etcd = {"disableSnapshots": False, "snapshotRetention": 5, "snapshotScheduleCron": "0 */5 * * *"}

    found = config(a_spec(etcd=etcd))

    assert found["etcd-snapshot-retention"] == 5
    assert found["etcd-snapshot-schedule-cron"] == "0 */5 * * *"
    assert found["etcd-disable-snapshots"] is False
    assert not [key for key in config(a_joiner(CONTROL, etcd=etcd)) if key.startswith("etcd-")]


def test_snapshots_to_s3_need_their_credential_read(a_spec: Make) -> None:
    s3 = {"bucket": "b", "cloudCredentialName": "cattle-global-data:cc-1", "endpointCA": "PEM"}

    with pytest.raises(InvalidBootstrapSpec, match="which was not read"):
        rke2.render(a_spec(etcd={"s3": s3}))
    whole = a_spec(etcd={"s3": s3 | {"accessKey": "a", "secretKey": "k"}})

    found = config(replace(whole, version="v1.30.14+rke2r1"))
    assert (found["etcd-s3"], found["etcd-s3-secret-key"]) == (True, "k")
    assert files(replace(whole, version="v1.30.14+rke2r1"))[found["etcd-s3-endpoint-ca"]] == "PEM"


def test_where_the_release_reads_a_secret_no_file_has_the_keys_of_s3(a_spec: Make) -> None:
    s3 = {"bucket": "b", "endpointCA": "PEM", "retention": 3, "accessKey": "AAA", "secretKey": "SSS"}
    spec = a_spec(etcd={"s3": s3}, version="v1.31.0+rke2r1")

    found = {key: value for key, value in config(spec).items() if key.startswith("etcd-s3")}
    assert found == {
        "etcd-s3": True,
        "etcd-s3-retention": 3,
        "etcd-s3-config-secret": "rke2-etcd-snapshot-s3-config",
    }
    assert not any(word in text for text in files(spec).values() for word in ("AAA", "SSS"))
    assert rke2.LAYOUT.s3_ca_file not in files(spec)

    # A key of the user's own has the distribution ignore the Secret.
    own = replace(spec, global_config={"etcd-s3-proxy": "http://p"})
    assert config(own)["etcd-s3-secret-key"] == "SSS"
    assert "etcd-s3-config-secret" not in config(own)


def test_the_secret_of_s3_has_what_the_flags_had(a_spec: Make) -> None:
    s3 = {
        "bucket": "b",
        "skipSSLVerify": True,
        "region": "",
        "retention": 3,
        "endpointCA": "PEM",
        "secretKey": "k",
    }
    raw = render_s3_secret(s3, rke2.LAYOUT)

    assert raw["type"] == "etcd.k3s.cattle.io/s3-config-secret"
    assert (raw["metadata"]["namespace"], raw["metadata"]["name"]) == (
        "kube-system",
        "rke2-etcd-snapshot-s3-config",
    )
    assert {key: decode_base64(text) for key, text in raw["data"].items()} == {
        "etcd-s3-bucket": "b",
        "etcd-s3-skip-ssl-verify": "true",
        "etcd-s3-endpoint-ca": "PEM",
        "etcd-s3-secret-key": "k",
    }


# --- the guest credential ---


@pytest.mark.parametrize("roles", [{ETCD, CONTROL, WORKER}, {WORKER}])
@pytest.mark.parametrize("given", [None, "secret://fleet-default:harvesterconfigndk26"])
def test_every_node_gets_the_credential_as_a_file(
    a_joiner: Make, roles: set[Role], given: str | None
) -> None:
    spec = a_joiner(
        *roles, global_config={"cloud-provider-name": "harvester"}, selector_config=[{"config": {}}]
    )
    if given:
        spec = replace(spec, selector_config=[{"config": {"cloud-provider-config": given}}])

    assert config(spec)["cloud-provider-config"] == CREDENTIAL
    assert "hunter2" in files(spec)[CREDENTIAL]


def test_a_credential_written_into_the_manifest_is_delivered_as_it_is(a_spec: Make) -> None:
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": "kind: Config\n"}

    spec = a_spec(global_config=given)

    assert files(spec)[CREDENTIAL] == "kind: Config\n"
    assert config(spec)["cloud-provider-config"] == CREDENTIAL


def test_a_credential_that_is_a_file_of_the_image_stays_one(a_spec: Make) -> None:
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": "/etc/mine"}

    spec = a_spec(global_config=given)

    assert config(spec)["cloud-provider-config"] == "/etc/mine"
    assert CREDENTIAL not in files(spec)


def test_the_file_that_windrow_writes_may_be_named_and_has_the_credential(a_spec: Make) -> None:
    """As in the configuration of a cluster made by hand."""
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": CREDENTIAL, "cni": "canal"}

    spec = a_spec(global_config=given)

    assert config(spec)["cloud-provider-config"] == CREDENTIAL
    assert "hunter2" in files(spec)[CREDENTIAL]
    assert rke2.check(spec) == []


def test_a_credential_file_that_something_else_must_bring_is_warned_about(a_spec: Make) -> None:
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": "/etc/mine", "cni": "canal"}

    (warning,) = rke2.check(a_spec(global_config=given))

    assert "no machine without the file '/etc/mine' of 'cloud-provider-config'" in warning
    assert "or remove the key" in warning
    assert rke2.check(a_spec(global_config={**given, "cloud-provider-config": "secret://a:b"})) == []


def test_a_secret_that_was_not_read_is_refused(a_spec: Make) -> None:
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": "secret://a:b"}

    with pytest.raises(InvalidBootstrapSpec, match="secret://a:b was not read"):
        rke2.render(a_spec(global_config=given, guest_credential=None))


def test_without_harvesters_provider_nothing_of_it_is_delivered(a_spec: Make) -> None:
    text = rke2.render(a_spec(global_config={}))

    assert "hunter2" not in text
    assert "harvester" not in text


def test_the_credential_is_a_secret_of_the_cluster_brought_by_its_first_server(
    a_spec: Make, a_joiner: Make
) -> None:
    path = f"{MANIFESTS}/harvester-credential.yaml"

    secret = yaml.load(files(a_spec())[path])

    assert secret["metadata"] == {"name": "harvester-cloud-provider-config", "namespace": "kube-system"}
    assert "hunter2" in secret["stringData"]["cloud-provider-config"]
    assert path not in files(a_joiner(*Role))
    assert path not in files(a_spec(roles=frozenset({ETCD})))
    assert path in files(a_joiner(CONTROL))


def test_the_cloud_provider_reads_the_secret_where_its_chart_can(a_spec: Make) -> None:
    old = chart_values(a_spec(version="v1.35.1+rke2r1"))["harvester-cloud-provider"]
    new = chart_values(a_spec(version="v1.35.7+rke2r1"))["harvester-cloud-provider"]

    assert old == {"global": {"cattle": {"clusterName": "prod"}}, "cloudConfigPath": CREDENTIAL}
    assert new["cloudConfig"] == {
        "secretName": "harvester-cloud-provider-config",
        "secretKey": "cloud-provider-config",
    }


def test_which_chart_a_release_brings_is_what_the_given_matrix_says(a_spec: Make) -> None:
    row = {"releases": "1.35.1", "harvester-cloud-provider": "0.2.12", "harvester-csi-driver": "0.1.3"}
    matrix = read_matrix(yaml.dump({"rke2": [row]}))

    configs = yaml.load(rke2.render(a_spec(version="v1.35.1+rke2r1"), matrix))["write_files"]
    (values,) = [one["content"] for one in configs if one["path"].endswith("managed-chart-config.yaml")]
    assert "secretName: harvester-cloud-provider-config" in values
    assert "harvester-csi-driver" not in values


def test_the_csi_driver_reads_the_secret_where_its_chart_can(a_spec: Make) -> None:
    assert chart_values(a_spec())["harvester-csi-driver"] == {
        "cloudConfig": {"secretName": "harvester-cloud-provider-config"}
    }
    assert "harvester-csi-driver" not in chart_values(a_spec(version="v1.21.7+rke2r1"))


def test_chart_values_of_the_user_win(a_spec: Make) -> None:
    given = {
        "harvester-cloud-provider": {
            "cloudConfigPath": "/etc/mine",
            "global": {"cattle": {"clusterName": "x"}},
        },
        "harvester-csi-driver": {"cloudConfig": {"hostPath": "/etc/mine"}, "hostStorageClass": "fast"},
        "rke2-calico": {},
    }

    assert chart_values(a_spec(version="v1.35.7+rke2r1", chart_values=given)) == given


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("harvestr", "did you mean harvester?"),
        ("HARVESTER", "did you mean harvester?"),
        ("vspher", "did you mean vsphere?"),
        ("mine", "write harvester; or external, and bring the provider in additionalManifest"),
        (7, "write harvester; or external, and bring the provider in additionalManifest"),
    ],
)
@pytest.mark.parametrize("roles", [("worker",), ("etcd", "controlplane")])
def test_a_cloud_provider_that_nothing_brings_is_refused(
    a_spec: Make, name: object, hint: str, roles: tuple[str, ...]
) -> None:
    spec = a_spec(global_config={"cloud-provider-name": name}, roles=frozenset(roles))
    (refusal,) = rke2.list_contradictions(spec)
    assert str(refusal).startswith(
        f"cloud-provider-name is {str(name)!r}, and RKE2 brings no such cloud provider"
    )
    assert refusal.hint == hint


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        *["harvester", "rancher-vsphere", "external", "aws", "azure", "gce", "openstack", "vsphere", "none"],
    ],
)
def test_a_cloud_provider_that_rke2_knows_is_kept(a_spec: Make, name: object) -> None:
    assert rke2.list_contradictions(a_spec(global_config={"cloud-provider-name": name})) == []


@pytest.mark.parametrize(
    ("cni", "told"),
    [
        ("calico", []),
        ("none", []),
        (None, []),
        (["multus", "canal"], []),
        ("multus, cilium", []),
        ("calicoo", ["cni is 'calicoo', and RKE2 starts no server with another than calico, canal,"]),
        (["multus", "weave"], ["cni is 'weave'"]),
        (["x", "y"], ["cni is 'x'", "cni is 'y'"]),
        ("multus", ["cni is multus alone"]),
        (7, ["cni is '7'"]),
    ],
)
def test_a_network_plugin_with_which_no_server_starts_is_refused(
    a_spec: Make, cni: object, told: list[str]
) -> None:
    def refusals(**rest: Any) -> list[InvalidBootstrapSpec]:
        return rke2.list_contradictions(a_spec(global_config={"cni": cni}, **rest))

    found = refusals()
    assert len(found) == len(told)
    assert all(str(one).startswith(text) for one, text in zip(found, told, strict=True))
    assert refusals(version="v1.99.0+rke2r1") == [], "which may bring others"
    assert refusals(roles=frozenset({WORKER})) == [], "which does not get it"


@pytest.mark.parametrize(
    ("cni", "hint"),
    [
        ("calicoo", "did you mean calico?"),
        ("ovn", "write calico, canal, cilium, flannel or none"),
        ("multus", "write another one behind it, such as multus,canal"),
    ],
)
def test_a_refused_network_plugin_has_a_cure(a_spec: Make, cni: str, hint: str) -> None:
    (refused,) = rke2.list_contradictions(a_spec(global_config={"cni": cni}))

    assert refused.hint == hint


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("node-label", ["tier=db", "node.kubernetes.io/pool=a", "kubernetes.io/hostname=x"], []),
        ("node-label", "example.com/a=b", []),
        (
            "node-label",
            ["a=b", "node-role.kubernetes.io/worker=true"],
            ["'node-role.kubernetes.io/worker=true'"],
        ),
        ("node-label", "a=b, x.k8s.io/y=z", ["'x.k8s.io/y=z'"]),
        ("node-taint", ["dedicated=db:NoSchedule", "a:NoExecute", "b=:PreferNoSchedule"], []),
        ("node-taint", "a=b:NoSchedule,c=d:NoExecute", []),
        ("node-taint", "dedicated=db", ["'dedicated=db'"]),
        (
            "node-taint",
            ["a:Nope", "a=b=c:NoExecute", "in valid:NoExecute"],
            ["'a:Nope'", "'a=b=c:", "'in valid:"],
        ),
        ("node-taint", ["a:NoExecute\n"], []),
        ("node-taint", None, []),
    ],
)
@pytest.mark.parametrize("distribution", [rke2, k3s])
def test_a_label_or_taint_with_which_no_kubelet_starts_is_refused(
    a_spec: Make, distribution: Any, key: str, value: object, told: list[str]
) -> None:
    version = {} if distribution is rke2 else {"version": "v1.35.1+k3s1"}
    config = {"cloud-provider-name": "harvester", "disable-cloud-controller": True, key: value}
    found = distribution.list_contradictions(a_spec(global_config=config, **version))

    assert len(found) == len(told)
    for one, text in zip(found, told, strict=True):
        assert one.message.startswith(f"{key} has {text}")
        assert "no kubelet starts with it" in one.message
        assert one.hint.startswith("write ")


ELSEWHERE = "/etc/kubernetes/cloud-config"


@pytest.mark.parametrize(
    ("provider", "storage", "paths"),
    [
        ({"cloudConfigPath": ELSEWHERE}, {}, [ELSEWHERE]),
        ({"cloudConfigPath": CREDENTIAL}, {}, []),
        ({"cloudConfigPath": ELSEWHERE, "cloudConfig": {"secretName": "mine"}}, {}, []),
        ({}, {"hostPath": "/etc/kubernetes/"}, ["/etc/kubernetes/cloud-provider-config"]),
        ({}, {"hostPath": "/etc/kubernetes", "secretName": "mine"}, []),
        ({}, {"hostPath": posixpath.dirname(CREDENTIAL)}, []),
        (
            {"cloudConfigPath": ELSEWHERE},
            {"hostPath": "/etc/csi/"},
            [ELSEWHERE, "/etc/csi/cloud-provider-config"],
        ),
        ({"cloudConfigPath": "/a/x"}, {"hostPath": "/a"}, ["/a/x", "/a/cloud-provider-config"]),
        ({"cloudConfigPath": "etc/x"}, {"hostPath": "etc"}, []),
        ({"cloudConfigPath": "/etc/dir/"}, {"hostPath": 7}, []),
        ({"cloudConfigPath": ["/etc/x"]}, {}, []),
        ({"cloudConfigPath": "/etc/it's $(mine)"}, {}, ["/etc/it's $(mine)"]),
    ],
)
def test_files_that_chart_values_name_have_the_credential_unless_something_is_there(
    a_spec: Make, provider: dict[str, Any], storage: dict[str, Any], paths: list[str]
) -> None:
    values = {"harvester-cloud-provider": provider, "harvester-csi-driver": {"cloudConfig": storage}}
    commands = yaml.load(rke2.render(a_spec(chart_values=values)))["runcmd"]

    copies = [command for command in commands if command[0] == "sh"]
    assert commands[: len(copies)] == copies, "before the service is started"
    assert [shlex.split(script) for _, _, script in copies] == [
        ["[", "-e", path, "]", "||", "install", "-D", "-m", "0600", CREDENTIAL, path] for path in paths
    ]


@pytest.mark.parametrize("existing", [None, "of the user"])
def test_a_file_of_the_user_s_stays(a_spec: Make, tmp_path: Path, existing: str | None) -> None:
    """With the shell that is here."""
    ours, theirs = tmp_path / "etc/config-files/cloud-provider-config", tmp_path / "it's/cloud-config"
    ours.parent.mkdir(parents=True)
    ours.write_text("ours")
    if existing:
        theirs.parent.mkdir()
        theirs.write_text(existing)
    values = {"harvester-cloud-provider": {"cloudConfigPath": str(theirs)}}
    spec = a_spec(chart_values=values, data_directory=str(tmp_path))

    for command in yaml.load(rke2.render(spec))["runcmd"]:
        if command[0] == "sh":
            subprocess.run(command, check=True)

    assert theirs.read_text() == (existing or "ours")
    assert existing or theirs.stat().st_mode & 0o777 == 0o600


def test_without_a_credential_there_is_none_to_copy(a_spec: Make) -> None:
    values = {"harvester-cloud-provider": {"cloudConfigPath": ELSEWHERE}}
    given = {"cloud-provider-name": "harvester", "cloud-provider-config": "/etc/mine"}

    commands = yaml.load(rke2.render(a_spec(chart_values=values, global_config=given)))["runcmd"]

    assert [command for command in commands if command[0] == "sh"] == []


def test_a_cloud_config_path_that_the_chart_cannot_mount_is_warned_about(a_spec: Make) -> None:
    def told(path: object, provider: str = "harvester", **rest: Any) -> list[str]:
        values = {"harvester-cloud-provider": {"cloudConfigPath": path, **rest}}
        config = {"cloud-provider-name": provider, "cni": "canal"}
        return rke2.check(a_spec(chart_values=values, global_config=config))

    (warning,) = told("etc/cloud-config")
    assert "is 'etc/cloud-config', not the absolute path of a file" in warning
    assert "remove it, or write a path such as" in warning
    assert len(told("/etc/kubernetes/")) == 1
    assert told("") == told(ELSEWHERE) == told(CREDENTIAL) == []
    assert told("etc/cloud-config", cloudConfig={"secretName": "mine"}) == []
    assert told("etc/cloud-config", provider="aws") == []


def test_a_cluster_name_that_differs_from_the_machines_label_is_warned_about(a_spec: Make) -> None:
    given = {"harvester-cloud-provider": {"global": {"cattle": {"clusterName": "other"}}}}

    (warning,) = rke2.check(a_spec(chart_values=given))

    assert "'other'" in warning
    assert "'prod'" in warning
    assert rke2.check(a_spec()) == []


def test_manifests_are_for_servers_with_an_api(a_spec: Make, a_joiner: Make) -> None:
    changes = {"additional_manifest": "kind: ConfigMap\n", "chart_values": {"rke2-calico": {"a": 1}}}

    assert files(a_spec(**changes))[f"{MANIFESTS}/addons.yaml"] == "kind: ConfigMap\n"
    assert chart_values(a_spec(**changes))["rke2-calico"] == {"a": 1}
    assert not [path for path in files(a_joiner(WORKER, **changes)) if path.startswith(MANIFESTS)]
    assert not [
        path for path in files(a_spec(roles=frozenset({ETCD}), **changes)) if path.startswith(MANIFESTS)
    ]


def test_another_data_directory_moves_all_that_lies_in_it(a_spec: Make) -> None:
    spec = a_spec(data_directory="/data/rke2")

    assert config(spec)["data-dir"] == "/data/rke2"
    assert "INSTALL_RKE2_AGENT_IMAGES_DIR=/data/rke2/agent/images\n" in files(spec)["/etc/windrow/rke2.env"]
    assert "/var/lib/rancher" not in rke2.render(spec)


# --- refusals ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "latest"}, "such as v1.35.1"),
        ({"version": "v1.35.1+k3s1"}, "no release of RKE2"),
        ({"version": "v1.35.1"}, "no release of RKE2"),
        ({"roles": frozenset()}, "has no role"),
        ({"roles": frozenset({CONTROL, WORKER})}, "is first but has no etcd"),
        ({"join_server": "https://10.0.0.5:9345"}, "is first and is to join"),
        ({"init_server": False}, "would start a cluster of its own"),
    ],
)
def test_a_machine_that_could_never_join_is_refused(
    a_spec: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidBootstrapSpec) as caught:
        rke2.render(a_spec(**changes))

    assert message in caught.value.message
    assert caught.value.hint


# --- revisions ---


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "v1.35.2+rke2r1"},
        {"global_config": {"cloud-provider-name": "harvester", "cni": "cilium"}},
        {"selector_config": [{"config": {"selinux": True}}]},
        {"chart_values": {"rke2-calico": {"a": 1}}},
        {"additional_manifest": "x"},
        {"registries": {"mirrors": {"a": {}}}},
        {"etcd": {"snapshotRetention": 7}},
        {"tls_san": ("api.example.org",)},
    ],
)
def test_a_change_that_must_be_applied_is_another_revision(a_spec: Make, changes: dict[str, Any]) -> None:
    assert rke2.config_hash(a_spec(**changes)) != rke2.config_hash(a_spec())


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname": "other", "machine_uid": "other"},
        {"labels": {"a": "b"}, "taints": ("c=d:NoSchedule",)},
        {"guest_credential": GuestCredential("renewed")},
        {"init_server": False, "join_server": "https://10.0.0.6:9345"},
    ],
)
def test_what_is_renewed_by_other_ways_is_no_other_revision(a_spec: Make, changes: dict[str, Any]) -> None:
    assert rke2.config_hash(a_spec(**changes)) == rke2.config_hash(a_spec())


def test_the_revision_is_the_same_in_every_release_of_windrow(a_spec: Make) -> None:
    """Another digest for the same fields would replace every machine of every cluster at an upgrade."""
    spec = a_spec(
        etcd={"s3": {"bucket": "b", "secretKey": "x"}}, chart_values={"rke2-calico": {"a": [1, None]}}
    )

    assert rke2.config_hash(spec) == "0da5bdf09a335bd1"


# --- the whole ---

VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=50)
@given(given=st.dictionaries(st.text(min_size=1).filter(lambda key: key not in MANAGED), VALUES, max_size=4))
def test_whatever_the_user_writes_reaches_the_machine_unchanged(a_spec: Make, given: dict[str, Any]) -> None:
    found = config(a_spec(global_config=given))

    assert {key: found[key] for key in given if key not in {"node-label", "node-taint", "tls-san"}} == {
        key: value for key, value in given.items() if key not in {"node-label", "node-taint", "tls-san"}
    }


def test_the_same_intent_gives_the_same_text(a_spec: Make) -> None:
    assert rke2.render(a_spec()) == rke2.render(a_spec())


@pytest.mark.parametrize(
    ("address", "url"), [("10.0.0.5", "https://10.0.0.5:9345"), ("fd00::5", "https://[fd00::5]:9345")]
)
def test_a_server_is_joined_on_its_supervisor_port(address: str, url: str) -> None:
    assert rke2.LAYOUT.join_url(address) == url


SHARED = Path(__file__).parents[4] / "shared"
HELM_SCHEMA = SHARED / "crds/helm.cattle.io_helmchartconfigs.yaml"


@pytest.mark.skipif(not HELM_SCHEMA.exists(), reason="the real schemas are not beside this clone")
def test_chart_values_fit_the_real_schema_of_the_helm_controller(a_spec: Make) -> None:
    crd = yaml.load(HELM_SCHEMA.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    documents = yaml.load_all(files(a_spec())[f"{MANIFESTS}/managed-chart-config.yaml"])

    assert documents
    for document in documents:
        assert document["kind"] == crd["spec"]["names"]["kind"]
        jsonschema.validate(document, schema)
        assert set(document["spec"]) <= set(schema["properties"]["spec"]["properties"])


MANIFEST = SHARED / "manifests/rancher-rke2-one-node.yaml"


@pytest.mark.skipif(not MANIFEST.exists(), reason="the real Rancher manifest is not beside this clone")
def test_what_rancher_stored_becomes_a_server_without_a_warning(a_spec: Make) -> None:
    spec = yaml.load_all(MANIFEST.read_text())[0]["spec"]
    rancher = spec["rkeConfig"]
    spec = a_spec(
        cluster="51",
        version=spec["kubernetesVersion"],
        global_config=rancher["machineGlobalConfig"],
        selector_config=rancher["machineSelectorConfig"],
        chart_values=rancher["chartValues"],
        etcd=rancher["etcd"],
        registries=rancher["registries"],
    )

    found = config(spec)

    assert rke2.check(spec) == []
    assert found["ingress-controller"] == "ingress-nginx"
    assert found["cloud-provider-name"] == "harvester"
    assert found["cloud-provider-config"] == CREDENTIAL
    assert found["etcd-snapshot-retention"] == 5
    assert chart_values(spec)["harvester-cloud-provider"]["global"] == {"cattle": {"clusterName": "51"}}
