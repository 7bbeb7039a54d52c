"""Mutator and validator of NetworkAttachmentDefinitions, of Harvester's network controller (v1.8.2).

Every refusal is a plain Go error: 500, with what was tried before the reason.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from windrow.apiserver.types.go_types import find_mistyped, keep_known
from windrow.core.formats.json import dumps, loads
from windrow.emulator import names
from windrow.emulator.admission.denials import bad_request, internal_error
from windrow.emulator.admission.kubevirt.causes import objects, text
from windrow.emulator.host.networks import is_network_ready, label_network
from windrow.emulator.kit.go_types import decode_text, read_structs
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, labels_of, namespace_of, nested

VALIDATOR = "validator.harvester-system.harvester-network-webhook"
MUTATOR = "mutator.harvester-system.harvester-network-webhook"
SUFFIX = "-br"
MOST_DEVICE_NAME = 15
DEFAULT_MTU = 1500
MOST_VLAN = 4094
UPLINK_MTU = "network.harvesterhci.io/uplink-mtu"
OVN = "kube-ovn"
# Settings whose network a definition may be, and the annotation of the setting that names it.
SETTINGS = (
    ("storage-network", "storage-network.settings.harvesterhci.io/net-attach-def"),
    ("rwx-network", "rwx-network.settings.harvesterhci.io/net-attach-def"),
)
# Go's types of the configuration, in part those of CNI.
_STRUCTS = read_structs(
    {
        "NetworkAttachmentDefinition": {
            "spec": "NetworkAttachmentDefinitionSpec=v1.NetworkAttachmentDefinitionSpec"
        },
        "NetworkAttachmentDefinitionSpec": {"config": "string"},
        "utils.NetConf": {
            **dict.fromkeys(("cniVersion", "name", "type"), "string @NetConf."),
            "capabilities": "{}bool @NetConf.",
            "ipam": "types.IPAM=types.IPAM @NetConf.",
            "dns": "types.DNS=types.DNS @NetConf.",
            "prevResult": "{}json=map[string]interface {} @NetConf.",
            "cni.dev/valid-attachments": "[]types.GCAttachment=[]types.GCAttachment @NetConf.",
            **dict.fromkeys(("bridge", "provider"), "string"),
            **dict.fromkeys(("mtu", "vlan"), "int=int"),
            **dict.fromkeys(
                (
                    "isGateway",
                    "isDefaultGateway",
                    "forceAddress",
                    "ipMasq",
                    "hairpinMode",
                    "promiscMode",
                ),
                "bool",
            ),
            "vlanTrunk": "[]utils.VlanTrunk=[]*utils.VlanTrunk",
        },
        "utils.VlanTrunk": dict.fromkeys(("minID", "maxID", "id"), "int=int"),
        "types.IPAM": {"type": "string"},
        "types.DNS": {
            "domain": "string",
            **dict.fromkeys(("nameservers", "search", "options"), "[]string"),
        },
        "types.GCAttachment": {"containerID": "string", "ifname": "string"},
        "utils.Layer3NetworkConf": {
            "mode": "string=utils.Mode",
            **dict.fromkeys(("cidr", "gateway", "serverIPAddr"), "string"),
            "connectivity": "string=utils.Connectivity",
            "outdated": "bool",
        },
    }
)


class Refused(Exception):
    """Why a definition is refused, without what was tried."""


def mutate_network(nad: Raw, old: Raw | None, listers: Listers) -> None:
    """The MTU of the cluster network at creation; at a change the labels, which a controller sets of a new definition."""
    if fault := find_mistyped(_STRUCTS.__getitem__, "NetworkAttachmentDefinition", nad, is_sorted=True):
        raise internal_error(fault, MUTATOR)
    if is_deleting(nad):
        return
    try:
        if old is not None:
            _decode(old)
        config = _decode(nad)
        if old is None:
            _set_mtu(nad, config, listers)
        elif text(config, "type") == OVN:
            nad["metadata"]["labels"] = _overlay_labels(labels_of(nad))
        else:
            _set_labels(nad, config, listers)
            _outdate_route(nad, old, (_decode(old), config))
    except Refused as why:
        raise internal_error(_told(nad, old, why), MUTATOR) from why


def _set_mtu(nad: Raw, config: Raw, listers: Listers) -> None:
    if text(config, "type") == OVN:
        return
    wanted = _mtu_of(_cluster_network(config, listers, is_mutator=True))
    if not _same_mtu(wanted, config.get("mtu") or 0):
        written = loads(text(nad, "spec", "config"))
        nad["spec"]["config"] = dumps({**written, "mtu": wanted}).decode()


def _overlay_labels(labels: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in labels.items() if key != names.VLAN_ID}
    overlay = {names.NETWORK_TYPE: "OverlayNetwork", names.NETWORK_READY: "true"}
    return kept | overlay | {names.CLUSTER_NETWORK: "mgmt"}


def _set_labels(nad: Raw, config: Raw, listers: Listers) -> None:
    type = text(config, "type")
    if type not in ("", "bridge"):
        raise Refused(f"cannot determin the network type from netconf type {type}")
    label_network(nad, is_network_ready(_cluster_network(config, listers, is_mutator=True)))


def _outdate_route(nad: Raw, old: Raw, configs: tuple[Raw, Raw]) -> None:
    """After a change of the VLAN or of its mode a route is read again from the network, where that is its mode."""
    written = annotations_of(nad).get(names.NETWORK_ROUTE, "")
    before = annotations_of(old).get(names.NETWORK_ROUTE, "")
    vlans = [config.get("vlan") or 0 for config in configs]
    if not written:
        return
    if vlans[0] != vlans[1]:
        if not vlans[1]:
            del nad["metadata"]["annotations"][names.NETWORK_ROUTE]
            return
        route, fault = _read_route(written)
        if fault:
            raise Refused(f"unmarshal {written} failed, error: {fault}")
    elif not before:
        return
    else:
        (route, fault), (old_route, old_fault) = _read_route(written), _read_route(before)
        for which, found, wrong in (("new", route, fault), ("old", old_route, old_fault)):
            if wrong:
                raise Refused(f"unmarshal {which} nad route {_printed(found)} failed, error: {wrong}")
        if text(route, "mode") == text(old_route, "mode"):
            return
    route["outdated"] = text(route, "mode") == "auto"
    given = {key: route[key] for key in _STRUCTS["utils.Layer3NetworkConf"] if route.get(key)}
    nad["metadata"]["annotations"][names.NETWORK_ROUTE] = dumps(given).decode()


def _read_route(written: str) -> tuple[Raw, str]:
    return decode_text(_STRUCTS, "utils.Layer3NetworkConf", written)


def _printed(route: Raw) -> str:
    """As Go prints the structure, with what could be decoded."""
    shown = {"string": str, "bool": bool}
    values = (
        route[key] if isinstance(route.get(key), shown[field.kind]) else shown[field.kind]()
        for key, field in _STRUCTS["utils.Layer3NetworkConf"].items()
    )
    return (
        "{"
        + " ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
        + "}"
    )


def check_network(nad: Raw, old: Raw | None, listers: Listers) -> None:
    if old is not None and is_deleting(nad):
        return
    try:
        config = _decode(nad)
        if old is None:
            if text(config, "type") == OVN:
                raise Refused("kubeovn is not yet enabled")
            _check_config(nad, config, listers)
        _check_route(annotations_of(nad).get(names.NETWORK_ROUTE, ""))
        if old is not None and _known(config) != _known(before := _decode(old)):
            _check_change(nad, config, before, listers)
    except Refused as why:
        raise internal_error(_told(nad, old, why), VALIDATOR) from why


def _told(nad: Raw, old: Raw | None, why: Refused) -> str:
    verb = "create" if old is None else "update"
    return f"can't {verb} nad {'/'.join(key_of(nad))} because {why}"


def _decode(nad: Raw) -> Raw:
    written = text(nad, "spec", "config")
    if not written:
        return {}
    found, fault = decode_text(_STRUCTS, "utils.NetConf", written)
    if fault:
        raise Refused(f"failed to unmarshal nad {'/'.join(key_of(nad))} config {written} {fault}")
    return found


# --- the configuration ------------------------------------------------------------------------------------------------


def _check_config(nad: Raw, config: Raw, listers: Listers) -> None:
    vlan, trunk = config.get("vlan") or 0, objects(config, "vlanTrunk")
    if not 0 <= vlan <= MOST_VLAN:
        raise Refused(f"vlan {vlan} is out of range [0 .. {MOST_VLAN}]")
    if vlan and trunk:
        raise Refused("vlan can only be 0 when vlanTrunk is set")
    for item in trunk:
        _check_trunk(item)
    bridge = _prefix(text(config, "bridge"))
    label = labels_of(nad).get(names.CLUSTER_NETWORK, "")
    if label and label != bridge:
        raise Refused(f"the nad label {label} does not match bridge name {bridge}")
    wanted = _mtu_of(_cluster_network(config, listers, is_mutator=False))
    if not _same_mtu(wanted, config.get("mtu") or 0):
        raise Refused(f"nad MTU {config.get('mtu') or 0} does not match cluster network MTU {wanted}")


def _check_trunk(item: Raw) -> None:
    first, last, one = (item.get(key) for key in ("minID", "maxID", "id"))
    for key, other, value in (("minID", "maxID", first), ("maxID", "minID", last)):
        if value is None and item.get(other) is not None:
            raise Refused(f"minID and maxID should be configured simultaneously, {key} is missing")
    if first is not None and last is not None:
        for key, value in (("minID", first), ("maxID", last)):
            if not 1 <= value <= MOST_VLAN:
                raise Refused(f"incorrect trunk {key} parameter {value}")
        if last < first:
            raise Refused(f"minID {first} is greater than maxID {last} in trunk parameter")
    if one is not None and not 1 <= one <= MOST_VLAN:
        raise Refused(f"incorrect trunk id parameter {one}")
    if first is None and last is None and one is None:
        raise Refused("all fields in this VlanTrunk are empty")


def _prefix(bridge: str) -> str:
    """The cluster network's name in that of its bridge."""
    if len(bridge) <= len(SUFFIX):
        raise Refused(f"the length of bridge name {bridge} is less than {len(SUFFIX)}")
    if len(bridge) > MOST_DEVICE_NAME:
        raise Refused(f"the length of the bridge name {bridge} can't be more than {MOST_DEVICE_NAME}")
    if not bridge.endswith(SUFFIX):
        raise Refused(f"the bridge name {bridge} does not include suffix {SUFFIX}")
    return bridge.removesuffix(SUFFIX)


