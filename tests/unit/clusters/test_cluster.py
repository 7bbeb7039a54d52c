from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.clusters.builders import NOON, a_machine

from windrow.app.preload import read_preload
from windrow.bootstrap.node_config import merge_config
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import Role
from windrow.clusters.api import names
from windrow.clusters.api.cluster import machine_labels
from windrow.clusters.api.machine import render_machine
from windrow.clusters.api.manifest.machine_config import read_options
from windrow.clusters.api.manifest.networking import find_families
from windrow.clusters.api.manifest.reading import ClusterReading, read_cluster
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.clusters.api.references import list_grants, list_secret_references
from windrow.clusters.api.secrets import render_secrets
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.bootstrap_data import (
    build_bootstrap_spec,
    find_config_hash,
    find_config_hashes,
    find_distribution,
    sample_bootstrap_spec,
)
from windrow.core.formats import yaml
from windrow.core.formats.yaml import load_all
from windrow.machines.port import Problem

REAL = Path(__file__).parents[4] / "shared" / "manifests" / "rancher-rke2-one-node.yaml"


def a_raw_pool(name: str = "pool1", **rest: Any) -> dict[str, Any]:
    pool = {
        "name": name,
        "quantity": 1,
        "etcdRole": True,
        "controlPlaneRole": True,
        "workerRole": True,
        "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc"},
    }
    return {key: value for key, value in {**pool, **rest}.items() if value is not None}


def a_raw_cluster(*pools: dict[str, Any], name: str = "prod", **spec: Any) -> dict[str, Any]:
    rke = {"machinePools": list(pools or (a_raw_pool(),)), **spec.pop("rke", {})}
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "fleet-default", "uid": "u", **spec.pop("metadata", {})},
        "spec": {
            "cloudCredentialSecretName": "cattle-global-data:cc",
            "kubernetesVersion": "v1.35.1+rke2r1",
            "rkeConfig": rke,
            **spec,
        },
        "status": spec.pop("status", {}),
    }


def a_raw_config(name: str = "nc", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "fleet-default"}, "vmNamespace": "default", **fields}


def read(raw: dict[str, Any], *configs: dict[str, Any]) -> ClusterReading:
    return read_cluster(raw, configs or [a_raw_config()])


def errors(reading: ClusterReading) -> list[Problem]:
    return [problem for problem in reading.problems if problem.severity == "error"]


def facts(reading: ClusterReading) -> list[str]:
    return [problem.message for problem in errors(reading)]


