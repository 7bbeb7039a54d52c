from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.support.fake_machines import MemoryMachines
from tests.support.simulation import simulation

from windrow.app.check import CheckResult, check
from windrow.client.client import Client
from windrow.clusters.api.addresses import AddressPool, IPAddress
from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.manifest.networking import find_small_ranges
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.sources.endpoint_pools import check_all_pools
from windrow.core.formats.cidr import Range, parse_address
from windrow.harvester.identity import IDENTITY
from windrow.harvester.resources import IP_POOL
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import name_of, new_object, uid_of
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import InfrastructureUnknown, MachineRefused, MachineSpec, Problem

DISKS = {"disks": [{"imageName": "default/leap", "size": 40}]}
CARDS = {"interfaces": [{"networkName": "default/vlan"}]}


def cluster(*pools: str, name: str = "orchard", **spec: Any) -> dict[str, Any]:
    described = [
        {
            "name": pool,
            "etcdRole": True,
            "controlPlaneRole": True,
            "quantity": 1 if place == 0 else 0,
            "machineConfigRef": {"name": f"nc-{pool}"},
        }
        for place, pool in enumerate(pools or ("w",))
    ]
    rke = spec.pop("rkeConfig", {"machinePools": described})
    if isinstance(keys := rke.get("machineGlobalConfig", {}), dict):
        rke = {**rke, "machineGlobalConfig": {"cloud-provider-name": "harvester", **keys}}
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "fleet-default"},
        "spec": {
            "kubernetesVersion": "v1.34.7+rke2r1",
            "cloudCredentialSecretName": "a:b",
            "rkeConfig": rke,
            **spec,
        },
    }


def config(name: str = "nc-w", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "HarvesterConfig",
        "metadata": {"name": name, "namespace": "fleet-default"},
        "diskInfo": DISKS,
        "networkInfo": CARDS,
        **fields,
    }


async def result_of(*documents: dict[str, Any]) -> CheckResult:
    (result,) = await check(documents)
    return result


def facts(result: CheckResult) -> list[str]:
    return [problem.message for problem in result.problems]


class Harvester(MemoryMachines):
    """Answers every question with `answer`: problems, or an error to raise."""

    def __init__(self, answer: Sequence[Problem] | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []  # the credentials

    async def check(self, specs: Sequence[MachineSpec]) -> list[Problem]:
        self.asked += [spec.credential for spec in specs]
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer)


async def test_a_sound_manifest_has_no_problems():
    assert facts(await result_of(cluster(), config())) == []


async def test_errors_in_cluster_and_configs_are_told_together_by_config_and_pool():
    result = await result_of(cluster(kubernetesVersion="latest"), config(cpuCount="four"))

    version, count = facts(result)
    assert version.startswith("spec.kubernetesVersion is 'latest'")
    assert count.startswith("HarvesterConfig nc-w (pool w): cpuCount is 'four'")


@pytest.mark.parametrize("spec", [[], "x", {"rkeConfig": {"machineSelectorConfig": [{"config": "x"}]}}])
async def test_a_cluster_of_the_wrong_shape_is_told_and_its_configs_still_judged(spec: Any):
    told = facts((await check([{**cluster(), "spec": spec}, config(cpuCount="0")]))[-1])

    assert told == ["HarvesterConfig nc-w (no pool names it): cpuCount is 0"]


async def test_an_unknown_field_of_a_config_is_refused_with_the_nearest_that_is_known():
    (problem,) = (await result_of(cluster(), config(cpuCuont=4))).errors

    assert problem.message == "HarvesterConfig nc-w (pool w): cpuCuont is not a field of HarvesterConfig"
    assert problem.hint == "did you mean cpuCount?"


def a_pool(**fields: Any) -> dict[str, Any]:
    return {
        "name": "w",
        "etcdRole": True,
        "controlPlaneRole": True,
        "machineConfigRef": {"name": "nc-w"},
        **fields,
    }


@pytest.mark.parametrize(
    ("spec", "path", "near"),
    [
        ({"kubernetsVersion": "x"}, "spec.kubernetsVersion", "kubernetesVersion"),
        (
            {"rkeConfig": {"machinePools": [a_pool(quantitty=2)]}},
            "spec.rkeConfig.machinePools[0].quantitty",
            "quantity",
        ),
        (
            {"rkeConfig": {"machinePools": [a_pool(taints=[{"key": "a", "efect": "NoExecute"}])]}},
            "spec.rkeConfig.machinePools[0].taints[0].efect",
            "effect",
        ),
        (
            {
                "rkeConfig": {
                    "machinePools": [a_pool()],
                    "registries": {"configs": {"r": {"authSecretName": "s"}}},
                }
            },
            "spec.rkeConfig.registries.configs.r.authSecretName",
            "authConfigSecretName",
        ),
    ],
)
async def test_an_unknown_field_of_a_cluster_is_refused_at_every_level(
    spec: dict[str, Any], path: str, near: str
):
    errors = (await result_of(cluster(**spec), config())).errors

    assert [(one.message, one.hint) for one in errors] == [
        (f"{path} is not a field of Cluster", f"did you mean {near}?")
    ]


def a_rke(**fields: Any) -> dict[str, Any]:
    return {"rkeConfig": {"machinePools": [a_pool()], **fields}}


