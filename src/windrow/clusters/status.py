"""Status: derived once, at the end, from everything that was seen and decided.

Conditions, events, CLI and dashboard print the same sentences, and all of them are made here or come from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.clusters import names
from windrow.clusters.actions import Start, Wait, brief
from windrow.clusters.admission import LAST_MEMBER, is_tripped
from windrow.clusters.endpoint import MODE, find_apis, find_server
from windrow.clusters.parts import Held
from windrow.clusters.plan import Plan
from windrow.clusters.reading import Pool
from windrow.clusters.records import roles_word
from windrow.clusters.repair import next_of_state
from windrow.clusters.rollout import find_changes
from windrow.clusters.seen import INITIALIZING, MachineSeen, Seen, Trouble, silent_about
from windrow.kube.conditions import Condition, Truth, set_condition
from windrow.values.clock import stamp

Troubles = Mapping[str, Trouble]  # by machine name; "" is the cluster's own

_PHASES = {
    "provisioning": "Provisioning",
    "starting": "Starting",
    "stopping": "Stopping",
    "stopped": "Stopped",
    "failed": "Failed",
    "migrating": "Migrating",
    "deleting": "Vanishing",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one machine is, and what it waits for."""

    phase: str
    what: str = ""
    then: str = ""


def find_progress(machine: MachineSeen, seen: Seen, trouble: Trouble | None = None) -> Progress:
    """How far the machine is by what was seen, the plan left aside."""
    name = machine.name
    if machine.is_leaving:
        return Progress("Removing", f"{name} to be removed", "its record goes")
    if seen.is_complete(machine):
        return Progress("Ready")
    if not machine.record.was_made:
        words = f" ({trouble.fact}; {trouble.cure})" if trouble else ""
        return Progress("Pending", f"Harvester to take the order of {name}{words}", "it boots and joins")
    sighting = machine.sighting
    if sighting is None or sighting.presence == "unknown":
        because = sighting.because if sighting else "it has not been looked at yet"
        return Progress("Unknown", f"Harvester to show {name} ({because})", "it is judged")
    if sighting.presence == "missing":
        return Progress(
            "Lost", f"node {name} to be seen as lost, whose VM is gone", "the machine is replaced"
        )
    words = f" ({brief(sighting.because)})" if sighting.because else ""
    if sighting.state in _PHASES and (not machine.is_ready or machine.is_down):
        return Progress(
            _PHASES[sighting.state],
            f"{name}, which is {sighting.state}{words}",
            next_of_state(machine),
        )
    return _running(machine, seen, words)


def _running(machine: MachineSeen, seen: Seen, words: str) -> Progress:
    name, node = machine.name, machine.node
    if not machine.address:
        silent = machine.sighting is not None and not machine.sighting.agent_connected
        why = words or (" (its guest agent is not connected)" if silent else "")
        return Progress("Booting", f"{name} to report its address{why}", "it joins the cluster")
    if node is None and machine.record.was_ready:
        if not seen.guest.answers:
            return Progress("Unknown", f"the guest API ({silent_about(seen.guest)})", f"{name} is judged")
        return Progress("NotReady", f"Node {name} to come back", "it is judged")
    if node is None:
        if machine.record.first and not seen.standing.initialized:
            return Progress(
                "Joining", f"{name} at {machine.address} to start the cluster", "the others join it"
            )
        return Progress("Joining", f"{name} at {machine.address} to join as a node", "it becomes Ready")
    if not node.ready:
        phase = "NotReady" if machine.record.was_ready else "Joining"
        return Progress(phase, f"node {name} to be Ready ({brief(node.because)})", "it takes workloads")
    if node.uninitialized or not node.provider_id:
        return Progress(INITIALIZING, f"the cloud provider to initialise node {name}", "it takes workloads")
    return Progress(INITIALIZING, f"node {name} to get its role label", "it is complete")


# -- one machine -------------------------------------------------------------------------------------------------


def derive_machine(machine: MachineSeen, seen: Seen, plan: Plan, troubles: Troubles) -> dict[str, Any]:
    """The derived fields of a Machine's status. `memory`, `starts` and `lastStart` belong to actions."""
    before = machine.record.status
    trouble = troubles.get(machine.name)
    progress = find_progress(machine, seen, trouble)
    wait = _machine_wait(machine, plan, progress, trouble)
    status: dict[str, Any] = {
        "phase": progress.phase,
        "roles": roles_word(machine.record.roles),
        "conditions": _machine_conditions(progress, wait, machine, seen),
        "waiting": _dated(wait, before, seen),
    }
    sighting, node = machine.sighting, machine.node
    if sighting is not None and sighting.presence == "present":
        # An address that is not reported for a while (no agent) is still the last one known.
        status["addresses"] = list(sighting.addresses) or before.get("addresses") or []
        status["host"] = sighting.host
    if node is not None:
        status["nodeRef"] = {"name": node.name, "uid": node.uid}
        status["providerID"] = node.provider_id
    if machine.is_ready and machine.record.starts:
        status["starts"] = 0
    return status