def test_a_plain_cluster_has_no_problems():
    assert read(a_raw_cluster()).problems == ()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (a_raw_cluster(a_raw_pool(etcdRole=False)), "no machine has the etcd role"),
        (a_raw_cluster(a_raw_pool(quantity=0)), "no machine has the etcd role"),
        (a_raw_cluster(a_raw_pool(controlPlaneRole=False)), "no machine has the control plane role"),
        (a_raw_cluster(a_raw_pool(), a_raw_pool("empty", etcdRole=False, controlPlaneRole=False, workerRole=False)), "pool 'empty' has no role"),
        (a_raw_cluster(a_raw_pool(), a_raw_pool()), "two pools are called 'pool1'"),
        (a_raw_cluster(a_raw_pool("Pool_1")), "'Pool_1' cannot be part of a host name"),
        (a_raw_cluster(name="prod.example"), "'prod.example' cannot be part of a host name"),
        (a_raw_cluster(rke={"chartValues": {"Rke2_Calico": {}}}), "'Rke2_Calico' cannot be the name of a chart"),
        (a_raw_cluster(rke={"chartValues": {"rke2-canal": "mtu: 1400"}}), "the values of rke2-canal are no map"),
        (a_raw_cluster(rke={"chartValues": {"rke2-canal": [1]}}), "the values of rke2-canal are no map"),
        *((a_raw_cluster(rke={"chartValues": {name: {}}}), f"{name!r} is a value of a chart, and no chart") for name in ("global", "cloudConfig", "cloudConfigPath", "image", "resources", "tolerations", "nodeSelector")),
        (a_raw_cluster(a_raw_pool("p" * 30), name="c" * 21), "have 51 characters together"),
        (a_raw_cluster(a_raw_pool(machineConfigRef={"name": "other"})), "names HarvesterConfig 'other', which does not exist"),
        (a_raw_cluster(a_raw_pool(machineConfigRef=None)), "names no machine config"),
        (a_raw_cluster(a_raw_pool(machineConfigRef={"kind": "Amazonec2Config", "name": "nc"})), "is Amazonec2Config"),
        (a_raw_cluster(a_raw_pool(machineOS="windows")), "is windows"),
        (a_raw_cluster(a_raw_pool(quantity=-1)), "quantity is -1"),
        (a_raw_cluster(a_raw_pool(quantity="three")), "'three', which is not a whole number"),
        (a_raw_cluster(a_raw_pool(unhealthyNodeTimeout="soon")), "'soon', which is not a span of time"),
        (a_raw_cluster(a_raw_pool(maxUnhealthy="some")), "maxUnhealthy is 'some'"),
        (a_raw_cluster(a_raw_pool(unhealthyRange="3-5")), "unhealthyRange is '3-5'"),
        (a_raw_cluster(a_raw_pool(unhealthyRange="[5-3]")), "unhealthyRange is '[5-3]'"),
        (a_raw_cluster(a_raw_pool(hostnameLengthLimit=9)), "machinePools[0].hostnameLengthLimit is 9"),
        (a_raw_cluster(a_raw_pool(hostnameLengthLimit=64)), "machinePools[0].hostnameLengthLimit is 64"),
        (a_raw_cluster(rke={"machinePoolDefaults": {"hostnameLengthLimit": 5}}), "machinePoolDefaults.hostnameLengthLimit is 5"),
        (a_raw_cluster(rke={"machinePoolDefaults": {"hostnameLengthLimit": "15"}}), "'15', which is not a whole number"),
        (a_raw_cluster(a_raw_pool(autoscalingMinSize=5, autoscalingMaxSize=3)), "autoscalingMinSize is 5, above autoscalingMaxSize 3"),
        (a_raw_cluster(a_raw_pool(machineDeploymentAnnotations={"a b": "x"})), "has the key 'a b', which no object may have"),
        (a_raw_cluster(a_raw_pool(machineDeploymentAnnotations={"a": "x" * 100_000})), "has more than 100000 characters"),
        (a_raw_cluster(rke={"machineGlobalConfig": {"cluster-cidr": "fd00:42::/56"}}), "cluster-cidr is IPv6 and service-cidr IPv4"),
        (a_raw_cluster(a_raw_pool(etcdRole="yes")), "'yes', which is not true or false"),
        (a_raw_cluster(a_raw_pool(taints=[{"value": "x"}])), "has no key"),
        (a_raw_cluster(a_raw_pool(taints=["x"])), "'x', which is not a mapping"),
        (a_raw_cluster(cloudCredentialSecretName=None), "spec.cloudCredentialSecretName is not set"),
        (a_raw_cluster(cloudCredentialSecretName=":cc"), "spec.cloudCredentialSecretName is ':cc'"),
        (a_raw_cluster(a_raw_pool(), a_raw_pool("own", cloudCredentialSecretName="a:")), "spec.rkeConfig.machinePools[1].cloudCredentialSecretName is 'a:'"),
        (a_raw_cluster(kubernetesVersion="1.35"), "'1.35', which is not a version in Rancher's form"),
        (a_raw_cluster(kubernetesVersion="v1.35.1"), "'v1.35.1', which is not a version in Rancher's form"),
        (a_raw_cluster(kubernetesVersion=None), "'', which is not a version in Rancher's form"),
        (a_raw_cluster(kubernetesVersion="v1.35.1+k3s1", status={"version": "v1.34.1+rke2r1"}), "asks for k3s, and the cluster runs v1.34.1+rke2r1"),
        (a_raw_cluster(kubernetesVersion="v1.34.9+rke2r1", status={"version": "v1.35.1+rke2r1"}), "lower than v1.35.1+rke2r1, which the cluster runs"),
        (a_raw_cluster(rkeConfig=None), "spec.rkeConfig is absent"),
        (a_raw_cluster(rke={"machinePools": []}), "there are no machine pools"),
        (a_raw_cluster(rke={"machineGlobalConfig": {"cloud-provider-config": "secret://nowhere"}}), "names no Secret"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_fact(raw, words):
    assert words in " | ".join(facts(read(raw)))


DUAL = {"service-cidr": "10.43.0.0/16,fd00:43::/112"}


@pytest.mark.parametrize(
    ("config", "machines", "parts", "severity"),
    [
        ({}, 256, "", ""),
        ({}, 257, "10.42.0.0/16 has room for 256 Nodes, each of which is given a /24", "error"),
        ({"cluster-cidr": "10.1.2.0/24"}, 1, "", ""),
        ({"cluster-cidr": "10.1.2.0/24"}, 2, "10.1.2.0/24 has room for 1 Node, each of which is given a /24", "error"),
        ({"cluster-cidr": "10.1.2.0/24", "cni": "multus,flannel"}, 2, "10.1.2.0/24 has room for 1 Node,", "error"),
        # It divides the network by itself; Kubernetes' own part of a Node is not used.
        ({"cluster-cidr": "10.1.2.0/24", "cni": ["multus", "calico"]}, 2, "10.1.2.0/24 has room for 1 Node,", "warning"),
        ({"cluster-cidr": "10.1.2.0/25", "cni": "calico"}, 1, "10.1.2.0/25 has room for 0 Nodes", "error"),
        ({"cluster-cidr": "10.1.2.0/24", "kube-controller-manager-arg": ["v=2", "node-cidr-mask-size=26"]}, 4, "", ""),
        ({"cluster-cidr": "10.1.2.0/24", "kube-controller-manager-arg": "--node-cidr-mask-size=26"}, 5, "10.1.2.0/24 has room for 4 Nodes, each of which is given a /26", "error"),
        ({"cluster-cidr": "10.1.2.0/24", "kube-controller-manager-arg": ["node-cidr-mask-size=many", "profiling"]}, 2, "10.1.2.0/24 has room for 1 Node,", "error"),
        ({"cluster-cidr": "10.1.2.0/24", "kube-controller-manager-arg": ["node-cidr-mask-size=33"]}, 1, "10.1.2.0/24 has room for 0 Nodes", "error"),
        (DUAL | {"cluster-cidr": "10.1.0.0/16,fd00:42::/63"}, 3, "fd00:42::/63 has room for 2 Nodes, each of which is given a /64", "error"),
        (DUAL | {"cluster-cidr": "10.1.0.0/16,fd00:42::/63", "kube-controller-manager-arg": ["node-cidr-mask-size-ipv6=65", "node-cidr-mask-size-ipv4=30"]}, 4, "", ""),
        (DUAL | {"cluster-cidr": "10.1.0.0/24,fd00:42::/56", "kube-controller-manager-arg": ["node-cidr-mask-size-ipv4=25"]}, 3, "10.1.0.0/24 has room for 2 Nodes, each of which is given a /25", "error"),
    ],
)  # fmt: skip
def test_a_network_of_pods_with_room_for_fewer_nodes_than_machines_is_told_with_both(
    config, machines, parts, severity
):
    found = read(a_raw_cluster(a_raw_pool(quantity=machines - machines // 2), a_raw_pool("b", etcdRole=False, quantity=machines // 2), rke={"machineGlobalConfig": config})).problems  # fmt: skip

    told = [one for one in found if "has room for" in one.message]
    assert [one.severity for one in told] == ([severity] if severity else [])
    assert all(f"cluster-cidr {parts}" in one.message for one in told)
    assert all(f"the machine pools ask for {machines} machine" in one.message for one in told)


def test_what_can_be_done_about_too_small_a_network_of_pods_depends_on_whether_the_cluster_has_begun():
    def hint(version: str, quantity: int, initialized: bool = False, **config: Any) -> list[str]:
        raw = a_raw_cluster(
            a_raw_pool(quantity=quantity),
            rke={"machineGlobalConfig": {"cluster-cidr": "10.1.2.0/24", **config}},
            kubernetesVersion="v1.35.1+k3s1",
            status={"version": version, "initialized": initialized},
        )
        return [f"{one.severity}: {one.hint}" for one in read(raw).problems if "has room for" in one.message]

    larger = "write a network with a prefix of /{} or shorter in cluster-cidr, or ask for fewer machines"
    assert hint("", 3) == [f"error: {larger.format(22)}"]
    assert hint("", 5) == [f"error: {larger.format(21)}"]
    assert hint("", 3, **{"flannel-backend": "none"}) == [f"warning: {larger.format(22)}"]
    fewer = "ask for 1 machine at most: a cluster keeps its cluster-cidr"
    assert hint("v1.35.1+k3s1", 3) == [f"error: {larger.format(22)}"]
    # Its lost machines are replaced all the same.
    assert hint("v1.35.1+k3s1", 3, initialized=True) == [f"warning: {fewer}"]


@pytest.mark.parametrize("asked", ["banana", "v1.35.1+rke2r1"])
def test_a_version_that_is_refused_leaves_a_running_cluster_its_cloud_provider(asked):
    raw = a_raw_cluster(kubernetesVersion=asked, status={"version": "v1.34.1+k3s1"})

    assert read(raw).cluster.cloud_provider == "harvester"


def test_a_credential_without_a_namespace_is_a_secret_of_the_clusters_namespace_as_in_rancher():
    raw = a_raw_cluster(
        a_raw_pool(), a_raw_pool("own", cloudCredentialSecretName="other"), cloudCredentialSecretName="cc"
    )

    cluster = read(raw).cluster

    assert [pool.credential for pool in cluster.pools] == [
        f"{cluster.namespace}:cc",
        f"{cluster.namespace}:other",
    ]
    assert list_secret_references(raw) == {f"{cluster.namespace}:cc", f"{cluster.namespace}:other"}
    assert list_grants([raw]) == {}
    assert {(ref.namespace, ref.name) for ref in read_preload([raw])} == {
        (cluster.namespace, "cc"),
        (cluster.namespace, "other"),
    }


def test_credentials_on_the_pools_alone_as_terraform_writes_them_are_enough():
    pools = [a_raw_pool(name, cloudCredentialSecretName="a:cc") for name in ("one", "two")]

    cluster = read(a_raw_cluster(*pools, cloudCredentialSecretName=None))

    assert facts(cluster) == []
    assert cluster.cluster.credential == "a:cc"
    pools[1].pop("cloudCredentialSecretName")
    assert facts(read(a_raw_cluster(*pools, cloudCredentialSecretName=None))) == [
        "spec.cloudCredentialSecretName is not set"
    ]


KUBECONFIG = """{clusters: [{name: h, cluster: {server: 'https://h:6443'}}], users: [{name: u, user: {token: t}}],
contexts: [{name: h, context: {cluster: h, user: u}}], current-context: h}"""


@pytest.mark.parametrize("place", ["machineGlobalConfig", "machineSelectorConfig"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("# Paste the kubeconfig here", "the text is empty"),
        ("a kubeconfig", "it has no list of clusters"),
        (KUBECONFIG.replace("current-context: h", "current-context: other"), "context"),
        (KUBECONFIG, ""),
        ("/etc/kubernetes/cloud-config", ""),
        ("secret://fleet-default:cc", ""),
        ("", ""),
    ],
)
def test_text_for_harvesters_cloud_provider_in_place_of_a_reference_is_a_kubeconfig(place, given, told):
    config: Any = {"cloud-provider-name": "harvester", "cloud-provider-config": given}
    rke = {place: config if place == "machineGlobalConfig" else [{"config": config}]}

    found = read(a_raw_cluster(rke=rke)).problems

    assert [one.severity for one in found] == (["error"] if told else [])
    assert all(told in one.message and place in one.field for one in found)
    other = {**config, "cloud-provider-name": "aws"}
    assert facts(read(a_raw_cluster(rke={"machineGlobalConfig": other}))) == []


def test_a_machine_config_of_a_misspelt_kind_is_told_with_the_kind_that_has_one_of_its_name():
    reference = {"kind": "HarvesterMachineConfig", "name": "nc"}
    raw = a_raw_cluster(a_raw_pool(machineConfigRef=reference))

    (problem,) = read_cluster(raw, [a_raw_config()], lambda kind: "other").problems

    assert problem.message.startswith("spec.rkeConfig.machinePools[0] names HarvesterMachineConfig 'nc'")
    assert problem.hint == "write kind HarvesterConfig, of which there is one with that name"


def test_every_fault_has_a_cure_and_a_field():
    reading = read(
        a_raw_cluster(
            a_raw_pool("Pool_1", quantity=-1), a_raw_pool("Pool_1"), name="A", kubernetesVersion="x"
        )
    )

    assert len(errors(reading)) >= 5
    assert all(problem.hint and problem.field for problem in reading.problems)


def test_different_vm_namespaces_are_refused_because_the_cloud_provider_looks_in_one_only():
    pools = a_raw_pool("a"), a_raw_pool("b", machineConfigRef={"name": "nc2"})

    reading = read(a_raw_cluster(*pools), a_raw_config(), a_raw_config("nc2", vmNamespace="tenant"))

    assert "different VM namespaces: 'default' (pool 'a'), 'tenant' (pool 'b')" in facts(reading)[0]


def warnings(reading: ClusterReading) -> str:
    return " | ".join(str(problem) for problem in reading.problems if problem.severity == "warning")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("endpoint-mod", "did you mean windrow.io/endpoint-mode?"),
        ("endpoint-Mode", "did you mean windrow.io/endpoint-mode?"),
        ("endpoint-ippool", "did you mean windrow.io/endpoint-ip-pool?"),
        ("endpoint-addres", "did you mean windrow.io/endpoint-address?"),
        ("remidiation", "did you mean windrow.io/remediation?"),
        ("zzz", "remove it; there are windrow.io/canary, windrow.io/endpoint-address, "),
        ("allowed-namespaces", "write it on the Secret"),
        ("x" * 1000, "remove it; there are "),
    ],
)
def test_an_annotation_of_ours_that_no_cluster_has_is_a_warning_with_the_one_that_was_meant(
    key: str, told: str
) -> None:
    reading = read(a_raw_cluster(metadata={"annotations": {f"windrow.io/{key}": "address"}}))

    assert errors(reading) == []
    assert "has no effect: no Cluster has that annotation" in warnings(reading)
    assert told in warnings(reading)
    assert len(warnings(reading)) < 400


@pytest.mark.parametrize(
    ("key", "fault", "hint"),
    [
        ("windrow.io/endpoint-mode", "it is an annotation", "write it in metadata.annotations"),
        ("windrow.io/remediation", "it is an annotation", "write it in metadata.annotations"),
        ("windrow.io/endpoint-mod", "no Cluster has that label", "did you mean annotation windrow.io/endpoint-mode?"),
        (
            "windrow.io/allowed-namespaces",
            "no Cluster has that label",
            "write it on the Secret that is shared, as an annotation",
        ),
    ],
)  # fmt: skip
def test_an_annotation_that_is_written_as_a_label_is_told_with_where_it_belongs(
    key: str, fault: str, hint: str
) -> None:
    where = f"metadata.labels[{key}]"

    found = read(a_raw_cluster(metadata={"labels": {key: "x"}})).problems

    assert found == (Problem(f"{where} has no effect: {fault}", hint, where, "warning"),)


def test_labels_of_others_are_nothing_to_tell() -> None:
    given = {
        "app.kubernetes.io/name": "prod",
        "cluster.x-k8s.io/cluster-name": "prod",
        "endpoint-mode": "address",
    }

    assert read(a_raw_cluster(metadata={"labels": given})).problems == ()


@pytest.mark.parametrize("where", ["labels", "machineDeploymentLabels", "machineDeploymentAnnotations"])
def test_an_annotation_of_the_cluster_in_a_machine_pool_is_told_with_where_it_belongs(where: str) -> None:
    raw = a_raw_cluster()
    raw["spec"]["rkeConfig"]["machinePools"][0][where] = {"windrow.io/endpoint-mode": "loadBalancer"}

    found = [one for one in read(raw).problems if "endpoint-mode" in one.field]

    place = f"spec.rkeConfig.machinePools[0].{where}[windrow.io/endpoint-mode]"
    told = f"{place} has no effect: it is an annotation of the Cluster"
    assert found == [Problem(told, "write it in metadata.annotations of the Cluster", place, "warning")]


def test_annotations_of_others_and_those_that_work_are_nothing_to_tell() -> None:
    given = {"windrow.io/remediation": "off", "emulator.windrow.io/power": "off", "example.com/endpoint": "x"}

    assert read(a_raw_cluster(metadata={"annotations": given})).problems == ()


def test_of_very_many_annotations_of_ours_that_no_cluster_has_the_first_are_told() -> None:
    given = {f"windrow.io/endpoint-{n}": "" for n in range(3000)}

    reading = read(a_raw_cluster(metadata={"annotations": given}))

    assert len(reading.problems) == 21
    assert "has 2980 more of windrow.io without effect" in warnings(reading)


def test_an_even_number_of_etcd_members_is_warned_about_only():
    reading = read(a_raw_cluster(a_raw_pool(quantity=2)))

    assert errors(reading) == []
    assert warnings(reading) == (
        "2 machines have the etcd role: etcd goes on after the loss of none, no more than with 1; "
        "use 1 or 3; 3 go on after the loss of 1"
    )


def test_a_name_that_begins_with_a_digit_is_warned_about_only():
    assert errors(read(a_raw_cluster(name="51"))) == []
    assert "does not begin with a letter" in warnings(read(a_raw_cluster(name="51")))


def test_fields_without_an_effect_say_why():
    found = warnings(read(a_raw_cluster(rke={"provisionGeneration": 1}, redeploySystemAgentGeneration=2)))

    assert "provisionGeneration has no effect: this release does not act on it yet" in found
    assert "redeploySystemAgentGeneration has no effect: it is for Rancher's own agents" in found


def test_empty_fields_that_rancher_writes_are_not_warned_about():
    raw = a_raw_cluster(
        localClusterAuthEndpoint={}, rke={"rotateCertificates": None, "etcdSnapshotCreate": {}}
    )

    assert read(raw).problems == ()


def test_a_vm_namespace_that_cannot_be_one_is_refused():
    reading = read(a_raw_cluster(), a_raw_config(vmNamespace="N_1"))

    assert facts(reading) == ["the vmNamespace 'N_1' of pool 'pool1' cannot be a namespace"]


@pytest.mark.parametrize("text", [None, "", "0s", "0"])
def test_an_unset_unhealthy_timeout_is_five_minutes(text):
    assert read(a_raw_cluster(a_raw_pool(unhealthyNodeTimeout=text))).cluster.pools[
        0
    ].unhealthy_timeout == timedelta(minutes=5)


def test_times_and_shares_are_read_as_rancher_writes_them():
    raw = a_raw_pool(
        unhealthyNodeTimeout="90s",
        drainBeforeDelete=True,
        drainBeforeDeleteTimeout="1m",
        maxUnhealthy="20%",
        nodeStartupTimeout="0s",
    )

    pool = read(a_raw_cluster(raw)).cluster.pools[0]

    assert (pool.unhealthy_timeout, pool.drain, pool.drain_timeout) == (
        timedelta(seconds=90),
        True,
        timedelta(minutes=1),
    )
    assert (pool.max_unhealthy, pool.startup_timeout) == (IntOrPercent(20), None)


@pytest.mark.parametrize(
    ("text", "wanted"), [(None, timedelta(minutes=5)), ("", timedelta(minutes=5)), ("0s", None), ("1h", timedelta(hours=1))]
)  # fmt: skip
def test_a_drain_timeout_of_zero_is_none_and_an_unset_one_five_minutes(text, wanted):
    raw = a_raw_pool(drainBeforeDelete=True, drainBeforeDeleteTimeout=text)

    assert read(a_raw_cluster(raw)).cluster.pools[0].drain_timeout == wanted


def test_a_machine_config_of_another_namespace_is_refused():
    def found(namespace: str | None) -> list[str]:
        reference = {"kind": "HarvesterConfig", "name": "nc", "namespace": namespace}
        return [one.field for one in errors(read(a_raw_cluster(a_raw_pool(machineConfigRef=reference))))]

    assert found("team-b") == ["spec.rkeConfig.machinePools[0].machineConfigRef.namespace"]
    assert found("fleet-default") == found(None) == []


def test_a_pool_has_its_own_limit_of_host_names_or_that_of_all():
    defaults = {"machinePoolDefaults": {"hostnameLengthLimit": 20}}

    pools = read(
        a_raw_cluster(a_raw_pool(), a_raw_pool("own", hostnameLengthLimit=15), rke=defaults)
    ).cluster.pools

    assert [pool.hostname_limit for pool in pools] == [20, 15]
    assert read(a_raw_cluster()).cluster.pools[0].hostname_limit == 63
    assert read(a_raw_cluster(a_raw_pool(hostnameLengthLimit=10))).cluster.pools[0].hostname_limit == 10


def test_annotations_of_a_pool_are_those_of_its_machines_but_for_requests():
    given = {"team": "blue", "cluster.x-k8s.io/delete-machine": "yes", "windrow.io/cluster-uid": "other"}
    reading = read(a_raw_cluster(a_raw_pool(machineDeploymentAnnotations=given)))
    (pool,) = reading.cluster.pools

    raw = render_machine(
        reading.cluster, pool, "m", version="v1", config_hash="", join_server="", is_init_server=True
    )

    assert raw["metadata"]["annotations"] == {"team": "blue", "windrow.io/cluster-uid": "u"}
    assert errors(reading) == []
    for name in list(given)[1:]:
        assert f"machineDeploymentAnnotations has {name}, which is not given to Machines" in warnings(reading)


DUAL = {"cluster-cidr": "10.42.0.0/16,fd00:42::/56", "service-cidr": "10.43.0.0/16,fd00:43::/112"}
SIX = {"cluster-cidr": ["fd00:42::/56"], "service-cidr": ["fd00:43::/112"]}


@pytest.mark.parametrize(
    ("stack", "config", "families", "faults"),
    [
        ("dual", DUAL, (4, 6), []),
        ("", DUAL, (4, 6), []),
        ("dual", {**DUAL, "cluster-cidr": "fd00:42::/56,10.42.0.0/16"}, (6, 4), []),
        ("ipv6", SIX, (6,), []),
        ("ipv4", {}, (4,), []),
        ("dual", {}, (4,), ["cluster-cidr is IPv4", "service-cidr is IPv4"]),
        ("ipv6", {}, (4,), ["cluster-cidr is IPv4", "service-cidr is IPv4"]),
        ("ipv4", DUAL, (4, 6), ["cluster-cidr is IPv4 and IPv6", "service-cidr is IPv4 and IPv6"]),
        ("dual", {"cluster-cidr": DUAL["cluster-cidr"]}, (4, 6), ["service-cidr is IPv4"]),
    ],
)
def test_the_families_of_a_cluster_are_those_of_its_networks_and_stack_preference_must_agree(
    stack, config, families, faults
):
    reading = read(
        a_raw_cluster(rke={"machineGlobalConfig": config, "networking": {"stackPreference": stack}})
    )

    assert reading.cluster.families == families
    where = "spec.rkeConfig.networking.stackPreference"
    told = [one for one in reading.problems if one.field == where]
    assert [one.message for one in told] == [f"{where} is {stack}, and {fault}" for fault in faults]
    assert warnings(reading) == ""


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (DUAL, []),
        ({key: ",".join(reversed(one.split(","))) for key, one in DUAL.items()}, []),
        (SIX, []),
        ({**DUAL, "service-cidr": "10.43.0.0/16"}, []),
        ({**DUAL, "service-cidr": "fd00:43::/112,10.43.0.0/16"}, [("IPv4", "IPv6")]),
        ({**DUAL, "cluster-cidr": "fd00:42::/56,10.42.0.0/16"}, [("IPv6", "IPv4")]),
        ({**DUAL, "service-cidr": ["fd00:43::/112"]}, [("IPv4", "IPv6")]),
    ],
)
def test_the_first_networks_of_pods_and_services_are_of_one_family(config, fault):
    reading = read(a_raw_cluster(rke={"machineGlobalConfig": config}))

    assert [(one.field, one.message, one.hint, one.severity) for one in reading.problems] == [
        (
            "spec.rkeConfig.machineGlobalConfig.service-cidr",
            f"the first network of cluster-cidr is {pods} and of service-cidr is {services}, and kube-apiserver starts only where "
            "both are of one family",
            "write the families of both in the same order",
            "error",
        )
        for pods, services in fault
    ]


