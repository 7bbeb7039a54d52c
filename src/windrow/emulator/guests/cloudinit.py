"""Reads user data and network data as cloud-init does, mistakes included.

Written from cloud-init's documented behaviour and on purpose apart from `windrow.cloudinit`, which writes what is
read here: agreement of the two is the check. cloud-init hardly ever fails a boot. It warns on the console and goes on
without the part that it could not read, which is how most broken bootstraps look: a machine that runs and does nothing.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

from windrow.formats.yaml import NotYaml, load

# Transfer encodings that write_files knows, and what each one undoes, outermost first.
_ENCODINGS: dict[str, tuple[str, ...]] = {
    "": (),
    "text/plain": (),
    "b64": ("b64",),
    "base64": ("b64",),
    "gz": ("gz",),
    "gzip": ("gz",),
    "gz+b64": ("b64", "gz"),
    "gz+base64": ("b64", "gz"),
    "gzip+b64": ("b64", "gz"),
    "gzip+base64": ("b64", "gz"),
}
_DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class WriteFile:
    """One entry of write_files, decoded."""

    path: str
    content: bytes = field(repr=False)
    mode: int = _DEFAULT_MODE
    owner: str = "root:root"
    append: bool = False
    defer: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """A user account that cloud-init makes, with the keys that may log in."""

    name: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserData:
    """What cloud-init will act on, and what it says about the rest."""

    config: Mapping[str, Any] = field(default_factory=dict)
    scripts: tuple[str, ...] = ()
    boothooks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interface:
    """How one network interface shall be set up. It is found by MAC address, else by its name."""

    name: str
    mac: str = ""
    dhcp: bool = False
    addresses: tuple[str, ...] = ()  # "10.0.0.5/24"
    gateway: str = ""
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """The network configuration. `interfaces` is None where cloud-init falls back to DHCP on the first NIC."""

    interfaces: tuple[Interface, ...] | None = None
    warnings: tuple[str, ...] = ()


class _Collector:
    """Gathers the parts of user data in order."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self.facts = facts
        self.config: dict[str, Any] = {}
        self.scripts: list[str] = []
        self.boothooks: list[str] = []
        self.warnings: list[str] = []

    def done(self) -> UserData:
        return UserData(self.config, tuple(self.scripts), tuple(self.boothooks), tuple(self.warnings))


def read_user_data(data: str | bytes, facts: Mapping[str, str] | None = None) -> UserData:
    """What cloud-init makes of `data`. Never raises: what cannot be read becomes a warning.

    `facts` are the instance variables that a `## template: jinja` document may use, such as `v1.local_hostname`.
    """
    collector = _Collector(facts or {})
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    raw = _unzipped(raw)
    if not raw.strip():
        return collector.done()
    if _looks_like_mime(raw):
        for number, part in enumerate(_leaves(message_from_bytes(raw)), start=1):
            payload = part.get_payload(decode=True)
            body = _unzipped(payload if isinstance(payload, bytes) else b"")
            _take(collector, body, part.get_content_type(), f"part-{number:03d}", _merge_header(part))
    else:
        _take(collector, raw, "", "part-001", "")
    return collector.done()


def _unzipped(raw: bytes) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        return raw


def _looks_like_mime(raw: bytes) -> bool:
    head = raw[:4096].lower()
    return (
        head.startswith((b"content-type: multipart", b"mime-version:"))
        or b"\ncontent-type: multipart" in head
    )


def _leaves(message: Message) -> Iterator[Message]:
    if not message.is_multipart():
        yield message
        return
    for part in message.get_payload():
        if isinstance(part, Message):
            yield from _leaves(part)


def _merge_header(part: Message) -> str:
    return str(part.get("Merge-Type") or part.get("X-Merge-Type") or "")


_STARTS: tuple[tuple[str, str], ...] = (
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config", "text/cloud-config"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include", "text/x-include-url"),
    ("## template: jinja", "text/jinja2"),
    ("#!", "text/x-shellscript"),
)


def _type_of(text: str) -> str:
    # cloud-init compares the very first bytes: a byte-order mark or a blank line before the header hides it.
    for start, kind in _STARTS:
        if text.lower().startswith(start) if start.startswith("##") else text.startswith(start):
            return kind
    return ""


