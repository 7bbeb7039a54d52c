"""Configuration files and flags of both distributions.

`config.yaml`, then `config.yaml.d/*.yaml` in the order of their names: a later file replaces a key, `key+` appends to
it (reference/04 §7.7). A key becomes the flag of its name.

A key that is no flag ends the service here. Releases before 2022 did that; later ones warn ("Unknown flag
… found in config.yaml, skipping") and go on. The strict reading is on purpose: a skipped key would be a
wrong bootstrap without a symptom. Flags of servers in an agent's file are skipped with that warning, because
Rancher's cluster-wide settings bring them there.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping
from typing import Any

from windrow.core.formats.yaml import NotYaml, load
from windrow.core.text import collapse_whitespace
from windrow.emulator.guest_cluster.distribution.distribution import (
    BadSettings,
    Distribution,
    Role,
    Settings,
)
from windrow.emulator.guest_os.operating_system import GuestOS


def read_settings(
    guest: GuestOS, distribution: Distribution, role: Role, arguments: tuple[str, ...] = ()
) -> Settings:
    """The settings on a machine's disk. Raises BadSettings with the text that the program logs."""
    flags = _flags(arguments)
    path = next((value for flag, value in flags if flag == "config" and value), distribution.config)
    paths = [path] if guest.is_file(path) else []
    paths += [name for name in guest.list_under(path + ".d") if _is_drop_in(name, path + ".d")]
    values: dict[str, list[str]] = {}
    for name in paths:
        for key, value in _mapping(guest, name).items():
            plain = key.removesuffix("+")
            values[plain] = [*values.get(plain, []), *_texts(value)] if key.endswith("+") else _texts(value)
    warnings = _check_names(values, distribution, role)
    for flag, value in flags:
        if flag != "config":
            values.setdefault(flag, []).append(value)
    settings = Settings(
        distribution, role, {flag: tuple(found) for flag, found in values.items()}, tuple(warnings)
    )
    _check(guest, settings)
    return settings


def _is_drop_in(name: str, directory: str) -> bool:
    return posixpath.dirname(name) == directory and name.lower().endswith((".yaml", ".yml"))


def _mapping(guest: GuestOS, path: str) -> Mapping[str, Any]:
    try:
        found = load((guest.read(path) or b"").decode("utf-8", "replace"))
    except NotYaml as error:
        raise BadSettings(f"failed to parse {path}: yaml: {collapse_whitespace(error)}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadSettings(
            f"failed to parse {path}: yaml: unmarshal errors: cannot unmarshal {type(found).__name__} into a mapping"
        )
    return {str(key): value for key, value in found.items()}


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [_text(value)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _flags(arguments: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        if word.startswith("--") or word == "-c":
            flag, sign, value = word.removeprefix("--").partition("=")
            found.append(("config" if flag == "-c" else flag, value if sign else next(words, "")))
    return found


def _check_names(values: dict[str, list[str]], distribution: Distribution, role: Role) -> list[str]:
    warnings = []
    for flag in list(values):
        if flag in distribution.flags[role]:
            continue
        if flag not in distribution.flags["server"]:
            raise BadSettings(f"flag provided but not defined: -{flag} (from {distribution.config})")
        warnings.append(f"Unknown flag --{flag} found in config.yaml, skipping")
        del values[flag]
    return warnings


def _check(guest: GuestOS, settings: Settings) -> None:
    if settings.role == "agent":
        for flag in ("server", "token"):
            if not settings.text(flag) and not settings.text(f"{flag}-file"):
                raise BadSettings(f"--{flag} is required")
    if settings.text("server") and not settings.text("token") and not settings.text("token-file"):
        raise BadSettings(f"{settings.distribution.token_variable} is required to join a cluster")
    if (
        settings.is_true("disable-etcd")
        and not settings.text("server")
        and not settings.text("datastore-endpoint")
    ):
        raise BadSettings("invalid flag use; --server is required with --disable-etcd")
    if settings.is_true("disable-etcd") and settings.is_true("disable-apiserver"):
        raise BadSettings("invalid flag use; cannot use --disable-etcd with --disable-apiserver")
    for flag in ("node-ip", "node-external-ip", "advertise-address", "bind-address"):
        for value in settings.list(flag):
            _check_address(flag, value)
    settings.distribution.check(guest, settings)
    _check_registries(guest, settings)


def _check_registries(guest: GuestOS, settings: Settings) -> None:
    registries = settings.text("private-registry", settings.distribution.registries)
    content = guest.read(registries)
    if content is not None:
        try:
            found = load(content.decode("utf-8", "replace"))
        except NotYaml as error:
            raise BadSettings(f"failed to read {registries}: yaml: {collapse_whitespace(error)}") from error
        if found is not None and not isinstance(found, dict):
            raise BadSettings(f"failed to read {registries}: it is not a mapping of mirrors and configs")


def _check_address(flag: str, value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise BadSettings(f"invalid {flag}: {value!r} is not an IP address") from error