def test_a_stack_preference_that_is_none_is_refused():
    reading = read(a_raw_cluster(rke={"networking": {"stackPreference": "both"}}))
    assert facts(reading) == ["spec.rkeConfig.networking.stackPreference is both"]


FOUR_POOL = {"network": "vlan-50", "addresses": ["10.9.0.10-10.9.0.20"], "prefix": 24}
SIX_POOL = {"network": "vlan-50", "addresses": ["fd00:9::10-fd00:9::20"], "prefix": 64}


@pytest.mark.parametrize(
    ("config", "pools", "fault"),
    [
        ({}, [FOUR_POOL], ""),
        (DUAL, [FOUR_POOL, SIX_POOL], ""),
        (SIX, [SIX_POOL], ""),
        # Of which family an IPPool is Harvester knows.
        (DUAL, [FOUR_POOL, {"network": "vlan-50", "ipPool": "six"}], ""),
        (DUAL, [FOUR_POOL], "addressPools give the node IPv4 addresses, and cluster-cidr is IPv4 and IPv6"),
        ({}, [FOUR_POOL, SIX_POOL], "addressPools give the node IPv6 addresses, and cluster-cidr has no IPv6 network"),
        ({}, [{**FOUR_POOL, "addresses": ["10.42.9.0/24"]}], "and cluster-cidr is 10.42.0.0-10.42.255.255, with addresses"),
        ({}, [{**FOUR_POOL, "addresses": ["10.43.9.7"]}], "and service-cidr is 10.43.0.0-10.43.255.255, with addresses"),
    ],
)  # fmt: skip
def test_addresses_of_machines_are_none_of_pods_and_services_and_of_the_families_of_the_cluster(
    config, pools, fault
):
    reading = read(a_raw_cluster(rke={"machineGlobalConfig": config}), a_raw_config(addressPools=pools))

    assert bool(facts(reading)) == bool(fault)
    assert fault in " ".join(facts(reading))


