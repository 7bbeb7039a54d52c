"""K3s: the cloud-config that makes a machine a server or an agent of its cluster.

As with RKE2, servers are all machines with etcd or control plane role, the init server gets the authorities, and later
servers fetch them from it. What differs: the init server is told `cluster-init` (else it would keep its data in SQLite, and
no second server could join); the supervisor shares the port of the API; the cloud provider is a translation
(`cloud_provider`), and its charts are HelmCharts of ours (`charts`), since K3s bundles none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windrow.bootstrap import node_config as keys
from windrow.bootstrap.charts import (
    CLOUD_PROVIDER_CHART,
    CREDENTIAL_SECRET,
    CSI_DRIVER_CHART,
    NAMESPACE,
    check_cluster_name,
    check_credential_path,
    credential_manifest,
    harvester_values,
    overlay,
)
from windrow.bootstrap.cloud_config import File, scrub
from windrow.bootstrap.config_hash import config_hash, config_hashes
from windrow.bootstrap.install.unit import Installer, list_install_files
from windrow.bootstrap.k3s import cloud_provider as provider
from windrow.bootstrap.k3s.charts import HARVESTER_CHARTS, helm_chart, list_given_charts, pinned_charts
from windrow.bootstrap.k3s.cloud_provider import find_cloud_provider
from windrow.bootstrap.k3s.flags import KEYS, check_config, dropped_keys
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.machine_files import list_machine_files, list_user_manifests, render_machine
from windrow.bootstrap.restore import list_restore_files
from windrow.bootstrap.server_config import (
    ADMISSION_ARGUMENT,
    agent_keys,
    list_pod_security_contradictions,
    server_keys,
)
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec, Role
from windrow.bootstrap.support_matrix.matrix import CHARTS, Numbers, SupportMatrix
from windrow.core.formats import yaml
from windrow.core.formats.version import Version

__all__ = [
    "INSTALLER",
    "LAYOUT",
    "NAME",
    "check",
    "config_hash",
    "config_hashes",
    "find_cloud_provider",
    "find_harvester_charts",
    "list_contradictions",
    "list_files",
    "render",
    "scrub",
]

NAME = "k3s"
LAYOUT = Layout(NAME, "K3s", supervisor_port=6443)
LOCAL_STORAGE = "local-storage"
# What Rancher's form fills in for RKE2. It stays where the version of such a manifest is changed to one of K3s.
RKE2_CREDENTIAL_FILE = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"

# The script of get.k3s.io would start the service at once; ours does, after it has checked the binary. It keeps every
# variable that begins with K3S_ in a file beside the unit, so ours have other names where they can. `install` replaces a
# binary that runs.
INSTALLER = Installer(
    LAYOUT,
    service="WINDROW_SERVICE",
    services=("k3s.service", "k3s-agent.service"),
    install="""\
if [ -n "${INSTALL_K3S_ARTIFACT_PATH:-}" ]; then
  mkdir -p "$WINDROW_IMAGES"
  for archive in "$INSTALL_K3S_ARTIFACT_PATH"/k3s-airgap-images-*; do
    if [ -f "$archive" ]; then
      cp "$archive" "$WINDROW_IMAGES/"
    fi
  done
  if [ -f "$INSTALL_K3S_ARTIFACT_PATH/k3s" ]; then
    install -m 0755 "$INSTALL_K3S_ARTIFACT_PATH/k3s" "${INSTALL_K3S_BIN_DIR:-/usr/local/bin}/k3s"
  fi
  export INSTALL_K3S_SKIP_DOWNLOAD=true
  sh "$INSTALL_K3S_ARTIFACT_PATH/install.sh"
else
  curl -fsSL --retry 5 --connect-timeout 10 -o /run/windrow-install-k3s.sh https://get.k3s.io
  sh /run/windrow-install-k3s.sh
