"""The configuration keys that RKE2 supports, as of August 2026, and warnings about others.

An unknown key stops the service at its start. It is kept all the same, with a warning, since it may be newer than this
list. From RKE2's own command-line definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG, CLOUD_PROVIDER_NAME
from windrow.core.formats.version import Version

NEWEST_LINE = (1, 36)

# Servers and agents.
COMMON = frozenset(
    [
        "airgap-extra-registry",
        "bind-address",
        "config",
        "container-runtime-endpoint",
        "data-dir",
        "debug",
        "default-runtime",
        "disable-default-registry-endpoint",
        "enable-pprof",
        "image-credential-provider-bin-dir",
        "image-credential-provider-config",
        "kube-proxy-arg",
        "kubelet-arg",
        "lb-server-port",
        "node-external-dns",
        "node-external-ip",
        "node-internal-dns",
        "node-ip",
        "node-label",
        "node-name",
        "node-taint",
        "nonroot-devices",
        "private-registry",
        "protect-kernel-defaults",
        "resolv-conf",
        "selinux",
        "server",
        "snapshotter",
        "token",
        "token-file",
        "with-node-id",
        "v",
        "vmodule",
        "log",
        "alsologtostderr",
        "cloud-provider-config",
        "cloud-provider-name",
        "node-name-from-cloud-provider-metadata",
        "kubelet-path",
        "profile",
        "audit-policy-file",
        "pod-security-admission-config-file",
        "control-plane-resource-requests",
        "control-plane-resource-limits",
        "control-plane-probe-configuration",
        "kube-apiserver-image",
        "kube-controller-manager-image",
        "cloud-controller-manager-image",
        "kube-proxy-image",
        "kube-scheduler-image",
        "pause-image",
        "runtime-image",
        "etcd-image",
        "kube-apiserver-extra-mount",
        "kube-scheduler-extra-mount",
        "kube-controller-manager-extra-mount",
        "kube-proxy-extra-mount",
        "etcd-extra-mount",
        "cloud-controller-manager-extra-mount",
        "kube-apiserver-extra-env",
        "kube-scheduler-extra-env",
        "kube-controller-manager-extra-env",
        "kube-proxy-extra-env",
        "etcd-extra-env",
        "cloud-controller-manager-extra-env",
    ]
)

SERVER_ONLY = frozenset(
    [
        "advertise-address",
        "agent-token",
        "agent-token-file",
        "cluster-cidr",
        "cluster-dns",
        "cluster-domain",
        "cluster-reset",
        "cluster-reset-restore-path",
        "cni",
        "datastore-cafile",
        "datastore-certfile",
        "datastore-endpoint",
        "datastore-keyfile",
        "disable",
        "disable-agent",
        "disable-apiserver",
        "disable-cloud-controller",
        "disable-controller-manager",
        "disable-etcd",
        "disable-kube-proxy",
        "disable-scheduler",
        "egress-selector-mode",
        "embedded-registry",
        "enable-servicelb",
        "etcd-arg",
        "etcd-disable-snapshots",
        "etcd-expose-metrics",
        "etcd-s3",
        "etcd-s3-access-key",
        "etcd-s3-bucket",
        "etcd-s3-bucket-lookup-type",
        "etcd-s3-config-secret",
        "etcd-s3-endpoint",
        "etcd-s3-endpoint-ca",
        "etcd-s3-folder",
        "etcd-s3-insecure",
        "etcd-s3-proxy",
        "etcd-s3-region",
        "etcd-s3-retention",
        "etcd-s3-secret-key",
        "etcd-s3-session-token",
        "etcd-s3-skip-ssl-verify",
        "etcd-s3-timeout",
        "etcd-snapshot-compress",
        "etcd-snapshot-dir",
        "etcd-snapshot-name",
        "etcd-snapshot-reconcile-interval",
        "etcd-snapshot-retention",
        "etcd-snapshot-schedule-cron",
        "helm-controller-arg",
        "helm-job-image",
        "ingress-controller",
        "kube-apiserver-arg",
        "kube-cloud-controller-manager-arg",
        "kube-controller-manager-arg",
        "kube-scheduler-arg",
        "prime",
        "secrets-encryption",
        "secrets-encryption-provider",
        "service-cidr",
        "service-node-port-range",
        "servicelb-namespace",
        "supervisor-metrics",
        "system-default-registry",
        "tls-san",
        "tls-san-security",
        "write-kubeconfig",
        "write-kubeconfig-group",
        "write-kubeconfig-mode",
        "write-kubeconfig-name",
    ]
)

# Keys of a machine's identity; a user's value would break the join, so it is ignored.
MANAGED = frozenset(
    {"server", "token", "token-file", "agent-token", "agent-token-file", "node-name", "data-dir"}
)

# Keys of K3s that people carry over.
_K3S = frozenset(
    [
        "cluster-init",
        "flannel-backend",
        "flannel-iface",
        "disable-network-policy",
        "disable-helm-controller",
        "docker",
        "default-local-storage-path",
        "https-listen-port",
        "rootless",
    ]
)


def check_config(config: Mapping[str, Any], version: Version) -> list[str]:
    """Warnings about the user's keys for RKE2 `version`, each with a hint."""
    warnings = [*find_unknown_keys(config, version)]
    warnings += [
        f"{key!r} is set by Windrow, the value given is not used; remove it"
        for key in config
        if key in MANAGED
    ]
    if config.get(CLOUD_PROVIDER_CONFIG) and not config.get(CLOUD_PROVIDER_NAME):
        warnings.append(f"{CLOUD_PROVIDER_CONFIG!r} means nothing without {CLOUD_PROVIDER_NAME!r}; set both")
    if config.get(CLOUD_PROVIDER_NAME) and config.get("node-external-ip"):
        warnings.append(
            f"RKE2 refuses 'node-external-ip' beside {CLOUD_PROVIDER_NAME!r}; remove it, the provider sets addresses"
        )
    if config.get("profile"):
        warnings.append(
            f"profile {config['profile']!r} needs a user 'etcd' and kernel settings before RKE2 starts; "
            "have the image or the user data bring them"
        )
    return warnings


def find_unknown_keys(config: Mapping[str, Any], version: Version) -> list[str]:
    """What is wrong with each key that RKE2 `version` does not have, with a hint."""
    return [_unknown(key, version) for key in config if key not in COMMON | SERVER_ONLY]


def _unknown(key: str, version: Version) -> str:
    if key in _K3S:
        return f"{key!r} is a key of K3s, RKE2 will not start with it; remove it"
    if version.line > NEWEST_LINE:
        return (
            f"{key!r} was no key of RKE2 {'.'.join(map(str, NEWEST_LINE))}; check that {version} supports it"
        )
    near = get_close_matches(key, COMMON | SERVER_ONLY, 1)
    cure = f"did you mean {near[0]!r}?" if near else "remove it or correct its spelling"
    return f"{key!r} is no key of RKE2, which will not start with it; {cure}"
