"""KeyPair: an SSH public key that Harvester keeps under a name. The VM's creator has to inject it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.harvester.resources import KEY_PAIR
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import ObjectRef, ref_of


@dataclass(frozen=True, slots=True)
class KeyPair:
    ref: ObjectRef
    public_key: str
    is_validated: bool


def read_key_pair(raw: Mapping[str, Any]) -> KeyPair:
    return KeyPair(
        ref=ref_of(KEY_PAIR, dict(raw)),
        public_key=nested(raw, "spec", "publicKey", default=""),
        is_validated=is_true(nested(raw, "status", "conditions"), "validated"),
    )
