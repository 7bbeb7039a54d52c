"""Reads what a Harvester says about versions: two settings, which every user of it may get."""

from __future__ import annotations

import asyncio

from windrow.client.client import Client
from windrow.harvester.supported_charts import SETTINGS, HarvesterVersions, read_versions
from windrow.kubernetes.errors import Forbidden


async def read_harvester_versions(client: Client) -> HarvesterVersions:
    """Without a release where this user may not read it. Raises every other KubeError."""
    try:
        version, charts = await asyncio.gather(*(client.find(ref) for ref in SETTINGS))
    except Forbidden as error:
        return HarvesterVersions(unread=error.message)
    return read_versions(version, charts)
