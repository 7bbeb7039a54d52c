"""Requests to attach, recorded on the volume's claim before they are sent. Pure.

A driver that ends with a request under way cannot tell whether Harvester carries it out; the driver after it, in the same pod or in
that of another leader, cannot know of it, unless it finds it written down. An annotation for each VM names the process that
sent a request, and when. It counts for as long as a request may be carried out, and is taken away by the next record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from windrow.core.clock import format_time, parse_time
from windrow.core.formats.json import Raw
from windrow.harvester.unanswered import LATEST

# Before the name of the VM, or a digest of one that no key can have.
PREFIX = "attach.csi.windrow.io/"
_MAX_NAME = 63


@dataclass(frozen=True, slots=True)
class AttachRecord:
    """One process's last request to attach the volume to a VM."""

    process: str
    at: datetime

    def __str__(self) -> str:
        return f"{format_time(self.at)} {self.process}"


def read_records(annotations: Mapping[str, str]) -> dict[str, AttachRecord]:
    """By the key of the VM. What cannot be read is left out: it is not ours."""
    found = {key: _read(text) for key, text in annotations.items() if key.startswith(PREFIX)}
    return {key: record for key, record in found.items() if record is not None}


def _read(text: str) -> AttachRecord | None:
    time, _, process = text.partition(" ")
    try:
        return AttachRecord(process, parse_time(time))
    except ValueError:
        return None


def record_key(vm: str) -> str:
    """The annotation of the VM."""
    if len(vm) <= _MAX_NAME and vm.replace("-", "").replace(".", "").isalnum():
        return f"{PREFIX}{vm}"
    return f"{PREFIX}{hashlib.sha256(vm.encode()).hexdigest()[:32]}"


def plan_record(
    found: Mapping[str, AttachRecord], vm: str, record: AttachRecord, resource_version: str
) -> Raw:
    """The change that records a request, and takes away what no longer counts: of the claim on which `found` was read, with its
    resourceVersion, because another process may have recorded a request meanwhile."""
    outdated = [key for key, one in found.items() if one.at + LATEST < record.at]
    annotations: dict[str, str | None] = dict.fromkeys(outdated)
    annotations[record_key(vm)] = str(record)
    return {"metadata": {"resourceVersion": resource_version, "annotations": annotations}}


def remaining_s(record: AttachRecord, now: datetime) -> float:
    """For how many seconds yet the request may be carried out. A clock that is behind makes them no more than they can be."""
    left = (record.at + LATEST - now).total_seconds()
    return max(0.0, min(left, LATEST.total_seconds()))
