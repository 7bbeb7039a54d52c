"""What a machine refers to on Harvester: images, networks, key pairs, the release, and the host that it runs on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from windrow.core.formats.cidr import Address, NotAddress, parse_address
from windrow.core.formats.json import loads_or_none
from windrow.harvester.names import (
    CLUSTER_NETWORK,
    IMAGE_TYPE,
    NETWORK_READY,
    NETWORK_ROUTE,
    REGION,
    STORAGE_NETWORK,
    ZONE,
)
from windrow.harvester.resources import IMAGE, KEY_PAIR, NETWORK, SETTING
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested
from windrow.kubernetes.resources import ObjectRef, ref_of

_TYPES = {"iso": True, "raw_qcow2": False}
_ENDINGS = {".iso": True, ".qcow2": False, ".qcow": False, ".img": False, ".raw": False}


@dataclass(frozen=True, slots=True)
class Image:
    """A VirtualMachineImage. `is_iso` is None where it is unknown; `failure` is Harvester's text about a failed import."""

    ref: ObjectRef
    display_name: str
    storage_class: str
    progress: int
    imported: bool
    import_failed: bool
    failure: str
    virtual_size: int
    is_iso: bool | None
    is_cdi: bool = False  # kept by CDI in a storage class of the user's choice, instead of by Longhorn

    @property
    def is_ready(self) -> bool:
        """Whether a disk made from it will bind: imported, whole, and with a class to clone it."""
        return self.imported and self.progress == 100 and bool(self.storage_class)


def read_image(raw: Mapping[str, Any]) -> Image:
    conditions = nested(raw, "status", "conditions")
    imported = find_condition(conditions, "Imported")
    limit = find_condition(conditions, "RetryLimitExceeded")
    return Image(
        ref=ref_of(IMAGE, dict(raw)),
        display_name=nested(raw, "spec", "displayName", default=""),
        storage_class=nested(raw, "status", "storageClassName", default=""),
        progress=int(nested(raw, "status", "progress", default=0)),
        imported=imported is not None and imported.status == "True",
        import_failed=(limit is not None and limit.status == "True")
        or (imported is not None and imported.status == "False"),
        failure=next((found.message for found in (limit, imported) if found and found.message), ""),
        virtual_size=int(nested(raw, "status", "virtualSize", default=0)),
        is_iso=is_iso(raw),
        is_cdi=nested(raw, "spec", "backend", default="") == "cdi",
    )


def is_iso(raw: Mapping[str, Any]) -> bool | None:
    """Whether the image is an installer disc; None where it is unknown (the status never has it).

    The label that Harvester's screens set comes first, then the ending of the URL without its query, then
    that of the display name; upper and lower case are the same.
    """
    label = str(labels_of(raw).get(IMAGE_TYPE) or "").lower()
    if label in _TYPES:
        return _TYPES[label]
    url, name = nested(raw, "spec", "url", default=""), nested(raw, "spec", "displayName", default="")
    for text in (urlsplit(url).path, name):
        for ending, iso in _ENDINGS.items():
            if text.lower().endswith(ending):
                return iso
    return None


@dataclass(frozen=True, slots=True)
class Route:
    """Subnet and gateway of a network, as its annotation NETWORK_ROUTE has them; None for one that it does not have."""

    subnet: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
    gateway: Address | None = None


def read_route(network: Mapping[str, Any]) -> Route:
    """The route of a NetworkAttachmentDefinition. A helper job of Harvester writes it, or a person: what of it cannot be read is
    left out."""
    found = loads_or_none(str(annotations_of(network).get(NETWORK_ROUTE) or ""))
    route = found if isinstance(found, Mapping) else {}
    try:
        subnet = ipaddress.ip_network(str(route.get("cidr")), strict=False)
    except ValueError:
        subnet = None
    try:
        gateway = parse_address(str(route.get("gateway")))
    except NotAddress:
        gateway = None
    return Route(subnet, gateway)


@dataclass(frozen=True, slots=True)
class Network:
    """A NetworkAttachmentDefinition: a VLAN. `is_ready` is None where the label is missing."""

    ref: ObjectRef
    cluster_network: str
    is_ready: bool | None
    is_for_storage: bool


def read_network(raw: Mapping[str, Any]) -> Network:
    labels = labels_of(raw)
    return Network(
        ref=ref_of(NETWORK, dict(raw)),
        cluster_network=labels.get(CLUSTER_NETWORK, ""),
        is_ready={"true": True, "false": False}.get(labels.get(NETWORK_READY, "")),
        is_for_storage=annotations_of(raw).get(STORAGE_NETWORK) == "true",
    )


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An SSH public key that Harvester keeps under a name. The VM's creator has to inject it."""

    ref: ObjectRef
    public_key: str
    is_validated: bool


def read_key_pair(raw: Mapping[str, Any]) -> KeyPair:
    return KeyPair(
        ref=ref_of(KEY_PAIR, dict(raw)),
        public_key=nested(raw, "spec", "publicKey", default=""),
        is_validated=is_true(nested(raw, "status", "conditions"), "validated"),
    )


SERVER_VERSION = SETTING.ref("server-version")

# The two lists of a VM's devices that may hold a vGPU.
VgpuField = Literal["gpus", "hostDevices"]
# Builds of a branch are called `v1.8-head`.
_HOST_DEVICES = re.compile(r"v?1\.8([.-]|$)")


@dataclass(frozen=True, slots=True)
class Release:
    """The release of Harvester, as its setting `server-version` names it."""

    version: str

    @property
    def vgpu_field(self) -> VgpuField:
        """Where its own VM builder writes vGPUs: `gpus` in every release but v1.8, which has them in `hostDevices`."""
        return "hostDevices" if _HOST_DEVICES.match(self.version) else "gpus"


def read_release(raw: Mapping[str, Any]) -> Release:
    value = raw.get("value") or raw.get("default")
    return Release(value if isinstance(value, str) else "")


@dataclass(frozen=True, slots=True)
class Host:
    """A node of Harvester, which a namespaced credential cannot read. Heartbeats do not change this reading."""

    name: str
    is_ready: bool
    zone: str
    region: str


def read_host(raw: Mapping[str, Any]) -> Host:
    labels = labels_of(raw)
    return Host(
        name=name_of(raw),
        is_ready=is_true(nested(raw, "status", "conditions"), "Ready"),
        zone=labels.get(ZONE, ""),
        region=labels.get(REGION, ""),
    )
