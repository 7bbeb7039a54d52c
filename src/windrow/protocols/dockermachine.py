"""docker-machine's driver RPC (reference/01 §1): methods, types, flags and states, for hosts and plugins."""

from __future__ import annotations

from windrow.protocols.gob import (
    BOOL,
    INT,
    INTERFACE,
    STRING,
    BadGob,
    Interface,
    Limits,
    MapOf,
    Slice,
    Struct,
    Type,
    fits,
)
from windrow.protocols.gob import BYTES as BYTES  # named by METHODS, so callers have them from here
from windrow.protocols.gob import EMPTY as EMPTY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Literal

    Kind = Literal["string", "int", "bool", "strings"]
    Default = str | int | bool | Sequence[str]
    Option = str | int | bool | Sequence[str]

SERVICE = "RPCServerDriver"
LEGACY_SERVICE = "RpcServerDriver"
"""The service's name in plugins built before 2016; hosts try it when the other is not found."""

API_VERSION = 1

TOKEN_ENV = "MACHINE_PLUGIN_TOKEN"
TOKEN = "42"
NAME_ENV = "MACHINE_PLUGIN_DRIVER_NAME"

HEARTBEAT_INTERVAL_S = 5
"""The interval of a host's Heartbeat calls."""
HEARTBEAT_TIMEOUT_S = 10
"""How long a plugin lives without a Heartbeat, and how long a host waits for the plugin's address line."""

DEFAULT_LIMITS = Limits(size=8 << 20, elements=50_000, depth=16, types=128)

# --- states ---------------------------------------------------------------------------------------------------------

NONE, RUNNING, PAUSED, SAVED, STOPPED, STOPPING, STARTING, ERROR, TIMEOUT, NOT_FOUND = range(10)

STATES: tuple[str, ...] = (
    "",
    "Running",
    "Paused",
    "Saved",
    "Stopped",
    "Stopping",
    "Starting",
    "Error",
    "Timeout",
    "Not Found",
)
"""How a host prints a state; the index is its number on the wire. Drivers never return the last one."""

# --- types ----------------------------------------------------------------------------------------------------------

STRINGS = Slice(STRING, "[]string")
_COMMON = (("Name", STRING), ("Usage", STRING), ("EnvVar", STRING))

STRING_FLAG = "*mcnflag.StringFlag"
INT_FLAG = "*mcnflag.IntFlag"
BOOL_FLAG = "*mcnflag.BoolFlag"
STRINGS_FLAG = "*mcnflag.StringSliceFlag"
OPTIONS = "*rpcdriver.RPCFlags"

REGISTRY: Mapping[str, Type] = {
    STRING_FLAG: Struct("StringFlag", (*_COMMON, ("Value", STRING))),
    INT_FLAG: Struct("IntFlag", (*_COMMON, ("Value", INT))),
    BOOL_FLAG: Struct("BoolFlag", _COMMON),
    STRINGS_FLAG: Struct("StringSliceFlag", (*_COMMON, ("Value", STRINGS))),
    OPTIONS: Struct("RPCFlags", (("Values", MapOf(STRING, INTERFACE, "map[string]interface {}")),)),
    "string": STRING,
    "int": INT,
    "bool": BOOL,
    "[]string": Slice(STRING),
}
"""The types that travel in interfaces. The names are those of both docker/machine and rancher/machine."""

# --- methods --------------------------------------------------------------------------------------------------------


class Method:
    """The types of a method's argument and reply."""

    __slots__ = ("argument", "reply")

    def __init__(self, argument: Type, reply: Type) -> None:
        self.argument = argument
        self.reply = reply


FLAGS = Slice(INTERFACE)

REPLACE_USER_DATA = "WindrowReplaceUserData"
"""An extension of Windrow's plugin: replaces the machine's user data. Other plugins answer `can't find method`."""

GET_VM_STATUS = "WindrowGetVmStatus"
"""An extension: the status of the machine's VM, as a JSON object."""

LIST_EXTENSIONS = "WindrowExtensions"
"""An extension: the names of the extensions that the plugin has, separated by spaces."""

_NO_VALUES = Method(EMPTY, EMPTY)
_RETURNS_STRING = Method(EMPTY, STRING)
_RETURNS_INT = Method(EMPTY, INT)

