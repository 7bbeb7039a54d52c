"""Many clusters that claim addresses of one range at once, through the API server: for tests and benchmarks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from tests.unit.clusters.builders import a_cluster, a_machine, a_pool, look, unordered

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.clusters.api.addresses import AddressPool, IPAddress, read_ip_address
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.context import StalePlan
from windrow.clusters.execute.address_actions import AddressActions
from windrow.clusters.plan.actions import ClaimAddresses, PartialPlan, ReleaseAddresses
from windrow.clusters.plan.addresses import Claims
from windrow.clusters.sources.addresses import AddressBook
from windrow.clusters.state import MachineState
from windrow.core.formats.cidr import Range
from windrow.core.rng import Rng

NETWORK = "default/vlan-50"


@dataclass(frozen=True)
class Result:
    """`refused`: claims that another was faster with. `faults`: addresses that two machines have, machines that have none
    or two, and records that no machine claimed; `left`: records after all were released."""

    claimed: tuple[IPAddress, ...]
    refused: int
    faults: int
    left: int
    seconds: float  # for the claims, and of them on a processor: for benchmarks only
    cpu_seconds: float


async def claim_all(clusters: int, machines: int, managers: int = 2) -> Result:
    """Each machine claims one address of a range that has just as many. No manager sees what another claims."""
    size = clusters * machines
    first = Range.parse("10.8.0.10").first
    pool = AddressPool(NETWORK, (Range(first, first + (size - 1)),), 13, is_of_node=True)
    clock, rng = SystemClock(), Rng(7)
    api = Client(management_api(MemoryStore(), clock, rng).local())
    books = [
        AddressBook(Informer(api.transport, IP_ADDRESS, "", read_ip_address, clock, rng))
        for _ in range(managers)
    ]
    made = [_cluster(number, machines, pool) for number in range(clusters)]
    began, cpu_began = time.perf_counter(), time.process_time()
    losses = await asyncio.gather(
        *(_claim(api, books[place % managers], *one) for place, one in enumerate(made))
    )
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    found = [read_ip_address(raw) for raw in await api.list(IP_ADDRESS)]
    claimed = tuple(claim for claim in found if claim is not None)
    wanted = {machine.record.uid for _, members in made for machine in members}
    holders, addresses = [claim.machine_uid for claim in claimed], {claim.address for claim in claimed}
    faults = len(claimed) - len(addresses) + len(claimed) - len(set(holders)) + len(wanted ^ set(holders))
    await AddressActions(api, books[0]).release_addresses(ReleaseAddresses("gone", "all", claimed))
    return Result(claimed, sum(losses), faults, len(await api.list(IP_ADDRESS)), seconds, cpu_seconds)


def _cluster(number: int, machines: int, addresses: AddressPool) -> tuple[Cluster, list[MachineState]]:
    pool = a_pool("workers", machines, address_pools=(addresses,))
    cluster = replace(a_cluster(pool, recorded=RecordedStatus(harvester_uid="hv")), uid=f"cluster-{number}")
    members = [unordered(a_machine(f"c{number}m{place}", pool)) for place in range(machines)]
    return cluster, [replace(m, record=replace(m.record, cluster_uid=cluster.uid)) for m in members]


async def _claim(api: Client, book: AddressBook, cluster: Cluster, machines: list[MachineState]) -> int:
    """Observe, plan and execute until every machine has its address; how often another was faster."""
    actions, lost = AddressActions(api, book), 0
    while True:
        seen = [replace(one, addresses=book.of_machine(one.record.uid)) for one in machines]
        partial = PartialPlan()
        claims = Claims(look(cluster, seen, taken={NETWORK: book.list_taken(NETWORK, "hv")}))
        made = sum(claims.plan(one, partial) for one in seen)  # of each, so that each plans
        if made == len(seen):
            return lost
        planned = [action for action in partial.actions if isinstance(action, ClaimAddresses)]
        assert planned, "a machine lacks an address, and all are taken"
        for action in planned:
            try:
                await actions.claim_addresses(action)
            except StalePlan:
                lost += 1