def sized(*quantities: int, configs: str = "nc") -> Any:
    """A cluster with pools of so many machines, each with its config."""
    names = configs.split()
    pools = [
        a_raw_pool(
            f"p{place}",
            quantity=quantity,
            machineConfigRef={"kind": "HarvesterConfig", "name": names[place % len(names)]},
        )
        for place, quantity in enumerate(quantities)
    ]
    return a_raw_cluster(*pools)


def ranged(name: str, *ranges: str, **rest: Any) -> Any:
    return a_raw_config(name, addressPools=[{**FOUR_POOL, "addresses": list(ranges), **rest}])


@pytest.mark.parametrize(
    ("cluster", "configs", "told"),
    [
        (sized(3), [ranged("nc", "10.9.0.10-10.9.0.13")], ""),
        (sized(1, 0, configs="a b"), [ranged("a", "10.9.0.10-10.9.0.11"), ranged("b", "10.9.0.20")], ""),
        (sized(3), [ranged("nc", "10.9.0.10-10.9.0.12")], "addressPools[0] has 3 addresses, and pool p0 asks for 3 machines; widen it by one or more: what replaces"),
        (sized(3), [ranged("nc", "10.9.0.10-10.9.0.11")], "addressPools[0] has 2 addresses, and pool p0 asks for 3 machines; widen it, or ask for fewer"),
        (sized(1), [ranged("nc", "10.9.0.10")], "addressPools[0] has 1 address, and pool p0 asks for 1 machine; widen it by"),
        (sized(3, 3), [ranged("nc", "10.9.0.10-10.9.0.14")], "addressPools[0] has 5 addresses, and pools p0, p1 together ask for 6 machines; widen it, or"),
        (sized(3, 3), [ranged("nc", "10.9.0.10-10.9.0.16")], ""),
        (sized(1, 1, 1, configs="a b a"), [ranged("a", "10.9.0.10-10.9.0.12"), ranged("b", "10.9.0.20-10.9.0.21")], ""),
        # Two configs whose ranges overlap, or share a third's.
        (sized(2, 2, configs="a b"), [ranged("a", "10.9.0.10-10.9.0.12"), ranged("b", "10.9.0.11-10.9.0.13")], "a: addressPools[0] has 4 addresses, and pools p0, p1 together ask for 4"),
        (sized(2, 2, configs="a b"), [ranged("a", "10.9.0.10-10.9.0.12"), ranged("b", "10.9.0.13-10.9.0.15")], ""),
        (sized(2, 2, configs="a b"), [ranged("a", "10.9.0.10-10.9.0.12"), ranged("b", "10.9.0.10-10.9.0.12", network="other")], ""),
        (sized(1, 1, 4, configs="a b c"), [ranged("a", "10.9.0.10-10.9.0.11"), ranged("b", "10.9.0.20-10.9.0.21"), ranged("c", "10.9.0.11-10.9.0.12", "10.9.0.21-10.9.0.22")], "a: addressPools[0] has 6 addresses, and pools p0, p1, p2 together ask for 6"),
        # One of three lies within the first, and the last begins after it.
        (sized(2, 1, 1, configs="a b c"), [ranged("a", "10.9.0.10-10.9.0.13"), ranged("b", "10.9.0.11"), ranged("c", "10.9.0.13")], "a: addressPools[0] has 4 addresses, and pools p0, p1, p2 together ask for 4"),
    ],
)  # fmt: skip
def test_fewer_addresses_than_the_pools_ask_for_that_share_them_are_warned_of(
    cluster: Any, configs: Any, told: str
):
    reading = read(cluster, *configs)

    assert errors(reading) == []
    said = [str(one) for one in reading.problems if "addressPools" in one.field]
    assert [told in one for one in said] == [True] * bool(told)


