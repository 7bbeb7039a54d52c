"""DaemonSets: plan, status and controller. One pod on each node that it fits, by the node affinity that the pod carries.

Not simulated: minReadySeconds and maxSurge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from windrow.emulator.guest_cluster.kubelet import NOT_READY, UNREACHABLE
from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final, is_ready
from windrow.emulator.guest_cluster.workloads.replica_counts import resolve_count
from windrow.emulator.guest_cluster.workloads.revisions import (
    POD_REVISION,
    ensure_revisions,
    number_of,
    pod_revision,
    trim_history,
)
from windrow.emulator.guest_cluster.workloads.templates import (
    render_pod,
    selector_matches_template,
    template_of,
)
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.scheduling import find_untolerated, matches_node
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested
from windrow.kubernetes.resources import CONTROLLER_REVISION, DAEMON_SET, NODE, POD

_POD_GENERATION = "pod-template-generation"
_NODE_NAME = "metadata.name"
_TOLERATED = (
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK = (("node.kubernetes.io/network-unavailable", "NoSchedule"),)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class CreateDaemonPod:
    node: str
    because: str


@dataclass(frozen=True, slots=True)
class DeleteDaemonPod:
    pod: Raw
    because: str


DaemonStep = CreateDaemonPod | DeleteDaemonPod


@dataclass(frozen=True, slots=True)
class DaemonState:
    """What is observed of a DaemonSet: its pods by node, all nodes, and the hash and the number of its template."""

    daemon_set: Raw
    pods: Mapping[str, Sequence[Raw]]
    nodes: Sequence[Raw]
    hash: str
    number: int = 1

    def fits(self, node: Raw) -> tuple[bool, bool]:
        """Whether the node should get a pod, and whether it should keep one."""
        spec = nested(template_of(self.daemon_set), "spec", default={})
        if spec.get("nodeName") not in (None, "", name_of(node)) or not matches_node(spec, labels_of(node)):
            return False, False
        taints = nested(node, "spec", "taints", default=[])
        tolerations = daemon_tolerations(spec)
        if find_untolerated(tolerations, taints) is None:
            return True, True
        return False, find_untolerated(tolerations, taints, effects=("NoExecute",)) is None


def plan_daemon_set(state: DaemonState) -> list[DaemonStep]:
    """The next steps of the DaemonSet: where pods are missing or too many, else what its update replaces."""
    if is_deleting(state.daemon_set):
        return []
    steps = [step for node in state.nodes for step in _plan_node(state, node)]
    known = {name_of(node) for node in state.nodes}
    for name, pods in state.pods.items():
        if name not in known:
            waiting = (pod for pod in pods if not nested(pod, "spec", "nodeName") and not is_deleting(pod))
            steps += [DeleteDaemonPod(pod, f"node {name} is gone") for pod in waiting]
    return steps or _plan_update(state)


def _plan_node(state: DaemonState, node: Raw) -> list[DaemonStep]:
    fits, may_stay = state.fits(node)
    pods = state.pods.get(name_of(node), ())
    kept = [pod for pod in pods if not is_deleting(pod)]
    if fits and not pods:
        return [CreateDaemonPod(name_of(node), "the node has none")]
    if not may_stay:
        return [DeleteDaemonPod(pod, f"it does not fit node {name_of(node)}") for pod in kept]
    ended: list[DaemonStep] = [DeleteDaemonPod(pod, "it has ended") for pod in kept if is_final(pod)]
    running = sorted((pod for pod in kept if not is_final(pod)), key=_age)
    return ended + [DeleteDaemonPod(pod, "the node has an older one") for pod in running[1:]]


def _age(pod: Raw) -> tuple[bool, str, str]:
    """Those with a node first, then the oldest."""
    return not nested(pod, "spec", "nodeName"), pod["metadata"]["creationTimestamp"], name_of(pod)


def _plan_update(state: DaemonState) -> list[DaemonStep]:
    """Old pods that are not Ready, and others as far as maxUnavailable allows."""
    strategy = nested(state.daemon_set, "spec", "updateStrategy", default={})
    if strategy.get("type") == "OnDelete":
        return []
    wanted = sum(state.fits(node)[0] for node in state.nodes)
    given = nested(strategy, "rollingUpdate", "maxUnavailable", default=1)
    unavailable = 0
    broken: list[Raw] = []
    candidates: list[Raw] = []
    for _, pods in sorted(state.pods.items()):
        kept = [pod for pod in pods if not is_deleting(pod)]
        if len(kept) != 1 or not is_ready(kept[0]):
            unavailable += 1
        is_old = len(kept) == 1 and pod_revision(kept[0]) != state.hash
        if is_old:
            (candidates if is_ready(kept[0]) else broken).append(kept[0])
    allowed = max(max(resolve_count(given, wanted, math.ceil), 1) - unavailable, 0)
    because = f"it is not of revision {state.hash}"
    return [DeleteDaemonPod(pod, because) for pod in (*broken, *candidates[:allowed])]


def daemon_tolerations(spec: Mapping[str, object]) -> list[Raw]:
    """The tolerations of a template, and those of every DaemonSet's pods."""
    given = nested(spec, "tolerations", default=[])
    wanted = [(NOT_READY, "NoExecute"), (UNREACHABLE, "NoExecute"), *_TOLERATED]
    if spec.get("hostNetwork"):
        wanted += _TOLERATED_ON_HOST_NETWORK
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return [*(one for one in given if one not in added), *added]


