"""The validator of Harvester's settings (v1.8.2): those whose value is checked by itself, or beside running migrations.

Not here are the settings that are checked against what the emulator has not: VLAN configurations, certificates, a backup
target, nodes' disks (`containerd-registry` is of another project's types).
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Mapping

from windrow.apiserver.types.registry import name_errors
from windrow.core.formats.json import NotJson, loads
from windrow.emulator.admission.denials import bad_request, internal, invalid, not_allowed
from windrow.emulator.admission.kubevirt.causes import text
from windrow.emulator.kit.go_types import decode_text, read_structs
from windrow.emulator.kit.listers import Listers
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested

_TTL = "kubeconfig-default-token-ttl-minutes"
LONGEST_TTL_MINUTES = 52_560_000  # 100 years
HOTPLUG_RATIOS = (1, 20)
OVERHEAD_RATIOS = (1, 10)
LONGEST_ROTATION_H = 24 * 365 - 1
SSL_PROTOCOLS = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_STANDARD = "cluster-pod-security-standard"
_STRUCTS = read_structs(
    {
        "settings.VMForceResetPolicy": {
            "enable": "bool",
            **dict.fromkeys(("period", "vmMigrationTimeout"), "int64"),
        },
        "settings.AutoRotateRKE2Certs": {"enable": "bool", "expiringInHours": "int=int"},
        "settings.SSLParameter": dict.fromkeys(("protocols", "ciphers"), "string"),
        "util.NTPSettings": {"ntpServers": "[]string"},
        "v1.MigrationConfiguration": {
            **dict.fromkeys(("nodeDrainTaintKey", "network"), "string"),
            **dict.fromkeys(("parallelOutboundMigrationsPerNode", "parallelMigrationsPerCluster"), "uint32"),
            "bandwidthPerMigration": "quantity",
            **dict.fromkeys(("completionTimeoutPerGiB", "progressTimeout"), "int64"),
            **dict.fromkeys(
                (
                    "allowAutoConverge",
                    "allowPostCopy",
                    "allowWorkloadDisruption",
                    "disableTLS",
                    "matchSELinuxLevelOnMigration",
                    "unsafeMigrationOverride",
                ),
                "bool",
            ),
        },
    }
)


def check_setting(setting: Raw, listers: Listers) -> None:
    """The default and the value of those settings that are checked by themselves."""
    if name_of(setting) == "kubevirt-migration":
        _check_migration(setting, listers)
        return
    check = _SETTINGS.get(name_of(setting))
    for field in ("default", "value") if check else ():
        written = text(setting, field)
        if written and check:
            check(field, written)


def check_setting_removal(setting: Raw) -> None:
    if name_of(setting) == _STANDARD:
        raise not_allowed(f"Disallow delete setting name {_STANDARD}")


def _refuse(why: str, field: str) -> None:
    if why:
        raise invalid(why, field)


def _number_fault(written: str) -> str:
    if (len(written) > 1 and written[0] == "0") or (written.startswith("-0") and len(written) > 1):
        return f"leading zero in input: {written}"
    if len(written) > 1 and written[0] == "+":
        return f"no allowed symbol in input: {written}"
    if re.fullmatch(r"[+-]?[0-9]+", written, re.ASCII) is None:
        return f'strconv.Atoi: parsing "{written}": invalid syntax'
    if not -(2**63) <= int(written[:32]) < 2**63 or len(written) > 32:
        return f'strconv.Atoi: parsing "{written}": value out of range'
    return ""


def _check_seconds(field: str, written: str) -> None:
    _refuse(_number_fault(written) or ("can't be negative" if int(written) < 0 else ""), field)


def _check_bundle(word: str) -> Callable[[str, str], None]:
    def check(field: str, written: str) -> None:
        _refuse(_number_fault(written) or (f"{word} can't be negative" if int(written) < 0 else ""), field)

    return check


def _check_ttl(field: str, written: str) -> None:
    _refuse(_number_fault(written), field)
    if int(written) < 0:
        raise invalid(f"{_TTL} can't be negative", field)
    if int(written) > LONGEST_TTL_MINUTES:
        raise invalid(f"{_TTL} exceeds 100 years", field)


def _check_overcommit(field: str, written: str) -> None:
    found = _json_of(written)
    found = {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else found
    found = {} if found is None else found
    if not isinstance(found, dict) or not all(_is_int(found.get(word, 0)) for word in _OVERCOMMITTED):
        raise invalid(f"Invalid JSON: {written}", field)
    for word in _OVERCOMMITTED:
        percentage = found.get(word) or 0
        if percentage < 100:
            why = f"Cannot undercommit. Should be greater than or equal to 100 but got {percentage}"
            raise invalid(why, word)


_OVERCOMMITTED = ("cpu", "memory", "storage")


def _is_int(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _json_of(written: str) -> object:
    try:
        return loads(written)
    except NotJson:
        return ""


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def _check_overhead(field: str, written: str) -> None:
    ratio = float(written) if _FLOAT.fullmatch(written) else None
    if ratio is None:
        why = f'strconv.ParseFloat: parsing "{written}": invalid syntax'
        raise invalid(f"value {written} can't be converted to float64, error:{why}", field)
    least, most = OVERHEAD_RATIOS
    if ratio < least and ratio != 0:
        raise invalid(f"value {written} can't be less than {least}", field)
    if ratio > most:
        raise invalid(f"value {written} can't be greater than {most}", field)


def _check_hotplug_ratio(field: str, written: str) -> None:
    least, most = HOTPLUG_RATIOS
    if re.fullmatch(r"[0-9]+", written, re.ASCII) is None:
        why = f'strconv.ParseUint: parsing "{written}": invalid syntax'
        raise internal(f"failed to parse {field}: {written} {why}")
    if len(written) > 10 or int(written) >= 2**32:
        why = f'strconv.ParseUint: parsing "{written}": value out of range'
        raise internal(f"failed to parse {field}: {written} {why}")
    if not least <= int(written) <= most:
        raise internal(f"{field}: {written} must be in range [{least} .. {most}]")


def _check_reset_policy(field: str, written: str) -> None:
    policy, fault = decode_text(_STRUCTS, "settings.VMForceResetPolicy", written)
    if fault:
        raise invalid(f"unmarshal failed, error: {fault}, value: {written}", field)
    period, timeout = (policy.get(word) or 0 for word in ("period", "vmMigrationTimeout"))
    if period <= 0:
        raise invalid(f"period value should be greater than 0, value: {period}", field)
    if timeout < 0:
        raise invalid(f"vmMigrationTimeout value should be greater than 0, value: {timeout}", field)


def _check_file_name(field: str, written: str) -> None:
    if faults := name_errors("label", written):
        raise invalid(f"invalid file name: {'; '.join(faults)}", field)


def _check_rotation(field: str, written: str) -> None:
    found, fault = decode_text(_STRUCTS, "settings.AutoRotateRKE2Certs", written)
    _refuse(fault, field)
    hours = found.get("expiringInHours") or 0
    if hours <= 0:
        raise invalid("expiringInHours can't be negative or zero", field)
    if hours > LONGEST_ROTATION_H:
        raise invalid(f"expiringInHours can't be large than {LONGEST_ROTATION_H}", field)


def _check_ssl_parameters(field: str, written: str) -> None:
    found, fault = decode_text(_STRUCTS, "settings.SSLParameter", written)
    _refuse(fault, field)
    for protocol in text(found, "protocols").split(" "):
        if protocol and protocol not in SSL_PROTOCOLS:
            raise invalid(f"unsupported SSL protocol: {protocol}", "protocols")


def _check_time_servers(field: str, written: str) -> None:
    found, fault = decode_text(_STRUCTS, "util.NTPSettings", written)
    _refuse(f"failed to parse NTP settings: {fault}" if fault else "", field)
    if found.get("ntpServers") is None:
        raise invalid("NTP servers can't be nil", field)
    servers = [server or "" for server in found["ntpServers"]]
    for server in servers:
        if re.match(r"https?://", server):
            raise invalid(f"ntp server {server} should not start with http:// or https://", field)
        if server and not _HOST.fullmatch(server) and not _is_address(server):
            raise invalid(f"invalid NTP server: {server}", field)
    twice = [server for server, count in Counter(servers).items() if count > 1]
    if twice:
        raise invalid(f"duplicate NTP server: [{' '.join(twice)}]", field)


_HOST = re.compile(r"[-a-zA-Z0-9_]+(\.[-a-zA-Z0-9_]+)*\.?")


def _is_address(written: str) -> bool:
    try:
        ipaddress.ip_address(written)
    except ValueError:
        return False
    return "%" not in written


def _check_migration(setting: Raw, listers: Listers) -> None:
    """How KubeVirt migrates: not while a machine is migrated, and without the fields that Harvester sets itself."""
    for migration in listers.migrations.values():
        if not is_deleting(migration) and not nested(migration, "status", "migrationState", "completed"):
            why = "There is a VM Migration in progress, please wait until it is completed before updating the"
            raise bad_request(f"{why} kubevirt-migration setting")
    found: Raw = {}
    for field in ("default", "value"):
        written = text(setting, field)
        if written not in ("", "{}"):
            found, fault = decode_text(_STRUCTS, "v1.MigrationConfiguration", written)
            if fault:
                raise invalid(f"unmarshal failed, error: {fault}, value: {written}", field)
    if found.get("nodeDrainTaintKey"):
        raise invalid("nodeDrainTaintKey field cannot be configured", "nodeDrainTaintKey")
    if found.get("network"):
        raise invalid("network field is configured by vm-migration-network setting", "network")


_SETTINGS: Mapping[str, Callable[[str, str], None]] = {
    "overcommit-config": _check_overcommit,
    "additional-guest-memory-overhead-ratio": _check_overhead,
    "max-hotplug-ratio": _check_hotplug_ratio,
    "default-vm-termination-grace-period-seconds": _check_seconds,
    "support-bundle-timeout": _check_bundle("timeout"),
    "support-bundle-expiration": _check_bundle("expiration"),
    "support-bundle-node-collection-timeout": _check_bundle("node collection timeout"),
    "support-bundle-file-name": _check_file_name,
    "auto-rotate-rke2-certs": _check_rotation,
    "ssl-parameters": _check_ssl_parameters,
    "ntp-servers": _check_time_servers,
    _TTL: _check_ttl,
    "vm-force-reset-policy": _check_reset_policy,
}