fi
""",
)


def render(spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> str:
    """The cloud-config document of a machine, for which no `matrix` says anything: the charts are pinned. The same spec gives
    the same text.

    Raises InvalidBootstrapSpec for a machine that could never join, or whose keys contradict each other.
    """
    return render_machine(spec, LAYOUT, "k3s<n>", list_contradictions, list_files)


def list_files(spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> Iterator[File]:
    """The files of the document that `render` gives, in their order. Raises InvalidBootstrapSpec."""
    return _list_files(spec)


def render_config(spec: BootstrapSpec) -> dict[str, Any]:
    """The keys of the machine's own configuration file: the user's, then those of its roles."""
    user = keys.merge_config(spec)
    chosen = find_cloud_provider(user, spec.on_harvester)
    config = {key: value for key, value in user.items() if key not in dropped_keys()}
    if not spec.is_server:
        known = KEYS.list_agent_keys(Version.parse(spec.version).line)
        config = {key: value for key, value in config.items() if key in known}
    config |= keys.identity_keys(spec, config, _taints(spec)) | provider.node_keys(chosen, config)
    if not spec.is_server:
        return config | agent_keys(spec)
    config |= server_keys(spec, config, LAYOUT) | provider.server_keys(chosen, config)
    if spec.pod_security and spec.is_control_plane:
        ours = f"{ADMISSION_ARGUMENT}={LAYOUT.pod_security_file}"
        config["kube-apiserver-arg"] = keys.union(keys.list_of(config.get("kube-apiserver-arg")), [ours])
    return config | ({"cluster-init": True} if spec.init_server else {})


def find_harvester_charts(spec: BootstrapSpec, matrix: SupportMatrix) -> dict[str, Numbers]:
    """The Harvester charts that Windrow installs, as it pins them: the matrix has none of K3s, which brings none."""
    own = _list_own_charts(spec, find_cloud_provider(keys.merge_config(spec), spec.on_harvester))
    pinned = pinned_charts()
    versions = zip(CHARTS, (pinned.cloud_provider, pinned.csi_driver), strict=True)
    return {name: version for name, version in versions if name in own}


def list_contradictions(spec: BootstrapSpec) -> list[InvalidBootstrapSpec]:
    """What in the user's keys cannot be read or cannot be together, each with a hint."""
    user = keys.merge_config(spec)
    chosen = find_cloud_provider(user, spec.on_harvester)
    of_provider = provider.list_contradictions(chosen, user, _list_own_charts(spec, chosen))
    return [
        *keys.list_malformed(user, keys.EXTENDED),
        *keys.list_node_contradictions(user),
        *of_provider,
        *list_pod_security_contradictions(spec, user),
    ]


def check(spec: BootstrapSpec) -> list[str]:
    """Warnings about what will be rendered, each with a hint; what is refused is in `list_contradictions`."""
    user = keys.merge_config(spec)
    warnings = check_config(user, Version.parse(spec.version)) + check_cluster_name(spec)
    chosen = find_cloud_provider(user, spec.on_harvester)
    if chosen == provider.NONE:
        if user.get(keys.CLOUD_PROVIDER_CONFIG):
            warnings.append(
                f"{keys.CLOUD_PROVIDER_CONFIG!r} means nothing without a cloud provider; "
                f"remove it, or write {keys.CLOUD_PROVIDER_NAME}: harvester"
            )
        return warnings
    if user.get("node-external-ip"):
        warnings.append(
            "'node-external-ip' is for K3s' own cloud controller, which is off; remove it, the provider sets addresses"
        )
    if chosen != keys.HARVESTER:
        return warnings
    own = _list_own_charts(spec, chosen)
    if CLOUD_PROVIDER_CHART in own:
        warnings += check_credential_path(spec)
    warnings += [
        f"additionalManifest installs the chart {name}, so Windrow does not; its credential is in Secret "
        f"{NAMESPACE}/{CREDENTIAL_SECRET} and in {LAYOUT.credential_file(spec)}, and chartValues are applied to it"
        for name in HARVESTER_CHARTS
        if name not in own
    ]
    if CSI_DRIVER_CHART in own and LOCAL_STORAGE not in keys.list_disabled(user):
        warnings.append(
            "K3s' local storage and Harvester's are both default StorageClasses, and claims that name none get the newer "
            f"one; write disable: [{LOCAL_STORAGE}] to have Harvester's alone"
        )
    return warnings


