"""What a plan and the statuses of a large cluster cost, in function calls: four times the machines, four times the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool, look, missing, nodeless, some, unordered
from tests.unit.clusters.test_addresses import NETWORK, RECORDED, TEN

from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import ClusterState, MachineState
from windrow.clusters.status import derive_cluster, derive_machine, find_wait

SMALL, TIMES = 40, 4
# Beside what is linear there is sorting.
TOLERANCE = 1.1


def booting(machine: MachineState) -> MachineState:
    started = replace(machine.record, node="", conditions=())
    return replace(nodeless(machine), record=started, vm=machine.vm and replace(machine.vm, addresses=()))


SCENES: dict[str, Callable[[MachineState], MachineState]] = {
    "Ready": lambda machine: machine,
    "boot": booting,
    "are not made": unordered,
    "have no VM any more": missing,
}


def count_calls(work: Callable[[], object]) -> int:
    count = 0

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def reconciled(state: ClusterState) -> None:
    plan = plan_cluster(state)
    for machine in state.machines:
        derive_machine(machine, state, plan, {})
    derive_cluster(state, plan, find_wait(state, plan, {}))


def a_state(change: Callable[[MachineState], MachineState], size: int, addresses: Any = ()) -> ClusterState:
    servers = a_pool("servers", 3, SERVER)
    workers = a_pool("workers", size, address_pools=addresses)
    cluster = a_cluster(servers, workers, recorded=RECORDED)
    taken = {NETWORK: frozenset(f"10.9.0.{number}" for number in range(10, 20))}
    machines = [*some("s", 3, servers), *map(change, some("w", size, workers))]
    return look(cluster, machines, taken=taken)


@pytest.mark.parametrize("addresses", [(), (TEN,)], ids=["by DHCP", "of a pool that is used up"])
@pytest.mark.parametrize("scene", SCENES)
def test_four_times_the_machines_cost_four_times_as_much(scene: str, addresses: Any) -> None:
    def count(size: int) -> int:
        state = a_state(SCENES[scene], size, addresses)
        return count_calls(lambda: reconciled(state))

    small, large = count(SMALL), count(TIMES * SMALL)

    assert large <= TOLERANCE * TIMES * small


@pytest.mark.parametrize("surplus", [1, TIMES * SMALL - 1])
def test_machines_that_are_too_many_cost_no_more_each(surplus: int) -> None:
    def count(size: int) -> int:
        state = a_state(SCENES["Ready"], size)
        pools = tuple(
            replace(pool, quantity=max(1, size - surplus)) if pool.name == "workers" else pool
            for pool in state.cluster.pools
        )
        state = replace(state, cluster=replace(state.cluster, pools=pools))
        return count_calls(lambda: reconciled(state))

    assert count(TIMES * SMALL) <= TOLERANCE * TIMES * count(SMALL)
