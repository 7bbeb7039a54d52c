"""Carrying out a plan: the cluster's actions in their order, then those of its machines side by side.

The promise that all deeds keep: what is going to be made outside is written down before it is made, and what was
learned is written down before it is used.
"""

from __future__ import annotations

import asyncio
import logging

from windrow.bootstrap.intent import BadIntent
from windrow.clusters import actions as do
from windrow.clusters import cluster_deeds, machine_deeds
from windrow.clusters.actions import Action
from windrow.clusters.desk import Desk, Lost, find_machine
from windrow.clusters.journal import Journal, Weight
from windrow.clusters.kinds import CLUSTER, MACHINE
from windrow.clusters.plan import Plan
from windrow.clusters.registries import RegistrySecretMissing
from windrow.clusters.sealed import CredentialMissing
from windrow.clusters.seen import Seen, Trouble
from windrow.clusters.status import credential_condition, held_sentence
from windrow.kube.conditions import find_condition
from windrow.kube.errors import KubeError
from windrow.machines.port import InfrastructureUnknown, MachineRefused

log = logging.getLogger(__name__)

DEEDS = {**cluster_deeds.DEEDS, **machine_deeds.DEEDS}
MOST_AT_ONCE = 8
# After so much has been done the world is looked at anew: of 500 machines asked for, only 1 may be wanted by now.
MOST_AT_A_LOOK = 64
# No event: too many, or of no interest.
_QUIET = (do.GrantAccess, do.Evict, do.Claim, do.RecordAccount, do.MeetGuest)


class Carrier:
    """Carries out plans for one manager."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._journal = Journal(desk.api, desk.clock, desk.chance)

    async def carry_out(self, plan: Plan, seen: Seen) -> dict[str, Trouble]:
        """Do what is planned; what broke is returned by subject. One subject's trouble does not stop the others."""
        troubles: dict[str, Trouble] = {}
        await self._lane("", [action for action in plan.actions if not action.subject], seen, troubles)
        rest: dict[str, list[Action]] = {}
        for action in plan.actions:
            if action.subject:
                rest.setdefault(action.subject, []).append(action)
        free = asyncio.Semaphore(MOST_AT_ONCE)
        done = 0

        async def one(subject: str, lane: list[Action]) -> None:
            nonlocal done
            async with free:
                if done >= MOST_AT_A_LOOK:
                    return
                await self._lane(subject, lane, seen, troubles)
                done += subject not in troubles  # those that fail must not keep the others from their turn

        async with asyncio.TaskGroup() as group:
            for subject, lane in rest.items():
                group.create_task(one(subject, lane))
        return troubles

    async def _lane(self, subject: str, lane: list[Action], seen: Seen, troubles: dict[str, Trouble]) -> None:
        for action in lane[:MOST_AT_A_LOOK]:
            log.info("%s/%s: %s", seen.cluster.namespace, seen.cluster.name, action)
            try:
                await DEEDS[type(action)](self._desk, action, seen)
            except Lost:
                return
            except Exception as error:
                troubles[subject] = self._trouble(action, error)
                return
            await self._tell(action, seen)

    def _trouble(self, action: Action, error: Exception) -> Trouble:
        now = self._desk.clock.now()
        match error:
            case InfrastructureUnknown() | CredentialMissing() | RegistrySecretMissing() | BadIntent():
                return Trouble(error.fact, error.cure, now)
            case MachineRefused():
                first, *rest = error.problems
                more = f" (and {len(rest)} more)" if rest else ""
                return Trouble(f"{first.fact}{more}", first.cure, now)
            case KubeError():
                log.warning("%s: %s", action, error)
                return Trouble(f"{action.in_words} failed: {error}", "it is tried again", now)
            case _:
                log.exception("%s", action, exc_info=error)
                return Trouble(
                    f"{action.in_words} failed: {error!r}", "this is a defect; please report it", now
                )

    async def _tell(self, action: Action, seen: Seen) -> None:
        if isinstance(action, _QUIET):
            return
        machine = find_machine(action.subject, seen)
        if isinstance(action, do.Remove) and machine is not None and machine.removal_ordered is not None:
            return  # the order is repeated
        if machine is not None and machine.record.raw:
            await self._journal.note(MACHINE, machine.record.raw, action.reason, action.because)
        subject = f"{action.subject}: " if action.subject else ""
        weight: Weight = "Warning" if isinstance(action, do.KeepBalancers) else "Normal"
        await self._journal.note(
            CLUSTER, seen.cluster.raw, action.reason, f"{subject}{action.because}", weight
        )

    async def tell_held(self, plan: Plan, seen: Seen) -> None:
        """An event for each repair that is newly held; the condition tells of those that were held before."""
        before = find_condition(seen.standing.raw.get("conditions"), "RepairAllowed")
        for held in plan.held:
            sentence = held_sentence(held)
            if held.disruption.kind != "replace" or (before is not None and sentence in before.message):
                continue
            machine = find_machine(held.disruption.machine, seen)
            if machine is not None and machine.record.raw:
                await self._journal.note(MACHINE, machine.record.raw, "RepairHeld", held.because, "Warning")
            await self._journal.note(CLUSTER, seen.cluster.raw, "RepairHeld", sentence, "Warning")

    async def tell_credential(self, seen: Seen) -> None:
        """An event when a credential opens nothing any more, or for another reason than before."""
        now = credential_condition(seen)
        before = find_condition(seen.standing.raw.get("conditions"), "CredentialValid")
        if now is None or now.status == "True" or (before and before.message == now.message):
            return
        await self._journal.note(CLUSTER, seen.cluster.raw, f"Credential{now.reason}", now.message, "Warning")


def trouble_lasts(before: Trouble | None, now: Trouble) -> Trouble:
    """The same trouble keeps its date."""
    if before is not None and (before.fact, before.cure) == (now.fact, now.cure):
        return before
    return now
