"""RKE2: the cloud-config that makes a machine a server or an agent of its cluster.

Servers are all machines with etcd or control plane role. The init server gets the authorities and no server to join;
later servers fetch the authorities from it, encrypted with the server token, so no other machine ever gets their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from windrow.bootstrap import node_config as keys
from windrow.bootstrap.charts import (
    check_cluster_name,
    check_credential_path,
    credential_manifest,
    harvester_values,
)
from windrow.bootstrap.cloud_config import File, scrub
from windrow.bootstrap.config_hash import config_hash, config_hashes
from windrow.bootstrap.install.unit import Installer, list_install_files
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.machine_files import list_machine_files, list_user_manifests, render_machine
from windrow.bootstrap.restore import list_restore_files
from windrow.bootstrap.rke2.flags import (
    KEYS,
    check_config,
    list_network_contradictions,
    list_provider_contradictions,
)
from windrow.bootstrap.server_config import (
    POD_SECURITY_KEY,
    agent_keys,
    list_pod_security_contradictions,
    server_keys,
)
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec
from windrow.bootstrap.support_matrix.matrix import CHARTS, Numbers, SupportMatrix, shipped_matrix
from windrow.core.formats.bounds import abbreviate
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

NAME = "rke2"
LAYOUT = Layout(NAME, "RKE2", supervisor_port=9345)
DEFAULT_CNI = "calico"  # Rancher's default; RKE2's own is canal

INSTALLER = Installer(
    LAYOUT,
    service="RKE2_SERVICE",
    services=("rke2-server.service", "rke2-agent.service"),
    install="""\
if [ -n "${INSTALL_RKE2_ARTIFACT_PATH:-}" ]; then
  sh "$INSTALL_RKE2_ARTIFACT_PATH/install.sh"
else
  curl -fsSL --retry 5 --connect-timeout 10 -o /run/windrow-install-rke2.sh https://get.rke2.io
  sh /run/windrow-install-rke2.sh
fi
""",
)


def render(spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> str:
    """The cloud-config document of a machine; `matrix` says which charts its release brings, None for that of this Windrow. The
    same spec and matrix give the same text.

    Raises InvalidBootstrapSpec for a machine that could never join, or whose keys contradict each other.
    """
    return render_machine(spec, LAYOUT, "rke2r<n>", list_contradictions, partial(list_files, matrix=matrix))


def list_files(spec: BootstrapSpec, matrix: SupportMatrix | None = None) -> Iterator[File]:
    """The files of the document that `render` gives, in their order. Raises InvalidBootstrapSpec."""
    return _list_files(spec, matrix or shipped_matrix())


def render_config(spec: BootstrapSpec) -> dict[str, Any]:
    """The keys of the machine's own configuration file: the user's, then those of its roles."""
    user = keys.merge_config(spec)
    server = spec.is_server
    dropped = KEYS.managed if server else KEYS.managed | KEYS.server_only()
    config = {key: value for key, value in user.items() if key not in dropped}
    config |= keys.identity_keys(spec, config, keys.node_taints(spec)) | _credential_keys(spec, user)
    if not server:
        return config | agent_keys(spec)
    config.setdefault("cni", DEFAULT_CNI)
    if spec.pod_security and spec.is_control_plane:
        config[POD_SECURITY_KEY] = LAYOUT.pod_security_file
    return config | server_keys(spec, config, LAYOUT)


def find_cloud_provider(config: Mapping[str, Any], on_harvester: bool) -> str:
    """The name of the cluster's cloud provider; RKE2 has none unless one is named."""
    return str(config.get(keys.CLOUD_PROVIDER_NAME) or "")