def _cluster_network(config: Raw, listers: Listers, *, is_mutator: bool) -> Raw:
    name = _prefix(text(config, "bridge"))
    found = listers.cluster_networks.get(("", name))
    if found is not None:
        return found
    missing = f'clusternetworks.network.harvesterhci.io "{name}" not found'
    if is_mutator:
        raise Refused(missing)
    raise Refused(f"nad refers to a none-existing cluster network {name} or error {missing}")


def _mtu_of(cluster_network: Raw) -> int:
    written = annotations_of(cluster_network).get(UPLINK_MTU, "")
    return int(written) if written.isdigit() and int(written) else DEFAULT_MTU


def _same_mtu(one: int, other: int) -> bool:
    return (one or DEFAULT_MTU) == (other or DEFAULT_MTU)


def _check_route(written: str) -> None:
    if not written:
        return
    route, fault = _read_route(written)
    if fault:
        raise Refused(f"unmarshal {written} faield, error: {fault}")
    mode = text(route, "mode")
    if mode not in ("", "auto", "manual"):
        raise Refused(f"unknown mode {mode}")
    if mode != "manual":
        return
    cidr, gateway = text(route, "cidr"), text(route, "gateway")
    if not _is_cidr(cidr):
        raise Refused(f"the CIDR {cidr} is invalid")
    try:
        ipaddress.ip_address(gateway)
    except ValueError:
        raise Refused(f"the gateway {gateway} is invalid") from None


