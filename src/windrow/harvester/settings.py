"""Setting: Harvester's own options. They have no spec; an empty value means the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.harvester.resources import SETTING
from windrow.kubernetes.objects import name_of

SERVER_VERSION = SETTING.ref("server-version")


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str


def read_setting(raw: Mapping[str, Any]) -> Setting:
    return Setting(name_of(raw), str(raw.get("value") or raw.get("default") or ""))
