"""RKE2: the cloud-config that makes a machine a server or an agent of its cluster.

Servers are all machines with etcd or control plane role. The init server gets the authorities and no server to join;
later servers fetch the authorities from it, encrypted with the server token, so no other machine ever gets their keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windrow.bootstrap import node_config as keys
from windrow.bootstrap.cloud_config import File, render_document, scrub
from windrow.bootstrap.install_unit import BOOT_COMMANDS, RUN_COMMANDS, list_install_files
from windrow.bootstrap.pki import list_ca_files
from windrow.bootstrap.registries import render_registries
from windrow.bootstrap.rke2.charts import chart_configs, credential_secret, find_charts, harvester_values
from windrow.bootstrap.rke2.flags import MANAGED, check_config, server_only
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec
from windrow.bootstrap.tokens import agent_token, server_token
from windrow.core.formats import yaml
from windrow.core.formats.cidr import is_address
from windrow.core.formats.version import NotVersion, Version

__all__ = [
    "API_PORT",
    "NAME",
    "SUPERVISOR_PORT",
    "api_url",
    "check",
    "check_config",
    "config_hash",
    "config_hashes",
    "join_url",
    "render",
    "scrub",
]

NAME = "rke2"
SUPERVISOR_PORT = 9345
API_PORT = 6443
DATA_DIRECTORY = "/var/lib/rancher/rke2"
CONFIG_DIRECTORY = "/etc/rancher/rke2"
CONFIG_FILE = f"{CONFIG_DIRECTORY}/config.yaml.d/50-rancher.yaml"
S3_CA_FILE = f"{CONFIG_DIRECTORY}/etcd-s3-endpoint-ca.pem"
DEFAULT_CNI = "calico"  # Rancher's default; RKE2's own is canal

_NO_CONTROL_PLANE = ("disable-apiserver", "disable-controller-manager", "disable-scheduler")
_ETCD = {
    "disableSnapshots": "etcd-disable-snapshots",
    "snapshotScheduleCron": "etcd-snapshot-schedule-cron",
    "snapshotRetention": "etcd-snapshot-retention",
}
# S3's credential is in a Secret; its reader puts accessKey and secretKey beside its name.
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


def render(spec: BootstrapSpec) -> str:
    """The cloud-config document of a machine. The same spec gives the same text.

    Raises InvalidBootstrapSpec for a machine that could never join.
    """
    _require_joinable(spec)
    return render_document(spec.hostname, list(_list_files(spec)), bootcmd=BOOT_COMMANDS, runcmd=RUN_COMMANDS)


def render_config(spec: BootstrapSpec) -> dict[str, Any]:
    """The keys of the machine's own configuration file: the user's, then those of its roles."""
    user = keys.merge_config(spec)
    server = spec.is_server
    dropped = MANAGED if server else MANAGED | server_only()
    config = {key: value for key, value in user.items() if key not in dropped}
    config |= _identity(spec, config) | _credential_keys(spec, user)
    if not server:
        return config | {"server": spec.join_server, "token": agent_token(spec.secrets)}
    config.setdefault("cni", DEFAULT_CNI)
    config |= _server_keys(spec, config)
    return config


def config_hash(spec: BootstrapSpec) -> str:
    """A short digest of all that would have to be applied again on the machine if it changed.

    Made of the user's fields only, so a newer Windrow that renders differently gives the same revision. Secrets,
    labels and taints are not in it: those are renewed by other ways.
    """
    return config_hashes([spec])[0]


def config_hashes(specs: Iterable[BootstrapSpec]) -> list[str]:
    """The `config_hash` of each. Values that they share are encoded once: a Cluster has a hundred pools, and a value a
    megabyte. The digest is that of one JSON text, as ever; another one would replace every machine."""
    encode = _SharedJson()
    return [_config_hash(spec, encode) for spec in specs]


def _config_hash(spec: BootstrapSpec, encode: _SharedJson) -> str:
    fields = {
        "version": [encode(spec.version)],
        "roles": [encode(sorted(role.value for role in spec.roles))],
        "config": _join_object({key: [encode(value)] for key, value in keys.merge_config(spec).items()}),
        "tlsSan": [encode(sorted(spec.tls_san))],
        "etcd": [encode(_without_s3_credential(spec.etcd))],
        "registries": [encode(spec.registries)],
        "chartValues": [encode(spec.chart_values)],
        "additionalManifest": [encode(spec.additional_manifest)],
    }
    digest = hashlib.sha256()
    for piece in _join_object(fields):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _join_object(fields: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """The JSON object, as json.dumps writes it with sorted keys, of fields that are encoded already."""
    separator = b"{"
    for key in sorted(fields):
        yield separator + json.dumps(key).encode() + b": "
        yield from fields[key]
        separator = b", "
    yield b"}" if fields else b"{}"


class _SharedJson:
    """json.dumps that encodes each value once, as long as it lives."""

    def __init__(self) -> None:
        # By id; the value is held, so that its id stays its own.
        self._encoded: dict[int, tuple[Any, bytes]] = {}

    def __call__(self, value: Any) -> bytes:
        known = self._encoded.get(id(value))
        if known is None:
            text = json.dumps(value, sort_keys=True, default=_plain)
            known = self._encoded[id(value)] = (value, text.encode())
        return known[1]


def _without_s3_credential(etcd: Mapping[str, Any]) -> Mapping[str, Any]:
    s3 = etcd.get("s3")
    if not isinstance(s3, Mapping):
        return etcd
    return {**etcd, "s3": {key: value for key, value in s3.items() if key not in ("accessKey", "secretKey")}}


def check(spec: BootstrapSpec) -> list[str]:
    """Warnings about what will be rendered, each with a hint; what is refused is in `render`."""
    warnings = check_config(keys.merge_config(spec), Version.parse(spec.version))
    given = (spec.chart_values.get("harvester-cloud-provider") or {}).get("global") or {}
    name = (given.get("cattle") or {}).get("clusterName")
    if name and name != spec.cluster:
        warnings.append(
            f"chartValues give the cloud provider the cluster name {name!r}, but its machines are labelled {spec.cluster!r}, "
            "so load balancers would stay behind when it is deleted; remove clusterName from chartValues"
        )
    return warnings


def join_url(address: str) -> str:
    """The `server` of joining machines, for a server's address or name."""
    return f"https://{_bracketed(address)}:{SUPERVISOR_PORT}"


