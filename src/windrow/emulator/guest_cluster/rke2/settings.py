"""RKE2's configuration files and flags.

`config.yaml`, then `config.yaml.d/*.yaml` in the order of their names: a later file replaces a key, `key+` appends to
it (reference/04 §7.7). A key becomes the flag of its name.

A key that is no flag of RKE2 ends the service here. Releases before 2022 did that; later ones warn ("Unknown flag
… found in config.yaml, skipping") and go on. The strict reading is on purpose: a skipped key would be a
wrong bootstrap without a symptom. Flags of servers in an agent's file are skipped with that warning, because
Rancher's cluster-wide settings bring them there.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.core.formats.yaml import NotYaml, load
from windrow.core.text import collapse_whitespace
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.system import has_user, list_wrong_parameters

Role = Literal["server", "agent"]
CONFIG = "/etc/rancher/rke2/config.yaml"

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
COMMON_FLAGS = frozenset(_COMMON.split()) | {
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
AGENT_FLAGS = COMMON_FLAGS | frozenset(_AGENT.split())
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
SERVER_FLAGS = AGENT_FLAGS | frozenset(_SERVER.split())
FLAGS: Mapping[Role, frozenset[str]] = {"server": SERVER_FLAGS, "agent": AGENT_FLAGS}

# Must be equal on all servers (reference/04 §7.7), with RKE2's defaults.
CRITICAL: Mapping[str, str] = {
    "cluster-cidr": "10.42.0.0/16",
    "service-cidr": "10.43.0.0/16",
    "cluster-dns": "10.43.0.10",
    "cluster-domain": "cluster.local",
    "disable-cloud-controller": "false",
    "disable-kube-proxy": "false",
    "egress-selector-mode": "agent",
}

_BUNDLED_CLOUDS = ("harvester", "rancher-vsphere")
_NETWORK_PLUGINS = frozenset({"calico", "canal", "cilium", "flannel", "none"})


class BadSettings(Exception):
    """RKE2 refuses to start with these settings; the message is RKE2's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags of one RKE2 process. Every flag holds a tuple; a plain value is a tuple of one."""

    role: Role
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def text(self, flag: str, default: str = "") -> str:
        values = self.flags.get(flag, ())
        return values[-1] if values else default

    def list(self, flag: str) -> tuple[str, ...]:
        """All values of a flag, comma-separated ones split."""
        return tuple(
            part.strip() for value in self.flags.get(flag, ()) for part in value.split(",") if part.strip()
        )

    def is_true(self, flag: str) -> bool:
        return self.text(flag).lower() in ("true", "1", "yes")

    def kubelet_argument(self, name: str) -> str:
        """The value of one `kubelet-arg`, "" where it is not given."""
        pairs = (value.lstrip("-").partition("=") for value in self.flags.get("kubelet-arg", ()))
        return next((value for key, _, value in pairs if key == name), "")

    @property
    def data_directory(self) -> str:
        return self.text("data-dir", "/var/lib/rancher/rke2").rstrip("/")

    @property
    def runs_etcd(self) -> bool:
        return self.role == "server" and not self.is_true("disable-etcd")

    @property
    def runs_api(self) -> bool:
        return self.role == "server" and not self.is_true("disable-apiserver")

    @property
    def cloud_provider(self) -> str:
        return self.text("cloud-provider-name")

    @property
    def has_external_cloud_provider(self) -> bool:
        """Whether kubelets wait for a cloud provider that is not part of RKE2."""
        return bool(self.cloud_provider) or self.kubelet_argument("cloud-provider") == "external"

    @property
    def network_plugin(self) -> str:
        chosen = [one for one in self.list("cni") if one != "multus"]
        return chosen[0] if chosen else "canal"

    def critical(self) -> dict[str, str]:
        """The values that all servers must share. The agent token is one of them, compared by itself."""
        found = {flag: self.text(flag, default).lower() for flag, default in CRITICAL.items()}
        if self.cloud_provider in _BUNDLED_CLOUDS:
            found["disable-cloud-controller"] = "true"
        return found


