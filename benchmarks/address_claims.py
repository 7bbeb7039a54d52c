"""Addresses: 10,000 claims by 100 clusters at once, of a range of just as many, through the API server in process.

Two managers' views take part, of which neither is told what the other claims: it learns it from the refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tests.support.address_claims import claim_all

from benchmarks import Figure

CLUSTERS, MACHINES = 100, 100


def measure() -> Iterator[Figure]:
    result = asyncio.run(claim_all(CLUSTERS, MACHINES))
    yield Figure(
        "addresses claimed by one machine each", len(result.claimed), "", CLUSTERS * MACHINES, "issue 12"
    )
    yield Figure("claimed twice, or by no machine", result.faults, "", 0, "issue 12")
    yield Figure("left after all were released", result.left, "", 0, "issue 12")
    yield Figure("claims that another was faster with", result.refused, "", CLUSTERS * MACHINES, "one each")
    yield Figure("claim them all, on a processor", result.cpu_seconds, "s", 60, "issue 12")
    yield Figure("claim them all, on this machine now", result.seconds, "s", 60, "issue 12")