@pytest.mark.parametrize(
    ("spec", "path", "hint"),
    [
        ({"networkConfig": {"plugin": "canal"}}, "spec.networkConfig", "the network plugin is the key cni in spec.rkeConfig.machineGlobalConfig"),
        ({"chartValues": {}}, "spec.chartValues", "it belongs at spec.rkeConfig.chartValues"),
        ({"machinePools": []}, "spec.machinePools", "it belongs at spec.rkeConfig.machinePools"),
        ({"machine_global_config": {}}, "spec.machine_global_config", "it belongs at spec.rkeConfig.machineGlobalConfig"),
        (a_rke(controlPlaneConfig={"cni": "canal"}), "spec.rkeConfig.controlPlaneConfig", "it is spec.rkeConfig.machineGlobalConfig since Rancher 2.6"),
        (a_rke(workerConfig=[{"config": {}}]), "spec.rkeConfig.workerConfig", "it is spec.rkeConfig.machineSelectorConfig since Rancher 2.6"),
        ({"rkeConfig": {"machinePools": [a_pool(hostnamePrefix="prod-")]}}, "spec.rkeConfig.machinePools[0].hostnamePrefix", "remove it, the name of a machine begins with those of the Cluster and of its pool"),
        ({"defaultPodSecurityPolicyTemplateName": ""}, "spec.defaultPodSecurityPolicyTemplateName", "remove it, Kubernetes has no PodSecurityPolicy since 1.25"),
        ({"quantity": 3}, "spec.quantity", "it belongs at spec.rkeConfig.machinePools[].quantity"),
        ({"cpuCount": "2"}, "spec.cpuCount", "it is a field of HarvesterConfig: cpuCount"),
        ({"cni": "canal"}, "spec.cni", "it is a configuration key of the distribution: write cni in spec.rkeConfig.machineGlobalConfig"),
        (a_rke(kubernetesVersion="v1.35.1+rke2r1"), "spec.rkeConfig.kubernetesVersion", "it belongs at spec.kubernetesVersion"),
        (a_rke(**{"tls-san": ["a"]}), "spec.rkeConfig.tls-san", "it is a configuration key of the distribution: write tls-san in spec.rkeConfig.machineGlobalConfig"),
        (a_rke(**{"flannel-backend": "vxlan"}), "spec.rkeConfig.flannel-backend", "it is a configuration key of the distribution: write flannel-backend in spec.rkeConfig.machineGlobalConfig"),
        (a_rke(s3={"bucket": "b"}), "spec.rkeConfig.s3", "it belongs at spec.rkeConfig.etcd.s3"),
        (a_rke(machineSelectorConfig=[{"cni": "canal"}]), "spec.rkeConfig.machineSelectorConfig[0].cni", "it is a configuration key of the distribution: write cni in config of that entry of spec.rkeConfig.machineSelectorConfig"),
        ({"rkeConfig": {"machinePools": [a_pool(machineConfigRef={"kind": "HarvesterConfig", "name": "nc-w", "labels": {}})]}}, "spec.rkeConfig.machinePools[0].machineConfigRef.labels", "it belongs at spec.rkeConfig.machinePools[].labels"),
    ],
)  # fmt: skip
async def test_a_field_in_the_wrong_place_is_refused_with_the_place_where_it_belongs(
    spec: dict[str, Any], path: str, hint: str
):
    errors = (await result_of(cluster(**spec), config())).errors

    assert (f"{path} is not a field of Cluster", hint) in [(one.message, one.hint) for one in errors]


@pytest.mark.parametrize(
    ("fields", "path", "hint"),
    [
        ({"spec": {"cpuCount": "8", "memorySize": "16", "vmNamespace": "default", "diskSize": "40"}}, "spec", "write cpuCount, memorySize, vmNamespace, diskSize at the top level, beside metadata"),
        ({"namespace": "default"}, "namespace", "the namespace of the VMs is vmNamespace"),
        ({"diskStorageClassName": "longhorn"}, "diskStorageClassName", "it is the storageClassName of a disk in diskInfo here"),
        ({"networkConfig": {"address": "10.0.0.5"}}, "networkConfig", "addresses are networkData here, in cloud-init's format"),
        ({"quantity": 3}, "quantity", "it is a field of Cluster: spec.rkeConfig.machinePools[].quantity"),
        ({"cpu_count": "2"}, "cpu_count", "it belongs at cpuCount"),
        ({"type": "rke-machine-config.cattle.io.harvesterconfig"}, "type", "remove it, it is written by Rancher's own API at /v1; apiVersion and kind say what the object is"),
    ],
)  # fmt: skip
async def test_a_field_of_a_machine_config_in_the_wrong_place_is_refused_with_its_place(
    fields: dict[str, Any], path: str, hint: str
):
    errors = (await result_of(cluster(), config(**fields))).errors

    told = [(one.message.rpartition(": ")[2], one.hint) for one in errors]
    assert (f"{path} is not a field of HarvesterConfig", hint) in told


async def test_of_a_machine_config_below_spec_all_that_is_unknown_is_told_at_once():
    """As tutorials write it."""
    spec = {
        "clusterName": "local",
        "namespace": "default",
        "diskStorageClassName": "longhorn",
        "cpuCount": "4",
    }

    errors = (await result_of(cluster(), config(spec=spec))).errors

    told = [one.message.rpartition(": ")[2].partition(" is not")[0] for one in errors]
    assert told == ["spec", "spec.namespace", "spec.diskStorageClassName"]


async def test_of_a_machine_config_below_spec_what_is_wrong_is_told_as_if_its_fields_were_in_place():
    spec = {
        "clusterName": "local",
        "imageName": "default/leap",
        "diskSize": "40",
        "networkName": "default/vlan",
        "cpuCount": "many",
    }
    below = {**config(spec=spec), "diskInfo": "", "networkInfo": ""}

    for documents in ([cluster(), below], [below]):
        (result,) = await check(documents)
        told = [one.message.rpartition(": ")[2] for one in result.errors]
        assert [message.partition(",")[0] for message in told] == [
            "spec is not a field of HarvesterConfig",
            "cpuCount is 'many'",
        ]
        (hint, _) = (one.hint for one in result.errors)
        assert hint == "write imageName, diskSize, networkName, cpuCount at the top level, beside metadata"
        assert any("clusterName has no effect" in fact for fact in facts(result))


@pytest.mark.parametrize(
    ("rke", "words", "hint"),
    [
        ({"chartValues": {"global": {"cattle": {"clusterName": "prod"}}}}, "'global' is a value of a chart, and no chart", "below the name of the chart"),
        ({"chartValues": {"rke2-canal": {"valuesContent": "a: b"}}}, "chartValues[rke2-canal] has valuesContent in place of values", "there themselves"),
        ({"chartValues": {"rke2-canal": {"spec": {"valuesContent": "a: b"}}}}, "chartValues[rke2-canal] has spec in place of values", "there themselves"),
        ({"chartValues": {"cilium": {"operator": {}}}}, "v1.34.7+rke2r1 brings no chart cilium", "write rke2-cilium"),
        ({"chartValues": {"harvester-cloud-provider": {"clusterName": "prod"}}}, "harvester-cloud-provider].clusterName is no value of the chart", "global.cattle.clusterName"),
        ({"machineGlobalConfig": {"registries": {"mirrors": {}}}}, "machineGlobalConfig has registries, which is a field of its own", "write it as spec.rkeConfig.registries"),
    ],
)  # fmt: skip
async def test_values_one_level_off_are_told_with_the_level_where_they_belong(
    rke: dict[str, Any], words: str, hint: str
):
    result = await result_of(cluster(**a_rke(**rke)), config())

    assert [one for one in result.problems if words in one.message and hint in one.hint]


