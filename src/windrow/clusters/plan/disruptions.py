"""Admission of disruptions: the only place where etcd quorum, the breaker and budgets count.

Sub-planners propose disruptions without regard to each other; `admit` admits what the cluster tolerates now and gives
the reason why the rest is held. No state is kept: the next reconcile proposes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from windrow.clusters.api.cluster import STARTUP_TIMEOUT, UNHEALTHY_TIMEOUT, Pool
from windrow.clusters.api.names import REPLACE_NOW
from windrow.clusters.plan.actions import BeginUpdate, Disruption, HeldDisruption
from windrow.clusters.plan.diagnosis import joinable_since, loss_hint
from windrow.clusters.plan.hosts.hold import why_not_disrupted
from windrow.clusters.plan.unrecorded import may_have_unrecorded_etcd_member
from windrow.clusters.plan.updates.gates import why_not_begin, why_not_removed
from windrow.clusters.state import ClusterState, MachineState, once_per_state, unreachable_reason

LAST_ETCD_MEMBER = "replacement skipped: last etcd member"
# Begins the reason why the deletion of that member waits; what the user can do follows.
HOLDS_ALL_DATA = "it is the last etcd member, with all data of the cluster"

# Why not, "" for no objection; with an instant at which to ask again, where only time helps.
Reason = str | tuple[str, datetime]
Gate = Callable[[Disruption, MachineState, ClusterState, "Admitted"], Reason]


@dataclass(slots=True)
class Admitted:
    """The disruptions that are admitted so far, and how many of each pool begin with them."""

    disruptions: list[Disruption] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)

    def add(self, disruption: Disruption, machine: MachineState) -> None:
        self.disruptions.append(disruption)
        self.begun[
            machine.pool
        ] += not machine.is_deleting  # else its etcd member is removed, and it is counted as deleted


def admit(
    disruptions: Sequence[Disruption], state: ClusterState
) -> tuple[list[Disruption], list[HeldDisruption]]:
    """Those that may happen now, and those that may not with the reason. What is under way is considered first."""
    by_name = state.machines_by_name
    admitted = Admitted()
    held: list[HeldDisruption] = []

    def order(disruption: Disruption) -> tuple[int, bool]:
        return _ORDER.index(disruption.kind), not by_name[disruption.machine].record.replace_now

    for disruption in sorted(disruptions, key=order):
        machine = by_name[disruption.machine]
        may_hold_data = machine.is_etcd and state.recorded.initialized
        gates = (*_ETCD_GATES, *_GATES) if may_hold_data else _GATES
        gates = _UPDATE_GATES if disruption.kind == "update" else gates
        reasons = ((name, gate(disruption, machine, state, admitted)) for name, gate in gates)
        gate, reason = next((found for found in reasons if found[1]), ("", ""))
        if reason:
            because, until = (reason, None) if isinstance(reason, str) else reason
            hint, due = _recovery_hint(machine, state) if reason == LAST_ETCD_MEMBER else ("", None)
            held.append(HeldDisruption(disruption, because, until or due, hint, gate))
        else:
            admitted.add(_with_counted(disruption, machine, state) if may_hold_data else disruption, machine)
    return admitted.disruptions, held


def _with_counted(disruption: Disruption, machine: MachineState, state: ClusterState) -> Disruption:
    """With the members that `_quorum` has counted, where one of them goes."""
    if not state.is_etcd_member(machine) or isinstance(disruption.action, BeginUpdate):
        return disruption
    counted = tuple(member.name for member in state.etcd_members if state.is_healthy_etcd_member(member))
    return replace(disruption, action=replace(disruption.action, counted=counted))


# A removal that has begun goes on before another begins; what is broken goes before what is merely too many. Of several
# of one kind those come first whose replacement a user asks for.
_ORDER = ("remove-member", "replace", "scale-down", "roll", "update")


def _update(disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted) -> str:
    """A turn of a change in place comes after all that is broken or too many."""
    by_name = state.machines_by_name
    going = [one.machine for one in admitted.disruptions if one.kind != "update"]
    if machine.record.is_server and any(by_name[name].record.is_server for name in going):
        return f"one server at a time; {going[0]} is leaving"
    return why_not_begin(machine, state, [one.machine for one in admitted.disruptions])


def _during_update(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """What is wrong with a machine in its turn is not a reason to replace it, unless a user asks for that. That another one has its
    turn keeps it all the same."""
    return why_not_removed(machine, state)


def _host_maintenance(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """A machine that is replaced for a change only waits for its host."""
    return why_not_disrupted(machine) if disruption.kind == "roll" else ""


def _last_etcd_member(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """The last member is the data. It may only go where another pool takes over, and then it is not the last."""
    others = [member for member in state.etcd_members if member.name != machine.name]
    if others:
        return ""
    if state.is_etcd_member(machine) or disruption.kind == "replace":
        replaced = disruption.kind == "replace"
        return LAST_ETCD_MEMBER if replaced else f"{HOLDS_ALL_DATA}; {_next_etcd_member(machine, state)}"
    return ""


def _next_etcd_member(machine: MachineState, state: ClusterState) -> str:
    """Where the member comes from that lets the last one go: one that joins, one to be created, or the user's decision."""
    if joining := sorted(
        other.name for other in state.active if other.is_etcd and other.name != machine.name
    ):
        return f"Machine {joining[0]} is joining"
    pools = [pool for pool in state.cluster.pools if pool.is_etcd]
    if paused := [pool.name for pool in pools if pool.paused]:
        return f"machine pool {paused[0]} is paused: resume it, with a quantity of 2 or more"
    if sum(pool.quantity for pool in pools) > 1:
        return "another one is created first"
    name = next((pool.name for pool in pools), machine.pool)
    cluster = f"{state.cluster.namespace}/{state.cluster.name}"
    return (
        f"raise the quantity of machine pool {name} (windrow scale {cluster} {name}=2), or delete the "
        f"Cluster (windrow delete {cluster})"
    )


