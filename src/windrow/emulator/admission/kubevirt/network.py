"""KubeVirt's rules of networks and interfaces (v1.7.0, as Harvester 1.8 configures it)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address

from windrow.emulator.admission.kubevirt.causes import (
    DUPLICATE,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Rule,
    flag,
    has,
    objects,
    text,
    texts,
    whole,
)
from windrow.kubernetes.objects import Raw

MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
STATES = ("", "absent", "down", "up")
BINDINGS = ("bridge", "slirp", "masquerade", "sriov", "macvtap", "passt")
MAC_OF_THE_INNER_BRIDGE = "02:00:00:00:00:00"
PCI_ADDRESS = re.compile(r"[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7]\Z")
_NAME = re.compile(r"[A-Za-z0-9-_]+\Z")
_PORT_NAME = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def interfaces(spec: Raw) -> list[Raw]:
    return objects(spec, "domain", "devices", "interfaces")


def _at(at: str, place: int, name: str = "name") -> str:
    return f"{at}.domain.devices.interfaces[{place}].{name}"


def _pod_networks(spec: Raw, at: str) -> Iterator[Cause]:
    networks = objects(spec, "networks")
    pods = [one for one in networks if has(one, "pod")]
    defaults = [one for one in networks if flag(one, "multus", "default")]
    if len(pods) > 1:
        field = f"{at}.interfaces"
        yield Cause(f"more than one interface is connected to a pod network in {field}", field, DUPLICATE)
    if len(defaults) > 1:
        yield Cause("Multus CNI should only have one default network", f"{at}.networks")
    if pods and defaults:
        why = "Pod network cannot be defined when Multus default network is defined"
        yield Cause(why, f"{at}.networks")


def _network_sources(spec: Raw, at: str) -> Iterator[Cause]:
    for place, network in enumerate(objects(spec, "networks")):
        sources = has(network, "pod", "multus")
        if not sources:
            yield Cause("should have a network type", f"{at}.networks[{place}]", REQUIRED)
        elif len(sources) > 1:
            yield Cause("should have only one network type", f"{at}.networks[{place}]", REQUIRED)


def _multus_names(spec: Raw, at: str) -> Iterator[Cause]:
    for place, network in enumerate(objects(spec, "networks")):
        if has(network, "multus") and not text(network, "multus", "networkName"):
            why = "CNI delegating plugin must have a networkName"
            yield Cause(why, f"{at}.networks[{place}]", REQUIRED)
            return


def _states(spec: Raw, at: str) -> Iterator[Cause]:
    networks = objects(spec, "networks")
    default = next(
        (text(one, "name") for one in networks if has(one, "pod") or flag(one, "multus", "default")), None
    )
    for place, one in enumerate(interfaces(spec)):
        name, state, field = text(one, "name"), text(one, "state"), _at(at, place, "state")
        if state not in STATES:
            yield Cause(f"logical {name} interface state value is unsupported: {state}", field)
        if has(one, "sriov") and state in ("down", "up"):
            yield Cause(f'"{name}" interface\'s state "{state}" is not supported for SR-IOV NICs', field)
        if state == "absent" and not has(one, "bridge"):
            why = f'"{name}" interface\'s state "{state}" is supported only for bridge binding'
            yield Cause(why, field)
        if state == "absent" and default == name:
            why = f'"{name}" interface\'s state "{state}" is not supported on default networks'
            yield Cause(why, field)


def _bindings(spec: Raw, at: str) -> Iterator[Cause]:
    networks = {text(one, "name"): one for one in objects(spec, "networks")}
    for place, one in enumerate(interfaces(spec)):
        network, name, field = networks.get(text(one, "name"), {}), text(one, "name"), _at(at, place)
        if has(one, "binding") and has(one, *BINDINGS):
            why = f"logical {name} interface cannot have both binding plugin and interface binding method"
            yield Cause(why, _at(at, place, "binding"))
        if has(one, "masquerade") and not has(network, "pod"):
            yield Cause("Masquerade interface only implemented with pod network", field)
        if has(one, "masquerade") and text(one, "macAddress") == MAC_OF_THE_INNER_BRIDGE:
            why = "The requested MAC address is reserved for the in-pod bridge. Please choose another one."
            yield Cause(why, _at(at, place, "macAddress"))
        if has(one, "macvtap"):
            yield Cause("Macvtap feature gate is not enabled", field)
            if not has(network, "multus"):
                yield Cause("Macvtap interface only implemented with Multus network", field)
        if has(one, "passt"):
            yield Cause("Passt feature gate is not enabled", field)
            if not has(network, "pod"):
                yield Cause("Passt interface only implemented with pod network", field)


def _network_names(spec: Raw, at: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for place, network in enumerate(objects(spec, "networks")):
        name = text(network, "name")
        if name in seen:
            why = f'Network with name "{name}" already exists, every network must have a unique name'
            yield Cause(why, f"{at}.networks[{place}].name", DUPLICATE)
        seen.add(name)


def _networks_have_interfaces(spec: Raw, at: str) -> Iterator[Cause]:
    known = {text(one, "name") for one in interfaces(spec)}
    for place, network in enumerate(objects(spec, "networks")):
        name = text(network, "name")
        if name not in known:
            field = f"{at}.networks[{place}].name"
            yield Cause(f"{field} '{name}' not found.", field, REQUIRED)


def _interface_names(spec: Raw, at: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for place, one in enumerate(interfaces(spec)):
        name = text(one, "name")
        if name in seen:
            why = "Only one interface can be connected to one specific network"
            yield Cause(why, _at(at, place), DUPLICATE)
        seen.add(name)


def _interfaces_have_networks(spec: Raw, at: str) -> Iterator[Cause]:
    known = {text(one, "name") for one in objects(spec, "networks")}
    for place, one in enumerate(interfaces(spec)):
        name = text(one, "name")
        if name not in known:
            yield Cause(f"{_at(at, place)} '{name}' not found.", _at(at, place))


def mac_fault(address: str) -> str:
    """As Go's net.ParseMAC reads: octets with colons or dashes, or groups of four digits with dots."""
    for octets in (6, 8, 20):
        for sign in ":-":
            if re.fullmatch(rf"[0-9A-Fa-f]{{2}}({sign}[0-9A-Fa-f]{{2}}){{{octets - 1}}}", address):
                return f"too long MAC address ({address})" if octets > 6 else ""
        if re.fullmatch(rf"[0-9A-Fa-f]{{4}}(\.[0-9A-Fa-f]{{4}}){{{octets // 2 - 1}}}", address):
            return f"too long MAC address ({address})" if octets > 6 else ""
    return f"malformed MAC address ({address})" if address else ""


