"""The cloud-config document of a machine's first boot, and what remains of it once the machine has joined.

cloud-init reads the document again at every boot, from the same drive. What it does once per machine (files, commands,
packages) may then be gone; what it does at every boot, or again for a machine that was cloned or restored, must stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats import yaml

HEADER = "#cloud-config\n"
JINJA = "## template: jinja\n"


@dataclass(frozen=True, slots=True)
class File:
    """A file that cloud-init writes, owned by root. `mode` is octal text, as cloud-init wants it: `"0600"`; `encoding` what
    it decodes the content from: `"b64"`."""

    path: str
    content: str = field(repr=False)
    mode: str = "0600"
    encoding: str = ""

    def render(self) -> dict[str, str]:
        """The entry of `write_files`."""
        entry = {"path": self.path, "owner": "root:root", "permissions": self.mode, "content": self.content}
        return {**entry, "encoding": self.encoding} if self.encoding else entry


# Per boot or per machine identity; the rest of a document is applied once. Secrets travel in `write_files`
# and `runcmd`, so they are not here, nor are passwords in clear. An allow list, because an unknown key may hide
# a secret, while a key that is missing after the first boot costs nothing.
KEPT = frozenset(
    {
        "hostname",
        "fqdn",
        "prefer_fqdn_over_hostname",
        "preserve_hostname",
        "create_hostname_file",
        "manage_etc_hosts",
        "network",
        "manage_resolv_conf",
        "resolv_conf",
        "users",
        "user",
        "system_info",
        "ssh_authorized_keys",
        "ssh_pwauth",
        "ssh_deletekeys",
        "ssh_genkeytypes",
        "ssh_import_id",
        "ssh",
        "disable_root",
        "disable_root_opts",
        "no_ssh_fingerprints",
        "allow_public_ssh_keys",
        "bootcmd",
        "growpart",
        "resize_rootfs",
        "disk_setup",
        "fs_setup",
        "mounts",
        "mount_default_fields",
        "swap",
        "ntp",
        "timezone",
        "locale",
        "keyboard",
        "ca_certs",
        "ca-certs",
        "final_message",
    }
)


def render_document(
    hostname: str,
    files: Sequence[File],
    *,
    bootcmd: Sequence[Sequence[str]] = (),
    runcmd: Sequence[Sequence[str]] = (),
) -> str:
    """One `#cloud-config` document. Commands are argument lists, so that no shell reads them a second time."""
    document: dict[str, Any] = {"hostname": hostname}
    if bootcmd:
        document["bootcmd"] = [list(command) for command in bootcmd]
    document["write_files"] = [file.render() for file in files]
    document["runcmd"] = [list(command) for command in runcmd]
    return HEADER + yaml.dump(document)


def scrub(document: str) -> str:
    """`document` without the secrets and without all that was needed once. May be repeated.

    The input is the document in the machine's Secret, with the user's own parts merged in. Hostname, network,
    accounts, SSH keys and boot commands stay; a machine that restarts with the result comes back as it was.
    Raises NotYaml for a document that is not a cloud-config mapping, rather than lose its hostname.
    """
    config = yaml.load(document)
    if not isinstance(config, Mapping):
        raise yaml.NotYaml(
            f"wanted a cloud-config mapping to scrub, found {type(config).__name__}; leave it as it is"
        )
    kept = {key: value for key, value in config.items() if key in KEPT}
    header = JINJA + HEADER if document.startswith(JINJA) else HEADER
    return header + (yaml.dump(kept) if kept else "{}\n")
