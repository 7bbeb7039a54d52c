"""RKE2: what a machine needs on its disk to become a server or an agent of its cluster.

Servers are all machines with etcd or control plane role. The first server brings the authorities and nothing to join;
later servers fetch the authorities from it, encrypted with the server token, so no other machine ever gets their keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from windrow.bootstrap import config as keys
from windrow.bootstrap.authorities import list_authority_files
from windrow.bootstrap.charts import chart_configs, credential_secret, harvester_values
from windrow.bootstrap.document import File, render_document, scrub
from windrow.bootstrap.flags import OURS, SERVER_ONLY, check_config
from windrow.bootstrap.installation import BOOT_COMMANDS, RUN_COMMANDS, list_installation_files
from windrow.bootstrap.intent import BadIntent, NodeIntent, Role
from windrow.bootstrap.registries import render_registries
from windrow.bootstrap.tokens import agent_token, server_token
from windrow.bootstrap.versions import find_charts
from windrow.core import yaml
from windrow.core.cidr import is_address
from windrow.core.version import NotVersion, Version

__all__ = [
    "API_PORT",
    "NAME",
    "SUPERVISOR_PORT",
    "api_url",
    "check",
    "check_config",
    "join_url",
    "render",
    "revision",
    "scrub",
]

NAME = "rke2"
SUPERVISOR_PORT = 9345
API_PORT = 6443
DATA_DIRECTORY = "/var/lib/rancher/rke2"
CONFIG_DIRECTORY = "/etc/rancher/rke2"
CONFIG_FILE = f"{CONFIG_DIRECTORY}/config.yaml.d/50-rancher.yaml"
S3_AUTHORITY_FILE = f"{CONFIG_DIRECTORY}/etcd-s3-endpoint-ca.pem"
DEFAULT_CNI = "calico"  # Rancher's default; RKE2's own is canal

_NO_CONTROL_PLANE = ("disable-apiserver", "disable-controller-manager", "disable-scheduler")
_ETCD = {
    "disableSnapshots": "etcd-disable-snapshots",
    "snapshotScheduleCron": "etcd-snapshot-schedule-cron",
    "snapshotRetention": "etcd-snapshot-retention",
}
# S3's credential is in a Secret; whoever reads that puts accessKey and secretKey beside its name.
_S3 = {
    "endpoint": "etcd-s3-endpoint",
    "skipSSLVerify": "etcd-s3-skip-ssl-verify",
    "bucket": "etcd-s3-bucket",
    "region": "etcd-s3-region",
    "folder": "etcd-s3-folder",
    "retention": "etcd-s3-retention",
    "accessKey": "etcd-s3-access-key",
    "secretKey": "etcd-s3-secret-key",
}


def render(intent: NodeIntent) -> str:
    """The cloud-config document that makes a machine what `intent` says. The same intent gives the same text.

    Raises BadIntent for a machine that could never join.
    """
    _refuse_what_cannot_join(intent)
    return render_document(
        intent.hostname, list(_list_files(intent)), bootcmd=BOOT_COMMANDS, runcmd=RUN_COMMANDS
    )


def render_config(intent: NodeIntent) -> dict[str, Any]:
    """The keys of the machine's own configuration file: the user's, then those of its roles."""
    user = keys.merge_config(intent)
    server = _is_server(intent)
    unwanted = OURS if server else OURS | SERVER_ONLY
    config = {key: value for key, value in user.items() if key not in unwanted}
    config |= _identity(intent, config) | _credential_keys(intent, user)
    if not server:
        return config | {"server": intent.server, "token": agent_token(intent.secrets)}
    config.setdefault("cni", DEFAULT_CNI)
    config |= _server_keys(intent, config)
    return config


def revision(intent: NodeIntent) -> str:
    """A short digest of all that would have to be applied again on the machine if it changed.

    Made of the user's fields only, so a newer Windrow that renders differently gives the same revision. Secrets,
    labels and taints are not in it: those are renewed by other ways.
    """
    fields = {
        "version": intent.version,
        "roles": sorted(role.value for role in intent.roles),
        "config": keys.merge_config(intent),
        "tlsSan": sorted(intent.tls_san),
        "etcd": intent.etcd,
        "registries": intent.registries,
        "chartValues": intent.chart_values,
        "additionalManifest": intent.additional_manifest,
    }
    text = json.dumps(fields, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check(intent: NodeIntent) -> list[str]:
    """Warnings about what will be rendered, each a fact and a cure; what is refused is in `render`."""
    warnings = check_config(keys.merge_config(intent), Version.parse(intent.version))
    given = (intent.chart_values.get("harvester-cloud-provider") or {}).get("global") or {}
    name = (given.get("cattle") or {}).get("clusterName")
    if name and name != intent.cluster:
        warnings.append(
            f"the cloud provider is told that the cluster is {name!r}, but its machines are labelled {intent.cluster!r}, "
            "so load balancers would stay behind when it is deleted; remove clusterName from chartValues"
        )
    return warnings


def join_url(address: str) -> str:
    """What joiners take as `server`, for a server's address or name."""
    return f"https://{_bracketed(address)}:{SUPERVISOR_PORT}"


