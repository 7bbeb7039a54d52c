"""Every flag of the Go program and of ours: type, default, meaning, and whether it does anything here.

The Go program is Kubernetes' cloud framework with a few flags of its own, so most of its flags steer things that this
program does not do (routes, webhooks, polling periods, protobuf, profiling). They are accepted and checked for their
type, so that an existing `extraArgs` keeps working, and named in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Type = Literal["bool", "string", "int", "float", "duration", "list", "version"]


@dataclass(frozen=True, slots=True)
class Flag:
    """`about` is "" for what is accepted without effect."""

    name: str
    type: Type
    default: str
    about: str = ""

    @property
    def has_effect(self) -> bool:
        return bool(self.about)


_LEASE = "of the Lease, which the Go program takes, too"
# Section -> its flags, in the order of the help.
SECTIONS: dict[str, tuple[Flag, ...]] = {
    "Harvester": (
        Flag(
            "cloud-config",
            "string",
            "",
            "kubeconfig for Harvester; its context names the namespace of the VMs (required)",
        ),
        Flag(
            "cluster-name",
            "string",
            "kubernetes",
            "the guest cluster's name, as its VMs and load balancers are labelled",
        ),
        Flag(
            "management-network",
            "string",
            "",
            "Harvester network (NAMESPACE/NAME) that carries node addresses",
        ),
        Flag(
            "node-ip-cidr",
            "string",
            "",
            "where internal addresses are: at most one range of each family, with commas",
        ),
        Flag(
            "node-exclude-ip-ranges",
            "list",
            "",
            "addresses and ranges that are no external addresses of nodes",
        ),
        Flag(
            "disable-vmi-controller",
            "bool",
            "false",
            "do not follow VMs by their guest agents; write no network map",
        ),
        Flag(
            "disable-annotation-alpha-provided-ip-addr",
            "bool",
            "false",
            "ignore the address that kubelet's --node-ip wrote on the node",
        ),
        # Since chart 0.2.16.
        Flag(
            "disable-hostname-lookup",
            "bool",
            "false",
            "never ask guests for their host name: nodes are called like their VMs",
        ),
        Flag(
            "orphan-sweep",
            "string",
            "report",
            "load balancers whose service is gone: off, report or delete (Windrow's)",
        ),
        Flag("host-api-qps", "float", "50", "requests per second to Harvester (Windrow's)"),
        Flag("host-api-burst", "int", "100", "requests to Harvester at once (Windrow's)"),
    ),
    "Guest cluster": (
        Flag(
            "kubeconfig", "string", "", "the guest cluster; else $KUBECONFIG, else the pod's service account"
        ),
        Flag("master", "string", "", "address of the guest's API server, before what the kubeconfig says"),
        # The Go program has 20 and 30 here, and 5 and 10 for Harvester: a hundred services wait minutes for that.
        Flag("kube-api-qps", "float", "100", "requests per second to the guest's API server"),
        Flag("kube-api-burst", "int", "200", "requests to the guest's API server at once"),
        Flag("kube-api-content-type", "string", "application/vnd.kubernetes.protobuf"),
        Flag("use-service-account-credentials", "bool", "false"),
    ),
    "Controllers": (
        Flag(
            "controllers",
            "list",
            "*",
            "`*`, NAME or -NAME of cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, "
            "node-route-controller (which does nothing)",
        ),
        Flag("concurrent-node-syncs", "int", "1", "nodes that are looked at side by side; 4 at least"),
        Flag("concurrent-service-syncs", "int", "1", "services that are looked at side by side; 8 at least"),
        Flag("concurrent-node-status-updates", "int", "1"),
        Flag("min-resync-period", "duration", "12h0m0s"),
        Flag("node-monitor-period", "duration", "5s"),
        Flag("node-status-update-frequency", "duration", "5m0s"),
        Flag("node-sync-period", "duration", "0s"),
        Flag("route-reconciliation-period", "duration", "10s"),
        Flag("controller-start-interval", "duration", "0s"),
        Flag("allocate-node-cidrs", "bool", "false"),
        Flag("allow-untagged-cloud", "bool", "true"),
        Flag("cidr-allocator-type", "string", "RangeAllocator"),
        Flag("cloud-provider", "string", "harvester"),
        Flag("cluster-cidr", "string", ""),
        Flag("configure-cloud-routes", "bool", "true"),
        Flag("external-cloud-volume-plugin", "string", ""),
        Flag("feature-gates", "string", ""),
        Flag("emulated-version", "list", ""),
        Flag("emulation-forward-compatible", "bool", "false"),
        Flag("runtime-config-emulation-forward-compatible", "bool", "false"),
    ),
    "Leader election": (
        Flag("leader-elect", "bool", "true", "work only while holding the Lease"),
        Flag("leader-elect-resource-name", "string", "cloud-controller-manager", f"name {_LEASE}"),
        Flag("leader-elect-resource-namespace", "string", "kube-system", f"namespace {_LEASE}"),
        Flag("leader-elect-resource-lock", "string", "leases", "kind of the lock: leases only"),
        Flag(
            "leader-elect-lease-duration",
            "duration",
            "15s",
            "others take over after so long without a renewal",
        ),
        Flag("leader-elect-renew-deadline", "duration", "10s", "work ends after so long without a renewal"),
        Flag("leader-elect-retry-period", "duration", "2s", "how often the Lease is tried or renewed"),
        Flag("enable-leader-migration", "bool", "false"),
        Flag("leader-migration-config", "string", ""),
    ),
    "Probes and metrics": (
        Flag(
            "secure-port",
            "int",
            "10258",
            "port of /healthz, /livez, /readyz and /metrics, by HTTPS; 0 for none",
        ),
        Flag("bind-address", "string", "0.0.0.0", "address of that port"),
        Flag("permit-port-sharing", "bool", "false", "let several processes have the port (SO_REUSEPORT)"),
        Flag(
            "tls-cert-file",
            "string",
            "",
            "certificate (PEM) served there, reloaded when it changes; else a self-signed one",
        ),
        Flag("tls-private-key-file", "string", "", "key (PEM) of that certificate"),
        Flag("tls-min-version", "string", "VersionTLS12", "VersionTLS12 or VersionTLS13"),
        Flag(
            "authorization-always-allow-paths",
            "list",
            "/healthz,/readyz,/livez",
            "paths that need no authorization; others are authorized by the guest (TokenReview, SubjectAccessReview)",
        ),
        Flag("permit-address-sharing", "bool", "false"),
        Flag("cert-dir", "string", ""),
        Flag("tls-cipher-suites", "list", ""),
        Flag("tls-curve-preferences", "list", ""),
        Flag("tls-sni-cert-key", "list", ""),
        Flag("disable-http2-serving", "bool", "false"),
        Flag("http2-max-streams-per-connection", "int", "0"),
        Flag("authentication-kubeconfig", "string", ""),
        Flag("authentication-skip-lookup", "bool", "true"),
        Flag("authentication-token-webhook-cache-ttl", "duration", "10s"),
        Flag("authentication-tolerate-lookup-failure", "bool", "false"),
        Flag("authorization-kubeconfig", "string", ""),
        Flag("authorization-webhook-cache-authorized-ttl", "duration", "10s"),
        Flag("authorization-webhook-cache-unauthorized-ttl", "duration", "10s"),
        Flag("client-ca-file", "string", ""),
        Flag("requestheader-allowed-names", "list", ""),
        Flag("requestheader-client-ca-file", "string", ""),
        Flag("requestheader-extra-headers-prefix", "list", "x-remote-extra-"),
        Flag("requestheader-group-headers", "list", "x-remote-group"),
        Flag("requestheader-uid-headers", "list", ""),
        Flag("requestheader-username-headers", "list", "x-remote-user"),
        Flag("profiling", "bool", "true"),
        Flag("contention-profiling", "bool", "false"),
        Flag("allow-metric-labels", "string", ""),
        Flag("allow-metric-labels-manifest", "string", ""),
        Flag("disabled-metrics", "list", ""),
        Flag("show-hidden-metrics-for-version", "string", ""),
    ),
    "Webhooks": (
        Flag("webhooks", "list", ""),
        Flag("webhook-bind-address", "string", "0.0.0.0"),
        Flag("webhook-secure-port", "int", "10260"),
        Flag("webhook-cert-dir", "string", ""),
        Flag("webhook-disable-http2-serving", "bool", "false"),
        Flag("webhook-tls-cert-file", "string", ""),
        Flag("webhook-tls-private-key-file", "string", ""),
        Flag("webhook-tls-cipher-suites", "list", ""),
        Flag("webhook-tls-curve-preferences", "list", ""),
        Flag("webhook-tls-min-version", "string", ""),
    ),
    "Words": (
        Flag(
            "v",
            "int",
            "0",
            "how much is said: 1 warnings of parts, 3 what they do, 5 everything, 6 each request",
        ),
        Flag("help", "bool", "false", "this text"),
        Flag("version", "version", "false", "the version"),
        Flag("show-full-help-on-error", "bool", "false", "print this text, too, when a flag is wrong"),
        Flag("vmodule", "string", ""),
        Flag("logging-format", "string", "text"),
        Flag("log-flush-frequency", "duration", "5s"),
        Flag("log-json-info-buffer-size", "string", "0"),
        Flag("log-json-split-stream", "bool", "false"),
        Flag("log-text-info-buffer-size", "string", "0"),
        Flag("log-text-split-stream", "bool", "false"),
    ),
}
SHORT = {"v": "v", "h": "help"}


def _all() -> Iterator[Flag]:
    for flags in SECTIONS.values():
        yield from flags


FLAGS: dict[str, Flag] = {flag.name: flag for flag in _all()}


def shown(name: str) -> str:
    """The flag as messages of the Go program show it."""
    short = next((short for short, long in SHORT.items() if long == name), "")
    return f"-{short}, --{name}" if short else f"--{name}"
