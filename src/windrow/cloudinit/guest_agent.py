"""The QEMU guest agent in a cloud-config: without it Harvester has no address of a bridged machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.cloudinit.document import BadUserData, Document, emit, parse

PACKAGE = "qemu-guest-agent"
ENABLE = ["systemctl", "enable", "--now", "qemu-guest-agent.service"]


def add_guest_agent(text: str, other_text: str) -> str:
    """The cloud-config in `text` with the agent added, where neither it nor `other_text`, with which another program will
    merge it, names the agent. Text that is no cloud-config is returned as it is: the merge reports it."""
    try:
        document, other = parse(text), parse(other_text)
    except BadUserData:
        return text
    extended = with_guest_agent(document, other)
    return text if extended == document else emit(extended)


def with_guest_agent(document: Document, other: Document | None = None) -> Document:
    """The document, with the agent's package and the command that starts it added where they are missing.

    What names the agent already stays as it is, also in another spelling (`apt: [qemu-guest-agent]`, a pinned
    version, a shell line). A value that is no list where one belongs stays too: cloud-init reports it. What
    `other` names counts as named.
    """
    data = dict(document.data)
    other_data = other.data if other is not None else {}
    if _may_add(data.get("packages")) and not _names_agent(other_data.get("packages")):
        data["packages"] = [*(data.get("packages") or ()), PACKAGE]
    if _may_add(data.get("runcmd")) and not _names_agent(other_data.get("runcmd")):
        # In front: the address is wanted before the installer, which follows, is through.
        data["runcmd"] = [ENABLE, *(data.get("runcmd") or ())]
    return Document(data, document.jinja)


def _may_add(entries: Any) -> bool:
    return (entries is None or isinstance(entries, list)) and not _names_agent(entries)


def _names_agent(value: Any) -> bool:
    match value:
        case str():
            return PACKAGE in value
        case list():
            return any(_names_agent(entry) for entry in value)
        case Mapping():
            return any(_names_agent(entry) for entry in value.values())
        case _:
            return False