async def test_values_for_what_is_no_chart_in_k3s_are_told_without_a_name_of_rke2():
    spec = a_rke(chartValues={"coredns": {"a": 1}, "traefik": {"b": 2}}) | {
        "kubernetesVersion": "v1.34.7+k3s1"
    }

    result = await result_of(cluster(**spec), config())

    (found,) = [one for one in result.problems if "chartValues" in one.field]
    assert "v1.34.7+k3s1 brings no chart coredns" in found.message
    assert found.hint == "install a HelmChart of this name with additionalManifest"


@pytest.mark.parametrize(
    ("manifest", "warnings"),
    [
        ("apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: grafana}\n", 0),
        ('{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart", "metadata": {"name": "grafana"}}]}', 0),
        ("apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: grafana-agent}\n", 1),
        ("# no grafana here\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", 1),
    ],
)  # fmt: skip
async def test_a_chart_that_the_users_own_manifest_installs_may_have_values(manifest: str, warnings: int):
    rke = a_rke(chartValues={"grafana": {"a": 1}}, additionalManifest=manifest)

    told = (await result_of(cluster(**rke), config())).problems

    assert ["brings no chart grafana" in one.message for one in told] == [True] * warnings


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringDate": {"a": "b"}},
            "stringDate",
        ),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "label": {}}}, "metadata.label"),
        (
            {
                "apiVersion": "management.cattle.io/v3",
                "kind": "NodeDriver",
                "metadata": {"name": "d"},
                "spec": {"active": True, "url": "https://x", "cheksum": "0"},
            },
            "spec.cheksum",
        ),
    ],
)
async def test_an_unknown_field_of_another_object_is_refused(document: dict[str, Any], path: str):
    _, result = await check([cluster(), config(), document])

    assert facts(result) == [f"{path} is not a field of {document['kind']}"]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"cluster-cidr": "10.42.0.0/99"}, "cluster-cidr is '10.42.0.0/99', which is not a network"),
        ({"service-cidr": "10.42.128.0/17"}, "cluster-cidr and service-cidr have addresses in common"),
        ({"cluster-dns": "10.44.0.10"}, "cluster-dns 10.44.0.10 is not in service-cidr"),
        (
            {"disable-kube-proxy": "ture"},
            "disable-kube-proxy in spec.rkeConfig.machineGlobalConfig is 'ture', which is neither true nor false",
        ),
        *(
            ({key: value}, f"{key} in spec.rkeConfig.machineGlobalConfig {fault}")
            for key, value, fault in (
                ("kubelet-arg", {"max-pods": 250}, "is a map, and takes a list of texts"),
                ("node-label", [{"tier": "db"}], "has a map as an entry, and takes texts"),
                ("etcd-snapshot-retention", "many", "is 'many', which is no number"),
                ("cluster-cidr", {"ipv4": "10.42.0.0/16"}, "is a map, and takes a list of texts"),
                ("cluster-cidr", True, "has true, no text"),
                ("cluster-dns", {"a": "10.43.0.10"}, "is a map, and takes a list of texts"),
                ("cluster-domain", {"a": "b"}, "is a map, and takes one text"),
                ("cni", {"name": "canal"}, "is a map, and takes a list of texts"),
                ("cni", True, "has true, no text"),
                ("cloud-provider-name", {"name": "harvester"}, "is a map, and takes one text"),
                ("cloud-provider-name", True, "is true, which is no text"),
                ("cloud-provider-config", {"a": "b"}, "is a map, and takes one text"),
                ("disable", {"traefik": True}, "is a map, and takes a list of texts"),
            )
        ),
    ],
)
async def test_what_the_distribution_would_not_start_with_is_refused(keys: dict[str, Any], told: str):
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    result = await result_of(
        cluster(rkeConfig={"machinePools": pools, "machineGlobalConfig": keys}), config()
    )

    assert [one.message for one in result.errors] == [told]


@pytest.mark.parametrize("version", ["v1.34.7+rke2r1", "v1.34.7+k3s1"])
async def test_a_value_of_another_kind_in_a_selectors_entry_is_told_with_its_place(version: str):
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    entries = [{"config": {"kubelet-arg": {"v": 4}, "write-kubeconfig-mode": 420}}]
    rke = {"machinePools": pools, "machineSelectorConfig": entries}
    result = await result_of(cluster(kubernetesVersion=version, rkeConfig=rke), config())

    place = "spec.rkeConfig.machineSelectorConfig[0].config"
    told = [(one.severity, one.field, one.hint) for one in result.problems if place in one.field]
    assert told == [
        ("error", f"{place}.kubelet-arg", "write kubelet-arg: [v=4]"),
        (
            "warning",
            f"{place}.write-kubeconfig-mode",
            'write "0644" if that is meant, else "0420", with quotes',
        ),
    ]
    assert len(result.errors) == 1


@pytest.mark.parametrize(
    ("key", "value", "shown", "cure"),
    [
        (
            "cluster-cidr",
            "10.52.0.0/16, fd00:42::/56",
            "'10.52.0.0/16, fd00:42::/56'",
            "10.52.0.0/16,fd00:42::/56",
        ),
        ("service-cidr", ["10.53.0.0/16 "], "'10.53.0.0/16 '", "10.53.0.0/16"),
        ("cluster-dns", " 10.43.0.10", "' 10.43.0.10'", "10.43.0.10"),
    ],
)
async def test_white_space_in_an_address_is_refused_with_what_to_write(
    key: str, value: Any, shown: str, cure: str
):
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    result = await result_of(
        cluster(rkeConfig={"machinePools": pools, "machineGlobalConfig": {key: value}}), config()
    )

    told = f"{key} is {shown}, with white space, and a server does not start with it"
    assert [(one.message, one.hint) for one in result.errors] == [(told, f"write {cure}")]