def _machine_conditions(
    progress: Progress, wait: Wait | None, machine: MachineSeen, seen: Seen
) -> list[dict[str, Any]]:
    ready = _machine_ready(progress, wait, machine, seen)
    conditions: list[Mapping[str, Any]] = list(machine.record.conditions)
    before = machine.record.find_condition("Ready")
    if before is not None and before.reason == INITIALIZING != ready.reason:
        # Both are "False", but only now its node is not Ready; repair counts from the date.
        conditions = [raw for raw in conditions if raw.get("type") != "Ready"]
    made = set_condition(conditions, ready, seen.now)
    if machine.is_ready and not machine.record.was_ready:
        joined = Condition("Joined", "True", "WasReady", "its node was Ready for the first time")
        made = set_condition(made, joined, seen.now)
    return made


def _machine_ready(progress: Progress, wait: Wait | None, machine: MachineSeen, seen: Seen) -> Condition:
    if progress.phase == "Ready":
        return Condition("Ready", "True", "Ready", "")
    truth: Truth = "False"
    if progress.phase == "Unknown" or (machine.record.has_joined and not seen.guest.answers):
        truth = "Unknown"
    return Condition("Ready", truth, progress.phase, f"waiting for {wait.what}" if wait else "")


def _machine_wait(
    machine: MachineSeen, plan: Plan, progress: Progress, trouble: Trouble | None
) -> Wait | None:
    if progress.phase == "Ready":
        return None
    if trouble is not None and machine.record.was_made:
        return Wait(f"another attempt ({trouble.fact}; {trouble.cure})", progress.then, machine.name)
    held = next((held for held in plan.held if held.disruption.machine == machine.name), None)
    starting = any(isinstance(action, Start) and action.machine == machine.name for action in plan.actions)
    if starting:
        note = f" ({held.because})" if held else ""
        return Wait(f"{machine.name} to start{note}", "it becomes Ready again", machine.name)
    if held is not None:
        return Wait(_wait_of_held(held), _next_of(held), machine.name)
    planned = next((wait for wait in plan.waits if wait.machine == machine.name), None)
    if planned is not None and (machine.is_leaving or machine.record.was_ready or not progress.what):
        return replace(planned, then=planned.then or progress.then or "it goes on")
    return Wait(progress.what, (planned.then if planned else "") or progress.then, machine.name)


def _wait_of_held(held: Held) -> str:
    if held.because == LAST_MEMBER:
        return f"{held.disruption.machine} to come back by itself or by hand ({LAST_MEMBER})"
    return f"permission to remove {held.disruption.machine}: {held.because}"


def held_sentence(held: Held) -> str:
    """What conditions and events say of a disruption that may not happen now."""
    return f"{held.disruption.machine}: {held.because}"


def _next_of(held: Held) -> str:
    return {
        "replace": "it is replaced" if held.because != LAST_MEMBER else "it becomes Ready again",
        "shrink": "it is removed",
        "leave": "its etcd member is dropped",
    }[held.disruption.kind]


def _dated(wait: Wait | None, before: Mapping[str, Any], seen: Seen) -> dict[str, Any] | None:
    """The wait as the status has it; its date stays while the same thing is waited for."""
    if wait is None:
        return None
    old = before.get("waiting") or {}
    since = old.get("since") if old.get("for") == wait.what else None
    return {"for": wait.what, "since": since or stamp(seen.now), "next": wait.then}


# -- the cluster -------------------------------------------------------------------------------------------------