def api_url(address: str) -> str:
    """Where clients reach the cluster's API, on a server or an endpoint before them."""
    return f"https://{_bracketed(address)}:{API_PORT}"


def data_directory(intent: NodeIntent) -> str:
    return intent.data_directory or DATA_DIRECTORY


def credential_file(intent: NodeIntent) -> str:
    """Where the guest credential lies on every node."""
    return f"{data_directory(intent)}/etc/config-files/cloud-provider-config"


# --- refusing --------------------------------------------------------------------------------------------------------


def _refuse_what_cannot_join(intent: NodeIntent) -> None:
    try:
        version = Version.parse(intent.version)
    except NotVersion as error:
        raise BadIntent(str(error), "correct kubernetesVersion") from error
    if version.distribution != NAME:
        raise BadIntent(f"{intent.version} is no release of RKE2", "choose a version that ends in +rke2r<n>")
    if not intent.roles:
        raise BadIntent(f"machine {intent.hostname} has no role", "give its pool a role")
    if intent.first and Role.ETCD not in intent.roles:
        raise BadIntent(
            f"machine {intent.hostname} is first but has no etcd", "let a machine with etcd be the first"
        )
    if intent.first and intent.server:
        raise BadIntent(
            f"machine {intent.hostname} is first and is to join {intent.server}", "choose one of the two"
        )
    if not intent.first and not intent.server:
        raise BadIntent(
            f"machine {intent.hostname} has no server to join and would start a cluster of its own",
            "wait until a server answers",
        )


def _is_server(intent: NodeIntent) -> bool:
    return bool(intent.roles & {Role.ETCD, Role.CONTROL_PLANE})


# --- configuration ---------------------------------------------------------------------------------------------------


