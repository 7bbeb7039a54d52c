"""KeyPair: an SSH public key that Harvester keeps under a name. It does not inject it; whoever makes the VM does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.harvester.kinds import KEY_PAIR
from windrow.kube.conditions import is_true
from windrow.kube.objects import dig
from windrow.kube.refs import Ref, ref_of


@dataclass(frozen=True, slots=True)
class KeyPair:
    ref: Ref
    public_key: str
    is_validated: bool


def read_key_pair(raw: Mapping[str, Any]) -> KeyPair:
    return KeyPair(
        ref=ref_of(KEY_PAIR, dict(raw)),
        public_key=dig(raw, "spec", "publicKey", default=""),
        is_validated=is_true(dig(raw, "status", "conditions"), "validated"),
    )
