"""Bootstrap of a cluster of 3 servers and 2 workers: the stated delays of Harvester and guests, and what we add to them.

Told on a driven clock, where computing takes no time: once with the delays as stated, once with all of them a
thousandth. What does not shrink with them is our own waiting. What computing takes is measured beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files

from tests.support.clock import run_driven
from tests.support.simulation import simulation

from benchmarks import Figure
from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw, name_of

FASTER = 1000.0


def measure() -> Iterator[Figure]:
    text = (files("windrow.demo") / "manifests" / "three-and-two.yaml").read_text()
    documents = load_all(text)
    begun = time.perf_counter()
    stated = run_driven(_bootstrap(documents, 1.0))
    computing = time.perf_counter() - begun
    hurried = run_driven(_bootstrap(documents, FASTER))
    own = (hurried - stated / FASTER) / (1 - 1 / FASTER)
    yield Figure(
        "3+2 cluster: from order to Ready", stated, "s", 300, "reference 04 §9.2: 3+3 in under 5 min"
    )
    yield Figure("3+2 cluster: own waiting and computing", own + computing, "s", 5, "issue 3")


async def _bootstrap(documents: list[Raw], speed: float) -> float:
    name = next(name_of(raw) for raw in documents if raw["kind"] == "Cluster")
    async with simulation(time_scale=speed) as sim:
        await sim.apply(documents)
        begun = sim.clock.now()
        await sim.cluster(name).wait_for_settled()
        return (sim.clock.now() - begun).total_seconds()