@pytest.mark.parametrize("value", [True, False, "true", "FALSE", 1, "0", None])
async def test_each_way_to_write_a_switch_is_taken(value: Any):
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    rke = {"machinePools": pools, "machineGlobalConfig": {"debug": value}}

    assert (await result_of(cluster(rkeConfig=rke), config())).problems == ()


@pytest.mark.parametrize(
    ("keys", "told", "cure"),
    [
        ({"cnii": "calico"}, "'cnii' is no key of RKE2, which skips it", "did you mean 'cni'?"),
        (
            {"flannel-backend": "none"},
            "'flannel-backend' is a key of K3s, which RKE2 skips",
            "remove it",
        ),
    ],
)
@pytest.mark.parametrize("place", ["machineGlobalConfig", "machineSelectorConfig"])
async def test_a_key_that_the_distribution_does_not_know_is_a_warning(
    keys: dict[str, str], told: str, cure: str, place: str
):
    """No error: a patch release may have a key that no list has yet."""
    value = keys if place == "machineGlobalConfig" else [{"config": keys}]
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    result = await result_of(cluster(rkeConfig={"machinePools": pools, place: value}), config())

    assert [(one.severity, one.message, one.hint) for one in result.problems] == [("warning", told, cure)]


async def test_a_key_that_cloud_init_does_not_know_is_a_warning():
    data = "#cloud-config\npackage: [vim]\nruncmd: [[true]]\nfoo_bar_baz: 1\n"
    result = await result_of(cluster(), config(userData=data))

    label, effect = (
        "HarvesterConfig nc-w (pool w): userData has the key",
        "which cloud-init does not know, so it has no effect",
    )
    assert [(one.severity, one.message, one.hint) for one in result.problems] == [
        ("warning", f"{label} 'package', {effect}", "did you mean 'packages'?"),
        ("warning", f"{label} 'foo_bar_baz', {effect}", "correct its spelling, or leave it out"),
    ]


async def test_networks_of_both_families_are_no_problem():
    keys = {"cluster-cidr": "10.42.0.0/16,fd00:42::/56", "service-cidr": ["10.43.0.0/16", "fd00:43::/112"]}
    result = await result_of(
        cluster(rkeConfig={"machinePools": [a_pool()], "machineGlobalConfig": keys}), config()
    )

    assert result.errors == ()


@pytest.mark.parametrize(
    ("taint", "told"),
    [
        ({"key": "no key", "effect": "NoSchedule"}, "key is 'no key', which no taint may have"),
        ({"key": "a", "value": "b c", "effect": "NoSchedule"}, "value is 'b c', which no taint may have"),
        ({"key": "a", "effect": "NoRun"}, "effect is 'NoRun', which is no effect"),
    ],
)
async def test_a_taint_that_no_node_may_have_is_refused(taint: dict[str, str], told: str):
    result = await result_of(cluster(rkeConfig={"machinePools": [a_pool(taints=[taint])]}), config())

    assert [one.message for one in result.errors] == [f"spec.rkeConfig.machinePools[0].taints[0].{told}"]


STATIC_V1 = """
version: 1
config:
- type: physical
  name: eth0
  subnets: [{type: static, address: 10.0.0.5/24, gateway: 10.0.0.1, dns_nameservers: [10.0.0.2]}]
"""
STATIC_V2 = """
version: 2
ethernets: {eth0: {addresses: [10.0.0.5/24], nameservers: {addresses: [10.0.0.2]}}}
"""


@pytest.mark.parametrize("data", [STATIC_V1, STATIC_V2], ids=["version 1", "version 2"])
@pytest.mark.parametrize(("quantity", "refused"), [(1, False), (3, True)])
async def test_one_static_address_is_for_one_machine(data: str, quantity: int, refused: bool):
    result = await result_of(
        cluster(rkeConfig={"machinePools": [a_pool(quantity=quantity)]}), config(networkData=data)
    )

    message = "HarvesterConfig nc-w (pool w): networkData gives each of 3 machines the address 10.0.0.5"
    assert [one.message for one in result.errors] == [message] * refused


async def test_disks_without_any_image_have_nothing_to_boot_from():
    result = await result_of(cluster(), config(diskInfo={"disks": [{"storageClassName": "a", "size": 40}]}))

    assert [one.message for one in result.problems] == [
        "HarvesterConfig nc-w (pool w): no disk in diskInfo has an image, so there is nothing to boot from"
    ]


async def test_a_field_of_ranchers_that_has_no_effect_is_a_warning():
    result = await result_of(cluster(enableNetworkPolicy=True), config(common={"labels": {"a": "b"}}))

    assert [(one.severity, one.message) for one in result.problems] == [
        ("warning", "spec.enableNetworkPolicy has no effect: projects are Rancher's"),
        (
            "warning",
            "HarvesterConfig nc-w: common has no effect: labels, taints and the credential of machines are those of the "
            "machine pool",
        ),
    ]


@pytest.mark.parametrize(
    ("shown", "told"), [("w", []), ("W", ["spec.rkeConfig.machinePools[0].displayName"])]
)
async def test_a_pool_shown_by_its_own_name_as_terraform_writes_it_is_nothing_to_tell(
    shown: str, told: list[str]
):
    result = await result_of(cluster(rkeConfig={"machinePools": [a_pool(displayName=shown)]}), config())

    assert [fact.partition(" has no effect")[0] for fact in facts(result)] == told


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        ([cluster(name="Bad_Name"), config()], "'Bad_Name'"),
        ([cluster("Bad_Pool"), config("nc-Bad_Pool")], "'Bad_Pool'"),
        ([cluster(), config(diskInfo="{broken")], "diskInfo is not JSON"),
        ([cluster(), config(diskInfo="")], "diskInfo and imageName are not set"),
        ([cluster("a", "b"), config("nc-a"), config("nc-b", networkInfo="")], "nc-b (pool b): networkInfo"),
        ([cluster(), config(userData="aGVsbG8")], "is neither base64 nor cloud-config"),
        ([cluster(rkeConfig={"machinePool": []})], "machinePool is not a field of Cluster"),
        (
            [
                cluster(
                    rkeConfig={
                        "machinePools": [
                            {**a_pool(), "machineConfigref": {"name": "nc-w"}, "machineConfigRef": None}
                        ]
                    }
                )
            ],
            "machineConfigref is not a field of Cluster",
        ),
        ([cluster(rkeConfig={"machinePools": [a_pool(quantity="1")]}), config()], "quantity is '1'"),
        ([cluster(rkeConfig={"machinePools": [a_pool(etcdRole="yes")]}), config()], "etcdRole is 'yes'"),
        (
            [
                cluster(),
                config(
                    addressPools=[
                        {
                            "network": "default/vlan",
                            "addresses": "10.1.0.0/24",
                            "gateway": "10.1.0.1",
                            "nameservers": ["10.1.0.1"],
                            "prefix": 24,
                        }
                    ]
                ),
            ],
            "addresses is '10.1.0.0/24', which is not a list",
        ),
    ],
)
async def test_one_mistake_is_told_once(documents: list[dict[str, Any]], told: str):
    (message,) = facts(await result_of(*documents))

    assert told in message