def _identity(intent: NodeIntent, config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that say which node this is. Lists of the user are kept and added to."""
    identity: dict[str, Any] = {"node-name": intent.hostname}
    identity["node-label"] = keys.joined(keys.list_of(config.get("node-label")), keys.kubelet_labels(intent))
    if taints := keys.joined(keys.list_of(config.get("node-taint")), keys.node_taints(intent)):
        identity["node-taint"] = taints
    if intent.node_ip:
        identity["node-ip"] = intent.node_ip
    if intent.data_directory:
        identity["data-dir"] = intent.data_directory
    return identity


def _credential_keys(intent: NodeIntent, user: Mapping[str, Any]) -> dict[str, Any]:
    """`cloud-provider-config` as the path of a file, whatever the user wrote there."""
    if _credential_text(intent, user):
        return {keys.CLOUD_PROVIDER_CONFIG: credential_file(intent)}
    return {}


def _credential_text(intent: NodeIntent, user: Mapping[str, Any]) -> str:
    """The content of the credential file; "" where the user names a file that is already on the machine, or nothing.

    `secret://namespace:name` stands for what the manager was told to deliver. Other text is the content itself.
    """
    given = str(user.get(keys.CLOUD_PROVIDER_CONFIG) or "")
    if given.startswith("/"):
        return ""
    if given and not given.startswith("secret://"):
        return given
    if intent.guest_credential and (given or keys.uses_harvester(user)):
        return intent.guest_credential.kubeconfig
    if given:
        raise BadIntent(
            f"{given} was not read", "create the Secret it names, or remove cloud-provider-config"
        )
    return ""


def _server_keys(intent: NodeIntent, config: Mapping[str, Any]) -> dict[str, Any]:
    server: dict[str, Any] = {
        "token": server_token(intent.secrets),
        # Without its hash: here the password is being set, there is nobody to check it against.
        "agent-token": intent.secrets.agent_password,
    }
    if not intent.first:
        server["server"] = intent.server
    if names := keys.joined(keys.list_of(config.get("tls-san")), intent.tls_san):
        server["tls-san"] = names
    if Role.ETCD in intent.roles:
        server |= _etcd_keys(intent.etcd)
    else:
        server["disable-etcd"] = True
    if Role.CONTROL_PLANE not in intent.roles:
        server |= dict.fromkeys(_NO_CONTROL_PLANE, True)
    return server


def _etcd_keys(etcd: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: etcd[field] for field, key in _ETCD.items() if etcd.get(field) not in (None, "")}
    if s3 := etcd.get("s3"):
        _refuse_missing_credential(s3)
        result["etcd-s3"] = True
        result |= {key: s3[field] for field, key in _S3.items() if s3.get(field) not in (None, "")}
        if s3.get("endpointCA"):
            result["etcd-s3-endpoint-ca"] = S3_AUTHORITY_FILE
    return result


def _refuse_missing_credential(s3: Mapping[str, Any]) -> None:
    name = s3.get("cloudCredentialName")
    if name and not (s3.get("accessKey") and s3.get("secretKey")):
        raise BadIntent(
            f"etcd snapshots go to S3 with credential {name!r}, which was not read", "create that Secret"
        )


# --- files -----------------------------------------------------------------------------------------------------------


def _list_files(intent: NodeIntent) -> Iterator[File]:
    data, user = data_directory(intent), keys.merge_config(intent)
    yield File(CONFIG_FILE, yaml.dump(render_config(intent)))
    if intent.first:
        yield from list_authority_files(intent.secrets, f"{data}/server/tls")
    authority = (intent.etcd.get("s3") or {}).get("endpointCA")
    if authority and Role.ETCD in intent.roles:
        yield File(S3_AUTHORITY_FILE, authority)
    yield from render_registries(intent.registries, CONFIG_DIRECTORY)
    if credential := _credential_text(intent, user):
        yield File(credential_file(intent), credential)
    if Role.CONTROL_PLANE in intent.roles:
        yield from _list_manifests(intent, user)
    yield from list_installation_files(_environment(intent))


def _list_manifests(intent: NodeIntent, user: Mapping[str, Any]) -> Iterator[File]:
    """What the server applies to the cluster by itself, under the names Rancher gives these files."""
    directory = f"{data_directory(intent)}/server/manifests/rancher"
    values: Mapping[str, Any] = intent.chart_values
    harvester = keys.uses_harvester(user)
    if harvester:
        values = harvester_values(
            values,
            cluster=intent.cluster,
            credential_file=credential_file(intent),
            charts=find_charts(Version.parse(intent.version)),
        )
    if values:
        yield File(f"{directory}/managed-chart-config.yaml", yaml.dump_all(list(chart_configs(values))))
    if intent.additional_manifest:
        yield File(f"{directory}/addons.yaml", intent.additional_manifest)
    # A server that joins later would bring an older Secret back: its file is as old as the server.
    if harvester and intent.guest_credential and _brings_credential(intent):
        yield File(
            f"{directory}/harvester-credential.yaml", yaml.dump(credential_secret(intent.guest_credential))
        )


def _brings_credential(intent: NodeIntent) -> bool:
    """The first server, or where that has no API server, those that have it."""
    return intent.first or Role.ETCD not in intent.roles


def _environment(intent: NodeIntent) -> dict[str, str]:
    kind = "server" if _is_server(intent) else "agent"
    environment = {
        "INSTALL_RKE2_VERSION": intent.version,
        "INSTALL_RKE2_TYPE": kind,
        "RKE2_SERVICE": f"rke2-{kind}.service",
        "WINDROW_REVISION": revision(intent),
    }
    if intent.data_directory:
        environment["INSTALL_RKE2_AGENT_IMAGES_DIR"] = f"{intent.data_directory}/agent/images"
    return environment


def _bracketed(address: str) -> str:
    return f"[{address}]" if is_address(address) and ":" in address else address


def _plain(value: Any) -> Any:
    """Mappings and sequences that `json` does not know as such."""
    return dict(value) if isinstance(value, Mapping) else list(value)
