"""Pools keep their count: record what is missing, ask to give up what is too many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windrow.clusters.actions import Enlist, Retire, Wait
from windrow.clusters.endpoint import find_server
from windrow.clusters.parts import Disruption, Part, Sheet
from windrow.clusters.reading import Pool
from windrow.clusters.seen import MachineSeen, Seen


def plan(seen: Seen) -> Part:
    sheet = Sheet()
    server = find_server(seen)
    for pool in seen.cluster.pools:
        if pool.paused:
            continue
        staying = seen.of_pool(pool)
        surplus = len(staying) - pool.quantity
        if surplus > 0:
            _shrink(staying, surplus, pool, seen, sheet)
        elif surplus < 0:
            _grow(-surplus - _still_members(pool, seen), pool, server, seen, sheet)
    _retire_orphans(seen, sheet)
    return sheet.part()


def _still_members(pool: Pool, seen: Seen) -> int:
    """Machines on their way out whose place in etcd is not free yet: remove first, then add (one learner at a time)."""
    return sum(1 for machine in seen.leaving if machine.pool == pool.name and seen.is_member(machine))


def _grow(lack: int, pool: Pool, server: str, seen: Seen, sheet: Sheet) -> None:
    if lack <= 0:
        return
    have = pool.quantity - lack
    if pool.options is None:
        sheet.waits.append(Wait(f"{pool.kind} {pool.config}", f"pool {pool.name} gets {lack} more"))
        return
    if not server:
        first = seen.standing.first_name
        what = (
            f"first server {first} to report its address"
            if not seen.standing.initialized
            else "a server to be Ready"
        )
        sheet.waits.append(Wait(what, f"{_machines(lack)} of pool {pool.name} will join through it"))
        return
    why = f"pool {pool.name} asks for {pool.quantity}, {have} there"
    sheet.actions += [Enlist(why, pool.name, server)] * lack


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _shrink(staying: tuple[MachineSeen, ...], surplus: int, pool: Pool, seen: Seen, sheet: Sheet) -> None:
    for machine in choose_surplus(staying, surplus, seen):
        why = f"pool {pool.name} asks for {pool.quantity}, {len(staying)} there; {_choice(machine, seen)}"
        sheet.asked.append(Disruption("shrink", machine.name, Retire(why, machine.name)))


def choose_surplus(machines: Iterable[MachineSeen], count: int, seen: Seen) -> list[MachineSeen]:
    """The `count` machines that are missed least."""
    return sorted(machines, key=lambda machine: _worth(machine, seen))[:count]


def _worth(machine: MachineSeen, seen: Seen) -> tuple[bool, bool, bool, bool, bool, object, str]:
    """Marked ones first, then those that do not run, are not Ready, not complete, have not joined; then the oldest.

    Among nodes that are all Ready one without its role label yet is worth less than one that takes workloads.
    """
    record = machine.record
    return (
        not record.delete_first,
        not machine.is_down,
        machine.is_ready,
        _was_whole(machine, seen),
        machine.node is not None or record.was_ready,
        record.created,
        record.name,
    )


def _was_whole(machine: MachineSeen, seen: Seen) -> bool:
    """Whether it is complete; while the guest is silent, whether it was when the guest last spoke."""
    if seen.guest.answers or machine.node is None:
        return seen.is_complete(machine)
    as_was = replace(machine, node=replace(machine.node, ready=machine.record.was_ready))
    return seen.is_complete(as_was)


def _choice(machine: MachineSeen, seen: Seen) -> str:
    if machine.record.delete_first:
        return "this one is marked to go first"
    if machine.is_down:
        return "this one does not run"
    if machine.node is None and not machine.record.was_ready:
        return "this one has not joined yet"
    if seen.guest.answers and not seen.is_complete(machine):
        return "this one is not complete yet" if machine.is_ready else "this one is not Ready"
    return "the oldest goes"


def _retire_orphans(seen: Seen, sheet: Sheet) -> None:
    for machine in seen.staying:
        if seen.cluster.find_pool(machine.pool) is None:
            why = f"there is no pool {machine.pool} any more"
            sheet.asked.append(Disruption("shrink", machine.name, Retire(why, machine.name)))
