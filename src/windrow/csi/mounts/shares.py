"""Shared volumes as a node mounts them: the program's arguments, and what is recognised in mountinfo. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from windrow.csi import errors, names
from windrow.csi.mounts.mountinfo import Mount
from windrow.csi.mounts.options import parse_mount_options
from windrow.csi.mounts.port import FilesystemMount, NetworkShare

_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")
_EXPORT = re.compile(r"/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OPTIONS = re.compile(r"[-A-Za-z0-9_.,=:/@]{1,1024}")


def check_share(share: NetworkShare) -> None:
    """Raises InvalidArgument for what could be anything else than a server, an export and its options."""
    _require(_is_host(share.server), names.PUBLISH_SHARE_SERVER, "it is no address")
    _require(
        _EXPORT.fullmatch(share.export), names.PUBLISH_SHARE_EXPORT, "it is no name of a volume after a slash"
    )
    _require(_OPTIONS.fullmatch(share.options), names.PUBLISH_SHARE_OPTIONS, "they are no options of a mount")


def _require(found: object, key: str, problem: str) -> None:
    if not found:
        raise errors.InvalidArgument(f"publish_context[{key}]", problem)


def _is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return "%" not in text


def source_of(share: NetworkShare) -> str:
    """As the kernel shows it: `10.53.0.7:/pvc-1`, `[fd00::7]:/pvc-1`."""
    try:
        is_v6 = isinstance(ip_address(share.server), IPv6Address)
    except ValueError:
        is_v6 = False
    return f"[{share.server}]:{share.export}" if is_v6 else f"{share.server}:{share.export}"


def mount_command(share: NetworkShare, path: str, mount: FilesystemMount, fs_type: str) -> Sequence[str]:
    """The program and its arguments. What the request asks for comes after what Harvester recommends, and prevails.

    Raises InvalidArgument for options that ask for another act than mounting the volume.
    """
    texts = (share.options, *mount.flags, *(("ro",) if mount.read_only else ()))
    parse_mount_options(texts)
    options = [part.strip() for text in texts for part in text.split(",")]
    found = ",".join(dict.fromkeys(one for one in options if one))
    return "mount", "-t", fs_type, "-o", found, "--", source_of(share), path


def is_same_export(mounted: Mount, share: NetworkShare) -> bool:
    """Whether the volume is mounted, from whichever address it had."""
    return mounted.source.endswith(f":{share.export}")
