"""Remediation: start VMs that are stopped, and ask to replace machines that are unhealthy, as `diagnosis` has it."""

from __future__ import annotations

from windrow.clusters.plan.actions import DeleteMachine, Disruption, PartialPlan, StartVM, Wait
from windrow.clusters.plan.diagnosis import Diagnoses, is_last_etcd_member
from windrow.clusters.state import ClusterState, MachineState


def plan(state: ClusterState, diagnoses: Diagnoses) -> PartialPlan:
    partial = PartialPlan()
    for machine in state.active:
        diagnosis = diagnoses[machine.name]
        if state.cluster.find_pool(machine.pool) is None or not machine.record.was_created:
            continue
        match diagnosis.health:
            case "healthy":
                continue
            case "waiting":
                partial.waits.append(
                    Wait(diagnosis.waiting_for, diagnosis.next, machine.name, diagnosis.until)
                )
            case "stopped":
                partial.actions.append(StartVM(diagnosis.because, machine.name))
            case "unhealthy":
                partial.disruptions.append(_replacement(machine, diagnosis.because))
                continue
        # For the last member it is proposed although it is never admitted, so that the status says what will not
        # happen; of a machine whose VM is unknown there is nothing to say but that.
        if machine.presence != "unknown" and is_last_etcd_member(machine, state):
            partial.disruptions.append(_replacement(machine, diagnosis.because or diagnosis.waiting_for))
    return partial


def _replacement(machine: MachineState, because: str) -> Disruption:
    return Disruption("replace", machine.name, DeleteMachine(because, machine.name))