@pytest.mark.parametrize(
    ("version", "services", "fault"),
    [
        ("v1.33.7+rke2r1", "fd00:43::/108", ""),
        ("v1.33.7+rke2r1", "fd00:43::/107", "service-cidr has fd00:43::-fd00:43::1f:ffff, and kube-apiserver of v1.33.7+rke2r1 takes no IPv6 network larger than /108"),
        ("v1.33.7+k3s1", "10.16.0.0/12", ""),
        ("v1.33.7+k3s1", "10.0.0.0/11", "takes no IPv4 network larger than /12"),
        ("v1.34.0+rke2r1", "fd00:43::/64", ""),
        ("v1.35.1+rke2r1", "10.0.0.0/11", ""),
    ],
)  # fmt: skip
def test_a_service_network_that_kube_apiserver_does_not_take_is_refused(
    version: str, services: str, fault: str
):
    pods = "fd00:42::/56" if ":" in services else "172.16.0.0/16"
    config = {"cluster-cidr": pods, "service-cidr": services}
    reading = read(a_raw_cluster(rke={"machineGlobalConfig": config}, kubernetesVersion=version))

    assert [fault in one for one in facts(reading)] == [True] * bool(fault)
    if fault:
        (problem,) = errors(reading)
        assert problem.field == "spec.rkeConfig.machineGlobalConfig.service-cidr"
        example = "fd00:43::/112" if ":" in services else "10.0.0.0/16"
        assert problem.hint == f"write {example}, or Kubernetes 1.34 or later"


@pytest.mark.parametrize("key", ["cluster-cidr", "service-cidr"])
def test_two_networks_of_one_family_are_refused(key: str):
    config = {**DUAL, key: f"{DUAL[key]},10.99.0.0/16"}
    (problem,) = errors(read(a_raw_cluster(rke={"machineGlobalConfig": config})))
    assert problem.field == f"spec.rkeConfig.machineGlobalConfig.{key}"
    assert problem.message == f"{key} has 2 IPv4 networks"


@pytest.mark.parametrize(
    ("annotation", "address", "fault"),
    [
        ("endpoint-address", "10.9.0.99", ""),
        ("endpoint-address", "api.example.org", ""),
        ("endpoint-address", "10.42.3.4", "is 10.42.3.4, and cluster-cidr is 10.42.0.0-10.42.255.255, which has it"),
        ("endpoint-address", "10.43.0.1", "is 10.43.0.1, and service-cidr is 10.43.0.0-10.43.255.255, which has it"),
        ("endpoint-address", "10.9.0.15", "is 10.9.0.15, and HarvesterConfig nc: addressPools[0] has it in 10.9.0.10-10.9.0.20, so"),
        ("endpoint-join-address", "10.43.0.1", "is 10.43.0.1, and service-cidr is 10.43.0.0-10.43.255.255, which has it"),
    ],
)  # fmt: skip
def test_a_virtual_address_is_none_of_pods_services_and_machines(annotation: str, address: str, fault: str):
    annotations = {"windrow.io/endpoint-mode": "address", "windrow.io/endpoint-address": "10.9.0.99"}
    annotations[f"windrow.io/{annotation}"] = address
    raw = a_raw_cluster(metadata={"annotations": annotations})
    where = f"metadata.annotations[windrow.io/{annotation}]"

    reading = read(raw, a_raw_config(addressPools=[FOUR_POOL]))
    assert [f"{where} {fault}" in one for one in facts(reading)] == [True] * bool(fault)
    assert {one.field for one in errors(reading)} <= {where}

    # A cluster that has it goes on, and is told.
    parts = {"host": annotations["windrow.io/endpoint-address"]}
    parts |= {"joinHost": address} if annotation == "endpoint-join-address" else {}
    raw["status"] = {"controlPlaneEndpoint": {"mode": "address", **parts}}
    reading = read(raw, a_raw_config(addressPools=[FOUR_POOL]))
    assert errors(reading) == []
    assert fault in warnings(reading)


def test_without_the_mode_address_no_virtual_address_is_compared():
    annotations = {"windrow.io/endpoint-mode": "firstServer"}
    assert facts(read(a_raw_cluster(metadata={"annotations": annotations}))) == []


@pytest.mark.parametrize(("text", "warned"), [("0s", False), ("149s", True), ("150s", False), ("", False)])
def test_a_startup_timeout_shorter_than_a_watch_may_be_silent_is_warned_of(text: str, warned: bool) -> None:
    found = read(a_raw_cluster(a_raw_pool(nodeStartupTimeout=text)))

    assert not errors(found)
    fields = [problem.field for problem in found.problems if "100 s later" in problem.message]
    assert fields == ["spec.rkeConfig.machinePools[0].nodeStartupTimeout"] * warned


def test_a_range_of_unhealthy_machines_is_read_with_both_ends_and_goes_before_the_share():
    raw = a_raw_pool(unhealthyRange="[2-10]", maxUnhealthy="20%")

    assert read(a_raw_cluster(raw)).cluster.pools[0].max_unhealthy == IntOrPercent(None, 10, 2)


@pytest.mark.parametrize(
    ("share", "total", "most"),
    [
        (IntOrPercent(40), 5, 2),
        (IntOrPercent(40), 1, 1),
        (IntOrPercent(100), 3, 3),
        (IntOrPercent(None, 0), 9, 0),
        (IntOrPercent(40), 7, 2),
    ],
)
def test_a_share_is_rounded_down_but_never_to_nothing(share, total, most):
    assert share.resolve(total) == most


def test_taints_are_read_in_kubelets_form():
    taints = [{"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c"}]

    assert read(a_raw_cluster(a_raw_pool(taints=taints))).cluster.pools[0].taints == (
        "a=b:NoExecute",
        "c:NoSchedule",
    )


def test_a_pool_may_have_its_own_credential():
    pools = a_raw_pool(cloudCredentialSecretName="ns:mine"), a_raw_pool("other", etcdRole=False)
    reading = read(a_raw_cluster(*pools))

    assert reading.problems == ()
    assert [pool.credential for pool in reading.cluster.pools] == ["ns:mine", "cattle-global-data:cc"]
    machines = [
        render_machine(
            reading.cluster, pool, "m", version="v", config_hash="", join_server="", is_init_server=False
        )
        for pool in reading.cluster.pools
    ]
    assert [machine["spec"]["credential"] for machine in machines] == ["ns:mine", "cattle-global-data:cc"]


def test_a_cluster_whose_pools_all_have_a_credential_needs_none_of_its_own():
    own = a_raw_pool(cloudCredentialSecretName="ns:mine")

    assert read(a_raw_cluster(own, cloudCredentialSecretName=None)).problems == ()
    assert "spec.cloudCredentialSecretName is not set" in " ".join(
        facts(read(a_raw_cluster(own, a_raw_pool("other"), cloudCredentialSecretName=None)))
    )


def test_registries_reach_the_machines_file_and_change_the_hash_of_its_configuration():
    mirrors = {"docker.io": {"endpoint": ["https://mirror.example"]}}
    without = read(a_raw_cluster()).cluster
    cluster = read(a_raw_cluster(rke={"registries": {"mirrors": mirrors}})).cluster
    machine = a_machine("s1", cluster.pools[0]).record

    spec = build_bootstrap_spec(cluster, cluster.pools[0], machine, new_cluster_secrets(NOON), None)
    document = yaml.load(find_distribution(machine.version).render(spec).partition("\n")[2])

    (content,) = (
        file["content"] for file in document["write_files"] if file["path"].endswith("/registries.yaml")
    )
    assert yaml.load(content) == {"mirrors": mirrors}
    hashes = [find_config_hash(one, one.pools[0], machine.version) for one in (cluster, without)]
    assert hashes[0] != hashes[1]


