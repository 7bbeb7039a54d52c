"""K3s' own part: its flags, its packaged components, flannel (reference/10-day2 §4; K3s v1.33 to v1.35)."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.emulator.guest_cluster.distribution.distribution import BadSettings, Distribution, Settings
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.system import list_wrong_parameters

_AGENT = (
    "config debug v vmodule log alsologtostderr data-dir token token-file server disable-apiserver-lb "
    "node-name with-node-id node-label node-taint image-credential-provider-bin-dir "
    "image-credential-provider-config docker container-runtime-endpoint default-runtime "
    "image-service-endpoint disable-default-registry-endpoint nonroot-devices pause-image snapshotter "
    "private-registry airgap-extra-registry node-ip node-external-ip node-internal-dns node-external-dns "
    "resolv-conf flannel-iface flannel-conf flannel-cni-conf vpn-auth vpn-auth-file kubelet-arg kube-proxy-arg "
    "protect-kernel-defaults selinux lb-server-port bind-address enable-pprof rootless prefer-bundled-bin"
)
_AGENT_FLAGS = frozenset(_AGENT.split())
_SERVER = (
    "https-listen-port supervisor-port apiserver-port apiserver-bind-address advertise-address "
    "advertise-port tls-san tls-san-security disable-agent cluster-cidr service-cidr "
    "service-node-port-range cluster-dns cluster-domain cluster-init cluster-reset "
    "cluster-reset-restore-path flannel-backend flannel-ipv6-masq flannel-external-ip "
    "egress-selector-mode servicelb-namespace write-kubeconfig write-kubeconfig-mode "
    "write-kubeconfig-group helm-job-image agent-token agent-token-file kube-apiserver-arg etcd-arg "
    "kube-scheduler-arg kube-controller-manager-arg kube-controller-arg "
    "kube-cloud-controller-manager-arg kube-cloud-controller-arg datastore-endpoint datastore-cafile "
    "datastore-certfile datastore-keyfile kine-tls default-local-storage-path disable disable-scheduler "
    "disable-cloud-controller disable-network-policy disable-helm-controller disable-kube-proxy "
    "disable-apiserver disable-controller-manager disable-etcd embedded-registry supervisor-metrics "
    "system-default-registry secrets-encryption secrets-encryption-provider etcd-expose-metrics "
    "etcd-disable-snapshots etcd-snapshot-name etcd-snapshot-schedule-cron "
    "etcd-snapshot-reconcile-interval etcd-snapshot-retention etcd-snapshot-dir etcd-snapshot-compress "
    "etcd-s3 etcd-s3-access-key etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-config-secret "
    "etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-folder etcd-s3-insecure etcd-s3-proxy etcd-s3-region "
    "etcd-s3-retention etcd-s3-secret-key etcd-s3-session-token etcd-s3-skip-ssl-verify etcd-s3-timeout"
)
_SERVER_FLAGS = (_AGENT_FLAGS - {"disable-apiserver-lb"}) | frozenset(_SERVER.split())

# Must be equal on all servers, with K3s' defaults. `disable: servicelb` is one as well, under the name that the
# program prints.
_CRITICAL: Mapping[str, str] = {
    "cluster-cidr": "10.42.0.0/16",
    "service-cidr": "10.43.0.0/16",
    "cluster-dns": "10.43.0.10",
    "cluster-domain": "cluster.local",
    "disable-cloud-controller": "false",
    "disable-helm-controller": "false",
    "disable-kube-proxy": "false",
    "disable-network-policy": "false",
    "egress-selector-mode": "agent",
    "embedded-registry": "false",
    "flannel-backend": "vxlan",
    "flannel-external-ip": "false",
    "flannel-ipv6-masq": "false",
    "secrets-encryption": "false",
}
_BACKENDS = frozenset({"none", "vxlan", "host-gw", "wireguard-native", "tailscale"})
_ENVIRONMENT = (
    "config:CONFIG_FILE debug:DEBUG data-dir:DATA_DIR token:TOKEN token-file:TOKEN_FILE "
    "agent-token:AGENT_TOKEN agent-token-file:AGENT_TOKEN_FILE server:URL cluster-init:CLUSTER_INIT "
    "cluster-reset:CLUSTER_RESET write-kubeconfig:KUBECONFIG_OUTPUT "
    "write-kubeconfig-mode:KUBECONFIG_MODE write-kubeconfig-group:KUBECONFIG_GROUP "
    "datastore-endpoint:DATASTORE_ENDPOINT datastore-cafile:DATASTORE_CAFILE "
    "datastore-certfile:DATASTORE_CERTFILE datastore-keyfile:DATASTORE_KEYFILE node-name:NODE_NAME "
    "system-default-registry:SYSTEM_DEFAULT_REGISTRY resolv-conf:RESOLV_CONF selinux:SELINUX "
    "lb-server-port:LB_SERVER_PORT vpn-auth:VPN_AUTH vpn-auth-file:VPN_AUTH_FILE"
)


def _read_critical(settings: Settings) -> dict[str, str]:
    found = {flag: settings.text(flag, default).lower() for flag, default in _CRITICAL.items()}
    for flag in ("cluster-cidr", "service-cidr", "cluster-dns"):
        if given := settings.list(flag):
            found[flag] = ",".join(given)
    found["disable-service-lb"] = str("servicelb" in settings.list("disable")).lower()
    return found


def _check(guest: GuestOS, settings: Settings) -> None:
    port = settings.text("https-listen-port")
    if port and not port.isdigit():
        raise BadSettings(
            f'invalid value "{port}" for flag -https-listen-port: strconv.ParseInt: parsing "{port}": invalid syntax'
        )
    if settings.text("datastore-endpoint"):
        raise BadSettings("not simulated: datastore-endpoint; this machine has embedded etcd and SQLite only")
    backend = settings.text("flannel-backend", "vxlan")
    if backend not in _BACKENDS:
        raise BadSettings(f"Cannot configure unknown flannel backend '{backend}'")
    if settings.text("cluster-reset-restore-path") and not settings.is_true("cluster-reset"):
        raise BadSettings("invalid flag use; --cluster-reset required with --cluster-reset-restore-path")
    if settings.is_true("protect-kernel-defaults") and (wrong := list_wrong_parameters(guest)):
        raise BadSettings(f"invalid kernel flag: {'; '.join(wrong)}")


def _choose_network_plugin(settings: Settings) -> str:
    return "none" if settings.text("flannel-backend", "vxlan") == "none" else "flannel"


K3S = Distribution(
    name="k3s",
    flags={"server": _SERVER_FLAGS, "agent": _AGENT_FLAGS},
    strict_roles=frozenset({"agent"}),
    environment=dict(pair.split(":") for pair in _ENVIRONMENT.split()),
    supervisor_port=6443,
    has_sqlite=True,
    has_snapshot_controller=False,
    runs_cloud_controller=True,
    encrypts_secrets=False,
    has_packaged_components=True,
    read_critical=_read_critical,
    check=_check,
    choose_network_plugin=_choose_network_plugin,
)
