"""Who may be taken away, and when: the only place that knows of quorum, breaker and budgets.

Rooms ask for disruptions without regard to each other; `admit` lets through what the cluster can bear now and says of
the rest why it is held. Nothing remembers: the next look asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from windrow.bootstrap.intent import Role
from windrow.clusters.parts import Disruption, Held
from windrow.clusters.reading import Pool
from windrow.clusters.repair import is_unhealthy
from windrow.clusters.seen import MachineSeen, Seen, silent_about

LAST_MEMBER = "replacement skipped: last etcd member"

# Why not, "" for no objection; with an instant at which to ask again, where only time helps.
Reason = str | tuple[str, datetime]
Gate = Callable[[Disruption, MachineSeen, Seen, Sequence[Disruption]], Reason]


def admit(asked: Sequence[Disruption], seen: Seen) -> tuple[list[Disruption], list[Held]]:
    """Those that may happen now, and those that may not with the reason. What is under way is considered first."""
    by_name = {machine.name: machine for machine in seen.machines}
    admitted: list[Disruption] = []
    held: list[Held] = []
    for disruption in sorted(asked, key=lambda disruption: _ORDER.index(disruption.kind)):
        machine = by_name[disruption.machine]
        reasons = (gate(disruption, machine, seen, admitted) for gate in _GATES)
        reason: Reason = next((reason for reason in reasons if reason), "")
        if reason:
            held.append(Held(disruption, *((reason,) if isinstance(reason, str) else reason)))
        else:
            admitted.append(disruption)
    return admitted, held


# A removal that has begun goes on before another begins; what is broken goes before what is merely too many.
_ORDER = ("leave", "replace", "shrink")


def _last_member(
    disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]
) -> str:
    """The last member is the data. It may only go where another pool takes over, and then it is not the last."""
    if not machine.is_etcd or not seen.standing.initialized:
        return ""
    others = [member for member in seen.members if member.name != machine.name]
    if others:
        return ""
    if seen.is_member(machine) or disruption.kind == "replace":
        return LAST_MEMBER if disruption.kind == "replace" else "it is the last etcd member"
    return ""


def _unknown_etcd(
    disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]
) -> str:
    if machine.is_etcd and seen.standing.initialized and not seen.guest.answers:
        return f"etcd members are not removed while {silent_about(seen.guest)}"
    return ""


def _one_etcd_at_a_time(
    disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]
) -> str:
    if not machine.is_etcd or not seen.standing.initialized:
        return ""
    busy = {other.machine for other in admitted} | {
        other.name for other in seen.leaving if seen.is_member(other)
    }
    others = sorted(
        other.name
        for other in seen.machines
        if other.name in busy and other.is_etcd and other.name != machine.name
    )
    if others:
        # Of several that are leaving, the eldest order goes first, else each would wait for the other.
        if disruption.kind == "leave" and not _goes_after(machine, others, seen, admitted):
            return ""
        return f"one etcd member at a time; {others[0]} is leaving"
    joining = sorted(
        other.name
        for other in seen.staying
        if other.is_etcd
        and other.name != machine.name
        and not other.record.has_joined
        and other.presence != "missing"
    )
    if joining and disruption.kind != "leave":
        return f"one etcd member at a time; {joining[0]} is joining"
    return ""


def _goes_after(machine: MachineSeen, others: list[str], seen: Seen, admitted: Sequence[Disruption]) -> bool:
    if any(other.machine in others for other in admitted):
        return True
    leaving = [m for m in seen.leaving if m.name in others or m.name == machine.name]
    # One whose Node is already marked is in the middle of it.
    first = min(leaving, key=lambda m: (not (m.node and m.node.leaving_etcd), m.record.deleting, m.name))
    return first.name != machine.name


def _quorum(disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]) -> str:
    """Removing needs a majority now and must leave one: of 3 with one dead, 2 healthy suffice for both."""
    if not seen.is_member(machine):
        return ""
    members = len(seen.members)
    healthy = [member for member in seen.members if seen.is_healthy_member(member)]
    left = [member for member in healthy if member.name != machine.name]
    if len(healthy) <= members // 2:
        return f"only {len(healthy)} of {members} etcd members are healthy, so etcd has no quorum"
    if len(left) <= (members - 1) // 2:
        return f"etcd would keep {len(left)} healthy of {members - 1} members, which is no quorum"
    return ""


def _one_server_at_a_time(
    disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]
) -> str:
    """The API must stay: never the last healthy control plane, and one after the other."""
    if (
        disruption.kind == "leave"
        or Role.CONTROL_PLANE not in machine.record.roles
        or not seen.standing.initialized
    ):
        return ""
    others = [m for m in seen.staying if Role.CONTROL_PLANE in m.record.roles and m.name != machine.name]
    if not any(other.is_ready for other in others):
        return "no other control plane is Ready"
    by_name = {m.name: m for m in seen.machines}
    busy = [
        d.machine
        for d in admitted
        if Role.CONTROL_PLANE in by_name[d.machine].record.roles and d.kind != "leave"
    ]
    return f"one server at a time; {busy[0]} is leaving" if busy else ""


def _breaker(
    disruption: Disruption, machine: MachineSeen, seen: Seen, admitted: Sequence[Disruption]
) -> Reason:
    """When much of a pool is unhealthy at once, the cause is elsewhere, and replacing makes it worse."""
    pool = seen.cluster.find_pool(machine.pool)
    if disruption.kind != "replace" or pool is None or not seen.standing.initialized:
        return ""
    most = pool.max_unhealthy.of(pool.quantity)
    if is_tripped(pool, seen):
        return (
            f"{count_unhealthy(pool, seen)} of {pool.quantity} machines of pool {pool.name} are unhealthy, more than "
            f"the {most} that maxUnhealthy {pool.max_unhealthy} allows; look for a common cause"
        )
    if count_unhealthy(pool, seen) < pool.max_unhealthy.least:
        return f"unhealthyRange begins at {pool.max_unhealthy.least}"
    under_way = sum(1 for m in seen.leaving if m.pool == pool.name and not m.is_ready)
    under_way += sum(1 for d in admitted if d.kind == "replace" and d.machine in _names(pool, seen))
    if under_way >= most:
        return f"{under_way} of pool {pool.name} are being replaced already, and maxUnhealthy allows {most}"
    return _settling(pool, seen)


def _settling(pool: Pool, seen: Seen) -> Reason:
    """When the common cause ends, machines come back one by one; the last ones must not be replaced for being last."""
    breaker = seen.standing.find_breaker(pool.name)
    if breaker is None:
        return ""
    until = (breaker.released or seen.now) + pool.unhealthy_after
    if seen.now >= until:
        return ""
    return (
        f"many machines of pool {pool.name} were unhealthy until just now; the rest are given new time",
        until,
    )


def is_tripped(pool: Pool, seen: Seen) -> bool:
    """Whether more machines of the pool are unhealthy than may be replaced."""
    return count_unhealthy(pool, seen) > pool.max_unhealthy.of(pool.quantity)


def _names(pool: Pool, seen: Seen) -> set[str]:
    return {machine.name for machine in seen.machines if machine.pool == pool.name}


def count_unhealthy(pool: Pool, seen: Seen) -> int:
    """Machines of the pool that are not well, those that are being replaced included."""
    return sum(1 for machine in seen.machines if machine.pool == pool.name and is_unhealthy(machine, seen))


_GATES: tuple[Gate, ...] = (
    _last_member,
    _unknown_etcd,
    _one_etcd_at_a_time,
    _quorum,
    _one_server_at_a_time,
    _breaker,
)