async def test_all_roles_that_are_no_flags_are_told_and_nothing_that_follows_from_them():
    pool = a_pool(etcdRole="yes", controlPlaneRole="On", workerRole="maybe")

    result = await result_of(cluster(rkeConfig={"machinePools": [pool]}), config())

    assert [(one.field.rpartition(".")[2], one.hint) for one in result.problems] == [
        ("etcdRole", "write true, without quotes"),
        ("controlPlaneRole", "write true, without quotes"),
        ("workerRole", "write true or false there"),
    ]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("7", "write 7, without quotes"),
        ("007", "write 7, without quotes"),
        ("seven", "write a whole number there"),
        (["7"], "write a whole number there"),
        (True, "write a whole number there"),
        ("7" * 65, "write a whole number there"),
    ],
)
async def test_a_number_in_quotes_is_answered_with_the_number(given: Any, hint: str):
    result = await result_of(cluster(rkeConfig={"machinePools": [a_pool(quantity=given)]}), config())

    assert [one.hint for one in result.problems] == [hint]


@pytest.mark.parametrize(
    ("given", "shown", "hint"),
    [
        ("a/b", "'a/b'", "write a:b"),
        ("a/b/c", "'a/b/c'", "write namespace:name of the credential Secret"),
        ("a:b:c", "'a:b:c'", "write namespace:name of the credential Secret"),
        ("A_B", "'A_B'", "write namespace:name of the credential Secret"),
    ],
)
async def test_a_credential_is_told_as_it_was_written(given: str, shown: str, hint: str):
    result = await result_of(cluster(cloudCredentialSecretName=given), config())

    assert [(one.message, one.hint) for one in result.problems] == [
        (f"spec.cloudCredentialSecretName is {shown}", hint)
    ]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("1.34.7+k3s1", "write v1.34.7+k3s1"),
        ("v1.34.7", "write for example v1.34.7+rke2r1 or v1.34.7+k3s1"),
        ("1.34.7", "write for example v1.34.7+rke2r1 or v1.34.7+k3s1"),
        ("v1.34", "write for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
        ("v1.34.7+eks", "write for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
        ("latest", "write for example v1.35.1+rke2r1 or v1.35.1+k3s1"),
    ],
)
async def test_a_version_that_is_none_is_answered_with_the_one_that_was_meant(given: str, hint: str):
    result = await result_of(cluster(kubernetesVersion=given), config())

    assert [one.hint for one in result.problems if one.field == "spec.kubernetesVersion"] == [hint]


async def test_a_credential_that_leads_nowhere_is_told_once():
    lost = Harvester(InfrastructureUnknown("credential a:b does not exist", "create it"))
    documents = [cluster("a", "b"), config("nc-a"), config("nc-b")]

    (result,) = await check(documents, machines=lost)

    assert facts(result) == ["credential a:b does not exist"]
    assert not result.harvester_asked
    assert result.not_asked == ""


async def test_what_harvester_refuses_is_told_by_config_and_pool():
    refusing = Harvester(MachineRefused([Problem("the quota is used up", "raise it")]))

    (result,) = await check([cluster(), config()], machines=refusing)

    assert facts(result) == ["HarvesterConfig nc-w (pool w): the quota is used up"]


@pytest.mark.parametrize("single_credential", [False, True])
async def test_a_problem_of_a_config_that_pools_of_two_credentials_share_is_told_once_with_both(
    single_credential: bool,
):
    raw = cluster("v", "w")
    for place, pool in enumerate(raw["spec"]["rkeConfig"]["machinePools"]):
        pool |= {"cloudCredentialSecretName": f"a:{place}", "machineConfigRef": {"name": "nc-w"}}
    harvester = Harvester([Problem("image x does not exist", "upload it")])

    (result,) = await check(
        [raw, config(cpuCount="four")], machines=harvester, single_credential=single_credential
    )

    assert [one.partition(": ")[0] for one in facts(result)] == ["HarvesterConfig nc-w (pools v, w)"] * 2
    assert harvester.asked == (["kubeconfig of --harvester"] if single_credential else ["a:0", "a:1"])


async def test_addresses_of_a_config_that_two_pools_share_are_told_once():
    raw = cluster("v", "w")
    for pool in raw["spec"]["rkeConfig"]["machinePools"]:
        pool["machineConfigRef"] = {"name": "nc-w"}
    entry = {"network": "default/vlan", "addresses": ["10.42.0.2-10.42.0.9"], "prefix": 24}

    reading = read_cluster(raw, [config(addressPools=[entry])])

    assert ["in common" in one.message for one in reading.problems] == [True]


async def test_harvester_is_not_asked_with_a_credential_that_was_found_wrong_already():
    answering = Harvester([Problem("no", "no")])

    (result,) = await check([cluster(cloudCredentialSecretName="x:"), config()], machines=answering)

    assert facts(result) == ["spec.cloudCredentialSecretName is 'x:'"]
    assert not result.harvester_asked