def _take(collector: _Collector, raw: bytes, declared: str, part: str, merge: str) -> None:
    text = raw.decode("utf-8", "replace")
    kind = _type_of(text) or declared
    if kind == "text/jinja2":
        rest = text.split("\n", 1)[1] if "\n" in text else ""
        text = _rendered(collector, rest, part)
        kind = _type_of(text)
    match kind:
        case "text/cloud-config":
            _take_config(collector, text, part, merge)
        case "text/x-shellscript":
            collector.scripts.append(text)
        case "text/cloud-boothook":
            collector.boothooks.append(text.split("\n", 1)[1] if "\n" in text else "")
        case "text/x-include-url" | "text/cloud-config-archive":
            collector.warnings.append(f"{kind} in {part} is not simulated; it has no effect")
        case _:
            shown = text[:24].splitlines()[0] if text.strip() else ""
            name = declared or "text/x-not-multipart"
            collector.warnings.append(
                f"Unhandled non-multipart ({name}) userdata: '{shown}...'; "
                "the first line has to be #cloud-config, a #! line or a MIME header"
            )


_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


def _rendered(collector: _Collector, text: str, part: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        known = collector.facts.get(name)
        if known is None:
            collector.warnings.append(
                f"Could not render jinja template variables in {part}: '{name}' is not known"
            )
            return f"CI_MISSING_JINJA_VAR/{name.rsplit('.', 1)[-1]}"
        return known

    if "{%" in text:
        collector.warnings.append(f"jinja statements in {part} are not simulated; they stay as they are")
    return _VARIABLE.sub(value, text)


def _take_config(collector: _Collector, text: str, part: str, merge: str) -> None:
    try:
        found = load(text)
    except NotYaml as error:
        where = " ".join(str(error).split())
        collector.warnings.append(
            f"Failed loading yaml blob. Invalid format in {part}: {where}; nothing of this part is applied"
        )
        return
    if found is None:
        return
    if not isinstance(found, dict):
        collector.warnings.append(
            f"Failed loading yaml blob in {part}. Yaml load allows (<class 'dict'>,) root types, "
            f"but got {type(found).__name__} instead; nothing of this part is applied"
        )
        return
    if not collector.config:
        collector.config = dict(found)
        return
    how = found.get("merge_how") or found.get("merge_type") or merge
    collector.config = merge_configs(collector.config, found, how)


def merge_configs(base: Mapping[str, Any], more: Mapping[str, Any], how: Any = "") -> dict[str, Any]:
    """`more` merged over `base` as cloud-init merges two parts.

    By default a key of the later part replaces the earlier one whole, lists included; `how` is a merge_how value such
    as `list(append)+dict(recurse_array)+str()`.
    """
    merged = _merge(dict(base), dict(more), _mergers(how))
    return dict(merged)


def _mergers(how: Any) -> dict[str, frozenset[str]]:
    if isinstance(how, str) and how.strip():
        found = re.findall(r"(dict|list|str)\s*\(([^)]*)\)", how)
        return {
            name: frozenset(part.strip() for part in settings.split(",") if part.strip())
            for name, settings in found
        }
    if isinstance(how, list):
        return {
            str(item.get("name")): frozenset(item.get("settings") or ())
            for item in how
            if isinstance(item, dict)
        }
    return {"dict": frozenset({"replace"}), "list": frozenset(), "str": frozenset()}


def _merge(base: Any, more: Any, how: Mapping[str, frozenset[str]]) -> Any:
    if isinstance(base, dict) and isinstance(more, dict):
        settings = how.get("dict", frozenset())
        out = dict(base)
        for key, value in more.items():
            out[key] = _merged_value(out[key], value, settings, how) if key in out else value
        return out
    if isinstance(base, list) and isinstance(more, list):
        settings = how.get("list", frozenset())
        if "append" in settings:
            return [*base, *more]
        if "prepend" in settings:
            return [*more, *base]
        return base if "no_replace" in settings else more
    if isinstance(base, str) and isinstance(more, str) and "append" in how.get("str", frozenset()):
        return base + more
    return more


def _merged_value(old: Any, new: Any, settings: frozenset[str], how: Mapping[str, frozenset[str]]) -> Any:
    recurse = {
        dict: "recurse_dict" in settings or not settings & {"replace", "no_replace"},
        list: bool(settings & {"recurse_array", "recurse_list"}) or "append" in how.get("list", ()),
        str: "recurse_str" in settings or "append" in how.get("str", ()),
    }
    for kind, wanted in recurse.items():
        if wanted and isinstance(old, kind) and isinstance(new, kind):
            return _merge(old, new, how)
    return old if "no_replace" in settings else new


def list_write_files(config: Mapping[str, Any]) -> tuple[list[WriteFile], list[str]]:
    """The files of `write_files` that cloud-init would write, in order, and its complaints.

    A broken encoding ends the module: what stands after it is not written either.
    """
    entries = config.get("write_files")
    if entries is None:
        return [], []
    if not isinstance(entries, list):
        return [], [f"write_files: expected a list, found {type(entries).__name__}; no file is written"]
    files: list[WriteFile] = []
    warnings: list[str] = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            warnings.append(f"write_files: entry {number} is not a mapping; the module fails here")
            break
        path = entry.get("path")
        if not path:
            warnings.append(
                f"No path provided to write for entry {number} in module write_files; it is skipped"
            )
            continue
        encoding = str(entry.get("encoding") or "").lower().strip()
        if encoding not in _ENCODINGS:
            warnings.append(f"Unknown encoding type {encoding}, assuming text/plain for {path}")
        try:
            content = _decoded(entry.get("content"), _ENCODINGS.get(encoding, ()))
        except (binascii.Error, ValueError, OSError, EOFError, zlib.error) as error:
            warnings.append(
                f"Running module write_files failed at {path}: its content is not {encoding}: {error}; "
                "the files after it are not written"
            )
            break
        mode, complaint = _mode(entry.get("permissions"), str(path))
        warnings += complaint
        files.append(
            WriteFile(
                str(path),
                content,
                mode,
                str(entry.get("owner") or "root:root"),
                bool(entry.get("append", False)),
                bool(entry.get("defer", False)),
            )
        )
    return files, warnings


def _decoded(content: Any, steps: tuple[str, ...]) -> bytes:
    raw = content if isinstance(content, bytes) else str("" if content is None else content).encode()
    for step in steps:
        raw = (
            base64.b64decode(b"".join(raw.split()), validate=True) if step == "b64" else gzip.decompress(raw)
        )
    return raw


def _mode(value: Any, path: str) -> tuple[int, list[str]]:
    if value is None:
        return _DEFAULT_MODE, []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value), []  # YAML 1.1 already read 0644 as octal; 644 without the zero means decimal 644
    try:
        return int(str(value), 8), []
    except ValueError:
        return _DEFAULT_MODE, [
            f"Undecodable permissions {value!r} for {path}, returning default {_DEFAULT_MODE:o}"
        ]


