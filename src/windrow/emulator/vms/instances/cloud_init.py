"""Cloud-init data of an instance: from a volume of its spec, inline or in Secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.text import decode_base64
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, nested

SOURCE_FIELDS = ("cloudInitNoCloud", "cloudInitConfigDrive")


@dataclass(frozen=True, slots=True)
class CloudInitData:
    user_data: str = field(default="", repr=False)
    network_data: str = field(default="", repr=False)


def _source(spec: Mapping[str, Any]) -> Raw:
    for volume in spec.get("volumes") or ():
        for name in SOURCE_FIELDS:
            if name in volume:
                return volume[name] or {}
    return {}


def list_secrets(vmi: Mapping[str, Any]) -> list[str]:
    """The Secrets that the pod mounts."""
    source = _source(vmi["spec"])
    named = [nested(source, "secretRef", "name"), nested(source, "networkDataSecretRef", "name")]
    named += [nested(volume, "secret", "secretName") for volume in vmi["spec"].get("volumes") or ()]
    return list(dict.fromkeys(name for name in named if name))


def read_cloud_init(vmi: Mapping[str, Any], secrets: Mapping[Key, Raw], namespace: str) -> CloudInitData:
    """The content of the cloud-init disk. A missing Secret reads as empty: check `list_secrets` first."""
    source = _source(vmi["spec"])
    user = _from_secret(secrets, namespace, nested(source, "secretRef", "name"), "userdata")
    network = _from_secret(secrets, namespace, nested(source, "networkDataSecretRef", "name"), "networkdata")
    return CloudInitData(
        user if user is not None else _inline(source, "userData"),
        network if network is not None else _inline(source, "networkData"),
    )


def _inline(source: Mapping[str, Any], key: str) -> str:
    if source.get(f"{key}Base64"):
        return _decoded(source[f"{key}Base64"])
    return str(source.get(key) or "")


def _from_secret(secrets: Mapping[Key, Raw], namespace: str, name: str | None, key: str) -> str | None:
    if not name:
        return None
    data = nested(secrets.get((namespace, name)), "data", default={})
    # KubeVirt reads both spellings.
    for spelling in (key, {"userdata": "userData", "networkdata": "networkData"}[key]):
        if data.get(spelling):
            return _decoded(data[spelling])
    return ""


def _decoded(text: str) -> str:
    try:
        return decode_base64(text, "replace")
    except ValueError:
        return ""
