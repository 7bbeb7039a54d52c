"""Rancher's `registries` as the `registries.yaml` that RKE2 and K3s read.

Rancher names Secrets for credentials and client certificates; the caller has put their content in place of the
names: `auth` (username, password, auth, identityToken) and `tls` (cert, key), beside Rancher's own fields.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.core.formats import yaml

_AUTH = {"username": "username", "password": "password", "auth": "auth", "identityToken": "identity_token"}
_PEM = "-----BEGIN "
_TLS = {"caBundle": "ca_file", "cert": "cert_file", "key": "key_file"}


def render_registries(registries: Mapping[str, Any], directory: str) -> list[File]:
    """`registries.yaml` in `directory`, and the PEM files it points to; nothing where nothing is set.

    Raises InvalidBootstrapSpec where a Secret is named whose content is not there.
    """
    mirrors, configs = registries.get("mirrors") or {}, registries.get("configs") or {}
    if not mirrors and not configs:
        return []
    rendered: dict[str, Any] = {}
    files: list[File] = []
    if mirrors:
        rendered["mirrors"] = {name: dict(mirror or {}) for name, mirror in mirrors.items()}
    if configs:
        rendered["configs"] = {}
    for name, config in configs.items():
        rendered["configs"][name], pems = _render_config(name, config or {}, directory)
        files += pems
    return [File(f"{directory}/registries.yaml", yaml.dump(rendered)), *files]


def _render_config(name: str, config: Mapping[str, Any], directory: str) -> tuple[dict[str, Any], list[File]]:
    for field, where in (("authConfigSecretName", "auth"), ("tlsSecretName", "tls")):
        if config.get(field) and not config.get(where):
            raise InvalidBootstrapSpec(
                f"registry {name!r} takes its {where} from Secret {config[field]!r}, which was not read",
                "create the Secret beside the Cluster",
            )
    auth = {
        ours: config["auth"][theirs]
        for theirs, ours in _AUTH.items()
        if (config.get("auth") or {}).get(theirs)
    }
    pems = {**(config.get("tls") or {}), "caBundle": config.get("caBundle")}
    tls: dict[str, Any] = {}
    files = []
    for field, key in _TLS.items():
        if pems.get(field):
            tls[key] = f"{directory}/tls/{name.replace(':', '_')}-{field}.pem"
            files.append(File(tls[key], decode_pem(pems[field]) or pems[field]))
    if config.get("insecureSkipVerify"):
        tls["insecure_skip_verify"] = True
    return {key: value for key, value in (("auth", auth), ("tls", tls)) if value}, files


def decode_pem(text: str) -> str | None:
    """The PEM that `text` is, as such or in base64, as the API has `caBundle`; None for anything else."""
    if text.lstrip().startswith(_PEM):
        return text
    try:
        decoded = b64decode("".join(text.split()), validate=True).decode()
    except ValueError:
        return None
    return decoded if decoded.lstrip().startswith(_PEM) else None
