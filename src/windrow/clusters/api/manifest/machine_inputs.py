"""What a Cluster gives all its machines beside their configuration: environment variables, registries, the snapshots of
etcd, and files out of Secrets and ConfigMaps."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from windrow.bootstrap.install.unit import DIRECTORY
from windrow.bootstrap.machine_files import FILE_SOURCES
from windrow.bootstrap.registries import decode_pem
from windrow.clusters.api.fields import Fields
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import is_dns_subdomain

MAX_VARIABLES = 100
MAX_VALUE = 4096  # characters
MAX_FILES = 100  # of all entries together
MAX_SELECTED = 100  # entries, and sources of each

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,127}")
# Variables of these are configuration keys under another name, or ours.
_CONFIGURING = ("RKE2_", "K3S_")
_OURS = ("WINDROW_", "INSTALL_RKE2_VERSION", "INSTALL_RKE2_TYPE", "INSTALL_K3S_VERSION", "INSTALL_K3S_EXEC")


def read_environment(spec: Fields) -> dict[str, str]:
    """The variables of `agentEnvVars`."""
    found: dict[str, str] = {}
    for one in spec.items("agentEnvVars", MAX_VARIABLES):
        name, value = one.text("name"), one.text("value")
        if _NAME.fullmatch(name) is None:
            hint = "write letters, digits and _, a letter first"
            one.refuse("name", f"is {abbreviate(name)}, which no variable may be called", hint)
        elif name.startswith(_CONFIGURING):
            one.refuse(
                "name", f"is {name}, which sets a configuration key", "write the key in machineGlobalConfig"
            )
        elif name.startswith(_OURS):
            one.refuse("name", f"is {name}, which Windrow sets", "remove it")
        elif name in found:
            one.refuse("name", f"is {name}, which an earlier entry sets", "remove one of the two")
        elif len(value) > MAX_VALUE or not value.isprintable():
            hint = f"write {MAX_VALUE} printable characters at most, in one line"
            one.refuse("value", f"of {name} cannot be a line of an environment file", hint)
        else:
            found[name] = value
    given = {name.upper() for name in found}
    if given & {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} and "NO_PROXY" not in given:
        spec.warn(
            "agentEnvVars",
            "has a proxy and no NO_PROXY, so that machines reach each other through the proxy",
            "add NO_PROXY with the network of the machines",
        )
    return found


# -- registries and etcd -----------------------------------------------------------------------------------------

MAX_REGISTRIES = 100


def read_registries(rke: Fields) -> dict[str, Any]:
    """`registries` as it was written; {} where it has a fault, which is a problem."""
    registries = rke.child("registries")
    before = len(registries.problems.found)
    for mirror in _named(registries, "mirrors"):
        mirror.texts("endpoint")
        rewrite = mirror.child("rewrite")
        for pattern in rewrite.raw:
            rewrite.text(pattern)
    for config in _named(registries, "configs"):
        for key in ("authConfigSecretName", "tlsSecretName"):
            if (name := config.text(key)) and not is_dns_subdomain(name):
                hint = "write the name of a Secret in the namespace of the Cluster"
                config.refuse(key, f"is {abbreviate(name)}, which no Secret may be called", hint)
        config.flag("insecureSkipVerify")
        if (bundle := config.text("caBundle")) and decode_pem(bundle) is None:
            hint = "write certificates in PEM, in base64 as Rancher does, or as they are"
            config.refuse("caBundle", "holds no certificate", hint)
    return {} if len(registries.problems.found) > before else dict(registries.raw)


def _named(fields: Fields, key: str) -> Iterator[Fields]:
    """The mappings in a mapping, by registry."""
    registries = fields.child(key)
    if len(registries.raw) > MAX_REGISTRIES:
        fields.refuse(key, f"has {len(registries.raw)} entries", f"write {MAX_REGISTRIES} at most")
        return
    for name in registries.raw:
        if not isinstance(name, str) or not name.isprintable() or "/" in name or not name:
            hint = "write host or host:port, without a scheme; or * for all"
            fields.refuse(f"{key}[{name}]", "names no registry", hint)
            continue
        yield registries.child(name)


_CRON_FIELD = r"[-0-9A-Za-z*/,?]+"
_CRON = re.compile(rf"((CRON_TZ|TZ)=\S+ +)?({_CRON_FIELD}( +{_CRON_FIELD}){{4}}|@[a-z]+|@every +[0-9a-z.]+)")
MAX_SNAPSHOTS = 10_000
_S3_TEXTS = ("bucket", "endpoint", "endpointCA", "region", "folder", "cloudCredentialName")


def read_etcd(rke: Fields) -> dict[str, Any]:
    """`etcd` as it was written; {} where it has a fault, which is a problem."""
    etcd = rke.child("etcd")
    before = len(etcd.problems.found)
    etcd.flag("disableSnapshots")
    etcd.count("snapshotRetention", 0, MAX_SNAPSHOTS)
    schedule = etcd.text("snapshotScheduleCron")
    if schedule and (len(schedule) > 200 or _CRON.fullmatch(schedule.strip()) is None):
        hint = "write five fields, such as 0 */5 * * *, or @every 5h"
        etcd.refuse("snapshotScheduleCron", f"is {abbreviate(schedule)}, which is no schedule", hint)
    s3 = etcd.child("s3")
    for key in _S3_TEXTS:
        s3.text(key)
    s3.flag("skipSSLVerify")
    s3.count("retention", 0, MAX_SNAPSHOTS)
    return {} if len(etcd.problems.found) > before else dict(etcd.raw)


# -- machineSelectorFiles ----------------------------------------------------------------------------------------

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_MODE = re.compile("[0-7]{3,4}")
# Files that Windrow, or cloud-init itself, writes and reads.
_TAKEN = (f"{DIRECTORY}/", "/var/lib/windrow/", "/var/lib/cloud/")
_TAKEN_NAMES = re.compile("/etc/rancher/(rke2|k3s)/config.yaml.d/(50-rancher|60-windrow-kernel).yaml")


def read_selector_files(rke: Fields) -> tuple[Mapping[str, Any], ...]:
    """The entries of `machineSelectorFiles`; none where one has a fault, which is a problem."""
    key = "machineSelectorFiles"
    before = len(rke.problems.found)
    entries = list(rke.items(key, MAX_SELECTED))
    files = [file for entry in entries for file in _read_entry(entry)]
    if len(files) > MAX_FILES:
        rke.refuse(key, f"has {len(files)} files", f"write {MAX_FILES} at most")
    if len(rke.problems.found) > before:
        return ()
    return tuple(entry.raw for entry in entries)


def _read_entry(entry: Fields) -> Iterator[str]:
    """The paths of its files."""
    entry.selector("machineLabelSelector")
    for source in entry.items("fileSources", MAX_SELECTED):
        named = [kind for kind in FILE_SOURCES if source.child(kind).text("name")]
        if len(named) != 1:
            told = (
                "names both a secret and a configMap" if named else "names neither a secret nor a configMap"
            )
            source.problems.add(source.path, f"{source.path} {told}", "write one of them, with its name")
        for kind in named:
            yield from _read_source(source.child(kind))


def _read_source(source: Fields) -> Iterator[str]:
    if not is_dns_subdomain(name := source.text("name")):
        hint = "write the name of an object in the namespace of the Cluster"
        source.refuse("name", f"is {abbreviate(name)}, which no object may be called", hint)
    _check_mode(source, "defaultPermissions")
    for item in source.items("items", MAX_FILES):
        if _KEY.fullmatch(key := item.text("key")) is None:
            item.refuse(
                "key", f"is {abbreviate(key)}, which no key may be called", "write a key of the object"
            )
        path = item.text("path")
        if not _is_file_path(path):
            hint = "write the whole path of a file, such as /etc/ssl/site/ca.pem"
            item.refuse("path", f"is {abbreviate(path)}", hint)
        elif path.startswith(_TAKEN) or _TAKEN_NAMES.fullmatch(path):
            item.refuse("path", f"is {path}, a file that Windrow writes itself", "write another path")
        _check_mode(item, "permissions")
        item.text("hash")
        yield path


def _check_mode(fields: Fields, key: str) -> None:
    mode = fields.short_text(key)
    if mode and _MODE.fullmatch(mode) is None:
        fields.refuse(key, f"is {mode!r}, which is no mode of a file", "write it in octal, such as 0644")


def _is_file_path(path: str) -> bool:
    is_plain = path.startswith("/") and path.isprintable() and len(path) <= 1024
    return is_plain and posixpath.normpath(path) == path and path != "/"
