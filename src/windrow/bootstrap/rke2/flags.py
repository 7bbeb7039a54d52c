"""The configuration keys that RKE2 has, by release, and warnings about others.

`config_keys.json` lists the keys that servers and agents take, those that servers alone take, and those of K3s that RKE2
does not have. "" means every release since v1.25, "1.31-" those from that line on, "1.26-1.28" those of these lines. It is
made of the command-line definitions at the newest release of each line; `rke2 server --help` and `rke2 agent --help` print
all of them but the hidden ones. A new line is added by comparing these with the file.

An unknown key stops the service at its start. It is kept all the same, with a warning, since it may be newer than this
list: a key may come with any patch release.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG, CLOUD_PROVIDER_NAME
from windrow.core.formats.json import loads
from windrow.core.formats.version import Version

Line = tuple[int, int]
# Each is compared with all keys that are known, to find the one that was meant.
MAX_UNKNOWN = 20

# Keys of a machine's identity; a user's value would break the join, so it is ignored.
MANAGED = frozenset(
    {"server", "token", "token-file", "agent-token", "agent-token-file", "node-name", "data-dir"}
)


@cache
def _read_keys() -> Mapping[str, Any]:
    return loads(files("windrow.bootstrap.rke2").joinpath("config_keys.json").read_bytes())  # type: ignore[no-any-return]


def server_only() -> frozenset[str]:
    """The keys that agents do not take."""
    return frozenset(_read_keys()["servers"])


def find_keys(line: Line | None = None) -> frozenset[str]:
    """The keys of the releases of one line, such as (1, 34), or of any. Lines newer than the list are taken as the newest."""
    data = _read_keys()
    spans: Mapping[str, str] = {**data["machines"], **data["servers"]}
    if line is None:
        return frozenset(spans)
    line = min(line, _parse_line(data["newest"]))
    return frozenset(key for key, span in spans.items() if _covers(span, line))


def _covers(span: str, line: Line) -> bool:
    first, _, last = span.partition("-")
    return (not first or _parse_line(first) <= line) and (not last or line <= _parse_line(last))


def _parse_line(text: str) -> Line:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def check_config(config: Mapping[str, Any], version: Version) -> list[str]:
    """Warnings about the user's keys for RKE2 `version`, each with a hint."""
    known = find_keys(version.line)
    unknown = [key for key in config if key not in known]
    warnings = [_unknown(key, version) for key in unknown[:MAX_UNKNOWN]]
    if len(unknown) > MAX_UNKNOWN:
        more = len(unknown) - MAX_UNKNOWN
        warnings.append(f"{more} more keys are none of RKE2 {version}; remove them or correct their spelling")
    warnings += [
        f"{key!r} is set by Windrow, the value given is not used; remove it"
        for key in config
        if key in MANAGED
    ]
    if config.get(CLOUD_PROVIDER_CONFIG) and not config.get(CLOUD_PROVIDER_NAME):
        warnings.append(f"{CLOUD_PROVIDER_CONFIG!r} means nothing without {CLOUD_PROVIDER_NAME!r}; set both")
    if config.get(CLOUD_PROVIDER_NAME) and config.get("node-external-ip"):
        warnings.append(
            f"RKE2 refuses 'node-external-ip' beside {CLOUD_PROVIDER_NAME!r}; remove it, the provider sets addresses"
        )
    if config.get("profile"):
        warnings.append(
            f"profile {config['profile']!r} needs a user 'etcd' and kernel settings before RKE2 starts; "
            "have the image or the user data bring them"
        )
    return warnings


def _unknown(key: str, version: Version) -> str:
    data = _read_keys()
    if key in data["k3s"]:
        return f"{key!r} is a key of K3s, RKE2 will not start with it; remove it"
    if span := {**data["machines"], **data["servers"]}.get(key, ""):
        first, _, last = span.partition("-")
        if first and version.line < _parse_line(first):
            return f"{key!r} is a key of RKE2 since v{first}, {version} will not start with it; remove it"
        return f"{key!r} was a key of RKE2 up to v{last}, {version} will not start with it; remove it"
    if version.line > _parse_line(data["newest"]):
        return f"{key!r} was no key of RKE2 {data['newest']}; check that {version} supports it"
    near = get_close_matches(key, find_keys(version.line), 1)
    cure = f"did you mean {near[0]!r}?" if near else "remove it or correct its spelling"
    return f"{key!r} is no key of RKE2, which will not start with it; {cure}"
