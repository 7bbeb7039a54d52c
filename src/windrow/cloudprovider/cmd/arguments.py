"""The arguments of the program, with the names, defaults and error texts of the Go program; apart from `main`, so that
help, version and usage errors load little.

`flag_table` lists the flags. Those without effect here are checked for their type and named in `Options.ignored`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any

from windrow import __version__
from windrow.cloudprovider.cmd.flag_table import FLAGS, SHORT, Flag, Type, render_help, shown
from windrow.cloudprovider.names import CONTROLLERS, DEFAULT_CLUSTER_NAME
from windrow.cloudprovider.options import (
    MIN_NODE_WORKERS,
    MIN_SERVICE_WORKERS,
    ORPHAN_SWEEPS,
    TLS_VERSIONS,
    Network,
    Options,
    is_node_address,
)
from windrow.core.formats.duration import NotDuration, parse_duration
from windrow.core.logs import LOG_FORMATS
from windrow.kubernetes.objects import is_dns_label

NAME = "cloudprovider.harvesterhci.io"
PROGRAM = "harvester-cloud-provider"
LOCK = "leases"
UNLIMITED = 1_000_000
# client-go's factor between the retry period and the renew deadline.
JITTER = 1.2
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_WRAPPING = " \t\r\n\"'`"
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^.0-9]*)")
_UNITS = ("h", "m", "s", "ms", "us", "\u00b5s", "\u03bcs", "ns")


class BadFlags(ValueError):
    """The command line cannot be used; the message is what the Go program says."""


_EXTRA_ARGS = (
    "Hint: flags come from extraArgs in the values of the chart harvester-cloud-provider; correct them there"
)


def parse_arguments(
    argv: Sequence[str], stderr: Callable[[str], None], stdout: Callable[[str], None]
) -> Options | int:
    """The options, or the exit code where the program ends here. `argv` may begin with PROGRAM.

    Errors go to `stderr`; help and version to `stdout`.
    """
    is_named = bool(argv) and posixpath.basename(argv[0]) == PROGRAM
    arguments = argv[1:] if is_named else argv
    try:
        options = parse_flags(arguments)
        if not (options.cloud_config or options.help or options.version):
            raise BadFlags(
                "--cloud-config is missing: can't init from an empty reader (io.Reader); name the kubeconfig for "
                "Harvester with --cloud-config=FILE"
            )
    except BadFlags as error:
        print_failure(error, stderr)
        # Whether or not the flags before it were understood.
        if {"--show-full-help-on-error", "--show-full-help-on-error=true"} & set(arguments):
            _print_help(stderr)
        return 1
    if options.help:
        _print_help(stdout)
        return 0
    if options.version:
        stdout(f"{PROGRAM} (Windrow) v{__version__}")
        return 0
    return options


def print_failure(error: Exception, out: Callable[[str], None]) -> None:
    """The banner of the Go program, the error, and a hint."""
    out(f"FATAL: {NAME} failed to start")
    out(f"Error detail: {error}")
    if isinstance(error, BadFlags):
        out(_EXTRA_ARGS)
        out(f"Hint: every flag: {PROGRAM} --help")


def _print_help(out: Callable[[str], None]) -> None:
    for line in render_help().splitlines():
        out(line)


def parse_flags(argv: Sequence[str]) -> Options:
    """The options that `argv` (without the program's name) asks for. Raises BadFlags."""
    return _build_options(*_split(argv))


def _split(argv: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Flag name -> value, of flags that are not given their default; and -> how it was written, of those that are given.
    Lists gather over repeated flags, of others the last one wins."""
    values = {name: _parse(flag, flag.default) for name, flag in FLAGS.items() if flag.has_effect}
    written: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, as_written, value = _split_name(word)
        flag = FLAGS[name]
        if value is None:
            if flag.type in ("bool", "version"):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise BadFlags(f"flag needs an argument: {as_written}")
        parsed = _parse(flag, value)
        values[name] = [*values[name], *parsed] if flag.type == "list" and name in written else parsed
        written[name] = value
    if any(words):  # empty ones pass, as in Go: templates leave them behind
        raise BadFlags(f"cloud-controller-manager does not take any arguments, got [{' '.join(words)}]")
    return values, written


def _split_name(word: str) -> tuple[str, str, str | None]:
    """(name, flag as written, value or None)"""
    if word.startswith("--"):
        name, sign, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if not name or name.startswith("-") or word[2:].startswith("="):
            raise BadFlags(f"bad flag syntax: {word}")
        if name not in FLAGS:
            raise BadFlags(f"unknown flag: --{name}")
        return name, f"--{name}", value if sign else None
    short = word[1]
    if short not in SHORT:
        raise BadFlags(f"unknown shorthand flag: {short!r} in {word}")
    return SHORT[short], f"{short!r} in {word}", word[2:].removeprefix("=") or None


def _parse(flag: Flag, value: str) -> Any:
    parse: dict[Type, Callable[[str], Any]] = {
        "bool": _parse_bool,
        "string": str,
        "version": str,
        "int": int,
        "float": float,
        "duration": parse_duration,
        "list": lambda text: [part for part in text.split(",") if part],
    }
    try:
        return parse[flag.type](value)
    except NotDuration:
        why = explain_duration(value)
    except ValueError:
        function = {"bool": "ParseBool", "int": "ParseInt", "float": "ParseFloat"}[flag.type]
        why = f'strconv.{function}: parsing "{value}": invalid syntax'
    raise BadFlags(f'invalid argument "{value}" for "{shown(flag.name)}" flag: {why}')


def _parse_bool(text: str) -> bool:
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(text)
    return text in _TRUE


def _is_ip(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


# Flag -> whether a value is valid, and the error of one that is not.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bind-address": (_is_ip, 'invalid argument "{0}" for "--bind-address" flag: failed to parse IP: "{0}"'),
    "concurrent-node-syncs": (
        lambda number: number > 0,
        "concurrent-node-syncs must be greater than 0, but got {}",
    ),
    "concurrent-service-syncs": (
        lambda number: number > 0,
        "concurrent-service-syncs must be greater than 0, but got {}",
    ),
    "logging-format": (
        LOG_FORMATS.__contains__,
        f"invalid --logging-format {{!r}}: write one of {', '.join(LOG_FORMATS)}",
    ),
    "orphan-sweep": (
        ORPHAN_SWEEPS.__contains__,
        f"invalid --orphan-sweep {{!r}}: write one of {', '.join(ORPHAN_SWEEPS)}",
    ),
    "secure-port": (
        range(65536).__contains__,
        "--secure-port {} must be between 0 and 65535, inclusive. 0 for turning off secure port",
    ),
    "tls-min-version": (
        ("VersionTLS10", "VersionTLS11", *TLS_VERSIONS).__contains__,
        f"unknown tls version {{!r}}: write --tls-min-version as one of {', '.join(TLS_VERSIONS)}",
    ),
}


def _build_options(values: dict[str, Any], written: dict[str, str]) -> Options:
    for flag, (is_valid, problem) in _CHECKS.items():
        if not is_valid(values[flag]):
            raise BadFlags(problem.format(values[flag]))
    warnings: list[str] = []
    name = _parse_cluster_name(values["cluster-name"], warnings)
    network = _parse_management_network(values["management-network"], warnings)
    if not network:
        warnings.append("--management-network is not set; the first network of each VM counts as its own")
    if values["leader-elect"]:
        _check_leader_election(values, written)
    if bool(values["tls-cert-file"]) != bool(values["tls-private-key-file"]):
        raise BadFlags("--tls-cert-file and --tls-private-key-file belong together: give both, or neither")
    return Options(
        cloud_config=values["cloud-config"],
        kubeconfig=values["kubeconfig"],
        master=values["master"].rstrip("/"),
        cluster_name=name,
        management_network=network,
        node_ip_cidr=_parse_node_ip_cidr(values["node-ip-cidr"], warnings),
        node_exclude_ip_ranges=_parse_networks(
            "node-exclude-ip-ranges", values["node-exclude-ip-ranges"], warnings
        ),
        disable_vmi_controller=values["disable-vmi-controller"],
        ignore_provided_ip=values["disable-annotation-alpha-provided-ip-addr"],
        disable_hostname_lookup=values["disable-hostname-lookup"],
        kube_vip_svc_election=values["kube-vip-svc-election"],
        controllers=_parse_controllers(values["controllers"]),
        leader_elect=values["leader-elect"],
        lease_name=values["leader-elect-resource-name"],
        lease_namespace=values["leader-elect-resource-namespace"],
        lease_duration=values["leader-elect-lease-duration"],
        renew_deadline=values["leader-elect-renew-deadline"],
        retry_period=values["leader-elect-retry-period"],
        node_workers=max(values["concurrent-node-syncs"], MIN_NODE_WORKERS),
        service_workers=max(values["concurrent-service-syncs"], MIN_SERVICE_WORKERS),
        orphan_sweep=values["orphan-sweep"],
        qps=_parse_rate("kube-api-qps", values),
        burst=_parse_rate("kube-api-burst", values),
        host_qps=_parse_rate("host-api-qps", values),
        host_burst=_parse_rate("host-api-burst", values),
        secure_port=values["secure-port"],
        bind_address=values["bind-address"],
        tls_cert_file=values["tls-cert-file"],
        tls_key_file=values["tls-private-key-file"],
        always_allow_paths=tuple(values["authorization-always-allow-paths"]),
        # What older clients would need is not offered.
        tls_min_version=max(values["tls-min-version"], TLS_VERSIONS[0]),
        share_port=values["permit-port-sharing"],
        verbosity=values["v"],
        log_format=values["logging-format"],
        help=values["help"],
        version=values["version"] != "false",
        ignored=tuple(f"--{name}" for name, flag in FLAGS.items() if name in written and not flag.has_effect),
        warnings=tuple(warnings),
    )


def _parse_rate(flag: str, values: dict[str, Any]) -> Any:
    """As in client-go, 0 is the default, and less is no limit."""
    number = values[flag] or _parse(FLAGS[flag], FLAGS[flag].default)
    return number if number > 0 else UNLIMITED


def _check_leader_election(values: dict[str, Any], written: dict[str, str]) -> None:
    """Raises BadFlags for a lock, or for durations of the Lease, that client-go does not take."""

    def shown_value(name: str) -> str:
        flag = f"leader-elect-{name}"
        return f"--{flag} is {written.get(flag, FLAGS[flag].default)}"

    lock, lease = values["leader-elect-resource-lock"], values["leader-elect-lease-duration"]
    renew, retry = values["leader-elect-renew-deadline"], values["leader-elect-retry-period"]
    if lock in ("endpoints", "configmaps", "endpointsleases", "configmapsleases"):
        raise BadFlags(f"error creating lock: {lock} lock is removed, migrate to {LOCK}")
    if lock != LOCK:
        raise BadFlags(
            f"error creating lock: Invalid lock-type {lock}; write --leader-elect-resource-lock={LOCK}"
        )
    if lease <= renew:
        raise BadFlags(
            "leaseDuration must be greater than renewDeadline: "
            f"{shown_value('lease-duration')}, {shown_value('renew-deadline')}; make the first longer"
        )
    if renew <= retry * JITTER:
        raise BadFlags(
            f"renewDeadline must be greater than retryPeriod*JitterFactor ({JITTER}): "
            f"{shown_value('renew-deadline')}, {shown_value('retry-period')}; make the first longer"
        )
    if retry <= timedelta(0):
        raise BadFlags("retryPeriod must be greater than zero: correct --leader-elect-retry-period")
    if lease < timedelta(seconds=1):
        raise BadFlags("--leader-elect-lease-duration must be 1s at least: Leases count whole seconds")


def _strip_wrapping(flag: str, raw: str, warnings: list[str]) -> str:
    """The value without what shells and YAML leave around it."""
    value = raw.strip(_WRAPPING)
    if value != raw:
        warnings.append(f"--{flag} is {raw!r}; white space and quotes around it are dropped")
    return value


def _parse_cluster_name(raw: str, warnings: list[str]) -> str:
    name = _strip_wrapping("cluster-name", raw, warnings)
    if name in ("", DEFAULT_CLUSTER_NAME):
        warnings.append(
            f"--cluster-name is {name or 'empty'}; set it to the guest cluster's name, or clusters that share "
            "a Harvester namespace cannot be distinguished"
        )
    elif not is_dns_label(name):
        warnings.append(f"--cluster-name {name!r} is not a DNS-1123 label")
    return name


def _parse_management_network(raw: str, warnings: list[str]) -> str:
    """`namespace/name`; a bare name is in `default`."""
    network = _strip_wrapping("management-network", raw, warnings)
    if not network:
        return ""
    namespace, slash, name = network.rpartition("/")
    if not slash:
        return f"default/{network}"
    if not namespace or not name or "/" in namespace:
        raise BadFlags(f"invalid --management-network {raw!r}: write it as NAMESPACE/NAME")
    return network


def _parse_node_ip_cidr(raw: str, warnings: list[str]) -> tuple[Network, ...]:
    found = _parse_networks("node-ip-cidr", raw.split(","), warnings)
    for version in (4, 6):
        if sum(network.version == version for network in found) > 1:
            raise BadFlags(f"invalid --node-ip-cidr {raw!r}: at most one IPv{version} entry is allowed")
    for network in found:
        if not is_node_address(network.network_address) and network.prefixlen:
            raise BadFlags(f"invalid --node-ip-cidr {raw!r}: {network} is no range for node addresses")
    return found


def _parse_networks(flag: str, entries: Sequence[str], warnings: list[str]) -> tuple[Network, ...]:
    # White space between the entries is no mistake; each may be quoted, or all together.
    texts = (_strip_wrapping(flag, text.strip(), warnings) for text in entries)
    return tuple(_parse_network(flag, text) for text in texts if text)


def _parse_network(flag: str, text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise BadFlags(f"invalid --{flag} entry {text!r}: neither an IP address nor a CIDR") from error


def _parse_controllers(wanted: Sequence[str]) -> frozenset[str]:
    chosen: set[str] = set(CONTROLLERS) if "*" in wanted else set()
    for entry in wanted:
        name = entry.removeprefix("-")
        if name == "*":
            continue
        if name not in CONTROLLERS:
            raise BadFlags(f'"{name}" is not in the list of known controllers')
        if entry.startswith("-"):
            chosen.discard(name)
        else:
            chosen.add(name)
    return frozenset(chosen)


def explain_duration(text: str) -> str:
    """Why `text`, which `parse_duration` refuses, is none."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    while part := _PART.match(rest):
        unit = part[2]
        if not unit:
            hint = f"write {text}s" if _is_duration(f"{text}s") else "write numbers with h, m, s or ms"
            return f'time: missing unit in duration "{text}": {hint}'
        if unit not in _UNITS:
            return f'time: unknown unit "{unit}" in duration "{text}": write numbers with h, m, s or ms'
        rest = rest[part.end() :]
    return f'time: invalid duration "{text}": write it like 90s, 5m or 1h30m'


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except NotDuration:
        return False
    return True