def read_hostname(config: Mapping[str, Any]) -> str:
    """The host name that the configuration asks for, "" where it leaves that to the hypervisor's meta data."""
    if config.get("preserve_hostname") is True:
        return ""
    wanted = str(config.get("hostname") or config.get("fqdn") or "")
    return wanted.split(".", 1)[0]


def list_accounts(config: Mapping[str, Any]) -> list[Account]:
    """User accounts with their ssh keys; top-level keys go to the image's default user."""
    accounts: dict[str, list[str]] = {}
    users = config.get("users")
    top = [str(key) for key in config.get("ssh_authorized_keys") or () if isinstance(key, str)]
    listed: list[Any] = users if isinstance(users, list) else ["default"]
    for entry in listed:
        if isinstance(entry, str):
            for name in entry.split(","):
                accounts.setdefault(name.strip(), [])
        elif isinstance(entry, dict) and entry.get("name"):
            keys = accounts.setdefault(str(entry["name"]), [])
            keys += [str(key) for key in entry.get("ssh_authorized_keys") or ()]
    if top:
        accounts.setdefault("default", []).extend(top)
    return [Account(name, tuple(keys)) for name, keys in accounts.items()]


def list_packages(config: Mapping[str, Any]) -> list[str]:
    """Names of the packages to install; `[name, version]` pairs count by name."""
    found: list[str] = []
    packages = config.get("packages")
    for entry in packages if isinstance(packages, list) else ():
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, list) and entry:
            found.append(str(entry[0]))
        elif isinstance(entry, dict):
            for names in entry.values():
                found += [str(name[0] if isinstance(name, list) else name) for name in names or ()]
    return found