def test_cloud_provider_keys_are_found_in_either_place():
    selector = [{"config": {"cloud-provider-name": "harvester", "cloud-provider-config": "secret://a:b"}}]

    cluster = read(a_raw_cluster(rke={"machineSelectorConfig": selector})).cluster

    assert (cluster.cloud_provider, cluster.cloud_config_secret) == ("harvester", "a:b")


def test_a_selector_for_some_machines_does_not_decide_for_all():
    selector = [
        {"machineLabelSelector": {"matchLabels": {"a": "b"}}, "config": {"cloud-provider-name": "harvester"}}
    ]

    assert read(a_raw_cluster(rke={"machineSelectorConfig": selector})).cluster.cloud_provider == ""


def test_a_selector_matches_the_labels_of_a_pool_as_rancher_gives_them_to_its_machines():
    chosen = {"matchLabels": {"tier": "gold"}}
    selector = [{"machineLabelSelector": chosen, "config": {"kubelet-arg": ["max-pods=250"]}}]
    cluster = read(a_raw_cluster(rke={"machineSelectorConfig": selector})).cluster
    (pool, *_) = cluster.pools

    def config_of(labels):
        spec = sample_bootstrap_spec(cluster, replace(pool, labels=labels), cluster.version)
        return merge_config(spec).get("kubelet-arg")

    assert config_of({"tier": "gold"}) == ["max-pods=250"]
    assert config_of({"tier": "silver"}) is None


def test_a_label_of_a_pool_does_not_change_what_a_machine_is():
    cluster = read(a_raw_cluster()).cluster
    (pool, *_) = cluster.pools
    own = machine_labels(cluster.name, pool)

    assert machine_labels(cluster.name, replace(pool, labels=dict.fromkeys(own, "other"))) == own


def test_only_the_users_own_options_are_kept():
    raw = a_raw_config(cpuCount="2", imageName="", clusterName="x", cloudConfig="y", enableEfi=False)

    assert read_options(raw) == {"cpuCount": "2", "enableEfi": False, "vmNamespace": "default"}


def test_a_status_pasted_from_rancher_is_not_ours():
    recorded = read(
        a_raw_cluster(
            status={
                "ready": True,
                "clusterName": "c-m-1",
                "conditions": [{"type": "Created", "status": "True"}],
            }
        )
    ).cluster.recorded

    assert (recorded.initialized, recorded.init_server_uid, recorded.provisioned) == (False, "", False)


@pytest.mark.skipif(not REAL.exists(), reason="the real manifests are not here")
def test_a_real_rancher_dump_is_accepted():
    documents, _ = strip_server_fields(load_all(REAL.read_text()))
    cluster, config = documents

    reading = read_cluster(cluster, [config])

    assert errors(reading) == []
    assert reading.cluster.pools[0].roles == frozenset(Role)
    assert reading.cluster.cloud_config_secret == "fleet-default:harvesterconfigndk26"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["cloudCredentialSecretName", "kubernetesVersion", "agentEnvVars"]), anything
    ),
    st.dictionaries(
        st.sampled_from(
            ["machineGlobalConfig", "machineSelectorConfig", "etcd", "dataDirectories", "registries"]
        ),
        anything,
    ),
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "quantity",
                "etcdRole",
                "labels",
                "taints",
                "machineConfigRef",
                "maxUnhealthy",
                "unhealthyNodeTimeout",
            ]
        ),
        anything,
    ),
)
def test_whatever_is_written_there_a_reading_comes_out(spec, rke, pool):
    raw = a_raw_cluster(a_raw_pool(**pool), rke=rke, **spec)

    assert read(raw).cluster.name == "prod"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"node-role.kubernetes.io/Ingress!": "true"}, "has the key 'node-role.kubernetes.io/Ingress!', which no Node may have"),
        ({"Zone.example/x": "1"}, "has the key 'Zone.example/x'"),
        ({"zone": "two words"}, "has zone='two words', a value that no Node may have"),
        ({"zone": "x" * 64}, "a value that no Node may have"),
    ],
)  # fmt: skip
def test_a_pool_label_that_no_api_server_takes_is_a_problem_and_left_out(labels, words):
    reading = read(a_raw_cluster(a_raw_pool(labels={**labels, "disk": "ssd"})))

    (problem,) = errors(reading)
    assert words in problem.message
    assert problem.field.endswith(".labels")
    assert reading.cluster.pools[0].labels == {"disk": "ssd"}


@pytest.mark.parametrize(
    ("annotations", "disabled"),
    [
        ({}, False),
        ({"windrow.io/remediation": "off"}, True),
        ({"windrow.io/remediation": "on"}, False),
        ({"windrow.io/remediation": " False "}, True),
        ({"windrow.io/remediation": "True"}, False),
        ({"windrow.io/remediation": ""}, False),
        ({"windrow.io/repair": "off"}, False),
    ],
)
def test_one_annotation_turns_remediation_off(annotations, disabled):
    reading = read(a_raw_cluster(metadata={"annotations": annotations}))

    assert reading.cluster.remediation_disabled is disabled
    assert "turns nothing off" not in warnings(reading)


@pytest.mark.parametrize("value", ["of", "no", "disabled", "0", "x" * 1000])
def test_a_value_that_turns_no_remediation_off_is_warned_of(value: str) -> None:
    reading = read(a_raw_cluster(metadata={"annotations": {"windrow.io/remediation": value}}))

    assert reading.cluster.remediation_disabled is False
    (problem,) = [one for one in reading.problems if one.severity == "warning"]
    assert problem.field == "metadata.annotations[windrow.io/remediation]"
    assert "which turns nothing off" in problem.message
    assert len(problem.message) < 300


DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("field", "value", "bound"),
    [
        ("quantity", 1001, "1000 at most"),
        ("quantity", 1_000_000_000, "1000 at most"),
        ("quantity", 10**4400, "1000 at most"),
        ("quantity", DIGITS, "a whole number"),
        ("maxUnhealthy", DIGITS, "64 characters at most"),
        ("unhealthyRange", f"[{DIGITS}-{DIGITS}]", "64 characters at most"),
        ("drainBeforeDeleteTimeout", f"{DIGITS}s", "64 characters at most"),
        ("unhealthyNodeTimeout", DIGITS, "64 characters at most"),
        ("nodeStartupTimeout", "1" * 20000, "64 characters at most"),
    ],
    ids=range(9),
)
def test_a_value_of_a_pool_beyond_its_bound_is_a_problem_of_its_field(field, value, bound):
    (problem,) = errors(read(a_raw_cluster(a_raw_pool(**{field: value}))))

    assert problem.field == f"spec.rkeConfig.machinePools[0].{field}"
    assert problem.message.startswith(problem.field)
    assert bound in problem.hint
    assert len(str(problem)) < 250


def test_the_largest_pool_may_be_asked_for():
    wide = {"machineGlobalConfig": {"cluster-cidr": "10.64.0.0/14"}}
    raw = a_raw_cluster(a_raw_pool(), a_raw_pool("w", quantity=999, etcdRole=False), rke=wide)

    assert read(raw).problems == ()


def test_a_version_beyond_its_bound_is_one_problem():
    (problem,) = errors(read(a_raw_cluster(kubernetesVersion=f"v1.35.{DIGITS}+rke2r1")))

    assert (problem.field, problem.hint) == ("spec.kubernetesVersion", "write 64 characters at most")


NETWORKS = [f"10.{n // 256}.{n % 256}.0/24" for n in range(1000)]


@pytest.mark.parametrize(
    ("rke", "field", "fact"),
    [
        ({"machineGlobalConfig": {"cluster-cidr": NETWORKS}}, "machineGlobalConfig.cluster-cidr", "has 1000 entries"),
        ({"machineGlobalConfig": {"service-cidr": ",".join(NETWORKS)}}, "machineGlobalConfig.service-cidr", "has 1000 entries"),
        ({"machineGlobalConfig": {"cluster-dns": ["10.43.0.10"] * 17}}, "machineGlobalConfig.cluster-dns", "has 17 entries"),
        ({"machineGlobalConfig": {f"k{n}": "" for n in range(1001)}}, "machineGlobalConfig", "1001 keys"),
        ({"machineSelectorConfig": [{"config": {f"k{n}": "" for n in range(1001)}}]}, "machineGlobalConfig", "1001 keys"),
        ({"machineSelectorConfig": [{"config": {}}] * 101}, "machineSelectorConfig", "has 101 entries"),
        ({"machinePools": [a_raw_pool(f"p{n}") for n in range(101)]}, "machinePools", "has 101 entries"),
        ({"machinePools": [a_raw_pool(f"p{n}", quantity=501) for n in range(2)]}, "machinePools", "have 1002 machines"),
    ],
)  # fmt: skip
def test_more_entries_than_the_bound_are_one_problem(rke, field, fact):
    (problem,) = errors(read(a_raw_cluster(rke=rke)))

    assert problem.field == f"spec.rkeConfig.{field}"
    assert fact in problem.message
    assert "at most" in problem.hint


