"""The configuration keys of a server and of an agent that RKE2 and K3s have in common: tokens, names, etcd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windrow.bootstrap.layout import Layout
from windrow.bootstrap.node_config import list_of, union
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec
from windrow.bootstrap.tokens import agent_token, server_token
from windrow.core.formats.version import NotVersion, Version
from windrow.core.text import encode_base64
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import SECRET

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
        server |= _etcd_keys(spec, config, layout)
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


# The Secret in the guest with all that is said of S3 has been read since v1.28.12, v1.29.7 and v1.30.3 (k3s-io/k3s#10487).
FIRST_S3_SECRET = (1, 31)


def uses_s3_secret(version: str, user: Mapping[str, Any]) -> bool:
    """Whether servers read what is said of S3 from a Secret of the guest, at each snapshot. They do not where a user's own key
    says anything of S3 (reference/10-day2 §2.1)."""
    if any(str(key).startswith("etcd-s3") for key in user):
        return False
    try:
        return Version.parse(version).line >= FIRST_S3_SECRET
    except NotVersion:
        return False


def s3_secret_name(layout: Layout) -> str:
    return f"{layout.name}-etcd-snapshot-s3-config"


def render_s3_secret(s3: Mapping[str, Any], layout: Layout) -> Raw:
    """The Secret in kube-system, of `etcd.s3` with its keys."""
    said = {key: s3[field] for field, key in _S3.items() if s3.get(field) not in (None, "")}
    said.pop("etcd-s3-retention", None)  # a key of the configuration alone
    if s3.get("endpointCA"):
        said["etcd-s3-endpoint-ca"] = s3["endpointCA"]
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in said.items()
    }
    data = {key: encode_base64(text) for key, text in texts.items()}
    kind = "etcd.k3s.cattle.io/s3-config-secret"
    return new_object(SECRET, s3_secret_name(layout), "kube-system", type=kind, data=data)


def _etcd_keys(spec: BootstrapSpec, config: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
    etcd = spec.etcd
    result = {key: etcd[field] for field, key in _ETCD.items() if etcd.get(field) not in (None, "")}
    if s3 := etcd.get("s3"):
        _require_s3_credential(s3)
        result["etcd-s3"] = True
        if uses_s3_secret(spec.version, config):
            kept = {"etcd-s3-retention": s3["retention"]} if s3.get("retention") not in (None, "") else {}
            return result | kept | {"etcd-s3-config-secret": s3_secret_name(layout)}
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
