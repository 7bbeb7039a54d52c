"""Configuration files and flags of both distributions.

`config.yaml`, then `config.yaml.d/*.yaml` in the order of their names: a later file replaces a key, `key+` appends to
it (reference/04 §7.7). A key becomes the flag of its name.

A key that is no flag of the process is skipped with a warning, by the servers of both and by RKE2's agents (K3s v1.22.4 and RKE2
v1.22.4 on: `configfilearg.DefaultParser.ValidFlags`, which names `server` in K3s, `server` and `agent` in RKE2). K3s' agents are
not in that list, so the flag parser ends them; an argument that is no flag ends every one.
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from windrow.core.formats.cidr import is_address
from windrow.core.formats.yaml import NotYaml, load
from windrow.core.text import collapse_whitespace
from windrow.emulator.guest_cluster.distribution.distribution import (
    BadSettings,
    Distribution,
    Role,
    Settings,
)
from windrow.emulator.guest_os.operating_system import GuestOS

# Variables that have no prefix of the program.
_PLAIN_VARIABLES: Mapping[str, str] = {
    "etcd-s3-access-key": "AWS_ACCESS_KEY_ID",
    "etcd-s3-secret-key": "AWS_SECRET_ACCESS_KEY",
    "etcd-s3-session-token": "AWS_SESSION_TOKEN",
}


def read_settings(
    guest: GuestOS,
    distribution: Distribution,
    role: Role,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Settings:
    """The settings of arguments, environment and the machine's disk, not checked yet: the program logs their warnings
    first. Raises BadSettings with the text that the program logs."""
    flags = _flags(arguments, distribution.flags[role])
    variables = {
        flag: value
        for flag, name in distribution.environment.items()
        if flag in distribution.flags[role] and (value := environment.get(distribution.variable(name)))
    }
    variables |= {
        flag: value
        for flag, name in _PLAIN_VARIABLES.items()
        if flag in distribution.flags[role] and (value := environment.get(name))
    }
    path = next((value for flag, value in flags if flag == "config" and value), variables.get("config", ""))
    path = path or distribution.config
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
    for flag, value in variables.items():
        values.setdefault(flag, [value])
    return Settings(
        distribution, role, {flag: tuple(found) for flag, found in values.items()}, tuple(warnings)
    )


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


def _flags(arguments: Sequence[str], known: frozenset[str]) -> list[tuple[str, str]]:
    """The flags of a command line, as urfave/cli reads them. Raises BadSettings."""
    found: list[tuple[str, str]] = []
    words = iter(arguments)
    for word in words:
        name, sign, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            return found  # flags end at the first operand
        flag = _SHORT.get(name, name)
        if flag not in known:
            raise BadSettings(f"flag provided but not defined: -{name}")
        if flag in _SWITCHES:
            found.append((flag, value if sign else "true"))
            continue
        given = value if sign else next(words, None)
        if given is None:
            raise BadSettings(f"flag needs an argument: -{name}")
        found.append((flag, given))
    return found


_SHORT = {
    "c": "config",
    "d": "data-dir",
    "t": "token",
    "s": "server",
    "o": "write-kubeconfig",
    "i": "node-ip",
    "l": "log",
}
_SWITCH_NAMES = (
    "debug alsologtostderr tls-san-security disable-agent flannel-ipv6-masq flannel-external-ip "
    "cluster-init cluster-reset etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-compress "
    "etcd-s3 etcd-s3-skip-ssl-verify etcd-s3-insecure disable-scheduler disable-cloud-controller "
    "disable-kube-proxy disable-network-policy disable-helm-controller disable-apiserver "
    "disable-controller-manager disable-etcd embedded-registry supervisor-metrics with-node-id docker "
    "disable-default-registry-endpoint nonroot-devices disable-apiserver-lb rootless "
    "prefer-bundled-bin selinux protect-kernel-defaults enable-pprof secrets-encryption kine-tls "
    "enable-servicelb node-name-from-cloud-provider-metadata"
)
_SWITCHES = frozenset(_SWITCH_NAMES.split())
# Go's booleans; a key without a value is the switch without one.
_TRUTH = frozenset({"", "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"})


def _check_names(values: dict[str, list[str]], distribution: Distribution, role: Role) -> list[str]:
    warnings = []
    for flag in list(values):
        if flag in distribution.flags[role]:
            continue
        if role in distribution.strict_roles:
            raise BadSettings(f"flag provided but not defined: -{flag}")
        warnings.append(f"Unknown flag --{flag} found in config.yaml, skipping")
        del values[flag]
    return warnings


def check_settings(guest: GuestOS, settings: Settings) -> None:
    """Raises BadSettings with the text that the program logs."""
    if settings.role == "agent":
        for flag in ("server", "token"):
            if not settings.text(flag) and not settings.text(f"{flag}-file"):
                raise BadSettings(f"--{flag} is required")
    if settings.text("server") and not settings.text("token") and not settings.text("token-file"):
        raise BadSettings(f"{settings.distribution.variable('TOKEN')} is required to join a cluster")
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
    for flag in ("cluster-cidr", "service-cidr"):
        for value in _split(settings, flag):
            _check_network(flag, value)
    for value in _split(settings, "cluster-dns"):
        if not is_address(value):
            raise BadSettings(f"invalid cluster-dns address {value}")
    for flag in _SWITCHES & settings.flags.keys():
        if settings.text(flag) not in _TRUTH:
            raise BadSettings(f'invalid boolean value "{settings.text(flag)}" for -{flag}: parse error')
    settings.distribution.check(guest, settings)
    _check_registries(guest, settings)


def _split(settings: Settings, flag: str) -> list[str]:
    """The values as the program splits them: at commas alone, with all white space."""
    return [part for value in settings.flags.get(flag, ()) for part in value.split(",") if part]


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


def _check_network(flag: str, value: str) -> None:
    try:
        if "/" not in value:
            raise ValueError
        ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        raise BadSettings(f"invalid {flag} {value}: invalid CIDR address: {value}") from error


def _check_address(flag: str, value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise BadSettings(f"invalid {flag}: {value!r} is not an IP address") from error
