"""The configuration keys of a server and of an agent that RKE2 and K3s have in common: tokens, names, etcd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windrow.bootstrap.layout import Layout
from windrow.bootstrap.node_config import list_of, union
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec
from windrow.bootstrap.tokens import agent_token, server_token

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


def agent_keys(spec: BootstrapSpec) -> dict[str, Any]:
    """The keys by which a worker joins."""
    return {"server": spec.join_server, "token": agent_token(spec.secrets)}


def server_keys(spec: BootstrapSpec, config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    """The keys of a server with the roles of `spec`; `config` has the user's. Raises InvalidBootstrapSpec."""
    server: dict[str, Any] = {
        "token": server_token(spec.secrets),
        # Without its hash: here the password is being set, and there is no server to check it against.
        "agent-token": spec.secrets.agent_password,
    }
    if not spec.init_server:
        server["server"] = spec.join_server
    if names := union(list_of(config.get("tls-san")), spec.tls_san):
        server["tls-san"] = names
    if spec.is_etcd:
        server |= _etcd_keys(spec.etcd, layout)
    else:
        server["disable-etcd"] = True
    if not spec.is_control_plane:
        server |= dict.fromkeys(_NO_CONTROL_PLANE, True)
    return server


# By which a user names an AdmissionConfiguration of his own: the key of RKE2, and the API server's argument.
POD_SECURITY_KEY = "pod-security-admission-config-file"
ADMISSION_ARGUMENT = "admission-control-config-file"


def list_pod_security_contradictions(
    spec: BootstrapSpec, user: Mapping[str, Any]
) -> Iterator[InvalidBootstrapSpec]:
    """A template of pod security beside a file of the user's own; the API server reads one."""
    arguments = [str(one).lstrip("-").partition("=")[0] for one in list_of(user.get("kube-apiserver-arg"))]
    given = [key for key in (POD_SECURITY_KEY,) if user.get(key)]
    given += [f"kube-apiserver-arg {ADMISSION_ARGUMENT}" for one in arguments if one == ADMISSION_ARGUMENT]
    if spec.pod_security and given:
        yield InvalidBootstrapSpec(
            f"defaultPodSecurityAdmissionConfigurationTemplateName is {spec.pod_security}, and {given[0]} names another "
            "file; the API server reads one",
            "remove one of the two",
        )


def _etcd_keys(etcd: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    result = {key: etcd[field] for field, key in _ETCD.items() if etcd.get(field) not in (None, "")}
    if s3 := etcd.get("s3"):
        _require_s3_credential(s3)
        result["etcd-s3"] = True
        result |= {key: s3[field] for field, key in _S3.items() if s3.get(field) not in (None, "")}
        if s3.get("endpointCA"):
            result["etcd-s3-endpoint-ca"] = layout.s3_ca_file
    return result


def _require_s3_credential(s3: Mapping[str, Any]) -> None:
    name = s3.get("cloudCredentialName")
    if name and not (s3.get("accessKey") and s3.get("secretKey")):
        raise InvalidBootstrapSpec(
            f"etcd snapshots go to S3 with credential {name!r}, which was not read", "create that Secret"
        )
