"""Carrying out a plan: the cluster's actions in their order, then those of its machines side by side.

The promise that all deeds keep: what is going to be made outside is written down before it is made, and what was
learned is written down before it is used.
"""

from __future__ import annotations

import asyncio
import logging

from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.context import ReconcileContext, StalePlan, find_machine
from windrow.clusters.event_recorder import EventRecorder, EventType
from windrow.clusters.execute import cluster_actions, machine_actions
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.actions import Action
from windrow.clusters.plan.planner import Plan
from windrow.clusters.registries import RegistrySecretError
from windrow.clusters.state import ActionFailure, ClusterState
from windrow.clusters.status import credential_condition, held_sentence
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import KubeError
from windrow.machines.port import InfrastructureUnknown, MachineRefused

log = logging.getLogger(__name__)

HANDLERS = {**cluster_actions.HANDLERS, **machine_actions.HANDLERS}
MAX_CONCURRENT = 8
# After so much has been done the world is looked at anew: of 500 machines asked for, only 1 may be wanted by now.
MAX_PER_RECONCILE = 64
# No event: too many, or of no interest.
_WITHOUT_EVENT = (
    do.CreateServiceAccount,
    do.EvictPods,
    do.AddFinalizer,
    do.RecordServiceAccount,
    do.RecordGuestUID,
)


class Executor:
    """Carries out plans for one manager."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._events = EventRecorder(context.api, context.clock, context.rng)

    async def execute(self, plan: Plan, state: ClusterState) -> dict[str, ActionFailure]:
        """Do what is planned; what broke is returned by subject. One subject's trouble does not stop the others."""
        failures: dict[str, ActionFailure] = {}
        await self._run_queue("", [action for action in plan.actions if not action.subject], state, failures)
        rest: dict[str, list[Action]] = {}
        for action in plan.actions:
            if action.subject:
                rest.setdefault(action.subject, []).append(action)
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        done = 0

        async def one(subject: str, actions: list[Action]) -> None:
            nonlocal done
            async with slots:
                if done >= MAX_PER_RECONCILE:
                    return
                await self._run_queue(subject, actions, state, failures)
                done += subject not in failures  # those that fail must not keep the others from their turn

        async with asyncio.TaskGroup() as group:
            for subject, actions in rest.items():
                group.create_task(one(subject, actions))
        return failures

    async def _run_queue(
        self, subject: str, actions: list[Action], state: ClusterState, failures: dict[str, ActionFailure]
    ) -> None:
        for action in actions[:MAX_PER_RECONCILE]:
            log.info("%s/%s: %s", state.cluster.namespace, state.cluster.name, action)
            try:
                await HANDLERS[type(action)](self._context, action, state)
            except StalePlan:
                return
            except Exception as error:
                failures[subject] = self._describe_failure(action, error)
                return
            await self._record_event(action, state)

    def _describe_failure(self, action: Action, error: Exception) -> ActionFailure:
        now = self._context.clock.now()
        match error:
            case InfrastructureUnknown():
                return ActionFailure(error.message, error.hint, now)
            case CredentialError() | RegistrySecretError() | InvalidBootstrapSpec():
                return ActionFailure(error.message, error.hint, now)
            case MachineRefused():
                first, *rest = error.problems
                more = f" (and {len(rest)} more)" if rest else ""
                return ActionFailure(f"{first.message}{more}", first.hint, now)
            case KubeError():
                log.warning("%s: %s", action, error)
                return ActionFailure(f"{action.in_words} failed: {error}", "it is tried again", now)
            case _:
                log.exception("%s", action, exc_info=error)
                return ActionFailure(
                    f"{action.in_words} failed: {error!r}", "this is a defect; please report it", now
                )

    async def _record_event(self, action: Action, state: ClusterState) -> None:
        if isinstance(action, _WITHOUT_EVENT):
            return
        machine = find_machine(action.subject, state)
        if isinstance(action, do.DeleteVM) and machine is not None and machine.deletion_requested is not None:
            return  # the order is repeated
        if machine is not None and machine.record.raw:
            await self._events.event(MACHINE, machine.record.raw, action.reason, action.because)
        subject = f"{action.subject}: " if action.subject else ""
        weight: EventType = "Warning" if isinstance(action, do.KeepLoadBalancers) else "Normal"
        await self._events.event(
            CLUSTER, state.cluster.raw, action.reason, f"{subject}{action.because}", weight
        )

    async def record_held(self, plan: Plan, state: ClusterState) -> None:
        """An event for each repair that is newly held; the condition tells of those that were held before."""
        before = find_condition(state.recorded.raw.get("conditions"), "RepairAllowed")
        for held in plan.held:
            sentence = held_sentence(held)
            if held.disruption.kind != "replace" or (before is not None and sentence in before.message):
                continue
            machine = find_machine(held.disruption.machine, state)
            if machine is not None and machine.record.raw:
                await self._events.event(MACHINE, machine.record.raw, "RepairHeld", held.because, "Warning")
            await self._events.event(CLUSTER, state.cluster.raw, "RepairHeld", sentence, "Warning")

    async def record_credential_problem(self, state: ClusterState) -> None:
        """An event when a credential opens nothing any more, or for another reason than before."""
        now = credential_condition(state)
        before = find_condition(state.recorded.raw.get("conditions"), "CredentialValid")
        if now is None or now.status == "True" or (before and before.message == now.message):
            return
        await self._events.event(
            CLUSTER, state.cluster.raw, f"Credential{now.reason}", now.message, "Warning"
        )


def keep_since(before: ActionFailure | None, now: ActionFailure) -> ActionFailure:
    """The same trouble keeps its date."""
    if before is not None and (before.message, before.hint) == (now.message, now.hint):
        return before
    return now