def of_another_driver(*, beside: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A cluster whose pool `w` names the kind NoopConfig, and its configs; pools in `beside` are Harvester's."""
    foreign = cluster("w", *beside)
    foreign["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"] = {
        "kind": "NoopConfig",
        "name": "nc-w",
    }
    made = {**config(), "kind": "NoopConfig", "diskInfo": "whatever"}
    return [foreign, made, *(config(f"nc-{pool}") for pool in beside)]


async def test_a_pool_of_another_driver_is_not_called_asked_about():
    (alone,) = await check(of_another_driver(), machines=Harvester([]))
    (mixed,) = await check(of_another_driver(beside=("h",)))

    assert (alone.harvester_asked, alone.unchecked_kinds, alone.not_asked) == (
        False,
        ("NoopConfig (pool w)",),
        "",
    )
    assert (mixed.harvester_asked, mixed.unchecked_kinds, mixed.not_asked) == (
        False,
        ("NoopConfig (pool w)",),
        "neither --harvester nor a management API is given",
    )


async def test_the_credential_of_another_driver_is_looked_for_where_there_is_a_manager():
    asked = []

    async def nothing(driver: str, credential: str) -> dict[str, str]:
        asked.append((driver, credential))
        raise NotFound('secrets "b" not found')

    (result,) = await check(of_another_driver(), fields_of=nothing)
    allowed = {"windrow.io/allowed-namespaces": "fleet-default"}
    metadata = {"namespace": "a", "name": "b", "annotations": allowed}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    (brought,) = await check([secret, *of_another_driver()], fields_of=nothing)

    assert asked == [("noop", "a:b")]
    assert facts(result) == [
        'NoopConfig (pool w): credential Secret a/b cannot be read: secrets "b" not found',
    ]
    assert facts(brought) == []


async def test_a_kind_in_other_case_is_no_other_drivers_without_a_management_api():
    raw = cluster()
    raw["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"]["kind"] = "harvesterconfig"
    (result, _) = await check([raw, config()])

    (found,) = result.errors
    assert "kind is harvesterconfig, and upper and lower case count" in found.message
    assert found.hint == "write HarvesterConfig"


async def test_a_namespace_that_may_not_be_read_is_not_told():
    async def forbidden(ref: ObjectRef) -> None:
        raise Forbidden("no", status=403)

    (result,) = await check([cluster(), config()], find_namespace=forbidden)

    assert result.problems == ()


async def test_the_kind_of_another_driver_is_assumed_to_exist_without_a_management_api():
    foreign = cluster("w")
    pool = foreign["spec"]["rkeConfig"]["machinePools"][0]
    pool["machineConfigRef"] = {"kind": "NoopConfig", "name": "nc-w"}
    made = {**config(), "kind": "NoopConfig", "diskInfo": "whatever"}

    assert (await result_of(foreign, made)).problems == ()
    assert any("NoopConfig" in message for message in facts(await result_of(foreign)))
    assert any("NoopConfig" in message for message in facts((await check([foreign, config()]))[0]))


async def test_warnings_of_the_distribution_are_those_of_the_manager():
    documents = [cluster(), config()]
    documents[0]["spec"]["rkeConfig"]["machineGlobalConfig"]["profile"] = "cis"

    (problem,) = (await result_of(*documents)).problems

    assert problem.severity == "warning"
    assert "profile 'cis' needs a user 'etcd'" in problem.message


async def test_a_credential_of_another_namespace_must_allow_the_clusters() -> None:
    secret: dict[str, Any] = {"kind": "Secret", "metadata": {"name": "b", "namespace": "a"}}
    allowed = {"annotations": {"windrow.io/allowed-namespaces": "fleet-default"}}

    async def find(ref: ObjectRef) -> dict[str, Any] | None:
        return secret

    (of_document,) = await check([cluster(), config(), secret])
    (of_server,) = await check([cluster(), config()], find_secret=find)
    (good,) = await check(
        [cluster(), config(), {**secret, "metadata": {**secret["metadata"], **allowed}}], find_secret=find
    )

    sentence = "Secret a/b does not allow its use from namespace fleet-default"
    assert sentence in facts(of_document)
    assert sentence in facts(of_server)
    assert sentence not in facts(good)
    (cure,) = (one.hint for one in of_server.problems if one.message == sentence)
    assert cure == (
        "kubectl -n a annotate --overwrite secret b windrow.io/allowed-namespaces=fleet-default "
        "(a list with commas; keep the namespaces that it has)"
    )


REGISTRY = {"configs": {"registry.example.com": {"authConfigSecretName": "pull"}}}
S3 = {"s3": {"cloudCredentialName": "cc-s3"}}


@pytest.mark.parametrize(
    ("fields", "secret", "told"),
    [
        (
            {"registries": REGISTRY},
            "pull",
            "registry registry.example.com takes its credentials from Secret fleet-default/pull, which does not exist",
        ),
        (
            {"etcd": S3},
            "cc-s3",
            "etcd snapshots go to S3 with the credential in Secret fleet-default/cc-s3, which does not exist",
        ),
    ],
)
async def test_a_secret_for_a_registry_or_s3_must_exist_or_be_in_the_manifest(
    fields: dict[str, Any], secret: str, told: str
) -> None:
    raw = cluster()
    raw["spec"]["rkeConfig"] |= fields
    data = {
        "username": "u",
        "password": "p",
        "s3credentialConfig-accessKey": "a",
        "s3credentialConfig-secretKey": "s",
    }
    metadata = {"name": secret, "namespace": "fleet-default"}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}

    async def find_none(ref: ObjectRef) -> None:
        return None

    async def may_not(ref: ObjectRef) -> None:
        raise Forbidden("secrets is forbidden", status=403)

    (absent,) = await check([raw, config()], find_secret=find_none)
    (given,) = await check([raw, config(), made], find_secret=find_none)
    (unreadable,) = await check([raw, config()], find_secret=may_not)

    assert [one.message for one in absent.errors] == [told]
    assert (given.errors, unreadable.errors) == ((), ())


async def test_versions_are_compared_once_with_the_harvester_of_a_credential():
    asked: list[str] = []

    async def versions(credential: str) -> HarvesterVersions:
        asked.append(credential)
        return HarvesterVersions("v1.1.2")

    documents = [cluster("w", "v"), config(), config("nc-v")]
    (result,) = await check(documents, machines=Harvester([]), read_versions=versions)

    assert asked == ["a:b"]
    (error,) = result.errors
    assert error.field == "spec.kubernetesVersion"
    assert "wants Harvester v1.2.0 or later, and this is v1.1.2" in error.message
    assert result.compared_with == "2026-08-21"
    assert {one.result for one in result.compared} == {"fits", "refused"}