def _taints(spec: BootstrapSpec) -> list[str]:
    """K3s' own charts do not tolerate the taint of etcd, so a node with both roles has only that of the control plane."""
    roles = spec.roles - {Role.ETCD} if spec.is_control_plane else spec.roles
    return keys.node_taints(replace(spec, roles=roles))


def _list_own_charts(spec: BootstrapSpec, chosen: str) -> list[str]:
    """The Harvester charts that we install: those that the user does not."""
    if chosen != keys.HARVESTER:
        return []
    given = list_given_charts(spec.additional_manifest)
    return [name for name in HARVESTER_CHARTS if name not in given]


# --- files -----------------------------------------------------------------------------------------------------------


def _list_files(spec: BootstrapSpec) -> Iterator[File]:
    user = keys.merge_config(spec)
    harvester = find_cloud_provider(user, spec.on_harvester) == keys.HARVESTER
    credential = keys.credential_text(spec, user, LAYOUT.credential_file(spec), harvester=harvester)
    manifests = _list_manifests(spec, user)
    yield from list_machine_files(spec, LAYOUT, render_config(spec), credential, manifests)
    yield from list_install_files(INSTALLER, _environment(spec), spec.environment)
    if spec.restore is not None:
        yield from list_restore_files(spec.restore, LAYOUT, INSTALLER.services[0])


def _list_manifests(spec: BootstrapSpec, user: Mapping[str, Any]) -> Iterator[File]:
    """What the server applies to the cluster by itself. The charts are brought once, by one server: a server of a later
    Windrow, which pins other versions, would change them unasked. Where that one is gone another inherits them."""
    directory = LAYOUT.manifests_directory(spec)
    chosen = find_cloud_provider(user, spec.on_harvester)
    own = _list_own_charts(spec, chosen)
    others = {name: values for name, values in spec.chart_values.items() if name not in own}
    yield from list_user_manifests(spec, LAYOUT, others)
    if own and spec.brings_charts:
        values = _chart_values(spec, user)
        charts = [helm_chart(name, values.get(name) or {}) for name in own]
        yield File(f"{directory}/harvester-charts.yaml", yaml.dump_all(charts))
    if chosen == keys.HARVESTER and spec.guest_credential and spec.brings_objects:
        yield credential_manifest(spec.guest_credential, directory)


def _chart_values(spec: BootstrapSpec, user: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {name: dict(spec.chart_values.get(name) or {}) for name in HARVESTER_CHARTS}
    if given[CLOUD_PROVIDER_CHART].get("cloudConfigPath") == RKE2_CREDENTIAL_FILE:
        del given[CLOUD_PROVIDER_CHART]["cloudConfigPath"]
    if registry := user.get("system-default-registry"):
        # K3s tells it to the charts that it bundles; these two are to pull from there as well.
        images = {"global": {"cattle": {"systemDefaultRegistry": registry}}}
        given = {name: overlay(images, values) for name, values in given.items()}
    return harvester_values(
        given, cluster=spec.cluster, credential_file=LAYOUT.credential_file(spec), charts=pinned_charts()
    )


def _environment(spec: BootstrapSpec) -> dict[str, str]:
    kind = "server" if spec.is_server else "agent"
    return {
        "INSTALL_K3S_VERSION": spec.version,
        "INSTALL_K3S_EXEC": kind,
        "INSTALL_K3S_SKIP_START": "true",
        "INSTALL_K3S_SKIP_ENABLE": "true",
        "WINDROW_SERVICE": "k3s.service" if spec.is_server else "k3s-agent.service",
        "WINDROW_IMAGES": LAYOUT.images_directory(spec),
    }
