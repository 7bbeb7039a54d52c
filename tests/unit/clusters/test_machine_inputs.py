"""Variables and files that a Cluster gives its machines, and the name of its endpoint, as they are read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON
from tests.unit.clusters.test_cluster import a_raw_cluster, errors, read, warnings

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.manifest.machine_inputs import MAX_VALUE
from windrow.clusters.api.secrets import read_published_server, read_secret_data, render_kubeconfig_secret
from windrow.clusters.bootstrap_data import sample_bootstrap_spec


def with_variables(*given: Any) -> dict[str, Any]:
    return a_raw_cluster(agentEnvVars=list(given))


def with_file(source: Any = None, **item: Any) -> dict[str, Any]:
    items = [{"key": "ca", "path": "/etc/ssl/ca.pem", **item}]
    sources = [{"secret": {"name": "site", "items": items}} if source is None else source]
    return a_raw_cluster(rke={"machineSelectorFiles": [{"fileSources": sources}]})


def faults(raw: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.field, one.message.removeprefix(one.field).strip()) for one in errors(read(raw))]


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"name": "A B", "value": "x"}, "[0].name", "which no variable may be called"),
        ({"value": "x"}, "[0].name", "which no variable may be called"),
        ({"name": "RKE2_TOKEN", "value": "x"}, "[0].name", "which sets a configuration key"),
        ({"name": "K3S_URL", "value": "x"}, "[0].name", "which sets a configuration key"),
        ({"name": "INSTALL_RKE2_VERSION", "value": "x"}, "[0].name", "which Windrow sets"),
        ({"name": "WINDROW_REVISION", "value": "x"}, "[0].name", "which Windrow sets"),
        ({"name": "A", "value": "two\nlines"}, "[0].value", "cannot be a line"),
        ({"name": "A", "value": "x" * (MAX_VALUE + 1)}, "[0].value", "cannot be a line"),
        ({"name": "A", "value": 5}, "[0].value", "is 5, which is not text"),
        ("A=b", "[0]", "which is not a mapping"),
    ],
)
def test_a_variable_that_no_machine_can_have_is_refused(given: Any, field: str, words: str) -> None:
    ((found, message),) = faults(with_variables(given))

    assert found == f"spec.agentEnvVars{field}"
    assert words in message


def test_a_variable_has_as_many_characters_as_an_environment_file_takes() -> None:
    assert faults(with_variables({"name": "A", "value": "x" * MAX_VALUE})) == []


def test_each_variable_is_given_once_and_their_number_is_bounded() -> None:
    assert faults(with_variables({"name": "A"}, {"name": "A"}))[0][0] == "spec.agentEnvVars[1].name"
    many = [{"name": f"A{number}"} for number in range(101)]
    assert faults(with_variables(*many)) == [("spec.agentEnvVars", "has 101 entries")]


def test_a_proxy_without_exceptions_is_warned_of() -> None:
    proxy = {"name": "https_proxy", "value": "http://proxy.example"}

    assert "has a proxy and no NO_PROXY" in warnings(read(with_variables(proxy)))
    exceptions = {"name": "NO_PROXY", "value": "10.0.0.0/8"}
    assert "NO_PROXY" not in warnings(read(with_variables(proxy, exceptions)))
    assert (
        read(with_variables(proxy, exceptions)).cluster.environment["https_proxy"] == "http://proxy.example"
    )


FIRST = "spec.rkeConfig.machineSelectorFiles[0].fileSources[0]"


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        (with_file(path="etc/ca.pem"), ".secret.items[0].path", "is 'etc/ca.pem'"),
        (with_file(path="/etc/../root/x"), ".secret.items[0].path", "is '/etc/../root/x'"),
        (with_file(path="/etc/"), ".secret.items[0].path", "is '/etc/'"),
        (with_file(path="/etc/a\nb"), ".secret.items[0].path", "is '/etc/a"),
        (with_file(path=None), ".secret.items[0].path", "is ''"),
        (with_file(path="/etc/windrow/rke2.env"), ".secret.items[0].path", "a file that Windrow writes itself"),
        (with_file(path="/etc/rancher/rke2/config.yaml.d/50-rancher.yaml"), ".secret.items[0].path", "Windrow writes itself"),
        (with_file(path="/etc/rancher/k3s/config.yaml.d/60-windrow-kernel.yaml"), ".secret.items[0].path", "Windrow writes itself"),
        (with_file(key=None), ".secret.items[0].key", "is ''"),
        (with_file(key="a/b"), ".secret.items[0].key", "is 'a/b'"),
        (with_file(permissions="rw-r--r--"), ".secret.items[0].permissions", "no mode of a file"),
        (with_file(permissions=420), ".secret.items[0].permissions", "is 420, which is not text"),
        (with_file({"secret": {"name": "A", "items": []}}), ".secret.name", "which no object may be called"),
        (with_file({"secret": {"name": "a"}, "configMap": {"name": "b"}}), "", "names both a secret and a configMap"),
        (with_file({}), "", "names neither a secret nor a configMap"),
        (with_file({"secret": {"name": "a", "defaultPermissions": "9"}}), ".secret.defaultPermissions", "is '9'"),
    ],
)  # fmt: skip
def test_a_file_that_no_machine_can_have_is_refused_with_its_path(raw: Any, field: str, words: str) -> None:
    ((found, message),) = faults(raw)

    assert found == f"{FIRST}{field}"
    assert words in message
    assert read(raw).cluster.selector_files == ()


def test_the_number_of_files_is_bounded() -> None:
    items = [{"key": "ca", "path": f"/etc/{number}"} for number in range(100)]
    source = {"secret": {"name": "site", "items": items}}
    raw = a_raw_cluster(rke={"machineSelectorFiles": [{"fileSources": [source, source]}]})

    assert faults(raw) == [("spec.rkeConfig.machineSelectorFiles", "has 200 files")]


def test_a_selector_of_files_that_cannot_be_read_is_refused() -> None:
    raw = with_file()
    raw["spec"]["rkeConfig"]["machineSelectorFiles"][0]["machineLabelSelector"] = {
        "matchExpressions": [{"key": "a", "operator": "Near"}]
    }

    assert [field for field, _ in faults(raw)] == [
        "spec.rkeConfig.machineSelectorFiles[0].machineLabelSelector.matchExpressions[0].operator"
    ]


def test_another_template_of_pod_security_is_refused_with_the_way_to_bring_ones_own() -> None:
    (told,) = errors(read(a_raw_cluster(defaultPodSecurityAdmissionConfigurationTemplateName="ours")))

    assert "there are rancher-privileged and rancher-restricted" in told.message
    assert "machineSelectorFiles" in told.hint


@pytest.mark.parametrize(
    "given", ["https://prod.example", "prod.example:0", "prod.example:70000", "a b", "prod_1.example", "prod.example/x"]
)  # fmt: skip
def test_an_endpoint_that_is_no_name_is_refused(given: str) -> None:
    raw = a_raw_cluster(localClusterAuthEndpoint={"enabled": True, "fqdn": given})

    assert [field for field, _ in faults(raw)] == ["spec.localClusterAuthEndpoint.fqdn"]
    assert read(raw).cluster.endpoint_name == ""


@pytest.mark.parametrize("port", [1, 65535])
def test_an_endpoint_may_have_any_port(port: int) -> None:
    raw = a_raw_cluster(localClusterAuthEndpoint={"enabled": True, "fqdn": f"prod.example:{port}"})

    assert faults(raw) == []
    assert read(raw).cluster.endpoint_name == f"prod.example:{port}"


def test_an_endpoint_whose_authority_is_no_certificate_is_refused() -> None:
    given = {"enabled": True, "fqdn": "prod.example", "caCerts": "x"}
    raw = a_raw_cluster(localClusterAuthEndpoint=given)

    assert [field for field, _ in faults(raw)] == ["spec.localClusterAuthEndpoint.caCerts"]
    cluster = read(raw).cluster
    assert (cluster.endpoint_name, cluster.endpoint_ca) == ("", "")


def test_the_name_of_the_endpoint_is_in_certificates_and_a_context_of_the_kubeconfig() -> None:
    """The context: test_what_a_manifest_gives_its_machines_is_on_them."""
    authority = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    given = {"enabled": True, "fqdn": "prod.example:8443", "caCerts": authority}
    cluster = read(a_raw_cluster(localClusterAuthEndpoint=given)).cluster

    spec = sample_bootstrap_spec(cluster, cluster.pools[0], cluster.version)

    assert (cluster.endpoint_name, cluster.endpoint_ca, spec.tls_san) == (
        "prod.example:8443",
        authority,
        ("prod.example",),
    )
    off = read(a_raw_cluster(localClusterAuthEndpoint={**given, "enabled": False})).cluster
    assert (off.endpoint_name, off.endpoint_ca) == ("", "")


@pytest.mark.parametrize("given", ["var/lib/rke2", "/", "/data/", "/data/../x", "/da\nta"])
def test_a_data_directory_that_is_none_is_refused(given: str) -> None:
    raw = a_raw_cluster(rke={"dataDirectories": {"k8sDistro": given}})

    assert [field for field, _ in faults(raw)] == ["spec.rkeConfig.dataDirectories.k8sDistro"]


CONFIG = "spec.rkeConfig.registries.configs"


@pytest.mark.parametrize(
    ("registries", "field", "words"),
    [
        ({"mirrors": {"docker.io": "https://m"}}, "mirrors.docker.io", "is 'https://m', which is not a mapping"),
        ({"mirrors": {"docker.io": {"endpoint": "https://m"}}}, "mirrors.docker.io.endpoint", "which is not a list"),
        ({"mirrors": {"docker.io": {"endpoint": [5]}}}, "mirrors.docker.io.endpoint[0]", "is 5, which is not text"),
        ({"mirrors": {"docker.io": {"rewrite": {"^a": 5}}}}, "mirrors.docker.io.rewrite.^a", "is 5, which is not text"),
        ({"mirrors": ["docker.io"]}, "mirrors", "which is not a mapping"),
        ({"configs": {"https://reg": {}}}, "configs[https://reg]", "names no registry"),
        ({"configs": {"reg": {"caBundle": "MIIB"}}}, "configs.reg.caBundle", "holds no certificate"),
        ({"configs": {"reg": {"authConfigSecretName": "a/b"}}}, "configs.reg.authConfigSecretName", "no Secret may be called"),
        ({"configs": {"reg": {"insecureSkipVerify": "yes"}}}, "configs.reg.insecureSkipVerify", "is 'yes'"),
        ({"configs": {f"r{number}": {} for number in range(101)}}, "configs", "has 101 entries"),
    ],
)  # fmt: skip
def test_a_registry_that_no_machine_can_have_is_refused_with_its_path(
    registries: Any, field: str, words: str
) -> None:
    ((found, message),) = faults(a_raw_cluster(rke={"registries": registries}))

    assert found == f"spec.rkeConfig.registries.{field}"
    assert words in message


@pytest.mark.parametrize(
    ("etcd", "field", "words"),
    [
        ({"disableSnapshots": "no"}, "disableSnapshots", "is 'no', which is not true or false"),
        ({"snapshotRetention": -1}, "snapshotRetention", "is -1"),
        ({"snapshotRetention": "5"}, "snapshotRetention", "is '5', which is not a whole number"),
        ({"snapshotScheduleCron": "every 5 hours"}, "snapshotScheduleCron", "which is no schedule"),
        ({"snapshotScheduleCron": "0 */5 * *"}, "snapshotScheduleCron", "which is no schedule"),
        ({"snapshotScheduleCron": "* " * 10_000}, "snapshotScheduleCron", "which is no schedule"),
        ({"s3": "bucket"}, "s3", "which is not a mapping"),
        ({"s3": {"bucket": 5}}, "s3.bucket", "is 5, which is not text"),
        ({"s3": {"skipSSLVerify": "yes"}}, "s3.skipSSLVerify", "is 'yes'"),
    ],
)
def test_snapshots_that_etcd_cannot_make_are_refused_with_their_path(
    etcd: Any, field: str, words: str
) -> None:
    ((found, message),) = faults(a_raw_cluster(rke={"etcd": etcd}))

    assert found == f"spec.rkeConfig.etcd.{field}"
    assert words in message


@pytest.mark.parametrize(
    "schedule", ["0 */5 * * *", "@daily", "@every 5h", "CRON_TZ=UTC 0 3 * * MON-FRI", " 1,2 3 * * 7"]
)
def test_a_schedule_as_etcd_knows_it_is_taken(schedule: str) -> None:
    etcd = {"snapshotScheduleCron": schedule, "snapshotRetention": 5}

    reading = read(a_raw_cluster(rke={"etcd": etcd}))

    assert errors(reading) == []
    assert reading.cluster.etcd == etcd


def test_the_kubeconfig_is_published_again_when_the_endpoint_has_another_name() -> None:
    def with_endpoint(name: str) -> Cluster:
        endpoint = {"enabled": bool(name), "fqdn": name}
        return read(a_raw_cluster(localClusterAuthEndpoint=endpoint)).cluster

    before, after, without = (with_endpoint(name) for name in ("a.example", "b.example", ""))

    data: dict[str, str] = {}
    for published in (before, without, after):
        raw = render_kubeconfig_secret(published, "text", "https://10.0.0.1:6443", NOON + timedelta(days=1))
        data |= raw["data"]  # as the Secret is patched
        secret = read_secret_data({**raw, "data": data})
        for now in (before, after, without):
            server = read_published_server(secret, now, NOON)
            assert server == ("https://10.0.0.1:6443" if now is published else "")


def test_the_secret_of_a_kubeconfig_says_of_the_endpoint_also_that_there_is_none() -> None:
    raw = render_kubeconfig_secret(read(a_raw_cluster()).cluster, "text", "https://10.0.0.1:6443", NOON)

    assert (raw["data"]["endpoint"], raw["data"]["endpoint-ca"]) == ("", "")


def test_a_kubeconfig_of_an_earlier_release_stays_as_it_is() -> None:
    cluster = read(a_raw_cluster()).cluster
    raw = render_kubeconfig_secret(cluster, "text", "https://10.0.0.1:6443", NOON + timedelta(days=1))
    older = {key: text for key, text in raw["data"].items() if not key.startswith("endpoint")}

    secret = read_secret_data({**raw, "data": older})

    assert read_published_server(secret, cluster, NOON) == "https://10.0.0.1:6443"


@pytest.mark.parametrize(("address", "is_inside"), [("10.43.0.53", True), ("10.44.0.53", False)])
def test_the_cluster_dns_is_an_address_of_the_services(address: str, is_inside: bool) -> None:
    found = faults(a_raw_cluster(rke={"machineGlobalConfig": {"cluster-dns": address}}))

    where = "spec.rkeConfig.machineGlobalConfig.cluster-dns"
    assert found == ([] if is_inside else [(where, f"cluster-dns {address} is not in service-cidr")])
