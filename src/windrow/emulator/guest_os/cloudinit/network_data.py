"""Network data, version 1 and 2, as cloud-init reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.core.formats.yaml import NotYaml, load
from windrow.emulator.guest_os.cloudinit.coercion import as_list, as_mapping, mappings_in


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """How one network interface shall be set up. It is found by MAC address, else by its name."""

    name: str
    mac: str = ""
    dhcp: bool = False
    addresses: tuple[str, ...] = ()  # "10.0.0.5/24"
    gateway: str = ""
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The network configuration. `interfaces` is None where cloud-init falls back to DHCP on the first NIC."""

    interfaces: tuple[InterfaceConfig, ...] | None = None
    warnings: tuple[str, ...] = ()


def read_network_data(data: str | bytes) -> NetworkConfig:
    """The network that `data` describes (version 1 or 2). Never raises."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.strip():
        return NetworkConfig()
    try:
        found = load(text)
    except NotYaml as error:
        return _fallback(f"is not YAML ({' '.join(str(error).split())})")
    if isinstance(found, dict) and isinstance(found.get("network"), dict):
        found = found["network"]
    if not isinstance(found, dict):
        return _fallback("is not a mapping")
    match found.get("version"):
        case 1:
            return _network_v1(found)
        case 2:
            return _network_v2(found)
        case other:
            return _fallback(f"has version {other!r}, not 1 or 2")


def _fallback(why: str) -> NetworkConfig:
    return NetworkConfig(None, (f"network data {why}; using DHCP on the first NIC",))


def _network_v1(found: Mapping[str, Any]) -> NetworkConfig:
    interfaces: list[InterfaceConfig] = []
    warnings: list[str] = []
    servers: list[str] = []
    for entry in as_list(found.get("config")):
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind == "nameserver":
            address = entry.get("address")
            servers += [str(one) for one in as_list(address)]
        elif kind == "physical":
            interfaces.append(_interface_v1(entry))
        else:
            warnings.append(f"network data of type {kind!r} is not simulated; it has no effect")
    made = (replace(one, nameservers=(*one.nameservers, *servers)) for one in interfaces)
    return NetworkConfig(tuple(made), tuple(warnings))


def _interface_v1(entry: Mapping[str, Any]) -> InterfaceConfig:
    dhcp, addresses, gateway, servers = False, [], "", []
    for subnet in mappings_in(entry.get("subnets")):
        kind = str(subnet.get("type", ""))
        if kind in ("dhcp", "dhcp4"):
            dhcp = True
        elif kind in ("static", "static4", "static6"):
            address = str(subnet.get("address", ""))
            if address and "/" not in address:
                netmask = str(subnet.get("netmask") or ("64" if ":" in address else "255.255.255.0"))
                address = f"{address}/{_prefix(netmask)}"
            addresses.append(address)
            gateway = gateway or str(subnet.get("gateway") or "")
            servers += [str(one) for one in as_list(subnet.get("dns_nameservers"))]
    mac = str(entry.get("mac_address") or "").lower()
    return InterfaceConfig(str(entry.get("name") or ""), mac, dhcp, tuple(addresses), gateway, tuple(servers))


def _prefix(netmask: str) -> int:
    if netmask.isdigit():
        return int(netmask)
    try:
        return sum(bin(int(part)).count("1") for part in netmask.split("."))
    except ValueError:
        return 24


def _network_v2(found: Mapping[str, Any]) -> NetworkConfig:
    warnings = [
        f"network data section {key!r} is not simulated; it has no effect"
        for key in ("bonds", "bridges", "vlans", "wifis")
        if found.get(key)
    ]
    ethernets = found.get("ethernets")
    if not isinstance(ethernets, dict):
        return NetworkConfig((), (*warnings, "network data has no ethernets; no interface is set up"))
    return NetworkConfig(
        tuple(_interface_v2(str(name), as_mapping(raw)) for name, raw in ethernets.items()), tuple(warnings)
    )


def _interface_v2(name: str, raw: Mapping[str, Any]) -> InterfaceConfig:
    match = as_mapping(raw.get("match"))
    gateway = str(raw.get("gateway4") or "")
    for route in mappings_in(raw.get("routes")):
        if str(route.get("to")) in ("default", "0.0.0.0/0"):
            gateway = gateway or str(route.get("via") or "")
    addresses = tuple(
        str(next(iter(one)) if isinstance(one, dict) and one else one)
        for one in as_list(raw.get("addresses"))
    )
    servers = tuple(str(one) for one in as_list(as_mapping(raw.get("nameservers")).get("addresses")))
    mac = str(match.get("macaddress") or "").lower()
    return InterfaceConfig(
        str(match.get("name") or name),
        mac,
        raw.get("dhcp4") in (True, "yes", "true"),
        addresses,
        gateway,
        servers,
    )