@pytest.mark.parametrize(
    ("selector", "field", "fact"),
    [
        ("disk=ssd", "", "is 'disk=ssd', which is not a mapping"),
        ({"matchLabels": ["disk"]}, ".matchLabels", "which is not a mapping of texts"),
        ({"matchLabels": {"disk": 1}}, ".matchLabels['disk']", "is 1, which is not text"),
        ({"matchLabels": {"disk": ["ssd"]}}, ".matchLabels['disk']", "is ['ssd'], which is not text"),
        ({"matchExpressions": {"key": "a"}}, ".matchExpressions", "which is not a list"),
        ({"matchExpressions": ["disk"]}, ".matchExpressions[0]", "is 'disk', which is not a mapping"),
        ({"matchExpressions": [{"operator": "Exists"}]}, ".matchExpressions[0].key", "is None, which is not text"),
        ({"matchExpressions": [{"key": ["a"], "operator": "Exists"}]}, ".matchExpressions[0].key", "not text"),
        ({"matchExpressions": [{"key": "a"}]}, ".matchExpressions[0].operator", "is None"),
        ({"matchExpressions": [{"key": "a", "operator": "in"}]}, ".matchExpressions[0].operator", "is 'in'"),
        ({"matchExpressions": [{"key": "a", "operator": {}}]}, ".matchExpressions[0].operator", "is {}"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": 7}]}, ".matchExpressions[0].values", "is 7"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": [[]]}]}, ".matchExpressions[0].values[0]", "not text"),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_malformed_selector_is_a_problem_of_its_field_and_its_entry_applies_to_no_machine(
    selector, field, fact
):
    entry = {"machineLabelSelector": selector, "config": {"profile": "cis"}}

    reading = read(a_raw_cluster(rke={"machineSelectorConfig": [{"config": {"a": 1}}, entry]}))

    (problem,) = errors(reading)
    assert problem.field == f"spec.rkeConfig.machineSelectorConfig[1].machineLabelSelector{field}"
    assert fact in problem.message
    assert reading.cluster.selector_config == ({"config": {"a": 1}},)


def test_pools_with_one_configuration_share_its_hash_and_others_have_their_own():
    selector = {"machineLabelSelector": {"matchLabels": {"disk": "ssd"}}, "config": {"profile": "cis"}}
    pools = (
        a_raw_pool("a"),
        a_raw_pool("b"),
        a_raw_pool("w", etcdRole=False),
        a_raw_pool("s", machineDeploymentLabels={"disk": "ssd"}),
    )
    cluster = read(a_raw_cluster(*pools, rke={"machineSelectorConfig": [selector]})).cluster

    hashes = find_config_hashes(cluster, cluster.version)

    assert hashes == {pool.name: find_config_hash(cluster, pool, cluster.version) for pool in cluster.pools}
    assert hashes["a"] == hashes["b"]
    assert len(set(hashes.values())) == 3


def test_pools_with_other_files_have_other_hashes():
    files = {
        "machineLabelSelector": {"matchLabels": {"disk": "ssd"}},
        "fileSources": [{"secret": {"name": "site", "items": [{"key": "ca", "path": "/etc/ssl/ca.pem"}]}}],
    }
    pools = (a_raw_pool("a"), a_raw_pool("b"), a_raw_pool("s", machineDeploymentLabels={"disk": "ssd"}))
    cluster = read(a_raw_cluster(*pools, rke={"machineSelectorFiles": [files]})).cluster

    hashes = find_config_hashes(cluster, cluster.version)

    assert hashes["a"] == hashes["b"] != hashes["s"]
    assert hashes == {pool.name: find_config_hash(cluster, pool, cluster.version) for pool in cluster.pools}


def test_a_spec_that_no_reader_expected_is_a_problem_and_the_rest_of_the_cluster_is_read():
    raw = a_raw_cluster(
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.CLUSTER_FINALIZER]},
        rke={"machineGlobalConfig": {"cluster-dns": [10**4400]}},
    )
    reading = read(raw)

    assert [problem.field for problem in errors(reading)] == ["spec"]
    assert reading.cluster.deletion_timestamp is not None
    assert reading.cluster.has_finalizer
    assert reading.cluster.raw is raw


def a_large_cluster(value, pools=100):
    """Each of its pools has a configuration of its own, and each has the large value."""
    entries = [
        {
            "machineLabelSelector": {
                "matchExpressions": [{"key": "n", "operator": "NotIn", "values": [str(n)]}]
            },
            "config": {f"k{n}": n},
        }
        for n in range(pools)
    ]
    raw_pools = (a_raw_pool(f"p{n}", machineDeploymentLabels={"n": str(n)}) for n in range(pools))
    rke = {"machineGlobalConfig": {"large": value}, "machineSelectorConfig": entries}
    return read(a_raw_cluster(*raw_pools, rke=rke)).cluster


def test_a_value_that_a_hundred_configurations_share_is_encoded_once(monkeypatch):
    cluster, texts = a_large_cluster("a long text"), []
    dumps = json.dumps

    def recording(value, **options):
        texts.append(dumps(value, **options))
        return texts[-1]

    monkeypatch.setattr(json, "dumps", recording)
    hashes = find_config_hashes(cluster, cluster.version)

    assert len(set(hashes.values())) == 100
    assert sum("a long text" in text for text in texts) == 1


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        ("x", "e7158004273cfe75"),
        ({"é": [1, 2.5, None, True, {"b": "", "a": {}}]}, "68bda1c8a7f715ec"),
        ([], "64c721ef33df423a"),
    ],
    ids=range(3),
)
def test_hashes_are_those_of_earlier_releases_so_that_an_upgrade_replaces_no_machine(value, digest):
    cluster = a_large_cluster(value, pools=3)

    hashes = find_config_hashes(cluster, cluster.version)

    assert sorted(hashes) == ["p0", "p1", "p2"]
    assert hashes["p1"] == digest


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("windrow.io/remediation", "write it on the Cluster"),
        ("windrow.io/allowed-namespaces", "write it on the Secret that is shared"),
        ("windrow.io/endpoint-adress", "did you mean windrow.io/endpoint-address, on the Cluster?"),
        ("windrow.io/memory", "remove it"),
        ("harvesterhci.io/reservedMemory", "remove it"),
        ("cloudprovider.harvesterhci.io/ipam", "remove it"),
        ("example.org/memory", ""),
        ("network.harvesterhci.io/ready", ""),
        ("field.cattle.io/creatorId", ""),
    ],
)
def test_an_annotation_that_no_machine_config_has_is_told_with_where_it_belongs(key, hint):
    config = a_raw_config()
    config["metadata"]["annotations"] = {key: "x"}

    found = read(a_raw_cluster(), config).problems

    told = f"HarvesterConfig nc: metadata.annotations[{key}] has no effect: no HarvesterConfig has that annotation"
    wanted = [Problem(told, hint, f"metadata.annotations[{key}]", "warning")] if hint else []
    assert list(found) == wanted


def test_a_label_that_no_machine_config_has_is_told_with_where_it_belongs():
    config = a_raw_config()
    config["metadata"]["labels"] = {"windrow.io/remediation": "off", "windrow.io/memory": "4", "tier": "db"}

    found = read(a_raw_cluster(), config).problems

    told = "has no effect: no HarvesterConfig has that label"
    assert [(one.message, one.hint) for one in found] == [
        (
            f"HarvesterConfig nc: metadata.labels[windrow.io/remediation] {told}",
            "write it on the Cluster, as an annotation",
        ),
        (f"HarvesterConfig nc: metadata.labels[windrow.io/memory] {told}", "remove it"),
    ]


@pytest.mark.parametrize(
    ("count", "last"),
    [(20, "x19"), (21, "has 1 more of windrow.io and harvesterhci.io and cloudprovider.harvesterhci.io")],
)
def test_twenty_annotations_that_no_machine_config_has_are_told_one_by_one(count, last):
    config = a_raw_config()
    config["metadata"]["annotations"] = {f"windrow.io/x{n:02}": "" for n in range(count)}

    found = [one.message for one in read(a_raw_cluster(), config).problems]

    assert len(found) == count
    assert last in found[-1]


