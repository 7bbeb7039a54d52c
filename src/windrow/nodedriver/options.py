"""The driver's 32 options: one table behind flags, environment, HarvesterConfig fields, schema and configuration.

The order is part of the contract: rancher-machine takes the first flag whose name contains `cloud-config` or
`user-data` for its own file, so new rows go to the end. Names, types and defaults are those of the Go driver; a flag
that is dropped or renamed would break configurations that are stored in Rancher.

A host that asks for the flags waits for this module alone, so what reads values is imported where they are read.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windrow.core.errors import UserError
from windrow.core.formats.bounds import abbreviate, is_too_long
from windrow.harvester.problems import Problem
from windrow.protocols.dockermachine import config_field_of

# How a value is written, and what parsing makes of it.
Form = Literal[
    "text",  # text
    "encoded",  # text, base64 accepted
    "count",  # a whole number
    "gib",  # a size: a bare number is GiB, a quantity is converted
    "mib",
    "switch",  # true or false
    "structure",  # JSON in text, or the structure itself
    "affinity",  # JSON in text or base64, or the structure itself
]

# What a change of the option means for machines that exist.
Change = Literal["live", "restart", "roll", "new_only"]

DRIVER = "harvester"
GIB, MIB = 2**30, 2**20


@dataclass(frozen=True, slots=True)
class Option:
    """One row. `key` is the name in the persisted configuration (config.json)."""

    name: str
    key: str
    usage: str
    form: Form = "text"
    default: str | int | bool = ""
    change: Change = "roll"
    is_secret: bool = False

    @property
    def flag(self) -> str:
        """`harvester-enable-efi`"""
        return f"{DRIVER}-{self.name}"

    @property
    def env(self) -> str:
        """`HARVESTER_ENABLE_EFI`"""
        return self.flag.upper().replace("-", "_")

    @property
    def field(self) -> str:
        """`enableEfi`"""
        return config_field_of(self.flag)

    @property
    def type(self) -> Literal["string", "int", "bool"]:
        """The type of the create flag."""
        match self.form:
            case "count" | "gib" | "mib":
                return "int"
            case "switch":
                return "bool"
            case _:
                return "string"


OPTIONS: tuple[Option, ...] = (
    Option(
        "kubeconfig-content",
        "KubeConfigContent",
        "contents of kubeconfig file for harvester cluster, base64 is supported",
        "encoded",
        change="live",
        is_secret=True,
    ),
    Option("cluster-type", "ClusterType", "harvester cluster type", change="live"),
    Option("cluster-id", "ClusterID", "harvester cluster id", change="live"),
    Option("cluster-name", "ClusterName", "harvester cluster name", change="new_only"),
    Option("vm-namespace", "VMNamespace", "harvester vm namespace", default="default", change="new_only"),
    Option("cpu-count", "CPU", "number of CPUs for machine", "count", 2, change="restart"),
    Option("memory-size", "MemorySize", "size of memory for machine (in GiB)", "gib", 4, change="restart"),
    Option("disk-size", "DiskSize", "size of disk for machine (in GiB)", "gib", 0),
    Option("disk-bus", "DiskBus", "bus of disk for machine"),
    Option("image-name", "ImageName", "harvester image name"),
    Option("disk-info", "DiskInfo", "harvester disk info", "structure"),
    Option("ssh-user", "SSHUser", "SSH username", default="root"),
    Option("ssh-port", "SSHPort", "SSH port", "count", 22, change="live"),
    Option("ssh-password", "SSHPassword", "SSH password", is_secret=True),
    Option("key-pair-name", "KeyPairName", "harvester key pair name"),
    Option("ssh-private-key-path", "SSHPrivateKeyPath", "SSH private key path", change="live"),
    Option("network-type", "NetworkType", "harvester network type", change="live"),
    Option("network-name", "NetworkName", "harvester network name"),
    Option("network-model", "NetworkModel", "harvester network model"),
    Option("network-info", "NetworkInfo", "harvester network info", "structure"),
    Option(
        "cloud-config",
        "CloudConfig",
        "just keep it empty, this value will be filled by rancher-machine",
        change="live",
    ),
    Option(
        "user-data", "UserData", "userData content of cloud-init for machine, base64 is supported", "encoded"
    ),
    Option(
        "network-data",
        "NetworkData",
        "networkData content of cloud-init for machine, base64 is supported",
        "encoded",
    ),
    Option(
        "vm-affinity",
        "VMAffinity",
        "harvester vm affinity, base64 is supported",
        "affinity",
        change="restart",
    ),
    Option("enable-efi", "EnableEFI", "enable vm efi", "switch", False),
    Option(
        "enable-secure-boot",
        "EnableSecureBoot",
        "enable vm secure boot, only works when enable efi",
        "switch",
        False,
    ),
    Option("vgpu-info", "VGPUInfo", "harvester-vgpu-info", "structure"),
    Option(
        "cpu-pinning",
        "CPUPinning",
        "enable vm cpu pinning, please ensure the harvester cluster has cpu manager enabled in at least one node",
        "switch",
        False,
        change="restart",
    ),
    Option(
        "isolate-emulator-thread",
        "IsolateEmulatorThread",
        "enable vm isolated emulator thread",
        "switch",
        False,
        change="restart",
    ),
    Option("enable-tpm", "EnableTPM", "enable vm TPM", "switch", False),
    Option(
        "reserved-memory-size",
        "ReservedMemorySize",
        "size of reserved memory for machine (in MiB, integer value)",
        "mib",
        -1,
        change="restart",
    ),
    Option("cpu-model", "CPUModel", "model of CPU for machine", change="restart"),
)

BY_FIELD: Mapping[str, Option] = {option.field: option for option in OPTIONS}


class InvalidValue(UserError):
    """The value does not have the form of its option."""


def read_value(option: Option, value: Any) -> Any:
    """`value` in the option's own type: text, number, truth or structure (None for none). Raises InvalidValue.

    Strings are read as Rancher and flags write them, structured values as people write them in YAML; an empty
    string or null means the default.
    """
    if value is None or value == "":
        value = option.default
    match option.form:
        case "text":
            return _text(option, value)
        case "encoded":
            return decode_if_base64(_text(option, value))
        case "count":
            return read_count(option.field, value)
        case "gib":
            return _size(option, value, GIB, "GiB")
        case "mib":
            return _size(option, value, MIB, "MiB")
        case "switch":
            return read_bool(option.field, value)
        case "structure":
            return _structure(option, value)
        case "affinity":
            return _structure(option, decode_if_base64(value) if isinstance(value, str) else value)


def read_values(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Every option's value by its configuration key, and what is wrong with those that could not be read.

    Fields that are no options are ignored: other programs may own them.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for option in OPTIONS:
        try:
            values[option.key] = read_value(option, fields.get(option.field))
        except InvalidValue as bad:
            problems.append(Problem(bad.message, bad.hint, option.field))
            values[option.key] = read_value(option, None)
    return values, problems


def _text(option: Option, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue(
            f"{option.field} is {_describe_type(value)}, not text", f"write {option.field} as one string"
        )
    return str(value)


def read_count(name: str, value: Any) -> int:
    """`value`, called `name`, as a whole number. Raises InvalidValue."""
    if isinstance(value, str):
        is_number = not is_too_long(value) and re.fullmatch(r"\s*[+-]?\d+\s*", value)
        value = int(value) if is_number else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} is {abbreviate(value)}, not a whole number", f'write {name} as "2"')
    return value


def _size(option: Option, value: Any, unit: int, name: str) -> int:
    """A whole number of units. `4`, "4", "4Gi" and "4096Mi" are the same size in GiB."""
    try:
        return read_count(option.field, value)
    except InvalidValue:
        pass
    from windrow.core.formats.quantity import NotQuantity, Quantity

    try:
        count, rest = divmod(Quantity.parse(str(value)).bytes, unit)
    except NotQuantity:
        rest = 1
    if rest:
        raise InvalidValue(
            f"{option.field} is {abbreviate(value)}, which is not a whole number of {name}",
            f'write {option.field} as "4" (in {name}) or as a quantity such as "4{name[:-1]}"',
        )
    return count


def read_bool(name: str, value: Any) -> bool:
    """`value`, called `name`, as true or false. Raises InvalidValue."""
    if isinstance(value, bool):
        return value
    truth = {"true": True, "false": False}.get(str(value).strip().lower())
    if truth is None:
        raise InvalidValue(f"{name} is {value!r}, not true or false", f"write {name}: true or false")
    return truth


def _structure(option: Option, value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        from windrow.core.formats.json import NotJson, loads

        try:
            value = loads(value)
        except NotJson as error:
            raise InvalidValue(f"{option.field} is not JSON: {error}", "correct it at that place") from error
    if value is None or isinstance(value, dict | list):
        return value
    raise InvalidValue(f"{option.field} is {_describe_type(value)}, not a JSON object", "write it as {...}")


def _describe_type(value: Any) -> str:
    names: dict[type, str] = {
        dict: "a map",
        list: "a list",
        bool: "true or false",
        int: "a number",
        str: "text",
    }
    return names.get(type(value), "a value of another kind")


_LAYOUT = frozenset("\n\r\t")


def decode_if_base64(value: str) -> str:
    """The text that `value` encodes, else `value` as it is.

    The Go driver decodes whatever its base64 decoder accepts, and so turns the plain word `null` into three bytes
    of garbage. We decode only when readable text comes out.
    """
    # Go's decoder ignores line ends anywhere; it wants the standard alphabet and exact padding.
    packed = value.replace("\r", "").replace("\n", "")
    if len(packed) % 4:
        return value
    try:
        text = binascii.a2b_base64(packed, strict_mode=True).decode()
    except ValueError:
        return value
    return text if all(character.isprintable() or character in _LAYOUT for character in text) else value


def valid_unicode(text: str) -> str:
    """`text` with U+FFFD for each lone half of a surrogate pair, which JSON can write and UTF-8 cannot; as Go does."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