def read_settings(guest: GuestOS, role: Role, arguments: tuple[str, ...] = ()) -> Settings:
    """The settings on a machine's disk. Raises BadSettings with the text that RKE2 logs."""
    flags = _flags(arguments)
    path = next((value for flag, value in flags if flag == "config" and value), CONFIG)
    paths = [path] if guest.is_file(path) else []
    paths += [name for name in guest.list_under(path + ".d") if _is_drop_in(name, path + ".d")]
    values: dict[str, list[str]] = {}
    for name in paths:
        for key, value in _mapping(guest, name).items():
            plain = key.removesuffix("+")
            values[plain] = [*values.get(plain, []), *_texts(value)] if key.endswith("+") else _texts(value)
    warnings = _check_names(values, role)
    for flag, value in flags:
        if flag != "config":
            values.setdefault(flag, []).append(value)
    settings = Settings(role, {flag: tuple(found) for flag, found in values.items()}, tuple(warnings))
    _check(guest, settings)
    return settings


def _is_drop_in(name: str, directory: str) -> bool:
    return posixpath.dirname(name) == directory and name.lower().endswith((".yaml", ".yml"))


def _mapping(guest: GuestOS, path: str) -> Mapping[str, Any]:
    try:
        found = load((guest.read(path) or b"").decode("utf-8", "replace"))
    except NotYaml as error:
        raise BadSettings(f"failed to parse {path}: yaml: {collapse_whitespace(error)}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadSettings(
            f"failed to parse {path}: yaml: unmarshal errors: cannot unmarshal {type(found).__name__} into a mapping"
        )
    return {str(key): value for key, value in found.items()}


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [_text(value)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _flags(arguments: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        if word.startswith("--") or word == "-c":
            flag, sign, value = word.removeprefix("--").partition("=")
            found.append(("config" if flag == "-c" else flag, value if sign else next(words, "")))
    return found


def _check_names(values: dict[str, list[str]], role: Role) -> list[str]:
    warnings = []
    for flag in list(values):
        if flag in FLAGS[role]:
            continue
        if flag not in SERVER_FLAGS:
            raise BadSettings(f"flag provided but not defined: -{flag} (from {CONFIG})")
        warnings.append(f"Unknown flag --{flag} found in config.yaml, skipping")
        del values[flag]
    return warnings


def _check(guest: GuestOS, settings: Settings) -> None:
    if settings.role == "agent":
        for flag in ("server", "token"):
            if not settings.text(flag) and not settings.text(f"{flag}-file"):
                raise BadSettings(f"--{flag} is required")
    if settings.text("server") and not settings.text("token") and not settings.text("token-file"):
        raise BadSettings("RKE2_TOKEN is required to join a cluster")
    if (
        settings.is_true("disable-etcd")
        and not settings.text("server")
        and not settings.text("datastore-endpoint")
    ):
        raise BadSettings("invalid flag use; --server is required with --disable-etcd")
    if settings.is_true("disable-etcd") and settings.is_true("disable-apiserver"):
        raise BadSettings("invalid flag use; cannot use --disable-etcd with --disable-apiserver")
    _check_network(settings)
    _check_cloud(guest, settings)
    for flag in ("node-ip", "node-external-ip", "advertise-address", "bind-address"):
        for value in settings.list(flag):
            _check_address(flag, value)
    _check_profile(guest, settings)
    _check_files(guest, settings)


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


def _check_files(guest: GuestOS, settings: Settings) -> None:
    """Files that must be there, or must be YAML when they are."""
    security = settings.text("pod-security-admission-config-file")
    if security and not guest.is_file(security):
        raise BadSettings(f"open {security}: no such file or directory")
    registries = settings.text("private-registry", "/etc/rancher/rke2/registries.yaml")
    content = guest.read(registries)
    if content is not None:
        try:
            found = load(content.decode("utf-8", "replace"))
        except NotYaml as error:
            raise BadSettings(f"failed to read {registries}: yaml: {collapse_whitespace(error)}") from error
        if found is not None and not isinstance(found, dict):
            raise BadSettings(f"failed to read {registries}: it is not a mapping of mirrors and configs")


def _check_address(flag: str, value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise BadSettings(f"invalid {flag}: {value!r} is not an IP address") from error
