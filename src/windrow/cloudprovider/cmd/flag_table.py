"""Every flag of the Go program and of ours: type, default, meaning, and whether it does anything here; and the help.

The Go program is Kubernetes' cloud framework with a few flags of its own, so most of its flags steer things that this
program does not do (routes, webhooks, polling periods, protobuf, profiling). They are accepted and checked for their
type, so that an existing `extraArgs` keeps working, and named in the log.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

from windrow.cloudprovider.names import CONTROLLERS

Type = Literal["bool", "string", "int", "float", "duration", "list", "version"]


@dataclass(frozen=True, slots=True)
class Flag:
    """`default` as it is written on the command line. `about` is "" for what is accepted without effect."""

    name: str
    type: Type
    default: str = ""
    about: str = ""

    @property
    def has_effect(self) -> bool:
        return bool(self.about)


_LEASE = "of the Lease, which the Go program takes, too"
_OPEN_PATHS = "paths open to anyone; the guest authorizes others (TokenReview, SubjectAccessReview)"
# Section -> its flags, in the order of the help.
SECTIONS: dict[str, tuple[Flag, ...]] = {
    "Harvester": (
        Flag("cloud-config", "string", "", "kubeconfig for Harvester, with the VMs' namespace (required)"),
        Flag("cluster-name", "string", "kubernetes", "the guest cluster's name, as its VMs are labelled"),
        Flag("management-network", "string", "", "Harvester network (NAMESPACE/NAME) of node addresses"),
        Flag("node-ip-cidr", "string", "", "ranges of internal addresses: at most one of each family"),
        Flag("node-exclude-ip-ranges", "list", "", "addresses and ranges that are no external addresses"),
        Flag("disable-vmi-controller", "bool", "false", "do not follow guest agents; write no network map"),
        Flag("disable-annotation-alpha-provided-ip-addr", "bool", "false", "ignore kubelet's --node-ip"),
        # Since chart 0.2.16.
        Flag("disable-hostname-lookup", "bool", "false", "never ask guest agents for their host name"),
        Flag("kube-vip-svc-election", "bool", "false", "kube-vip elects a leader per service (Windrow's)"),
        Flag("orphan-sweep", "string", "report", "orphaned load balancers: off, report, delete (Windrow's)"),
        Flag("host-api-qps", "float", "50", "requests per second to Harvester (Windrow's)"),
        Flag("host-api-burst", "int", "100", "requests to Harvester at once (Windrow's)"),
    ),
    "Guest cluster": (
        Flag("kubeconfig", "string", "", "the guest; else $KUBECONFIG, else the pod's service account"),
        Flag("master", "string", "", "address of the guest's API server, before that of the kubeconfig"),
        # The Go program has 20 and 30 here, and 5 and 10 for Harvester: a hundred services wait minutes for that.
        Flag("kube-api-qps", "float", "100", "requests per second to the guest's API server"),
        Flag("kube-api-burst", "int", "200", "requests to the guest's API server at once"),
        Flag("kube-api-content-type", "string"),
        Flag("use-service-account-credentials", "bool"),
    ),
    "Controllers": (
        Flag("controllers", "list", "*", f"`*`, NAME or -NAME of {', '.join(CONTROLLERS)} (idle)"),
        Flag("concurrent-node-syncs", "int", "1", "workers that reconcile nodes; 4 at least"),
        Flag("concurrent-service-syncs", "int", "1", "workers that reconcile services; 8 at least"),
        Flag("concurrent-node-status-updates", "int"),
        Flag("min-resync-period", "duration"),
        Flag("node-monitor-period", "duration"),
        Flag("node-status-update-frequency", "duration"),
        Flag("node-sync-period", "duration"),
        Flag("route-reconciliation-period", "duration"),
        Flag("controller-start-interval", "duration"),
        Flag("allocate-node-cidrs", "bool"),
        Flag("allow-untagged-cloud", "bool"),
        Flag("cidr-allocator-type", "string"),
        Flag("cloud-provider", "string"),
        Flag("cluster-cidr", "string"),
        Flag("configure-cloud-routes", "bool"),
        Flag("external-cloud-volume-plugin", "string"),
        Flag("feature-gates", "string"),
        Flag("emulated-version", "list"),
        Flag("emulation-forward-compatible", "bool"),
        Flag("runtime-config-emulation-forward-compatible", "bool"),
    ),
    "Leader election": (
        Flag("leader-elect", "bool", "true", "work only while holding the Lease"),
        Flag("leader-elect-resource-name", "string", "cloud-controller-manager", f"name {_LEASE}"),
        Flag("leader-elect-resource-namespace", "string", "kube-system", f"namespace {_LEASE}"),
        Flag("leader-elect-resource-lock", "string", "leases", "kind of the lock: leases only"),
        Flag("leader-elect-lease-duration", "duration", "15s", "how long the Lease lasts without a renewal"),
        Flag("leader-elect-renew-deadline", "duration", "10s", "work ends after so long without a renewal"),
        Flag("leader-elect-retry-period", "duration", "2s", "how often the Lease is tried or renewed"),
        Flag("enable-leader-migration", "bool"),
        Flag("leader-migration-config", "string"),
    ),
    "Probes and metrics": (
        Flag("secure-port", "int", "10258", "HTTPS port of /healthz, /livez, /readyz, /metrics; 0 for none"),
        Flag("bind-address", "string", "0.0.0.0", "address of that port"),
        Flag("permit-port-sharing", "bool", "false", "let several processes have the port (SO_REUSEPORT)"),
        Flag("tls-cert-file", "string", "", "certificate (PEM), reloaded when it changes; else self-signed"),
        Flag("tls-private-key-file", "string", "", "key (PEM) of that certificate"),
        Flag("tls-min-version", "string", "VersionTLS12", "VersionTLS12 or VersionTLS13"),
        Flag("authorization-always-allow-paths", "list", "/healthz,/readyz,/livez", _OPEN_PATHS),
        Flag("permit-address-sharing", "bool"),
        Flag("cert-dir", "string"),
        Flag("tls-cipher-suites", "list"),
        Flag("tls-curve-preferences", "list"),
        Flag("tls-sni-cert-key", "list"),
        Flag("disable-http2-serving", "bool"),
        Flag("http2-max-streams-per-connection", "int"),
        Flag("authentication-kubeconfig", "string"),
        Flag("authentication-skip-lookup", "bool"),
        Flag("authentication-token-webhook-cache-ttl", "duration"),
        Flag("authentication-tolerate-lookup-failure", "bool"),
        Flag("authorization-kubeconfig", "string"),
        Flag("authorization-webhook-cache-authorized-ttl", "duration"),
        Flag("authorization-webhook-cache-unauthorized-ttl", "duration"),
        Flag("client-ca-file", "string"),
        Flag("requestheader-allowed-names", "list"),
        Flag("requestheader-client-ca-file", "string"),
        Flag("requestheader-extra-headers-prefix", "list"),
        Flag("requestheader-group-headers", "list"),
        Flag("requestheader-uid-headers", "list"),
        Flag("requestheader-username-headers", "list"),
        Flag("profiling", "bool"),
        Flag("contention-profiling", "bool"),
        Flag("allow-metric-labels", "string"),
        Flag("allow-metric-labels-manifest", "string"),
        Flag("disabled-metrics", "list"),
        Flag("show-hidden-metrics-for-version", "string"),
    ),
    "Webhooks": (
        Flag("webhooks", "list"),
        Flag("webhook-bind-address", "string"),
        Flag("webhook-secure-port", "int"),
        Flag("webhook-cert-dir", "string"),
        Flag("webhook-disable-http2-serving", "bool"),
        Flag("webhook-tls-cert-file", "string"),
        Flag("webhook-tls-private-key-file", "string"),
        Flag("webhook-tls-cipher-suites", "list"),
        Flag("webhook-tls-curve-preferences", "list"),
        Flag("webhook-tls-min-version", "string"),
    ),
    "Log and help": (
        Flag("v", "int", "0", "log verbosity: 1 warnings of libraries, 3 info, 5 debug, 6 each request"),
        Flag("help", "bool", "false", "this text"),
        Flag("version", "version", "false", "the version"),
        Flag("show-full-help-on-error", "bool", "false", "print this text, too, when a flag is wrong"),
        Flag("vmodule", "string"),
        Flag("logging-format", "string", "text", "log format: text, json"),
        Flag("log-flush-frequency", "duration"),
        Flag("log-json-info-buffer-size", "string"),
        Flag("log-json-split-stream", "bool"),
        Flag("log-text-info-buffer-size", "string"),
        Flag("log-text-split-stream", "bool"),
    ),
}
SHORT = {"v": "v", "h": "help"}
FLAGS: dict[str, Flag] = {flag.name: flag for flags in SECTIONS.values() for flag in flags}

WIDTH = 80
SUMMARY = """\
harvester-cloud-provider keeps a guest cluster in step with Harvester: its nodes
with their VMs, its services of type LoadBalancer with addresses of Harvester's
pools. It runs in the guest cluster, in place of the Go program of the same
name: it takes the same flags, the same cloud config and the same Lease.
"""
_PLACEHOLDERS = {"string": " TEXT", "int": " N", "float": " N", "duration": " DURATION", "list": " LIST"}


def shown(name: str) -> str:
    """The flag as messages of the Go program show it."""
    short = next((short for short, long in SHORT.items() if long == name), "")
    return f"-{short}, --{name}" if short else f"--{name}"


def render_help() -> str:
    """Every flag: those that work with their meaning, the others by name."""
    parts = [SUMMARY, "Usage:\n  harvester-cloud-provider --cloud-config FILE [flags]\n"]
    for section, flags in SECTIONS.items():
        if working := [_render_flag(flag) for flag in flags if flag.has_effect]:
            parts.append("\n".join([f"{section}:", *working]) + "\n")
    idle = ", ".join(sorted(f"--{flag.name}" for flag in FLAGS.values() if not flag.has_effect))
    parts.append(f"Accepted without effect, because the Go program takes them:\n{_fill(idle, 2)}\n")
    return "\n".join(parts)


def _render_flag(flag: Flag) -> str:
    default = f" (default {flag.default})" if flag.default not in ("", "false") else ""
    return f"  {shown(flag.name)}{_PLACEHOLDERS.get(flag.type, '')}\n{_fill(flag.about + default, 8)}"


def _fill(text: str, indent: int) -> str:
    blank = " " * indent
    return textwrap.fill(text, WIDTH, initial_indent=blank, subsequent_indent=blank, break_on_hyphens=False)
