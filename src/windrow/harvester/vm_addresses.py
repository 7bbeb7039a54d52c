"""Which addresses a VM has on which networks of Harvester: those that its cloud-init network data tells it to have, and those
that its guest agent reports.

Network data is enough where the agent is absent, and from the moment the VM is created. What both say is written by users who
may write VMs, or are root in one, so each reading is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from windrow.core.formats.yaml import NotYaml, load
from windrow.harvester.cloud_init_secret import INLINE_LIMIT
from windrow.harvester.vmis import MAX_ADDRESSES, usable_address
from windrow.kubernetes.objects import mappings_at, namespace_of, nested

_STATIC = frozenset({"static", "static6"})
_SOURCES = ("cloudInitNoCloud", "cloudInitConfigDrive")
# Network data that is longer is not read; a Secret has no more than 1 MiB, and that of our machines some hundred bytes.
_MAX_NETWORK_DATA = 32 * INLINE_LIMIT


class NetworkAddress(NamedTuple):
    """An address on a network of Harvester, `namespace/name`."""

    network: str
    address: str


def list_static_addresses(text: str) -> list[str]:
    """The addresses that network data, of version 1 or 2, gives to the machine; none for text that cannot be read."""
    return list(_walk_addresses(_read_document(text)))


def told_addresses(raw_vm: Mapping[str, Any], in_secret: str = "") -> tuple[NetworkAddress, ...]:
    """The addresses that the VM's network data gives it: that in the VM itself, and `in_secret`, that of its Secret.

    A card is found by its MAC address, as Windrow writes it. Other network data may be for any of the VM's networks, so
    its addresses count on all.
    """
    template = nested(raw_vm, "spec", "template", "spec", default={})
    inline = (
        str(nested(volume, source, "networkData") or "")
        for volume in mappings_at(template, "volumes")
        for source in _SOURCES
    )
    networks = _networks_of(template, namespace_of(raw_vm))
    by_mac = {
        str(card.get("macAddress") or "").lower(): networks.get(str(card.get("name") or ""), "")
        for card in mappings_at(template, "domain", "devices", "interfaces")
    }
    every = dict.fromkeys(networks.values())
    found: list[NetworkAddress] = []
    for network_data in filter(None, (*inline, in_secret)):
        for mac, addresses in _read_cards(network_data[: _MAX_NETWORK_DATA + 1]):
            own = by_mac.get(mac) if mac else None
            found += (NetworkAddress(one, text) for one in ([own] if own else every) for text in addresses)
    return tuple(dict.fromkeys(found))


def reported_addresses(raw_vmi: Mapping[str, Any]) -> tuple[NetworkAddress, ...]:
    """The addresses that the guest agent reports of the VM's own cards. Those of the guest's bridges have no name."""
    networks = _networks_of(nested(raw_vmi, "spec", default={}), namespace_of(raw_vmi))
    texts = (
        (networks[str(card["name"])], text)
        for card in mappings_at(raw_vmi, "status", "interfaces")
        if str(card.get("name") or "") in networks
        for text in (card.get("ipAddress"), *(card.get("ipAddresses") or ()))
    )
    usable = ((network, usable_address(text)) for network, text in islice(texts, MAX_ADDRESSES))
    return tuple(dict.fromkeys(NetworkAddress(network, text) for network, text in usable if text))


def _networks_of(spec: Mapping[str, Any], namespace: str) -> dict[str, str]:
    """The networks of Harvester by the names of the cards on them."""
    found = {}
    for network in mappings_at(spec, "networks"):
        if named := str(nested(network, "multus", "networkName", default="") or ""):
            found[str(network.get("name") or "")] = named if "/" in named else f"{namespace}/{named}"
    return found


@lru_cache(maxsize=4096)  # a VM is read again at each change of its status
def _read_cards(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The addresses of each card, by its MAC address in lower case; "" where that is not written."""
    if len(text) > _MAX_NETWORK_DATA:
        return ()
    document = _read_document(text)
    cards: Iterable[tuple[str, Any]] = [("", document)]
    if isinstance(document, dict) and isinstance(document.get("ethernets"), dict):
        others = {key: value for key, value in document.items() if key != "ethernets"}
        cards = [(_mac_of(card), card) for card in document["ethernets"].values()] + [("", others)]
    found = []
    for mac, card in cards:
        usable = map(usable_address, islice(_walk_addresses(card), MAX_ADDRESSES))
        if addresses := tuple(dict.fromkeys(filter(None, usable))):
            found.append((mac, addresses))
    return tuple(found)


def _mac_of(card: Any) -> str:
    match = card.get("match") if isinstance(card, dict) else None
    return str(match.get("macaddress") or "").lower() if isinstance(match, dict) else ""


def _read_document(text: str) -> Any:
    try:
        document = load(text) if text.strip() else None
    except NotYaml:
        return None
    if isinstance(document, dict) and isinstance(document.get("network"), dict):
        return document["network"]
    return document


def _walk_addresses(value: Any) -> Iterator[str]:
    """`address` of a static subnet (version 1), `addresses` of a device (version 2, where name servers have them, too)."""
    if isinstance(value, list):
        for item in value:
            yield from _walk_addresses(item)
    elif isinstance(value, dict):
        if value.get("type") in _STATIC and value.get("address"):
            yield str(value["address"])
        for key, inner in value.items():
            if key == "addresses":
                written = inner if isinstance(inner, list) else [] if inner is None else [inner]
                yield from (str(next(iter(one), "") if isinstance(one, dict) else one) for one in written)
            elif key not in ("nameservers", "routes"):
                yield from _walk_addresses(inner)