async def test_a_harvester_that_may_not_be_asked_for_its_release_is_a_warning():
    async def versions(credential: str) -> HarvesterVersions:
        raise Forbidden("settings.harvesterhci.io is forbidden", status=403)

    (result,) = await check([cluster(), config()], machines=Harvester([]), read_versions=versions)

    (problem,) = result.problems
    assert problem.severity == "warning"
    assert "the release of Harvester is not known: settings.harvesterhci.io is forbidden" in problem.message


async def test_a_harvester_that_cannot_be_reached_any_more_is_a_problem_and_no_defect():
    """It was when the machines were checked."""
    away = InfrastructureUnknown("Harvester does not answer", "make it reachable")

    async def versions(credential: str) -> HarvesterVersions:
        raise away

    async def endpoint(wanted: Any) -> list[Problem]:
        raise away

    document = cluster()
    document["metadata"]["annotations"] = {
        "windrow.io/endpoint-mode": "loadBalancer",
        "windrow.io/endpoint-ip-pool": "endpoints",
    }
    (result,) = await check(
        [document, config()], machines=Harvester([]), read_versions=versions, ask_endpoint=endpoint
    )

    (warning,) = [one for one in result.problems if one.severity == "warning"]
    assert "the release of Harvester is not known: Harvester does not answer" in warning.message
    (error,) = result.errors
    assert (error.message, error.hint) == (away.message, away.hint)


@pytest.mark.parametrize(
    ("pool", "last", "holder", "told"),
    [
        ("absent", 10, "", ["is absent, and there is no such IPPool on Harvester"]),
        ("endpoints", 10, "", []),
        ("endpoints", 10, "default/web-1", ["has 0 free addresses, and the endpoint needs 1"]),
        # Its own, of a manifest that is applied already.
        ("endpoints", 10, "default/orchard-api-x5x7z", []),
    ],
)
def test_the_pool_of_a_load_balancer_must_exist_and_have_an_address(
    pool: str, last: int, holder: str, told: list[str]
) -> None:
    document = cluster()
    document["metadata"]["annotations"] = {
        "windrow.io/endpoint-mode": "loadBalancer",
        "windrow.io/endpoint-ip-pool": pool,
    }
    ranges = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": f"10.1.0.{last}"}]

    async def main() -> CheckResult:
        async with simulation(with_manager=False) as sim:
            client = sim.harvester_client
            raw = await client.create(IP_POOL, new_object(IP_POOL, "endpoints", spec={"ranges": ranges}))
            if holder:
                held = {"allocated": {"10.1.0.10": holder}, "lastAllocated": "10.1.0.10"}
                status = held | {"available": 0, "total": 1}
                await client.json_patch(
                    IP_POOL.ref(name_of(raw)), [{"op": "add", "path": "/status", "value": status}]
                )
            (result,) = await check(
                [document, config()],
                machines=Harvester([]),
                ask_endpoint=partial(check_all_pools, client_for(client), get_config),
            )
            return result

    found = [one.message for one in run_driven(main()).errors]
    assert len(found) == len(told)
    assert all(part in one for part, one in zip(told, found, strict=True))


def client_for(client: Client) -> Callable[[str], Awaitable[Client]]:
    async def get_client(credential: str) -> Client:
        assert credential == "a:b"
        return client

    return get_client


async def get_config(credential: str) -> ClientConfig:
    assert credential == "a:b"
    return ClientConfig("https://10.0.0.1:6443")


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        (None, ["HarvesterConfig fleet-default/nc-w: addressPools[0].ipPool: there is no IPPool machines"]),
        ([], []),
        (
            [{"project": "*", "namespace": "*", "guestCluster": "*"}],
            ["IPPool machines is for load balancers"],
        ),
    ],
)
def test_the_ip_pool_of_machines_must_exist_and_be_theirs_alone(scope: Any, told: list[str]) -> None:
    ranges = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.19"}]
    entry = {"network": "default/vlan", "ipPool": "machines", "nameservers": ["10.1.0.1"]}

    async def main() -> CheckResult:
        async with simulation(with_manager=False) as sim:
            client = sim.harvester_client
            if scope is not None:
                spec = {"ranges": ranges, "selector": {"scope": scope}}
                await client.create(IP_POOL, new_object(IP_POOL, "machines", spec=spec))
            (result,) = await check(
                [cluster(), config(addressPools=[entry])],
                machines=Harvester([]),
                ask_endpoint=partial(check_all_pools, client_for(client), get_config),
            )
            return result

    found = [one.message for one in run_driven(main()).errors]
    assert len(found) == len(told)
    assert all(part in one for part, one in zip(told, found, strict=True))


def pool_of(quantity: int) -> dict[str, Any]:
    return {"name": "w", "etcdRole": True, "controlPlaneRole": True, "quantity": quantity}


def claimed(identity: str, last: int, owner: str) -> IPAddress:
    """One of owner `liar` is on a server that says this identity."""
    address = f"10.1.0.{last}"
    identity += "@evil" * (owner == "liar")
    return IPAddress(f"x-{last}", "", address, 24, "default/vlan", identity, "fleet-default/m", "m", owner)