def _recovery_hint(machine: MachineState, state: ClusterState) -> tuple[str, datetime | None]:
    """What a person can do about the last member, without which no other server can join; "" while it may recover by itself,
    with an instant at which to ask again."""
    if state.guest.is_reachable:
        return _next_etcd_member(machine, state), None
    if machine.presence == "missing":
        return loss_hint(machine, state), None
    if machine.is_down:
        return "", None  # it is started again
    ready, pool = machine.record.find_condition("Ready"), state.cluster.find_pool(machine.pool)
    since = ready.since if ready and ready.status != "True" and ready.since else state.now
    since = max(since, machine.record.last_restart or since)
    until = since + (pool.unhealthy_timeout if pool else UNHEALTHY_TIMEOUT)
    return ("", until) if state.now < until else (loss_hint(machine, state), None)


def _etcd_state_unknown(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """A member is removed only by what is seen now: another one may have been lost since the watches broke."""
    if not state.guest.is_reachable:
        return f"etcd members are not removed while {unreachable_reason(state.guest)}"
    if state.guest.interruption:
        return f"etcd members are not removed while the guest API is not watched ({state.guest.interruption})"
    unknown = next((member for member in state.etcd_members if member.presence == "unknown"), None)
    if unknown is not None:
        why = unknown.vm.because if unknown.vm and unknown.vm.because else "not observed yet"
        return f"etcd members are not removed while the state of {unknown.vm_ref} is unknown ({why})"
    return ""


def _unrecorded_etcd_member(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """The quorum is counted by Machines."""
    vm = may_have_unrecorded_etcd_member(state)
    return f"{vm} may be an etcd member too, and no Machine records it" if vm else ""


def _one_etcd_member_at_a_time(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> Reason:
    if not state.is_etcd_member(machine):
        return _joining_now(machine, state)  # etcd loses nothing with it, whatever the others do
    busy = {other.machine for other in admitted.disruptions} | {
        other.name for other in state.deleting if state.is_etcd_member(other)
    }
    others = sorted(
        other.name
        for other in state.machines
        if other.name in busy and other.is_etcd and other.name != machine.name
    )
    if others:
        waits = _waits_for_another(machine, others, state)
        return f"one etcd member at a time; {others[0]} is leaving" if waits else ""
    joining = [other.name for other in _list_joining(state.active) if other.name != machine.name]
    is_healthy = state.is_healthy_etcd_member(machine)
    is_lost = not is_healthy and machine.presence == "missing" and not _is_needed_for_quorum(machine, state)
    if joining and disruption.kind != "remove-member" and not is_lost:
        return f"one etcd member at a time; {joining[0]} is joining"
    if is_healthy:  # one that is dead leaves first: etcd adds no member while one does not answer
        reasons = (_joining_now(other, state) for other in state.active if other.is_etcd)
        return next((reason for reason in reasons if reason), "")
    return ""


def _joining_now(machine: MachineState, state: ClusterState) -> Reason:
    """Whether a machine without Node may be joining etcd at this moment, and until when.

    A server is a member some time before it is a Node. Were its VM deleted between the two, a cluster of one member would
    be one of two without a majority. Before it has an address it has not begun.
    """
    if machine.node is not None or machine.record.was_ready or machine.is_down or not machine.address:
        return ""
    pool = state.cluster.find_pool(machine.pool)
    until = joinable_since(machine, state) + ((pool and pool.startup_timeout) or STARTUP_TIMEOUT)
    return (f"{machine.name} ({machine.address}) may be joining etcd", until) if state.now < until else ""


def _waits_for_another(machine: MachineState, others: list[str], state: ClusterState) -> bool:
    """Of several that are leaving one goes first, else each would wait for the other. Any other machine waits, unless all of
    them have to stay for the quorum: then they may wait for it, and the quorum alone decides."""
    leaving = [m for m in state.deleting if m.name in others]
    if not machine.is_deleting:
        stay = {m.name for m in leaving if _is_needed_for_quorum(m, state)}
        return stay != set(others)

    def order(member: MachineState) -> tuple[bool, bool, bool, datetime | None, str]:
        # etcd itself refuses to remove one that the quorum needs, also where its Node is marked. Else one whose Node is
        # marked is in the middle of it. While a dead one is a member no new one joins. Else the eldest order goes first.
        needed = _is_needed_for_quorum(member, state)
        marked = member.node is not None and member.node.etcd_removal_requested
        healthy = state.is_healthy_etcd_member(member)
        return needed, not marked, healthy, member.record.deletion_timestamp, member.name

    return min([*leaving, machine], key=order).name != machine.name


def _is_needed_for_quorum(machine: MachineState, state: ClusterState) -> bool:
    return _why_quorum_is_lost(machine, state) != ""


def _majority_of_pools(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> Reason:
    """A healthy member stays where no majority of the servers that the pools ask for would remain
    members, while another one is created or joins; no longer than the start of that one may take."""
    if not state.is_healthy_etcd_member(machine):
        return ""
    pools = [pool for pool in state.cluster.pools if pool.is_etcd]
    wanted = sum(pool.quantity for pool in pools)
    remaining = sum(1 for member in state.etcd_members if state.is_healthy_etcd_member(member)) - 1
    if 2 * remaining > wanted:
        return ""
    what = f"etcd would have {remaining} healthy of {wanted} members that the pools ask for"
    for pool in pools:
        if pool.paused or pool.options is None:
            continue
        active = state.of_pool(pool)
        leaving = sum(1 for m in state.deleting if m.pool == pool.name and state.is_etcd_member(m))
        if len(active) + leaving < pool.quantity:
            return f"{what}; a server of pool {pool.name} is created first"
        for other in _list_joining(active):
            until = joinable_since(other, state) + (pool.startup_timeout or STARTUP_TIMEOUT)
            if state.now < until:
                return f"{what}; {other.name} is joining", until
    return ""


def _list_joining(machines: Sequence[MachineState]) -> list[MachineState]:
    """Those of the etcd role that have not joined yet, by name."""
    found = (m for m in machines if m.is_etcd and not m.record.has_joined and m.presence != "missing")
    return sorted(found, key=lambda machine: machine.name)


def _quorum(disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted) -> str:
    return _why_quorum_is_lost(machine, state)


def _why_quorum_is_lost(machine: MachineState, state: ClusterState) -> str:
    """Why its member cannot be removed: that needs a majority now and must leave one. Of 3 with one dead, 2 healthy suffice
    for both."""
    if not state.is_etcd_member(machine):
        return ""
    members = len(state.etcd_members)
    healthy = [member for member in state.etcd_members if state.is_healthy_etcd_member(member)]
    remaining = [member for member in healthy if member.name != machine.name]
    if len(healthy) <= members // 2:
        return f"only {len(healthy)} of {members} etcd members are healthy, so etcd has no quorum"
    if len(remaining) <= (members - 1) // 2:
        return f"etcd would keep {len(remaining)} healthy of {members - 1} members, which is no quorum"
    return ""


def _one_control_plane_at_a_time(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> str:
    """The API must stay: never the last healthy control plane, and one after the other."""
    if (
        disruption.kind == "remove-member"
        or not machine.record.is_control_plane
        or not state.recorded.initialized
    ):
        return ""
    others = [m for m in state.active if m.record.is_control_plane and m.name != machine.name]
    if not any(other.is_ready and not other.is_going_down for other in others):
        return "no other control plane is Ready"
    by_name = state.machines_by_name
    busy = [
        d.machine
        for d in admitted.disruptions
        if by_name[d.machine].record.is_control_plane and d.kind != "remove-member"
    ]
    return f"one server at a time; {busy[0]} is leaving" if busy else ""


def _breaker(
    disruption: Disruption, machine: MachineState, state: ClusterState, admitted: Admitted
) -> Reason:
    """When much of a pool is unhealthy at once, the cause is elsewhere, and replacing makes it worse.

    Two exceptions. Where Harvester itself says that a VM is gone there is nothing left that could recover: how many such
    machines there are never holds them, only how many are being replaced. And an annotation on one Machine is a decision about it:
    of a pool that is annotated as a whole, too, no more go at a time.
    """
    pool = state.cluster.find_pool(machine.pool)
    if disruption.kind != "replace" or pool is None or not state.recorded.initialized:
        return ""
    most = pool.max_unhealthy.resolve(pool.quantity)
    if machine.record.replace_now:
        return _budget(pool, max(1, most), state, admitted)
    if count_unhealthy(pool, state) < pool.max_unhealthy.minimum:
        return f"unhealthyRange begins at {pool.max_unhealthy.minimum}"
    if machine.presence == "missing":
        return _budget(pool, most, state, admitted)
    if is_tripped(pool, state):
        return (
            f"{count_unhealthy(pool, state)} of {pool.quantity} machines of pool {pool.name} are unhealthy, more than "
            f"the {most} that maxUnhealthy {pool.max_unhealthy} allows; look for a common cause, or annotate the Machine "
            f"with {REPLACE_NOW}"
        )
    under_way = _count_going(state)[pool.name] + admitted.begun[pool.name]
    if under_way >= most:
        return f"{under_way} of pool {pool.name} are being replaced already, and maxUnhealthy allows {most}"
    return _cooling_down(pool, state)


def _budget(pool: Pool, most: int, state: ClusterState, admitted: Admitted) -> str:
    """As many as maxUnhealthy allows are replaced at a time, those that boot included: where VMs vanish as fast as they
    are created, no more than that are. A machine that is to be replaced by annotation boots for nothing, and one that is
    deleted and stays for the quorum may wait for this very replacement."""
    under_way = _count_under_way(state)[pool.name] + admitted.begun[pool.name]
    if under_way < most:
        return ""
    return (
        f"{under_way} machines of pool {pool.name} are being replaced or boot, and maxUnhealthy {pool.max_unhealthy} "
        f"allows {most} at a time"
    )


def _cooling_down(pool: Pool, state: ClusterState) -> Reason:
    """When the common cause ends, machines come back one by one; the last ones must not be replaced for being last."""
    breaker = state.recorded.breakers.get(pool.name)
    if breaker is None:
        return ""
    until = (breaker.released or state.now) + pool.unhealthy_timeout
    if state.now >= until:
        return ""
    return (
        f"many machines of pool {pool.name} were unhealthy until just now; the others get another unhealthyNodeTimeout",
        until,
    )


def is_tripped(pool: Pool, state: ClusterState) -> bool:
    """Whether more machines of the pool are unhealthy than may be replaced, and not all of them are gone."""
    unhealthy = _list_unhealthy(state).get(pool.name, ())
    if len(unhealthy) <= pool.max_unhealthy.resolve(pool.quantity):
        return False
    return any(machine.presence != "missing" for machine in unhealthy)


@once_per_state
def _count_going(state: ClusterState) -> Counter[str]:
    """Machines that are being deleted and are not Ready, by pool."""
    return Counter(machine.pool for machine in state.deleting if not machine.is_ready)


@once_per_state
def _count_under_way(state: ClusterState) -> Counter[str]:
    """Machines that are being replaced, or boot, by pool."""
    going = Counter(machine.pool for machine in state.deleting if not _is_needed_for_quorum(machine, state))
    return going + Counter(machine.pool for machine in state.active if _boots(machine))


def _boots(machine: MachineState) -> bool:
    record = machine.record
    return not record.was_ready and machine.presence != "missing" and not record.replace_now


@once_per_state
def _list_unhealthy(state: ClusterState) -> Mapping[str, Sequence[MachineState]]:
    """By pool."""
    found: dict[str, list[MachineState]] = {}
    for machine in state.machines:
        if is_unhealthy(machine, state):
            found.setdefault(machine.pool, []).append(machine)
    return found


def count_unhealthy(pool: Pool, state: ClusterState) -> int:
    """Machines of the pool that are not well, those that are being replaced included."""
    return len(_list_unhealthy(state).get(pool.name, ()))


def is_unhealthy(machine: MachineState, state: ClusterState) -> bool:
    """For the breaker: its Node was Ready and is not now; or its VM is missing, with or without a Node."""
    if machine.presence == "missing" and not machine.is_ready:
        return True
    return machine.record.was_ready and state.guest.is_reachable and not machine.is_ready


# Each with what metrics call it, part of the API. These are asked about a machine with the etcd role, once there is an etcd.
_ETCD_GATES: tuple[tuple[str, Gate], ...] = (
    ("LastEtcdMember", _last_etcd_member),
    ("EtcdStateUnknown", _etcd_state_unknown),
    ("UnrecordedEtcdMember", _unrecorded_etcd_member),
    ("EtcdMemberChanging", _one_etcd_member_at_a_time),
    ("PoolMajority", _majority_of_pools),
)
_GATES: tuple[tuple[str, Gate], ...] = (
    ("MachineUpdating", _during_update),
    ("HostMaintenance", _host_maintenance),
    ("EtcdQuorum", _quorum),
    ("ControlPlaneChanging", _one_control_plane_at_a_time),
    ("Breaker", _breaker),
)
_UPDATE_GATES: tuple[tuple[str, Gate], ...] = (("UpdateTurn", _update),)
GATE_NAMES = tuple(name for name, _ in (*_ETCD_GATES, *_GATES, *_UPDATE_GATES))
