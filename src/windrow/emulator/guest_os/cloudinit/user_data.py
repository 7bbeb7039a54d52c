"""Parser of user data as cloud-init reads it: gzip, MIME parts, headers, templates, and the merging of parts.

Written from cloud-init's documented behaviour and on purpose apart from `windrow.cloudinit`, which writes what is
read here: agreement of the two is the check. cloud-init hardly ever fails a boot. It warns on the console and
continues without the part that it cannot read: the machine runs, and nothing is installed on it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

from windrow.core.formats.yaml import NotYaml, load
from windrow.core.text import collapse_whitespace
from windrow.emulator.guest_os.cloudinit.coercion import as_list


@dataclass(slots=True)
class UserData:
    """The parts that cloud-init acts on, in order, and its warnings about the others."""

    config: Mapping[str, Any] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)
    boothooks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_user_data(data: str | bytes, variables: Mapping[str, str] | None = None) -> UserData:
    """What cloud-init makes of `data`. Never raises: what cannot be read becomes a warning.

    `variables` are the instance variables that a `## template: jinja` document may use, such as `v1.local_hostname`.
    """
    found = UserData()
    raw = _unzipped(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    if _is_mime(raw):
        for number, part in enumerate(_leaves(message_from_bytes(raw)), start=1):
            payload = part.get_payload(decode=True)
            body = _unzipped(payload if isinstance(payload, bytes) else b"")
            merge = str(part.get("Merge-Type") or part.get("X-Merge-Type") or "")
            _add_part(found, body, variables or {}, f"part-{number:03d}", part.get_content_type(), merge)
    elif raw.strip():
        _add_part(found, raw, variables or {}, "part-001")
    return found


def _unzipped(raw: bytes) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        return raw


def _is_mime(raw: bytes) -> bool:
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


_PREFIXES: tuple[tuple[str, str], ...] = (
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config", "text/cloud-config"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include", "text/x-include-url"),
    ("## template: jinja", "text/jinja2"),
    ("#!", "text/x-shellscript"),
)


def _type_of(text: str) -> str:
    # cloud-init compares the very first bytes: a byte-order mark or a blank line before the header hides it.
    for start, kind in _PREFIXES:
        if text.lower().startswith(start) if start.startswith("##") else text.startswith(start):
            return kind
    return ""


def _add_part(
    found: UserData, raw: bytes, variables: Mapping[str, str], part: str, declared: str = "", merge: str = ""
) -> None:
    text = raw.decode("utf-8", "replace")
    kind = _type_of(text) or declared
    if kind == "text/jinja2":
        rest = text.split("\n", 1)[1] if "\n" in text else ""
        text = _rendered(found, rest, variables, part)
        kind = _type_of(text)
    match kind:
        case "text/cloud-config":
            _add_config(found, text, part, merge)
        case "text/x-shellscript":
            found.scripts.append(text)
        case "text/cloud-boothook":
            found.boothooks.append(text.split("\n", 1)[1] if "\n" in text else "")
        case "text/x-include-url" | "text/cloud-config-archive":
            found.warnings.append(f"{kind} in {part} is not simulated; it has no effect")
        case _:
            shown = text[:24].splitlines()[0] if text.strip() else ""
            name = declared or "text/x-not-multipart"
            found.warnings.append(
                f"Unhandled non-multipart ({name}) userdata: '{shown}...'; "
                "the first line has to be #cloud-config, a #! line or a MIME header"
            )


_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


def _rendered(data: UserData, text: str, variables: Mapping[str, str], part: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        known = variables.get(name)
        if known is None:
            data.warnings.append(
                f"Could not render jinja template variables in {part}: '{name}' is not known"
            )
            return f"CI_MISSING_JINJA_VAR/{name.rsplit('.', 1)[-1]}"
        return known

    if "{%" in text:
        data.warnings.append(f"jinja statements in {part} are not simulated; they stay as they are")
    return _VARIABLE.sub(value, text)


def _add_config(data: UserData, text: str, part: str, merge: str) -> None:
    try:
        found = load(text)
    except NotYaml as error:
        where = collapse_whitespace(error)
        data.warnings.append(
            f"Failed loading yaml blob. Invalid format in {part}: {where}; nothing of this part is applied"
        )
        return
    if found is None:
        return
    if not isinstance(found, dict):
        data.warnings.append(
            f"Failed loading yaml blob in {part}. Yaml load allows (<class 'dict'>,) root types, "
            f"but got {type(found).__name__} instead; nothing of this part is applied"
        )
        return
    if not data.config:
        data.config = dict(found)
        return
    how = found.get("merge_how") or found.get("merge_type") or merge
    data.config = merge_configs(data.config, found, how)


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
            str(item.get("name")): frozenset(str(one) for one in as_list(item.get("settings")))
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
