"""What of a Machine's status may be held back, and what is never overwritten by what was held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    nodeless,
    record_of,
    silent,
)

from windrow.clusters.context import ReconcileContext
from windrow.clusters.status import is_learned
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