@pytest.mark.parametrize("source", ["ipPool", "addresses"])
@pytest.mark.parametrize(
    ("quantity", "claims", "told"),
    [
        (9, (), ""),
        (10, (), "has 10 addresses, and pool w asks for 10 machines"),
        (11, (), "has 10 addresses, and pool w asks for 11 machines"),
        (5, ((10, "other"), (14, "other"), (40, "other")), ""),
        (7, ((10, "other"), (14, "other"), (16, "own"), (17, "own")), ""),
        (
            9,
            ((10, "other"), (14, "other")),
            "has 10 addresses, of which others have 2, and pool w asks for 9",
        ),
        (7, ((10, "other"), (16, "own"), (17, "own"), (18, "liar"), (19, "liar")), ""),
    ],
)
def test_the_addresses_of_a_range_are_counted_less_those_that_other_clusters_have(
    source: str, quantity: int, claims: Sequence[tuple[int, str]], told: str
) -> None:
    ranges = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.19"}]
    given = {"addresses": ["10.1.0.10-10.1.0.19"], "prefix": 24, "gateway": "10.1.0.1"}
    entry = {"network": "default/vlan", "nameservers": ["10.1.0.1"]}
    entry |= {"ipPool": "machines"} if source == "ipPool" else given
    pool = {**pool_of(quantity), "machineConfigRef": {"name": "nc-w"}}

    async def main() -> CheckResult:
        async with simulation(with_manager=False) as sim:
            client = sim.harvester_client
            identity = uid_of(await client.get(IDENTITY))
            await client.create(IP_POOL, new_object(IP_POOL, "machines", spec={"ranges": ranges}))
            (result,) = await check(
                [cluster(rkeConfig={"machinePools": [pool]}), config(addressPools=[entry])],
                machines=Harvester([]),
                ask_endpoint=partial(
                    check_all_pools,
                    client_for(client),
                    get_config,
                    claims=[claimed(identity, *one) for one in claims],
                    cluster_uid="own",
                ),
            )
            return result

    found = [one for one in run_driven(main()).problems if "addressPools" in one.field]
    where = "HarvesterConfig nc-w: addressPools[0]" + " (IPPool machines)" * (source == "ipPool")
    assert [one.message.startswith(f"{where} {told}") for one in found] == [True] * bool(told)
    assert all("IPPool machines on Harvester" in one.hint for one in found) or source == "addresses"
    assert [one.hint for one in found if "wait" not in one.hint] == []


def test_an_address_that_a_load_balancer_has_of_the_machines_ip_pool_is_none_for_a_machine() -> None:
    pools = (
        AddressPool("default/vlan", (Range.parse("10.1.0.10-10.1.0.12"),), 24, ip_pool="machines", place="p"),
    )
    pool = Pool("w", 2, config_name="nc-w", address_pools=pools)
    taken = {"default/vlan": {parse_address("10.1.0.11")}, "default/other": {parse_address("10.1.0.12")}}

    (found,) = find_small_ranges([pool], taken)

    assert found.message == (
        "HarvesterConfig nc-w: p (IPPool machines) has 3 addresses, of which others have 1, and pool w asks for 2 machines"
    )
    assert found.hint.startswith("widen IPPool machines on Harvester by one or more")


async def test_a_version_that_is_refused_is_not_compared():
    assert (await result_of(cluster(kubernetesVersion="latest"), config())).compared == ()


async def test_an_annotation_of_a_machine_config_that_no_pool_names_is_told():
    alone = config("nc-alone")
    alone["metadata"]["annotations"] = {"windrow.io/remediation": "off"}

    result = await result_of(alone)

    told = (
        "metadata.annotations[windrow.io/remediation] has no effect: no HarvesterConfig has that annotation"
    )
    assert facts(result) == [f"HarvesterConfig nc-alone (no pool names it): {told}"]


async def test_the_namespaces_that_a_secret_allows_are_no_label():
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "namespace": "cattle-global-data",
            "labels": {"windrow.io/allowed-namespaces": "x"},
        },
    }

    (result,) = await check([secret])

    assert [(one.message, one.hint, one.severity) for one in result.problems] == [
        (
            "metadata.labels[windrow.io/allowed-namespaces] has no effect: it is an annotation",
            "write it in metadata.annotations",
            "warning",
        )
    ]


async def test_what_harvester_lacks_is_a_warning_where_the_cluster_waits_for_it():
    absent = Problem("image default/leap does not exist", "upload it", "diskInfo")
    wrong = config(cpuCount="four")

    (result,) = await check([cluster(), wrong], machines=Harvester([absent]), absence="warning")
    (unknown,) = await check(
        [cluster(), config()],
        machines=Harvester(InfrastructureUnknown("no answer", "wait")),
        absence="warning",
    )

    assert [(one.severity, one.message.partition(": ")[2]) for one in result.problems] == [
        ("error", "cpuCount is 'four', not a whole number"),
        ("warning", "image default/leap does not exist"),
    ]
    assert [(one.severity, one.message) for one in unknown.problems] == [("warning", "no answer")]


@pytest.mark.parametrize("role", ["etcdRol", "controlplaneRole", "workerRol"])
async def test_a_misspelt_role_is_told_once(role: str):
    document = cluster()
    (pool,) = document["spec"]["rkeConfig"]["machinePools"]
    meant = {"etcdRol": "etcdRole", "controlplaneRole": "controlPlaneRole", "workerRol": "workerRole"}[role]
    pool |= {"quantity": 3, role: pool.pop(meant, True)}
    if role == "workerRol":
        document["spec"]["rkeConfig"]["machinePools"].append(
            {"name": "x", role: pool.pop(role), "machineConfigRef": {"name": "nc-w"}}
        )

    result = await result_of(document, config())

    assert [one.hint for one in result.errors] == [f"did you mean {meant}?"]


async def test_of_a_misspelt_key_of_the_distribution_only_the_spelling_is_told():
    pools = cluster()["spec"]["rkeConfig"]["machinePools"]
    keys = {"disable-kubeproxy": True, "kublet-arg": {"max-pods": 250}}

    result = await result_of(
        cluster(rkeConfig={"machinePools": pools, "machineGlobalConfig": keys}), config()
    )

    assert result.errors == ()
    assert [one.hint for one in result.problems] == [
        "did you mean 'disable-kube-proxy'?",
        "did you mean 'kubelet-arg'?",
    ]


async def test_a_machine_config_of_a_near_name_is_named():
    result, *_ = await check([cluster("workers"), config("nc-wokers")])

    assert [one.hint for one in result.errors] == ["did you mean nc-wokers?"]


async def test_a_kind_that_only_sounds_like_harvesters_is_told():
    documents = of_another_driver()
    documents[0]["spec"]["rkeConfig"]["machinePools"][0]["machineConfigRef"]["kind"] = (
        "HarvesterMachineConfig"
    )
    documents[1]["kind"] = "HarvesterMachineConfig"

    (problem,) = (await result_of(*documents)).problems

    assert problem.severity == "warning"
    assert (
        problem.message
        == "HarvesterMachineConfig (pool w) is the machine config of another driver; Harvester's is HarvesterConfig"
    )
    assert problem.hint == "write HarvesterConfig, unless a NodeDriver has that kind"
