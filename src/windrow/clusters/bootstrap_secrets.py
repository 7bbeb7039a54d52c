"""Secrets that the configuration of machines names, and that the manager reads for them: those of private registries, and
the cloud credential for etcd snapshots in S3."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.secrets import CredentialError
from windrow.core.errors import UserError
from windrow.core.formats.json import NotJson, loads
from windrow.kubernetes.objects import Raw, is_dns_subdomain, nested, secret_texts
from windrow.kubernetes.resources import SECRET, ObjectRef
from windrow.machines.port import Problem

_AUTH_KEYS = ("username", "password", "auth", "identityToken")
_DOCKER = ".dockerconfigjson"
_REGISTRIES = "spec.rkeConfig.registries.configs"
_S3 = "spec.rkeConfig.etcd.s3.cloudCredentialName"
# The keys of Rancher's S3 credential that take the place of what `etcd.s3` leaves out.
_S3_DEFAULTS = {
    "endpoint": "defaultEndpoint",
    "endpointCA": "defaultEndpointCA",
    "skipSSLVerify": "defaultSkipSSLVerify",
    "bucket": "defaultBucket",
    "region": "defaultRegion",
    "folder": "defaultFolder",
}

# The Secret, None where there is none.
FindSecret = Callable[[ObjectRef], Awaitable[Raw | None]]
# Raises CredentialError unless Clusters of the namespace may use the Secret `namespace:name`.
RequireConsent = Callable[[str, str], None]


class BootstrapSecretError(UserError):
    """A Secret that machines need is absent or holds nothing of use. `secret` is the sentence part that names it."""

    def __init__(self, message: str, hint: str, secret: str) -> None:
        super().__init__(message, hint)
        self.secret = secret


async def resolve_secrets(find: FindSecret, cluster: Cluster, require_consent: RequireConsent) -> Cluster:
    """The Cluster with the contents of the Secrets beside their names, as the bootstrap takes them.

    Raises BootstrapSecretError, CredentialError.
    """
    registries = await resolve_registries(find, cluster.namespace, cluster.registries)
    etcd = await resolve_s3(find, cluster.namespace, cluster.etcd, require_consent)
    return replace(cluster, registries=registries, etcd=etcd)


async def check_secrets(find: FindSecret, cluster: Cluster, require_consent: RequireConsent) -> list[Problem]:
    """What is wrong with the Secrets that the configuration names."""
    problems = []
    try:
        await resolve_registries(find, cluster.namespace, cluster.registries)
    except BootstrapSecretError as error:
        problems.append(Problem(error.message, error.hint, _REGISTRIES))
    try:
        await resolve_s3(find, cluster.namespace, cluster.etcd, require_consent)
    except (BootstrapSecretError, CredentialError) as error:
        problems.append(Problem(error.message, error.hint, _S3))
    return problems


async def _find_secret(find: FindSecret, ref: ObjectRef, what: str, hint: str) -> dict[str, str]:
    raw: Raw | None = await find(ref)
    if raw is None:
        secret = f"Secret {ref.namespace}/{ref.name}"
        raise BootstrapSecretError(f"{what} {secret}, which does not exist", hint, secret)
    return secret_texts(raw)


# -- registries --------------------------------------------------------------------------------------------------


async def resolve_registries(
    find: FindSecret, namespace: str, registries: Mapping[str, Any]
) -> dict[str, Any]:
    """`registries` with the contents of the Secrets beside their names. Raises BootstrapSecretError."""
    configs = {}
    for host, config in (registries.get("configs") or {}).items():
        resolved = dict(config or {})
        for field, key, read in (
            ("authConfigSecretName", "auth", _read_auth),
            ("tlsSecretName", "tls", _read_tls),
        ):
            if name := resolved.get(field):
                resolved[key] = read(
                    await _secret_of_registry(find, namespace, str(name), host), namespace, str(name), host
                )
        configs[host] = resolved
    return {**registries, "configs": configs} if configs else dict(registries)


async def _secret_of_registry(find: FindSecret, namespace: str, name: str, host: str) -> dict[str, str]:
    what = f"registry {host} takes its credentials from"
    if not is_dns_subdomain(name):
        raise BootstrapSecretError(
            f"{what} {name!r}, which is not the name of a Secret",
            "write the name of a Secret in the namespace of the Cluster",
            "the name of a Secret",
        )
    return await _find_secret(find, SECRET.ref(name, namespace), what, "create it beside the Cluster")


def _read_auth(data: Mapping[str, str], namespace: str, name: str, host: str) -> dict[str, str]:
    found = {key: data[key] for key in _AUTH_KEYS if data.get(key)}
    if not found and data.get(_DOCKER):
        found = _read_docker(data[_DOCKER], host)
    if not found:
        secret = f"Secret {namespace}/{name}"
        hint = f"give it username and password, auth, identityToken, or {_DOCKER}"
        raise BootstrapSecretError(f"{secret} holds no credentials for registry {host}", hint, secret)
    return found


def _read_docker(text: str, host: str) -> dict[str, str]:
    try:
        auths = nested(loads(text), "auths", default={})
    except NotJson:
        return {}
    entry = auths.get(host) or auths.get(f"https://{host}") or {}
    return {key: str(entry[key]) for key in _AUTH_KEYS if entry.get(key)}


def _read_tls(data: Mapping[str, str], namespace: str, name: str, host: str) -> dict[str, str]:
    if not (data.get("tls.crt") and data.get("tls.key")):
        secret = f"Secret {namespace}/{name}"
        message = f"{secret} holds no client certificate for registry {host}"
        raise BootstrapSecretError(message, "give it tls.crt and tls.key", secret)
    return {"cert": data["tls.crt"], "key": data["tls.key"]}


# -- S3 ----------------------------------------------------------------------------------------------------------


async def resolve_s3(
    find: FindSecret, namespace: str, etcd: Mapping[str, Any], require_consent: RequireConsent
) -> dict[str, Any]:
    """`etcd` with the access key, the secret key and the defaults of the cloud credential that `s3` names: `name`, in the
    namespace of the Cluster, or `namespace:name`. Raises BootstrapSecretError, CredentialError."""
    s3 = etcd.get("s3")
    given = str(s3.get("cloudCredentialName") or "") if isinstance(s3, Mapping) else ""
    if not isinstance(s3, Mapping) or not given:
        return dict(etcd)
    what = "etcd snapshots go to S3 with the credential in"
    ref = parse_secret_reference(given if ":" in given else f"{namespace}:{given}")
    if ref is None:
        hint = "write the name of a Secret in the namespace of the Cluster, or namespace:name"
        raise BootstrapSecretError(
            f"{what} {given!r}, which is not the name of a Secret", hint, "the name of a Secret"
        )
    require_consent(f"{ref.namespace}:{ref.name}", namespace)
    data = await _find_secret(
        find,
        ref,
        what,
        "create it, with the keys s3credentialConfig-accessKey and s3credentialConfig-secretKey",
    )
    found = {key.rpartition("-")[2]: text for key, text in data.items()}
    if not (found.get("accessKey") and found.get("secretKey")):
        secret = f"Secret {ref.namespace}/{ref.name}"
        hint = "give it s3credentialConfig-accessKey and s3credentialConfig-secretKey"
        raise BootstrapSecretError(f"{secret} holds no access key and secret key for S3", hint, secret)
    defaults: dict[str, Any] = {field: found[key] for field, key in _S3_DEFAULTS.items() if found.get(key)}
    if "skipSSLVerify" in defaults:
        defaults["skipSSLVerify"] = defaults["skipSSLVerify"] == "true"
    given_fields = {key: value for key, value in s3.items() if value not in (None, "")}
    keys = {"accessKey": found["accessKey"], "secretKey": found["secretKey"]}
    return {**etcd, "s3": {**defaults, **given_fields, **keys}}