def derive_cluster(seen: Seen, plan: Plan, troubles: Troubles) -> dict[str, Any]:
    """The derived fields of a Cluster's status. The ledger fields (`standing.py`) belong to actions."""
    before = seen.standing.raw
    wait = find_wait(seen, plan, troubles)
    ready = _ready(seen, plan, wait)
    conditions = before.get("conditions")
    for condition in _conditions(seen, plan, ready):
        conditions = set_condition(conditions, condition, seen.now)
    return {
        "observedGeneration": seen.cluster.generation,
        "ready": ready.status == "True",
        "phase": _phase(seen, plan, ready),
        "servers": _tally(seen, servers=True),
        "workers": _tally(seen, servers=False),
        "pools": [_pool_summary(pool, seen) for pool in seen.cluster.pools],
        "endpoint": _endpoint(seen),
        "clientSecretName": names.kubeconfig_name(seen.cluster.name) if seen.guest.published else None,
        "warnings": [str(problem) for problem in seen.problems if problem.severity == "warning"] or None,
        "waiting": _dated(wait, before, seen),
        "conditions": conditions,
    }


def _endpoint(seen: Seen) -> dict[str, str]:
    apis = find_apis(seen)
    shown = {"server": find_server(seen), "api": seen.guest.published or (apis[0] if apis else "")}
    return {"mode": MODE, **{key: value for key, value in shown.items() if value}}


def find_wait(seen: Seen, plan: Plan, troubles: Troubles) -> Wait | None:
    """The one thing that the cluster waits for now: the most general first, then its servers, then its workers."""
    if plan.refused:
        fact = plan.refused[0]
        more = f" (and {len(plan.refused) - 1} more)" if len(plan.refused) > 1 else ""
        return Wait(f"you to change this: {fact}{more}", "the cluster is built")
    if seen.shut:
        shut = seen.shut[0]
        return Wait(
            f"{'a credential that opens Harvester' if shut.certain else 'Harvester'}: {shut}",
            _once_open(seen),
        )
    if trouble := troubles.get(""):
        return Wait(f"another attempt ({trouble.fact}; {trouble.cure})", "it goes on")
    waits = [wait for machine in _by_weight(seen) if (wait := _shown_wait(machine, seen, plan, troubles))]
    general = [wait for wait in plan.waits if not wait.machine]
    # While machines are on their way, they say more than "the pools to fill".
    if general and not (waits and seen.standing.first_uid):
        return general[0]
    if waits:
        more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
        return Wait(f"{waits[0].what}{more}", waits[0].then)
    return general[0] if general else _missing_machines(seen)


def _once_open(seen: Seen) -> str:
    if seen.cluster.deleting is not None:
        return "its machines are removed" if seen.machines else "what is left of it there is removed"
    return "its machines are seen and made again; until then nothing is replaced"


def _missing_machines(seen: Seen) -> Wait | None:
    """Of a pool that lacks machines of which nothing can be said, since they are not even recorded."""
    if not seen.standing.initialized or seen.cluster.deleting is not None:
        return None
    for pool in seen.cluster.pools:
        ready = _complete(pool, seen)
        if ready < pool.quantity:
            return Wait(
                f"pool {pool.name} to have all its machines: {ready} of {pool.quantity} are Ready",
                "they are made once it is not paused any more"
                if pool.paused
                else "the missing ones are made",
            )
    return None


def _shown_wait(machine: MachineSeen, seen: Seen, plan: Plan, troubles: Troubles) -> Wait | None:
    trouble = troubles.get(machine.name)
    return _machine_wait(machine, plan, find_progress(machine, seen, trouble), trouble)


def _by_weight(seen: Seen) -> list[MachineSeen]:
    first = seen.standing.first_uid
    return sorted(
        seen.machines,
        key=lambda m: (m.record.uid != first, not m.record.is_server, m.is_leaving, m.record.created, m.name),
    )


def _conditions(seen: Seen, plan: Plan, ready: Condition) -> list[Condition]:
    errors = [problem for problem in seen.problems if problem.severity == "error"]
    accepted = Condition("Accepted", "True", "Understood")
    if errors:
        accepted = Condition("Accepted", "False", "Invalid", "; ".join(f"{error}" for error in errors))
    made = [accepted]
    if checked := _checked(seen):
        made.append(checked)
    if valid := credential_condition(seen):
        made.append(valid)
    made.append(
        Condition("Initialized", "True", "Answered", "the guest API has answered")
        if seen.standing.initialized
        else Condition("Initialized", "False", "Waiting", "the guest API has not answered yet")
    )
    if seen.standing.born or ready.status == "True":
        made.append(Condition("Provisioned", "True", "Complete", "every machine has been Ready"))
    else:
        made.append(Condition("Provisioned", "False", "InProgress", ready.message))
    made += [_updated(seen), _repair_allowed(seen, plan), ready]
    return made


