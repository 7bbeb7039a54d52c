"""What of a Machine's status may be held back, and what is never overwritten by what was held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.client.test_informer import Server
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    nodeless,
    record_of,
    sighted,
    silent,
)

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.context import ReconcileContext
from windrow.clusters.controller import ClusterController
from windrow.clusters.plan.diagnosis import diagnose_all
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.state import ActionFailure, MachineState
from windrow.clusters.status import is_learned, list_status_inputs
from windrow.core.rng import Rng
from windrow.core.stamps import ObservedStamps
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import ObjectRef

SERVERS = a_pool("servers", 3, SERVER)


class PatchedStatuses:
    """A management API that takes every patch."""

    async def patch(self, ref: ObjectRef, change: Mapping[str, Any], subresource: str) -> Mapping[str, Any]:
        return {"status": change["status"]}


def test_a_direct_write_replaces_what_is_yet_to_be_written_of_the_same_field() -> None:
    unused: Any = None
    parts = dict.fromkeys(("clusters", "secrets", "clock", "rng", "stamps"), unused)
    context: Any = ReconcileContext(
        api=PatchedStatuses(),  # type: ignore[arg-type]
        machines=SimpleNamespace(mutated=lambda raw: None),  # type: ignore[arg-type]
        **parts,
    )
    machine = record_of(a_machine("s1", SERVERS), restart_count=0).record
    context.patch_machine_status_later(machine, {"restartCount": 0, "phase": "Initializing"})

    asyncio.run(context.patch_machine_status(machine, {"restartCount": 1}))

    assert context.process_state.machine_statuses[machine.uid] == {"phase": "Initializing"}


@pytest.mark.parametrize(
    ("change", "learned"),
    [
        ({"driverConfig": {"WindrowVMUID": "x"}}, True),
        ({"restartCount": 1}, True),
        ({"nodeRef": {"name": "s1"}, "phase": "Joining"}, False),
    ],
)
def test_what_only_an_action_knows_is_never_held_back(change: dict[str, Any], learned: bool) -> None:
    assert is_learned(change) is learned


def test_an_etcd_machine_whose_node_was_not_recorded_counts_as_member_while_the_guest_does_not_answer() -> (
    None
):
    unrecorded = nodeless(a_machine("s2", SERVERS))
    machines = [a_machine("s1", SERVERS), unrecorded]

    away = look(a_cluster(SERVERS), machines, guest=silent())
    answering = look(a_cluster(SERVERS), machines)

    assert away.is_etcd_member(unrecorded)
    assert not answering.is_etcd_member(unrecorded)


class SetClock:
    """A clock whose wall time a person sets."""

    def __init__(self) -> None:
        self.set_ahead = timedelta()

    def monotonic(self) -> timedelta:
        return timedelta(hours=1)

    def now(self) -> datetime:
        return NOON + self.set_ahead


def test_a_machine_is_read_anew_only_where_its_record_or_what_is_to_be_written_or_the_clock_has_changed() -> (
    None
):
    unused: Any = None
    clock: Any = SetClock()
    parts = dict.fromkeys(("api", "clusters", "machines", "secrets", "rng"), unused)
    context = ReconcileContext(**parts, clock=clock, stamps=ObservedStamps(clock))
    machine = record_of(a_machine("s1", SERVERS), last_restart=NOON).record
    read = context.with_unwritten_status

    first = read(machine)
    clock.set_ahead = timedelta(milliseconds=900)
    assert read(machine) is first

    context.patch_machine_status_later(machine, {"restartCount": 3})
    waiting = read(machine)
    context.patch_machine_status_later(machine, {"restartCount": 4})
    assert (waiting.restart_count, read(machine).restart_count) == (3, 4)

    changed = replace(machine, join_server="https://10.0.0.7:9345")
    assert read(changed).join_server == "https://10.0.0.7:9345"

    context.process_state.machine_statuses.clear()
    clock.set_ahead = timedelta(hours=-1)
    assert read(machine).last_restart == NOON - timedelta(hours=1)  # as long ago as before


def test_what_a_status_is_derived_from_tells_a_lost_server_and_a_silent_guest_from_others() -> None:
    """Where it is equal to what it was, a status is not derived again."""
    servers = [a_machine(f"s{number}", SERVERS) for number in (1, 2, 3)]
    joiner = nodeless(record_of(a_machine("w1", a_pool()), join_server="https://10.0.0.1:9345"))

    def inputs(*others: MachineState, machine: MachineState = joiner, **rest: Any) -> tuple[object, ...]:
        state = look(a_cluster(SERVERS, a_pool()), [*others, machine], **rest)
        return list_status_inputs(machine, state, plan_cluster(state), {})

    usual = inputs(*servers)
    failure = ActionFailure("refused", "wait")
    state = look(a_cluster(SERVERS, a_pool()), [*servers, joiner])
    assert inputs(*servers) == usual
    assert inputs(*servers[1:]) != usual
    assert inputs(*servers, guest=silent()) != usual
    assert inputs(*servers, machine=replace(joiner, vm=None)) != usual
    assert list_status_inputs(joiner, state, plan_cluster(state), {"w1": failure}) != usual


def test_a_failure_that_is_over_is_not_in_the_status_of_a_booting_machine_any_longer() -> None:
    """What else changes while it boots may wait."""
    patched: list[str] = []

    async def patch(ref: ObjectRef, change: Mapping[str, Any], subresource: str) -> Mapping[str, Any]:
        patched.append(change["status"]["waiting"]["for"])
        spec = {"clusterName": "prod", "clusterUID": "cluster-uid", "pool": "servers"}
        raw = new_object(MACHINE, ref.name, ref.namespace, spec=spec, status=dict(change["status"]))
        raw["metadata"] |= {"uid": "uid-s1", "resourceVersion": str(len(patched))}
        raw["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
        return raw

    async def story() -> None:
        clock = LoopClock()
        api: Any = SimpleNamespace(patch=patch, transport=Server())
        unused: Any = None
        controller = ClusterController(api, unused, unused, clock, Rng(1))
        machine = sighted(nodeless(a_machine("s1", SERVERS)), addresses=())
        machine = replace(machine, record=replace(machine.record, status={"phase": "Provisioning"}))
        state = look(a_cluster(SERVERS), [machine])
        plan = Plan(diagnoses=diagnose_all(state))
        failed = {"s1": ActionFailure("Harvester refused it", "look there", True)}

        assert await controller._patch_machine_status(machine, state, plan, {}) is not None
        assert patched == []
        await controller._patch_machine_status(machine, state, plan, failed)
        await controller._patch_machine_status(machine, state, plan, {})
        assert ["Harvester refused it" in sentence for sentence in patched] == [True, False]
        assert await controller._patch_machine_status(machine, state, plan, {}) is not None
        assert len(patched) == 2

    run_driven(story())
