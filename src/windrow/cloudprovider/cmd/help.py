"""The help text, made from the table of flags."""

from __future__ import annotations

import textwrap

from windrow.cloudprovider.cmd.flag_table import FLAGS, SECTIONS, Flag, shown

WIDTH = 80
SUMMARY = """\
harvester-cloud-provider keeps a guest cluster in step with Harvester: its nodes
with their VMs, its services of type LoadBalancer with addresses of Harvester's
pools. It runs in the guest cluster, in place of the Go program of the same
name: it takes the same flags, the same cloud config and the same Lease.
"""
_PLACEHOLDERS = {"string": "TEXT", "int": "N", "float": "N", "duration": "DURATION", "list": "LIST"}


def render_help() -> str:
    """Every flag: those that work with their meaning, the others by name."""
    parts = [SUMMARY, "Usage:\n  harvester-cloud-provider --cloud-config FILE [flags]\n"]
    for section, flags in SECTIONS.items():
        working = [flag for flag in flags if flag.has_effect]
        if working:
            parts.append("\n".join([f"{section}:", *(_render_flag(flag) for flag in working)]) + "\n")
    idle = ", ".join(sorted(f"--{flag.name}" for flag in FLAGS.values() if not flag.has_effect))
    text = textwrap.fill(idle, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    parts.append(f"Accepted without effect, because the Go program takes them:\n{text}\n")
    return "\n".join(parts)


def _render_flag(flag: Flag) -> str:
    blank = _PLACEHOLDERS.get(flag.type)
    head = f"  {shown(flag.name)}{f' {blank}' if blank else ''}"
    about = flag.about
    if flag.default not in ("", "false"):
        about += f" (default {flag.default})"
    body = textwrap.fill(
        about, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False
    )
    return f"{head}\n{body}"