def find_harvester_charts(spec: BootstrapSpec, matrix: SupportMatrix) -> dict[str, Numbers]:
    """The Harvester charts that RKE2 installs by itself, where they are known and not disabled."""
    user = keys.merge_config(spec)
    charts = matrix.find_charts(Version.parse(spec.version)) if keys.uses_harvester(user) else None
    if charts is None:
        return {}
    disabled = keys.list_disabled(user)
    versions = zip(CHARTS, (charts.cloud_provider, charts.csi_driver), strict=True)
    return {name: version for name, version in versions if name not in disabled}


def list_contradictions(spec: BootstrapSpec) -> list[InvalidBootstrapSpec]:
    """What in the user's keys cannot be read or cannot be together, each with a hint."""
    user = keys.merge_config(spec)
    malformed = keys.list_malformed(user, ("node-label", "node-taint", "tls-san"))
    network = list_network_contradictions(user, Version.parse(spec.version)) if spec.is_server else ()
    return [
        *malformed,
        *keys.list_node_contradictions(user),
        *list_provider_contradictions(user),
        *network,
        *list_pod_security_contradictions(spec, user),
    ]


def check(spec: BootstrapSpec) -> list[str]:
    """Warnings about what will be rendered, each with a hint; what is refused is in `render`."""
    user = keys.merge_config(spec)
    warnings = check_config(user, Version.parse(spec.version)) + check_cluster_name(spec)
    given = str(user.get(keys.CLOUD_PROVIDER_CONFIG))
    if given.startswith("/") and given != LAYOUT.credential_file(spec):
        warnings.append(
            f"RKE2 starts on no machine without the file {abbreviate(given)} of {keys.CLOUD_PROVIDER_CONFIG!r}, which Windrow "
            "does not bring; have the image or the user data bring it, or remove the key, and Windrow makes a credential"
        )
    return warnings + (check_credential_path(spec) if keys.uses_harvester(user) else [])


def _credential_keys(spec: BootstrapSpec, user: Mapping[str, Any]) -> dict[str, Any]:
    """`cloud-provider-config` as the path of a file, whatever the user wrote there."""
    return {keys.CLOUD_PROVIDER_CONFIG: LAYOUT.credential_file(spec)} if _credential(spec, user) else {}


def _credential(spec: BootstrapSpec, user: Mapping[str, Any]) -> str:
    path = LAYOUT.credential_file(spec)
    return keys.credential_text(spec, user, path, harvester=keys.uses_harvester(user))


# --- files -----------------------------------------------------------------------------------------------------------


def _list_files(spec: BootstrapSpec, matrix: SupportMatrix) -> Iterator[File]:
    credential = _credential(spec, keys.merge_config(spec))
    yield from list_machine_files(
        spec, LAYOUT, render_config(spec), credential, _list_manifests(spec, matrix)
    )
    yield from list_install_files(INSTALLER, _environment(spec), spec.environment)
    if spec.restore is not None:
        yield from list_restore_files(spec.restore, LAYOUT, INSTALLER.services[0])


def _list_manifests(spec: BootstrapSpec, matrix: SupportMatrix) -> Iterator[File]:
    values: Mapping[str, Any] = spec.chart_values
    harvester = keys.uses_harvester(keys.merge_config(spec))
    if harvester:
        values = harvester_values(
            values,
            cluster=spec.cluster,
            credential_file=LAYOUT.credential_file(spec),
            charts=matrix.find_charts(Version.parse(spec.version)),
        )
    yield from list_user_manifests(spec, LAYOUT, values)
    if harvester and spec.guest_credential and spec.brings_objects:
        yield credential_manifest(spec.guest_credential, LAYOUT.manifests_directory(spec))


def _environment(spec: BootstrapSpec) -> dict[str, str]:
    kind = "server" if spec.is_server else "agent"
    environment = {
        "INSTALL_RKE2_VERSION": spec.version,
        "INSTALL_RKE2_TYPE": kind,
        "RKE2_SERVICE": f"rke2-{kind}.service",
    }
    if spec.data_directory:
        environment["INSTALL_RKE2_AGENT_IMAGES_DIR"] = LAYOUT.images_directory(spec)
    return environment