def list_commands(config: Mapping[str, Any], key: str) -> tuple[list[str | list[str]], list[str]]:
    """The commands under `key` (bootcmd or runcmd): a string for the shell, a list for exec; and complaints."""
    entries = config.get(key)
    if entries is None:
        return [], []
    if not isinstance(entries, list):
        return [], [f"{key}: expected a list of commands, found {type(entries).__name__}; none is run"]
    commands: list[str | list[str]] = []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, str):
            commands.append(entry)
        elif isinstance(entry, list):
            commands.append([str(word) for word in entry if word is not None])
        elif entry is not None:
            # cloud-init's shellify refuses the whole module for one bad entry.
            kind = type(entry).__name__
            return [], [
                f"Failed to shellify {key}: entry {number} is a {kind}, not a string or a list; none is run"
            ]
    return commands, []


def read_network(data: str | bytes) -> Network:
    """The network that `data` describes (version 1 or 2). Never raises."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if not text.strip():
        return Network()
    try:
        found = load(text)
    except NotYaml as error:
        return Network(
            None, (f"network data is not YAML ({' '.join(str(error).split())}); using DHCP on the first NIC",)
        )
    if isinstance(found, dict) and isinstance(found.get("network"), dict):
        found = found["network"]
    if not isinstance(found, dict):
        return Network(None, ("network data is not a mapping; using DHCP on the first NIC",))
    match found.get("version"):
        case 1:
            return _network_v1(found)
        case 2:
            return _network_v2(found)
        case other:
            return Network(
                None, (f"network data has version {other!r}, not 1 or 2; using DHCP on the first NIC",)
            )


def _network_v1(found: Mapping[str, Any]) -> Network:
    interfaces: list[Interface] = []
    warnings: list[str] = []
    servers: list[str] = []
    for entry in found.get("config") or ():
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind == "nameserver":
            address = entry.get("address")
            servers += [str(one) for one in (address if isinstance(address, list) else [address]) if one]
        elif kind == "physical":
            interfaces.append(_interface_v1(entry))
        else:
            warnings.append(f"network data of type {kind!r} is not simulated; it has no effect")
    made = tuple(
        Interface(one.name, one.mac, one.dhcp, one.addresses, one.gateway, (*one.nameservers, *servers))
        for one in interfaces
    )
    return Network(made, tuple(warnings))


def _interface_v1(entry: Mapping[str, Any]) -> Interface:
    dhcp, addresses, gateway, servers = False, [], "", []
    for subnet in entry.get("subnets") or ():
        kind = str(subnet.get("type", ""))
        if kind in ("dhcp", "dhcp4"):
            dhcp = True
        elif kind in ("static", "static4"):
            address = str(subnet.get("address", ""))
            if address and "/" not in address:
                address = f"{address}/{_prefix(str(subnet.get('netmask') or '255.255.255.0'))}"
            addresses.append(address)
            gateway = gateway or str(subnet.get("gateway") or "")
            servers += [str(one) for one in subnet.get("dns_nameservers") or ()]
    mac = str(entry.get("mac_address") or "").lower()
    return Interface(str(entry.get("name") or ""), mac, dhcp, tuple(addresses), gateway, tuple(servers))


def _prefix(netmask: str) -> int:
    if netmask.isdigit():
        return int(netmask)
    try:
        return sum(bin(int(part)).count("1") for part in netmask.split("."))
    except ValueError:
        return 24


def _network_v2(found: Mapping[str, Any]) -> Network:
    warnings = [
        f"network data section {key!r} is not simulated; it has no effect"
        for key in ("bonds", "bridges", "vlans", "wifis")
        if found.get(key)
    ]
    ethernets = found.get("ethernets")
    if not isinstance(ethernets, dict):
        return Network((), (*warnings, "network data has no ethernets; no interface is set up"))
    return Network(
        tuple(_interface_v2(str(name), raw or {}) for name, raw in ethernets.items()), tuple(warnings)
    )


def _interface_v2(name: str, raw: Mapping[str, Any]) -> Interface:
    match = raw.get("match") or {}
    gateway = str(raw.get("gateway4") or "")
    for route in raw.get("routes") or ():
        if str(route.get("to")) in ("default", "0.0.0.0/0"):
            gateway = gateway or str(route.get("via") or "")
    addresses = tuple(
        str(next(iter(one)) if isinstance(one, dict) else one) for one in raw.get("addresses") or ()
    )
    servers = tuple(str(one) for one in (raw.get("nameservers") or {}).get("addresses") or ())
    mac = str(match.get("macaddress") or "").lower()
    return Interface(
        str(match.get("name") or name),
        mac,
        raw.get("dhcp4") in (True, "yes", "true"),
        addresses,
        gateway,
        servers,
    )
