"""config.json in and out: the `Driver` object that docker-machine keeps of a machine.

Loading understands the files of every version of the Go driver, and the Go driver understands ours: keys match in any
case, unknown keys are ignored, a value that is missing or null stays what it was, a null structure is removed, and any
value of another type is refused. Afterwards the kubeconfig, and nothing else, is taken from the host's command line or
environment if it is there, so that a renewed credential reaches machines that exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.harvester.problems import Problem
from windrow.nodedriver.config import KEYS, Configuration, InvalidDriverConfig, dump_driver_config
from windrow.nodedriver.devices import STRUCTURES
from windrow.nodedriver.options import OPTIONS, decode_if_base64, valid_unicode

_KUBECONFIG = next(option for option in OPTIONS if option.key == "KubeConfigContent")
_KEYS_IN_LOWER_CASE = {key.lower(): key for key in KEYS}
_TYPES: Mapping[str, type] = {each.metadata["key"]: type(each.default) for each in fields(Configuration)}
_GO_KINDS: Mapping[type, str] = {
    bool: "bool", int: "number", float: "number", str: "string", dict: "object", list: "array", tuple: "array",
}  # fmt: skip
_GO_TYPES: Mapping[type, str] = {bool: "bool", int: "int", str: "string", tuple: "[]string"}


def load(
    text: bytes, base: Configuration, argv: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Configuration:
    """SetConfigRaw: `base` overlaid with what `text` holds, and with the kubeconfig in `argv` (of the whole process) or
    `env`. Raises InvalidDriverConfig, and then nothing of `text` counts."""
    try:
        document = loads(text.decode("utf-8", "replace"))
    except NotJson as error:
        raise InvalidDriverConfig(f"error unmarshalling driver config JSON: {error}") from error
    loaded = load_driver_config(document, base)
    override = kubeconfig_override(argv, env or {})
    return replace(loaded, kubeconfig_content=override) if override else loaded


def load_driver_config(driver_config: Any, base: Configuration | None = None) -> Configuration:
    """The same for an object that was parsed before, and without argv and environment. Raises InvalidDriverConfig."""
    if driver_config is None:
        driver_config = {}
    if not isinstance(driver_config, Mapping):
        raise _wrong_type(driver_config, "value of type harvester.targetDriver")
    changes: dict[str, Any] = {}
    for name, value in driver_config.items():
        key = name if name in KEYS else _KEYS_IN_LOWER_CASE.get(str(name).lower(), "")
        if key in STRUCTURES:
            changes[KEYS[key]] = _read_structure(key, value)
        elif key and value is not None:
            changes[KEYS[key]] = _read_value(key, value)
    return replace(base or Configuration(), **changes)


def _read_structure(key: str, value: Any) -> Any:
    problems: list[Problem] = []
    found = STRUCTURES[key].read(value, problems)
    if problems:
        raise InvalidDriverConfig(f"error unmarshalling driver config JSON: {problems[0].message}")
    return found


def _read_value(key: str, value: Any) -> Any:
    wanted = _TYPES[key]
    if key == "DiskSize" and type(value) is int:
        return str(value)  # driver v0.6.0 wrote a number
    if wanted is tuple and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(map(valid_unicode, value))
    if type(value) is not wanted or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise _wrong_type(value, f"struct field targetDriver.{key} of type {_GO_TYPES[wanted]}")
    return valid_unicode(value) if isinstance(value, str) else value


def _wrong_type(value: Any, wanted: str) -> InvalidDriverConfig:
    kind = _GO_KINDS.get(type(value), "value")
    return InvalidDriverConfig(
        f"error unmarshalling driver config JSON: json: cannot unmarshal {kind} into Go {wanted}"
    )


def dump(configuration: Configuration) -> bytes:
    """GetConfigRaw: every key, in Go's order, then the `Windrow` keys."""
    return dumps(dump_driver_config(configuration))


def kubeconfig_override(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The kubeconfig on the host's command line, else in the environment; "" where neither has one.

    A value is everything behind the first `=`, or the next argument unless that is an option itself. Empty values
    are no kubeconfig: the stored one stays.
    """
    found = ""
    given = False
    for place, argument in enumerate(argv):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name != _KUBECONFIG.flag:
            continue
        given = True
        if not equals:
            following = argv[place + 1] if place + 1 < len(argv) else "-"
            value = "" if _is_option(following) else following
        found = value
    return decode_if_base64(found if given else env.get(_KUBECONFIG.env, ""))


def _is_option(argument: str) -> bool:
    """A YAML document may start with dashes too, but then it has a second line."""
    return argument.startswith("-") and "\n" not in argument
