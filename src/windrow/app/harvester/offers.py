"""What a Harvester offers to a manifest, as rows of a table: images, networks, address pools, storage classes and hosts.

Names stand as a manifest writes them: `NAMESPACE/NAME` where the kind has namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.client.client import Client
from windrow.core.formats.json import loads_or_none
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.harvester.hosts.maintenance import read_host_state
from windrow.harvester.names import REGION, ZONE
from windrow.harvester.references import read_image, read_network, read_route
from windrow.harvester.resources import IMAGE, IP_POOL, NETWORK
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    labels_of,
    mappings_at,
    name_of,
    namespace_of,
    nested,
)
from windrow.kubernetes.resources import NODE, STORAGE_CLASS, ApiResource

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind: its columns, of which those from `wide` on are shown with `-o wide`, and the row of an object."""

    kind: ApiResource
    heads: Row
    wide: int
    row: Callable[[Raw], Row]
    what: str  # for help


def name_in_manifest(raw: Mapping[str, Any]) -> str:
    """`default/jammy`; only the name of an object without a namespace."""
    namespace = namespace_of(raw)
    return f"{namespace}/{name_of(raw)}" if namespace else name_of(raw)


async def list_offers(client: Client, offer: Offer, namespace: str = "", own: str = "default") -> list[Raw]:
    """The objects by name: of `namespace`, else of all; of `own` alone where the credential may not list all. Raises KubeError."""
    try:
        found = await client.list(offer.kind, namespace)
    except Forbidden:
        if namespace or not offer.kind.namespaced:
            raise
        found = await client.list(offer.kind, own)
    return sorted(found, key=name_in_manifest)


def rows_of(offer: Offer, raws: Iterable[Raw], *, wide: bool = False) -> tuple[Row, list[Row]]:
    """The heads and the rows."""
    end = len(offer.heads) if wide else offer.wide
    return offer.heads[:end], [offer.row(raw)[:end] for raw in raws]


def is_usable_image(raw: Mapping[str, Any]) -> bool:
    """Whether a machine can boot from it now: whole, and no installer disc."""
    image = read_image(raw)
    return image.is_ready and image.is_iso is not True


def _image(raw: Raw) -> Row:
    image = read_image(raw)
    state = "ready" if image.is_ready else f"{image.progress} %"
    if image.import_failed:
        state = "failed"
    size = f"{image.virtual_size / 2**30:.1f}Gi" if image.virtual_size else "-"
    kind = {True: "iso", False: "disk", None: "-"}[image.is_iso]
    return (
        name_in_manifest(raw),
        image.display_name or "-",
        state,
        size,
        kind,
        image.storage_class or "-",
        image.failure or "-",
    )


def _network(raw: Raw) -> Row:
    network, route = read_network(raw), read_route(raw)
    config = loads_or_none(str(nested(raw, "spec", "config", default="")))
    vlan = nested(config, "vlan")
    ready = {True: "True", False: "False", None: "-"}[network.is_ready]
    use = "storage" if network.is_for_storage else "-"
    return (
        name_in_manifest(raw),
        str(vlan) if vlan else "-",
        network.cluster_network or "-",
        ready,
        str(route.subnet) if route.subnet is not None else "-",
        str(route.gateway) if route.gateway is not None else "-",
        use,
    )


def _pool(raw: Raw) -> Row:
    ranges = [_range(one) for one in mappings_at(raw, "spec", "ranges")]
    scope = mappings_at(raw, "spec", "selector", "scope")
    of = [
        "/".join(str(one.get(key) or "*") for key in ("project", "namespace", "guestCluster"))
        for one in scope
    ]
    return (
        name_of(raw),
        str(nested(raw, "status", "available", default="-")),
        str(nested(raw, "status", "total", default="-")),
        ", ".join(ranges) or "-",
        str(nested(raw, "spec", "selector", "network", default="") or "-"),
        ", ".join(of) or "-",
    )


def _range(one: Mapping[str, Any]) -> str:
    first, last = one.get("rangeStart"), one.get("rangeEnd")
    return f"{first}-{last}" if first and last else str(one.get("subnet") or "-")


_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def _storage_class(raw: Raw) -> Row:
    return (
        name_of(raw),
        str(raw.get("provisioner") or "-"),
        "default" if annotations_of(raw).get(_DEFAULT) == "true" else "-",
        str(raw.get("reclaimPolicy") or "Delete"),
        str(raw.get("volumeBindingMode") or "Immediate"),
        str(raw.get("allowVolumeExpansion") is True),
    )


def _host(raw: Raw) -> Row:
    state, labels = read_host_state(raw), labels_of(raw)
    words = ["Ready" if state.is_ready else "NotReady"]
    words += (
        ["Maintenance"]
        if state.has_maintenance_mode
        else ["SchedulingDisabled"]
        if state.is_unschedulable
        else []
    )
    info = nested(raw, "status", "nodeInfo", default={})
    return (
        state.name,
        ",".join(words),
        labels.get(ZONE, "-"),
        str(nested(raw, "status", "allocatable", "cpu", default="-")),
        _memory(str(nested(raw, "status", "allocatable", "memory", default="-"))),
        labels.get(REGION, "-"),
        str(nested(info, "osImage", default="-")),
        str(nested(info, "kubeletVersion", default="-")),
    )


def _memory(text: str) -> str:
    try:
        return f"{Quantity.parse(text).value / 2**30:.0f}Gi"
    except NotQuantity:
        return text


OFFERS: Mapping[str, Offer] = {
    "images": Offer(
        IMAGE,
        ("NAME", "DISPLAY NAME", "STATE", "SIZE", "TYPE", "STORAGE CLASS", "MESSAGE"),
        4,
        _image,
        "disks to boot from, for imageName in diskInfo",
    ),
    "networks": Offer(
        NETWORK,
        ("NAME", "VLAN", "CLUSTER NETWORK", "READY", "SUBNET", "GATEWAY", "USE"),
        4,
        _network,
        "VLANs, for networkName in networkInfo",
    ),
    "pools": Offer(
        IP_POOL,
        ("NAME", "AVAILABLE", "TOTAL", "RANGES", "NETWORK", "SCOPE"),
        4,
        _pool,
        "IPPools, for load balancers and addresses of machines",
    ),
    "classes": Offer(
        STORAGE_CLASS,
        ("NAME", "PROVISIONER", "DEFAULT", "RECLAIM", "BINDING", "EXPANSION"),
        4,
        _storage_class,
        "storage classes, for storageClassName in diskInfo",
    ),
    "hosts": Offer(
        NODE,
        ("NAME", "STATUS", "ZONE", "CPU", "MEMORY", "REGION", "OS", "KUBELET"),
        5,
        _host,
        "hosts, with zones for affinities",
    ),
}
