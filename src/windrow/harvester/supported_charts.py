"""What a Harvester says about versions: its release, and which versions of its two charts it accepts in guest clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats.json import NotJson, loads
from windrow.harvester.references import SERVER_VERSION, read_release
from windrow.harvester.resources import SETTING

CHART_VERSIONS = SETTING.ref("harvester-csi-ccm-versions")
SETTINGS = (SERVER_VERSION, CHART_VERSIONS)
# The setting's own names of the charts.
_CHARTS = {
    "harvester-cloud-provider": "harvester-cloud-provider",
    "harvester-csi-provider": "harvester-csi-driver",
}


@dataclass(frozen=True, slots=True)
class HarvesterVersions:
    """`release` is "" where it was not read, `unread` why. `ranges` are those of the charts that it accepts, by chart, such
    as `>=0.0.1 <0.3.0`."""

    release: str = ""
    ranges: Mapping[str, str] = field(default_factory=dict)
    unread: str = ""


def read_versions(version: Mapping[str, Any] | None, charts: Mapping[str, Any] | None) -> HarvesterVersions:
    """The reading of the two settings; None for one that does not exist. A range that is no text is left out."""
    release = read_release(version).version if version is not None else ""
    unread = "" if release else f"its setting {SERVER_VERSION.name} is empty or does not exist"
    try:
        ranges = loads(str((charts or {}).get("value") or (charts or {}).get("default") or "{}"))
    except NotJson:
        ranges = {}
    named = ranges.items() if isinstance(ranges, dict) else ()
    found = {_CHARTS[key]: text for key, text in named if key in _CHARTS and isinstance(text, str)}
    return HarvesterVersions(release, found, unread)
