import pytest

from windrow.app.emulate import describe_created
from windrow.app.preload import (
    CPU_MODEL,
    HOST_DEVICE,
    IPV6_NETWORK,
    credential_secrets,
    describe_preload,
    leave_out_kubeconfigs,
    names_of,
    read_preload,
)
from windrow.harvester.resources import IMAGE, IP_POOL, KEY_PAIR, NETWORK
from windrow.kubernetes.resources import NAMESPACE, STORAGE_CLASS

CONFIG = {
    "kind": "HarvesterConfig",
    "vmNamespace": "tenant",
    "diskInfo": '{"disks":[{"imageName":"images/leap","size":40},{"storageClassName":"fast","size":10}]}',
    "networkInfo": '{"interfaces":[{"networkName":"lan"}]}',
}
CLUSTER = {
    "kind": "Cluster",
    "metadata": {"name": "c", "namespace": "fleet-default"},
    "spec": {
        "cloudCredentialSecretName": "cattle-global-data:cc-1",
        "rkeConfig": {"machinePools": [{"cloudCredentialSecretName": "cattle-global-data:cc-2"}]},
    },
}


def test_short_names_belong_to_the_namespace_of_the_vms():
    assert read_preload([CONFIG]) == {
        NAMESPACE.ref("tenant"),
        NAMESPACE.ref("images"),
        IMAGE.ref("leap", "images"),
        NETWORK.ref("lan", "tenant"),
        STORAGE_CLASS.ref("fast"),
    }


def test_the_single_disk_form_and_structured_yaml_are_read_too():
    old = {"kind": "HarvesterConfig", "imageName": "leap", "networkName": "lan", "keyPairName": "me"}
    structured = {"kind": "HarvesterConfig", "diskInfo": {"disks": [{"imageName": "default/leap"}]}}

    for config in (old, structured):
        assert names_of(read_preload([config]), IMAGE) == ["default/leap"]
    assert names_of(read_preload([old]), KEY_PAIR) == ["default/me"]


def test_a_malformed_field_stocks_nothing_and_is_left_to_the_manager_to_refuse():
    stock = read_preload([{"kind": "HarvesterConfig", "diskInfo": "{not json"}])

    assert names_of(stock, IMAGE) == []


def test_hosts_get_the_devices_and_the_cpu_model_that_a_manifest_names():
    devices = '{"vGPURequests":[{"deviceName":"nvidia.com/A2"},{"deviceName":"no resource"},{"deviceName":"a/b/c"}]}'
    config = {"kind": "HarvesterConfig", "vgpuInfo": devices, "cpuModel": "EPYC-Rome"}
    malformed = {"kind": "HarvesterConfig", "cpuModel": "a model"}

    found = read_preload([config, malformed])

    assert names_of(found, HOST_DEVICE) == ["nvidia.com/A2"]
    assert names_of(found, CPU_MODEL) == ["EPYC-Rome"]


@pytest.mark.parametrize(
    ("networks", "pools", "advertised"),
    [
        ("10.42.0.0/16,fd00:42::/56", None, ["tenant/lan"]),
        (["10.42.0.0/16", "fd00:42::/56"], None, ["tenant/lan"]),
        ("10.42.0.0/16,fd00:42::/56", [{"network": "lan"}], []),  # the addresses are given by the manifest
        ("10.42.0.0/16", None, []),
        ("fd00:42::/56", None, []),
        (None, None, []),
    ],
)
def test_networks_of_dual_stack_have_a_router_of_ipv6_unless_addresses_are_given(networks, pools, advertised):
    rke = {"machineGlobalConfig": {"cluster-cidr": networks}} if networks else {}
    cluster = {**CLUSTER, "spec": {"rkeConfig": rke}}
    config = {**CONFIG, "addressPools": pools} if pools else CONFIG
    found = read_preload(iter([cluster, config]))
    assert names_of(found, IPV6_NETWORK) == advertised
    assert names_of(found, NETWORK) == ["tenant/lan"]


def test_every_credential_that_a_cluster_or_its_pools_name_becomes_a_secret():
    secrets = credential_secrets([CLUSTER], "the kubeconfig")

    allowed = {"windrow.io/allowed-namespaces": "fleet-default"}
    assert [secret["metadata"] for secret in secrets] == [
        {"name": "cc-1", "namespace": "cattle-global-data", "annotations": allowed},
        {"name": "cc-2", "namespace": "cattle-global-data", "annotations": allowed},
    ]
    assert secrets[0]["stringData"]["harvestercredentialConfig-kubeconfigContent"] == "the kubeconfig"


def test_the_pool_of_an_endpoint_is_preloaded_where_the_endpoint_is_a_load_balancer():
    def pools(**annotations: str) -> list[str]:
        given = {f"windrow.io/endpoint-{key.replace('_', '-')}": value for key, value in annotations.items()}
        cluster = {**CLUSTER, "metadata": {**CLUSTER["metadata"], "annotations": given}}
        return names_of(read_preload([cluster]), IP_POOL)

    assert pools(mode="loadBalancer", ip_pool="endpoints") == ["endpoints"]
    assert pools(mode="address", address="10.0.0.100") == pools(ip_pool="endpoints") == []


def test_preloaded_objects_are_listed_by_kind():
    assert describe_preload(read_preload([CLUSTER, CONFIG])) == [
        "Namespace images, tenant",
        "NetworkAttachmentDefinition tenant/lan",
        "Secret cattle-global-data/cc-1, cattle-global-data/cc-2",
        "StorageClass fast",
        "VirtualMachineImage images/leap",
    ]


def test_what_is_told_to_be_created_on_the_emulator_has_no_secret():
    cluster = {
        "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "fleet-default"},
        "spec": {"cloudCredentialSecretName": "cattle-global-data:cc"},
    }
    preload = read_preload([cluster]) | {NAMESPACE.ref("default")}

    assert describe_preload(preload) == ["Namespace default", "Secret cattle-global-data/cc"]
    assert describe_created(preload) == ["Namespace default"]


def test_kubeconfigs_of_another_harvester_are_left_out_of_a_manifest_and_told():
    kubeconfig = (
        "{clusters: [{name: h, cluster: {server: 'https://h:6443'}}], users: [{name: u, user: {token: t}}], "
        "contexts: [{name: h, context: {cluster: h, user: u}}], current-context: h}"
    )
    secret = {"kind": "Secret", "metadata": {"name": "cc", "namespace": "a"}}
    given = [kubeconfig, "secret://a:cc", "secret://a:other", "/etc/file", "# nothing", {"no": "text"}]
    selected = [{"config": {"cni": "canal", "cloud-provider-config": text}} for text in given]
    rke = {"machineGlobalConfig": {"cloud-provider-config": kubeconfig}, "machineSelectorConfig": selected}
    cluster = {"kind": "Cluster", "metadata": {"name": "c", "namespace": "a"}, "spec": {"rkeConfig": rke}}

    (kept, _), notes = leave_out_kubeconfigs([cluster, secret])

    assert kept["spec"]["rkeConfig"] == {
        "machineGlobalConfig": {},
        "machineSelectorConfig": [{"config": {"cni": "canal"}}] * 2 + selected[2:],
    }
    assert selected[0]["config"]["cloud-provider-config"] == kubeconfig
    assert (
        notes
        == [
            "Cluster a/c: left out cloud-provider-config, a kubeconfig of another Harvester than the emulated one"
        ]
        * 3
    )
