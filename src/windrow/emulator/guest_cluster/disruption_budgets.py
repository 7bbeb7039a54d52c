"""PodDisruptionBudgets: how many of their pods may be evicted now, as the disruption controller writes it.

The API server takes one away from `disruptionsAllowed` for each eviction that it grants and names the pod in `disruptedPods`; the
controller counts that pod no more until it is deleted, or for two minutes. Pods count as expected by the scale of what controls
them, where the budget is a percentage or names `maxUnavailable`. Not simulated: controllers of other API groups with a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windrow.core.clock import parse_time
from windrow.emulator.guest_cluster.workloads.context import ControllerContext
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final, is_ready
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import DEPLOYMENT, POD, REPLICA_SET, STATEFUL_SET, ApiResource
from windrow.kubernetes.selectors import read_label_selector

PDB = ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
FORGET = timedelta(minutes=2)  # after an eviction was granted, a pod that is not deleted counts again
Scale = tuple[str, int]  # uid and replicas of what controls a pod


class NoScale(Exception):
    """A pod's controller has no scale; the message is the controller's."""


@dataclass(frozen=True, slots=True)
class BudgetCounts:
    """What a budget counts of its pods."""

    healthy: int
    desired: int
    expected: int

    @property
    def allowed(self) -> int:
        return max(self.healthy - self.desired, 0) if self.expected > 0 else 0


def selects(budget: Raw, pod: Raw) -> bool:
    """Whether the pod is one of the budget's; an empty selector takes all."""
    selector = nested(budget, "spec", "selector")
    return selector is not None and read_label_selector(selector).matches(labels_of(pod))


def count(
    budget: Raw, pods: Sequence[Raw], find_scale: Callable[[Raw], Scale | None], disrupted: Mapping[str, str]
) -> BudgetCounts:
    """Raises NoScale."""
    spec = budget["spec"]
    present = [pod for pod in pods if not is_final(pod)]
    healthy = sum(is_ready(pod) and not is_deleting(pod) and name_of(pod) not in disrupted for pod in present)
    if (most := spec.get("maxUnavailable")) is not None:
        expected = _expected(present, find_scale)
        return BudgetCounts(healthy, max(expected - _scaled(most, expected), 0), expected)
    least = spec.get("minAvailable")
    if isinstance(least, str) and least.endswith("%"):
        expected = _expected(present, find_scale)
        return BudgetCounts(healthy, _scaled(least, expected), expected)
    if least is None:
        return BudgetCounts(healthy, 0, 0)  # a budget without either number allows nothing
    return BudgetCounts(healthy, int(least), len(present))


def _scaled(value: int | str, total: int) -> int:
    """A number, or that percentage of `total`, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


def _expected(pods: Sequence[Raw], find_scale: Callable[[Raw], Scale | None]) -> int:
    scales: dict[str, int] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        if not any(one.get("controller") for one in owners):
            continue  # a pod by itself is expected by nothing
        found = find_scale(pod)
        if found is None:
            raise NoScale(f'found no controllers for pod "{name_of(pod)}"')
        scales[found[0]] = found[1]
    return sum(scales.values())


def keep_disrupted(budget: Raw, pods: Sequence[Raw], now: datetime) -> dict[str, str]:
    """The pods whose eviction was granted and that are still to be deleted, by name with the instant."""
    present = {name_of(pod): pod for pod in pods}
    named = nested(budget, "status", "disruptedPods", default={})
    return {
        name: at
        for name, at in named.items()
        if name in present and not is_deleting(present[name]) and now - parse_time(at) < FORGET
    }


def render_budget_status(
    budget: Raw, counts: BudgetCounts, disrupted: Mapping[str, str], now: datetime, problem: str = ""
) -> Raw:
    """The status; after a `problem` nothing is allowed."""
    allowed = 0 if problem else counts.allowed
    if problem:
        condition = Condition("DisruptionAllowed", "False", "SyncFailed", problem)
    elif allowed:
        condition = Condition("DisruptionAllowed", "True", "SufficientPods", "")
    else:
        condition = Condition("DisruptionAllowed", "False", "InsufficientPods", "")
    before = budget.get("status") or {}
    generation = budget["metadata"].get("generation", 1)
    rendered = {
        **before,
        "observedGeneration": before.get("observedGeneration", 0) if problem else generation,
        "disruptionsAllowed": allowed,
        "conditions": _set_condition(before.get("conditions"), condition, now, generation),
    }
    if not problem:
        rendered |= {
            "currentHealthy": counts.healthy,
            "desiredHealthy": counts.desired,
            "expectedPods": counts.expected,
        }
    rendered.pop("disruptedPods", None)
    return rendered | ({"disruptedPods": dict(disrupted)} if disrupted else {})


def _set_condition(conditions: Any, wanted: Condition, now: datetime, generation: int) -> list[Raw]:
    made = set_condition(conditions, wanted, now)
    return [{**one, "observedGeneration": generation} if one["type"] == wanted.type else one for one in made]


class DisruptionController:
    """Keys are those of PodDisruptionBudgets. Create it before the informers run."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        for kind in (POD, DEPLOYMENT, REPLICA_SET, STATEFUL_SET):
            context.informers[kind].add_event_handler(self._on_change)

    def _on_change(self, raw: Raw) -> None:
        for key in self._context.informers[PDB]:
            if key[0] == namespace_of(raw):
                self._context.queue.add((PDB, key))

    async def reconcile(self, key: Key) -> None:
        context = self._context
        budget = context.informers[PDB].get(key)
        if budget is None or is_deleting(budget):
            return
        now = context.now()
        pods = [
            pod
            for pod in context.informers[POD].values()
            if namespace_of(pod) == key[0] and selects(budget, pod)
        ]
        disrupted = keep_disrupted(budget, pods, now)
        try:
            counts, problem = count(budget, pods, self._find_scale, disrupted), ""
        except NoScale as error:
            counts, problem = BudgetCounts(0, 0, 0), str(error)
            await context.events.record(
                budget,
                "CalculateExpectedPodCountFailed",
                f"Failed to calculate the number of expected pods: {error}",
                "controllermanager",
                "Warning",
            )
        await context.update_status(
            PDB, budget, render_budget_status(budget, counts, disrupted, now, problem)
        )
        if not pods:
            await context.events.record(budget, "NoPods", "No matching pods found", "controllermanager")
        if disrupted:
            wait = context.guest.scaled(FORGET.total_seconds())
            context.queue.add_after((PDB, key), wait)

    def _find_scale(self, pod: Raw) -> Scale | None:
        informers, namespace = self._context.informers, namespace_of(pod)
        for owner in pod["metadata"].get("ownerReferences") or ():
            kind = {"ReplicaSet": REPLICA_SET, "StatefulSet": STATEFUL_SET}.get(owner["kind"])
            if not owner.get("controller") or kind is None:
                continue
            found = informers[kind].get((namespace, owner["name"]))
            if found is None:
                return None
            above = next(
                (
                    one
                    for one in found["metadata"].get("ownerReferences") or ()
                    if one["kind"] == "Deployment"
                ),
                None,
            )
            if above is not None:
                found = informers[DEPLOYMENT].get((namespace, above["name"])) or found
            return uid_of(found), int(nested(found, "spec", "replicas", default=1))
        return None