def _checked(seen: Seen) -> Condition | None:
    if seen.preflight is None:
        return None  # as it stands
    if seen.preflight:
        sentences = "; ".join(str(problem) for problem in seen.preflight)
        if any(problem.severity == "error" for problem in seen.preflight):
            return Condition("Checked", "False", "Problems", sentences)
        return Condition("Checked", "True", "Warnings", sentences)
    return Condition("Checked", "True", "Passed", "Harvester has what the machines need")


def credential_condition(seen: Seen) -> Condition | None:
    """Whether the cluster's credentials open their Harvester; None while they have not been tried."""
    if seen.shut is None:
        return None  # as it stands
    if not seen.shut:
        return Condition("CredentialValid", "True", "Accepted", "Harvester accepts the credential")
    sentences = "; ".join(str(shut) for shut in seen.shut)
    if any(shut.certain for shut in seen.shut):
        return Condition("CredentialValid", "False", "Refused", sentences)
    return Condition("CredentialValid", "Unknown", "Untried", sentences)


def _updated(seen: Seen) -> Condition:
    changes = find_changes(seen)
    if not changes:
        return Condition("Updated", "True", "AsAsked")
    sentences = "; ".join(changes)
    return Condition(
        "Updated", "False", "NotYet", f"not yet: {sentences}; existing machines change in a later release"
    )


def _repair_allowed(seen: Seen, plan: Plan) -> Condition:
    if not seen.cluster.repair:
        return Condition("RepairAllowed", "False", "TurnedOff", f"annotation {names.REPAIR} turns repair off")
    held = [held for held in plan.held if held.disruption.kind == "replace"]
    if not held:
        return Condition("RepairAllowed", "True", "Free")
    reason = "LastEtcdMember" if held[0].because == LAST_MEMBER else "Held"
    sentences = "; ".join(held_sentence(one) for one in held)
    return Condition("RepairAllowed", "False", reason, sentences)


def _ready(seen: Seen, plan: Plan, wait: Wait | None) -> Condition:
    sentence = f"waiting for {wait.what}" if wait else ""
    if seen.cluster.deleting is not None:
        return Condition("Ready", "False", "Deleting", sentence)
    if plan.refused and not seen.standing.initialized:
        return Condition("Ready", "False", "Refused", "; ".join(str(problem) for problem in plan.refused))
    if seen.standing.initialized and not seen.guest.answers:
        if seen.shut:
            return Condition("Ready", "Unknown", "HarvesterShut", f"waiting for {wait.what}" if wait else "")
        return Condition("Ready", "Unknown", "ApiSilent", silent_about(seen.guest))
    if seen.standing.initialized and is_whole(seen):
        return Condition("Ready", "True", "AllReady", "every machine is Ready")
    return Condition("Ready", "False", "Degraded" if seen.standing.born else "InProgress", sentence)


def is_whole(seen: Seen) -> bool:
    """Whether every pool has all the machines it asks for, each of them complete."""
    return bool(seen.cluster.pools) and all(
        _complete(pool, seen) >= pool.quantity for pool in seen.cluster.pools
    )


def _complete(pool: Pool, seen: Seen) -> int:
    return sum(1 for machine in seen.of_pool(pool) if seen.is_complete(machine))


def _phase(seen: Seen, plan: Plan, ready: Condition) -> str:
    if seen.cluster.deleting is not None:
        return "Deleting"
    if plan.refused:
        return "Refused"
    if ready.status == "True":
        return "Ready"
    if seen.standing.born:
        return "Degraded"
    if seen.standing.initialized:
        return "Joining"
    return "Starting" if seen.standing.first_uid else "Preparing"


def _tally(seen: Seen, *, servers: bool) -> str:
    pools = [pool for pool in seen.cluster.pools if pool.is_server is servers]
    return f"{sum(_complete(pool, seen) for pool in pools)}/{sum(pool.quantity for pool in pools)}"


def _pool_summary(pool: Pool, seen: Seen) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "name": pool.name,
        "wanted": pool.quantity,
        "machines": len(seen.of_pool(pool)),
        "ready": _complete(pool, seen),
    }
    if breaker := _breaker(pool, seen):
        summary["breaker"] = breaker
    return summary


def _breaker(pool: Pool, seen: Seen) -> dict[str, Any]:
    """Of a pool whose breaker holds, or held: since when it has let go."""
    before = seen.standing.find_breaker(pool.name)
    if seen.standing.initialized and seen.guest.answers and is_tripped(pool, seen):
        return {"tripped": True}
    if before is None:
        return {}
    if not seen.guest.answers and before.released is None:
        return {"tripped": True}  # nothing is known that would release it
    return {"tripped": False, "released": stamp(before.released or seen.now)}
