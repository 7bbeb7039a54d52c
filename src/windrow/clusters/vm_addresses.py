"""Which addresses a VM has on which networks of Harvester: those that its cloud-init network data tells it to have, and those
that its guest agent reports.

Network data is enough where the agent is absent, and from the moment the VM is created. What both say is written by users who
may write VMs, or are root in one, so each reading is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from windrow.cloudinit.network_data import MAX_NETWORK_DATA, read_cards
from windrow.core.formats.cidr import usable_address
from windrow.harvester.vmis import MAX_ADDRESSES
from windrow.kubernetes.objects import mappings_at, namespace_of, nested

_SOURCES = ("cloudInitNoCloud", "cloudInitConfigDrive")
MAX_CONFIGURED = 4096  # of one VM, on all its networks


class NetworkAddress(NamedTuple):
    """An address on a network of Harvester, `namespace/name`."""

    network: str
    address: str


def configured_addresses(raw_vm: Mapping[str, Any], in_secret: str = "") -> tuple[NetworkAddress, ...]:
    """The addresses that the VM's network data gives it: that in the VM itself, and `in_secret`, that of its Secret.

    A card is found by its MAC address, as Windrow writes it. Other network data may be for any of the VM's networks, so
    its addresses count on all.
    """
    template = nested(raw_vm, "spec", "template", "spec")
    inline = (
        str(nested(volume, source, "networkData") or "")
        for volume in mappings_at(template, "volumes")
        for source in _SOURCES
    )
    networks = _networks_of(template, namespace_of(raw_vm))
    by_mac = {
        str(card.get("macAddress")).lower(): networks.get(str(card.get("name")), "")
        for card in mappings_at(template, "domain", "devices", "interfaces")
    }
    every = dict.fromkeys(networks.values())
    found = (
        NetworkAddress(network, text)
        for network_data in filter(None, (*inline, in_secret))
        for mac, addresses in read_cards(network_data[: MAX_NETWORK_DATA + 1])
        for own in (by_mac.get(mac) if mac else None,)
        for text in addresses
        for network in ([own] if own else every)
    )
    return tuple(dict.fromkeys(islice(found, MAX_CONFIGURED)))


def reported_addresses(raw_vmi: Mapping[str, Any]) -> tuple[NetworkAddress, ...]:
    """The addresses that the guest agent reports of the VM's own cards. Those of the guest's bridges have no name."""
    networks = _networks_of(nested(raw_vmi, "spec"), namespace_of(raw_vmi))
    texts = (
        (networks[str(card.get("name"))], text)
        for card in mappings_at(raw_vmi, "status", "interfaces")
        if str(card.get("name")) in networks
        for text in (card.get("ipAddress"), *(card.get("ipAddresses") or ()))
    )
    usable = ((network, usable_address(text)) for network, text in islice(texts, MAX_ADDRESSES))
    return tuple(dict.fromkeys(NetworkAddress(network, text) for network, text in usable if text))


def _networks_of(spec: Any, namespace: str) -> dict[str, str]:
    """The networks of Harvester by the names of the cards on them."""
    found = {}
    for network in mappings_at(spec, "networks"):
        if named := str(nested(network, "multus", "networkName", default="") or ""):
            found[str(network.get("name"))] = named if "/" in named else f"{namespace}/{named}"
    return found
