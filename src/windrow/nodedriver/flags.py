"""What a host's values of the create flags (`options.OPTIONS`) make of a configuration.

Values are read as the Go driver reads them: a flag that is missing has its type's zero value, not its default
(hosts send the defaults themselves), and unknown flags are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.core.formats.yaml import NotYaml, load
from windrow.core.rng import Rng
from windrow.harvester.problems import Problem, only_errors
from windrow.nodedriver.config import KEYS, Configuration, size_texts
from windrow.nodedriver.devices import STRUCTURES
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.options import OPTIONS, Option, decode_if_base64, valid_unicode
from windrow.nodedriver.ssh.access import needs_ssh
from windrow.nodedriver.validate.rules import find_problems

_ZERO: Mapping[str, str | int | bool] = {"string": "", "int": 0, "bool": False}

# The order in which the Go driver checks these fields; it reports the first fault only. Other fields follow.
_GO_ORDER = ("enableSecureBoot", "sshPrivateKeyPath", "diskInfo", "networkInfo", "networkData")


def read_flags(values: Mapping[str, Any], base: Configuration) -> Configuration:
    """SetConfigFromFlags: `base` overlaid with the flags' values.

    Raises Refused with all problems at once, the one that the Go driver would name first.
    """
    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    for option in OPTIONS:
        value = _value(option, values.get(option.flag), problems)
        if option.key in STRUCTURES:
            value = _structure(option, value, problems)
        elif option.form == "encoded":
            value = decode_if_base64(value)
        elif option.form == "affinity":
            value = _affinity(decode_if_base64(value))
        changes[KEYS[option.key]] = value
    configuration = replace(
        base,
        **changes
        | size_texts(changes)
        | {
            "swarm_master": values.get("swarm-master") is True,
            "swarm_host": _text(values.get("swarm-host")),
            "swarm_discovery": _text(values.get("swarm-discovery")),
        },
    )
    unreadable = {problem.field for problem in problems}
    invalid = only_errors(
        find_problems(configuration, needs_private_key=needs_ssh(configuration), unreadable=unreadable)
    )
    if found := problems + sorted(invalid, key=_go_rank):
        raise Refused(*found)
    return configuration


def with_machine_uid(configuration: Configuration, rng: Rng) -> Configuration:
    """The configuration with a machine uid, which the host saves before anything is created."""
    return configuration if configuration.machine_uid else replace(configuration, machine_uid=rng.uid())


def _go_rank(problem: Problem) -> int:
    known = problem.go and problem.field in _GO_ORDER
    return _GO_ORDER.index(problem.field) if known else len(_GO_ORDER)


def _value(option: Option, value: Any, problems: list[Problem]) -> Any:
    zero = _ZERO[option.type]
    if value is None:
        return zero
    match option.type, value:
        case "string", str():
            return valid_unicode(value)
        case "bool", bool():
            return value
        case "bool", "true" | "false":
            return value == "true"
        case "int", int() if not isinstance(value, bool):
            return value
        case "int", str() if value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 20:
            return int(value)
    problems.append(
        Problem(
            f"flag {option.flag} has the value {_display(option, value)}", _HINTS[option.type], option.field
        )
    )
    return zero


_HINTS = {
    "string": "give it one text",
    "int": "give it a whole number",
    "bool": "give it true or false",
}


def _display(option: Option, value: Any) -> str:
    return (
        f"of type {type(value).__name__}" if option.is_secret or not isinstance(value, str) else repr(value)
    )


def _structure(option: Option, text: str, problems: list[Problem]) -> Any:
    """The structure that the JSON of a flag holds."""
    if not text:
        return None
    try:
        value = loads(text)
    except NotJson as error:
        problems.append(
            Problem(f"{option.flag} is not JSON: {error}", "correct it at that place", option.field)
        )
        return None
    return STRUCTURES[option.key].read(value, problems)


def _affinity(text: str) -> str:
    """The JSON of the affinity, also where it was written as YAML; "" for null. What is neither stays as it is."""
    try:
        affinity = loads(text) if text.strip() else None
    except NotJson:
        return _as_json(text)
    return "" if affinity is None else text


def _as_json(text: str) -> str:
    try:
        found = load(text)
        return dumps(found).decode() if isinstance(found, dict) else text
    except (NotYaml, TypeError, ValueError):  # the latter two for YAML that JSON has no form for
        return text


def _text(value: Any) -> str:
    return valid_unicode(value) if isinstance(value, str) else ""
