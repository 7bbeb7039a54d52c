"""Private registries: a Cluster names Secrets; machines need what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.client.client import Client
from windrow.core.errors import UserError
from windrow.core.formats.json import NotJson, loads
from windrow.kubernetes.objects import Raw, is_dns_subdomain, nested, secret_texts
from windrow.kubernetes.resources import SECRET
from windrow.machines.port import Problem

_AUTH_KEYS = ("username", "password", "auth", "identityToken")
_DOCKER = ".dockerconfigjson"
_FIELD = "spec.rkeConfig.registries.configs"


class RegistrySecretError(UserError):
    """A Secret that a registry needs is absent or holds nothing of use."""


async def resolve_registries(api: Client, namespace: str, registries: Mapping[str, Any]) -> dict[str, Any]:
    """`registries` with the contents of the Secrets beside their names, as the bootstrap takes it.

    Raises RegistrySecretError.
    """
    configs = {}
    for host, config in (registries.get("configs") or {}).items():
        resolved = dict(config or {})
        if name := resolved.get("authConfigSecretName"):
            resolved["auth"] = _read_auth(await _secret(api, namespace, str(name), host), str(name), host)
        if name := resolved.get("tlsSecretName"):
            resolved["tls"] = _read_tls(await _secret(api, namespace, str(name), host), str(name), host)
        configs[host] = resolved
    return {**registries, "configs": configs} if configs else dict(registries)


async def check_registries(api: Client, namespace: str, registries: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the Secrets that registries name."""
    try:
        await resolve_registries(api, namespace, registries)
    except RegistrySecretError as error:
        return [Problem(error.message, error.hint, _FIELD)]
    return []


async def _secret(api: Client, namespace: str, name: str, host: str) -> dict[str, str]:
    if not is_dns_subdomain(name):
        raise RegistrySecretError(
            f"registry {host} takes its credentials from {name!r}, which is not the name of a Secret",
            "write the name of a Secret in the namespace of the Cluster",
        )
    raw: Raw | None = await api.find(SECRET.ref(name, namespace))
    if raw is None:
        raise RegistrySecretError(
            f"registry {host} takes its credentials from Secret {namespace}/{name}, which does not exist",
            "create it beside the Cluster",
        )
    return secret_texts(raw)


def _read_auth(data: Mapping[str, str], name: str, host: str) -> dict[str, str]:
    found = {key: data[key] for key in _AUTH_KEYS if data.get(key)}
    if not found and data.get(_DOCKER):
        found = _read_docker(data[_DOCKER], host)
    if not found:
        raise RegistrySecretError(
            f"Secret {name} holds no credentials for registry {host}",
            f"give it username and password, auth, identityToken, or {_DOCKER}",
        )
    return found


def _read_docker(text: str, host: str) -> dict[str, str]:
    try:
        auths = nested(loads(text), "auths", default={})
    except NotJson:
        return {}
    entry = auths.get(host) or auths.get(f"https://{host}") or {}
    return {key: str(entry[key]) for key in _AUTH_KEYS if entry.get(key)}


def _read_tls(data: Mapping[str, str], name: str, host: str) -> dict[str, str]:
    if not (data.get("tls.crt") and data.get("tls.key")):
        raise RegistrySecretError(
            f"Secret {name} holds no client certificate for registry {host}", "give it tls.crt and tls.key"
        )
    return {"cert": data["tls.crt"], "key": data["tls.key"]}