def render_daemon_pod(state: DaemonState, node: str) -> Raw:
    """A pod that fits that node alone."""
    raw = render_pod(state.daemon_set, DAEMON_SET, 0)
    spec = raw["spec"]
    spec["tolerations"] = daemon_tolerations(nested(template_of(state.daemon_set), "spec", default={}))
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    by_node = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
    by_node[_REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    labels = {POD_REVISION: state.hash, _POD_GENERATION: str(state.number)}
    raw["metadata"]["labels"] = {**labels_of(raw), **labels}
    return raw


def node_of(pod: Raw) -> str:
    """The node that the pod runs on, or waits for."""
    if name := nested(pod, "spec", "nodeName"):
        return str(name)
    terms = nested(pod, "spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms", default=[])
    fields = [one for term in terms for one in term.get("matchFields") or () if one.get("key") == _NODE_NAME]
    return str(nested(fields, 0, "values", 0, default=""))


def render_daemon_set_status(state: DaemonState) -> Raw:
    desired = current = misscheduled = ready = updated = 0
    for node in state.nodes:
        fits, _ = state.fits(node)
        pods = sorted(state.pods.get(name_of(node), ()), key=_age)
        desired += fits
        misscheduled += bool(pods) and not fits
        if fits and pods:
            current += 1
            ready += is_ready(pods[0])
            updated += pod_revision(pods[0]) == state.hash
    optional = {
        "updatedNumberScheduled": updated,
        "numberAvailable": ready,
        "numberUnavailable": desired - ready,
    }
    return {
        "observedGeneration": state.daemon_set["metadata"].get("generation", 1),
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        **{name: count for name, count in optional.items() if count},
    }


class DaemonSetController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods = OwnerIndex(context.informers[POD])
        self._revisions = OwnerIndex(context.informers[CONTROLLER_REVISION])
        for kind in (POD, CONTROLLER_REVISION):
            context.informers[kind].add_event_handler(partial(context.enqueue_owner, DAEMON_SET))
        context.informers[NODE].add_event_handler(self._on_node)

    async def reconcile(self, key: Key) -> None:
        context = self._context
        daemon_set = context.informers[DAEMON_SET].get(key)
        if daemon_set is None or is_deleting(daemon_set) or not selector_matches_template(daemon_set):
            return
        held = await ensure_revisions(context, self._revisions, daemon_set, DAEMON_SET, POD_REVISION)
        if not held:
            return  # the namespace is gone
        latest: Raw = max(held, key=number_of)
        hash = labels_of(latest)[POD_REVISION]
        for action in plan_daemon_set(self._observe(daemon_set, latest)):
            await self._execute(daemon_set, latest, action)
        after = self._observe(daemon_set, latest)
        await context.update_status(DAEMON_SET, daemon_set, render_daemon_set_status(after))
        live = {f"{key[1]}-{hash}"} | {
            f"{key[1]}-{pod_revision(pod)}" for pods in after.pods.values() for pod in pods
        }
        await trim_history(context, daemon_set, held, live)

    async def _execute(self, daemon_set: Raw, latest: Raw, step: DaemonStep) -> None:
        match step:
            case CreateDaemonPod(node, _):
                state = self._observe(daemon_set, latest)
                await self._context.create(POD, render_daemon_pod(state, node))
            case DeleteDaemonPod(pod, _):
                await self._context.delete(POD, pod)

    def _observe(self, daemon_set: Raw, latest: Raw) -> DaemonState:
        pods: dict[str, list[Raw]] = {}
        for pod in self._pods.owned_by(daemon_set):
            pods.setdefault(node_of(pod), []).append(pod)
        nodes = [self._context.informers[NODE][key] for key in sorted(self._context.informers[NODE])]
        return DaemonState(daemon_set, pods, nodes, labels_of(latest)[POD_REVISION], number_of(latest))

    def _on_node(self, node: Raw) -> None:
        """Any change of a Node may change where pods fit."""
        for key in self._context.informers[DAEMON_SET]:
            self._context.queue.add((DAEMON_SET, key))