def _interface_fields(spec: Raw, at: str) -> Iterator[Cause]:
    networks = {text(one, "name"): one for one in objects(spec, "networks")}
    for place, one in enumerate(interfaces(spec)):
        named = f"interface {_at(at, place)}"
        if not _NAME.match(text(one, "name")):
            why = "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)"
            yield Cause(why, _at(at, place))
        model = text(one, "model")
        if model and model not in MODELS:
            why = f"{named} uses model {model} that is not supported."
            yield Cause(why, _at(at, place, "model"), NOT_SUPPORTED)
        if fault := mac_fault(text(one, "macAddress")):
            yield Cause(f"{named} has {fault}.", _at(at, place, "macAddress"))
        address = text(one, "pciAddress")
        if address and not PCI_ADDRESS.match(address):
            yield Cause(f"{named} has malformed PCI address ({address}).", _at(at, place, "pciAddress"))
        if has(networks.get(text(one, "name"), {}), "pod"):
            yield from _ports(objects(one, "ports"), _at(at, place, "ports"))
        yield from _dhcp(one, at, place)


def _ports(ports: list[Raw], at: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for place, port in enumerate(ports):
        name = text(port, "name")
        if name and name in seen:
            yield Cause(f"Duplicate name of the port: {name}", f"{at}[{place}].name", DUPLICATE)
        if name and not _PORT_NAME.match(name):
            yield Cause(f"Invalid name of the port: {name}", f"{at}[{place}].name")
        seen.add(name)
    for place, port in enumerate(ports):
        number = whole(port, "port")
        if number == 0:
            yield Cause("Port field is mandatory.", f"{at}[{place}]", REQUIRED)
        if not 0 <= number <= 65536:
            yield Cause("Port field must be in range 0 < x < 65536.", f"{at}[{place}]")
        if text(port, "protocol") not in ("", "TCP", "UDP"):
            yield Cause("Unknown protocol, only TCP or UDP allowed", f"{at}[{place}].protocol")


def _dhcp(one: Raw, at: str, place: int) -> Iterator[Cause]:
    options = [whole(option, "option") for option in objects(one, "dhcpOptions", "privateOptions")]
    if len(set(options)) < len(options):
        yield Cause("Found Duplicates: you have provided duplicate DHCPPrivateOptions", at)
    for option in options:
        if not 224 <= option <= 254:
            yield Cause("provided DHCPPrivateOptions are out of range, must be in range 224 to 254", at)
    for index, server in enumerate(texts(one, "dhcpOptions", "ntpServers")):
        try:
            IPv4Address(server)
        except AddressValueError:
            field = _at(at, place, f"dhcpOptions.ntpServers[{index}]")
            yield Cause("NTP servers must be a list of valid IPv4 addresses.", field)


def slirp(spec: Raw, at: str) -> Iterator[Cause]:
    """Of a creation alone, and before all other rules."""
    for place, one in enumerate(interfaces(spec)):
        if has(one, "slirp"):
            why = "Slirp interface support has been discontinued since v1.3"
            yield Cause(why, _at(at, place, "slirp"), INVALID)


NETWORK_RULES: tuple[Rule, ...] = (
    _pod_networks,
    _network_sources,
    _multus_names,
    _states,
    _bindings,
    _network_names,
    _networks_have_interfaces,
    _interface_names,
    _interfaces_have_networks,
    _interface_fields,
)