METHODS: Mapping[str, Method] = {
    "GetVersion": _RETURNS_INT,
    "Heartbeat": _NO_VALUES,
    "Close": _NO_VALUES,
    "SetConfigRaw": Method(BYTES, EMPTY),
    "GetConfigRaw": Method(EMPTY, BYTES),
    "GetCreateFlags": Method(EMPTY, FLAGS),
    "SetConfigFromFlags": Method(INTERFACE, EMPTY),
    "DriverName": _RETURNS_STRING,
    "GetMachineName": _RETURNS_STRING,
    "GetIP": _RETURNS_STRING,
    "GetIPv6": _RETURNS_STRING,
    "GetSSHHostname": _RETURNS_STRING,
    "GetSSHKeyPath": _RETURNS_STRING,
    "GetSSHUsername": _RETURNS_STRING,
    "GetURL": _RETURNS_STRING,
    "GetSSHPort": _RETURNS_INT,
    "GetState": _RETURNS_INT,
    "PreCreateCheck": _NO_VALUES,
    "Create": _NO_VALUES,
    "Remove": _NO_VALUES,
    "Start": _NO_VALUES,
    "Stop": _NO_VALUES,
    "Restart": _NO_VALUES,
    "Kill": _NO_VALUES,
    REPLACE_USER_DATA: Method(BYTES, BYTES),
    GET_VM_STATUS: Method(EMPTY, BYTES),
    LIST_EXTENSIONS: _RETURNS_STRING,
}
"""By the name after the dot. Older plugins lack `GetIPv6`, and only Windrow's has those that begin with `Windrow`."""

# --- flags ----------------------------------------------------------------------------------------------------------


class Flag:
    """A create flag. `default` is of its kind; a bool flag has none but False, since the protocol has no field for it."""

    __slots__ = ("default", "env", "kind", "name", "usage")

    def __init__(self, kind: Kind, name: str, usage: str, env: str, default: Default) -> None:
        self.kind = kind
        self.name = name
        self.usage = usage
        self.env = env
        self.default = tuple(default) if kind == "strings" else default  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flag) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Flag{self._key()!r}"

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.name, self.usage, self.env, self.default


def config_field_of(flag: str) -> str:
    """The machine config field of a flag, as Rancher derives it: `harvester-vm-namespace` is `vmNamespace`."""
    first, *others = flag.partition("-")[2].split("-")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


_FLAGS: Mapping[str, tuple[str, Default]] = {
    "string": (STRING_FLAG, ""),
    "int": (INT_FLAG, 0),
    "bool": (BOOL_FLAG, False),
    "strings": (STRINGS_FLAG, ()),
}
_KINDS: Mapping[str, Kind] = {registered: kind for kind, (registered, _) in _FLAGS.items()}  # type: ignore[misc]


def write_flags(flags: Iterable[Flag]) -> list[Interface]:
    """The reply of GetCreateFlags; hosts keep the order."""
    return [_write_flag(flag) for flag in flags]


def _write_flag(flag: Flag) -> Interface:
    value: dict[str, Any] = {"Name": flag.name, "Usage": flag.usage, "EnvVar": flag.env}
    if flag.kind != "bool":
        value["Value"] = list(flag.default) if isinstance(flag.default, tuple) else flag.default
    return Interface(_FLAGS[flag.kind][0], value)


def read_flags(value: Any) -> tuple[Flag, ...]:
    """The flags in a reply of GetCreateFlags; raises BadGob where one is not of docker-machine's four flag types."""
    if not isinstance(value, list):
        raise BadGob(f"the create flags are a {value.__class__.__name__}, not a list")
    return tuple(_read_flag(each) for each in value)


def _read_flag(value: Any) -> Flag:
    registered = value.name if isinstance(value, Interface) else None
    kind = _KINDS.get(registered or "")
    if kind is None:
        raise BadGob(f"a create flag of unknown type {str(registered)[:100]!r}")
    if not fits(REGISTRY[value.name], value.value):
        raise BadGob(f"a create flag that is no {value.name}")
    raw = value.value
    default = _FLAGS[kind][1] if kind == "bool" else raw.get("Value", _FLAGS[kind][1])
    return Flag(kind, raw.get("Name", ""), raw.get("Usage", ""), raw.get("EnvVar", ""), default)


# --- options --------------------------------------------------------------------------------------------------------

_OPTIONS: Mapping[type, str] = {str: "string", bool: "bool", int: "int", list: "[]string", tuple: "[]string"}


def write_options(values: Mapping[str, Option]) -> Interface:
    """The argument of SetConfigFromFlags."""
    return Interface(
        OPTIONS, {"Values": {name: _write_option(name, value) for name, value in values.items()}}
    )


def _write_option(name: str, value: Option) -> Interface:
    registered = _OPTIONS.get(value.__class__)
    if registered is None:
        raise BadGob(f"the option {name!r} is a {value.__class__.__name__}; it may be str, int, bool or list")
    return Interface(registered, list(value) if isinstance(value, tuple) else value)


def read_options(value: Any) -> dict[str, str | int | bool | list[str]]:
    """The options in an argument of SetConfigFromFlags; raises BadGob where it is none.

    An option of another type is left out, as Go's accessors treat it as missing.
    """
    if not isinstance(value, Interface) or value.name != OPTIONS or not fits(REGISTRY[OPTIONS], value.value):
        raise BadGob("the argument of SetConfigFromFlags is no RPCFlags")
    values = value.value.get("Values", {})
    return {name: each.value for name, each in values.items() if _is_option(each)}


def _is_option(value: Any) -> bool:
    return (
        isinstance(value, Interface)
        and value.name in _OPTIONS.values()
        and fits(REGISTRY[value.name], value.value)
    )
