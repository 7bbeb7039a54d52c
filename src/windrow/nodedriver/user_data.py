"""The user data of one machine: access, the user's document, the bootstrap; merged once, here."""

from __future__ import annotations

from typing import Any

from windrow.cloudinit.document import Document, emit, parse
from windrow.cloudinit.guest_agent import with_guest_agent
from windrow.cloudinit.merge import merge
from windrow.nodedriver.config import Configuration


def render_user_data(
    configuration: Configuration, bootstrap: str, *, public_key: str = "", agent: bool
) -> str:
    """The text for the machine's cloud-init Secret. Raises BadUserData.

    Earlier parts win: password and key, then the user's document, then the bootstrap. With `agent`
    the guest agent is added where nothing names it.
    """
    document = merge(_access(configuration, public_key), parse(configuration.user_data))
    document = merge(document, parse(bootstrap))
    return emit(with_guest_agent(document) if agent else document)


def _access(configuration: Configuration, public_key: str) -> Document:
    data: dict[str, Any] = {}
    if configuration.ssh_password:
        data |= {
            "user": configuration.ssh_user,
            "password": configuration.ssh_password,
            "chpasswd": {"expire": False},
            "ssh_pwauth": True,
        }
    if key := (public_key or configuration.ssh_public_key).strip():
        data["ssh_authorized_keys"] = [key]
    return Document(data)
