"""What becomes of each field that a manifest may have: it works, it is accepted without effect, or it is refused.

One table for each kind, behind the warnings and errors of the reader and docs/reference/manifest.md. A path stands for
all that is below it, unless a longer one is listed; `[]` is each item of a list, `*` each key of a map. A field that
works names the test that shows it, below tests/. Of those, `changes` says what a change means for machines that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.clusters.api.fields import ProblemCollector

Effect = Literal["works", "no effect", "refused"]
# What a change of a field means for machines that exist, the least disruptive first.
Change = Literal["none", "new machines only", "live", "service restart", "VM restart", "replace", "refused"]
# The machines that a change concerns; those of "cluster" are objects of the guest, and no machine's.
Concerned = Literal["all", "servers", "API servers", "etcd members", "cluster"]


@dataclass(frozen=True, slots=True)
class OnChange:
    """What a change of one field means for machines that exist, and why."""

    change: Change
    because: str
    concerns: Concerned = "all"


NOTHING: Mapping[str, Any] = {}
# Items of one list that are looked into; a list of more machine pools is refused as a whole.
MAX_ITEMS = 100


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of one kind. `works` is by test, `no_effect` by the reason, `refused` by reason and hint.

    `usual` is the value of a field without effect that means what happens anyway, so that nothing is said of it; `.NAME`
    is the value of the field NAME beside it.
    """

    works: Mapping[str, str]
    no_effect: Mapping[str, str]
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    usual: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, OnChange] = field(default_factory=dict)

    def find_change(self, path: str) -> OnChange | None:
        """What a change of the field at `path` means; None where that is not listed, as of fields without effect."""
        while path:
            if path in self.changes:
                return self.changes[path]
            path = _above(path)
        return None

    def find(self, path: str) -> tuple[Effect, str] | None:
        """What becomes of the field at `path`, and the test or the reason; None for a field that is not listed."""
        while path:
            if path in self.works:
                return "works", self.works[path]
            if path in self.no_effect:
                return "no effect", self.no_effect[path]
            if path in self.refused:
                return "refused", self.refused[path][0]
            path = _above(path)
        return None

    def list_below(self, prefix: str) -> list[str]:
        """The listed paths that begin with `prefix`."""
        return [path for path in (*self.works, *self.no_effect, *self.refused) if path.startswith(prefix)]

    def check(self, raw: Mapping[str, Any], problems: ProblemCollector, label: str = "") -> None:
        """Add a warning for each field that is set and has no effect, an error for each that is refused. `label` begins
        their messages."""
        for path, why in self.no_effect.items():
            usual = self.usual.get(path, "")
            for at, value, beside in _find_set(raw, path.split(".")):
                if str(value) != (beside.get(usual[1:]) if usual.startswith(".") else usual):
                    fault = f"{label}{at} has no effect: {why}"
                    problems.add(at, fault, "leave it or remove it", "warning")
        for path, (why, hint) in self.refused.items():
            for at, *_ in _find_set(raw, path.split(".")):
                problems.add(at, f"{label}{at} is set: {why}", hint)


def _above(path: str) -> str:
    return path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]


def is_set(value: Any) -> bool:
    """Whether a value says anything: Rancher writes every field that it knows, also those that are not set."""
    if isinstance(value, Mapping):
        return any(is_set(inner) for inner in value.values())
    if isinstance(value, list):
        return any(is_set(inner) for inner in value[:MAX_ITEMS])
    return value not in (None, "", False)  # nor 0, which is equal to False