def api_url(address: str) -> str:
    """The URL of the cluster's API, on a server or a load balancer before them."""
    return f"https://{_bracketed(address)}:{API_PORT}"


def data_directory(spec: BootstrapSpec) -> str:
    return spec.data_directory or DATA_DIRECTORY


def credential_file(spec: BootstrapSpec) -> str:
    """The path of the guest credential on every node."""
    return f"{data_directory(spec)}/etc/config-files/cloud-provider-config"


# --- refusing --------------------------------------------------------------------------------------------------------


def _require_joinable(spec: BootstrapSpec) -> None:
    try:
        version = Version.parse(spec.version)
    except NotVersion as error:
        raise InvalidBootstrapSpec(str(error), "correct kubernetesVersion") from error
    if version.distribution != NAME:
        raise InvalidBootstrapSpec(
            f"{spec.version} is no release of RKE2", "choose a version that ends in +rke2r<n>"
        )
    if not spec.roles:
        raise InvalidBootstrapSpec(f"machine {spec.hostname} has no role", "give its pool a role")
    if spec.init_server and not spec.is_etcd:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} is first but has no etcd", "let a machine with etcd be the first"
        )
    if spec.init_server and spec.join_server:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} is first and is to join {spec.join_server}", "choose one of the two"
        )
    if not spec.init_server and not spec.join_server:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} has no server to join and would start a cluster of its own",
            "wait until a server answers",
        )


# --- configuration ---------------------------------------------------------------------------------------------------


