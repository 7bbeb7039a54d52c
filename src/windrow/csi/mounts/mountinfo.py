"""What is mounted, as the kernel tells it in /proc/self/mountinfo (proc(5)).

A line has the mount id and that of its parent, the device, the root of the mount in its filesystem, the mount point, the
options of the mount, optional fields up to a `-`, and the type, source and options of the filesystem. Blanks in paths are
octal escapes. Lines are in the order of mounting, so of several at one mount point the last covers the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A node with thousands of pods has some ten thousand mounts, of which a line is seldom longer than 500 bytes.
MAX_BYTES = 32 << 20
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `options` are those of the mount, `super_options` those that all mounts of the filesystem share."""

    device: tuple[int, int]  # major and minor number
    root: str
    path: str
    options: frozenset[str]
    fs_type: str
    source: str
    super_options: frozenset[str]

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written through this mount."""
        return "ro" in self.options or "ro" in self.super_options

    @property
    def filesystem_read_only(self) -> bool:
        """Whether nothing can be written through any mount: mounted so, or made so by the kernel after an error."""
        return "ro" in self.super_options


def parse_mountinfo(raw: bytes) -> list[Mount]:
    """All mounts, in the order of mounting. Raises ValueError for what is no mountinfo, or beyond MAX_BYTES."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"mountinfo is larger than {MAX_BYTES} bytes")
    # Only \n ends a line: splitlines would split at others, which a path may hold.
    return [_parse_line(line) for line in raw.decode(errors="surrogateescape").split("\n") if line]


def _parse_line(line: str) -> Mount:
    before, separator, after = line.partition(" - ")
    fields, shared = before.split(" "), after.split(" ")
    if not separator or len(fields) < 6 or len(shared) < 3:
        raise ValueError(f"no line of mountinfo: {line[:200]!r}")
    major, _, minor = fields[2].partition(":")
    return Mount(
        device=(int(major), int(minor)),
        root=_unescape(fields[3]),
        path=_unescape(fields[4]),
        options=frozenset(fields[5].split(",")),
        fs_type=_unescape(shared[0]),
        source=_unescape(shared[1]),
        super_options=frozenset(shared[2].split(",")),
    )


def _unescape(text: str) -> str:
    # An escape is one byte; bytes beyond ASCII are not escaped by the kernel.
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def find_mount(mounts: Sequence[Mount], path: str) -> Mount | None:
    """What is seen at `path`: the mount made there last, if any."""
    return next((mount for mount in reversed(mounts) if mount.path == path), None)
