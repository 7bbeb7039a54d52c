"""Hosts of Harvester in maintenance, and the machines on them: what becomes of a VM there, and what is done about it.

Harvester decides when a host is emptied, and waits for no guest. What the manager can do:

    VM migrates       nothing; it is away for a moment, and repair is held meanwhile
    VM is shut down   its Node is cordoned and drained at once, in the time that Harvester gives, as PodDisruptionBudgets allow;
                      the VM is started when the host is back, not before
    host is back      a VM that is off is started as any other that is stopped; the Node is uncordoned where it was cordoned here

A VM is shut down where KubeVirt says that it cannot be migrated, where its label asks for that in maintenance mode, or where no
other host takes VMs. It is not started on another host at once, though it could be: hosts are upgraded one after the other, and it
would be shut down again with the next; and two etcd members, which were spread over hosts, would be on one then.

Who turned a VM off cannot be told from the VM: Harvester and a person do the same to it. So one that is found off on such a
host is taken to have been shut down for it, and is started afterwards as every stopped VM is. Who wants a VM to stay off pauses its
pool or turns remediation off; that holds here, too.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from windrow.clusters.api.updates.maintenance import RecordedMaintenance
from windrow.clusters.plan.actions import (
    CordonNode,
    EndMaintenance,
    EvictPods,
    PartialPlan,
    RecordHostBack,
    RecordMaintenance,
)
from windrow.clusters.plan.hosts.hold import is_expired, is_shutting_down
from windrow.clusters.plan.updates.drain import drain_options, list_leaving
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some
from windrow.harvester.hosts.maintenance import HostMaintenance, why_shut_down

# Evictions that a PodDisruptionBudget has refused are asked for again.
RECHECK = timedelta(seconds=5)


def plan(state: ClusterState, *, disabled: frozenset[str] = frozenset()) -> PartialPlan:
    """What is done for each machine whose host is in maintenance, or was. For the machines `disabled` nothing is begun."""
    partial = PartialPlan()
    for machine in state.active:
        if not machine.record.was_created:
            continue
        if machine.maintenance is not None:
            if machine.name not in disabled and machine.presence == "present":
                _prepare(machine, machine.maintenance, state, partial)
        elif machine.record.maintenance is not None and (
            machine.are_hosts_known or is_expired(machine, state)
        ):
            _release(machine, machine.record.maintenance, state, partial)
    return partial


def list_drained(state: ClusterState) -> list[MachineState]:
    """The machines whose pods are evicted before their VM is shut down."""
    if state.cluster.deletion_timestamp is not None:
        return []
    return [
        machine
        for machine in state.active
        if is_shutting_down(machine) and machine.maintenance is not None and _may_drain(machine, state)
    ]


def _prepare(machine: MachineState, live: HostMaintenance, state: ClusterState, partial: PartialPlan) -> None:
    before, node = machine.record.maintenance, machine.node
    wanted = _record_of(machine, live, state)
    if before != wanted:
        partial.actions.append(RecordMaintenance(_describe(machine, wanted, state), machine.name, wanted))
        return
    if node is None or not (wanted.shutdown and _may_drain(machine, state)):
        return
    if wanted.cordoned and not node.unschedulable:
        partial.actions.append(
            CordonNode(f"{wanted}, and {machine.vm_ref} is shut down with it", machine.name, node.name)
        )
        return
    leaving = list_leaving(machine, state)
    if not leaving:
        return
    to_evict = tuple((pod.namespace, pod.name) for pod in leaving if not pod.is_deleting)
    if to_evict:
        seconds = drain_options(machine, state).grace_period
        partial.actions.append(EvictPods(str(wanted), machine.name, to_evict, grace_period=seconds))
    named = join_some([f"{pod.namespace}/{pod.name}" for pod in leaving])
    partial.wait(
        f"{len(leaving)} pods to be evicted from Node {node.name} ({named}); {wanted}",
        f"Harvester shuts {machine.vm_ref} down when it comes to it",
        machine.name,
        state.now + RECHECK,
    )


def _record_of(machine: MachineState, live: HostMaintenance, state: ClusterState) -> RecordedMaintenance:
    """What is to be recorded: once that the VM is shut down, it stays so, since a VM that is off has no more to say of that."""
    before, vm, node = machine.record.maintenance, machine.vm, machine.node
    is_same = before is not None and before.host == live.host and before.ended is None
    shutdown = before.shutdown if before is not None and is_same else ""
    if vm is not None and vm.host and not machine.is_going_down and not shutdown:
        shutdown = why_shut_down(live, vm.is_migratable, vm.maintenance_strategy)
    elif not is_same and machine.is_going_down:
        shutdown = "it is off"
    cordons = bool(shutdown) and _may_drain(machine, state) and node is not None and not node.unschedulable
    return RecordedMaintenance(
        host=live.host,
        because=live.because,
        since=before.since if before is not None and is_same else state.now.replace(microsecond=0),
        shutdown=shutdown,
        cordoned=(before is not None and before.cordoned) or cordons,
    )


def _describe(machine: MachineState, wanted: RecordedMaintenance, state: ClusterState) -> str:
    if machine.is_going_down:
        return f"{wanted}; {machine.vm_ref} is {machine.vm.state if machine.vm else 'off'}, and started once the host is back"
    if not wanted.shutdown:
        return f"{wanted}; {machine.vm_ref} migrates"
    drains = ", and its Node is drained" if wanted.cordoned else ""
    sentence = f"{wanted}; {machine.vm_ref} is shut down with it, since {wanted.shutdown}{drains}"
    return f"{sentence}{_quorum_note(machine, state)}"


def _quorum_note(machine: MachineState, state: ClusterState) -> str:
    """Harvester asks no guest whether its etcd can do without a member."""
    if not state.is_etcd_member(machine):
        return ""
    members = state.etcd_members
    others = [one for one in members if one.name != machine.name and state.is_healthy_etcd_member(one)]
    running = [one for one in others if not is_shutting_down(one)]
    if 2 * len(running) > len(members):
        return ""
    return f"; etcd keeps {len(running)} of {len(members)} members, which is no quorum, until it runs again"


def _may_drain(machine: MachineState, state: ClusterState) -> bool:
    """Whether its pods can go: it runs and is Ready, its Node is not in the hands of a turn, and another Node that stays can take
    them. A lone Node is not even cordoned."""
    if not (state.guest.is_reachable and machine.is_ready) or machine.is_going_down:
        return False
    if machine.record.update is not None:
        return False
    return any(
        one.is_ready
        and one.node is not None
        and not one.node.unschedulable
        and not is_shutting_down(one)
        and not one.is_going_down
        for one in state.active
        if one.name != machine.name
    )


def _release(
    machine: MachineState, record: RecordedMaintenance, state: ClusterState, partial: PartialPlan
) -> None:
    """The host is back, or the VM is on another one. It is over once the machine is well."""
    vm = machine.vm
    is_well = state.guest.is_reachable and machine.is_ready and not machine.is_going_down
    if is_well and vm is not None and vm.presence == "present" and vm.state == "running":
        why = (
            f"host {record.host} is back"
            if vm.host == record.host
            else f"it runs on host {vm.host or 'unknown'}"
        )
        partial.actions.append(EndMaintenance(why, machine.name, machine.node_name, record.cordoned))
    elif record.ended is None:
        ended = replace(record, ended=state.now.replace(microsecond=0))
        partial.actions.append(RecordHostBack(f"host {record.host} is back", machine.name, ended))