def _identity(spec: BootstrapSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the node's identity. The user's lists are kept and extended."""
    identity: dict[str, Any] = {"node-name": spec.hostname}
    identity["node-label"] = keys.union(keys.list_of(config.get("node-label")), keys.kubelet_labels(spec))
    if taints := keys.union(keys.list_of(config.get("node-taint")), keys.node_taints(spec)):
        identity["node-taint"] = taints
    if spec.node_ip:
        identity["node-ip"] = spec.node_ip
    if spec.data_directory:
        identity["data-dir"] = spec.data_directory
    return identity


def _credential_keys(spec: BootstrapSpec, user: Mapping[str, Any]) -> dict[str, Any]:
    """`cloud-provider-config` as the path of a file, whatever the user wrote there."""
    if _credential_text(spec, user):
        return {keys.CLOUD_PROVIDER_CONFIG: credential_file(spec)}
    return {}


def _credential_text(spec: BootstrapSpec, user: Mapping[str, Any]) -> str:
    """The content of the credential file; "" where the user names a file that is already on the machine, or nothing.

    `secret://namespace:name` stands for the credential that the cluster controller delivers. Other text is the content itself.
    """
    given = str(user.get(keys.CLOUD_PROVIDER_CONFIG) or "")
    if given.startswith("/"):
        return ""
    if given and not given.startswith("secret://"):
        return given
    if spec.guest_credential and (given or keys.uses_harvester(user)):
        return spec.guest_credential.kubeconfig
    if given:
        raise InvalidBootstrapSpec(
            f"{given} was not read", "create the Secret it names, or remove cloud-provider-config"
        )
    return ""


def _server_keys(spec: BootstrapSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    server: dict[str, Any] = {
        "token": server_token(spec.secrets),
        # Without its hash: here the password is being set, and there is no server to check it against.
        "agent-token": spec.secrets.agent_password,
    }
    if not spec.init_server:
        server["server"] = spec.join_server
    if names := keys.union(keys.list_of(config.get("tls-san")), spec.tls_san):
        server["tls-san"] = names
    if spec.is_etcd:
        server |= _etcd_keys(spec.etcd)
    else:
        server["disable-etcd"] = True
    if not spec.is_control_plane:
        server |= dict.fromkeys(_NO_CONTROL_PLANE, True)
    return server


def _etcd_keys(etcd: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: etcd[field] for field, key in _ETCD.items() if etcd.get(field) not in (None, "")}
    if s3 := etcd.get("s3"):
        _require_s3_credential(s3)
        result["etcd-s3"] = True
        result |= {key: s3[field] for field, key in _S3.items() if s3.get(field) not in (None, "")}
        if s3.get("endpointCA"):
            result["etcd-s3-endpoint-ca"] = S3_CA_FILE
    return result


def _require_s3_credential(s3: Mapping[str, Any]) -> None:
    name = s3.get("cloudCredentialName")
    if name and not (s3.get("accessKey") and s3.get("secretKey")):
        raise InvalidBootstrapSpec(
            f"etcd snapshots go to S3 with credential {name!r}, which was not read", "create that Secret"
        )


# --- files -----------------------------------------------------------------------------------------------------------


def _list_files(spec: BootstrapSpec) -> Iterator[File]:
    data, user = data_directory(spec), keys.merge_config(spec)
    yield File(CONFIG_FILE, yaml.dump(render_config(spec)))
    if spec.init_server:
        yield from list_ca_files(spec.secrets, f"{data}/server/tls")
    authority = (spec.etcd.get("s3") or {}).get("endpointCA")
    if authority and spec.is_etcd:
        yield File(S3_CA_FILE, authority)
    yield from render_registries(spec.registries, CONFIG_DIRECTORY)
    if credential := _credential_text(spec, user):
        yield File(credential_file(spec), credential)
    if spec.is_control_plane:
        yield from _list_manifests(spec, user)
    yield from list_install_files(_environment(spec))


def _list_manifests(spec: BootstrapSpec, user: Mapping[str, Any]) -> Iterator[File]:
    """What the server applies to the cluster by itself, under the names Rancher gives these files."""
    directory = f"{data_directory(spec)}/server/manifests/rancher"
    values: Mapping[str, Any] = spec.chart_values
    harvester = keys.uses_harvester(user)
    if harvester:
        values = harvester_values(
            values,
            cluster=spec.cluster,
            credential_file=credential_file(spec),
            charts=find_charts(Version.parse(spec.version)),
        )
    if values:
        yield File(f"{directory}/managed-chart-config.yaml", yaml.dump_all(list(chart_configs(values))))
    if spec.additional_manifest:
        yield File(f"{directory}/addons.yaml", spec.additional_manifest)
    # A server that joins later would bring an older Secret back: its file is as old as the server.
    if harvester and spec.guest_credential and _writes_credential(spec):
        yield File(
            f"{directory}/harvester-credential.yaml", yaml.dump(credential_secret(spec.guest_credential))
        )


def _writes_credential(spec: BootstrapSpec) -> bool:
    """The first server, or where that has no API server, those that have it."""
    return spec.init_server or not spec.is_etcd


def _environment(spec: BootstrapSpec) -> dict[str, str]:
    kind = "server" if spec.is_server else "agent"
    environment = {
        "INSTALL_RKE2_VERSION": spec.version,
        "INSTALL_RKE2_TYPE": kind,
        "RKE2_SERVICE": f"rke2-{kind}.service",
        "WINDROW_REVISION": config_hash(spec),
    }
    if spec.data_directory:
        environment["INSTALL_RKE2_AGENT_IMAGES_DIR"] = f"{spec.data_directory}/agent/images"
    return environment


def _bracketed(address: str) -> str:
    return f"[{address}]" if is_address(address) and ":" in address else address


def _plain(value: Any) -> Any:
    """Mappings and sequences as `json` can write them."""
    return dict(value) if isinstance(value, Mapping) else list(value)
