"""What a Cluster takes from its distribution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.bootstrap_data import (
    check_bootstrap,
    find_distribution,
    find_layout,
    sample_bootstrap_spec,
)
from windrow.clusters.state import read_node

K3S = "v1.35.1+k3s1"


def a_cluster(version: str = K3S, configs: bool = True, **config: Any) -> Cluster:
    pool = {
        "name": "pool1",
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "workerRole": True,
        "machineConfigRef": {"name": "nc", "kind": "HarvesterConfig"},
    }
    raw = {
        "metadata": {"name": "prod", "namespace": "ns", "uid": "u"},
        "spec": {
            "cloudCredentialSecretName": "ns:cc",
            "kubernetesVersion": version,
            "rkeConfig": {"machinePools": [pool], "machineGlobalConfig": config},
        },
    }
    options = {"metadata": {"name": "nc", "namespace": "ns"}, "vmNamespace": "default"}
    return read_cluster(raw, [options] if configs else []).cluster


@pytest.mark.parametrize(
    ("version", "config", "provider"),
    [
        (K3S, {}, "harvester"),
        (K3S, {"cloud-provider-name": "harvester"}, "harvester"),
        (K3S, {"cloud-provider-name": "none"}, ""),
        (K3S, {"cloud-provider-name": ""}, ""),
        (K3S, {"cloud-provider-name": "external"}, "external"),
        ("v1.35.1+rke2r1", {}, ""),
        ("v1.35.1+rke2r1", {"cloud-provider-name": "harvester"}, "harvester"),
        ("nonsense", {"cloud-provider-name": "harvester"}, "harvester"),
    ],
)
def test_machines_on_harvester_have_its_cloud_provider_in_k3s_unasked(
    version: str, config: dict[str, Any], provider: str
) -> None:
    assert a_cluster(version, **config).cloud_provider == provider


def test_the_cloud_provider_stays_while_a_machine_config_is_absent() -> None:
    """Else the guest's credential would be taken for unneeded."""
    cluster = a_cluster(configs=False)

    assert cluster.cloud_provider == "harvester"
    assert sample_bootstrap_spec(cluster, cluster.pools[0], K3S).on_harvester


def test_contradictions_are_errors_all_at_once_and_doubts_are_warnings() -> None:
    problems = check_bootstrap(
        a_cluster(**{"disable-cloud-controller": False, "disable-helm-controller": True, "cni": "calico"}), []
    )

    found = [
        (problem.severity, problem.message.partition(",")[0], bool(problem.hint)) for problem in problems
    ]
    assert found == [
        ("error", "the cloud provider is harvester", True),
        ("error", "disable-helm-controller is set", True),
        ("warning", "'cni' is a key of RKE2 that K3s has not", True),
        ("warning", "K3s' local storage and Harvester's are both default StorageClasses", True),
    ]


@pytest.mark.parametrize(("version", "name"), [(K3S, "k3s"), ("v1.35.1+rke2r1", "rke2")])
def test_names_in_the_guest_are_the_distributions(version: str, name: str) -> None:
    layout = find_layout(version)

    assert layout is find_distribution(version).LAYOUT
    assert layout.node_password_secret("m1") == f"m1.node-password.{name}"
    node = {
        "metadata": {
            "name": "m1",
            "uid": "n",
            "annotations": {layout.etcd_remove: "true", f"etcd.{name}.cattle.io/removed-node-name": "m1-abc"},
        }
    }
    assert read_node(node).etcd_removal_requested
    assert read_node(node).etcd_removed


def test_what_exists_can_be_deleted_whatever_its_version_says() -> None:
    assert find_layout("nonsense").name == "rke2"


@pytest.mark.parametrize(
    ("manifest", "severity", "words"),
    [
        ("a: [", "warning", "additionalManifest cannot be read"),
        ("just words", "error", "document 1 of spec.rkeConfig.additionalManifest has no apiVersion"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: ConfigMap\napiVersion: v1\n", "error", "document 2 of spec.rkeConfig.additionalManifest has no metadata.name"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "error", "document 1 of spec.rkeConfig.additionalManifest has no kind"),
        ("items: [{a: b}]\nkind: List\n", "error", "document 1 of spec.rkeConfig.additionalManifest has no apiVersion"),
        ("items: [{kind: a, metadata: {name: b}}]\nkind: List\napiVersion: v1\n", "error", "item 1 of document 1 of spec.rkeConfig.additionalManifest has no apiVersion"),
    ],
)  # fmt: skip
def test_a_manifest_that_servers_could_not_apply_is_told_before_they_are_made(
    manifest: str, severity: str, words: str
) -> None:
    found = check_bootstrap(replace(a_cluster(**LOCAL), additional_manifest=manifest), [])

    assert (severity, True) in [(one.severity, words in one.message) for one in found]
    assert {one.field for one in found} == {"spec.rkeConfig.additionalManifest"}


def test_an_object_that_is_no_list_is_told_as_a_document_and_not_once_more_as_its_item() -> None:
    found = check_bootstrap(
        replace(a_cluster(**LOCAL), additional_manifest="kind: A\nmetadata: {name: a}\n"), []
    )

    assert [one.message for one in found] == [
        "document 1 of spec.rkeConfig.additionalManifest has no apiVersion"
    ]


@pytest.mark.parametrize("items", ["[]", "[{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]"])
def test_a_list_has_no_name_and_may_be_empty(items: str) -> None:
    manifest = f"apiVersion: v1\nkind: List\nitems: {items}\n"

    assert check_bootstrap(replace(a_cluster(**LOCAL), additional_manifest=manifest), []) == []


def test_of_a_manifest_twenty_faults_are_told() -> None:
    manifest = "---\n".join(["kind: Secret\napiVersion: v1\n"] * 30)

    assert len(check_bootstrap(replace(a_cluster(**LOCAL), additional_manifest=manifest), [])) == 20


# With it nothing is warned of.
LOCAL = {"disable": ["local-storage"]}


def test_a_manifest_of_objects_and_lists_has_no_problem() -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n"
    manifest = f"---\n# nothing\n---\n{listed}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: b}}\n"

    assert check_bootstrap(replace(a_cluster(**LOCAL), additional_manifest=manifest), []) == []
    assert check_bootstrap(a_cluster(**LOCAL), []) == []