def test_selectors_select_machines_by_their_cluster_pool_and_roles():
    cluster = read(a_raw_cluster(a_raw_pool(etcdRole=True, workerRole=False))).cluster

    assert machine_labels("prod", cluster.pools[0]) == {
        "cluster.x-k8s.io/cluster-name": "prod",
        "rke.cattle.io/cluster-name": "prod",
        "rke.cattle.io/rke-machine-pool-name": "pool1",
        "rke.cattle.io/etcd-role": "true",
        "rke.cattle.io/control-plane-role": "true",
        "cattle.io/os": "linux",
    }


def test_the_digest_of_a_pool_is_that_of_the_pool_that_is_given():
    cluster = read(a_raw_cluster()).cluster
    (pool,) = cluster.pools
    worker = replace(pool, roles=frozenset({Role.WORKER}))

    found = [find_config_hash(cluster, one, cluster.version) for one in (pool, worker)]

    assert all(found)
    assert found[0] != found[1]


def test_the_secrets_of_a_cluster_are_found_by_its_label_and_go_with_it():
    cluster = read(a_raw_cluster()).cluster

    raw = render_secrets(cluster, new_cluster_secrets(NOON))

    assert raw["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "prod"}
    assert raw["metadata"]["annotations"] == {"windrow.io/cluster-uid": "u"}
    assert [(one["kind"], one["uid"]) for one in raw["metadata"]["ownerReferences"]] == [("Cluster", "u")]


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("rke2-canal", "v1.35.1+rke2r1", ""),
        ("harvester-cloud-provider", "v1.35.1+rke2r1", ""),
        ("traefik", "v1.35.1+k3s1", ""),
        ("harvester-csi-driver", "v1.35.1+k3s1", ""),
        ("rancher-vsphere-csi", "v1.35.1+rke2r1", ""),
        ("canal", "v1.35.1+rke2r1", "write rke2-canal if RKE2's own is meant, or install a HelmChart"),
        ("rke2-canal", "v1.35.1+k3s1", "; install a HelmChart of this name"),
        ("traefik", "v1.35.1+rke2r1", "brings no chart traefik"),
    ],
)
def test_values_of_a_chart_that_the_distribution_does_not_bring_have_no_effect(name, version, told):
    reading = read(a_raw_cluster(kubernetesVersion=version, rke={"chartValues": {name: {"a": 1}}}))
    charts = [str(one) for one in reading.problems if one.field.startswith("spec.rkeConfig.chartValues")]

    assert errors(reading) == []
    assert len(charts) == bool(told)
    assert told in "".join(charts)


def test_values_that_stand_one_level_too_high_are_told_once():
    reading = read(a_raw_cluster(rke={"chartValues": {"resources": {"limits": {}}}}))

    assert [one.hint for one in reading.problems if "resources" in one.field] == [
        "write it one level deeper, below the name of the chart, such as harvester-cloud-provider"
    ]


def test_annotations_of_a_pool_have_100_000_characters_at_most():
    annotations = {"a": "x" * 99_999}

    (pool,) = read(a_raw_cluster(a_raw_pool(machineDeploymentAnnotations=annotations))).cluster.pools

    assert pool.machine_annotations == annotations


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", "true"),
        ("on", "true"),
        ("True", "true"),
        ("no", "false"),
        ("off", "false"),
        ("FALSE", "false"),
    ],
)
def test_a_text_in_place_of_true_or_false_is_told_what_to_write(written, meant):
    (problem,) = errors(read(a_raw_cluster(a_raw_pool(etcdRole=written), a_raw_pool("two"))))

    assert (problem.field.rpartition(".")[2], problem.hint) == ("etcdRole", f"write {meant}, without quotes")


@pytest.mark.parametrize("role", ["etcdRole", "controlPlaneRole"])
def test_a_role_that_cannot_be_read_is_no_role_that_lacks(role):
    found = errors(read(a_raw_cluster(a_raw_pool(**{role: "yes"}))))

    assert [one.field.rpartition(".")[2] for one in found] == [role]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("1.35.1", "for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
        ("1.34.2", "for example v1.34.2+rke2r1 or v1.34.2+k3s1"),
        ("1.34.2+rke2r1", "v1.34.2+rke2r1"),
        ("1.34.2+k3s1", "v1.34.2+k3s1"),
        ("1.34.2+eks1", "for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
        ("1.34+rke2r1", "for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
        ("latest", "for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
    ],
)
def test_of_a_version_that_is_none_it_is_told_which_may_be_meant(written, hint):
    (problem,) = errors(read(a_raw_cluster(kubernetesVersion=written)))

    assert problem.hint.endswith(hint)


def test_the_credential_of_a_cluster_that_names_none_is_that_of_its_first_pool_with_one():
    pools = [a_raw_pool("a"), a_raw_pool("b", cloudCredentialSecretName="ns:b")]

    assert read(a_raw_cluster(*pools, cloudCredentialSecretName=None)).cluster.credential == "ns:b"


@pytest.mark.parametrize(
    ("cidr", "families"),
    [
        (None, (4,)),
        ([], (4,)),
        ("10.42.0.0/16", (4,)),
        ("fd00:42::/56", (6,)),
        ("fd00:42::/56, 10.42.0.0/16", (6, 4)),
        (["10.42.0.0/16", "fd00:42::/56"], (4, 6)),
    ],
)
def test_the_families_of_a_cluster_are_those_of_its_pods(cidr, families):
    config = {} if cidr is None else {"cluster-cidr": cidr}

    assert find_families(config) == families


def test_a_registry_whose_name_is_a_number_is_refused():
    raw = a_raw_cluster(rke={"registries": {"mirrors": {5000: {"endpoint": ["https://m"]}}}})

    assert [one.field for one in errors(read(raw))] == ["spec.rkeConfig.registries.mirrors[5000]"]


def test_what_a_cluster_says_of_itself_is_read_from_its_metadata():
    metadata = {
        "generation": 7,
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "deletionTimestamp": "2026-01-01T12:05:00Z",
        "finalizers": ["windrow.io/cluster"],
    }

    cluster = read(a_raw_cluster(metadata=metadata)).cluster

    assert (cluster.generation, cluster.has_finalizer) == (7, True)
    assert (cluster.created, cluster.deletion_timestamp) == (NOON, NOON + timedelta(minutes=5))
    fresh = read(a_raw_cluster()).cluster
    assert (fresh.generation, fresh.has_finalizer, fresh.created, fresh.deletion_timestamp) == (
        0,
        False,
        None,
        None,
    )


def test_a_sample_of_a_pool_has_what_the_cluster_gives_all_its_machines():
    given: dict[str, Any] = {
        "global_config": {"a": 1},
        "selector_config": ({"config": {"b": 1}},),
        "chart_values": {"c": {}},
        "additional_manifest": "kind: X",
        "registries": {"mirrors": {}},
        "etcd": {"snapshotRetention": 3},
        "data_directory": "/data",
        "environment": {"HTTP_PROXY": "x"},
        "selector_files": ({"fileSources": []},),
        "file_contents": {("secret", "a", "b"): b"c"},
        "pod_security": "rancher-restricted",
    }
    cluster = replace(read(a_raw_cluster()).cluster, **given)

    spec = sample_bootstrap_spec(cluster, cluster.pools[0], "v1.35.1+rke2r1")

    assert {name: getattr(spec, name) for name in given} == given
    assert (spec.cluster, spec.init_server, spec.join_server) == ("prod", True, "")
    worker = replace(cluster.pools[0], roles=frozenset({Role.WORKER}))
    joining = sample_bootstrap_spec(cluster, worker, "v1.35.1+rke2r1")
    assert (joining.init_server, joining.join_server) == (False, "https://192.0.2.1:9345")


def test_values_of_harvesters_charts_that_stand_at_the_top_are_told_where_they_belong():
    def told(chart: str) -> list[tuple[str, str]]:
        reading = read(a_raw_cluster(rke={"chartValues": {chart: {"clusterName": "x", "replicas": 1}}}))
        return [(one.field, one.hint) for one in reading.problems if "chartValues" in one.field]

    for chart in ("harvester-cloud-provider", "harvester-csi-driver"):
        assert told(chart) == [
            (
                f"spec.rkeConfig.chartValues[{chart}].clusterName",
                "write it as global.cattle.clusterName, where the chart reads it",
            )
        ]
    assert told("rke2-canal") == []
