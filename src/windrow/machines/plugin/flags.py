"""Maps machine config fields to a driver's create flags, as Rancher and rancher-machine do (reference/01 §5.5-5.6).

A host sends every flag, unset ones with their default, and the flags of its own `create` command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windrow.core.formats.json import dumps
from windrow.machines.port import HARVESTER, NOT_OPTIONS, Problem
from windrow.nodedriver.options import BY_FIELD, InvalidValue, read_bool, read_count, read_value
from windrow.protocols.dockermachine import Flag, config_field_of

# The first flag with one of these words in its name takes the path of the user data (reference/01 §5.3).
_USER_DATA_WORDS = ("user-data", "userdata", "custom-data", "cloud-config")
# Our own driver takes sizes as quantities; a plugin's flags take whole numbers.
_NUMERIC_FORMS = frozenset({"count", "gib", "mib", "switch"})

# What rancher-machine's `create` sends beside the driver's own flags.
_HOST_FLAGS: Mapping[str, str | bool] = {
    "engine-install-url": "https://get.docker.com",
    "engine-storage-driver": "",
    "swarm": False,
    "swarm-image": "swarm:latest",
    "swarm-master": False,
    "swarm-discovery": "",
    "swarm-strategy": "spread",
    "swarm-host": "tcp://0.0.0.0:3376",
    "swarm-addr": "",
    "swarm-experimental": False,
    "custom-install-script": "",
    "hostname-override": "",
}


def find_user_data_flag(flags: Sequence[Flag]) -> Flag | None:
    """The flag that takes the path of the user data."""
    return next((flag for flag in flags if any(word in flag.name for word in _USER_DATA_WORDS)), None)


def ssh_provisioning_problem(driver: str) -> Problem:
    """The problem of a driver without a user data flag."""
    return Problem(
        f"node driver {driver} has no flag for user data, so its machines would need SSH provisioning",
        "use a driver that has one: its name contains user-data, userdata, custom-data or cloud-config",
    )


def plan_flags(
    driver: str,
    flags: Sequence[Flag],
    options: Mapping[str, Any],
    credential: Mapping[str, str],
    user_data_path: str,
    *,
    cluster_name: str = "",
) -> tuple[dict[str, Any], list[Problem]]:
    """The value of every flag, and all problems of `options`.

    `credential` are the credential's fields, which `options` cannot set; `user_data_path` is the path of the user
    data.
    """
    user_data_flag = find_user_data_flag(flags)
    if user_data_flag is None:
        return {}, [ssh_provisioning_problem(driver)]
    by_field = {config_field_of(flag.name): flag for flag in flags}
    values: dict[str, Any] = {"driver": driver, **_HOST_FLAGS}
    values |= {flag.name: _default(flag) for flag in flags}
    if f"{driver}-cluster-name" in values:
        values[f"{driver}-cluster-name"] = cluster_name
    problems: list[Problem] = []
    for field, value in options.items():
        if field in NOT_OPTIONS or value is None or value == "" or field in credential:
            continue
        flag = by_field.get(field)
        if flag is None:
            problems.append(_unknown_option(driver, field, by_field))
        elif flag is not user_data_flag:
            values[flag.name] = _read(driver, flag, field, value, problems)
        elif driver != HARVESTER:
            problems.append(
                Problem(
                    f"{field} is set by Windrow: it is the machine's bootstrap document",
                    "remove it",
                    field,
                )
            )
    for field, text in credential.items():
        if flag := by_field.get(field):
            values[flag.name] = _read(driver, flag, field, text, problems)
    values[user_data_flag.name] = user_data_path
    return values, problems


def _default(flag: Flag) -> Any:
    return list(flag.default) if isinstance(flag.default, tuple) else flag.default


def _unknown_option(driver: str, field: str, known: Mapping[str, Flag]) -> Problem:
    near = [name for name in known if name.lower() == field.lower()]
    hint = f"write it as {near[0]}" if near else f"remove it; {driver} has {', '.join(sorted(known))}"
    return Problem(f"node driver {driver} has no option {field}", hint, field)


def _read(driver: str, flag: Flag, field: str, value: Any, problems: list[Problem]) -> Any:
    option = BY_FIELD.get(field) if driver == HARVESTER else None
    try:
        if option is not None and option.form in _NUMERIC_FORMS and option.type == flag.kind:
            value = read_value(option, value)
        return _typed(flag, field, value)
    except InvalidValue as bad:
        problems.append(Problem(bad.message, bad.hint, field))
        return _default(flag)


def _typed(flag: Flag, field: str, value: Any) -> Any:
    match flag.kind:
        case "int":
            return read_count(field, value)
        case "bool":
            return read_bool(field, value)
        case "strings":
            if isinstance(value, str):
                return [value]
            if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
                raise InvalidValue(f"{field} is {value!r}, not a list of text", f"write {field} as a list")
            return [str(each) for each in value]
    return _text(value)


def _text(value: Any) -> str:
    """Strings unchanged; else as JSON, which is how drivers take structures."""
    return value if isinstance(value, str) else dumps(value).decode()
