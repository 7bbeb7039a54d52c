"""RKE2's own part: its flags, its network plugins, its bundled cloud providers, its hardening profile."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.emulator.guest_cluster.distribution.distribution import BadSettings, Distribution, Settings
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.system import has_user, list_wrong_parameters

_COMPONENTS = (
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-proxy",
    "etcd",
    "cloud-controller-manager",
)
_COMMON = (
    "kube-apiserver-image kube-controller-manager-image cloud-controller-manager-image kube-proxy-image "
    "kube-scheduler-image pause-image runtime-image etcd-image kubelet-path cloud-provider-name "
    "cloud-provider-config node-name-from-cloud-provider-metadata profile audit-policy-file "
    "pod-security-admission-config-file control-plane-resource-requests control-plane-resource-limits "
    "control-plane-probe-configuration"
)
_COMMON_FLAGS = frozenset(_COMMON.split()) | {
    f"{component}-extra-{what}" for component in _COMPONENTS for what in ("mount", "env")
}
_AGENT = (
    "config debug v vmodule log alsologtostderr data-dir token token-file node-name with-node-id "
    "node-label node-taint image-credential-provider-bin-dir image-credential-provider-config "
    "container-runtime-endpoint disable-default-registry-endpoint nonroot-devices default-runtime "
    "private-registry node-ip node-external-ip node-internal-dns node-external-dns resolv-conf "
    "kubelet-arg kube-proxy-arg server protect-kernel-defaults snapshotter selinux lb-server-port "
    "airgap-extra-registry bind-address enable-pprof system-default-registry"
)
_AGENT_FLAGS = _COMMON_FLAGS | frozenset(_AGENT.split())
_SERVER = (
    "cni ingress-controller enable-servicelb servicelb-namespace advertise-address tls-san "
    "tls-san-security disable-agent cluster-cidr service-cidr service-node-port-range cluster-dns "
    "cluster-domain cluster-reset cluster-reset-restore-path write-kubeconfig write-kubeconfig-mode "
    "write-kubeconfig-group kube-apiserver-arg etcd-arg kube-scheduler-arg kube-controller-manager-arg "
    "kube-cloud-controller-manager-arg datastore-endpoint datastore-cafile datastore-certfile "
    "datastore-keyfile disable disable-scheduler disable-cloud-controller disable-kube-proxy "
    "disable-apiserver disable-controller-manager disable-etcd etcd-disable-snapshots "
    "etcd-snapshot-schedule-cron etcd-snapshot-retention etcd-snapshot-reconcile-interval "
    "etcd-snapshot-dir etcd-snapshot-name etcd-snapshot-compress etcd-expose-metrics etcd-s3 "
    "etcd-s3-access-key etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-config-secret "
    "etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-folder etcd-s3-insecure etcd-s3-proxy etcd-s3-region "
    "etcd-s3-retention etcd-s3-secret-key etcd-s3-session-token etcd-s3-skip-ssl-verify etcd-s3-timeout "
    "embedded-registry supervisor-metrics egress-selector-mode agent-token agent-token-file "
    "secrets-encryption secrets-encryption-provider helm-job-image"
)
_SERVER_FLAGS = _AGENT_FLAGS | frozenset(_SERVER.split())
# Must be equal on all servers (reference/04 §7.7), with RKE2's defaults.
_CRITICAL: Mapping[str, str] = {
    "cluster-cidr": "10.42.0.0/16",
    "service-cidr": "10.43.0.0/16",
    "cluster-dns": "10.43.0.10",
    "cluster-domain": "cluster.local",
    "disable-cloud-controller": "false",
    "disable-kube-proxy": "false",
    "egress-selector-mode": "agent",
}

_ENVIRONMENT = (
    "config:CONFIG_FILE debug:DEBUG data-dir:DATA_DIR token:TOKEN token-file:TOKEN_FILE "
    "agent-token:AGENT_TOKEN agent-token-file:AGENT_TOKEN_FILE server:URL cni:CNI node-name:NODE_NAME "
    "write-kubeconfig:KUBECONFIG_OUTPUT write-kubeconfig-mode:KUBECONFIG_MODE "
    "cloud-provider-name:CLOUD_PROVIDER_NAME cloud-provider-config:CLOUD_PROVIDER_CONFIG "
    "system-default-registry:SYSTEM_DEFAULT_REGISTRY resolv-conf:RESOLV_CONF selinux:SELINUX"
)
_BUNDLED_CLOUDS = ("harvester", "rancher-vsphere")
_NETWORK_PLUGINS = frozenset({"calico", "canal", "cilium", "flannel", "none"})


def _read_critical(settings: Settings) -> dict[str, str]:
    found = {flag: settings.text(flag, default).lower() for flag, default in _CRITICAL.items()}
    if settings.cloud_provider in _BUNDLED_CLOUDS:
        found["disable-cloud-controller"] = "true"
    return found


def _choose_network_plugin(settings: Settings) -> str:
    chosen = [one for one in settings.list("cni") if one != "multus"]
    return chosen[0] if chosen else "canal"


def _check(guest: GuestOS, settings: Settings) -> None:
    _check_network(settings)
    _check_cloud(guest, settings)
    _check_profile(guest, settings)
    security = settings.text("pod-security-admission-config-file")
    if security and not guest.is_file(security):
        raise BadSettings(f"open {security}: no such file or directory")


def _check_network(settings: Settings) -> None:
    if settings.role != "server":
        return
    plugins = settings.list("cni")
    if plugins == ("multus",):
        raise BadSettings(
            "Failed to validate --cni flag: multus must be used alongside another primary cni selection"
        )
    for plugin in plugins:
        if plugin not in _NETWORK_PLUGINS | {"multus"}:
            known = ",".join(sorted(_NETWORK_PLUGINS - {"none"}))
            raise BadSettings(f"Invalid value {plugin} for --cni flag: must be one of {known}")


def _check_cloud(guest: GuestOS, settings: Settings) -> None:
    config = settings.text("cloud-provider-config")
    if config and not settings.cloud_provider:
        raise BadSettings("--cloud-provider-config requires --cloud-provider-name to be provided")
    if config and not guest.is_file(config):
        raise BadSettings(f"cloud-provider-config: open {config}: no such file or directory")
    if settings.cloud_provider in _BUNDLED_CLOUDS and settings.text("node-external-ip"):
        raise BadSettings(
            f"can't set node-external-ip while using cloud provider {settings.cloud_provider}; "
            "the cloud provider sets the node's addresses"
        )


def _check_profile(guest: GuestOS, settings: Settings) -> None:
    profile = settings.text("profile")
    if profile and profile not in ("cis", "etcd"):
        raise BadSettings(f"invalid value {profile} provided for --profile flag")
    missing: list[str] = []
    if profile and settings.runs_etcd and not has_user(guest, "etcd"):
        missing.append("user: unknown user etcd")
    if profile == "cis" or settings.is_true("protect-kernel-defaults"):
        missing += [f"invalid kernel parameter value {wrong}" for wrong in list_wrong_parameters(guest)]
    if missing:
        raise BadSettings(f"missing required: {'; '.join(missing)}")


RKE2 = Distribution(
    name="rke2",
    flags={"server": _SERVER_FLAGS, "agent": _AGENT_FLAGS},
    strict_roles=frozenset(),
    environment=dict(pair.split(":") for pair in _ENVIRONMENT.split()),
    supervisor_port=9345,
    has_sqlite=False,
    has_snapshot_controller=True,
    runs_cloud_controller=False,  # not simulated: its Nodes are initialised when they register
    encrypts_secrets=True,
    has_packaged_components=False,  # not simulated
    read_critical=_read_critical,
    check=_check,
    choose_network_plugin=_choose_network_plugin,
)
