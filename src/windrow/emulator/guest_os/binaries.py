"""The file that represents a program's binary on a simulated machine: it names the program and its version."""

from __future__ import annotations

BINARY_PREFIX = b"\x7fELF simulated "


def render_binary(program: str, version: str = "") -> bytes:
    """The content of the file that represents a program's binary."""
    return BINARY_PREFIX + f"{program} {version}".strip().encode() + b"\n"


def read_binary(content: bytes) -> tuple[str, str]:
    """The program and its version, which may be ""; both are "" for what is no simulated binary."""
    words = content.removeprefix(BINARY_PREFIX).split() if content.startswith(BINARY_PREFIX) else []
    name, version, *_ = [*(word.decode("utf-8", "replace") for word in words), "", ""]
    return name, version


def command_key(program: str) -> str:
    """The key in a shell's commands under which a simulated program runs, wherever its binary lies."""
    return f"binary {program}"
