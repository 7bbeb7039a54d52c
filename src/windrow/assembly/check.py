"""`windrow check`: everything that is wrong with a manifest, before anything is made.

The manifest is read as the manager reads it; then, where a Harvester can be asked, its machines are checked there
as the node driver checks them before it creates. Nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow.assembly.clock import SystemClock
from windrow.assembly.network import Sockets
from windrow.client.client import Client
from windrow.clusters.intents import sample_spec
from windrow.clusters.kinds import HARVESTER_CONFIG
from windrow.clusters.reading import read_cluster
from windrow.kube.kubeconfig import Access
from windrow.kube.objects import Raw, name_of, namespace_of
from windrow.machines.port import InfrastructureUnknown, Machines, Problem
from windrow.values.chance import Chance


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with one cluster. `unasked` says why Harvester was not asked, "" where it was."""

    namespace: str
    name: str
    problems: tuple[Problem, ...]
    unasked: str = ""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


async def run(documents: Sequence[Raw], manager: Access | None, harvester: str = "") -> list[Verdict]:
    """A verdict for each Cluster in `documents`, asking whoever is known.

    `manager` is the management API, which knows credentials and further configs; `harvester` is the text of a
    kubeconfig to use instead of any credential. With neither, only the manifest is judged.
    """
    if manager is None and not harvester:
        return await check(documents)
    from windrow.assembly.embedded import read_credential
    from windrow.machines.direct import DirectMachines

    clock = SystemClock()
    async with Sockets(clock) as sockets:
        api = Client(sockets.dial(manager)) if manager is not None else None
        configs = await api.list(HARVESTER_CONFIG) if api is not None else []

        async def credential(name: str) -> str:
            if api is None or harvester:
                return harvester
            return await read_credential(api, name)

        machines = DirectMachines(credential, sockets.dial, clock, Chance())
        return await check(documents, configs, machines)


async def check(
    documents: Sequence[Raw],
    configs: Sequence[Raw] = (),
    machines: Machines | None = None,
    unasked: str = "no Harvester was named",
) -> list[Verdict]:
    """A verdict for each Cluster in `documents`. `configs` are HarvesterConfigs that exist already; those in the
    documents come first. Without `machines`, Harvester is not asked."""
    own = [raw for raw in documents if raw.get("kind") == "HarvesterConfig"]
    named = {(namespace_of(raw), name_of(raw)) for raw in own}
    others = [raw for raw in configs if (namespace_of(raw), name_of(raw)) not in named]
    clusters = [raw for raw in documents if raw.get("kind") == "Cluster"]
    return [await _verdict(raw, [*own, *others], machines, unasked) for raw in clusters]


async def _verdict(raw: Raw, configs: Sequence[Raw], machines: Machines | None, unasked: str) -> Verdict:
    reading = read_cluster(raw, configs)
    problems = list(reading.problems)
    if machines is not None:
        try:
            # One machine of each pool whose config is known: the others of a pool are like it.
            pools = [pool for pool in reading.cluster.pools if pool.options is not None]
            problems += await machines.check([sample_spec(reading.cluster, pool) for pool in pools])
            unasked = ""
        except InfrastructureUnknown as error:
            unasked = error.fact
            problems.append(Problem(error.fact, error.cure))
    return Verdict(namespace_of(raw), name_of(raw), tuple(dict.fromkeys(problems)), unasked)
