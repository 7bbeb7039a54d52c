"""Bootstrap of a cluster of 3 servers and 2 workers, RKE2 and K3s: the stated delays of Harvester and guests, and what we add to them.

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
MANIFESTS = {"RKE2": ("three-and-two.yaml", "issue 3"), "K3s": ("three-and-two-k3s.yaml", "issue 12")}


def measure() -> Iterator[Figure]:
    for distribution, (manifest, wanted_by) in MANIFESTS.items():
        yield from _measure(f"3+2 cluster of {distribution}", manifest, wanted_by)


def _measure(what: str, manifest: str, wanted_by: str) -> Iterator[Figure]:
    text = (files("windrow.demo") / "manifests" / manifest).read_text()
    documents = load_all(text)
    begun = time.process_time()  # one thread does it: on an idle machine as long as by the wall clock
    stated = run_driven(_bootstrap(documents, 1.0))
    computing = time.process_time() - begun
    hurried = run_driven(_bootstrap(documents, FASTER))
    own = (hurried - stated / FASTER) / (1 - 1 / FASTER)
    yield Figure(f"{what}: from order to Ready", stated, "s", 300, "reference 04 §9.2: 3+3 in under 5 min")
    yield Figure(f"{what}: own waiting and computing", own + computing, "s", 5, wanted_by)


async def _bootstrap(documents: list[Raw], speed: float) -> float:
    name = next(name_of(raw) for raw in documents if raw["kind"] == "Cluster")
    async with simulation(time_scale=speed) as sim:
        await sim.apply(documents)
        begun = sim.clock.now()
        await sim.cluster(name).wait_for_settled()
        return (sim.clock.now() - begun).total_seconds()