def _is_cidr(written: str) -> bool:
    try:
        network = ipaddress.ip_interface(written).network
    except ValueError:
        return False
    return "/" in written and written.rpartition("/")[2].isdigit() and network.prefixlen > 0


def _known(config: Raw) -> Raw:
    """What Go's struct keeps of a configuration."""
    kept = loads(dumps(config))
    keep_known(_STRUCTS.__getitem__, "utils.NetConf", kept)
    return {key: value for key, value in kept.items() if value}


# --- changes and removal -----------------------------------------------------------------------------------------------


def _check_change(nad: Raw, config: Raw, before: Raw, listers: Listers) -> None:
    kinds, bridges = ((text(before, key), text(config, key)) for key in ("type", "bridge"))
    if kinds[0] != kinds[1]:
        raise Refused(f"nad cannot be updated from network type {kinds[0]} to network type {kinds[1]}")
    if bridges[0] != bridges[1]:
        raise Refused(f"nad bridge name can't be changed from {bridges[0]} to {bridges[1]}")
    _check_config(nad, config, listers)
    _check_instances(nad, listers)
    if annotations_of(nad).get("storage-network.settings.harvesterhci.io") == "true":
        raise Refused("it is used by storagenetwork")


def _users(nad: Raw, specs: Iterable[tuple[Key, object]]) -> str:
    namespace, name = key_of(nad)
    return ", ".join(
        "/".join(key)
        for key, spec in sorted(specs, key=lambda pair: pair[0])
        if any(
            text(one, "multus", "networkName") == f"{namespace}/{name}"
            or (key[0] == namespace and text(one, "multus", "networkName") == name)
            for one in objects(spec, "networks")
        )
    )


def _check_instances(nad: Raw, listers: Listers) -> None:
    if users := _users(nad, ((key, raw.get("spec")) for key, raw in listers.instances.items())):
        raise Refused(f"it's still used by VM(s) {users} which must be stopped at first")


def check_network_removal(nad: Raw, listers: Listers) -> None:
    """Neither an instance nor a VM may use it, nor a setting of Harvester."""
    namespace, name = key_of(nad)
    for setting, annotation in SETTINGS:
        if annotations_of(listers.settings.get(("", setting), {})).get(annotation) == f"{namespace}/{name}":
            used = f"which is used by Harvester setting '{setting}'"
            raise bad_request(f"cannot delete NetworkAttachmentDefinition {namespace}/{name} {used}")
    try:
        if text(_decode(nad), "type") == OVN:
            return
        _check_instances(nad, listers)
        specs = ((key, nested(raw, "spec", "template", "spec")) for key, raw in listers.vms.items())
        if users := _users(nad, specs):
            needed = "which must remove the related networks and interfaces"
            raise Refused(f"it's still used by VM(s) {users} {needed}")
    except Refused as why:
        told = f"can't delete nad {namespace_of(nad)}/{name} because {why}"
        raise internal_error(told, VALIDATOR) from why