def _find_set(
    value: Any, steps: list[str], path: str = "", beside: Mapping[str, Any] = NOTHING
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """The paths at which `value` has something at `steps`, what, and the mapping that holds it."""
    if not steps:
        if is_set(value):
            yield path, value, beside
        return
    if not isinstance(value, Mapping):
        return
    name, rest = steps[0].removesuffix("[]"), steps[1:]
    inner, here = value.get(name), f"{path}.{name}" if path else name
    if name == steps[0]:
        yield from _find_set(inner, rest, here, value)
    elif isinstance(inner, list):
        for place, item in enumerate(inner[:MAX_ITEMS]):
            yield from _find_set(item, rest, f"{here}[{place}]", value)


_AGENTS = "it is for Rancher's own agents, which no machine has here"
_NOT_YET = "this release does not act on it yet"
_ROLLOUTS = "changes are not carried out on machines that exist yet, see the condition UpToDate"
_DRAIN_OPTIONS = {
    "ignoreDaemonSets": "their pods always stay",
    "postDrainHooks": "this release does not act on it yet",
    "preDrainHooks": "this release does not act on it yet",
    "skipWaitForDeleteTimeoutSeconds": "each pod is waited for until the timeout",
}
_BOOKKEEPING = "it is written by Rancher or Kubernetes, and not read here"

_LIFE = "stories/test_cluster_life.py::test_bootstrap_of_three_servers_and_two_workers"
_RKE2 = "unit/bootstrap/test_rke2.py::"
_READING = "unit/clusters/test_cluster.py::"
_SECRETS = "unit/clusters/test_bootstrap_secrets.py::"
_SELECTED = _READING + "test_a_selector_matches_the_labels_of_a_pool_as_rancher_gives_them_to_its_machines"
_POOL = "spec.rkeConfig.machinePools[]"
_ETCD = "spec.rkeConfig.etcd"
_S3_TEST = _SECRETS + "test_what_s3_leaves_out_comes_from_the_defaults_of_its_credential"
_SNAPSHOTS = _RKE2 + "test_snapshots_are_made_as_asked_and_only_where_etcd_is"
_REGISTRY_FILE = "unit/bootstrap/test_registries.py::"
_FILES = "spec.rkeConfig.machineSelectorFiles[].fileSources[]"
_GIVEN = "stories/test_cluster_life.py::test_what_a_manifest_gives_its_machines_is_on_them"
_MODES = "unit/bootstrap/test_machine_files.py::test_a_file_has_its_own_mode_or_that_of_its_source_or_is_roots_alone"
_HASHES = _SECRETS + "test_a_file_whose_content_has_another_hash_is_refused"
_REGISTRY = "spec.rkeConfig.registries.configs.*"
_STRATEGY = "spec.rkeConfig.upgradeStrategy"
_UPDATES = "unit/clusters/test_update_turns.py::"
_DRAIN_TEST = "unit/clusters/test_drain_options.py::test_each_drain_option_is_honoured_as_kubectl_does"
_STRATEGY_TEST = "unit/clusters/test_upgrade_strategy.py::test_a_strategy_is_read_as_rancher_writes_it"

_AT_START = "the service of the machine reads it when it starts"
_BY_MANAGER = "the manager acts by it at once, and no machine has it"
_REQUEST = "it is a request, which is carried out once and told in a field of the status of its own"
_RESTARTS = "it is a request, for which the services restart once, one turn after the other"
_AT_CREATION = "a machine is made with it"
_ROLES = "what a machine is to its cluster is decided when it joins"
_OBJECTS = "it is applied through the API of the cluster"

_CLUSTER_CHANGES = {
    "spec.agentEnvVars": OnChange("service restart", _AT_START),
    "spec.cloudCredentialSecretName": OnChange("new machines only", _AT_CREATION),
    "spec.defaultPodSecurityAdmissionConfigurationTemplateName": OnChange(
        "service restart", "the API server reads it when it starts", "API servers"
    ),
    "spec.kubernetesVersion": OnChange("service restart", "the service starts anew from another binary"),
    "spec.localClusterAuthEndpoint": OnChange(
        "service restart", "certificates of servers name it", "servers"
    ),
    "spec.localClusterAuthEndpoint.caCerts": OnChange("none", "the kubeconfig is written anew"),
    "spec.rkeConfig.additionalManifest": OnChange("live", _OBJECTS, "cluster"),
    "spec.rkeConfig.chartValues": OnChange("live", _OBJECTS, "cluster"),
    "spec.rkeConfig.dataDirectories.k8sDistro": OnChange("refused", "its machines have their data there"),
    _ETCD: OnChange("service restart", "etcd members read it when they start", "etcd members"),
    "spec.rkeConfig.machineGlobalConfig": OnChange("service restart", _AT_START),
    "spec.rkeConfig.machineSelectorConfig": OnChange("service restart", _AT_START),
    "spec.rkeConfig.machineSelectorFiles": OnChange("service restart", _AT_START),
    "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit": OnChange("new machines only", _AT_CREATION),
    "spec.rkeConfig.networking.stackPreference": OnChange(
        "none", "addresses that people and machines are told are chosen by it at once"
    ),
    "spec.rkeConfig.registries": OnChange("service restart", _AT_START),
    "spec.rkeConfig.etcdSnapshotCreate": OnChange("none", "it is a request, carried out once"),
    "spec.rkeConfig.etcdSnapshotRestore": OnChange(
        "none", "it is a request, carried out once: servers are replaced, or stopped for a while"
    ),
    "spec.paused": OnChange("none", "it says whether machines are changed"),
    "spec.rkeConfig.upgradeStrategy": OnChange("none", "it says how machines are changed"),
    f"{_POOL}.cloudCredentialSecretName": OnChange("new machines only", _AT_CREATION),
    f"{_POOL}.controlPlaneRole": OnChange("refused", _ROLES),
    f"{_POOL}.etcdRole": OnChange("refused", _ROLES),
    f"{_POOL}.workerRole": OnChange("refused", _ROLES),
    f"{_POOL}.drainBeforeDelete": OnChange("none", _BY_MANAGER),
    f"{_POOL}.drainBeforeDeleteTimeout": OnChange("none", _BY_MANAGER),
    f"{_POOL}.labels": OnChange("live", "labels of its Node are written through the API of the cluster"),
    f"{_POOL}.taints": OnChange("live", "taints of its Node are written through the API of the cluster"),
    f"{_POOL}.machineConfigRef.kind": OnChange("replace", "another node driver makes other machines"),
    f"{_POOL}.machineConfigRef.name": OnChange("none", "the fields of the machine configs are compared"),
    f"{_POOL}.machineConfigRef.namespace": OnChange("refused", "it is that of the Cluster"),
    f"{_POOL}.hostnameLengthLimit": OnChange("new machines only", _AT_CREATION),
    f"{_POOL}.machineDeploymentAnnotations": OnChange("new machines only", _AT_CREATION),
    f"{_POOL}.machineDeploymentLabels": OnChange(
        "new machines only", "a machine is made with it; configuration that it selects is compared by itself"
    ),
    f"{_POOL}.machineOS": OnChange("refused", "only linux machines are made"),
    f"{_POOL}.maxUnhealthy": OnChange("none", _BY_MANAGER),
    f"{_POOL}.name": OnChange("replace", "a pool that is renamed is a new one, with machines of its own"),
    f"{_POOL}.nodeStartupTimeout": OnChange("none", _BY_MANAGER),
    f"{_POOL}.paused": OnChange("none", _BY_MANAGER),
    f"{_POOL}.quantity": OnChange("none", "machines are created or deleted, and none is changed"),
    f"{_POOL}.unhealthyNodeTimeout": OnChange("none", _BY_MANAGER),
    f"{_POOL}.unhealthyRange": OnChange("none", _BY_MANAGER),
    f"{_POOL}.rollingUpdate": OnChange("none", _BY_MANAGER),
    "spec.rkeConfig.provisionGeneration": OnChange("none", _REQUEST),
    "spec.rkeConfig.rotateCertificates": OnChange("service restart", _RESTARTS),
    "spec.rkeConfig.rotateEncryptionKeys": OnChange("service restart", _RESTARTS, "servers"),
    "spec.rkeConfig.rotateToken": OnChange("service restart", _RESTARTS, "servers"),
}

CLUSTER_FIELDS = FieldTable(
    changes=_CLUSTER_CHANGES,
    works={
        "spec.agentEnvVars": _GIVEN,
        "spec.cloudCredentialSecretName": _LIFE,
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName": "unit/bootstrap/test_machine_files.py::"
        "test_a_template_of_pod_security_is_a_file_that_the_api_server_is_told_of",
        "spec.kubernetesVersion": _LIFE,
        "spec.localClusterAuthEndpoint": "unit/clusters/test_machine_inputs.py::"
        "test_the_name_of_the_endpoint_is_in_certificates_and_a_context_of_the_kubeconfig",
        "spec.rkeConfig.additionalManifest": _RKE2 + "test_manifests_are_for_servers_with_an_api",
        "spec.rkeConfig.chartValues": _RKE2 + "test_chart_values_of_the_user_win",
        "spec.rkeConfig.dataDirectories.k8sDistro": _GIVEN,
        f"{_ETCD}.disableSnapshots": _SNAPSHOTS,
        f"{_ETCD}.snapshotRetention": _SNAPSHOTS,
        f"{_ETCD}.snapshotScheduleCron": _SNAPSHOTS,
        f"{_ETCD}.s3": _S3_TEST,
        f"{_ETCD}.s3.cloudCredentialName": _SECRETS
        + "test_the_keys_for_s3_come_from_the_cloud_credential_as_rancher_writes_it",
        "spec.rkeConfig.rotateCertificates": "stories/test_key_rotation.py::"
        "test_certificates_get_new_keys_and_every_machine_restarts_once",
        "spec.rkeConfig.rotateToken": "stories/test_token_rotation.py::"
        "test_the_token_is_rotated_every_server_restarts_once_and_machines_join_with_the_new_one",
        "spec.rkeConfig.rotateEncryptionKeys": "stories/test_key_rotation.py::"
        "test_keys_are_rotated_and_every_server_restarts_once",
        "spec.rkeConfig.etcdSnapshotCreate": "unit/clusters/test_snapshots.py::"
        "test_a_higher_generation_begins_a_snapshot_on_each_member",
        "spec.rkeConfig.etcdSnapshotRestore": "unit/clusters/test_restore.py::"
        "test_a_restore_begins_with_the_machines_that_it_replaces",
        "spec.rkeConfig.etcdSnapshotRestore.clusterResetMember": "stories/test_in_place_restores.py::"
        "test_a_cluster_that_lost_its_quorum_goes_on_with_the_data_of_the_member_that_is_named",
        "spec.rkeConfig.etcdSnapshotRestore.from": "stories/test_restored_copies.py::"
        "test_a_copy_takes_nothing_from_its_original_whatever_becomes_of_it",
        "spec.rkeConfig.machineGlobalConfig": _RKE2
        + "test_whatever_the_user_writes_reaches_the_machine_unchanged",
        "spec.rkeConfig.machineSelectorConfig": _SELECTED,
        "spec.rkeConfig.machineSelectorConfig[].config": "unit/bootstrap/test_node_config.py::"
        "test_entries_that_select_the_machine_are_merged_over_the_global_ones_in_order",
        "spec.rkeConfig.machineSelectorFiles": _GIVEN,
        f"{_FILES}.configMap.defaultPermissions": _MODES,
        f"{_FILES}.configMap.items[].hash": _HASHES,
        f"{_FILES}.configMap.items[].permissions": _MODES,
        f"{_FILES}.secret.defaultPermissions": _MODES,
        f"{_FILES}.secret.items[].hash": _HASHES,
        f"{_FILES}.secret.items[].permissions": _MODES,
        "spec.rkeConfig.machinePoolDefaults.hostnameLengthLimit": _READING
        + "test_a_pool_has_its_own_limit_of_host_names_or_that_of_all",
        "spec.rkeConfig.networking.stackPreference": "stories/test_addresses.py::"
        "test_machines_nodes_and_kubeconfig_have_the_families_of_the_cluster",
        "spec.paused": _UPDATES
        + "test_nothing_begins_where_the_cluster_is_paused_or_the_version_is_not_to_be_had",
        f"{_STRATEGY}.controlPlaneConcurrency": _STRATEGY_TEST,
        f"{_STRATEGY}.workerConcurrency": _UPDATES
        + "test_as_many_workers_begin_as_the_strategy_says_once_the_servers_are_done",
        f"{_STRATEGY}.controlPlaneDrainOptions": _STRATEGY_TEST,
        f"{_STRATEGY}.workerDrainOptions.enabled": _UPDATES + "test_pods_are_evicted_before_the_job",
        f"{_STRATEGY}.workerDrainOptions.timeout": _UPDATES
        + "test_pods_that_never_leave_stop_the_turn_unless_errors_are_ignored",
        f"{_STRATEGY}.workerDrainOptions.ignoreErrors": _UPDATES
        + "test_pods_that_never_leave_stop_the_turn_unless_errors_are_ignored",
        f"{_STRATEGY}.workerDrainOptions.force": _UPDATES
        + "test_pods_without_a_controller_stay_unless_force_is_set",
        f"{_STRATEGY}.workerDrainOptions.deleteEmptyDirData": _DRAIN_TEST,
        f"{_STRATEGY}.workerDrainOptions.gracePeriod": _DRAIN_TEST,
        f"{_STRATEGY}.workerDrainOptions.disableEviction": _UPDATES
        + "test_pods_are_deleted_where_eviction_is_disabled",
        "spec.rkeConfig.registries.mirrors": _REGISTRY_FILE + "test_mirrors_are_taken_as_they_are",
        _REGISTRY: _REGISTRY_FILE
        + "test_credentials_and_authorities_are_written_where_the_runtime_looks_for_them",
        f"{_REGISTRY}.caBundle": _REGISTRY_FILE
        + "test_an_authority_in_base64_is_written_as_the_pem_that_the_runtime_reads",
        f"{_REGISTRY}.authConfigSecretName": _SECRETS + "test_user_and_password_come_from_the_named_secret",
        f"{_REGISTRY}.tlsSecretName": _SECRETS + "test_a_client_certificate_comes_from_the_named_secret",
        f"{_POOL}.cloudCredentialSecretName": _GIVEN,
        f"{_POOL}.controlPlaneRole": _LIFE,
        f"{_POOL}.etcdRole": _LIFE,
        f"{_POOL}.workerRole": _LIFE,
        f"{_POOL}.drainBeforeDelete": "unit/clusters/test_deletion.py::"
        "test_a_drained_pool_cordons_and_evicts_before_the_vm_goes",
        f"{_POOL}.drainBeforeDeleteTimeout": "unit/clusters/test_deletion.py::"
        "test_a_drain_without_a_limit_goes_on_for_ever_and_says_so",
        f"{_POOL}.labels": "stories/test_cluster_life.py::"
        "test_every_label_of_a_pool_reaches_its_node_also_those_that_kubelet_may_not_set",
        f"{_POOL}.machineConfigRef.kind": "stories/test_foreign_drivers.py::"
        "test_a_pool_of_another_drivers_kind_gets_its_machines_from_that_driver",
        f"{_POOL}.machineConfigRef.name": _LIFE,
        f"{_POOL}.machineConfigRef.namespace": _READING
        + "test_a_machine_config_of_another_namespace_is_refused",
        f"{_POOL}.hostnameLengthLimit": "stories/test_cluster_life.py::"
        "test_machine_vm_and_node_have_one_name_within_the_limit_of_the_pool",
        f"{_POOL}.machineDeploymentAnnotations": _READING
        + "test_annotations_of_a_pool_are_those_of_its_machines_but_for_requests",
        f"{_POOL}.machineDeploymentLabels": _SELECTED,
        f"{_POOL}.machineOS": _READING + "test_a_fault_is_named_with_its_fact",
        f"{_POOL}.maxUnhealthy": "unit/clusters/test_remediation.py::test_the_user_may_set_the_breaker_wider",
        f"{_POOL}.name": _LIFE,
        f"{_POOL}.nodeStartupTimeout": "unit/clusters/test_remediation.py::"
        "test_a_newcomer_that_never_becomes_a_node_is_replaced_after_the_startup_time",
        f"{_POOL}.rollingUpdate": "unit/clusters/test_rollout.py::test_the_budget_of_a_pool_is_kept_whatever_its_machines_are",
        f"{_POOL}.paused": "unit/clusters/test_remediation.py::test_a_paused_pool_is_left_as_it_is",
        f"{_POOL}.quantity": "stories/test_cluster_life.py::"
        "test_servers_and_workers_scale_down_one_member_after_the_other",
        f"{_POOL}.taints": _GIVEN,
        f"{_POOL}.unhealthyNodeTimeout": "unit/clusters/test_remediation.py::"
        "test_a_running_machine_is_replaced_after_the_pools_time",
        f"{_POOL}.unhealthyRange": "unit/clusters/test_disruptions.py::"
        "test_machines_are_replaced_while_as_many_are_unhealthy_as_the_range_says",
    },
    no_effect={
        "spec.clusterAPIConfig": "there is no Cluster API here",
        "spec.clusterAgentDeploymentCustomization": _AGENTS,
        "spec.defaultClusterRoleForProjectMembers": "projects are Rancher's",
        "spec.enableNetworkPolicy": "projects are Rancher's",
        "spec.fleetAgentDeploymentCustomization": _AGENTS,
        "spec.redeploySystemAgentGeneration": _AGENTS,
        "spec.rkeConfig.dataDirectories.provisioning": _AGENTS,
        "spec.rkeConfig.dataDirectories.systemAgent": _AGENTS,
        f"{_POOL}.autoscalingMaxSize": "no autoscaler acts on it here; quantity says how many machines there are",
        f"{_POOL}.autoscalingMinSize": "no autoscaler acts on it here; quantity says how many machines there are",
        f"{_POOL}.displayName": "it is deprecated in Rancher; name is shown",
        f"{_POOL}.dynamicSchemaSpec": "defaults of the driver's fields are applied when a machine is made, and a newer "
        "driver never replaces one",
        f"{_POOL}.machineConfigRef.apiVersion": "kind and name say which object it is",
        f"{_POOL}.machineConfigRef.fieldPath": _BOOKKEEPING,
        f"{_POOL}.machineConfigRef.resourceVersion": _BOOKKEEPING,
        f"{_POOL}.machineConfigRef.uid": _BOOKKEEPING,
        f"{_POOL}.taints[].timeAdded": _BOOKKEEPING,
        f"{_POOL}.userdata": "it is for foreign infrastructure; HarvesterConfig has userData",
        f"{_FILES}.configMap.items[].dynamic": _ROLLOUTS,
        f"{_FILES}.secret.items[].dynamic": _ROLLOUTS,
        "spec.rkeConfig.provisionGeneration": _NOT_YET,
        **{
            f"spec.rkeConfig.upgradeStrategy.{options}.{name}": why
            for options in ("controlPlaneDrainOptions", "workerDrainOptions")
            for name, why in _DRAIN_OPTIONS.items()
        },
        "spec.webhookDeploymentCustomization": "there is no Rancher webhook here",
    },
    usual={
        f"{_POOL}.displayName": ".name",
        f"{_POOL}.machineConfigRef.apiVersion": "rke-machine-config.cattle.io/v1",
    },
    refused={
        "spec.rkeConfig.infrastructureRef": (
            "machines come from machinePools only",
            "remove it and describe machinePools",
        ),
    },
)

_OPTIONS = (
    "stories/test_driver_options.py::"
    "test_a_cluster_whose_pools_use_every_option_comes_up_and_each_has_its_effect"
)
_CALLER = "the cluster manager knows it from the Cluster"
_NO_SSH = "machines are not reached through SSH"

# What a change of an option of the node driver means stands in its row there.
HARVESTER_CONFIG_FIELDS = FieldTable(
    changes={"addressPools": OnChange("replace", "its network is configured when its VM is made")},
    works={
        "vmNamespace": _LIFE,
        "cpuCount": _OPTIONS,
        "memorySize": _OPTIONS,
        "reservedMemorySize": _OPTIONS,
        "cpuModel": _OPTIONS,
        "cpuPinning": _OPTIONS,
        "isolateEmulatorThread": "unit/emulator/vms/test_scheduler.py::"
        "test_pinned_cpus_want_a_host_with_a_cpu_manager_and_an_isolated_thread_one_more",
        "diskInfo": _OPTIONS,
        "imageName": _OPTIONS,
        "diskSize": _OPTIONS,
        "diskBus": _OPTIONS,
        "networkInfo": _OPTIONS,
        "networkName": _OPTIONS,
        "networkModel": _OPTIONS,
        "sshUser": _OPTIONS,
        "sshPassword": "conformance/test_cloud_init.py::test_a_users_own_and_ours_are_done_by_a_first_boot",
        "keyPairName": _OPTIONS,
        "userData": _OPTIONS,
        "addressPools": "stories/test_addresses.py::"
        "test_machines_have_the_addresses_that_were_claimed_for_them_and_give_them_back",
        "addressPools[].ipPool": "stories/test_ip_pools.py::"
        "test_machines_have_addresses_of_an_ip_pool_and_none_that_a_load_balancer_has",
        "networkData": _OPTIONS,
        "vmAffinity": _OPTIONS,
        "enableEfi": _OPTIONS,
        "enableSecureBoot": _OPTIONS,
        "enableTpm": _OPTIONS,
        "vgpuInfo": "stories/test_driver_options.py::"
        "test_a_machine_whose_device_is_taken_waits_and_its_status_names_the_device",
    },
    no_effect={
        "cloudConfig": "the cluster manager writes it itself; userData is merged with that",
        "clusterId": _CALLER,
        "clusterName": _CALLER,
        "clusterType": _CALLER,
        "kubeconfigContent": "the credential is the Secret that cloudCredentialSecretName names",
        "networkType": "the driver never read it; networkInfo has the type of each card",
        "sshPort": _NO_SSH,
        "sshPrivateKeyPath": _NO_SSH,
        "common": "labels, taints and the credential of machines are those of the machine pool",
        "providerID": _BOOKKEEPING,
        "status": _BOOKKEEPING,
    },
    usual={"sshPort": "22"},
)
