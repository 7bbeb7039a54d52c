"""Secrets that the configuration of machines names, and that the manager reads for them: those of private registries,
the cloud credential for etcd snapshots in S3, and what `machineSelectorFiles` takes files from, ConfigMaps too."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.api.references import parse_secret_reference, qualify_credential
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.core.errors import UserError
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.kubernetes.kubectl import render_kubectl
from windrow.kubernetes.objects import Raw, annotations_of, is_dns_subdomain, nested, secret_texts
from windrow.kubernetes.resources import CONFIG_MAP, SECRET, ApiResource, ObjectRef
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
    contents, problems = await read_files(find, cluster)
    if problems:
        raise BootstrapSecretError(problems[0].message, problems[0].hint, problems[0].message)
    return replace(cluster, registries=registries, etcd=etcd, file_contents=contents)


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
    return problems + (await read_files(find, cluster))[1]


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


def find_s3_digest(cluster: Cluster, find: Callable[[ObjectRef], SecretData | None]) -> str:
    """Of what a guest is told of S3, as far as the Secret is known; "" where snapshots do not go there."""
    s3 = cluster.etcd.get("s3")
    if not isinstance(s3, Mapping) or not s3.get("bucket"):
        return ""
    ref = parse_secret_reference(
        qualify_credential(str(s3.get("cloudCredentialName") or ""), cluster.namespace)
    )
    held = find(ref) if ref is not None else None
    return sha256(dumps([dict(s3), dict(held.data) if held else {}])).hexdigest()[:16]


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
    ref = parse_secret_reference(qualify_credential(given, namespace))
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


# -- files -------------------------------------------------------------------------------------------------------

FILES = "spec.rkeConfig.machineSelectorFiles"
# User data is in a Secret, which may have 1 MiB, and is written in base64.
MAX_FILE_BYTES = 500_000
_KINDS = {"secret": SECRET, "configMap": CONFIG_MAP}

FileContents = dict[tuple[str, str, str], bytes]


async def read_files(find: FindSecret, cluster: Cluster) -> tuple[FileContents, list[Problem]]:
    """The contents of `machineSelectorFiles`, by source, name and key, and all that is wrong with them.

    An object must name the Cluster in its annotation, as in Rancher: the right to write a Cluster is not that to read the
    Secrets beside it.
    """
    contents: FileContents = {}
    problems: list[Problem] = []
    known: dict[ObjectRef, Raw | None] = {}
    for place, entry in enumerate(cluster.selector_files):
        for number, source in enumerate(entry.get("fileSources") or ()):
            where = f"{FILES}[{place}].fileSources[{number}]"
            for kind, resource in _KINDS.items():
                given = source.get(kind) or {}
                if not given.get("name"):
                    continue
                ref = resource.ref(given["name"], cluster.namespace)
                if ref not in known:
                    known[ref] = await find(ref)
                if refusal := find_fault_of_use(known[ref], ref, cluster):
                    field = f"{where}.{kind}.name"
                    problems.append(Problem(f"{field}: {refusal[0]}", refusal[1], field))
                else:
                    _read_items(known[ref] or {}, given, f"{where}.{kind}", ref, contents, problems)
    if (size := _size_of_files(cluster, contents)) > MAX_FILE_BYTES:
        fault = f"{FILES}: the files have {size} bytes together"
        problems.append(Problem(fault, f"bring {MAX_FILE_BYTES} at most, the rest with the image", FILES))
    return contents, problems


def _size_of_files(cluster: Cluster, contents: FileContents) -> int:
    """The bytes of all files. One key may be many of them; one that several entries write to the same path counts once."""
    files = {
        (kind, given["name"], str(item["key"]), item["path"])
        for entry in cluster.selector_files
        for source in entry.get("fileSources") or ()
        for kind in _KINDS
        if (given := source.get(kind) or {}).get("name")
        for item in given.get("items") or ()
    }
    return sum(len(contents.get((kind, name, key), b"")) for kind, name, key, _ in files)


def find_fault_of_use(raw: Raw | None, ref: ObjectRef, cluster: Cluster) -> tuple[str, str] | None:
    """What keeps the Cluster from using the object, and the cure."""
    name = f"{ref.kind.kind} {ref.namespace}/{ref.name}"
    command = f"annotate --overwrite {ref.kind.kind.lower()} {ref.name} {AUTHORIZED_CLUSTERS}={cluster.name}"
    cure = f"{render_kubectl(command, ref.namespace)} (a list with commas; keep the clusters that it has)"
    if raw is None:
        return f"{name} does not exist", f"create it, with annotation {AUTHORIZED_CLUSTERS}: {cluster.name}"
    allowed = str(annotations_of(raw).get(AUTHORIZED_CLUSTERS) or "").split(",")
    if cluster.name not in (one.strip() for one in allowed):
        return f"{name} does not allow its use by Cluster {cluster.name}", cure
    return None


def _read_items(
    raw: Raw,
    given: Mapping[str, Any],
    where: str,
    ref: ObjectRef,
    contents: FileContents,
    problems: list[Problem],
) -> None:
    kind = "secret" if ref.kind == SECRET else "configMap"
    for place, item in enumerate(given.get("items") or ()):
        content = _content_of(raw, ref.kind, str(item["key"]))
        if content is None:
            path = f"{where}.items[{place}].key"
            fault = f"{path}: {ref.kind.kind} {ref.namespace}/{ref.name} has no key {item['key']!r}"
            problems.append(Problem(fault, "add it, or correct the key", path))
            continue
        digest = b64encode(sha256(content).digest()).decode()
        if item.get("hash") and item["hash"] != digest:
            path = f"{where}.items[{place}].hash"
            # Not which: that of a short text tells the text, to all who may read the Cluster.
            fault = f"{path} is {abbreviate(item['hash'])}, and the value of key {item['key']!r} has another"
            problems.append(Problem(fault, "correct the content, or the hash", path))
            continue
        contents[kind, ref.name, str(item["key"])] = content


def _content_of(raw: Raw, kind: ApiResource, key: str) -> bytes | None:
    """The value of a key; of a ConfigMap `data` is text. None where there is none."""
    if kind == CONFIG_MAP and key in (plain := raw.get("data") or {}):
        return str(plain[key]).encode()
    encoded = raw.get("binaryData" if kind == CONFIG_MAP else "data")
    try:
        return b64decode(str((encoded or {})[key]), validate=True)
    except (KeyError, ValueError):
        return None
