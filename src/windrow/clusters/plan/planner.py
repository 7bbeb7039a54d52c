"""One observed state in, one plan out. Pure: reads no clock, draws no random number, awaits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from windrow.clusters.api.immutable_config import is_restored
from windrow.clusters.plan import bootstrap, deletion, endpoint_balancers, guest_access, pools
from windrow.clusters.plan.actions import (
    Action,
    CreateLoadBalancer,
    CreateServiceAccount,
    DeleteMachine,
    Disruption,
    HeldDisruption,
    ProvisionVM,
    StartVM,
    Wait,
)
from windrow.clusters.plan.diagnosis import Diagnoses, diagnose_all, remediation_disabled
from windrow.clusters.plan.disruptions import admit
from windrow.clusters.plan.hosts import maintenance
from windrow.clusters.plan.operations import new_cluster, restore, rotation, snapshots
from windrow.clusters.plan.updates import charts, turns
from windrow.clusters.plan.volumes import fencing
from windrow.clusters.state import ClusterState, ManagerLease
from windrow.machines.port import Problem


@dataclass(frozen=True)
class Plan:
    """What to do now, what not and why, what is waited for, and what only the user can change."""

    actions: tuple[Action, ...] = ()
    held: tuple[HeldDisruption, ...] = ()
    waits: tuple[Wait, ...] = ()
    refused: tuple[Problem, ...] = ()
    diagnoses: Diagnoses = field(default_factory=dict)
    admitted: tuple[Disruption, ...] = ()

    @cached_property
    def held_by_machine(self) -> Mapping[str, HeldDisruption]:
        """Of each machine the first that is held."""
        return {held.disruption.machine: held for held in reversed(self.held)}

    @cached_property
    def waits_by_machine(self) -> Mapping[str, Wait]:
        """Of each machine the first."""
        return {wait.machine: wait for wait in reversed(self.waits)}

    @cached_property
    def started(self) -> frozenset[str]:
        """The machines whose VM is started."""
        return frozenset(action.machine for action in self.actions if isinstance(action, StartVM))


def plan_cluster(state: ClusterState) -> Plan:
    """The plan for one Cluster."""
    diagnoses = diagnose_all(state)
    refused = () if state.cluster.deletion_timestamp is not None else find_refusals(state)
    if state.cluster.deletion_timestamp is not None:
        partial = snapshots.plan_deletion(state).add(deletion.plan_deletion(state))
    elif refused or state.is_on_another_harvester:
        partial = deletion.plan(state)  # what is being deleted still is; nothing new is begun
    elif restore.is_exclusive(state):
        partial = restore.plan(state)
    else:
        partial = bootstrap.plan_preparation(state).add(guest_access.plan(state))
        partial.add(endpoint_balancers.plan(state)).add(snapshots.plan(state)).add(restore.plan(state))
        rotations = rotation.plan(state)
        is_alone = rotation.begins(rotations)
        partial.add(rotations)
        if bootstrap.is_prepared(state):
            partial.add(maintenance.plan(state, disabled=_list_without_remediation(state)))
            if not restore.is_under_way(state):
                partial.add(charts.plan(state))
                # First: of a machine in its turn that is what is waited for.
                partial.add(turns.plan(state, may_begin=not is_alone))
            partial.add(bootstrap.plan(state))
            if not restore.holds_remediation(state):
                partial.add(pools.plan_remediation(state, diagnoses))
            partial.add(deletion.plan(state))
            if not new_cluster.holds_pools(state):
                partial.add(pools.plan(state, may_roll=not is_alone))
        else:
            partial.add(deletion.plan(state))
    if state.cluster.deletion_timestamp is None and not restore.is_exclusive(state):
        partial.add(fencing.plan(state))
    admitted, held = admit(partial.disruptions, state)
    wanted = _without_duplicates([*partial.actions, *(disruption.action for disruption in admitted)])
    actions = tuple(action for action in wanted if is_permitted(action, state, state.lease))
    waits = tuple(partial.waits)
    if actions != wanted:
        waits = (_wait_for_lease(state.lease), *waits)
    return Plan(actions, tuple(held), waits, refused, diagnoses, tuple(admitted))


def _list_without_remediation(state: ClusterState) -> frozenset[str]:
    return frozenset(machine.name for machine in state.active if remediation_disabled(machine, state))


def is_permitted(action: Action, state: ClusterState, lease: ManagerLease) -> bool:
    """Whether the action may be executed while the Lease is so: another manager may work on what is on Harvester.

    A cluster with nothing there yet is prepared, and deleted, also where no Lease can be had.
    """
    if lease.permits:
        return True
    return not state.has_begun and not isinstance(
        action, CreateServiceAccount | CreateLoadBalancer | ProvisionVM
    )


def _wait_for_lease(lease: ManagerLease) -> Wait:
    if lease.state == "taken":
        return Wait(f"{lease} to be released by manager {lease.holder}", "this manager continues")
    return Wait(f"{lease} on Harvester to be acquired", "reconciliation resumes")


def find_refusals(state: ClusterState) -> tuple[Problem, ...]:
    """The errors that stop everything. Once the cluster has started, also while it is restored, it runs on with those of version, configs and labels, and of what it keeps as recorded."""
    problems = (*state.problems, *(state.preflight or ()))
    errors = (problem for problem in problems if problem.severity == "error")
    return tuple(
        error for error in errors if not (state.recorded.has_started and _is_tolerable(error, state))
    )


def _is_tolerable(problem: Problem, state: ClusterState) -> bool:
    suffixes = ("machineConfigRef", "machineConfigRef.kind", ".labels")
    whole = problem.field == "spec.kubernetesVersion" or problem.field.startswith(restore.FIELD)
    if whole or problem.field.endswith(suffixes):
        return True
    # Machines are made with what is recorded.
    return state.recorded.immutable_config is not None and is_restored(problem.field)


def _without_duplicates(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Two sub-planners may delete one machine for two reasons: the first reason counts, and nothing else is done."""
    deletions: dict[str, DeleteMachine] = {}
    for action in actions:
        if isinstance(action, DeleteMachine):
            deletions.setdefault(action.machine, action)
    return tuple(action for action in actions if deletions.get(action.subject, action) is action)
