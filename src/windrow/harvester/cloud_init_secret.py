"""The Secret that a machine reads its cloud-init from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.text import decode_base64, encode_base64
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import Raw, nested, new_object, uid_of
from windrow.kubernetes.resources import SECRET, ObjectRef

USER_DATA = "userdata"
NETWORK_DATA = "networkdata"

# KubeVirt refuses inline user data and network data above this, each on its own.
INLINE_LIMIT = 2048


@dataclass(frozen=True, slots=True)
class CloudInitSecret:
    """A reading. `owner_uid` is the VM that takes it along when it goes."""

    uid: str
    owner_uid: str
    user_data: str = field(repr=False)
    network_data: str = field(repr=False)


def secret_ref(namespace: str, vm: str) -> ObjectRef:
    return SECRET.ref(f"{vm}-cloudinit", namespace)


def build_secret(
    namespace: str,
    vm: str,
    vm_uid: str,
    *,
    user_data: str,
    network_data: str = "",
    owner_annotations: Mapping[str, str] | None = None,
) -> Raw:
    """The Secret as the driver makes it, owned by the VM so that garbage collection takes it along."""
    return new_object(
        SECRET,
        secret_ref(namespace, vm).name,
        namespace,
        annotations=owner_annotations,
        owners=[{"apiVersion": VM.api_version, "kind": VM.kind, "name": vm, "uid": vm_uid}],
        data=secret_data(user_data, network_data),
    )


def secret_data(user_data: str, network_data: str = "") -> dict[str, str]:
    data = {USER_DATA: encode_base64(user_data)}
    if network_data:
        data[NETWORK_DATA] = encode_base64(network_data)
    return data


def read_cloud_init_secret(raw: Mapping[str, Any]) -> CloudInitSecret:
    owners = nested(raw, "metadata", "ownerReferences", default=[])
    owner: Raw = next((owner for owner in owners if owner.get("kind") == VM.kind), {})
    return CloudInitSecret(
        uid=uid_of(raw),
        owner_uid=str(owner.get("uid", "")),
        user_data=decode_base64(nested(raw, "data", USER_DATA, default=""), "replace"),
        network_data=decode_base64(nested(raw, "data", NETWORK_DATA, default=""), "replace"),
    )
