"""The scheduler: filters and scores nodes, binds a pod to one, or writes its condition PodScheduled.

A pod whose claims wait for their first consumer is bound once their volumes are made for the node that was chosen. Of affinities between
pods the required ones against others count; resources, and the rest of these affinities, are ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from windrow.core.clock import format_time
from windrow.emulator.guest_cluster.containers.static_pods import is_mirror
from windrow.emulator.guest_cluster.volumes.binding import (
    ONE_POD,
    claims_of,
    claims_to_provision,
    find_claim_problem,
    find_volume_obstacle,
    is_taken,
)
from windrow.emulator.guest_cluster.workloads.context import ControllerContext, controller_uid
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_active, is_final
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.scheduling import Placement, find_obstacle, find_untolerated
from windrow.emulator.names import SELECTED_NODE
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import NotFound, error_for
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import NODE, POD, PVC, ref_of
from windrow.kubernetes.selectors import BadSelector, read_label_selector

NO_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
NO_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def find_node(
    pod: Raw, nodes: Sequence[Raw], pods: Iterable[Raw], find_more: Callable[[Raw], str] = lambda node: ""
) -> Placement:
    """The node with the fewest pods of the same owner, then with the fewest pods. `pods` are all of the cluster;
    `find_more` gives a further reason against a node."""
    pods = list(pods)
    taken = find_excluded(pod, nodes, pods)
    reasons = {
        name_of(node): _find_obstacle(pod, node) or taken.get(name_of(node), "") or find_more(node)
        for node in nodes
    }
    fit = [name for name, reason in reasons.items() if not reason]
    if not fit:
        return Placement(message=_render_message(len(nodes), Counter(reasons.values())))
    siblings: Counter[str] = Counter()
    load: Counter[str] = Counter()
    owner = controller_uid(pod)
    for one in pods:
        where = nested(one, "spec", "nodeName", default="")
        if where and is_active(one) and not is_mirror(one):
            load[where] += 1
            siblings[where] += bool(owner) and controller_uid(one) == owner
    avoided = {name_of(node): _is_avoided(pod, node) for node in nodes}
    return Placement(min(fit, key=lambda name: (avoided[name], siblings[name], load[name], name)))


def _find_obstacle(pod: Raw, node: Raw) -> str:
    taints = nested(node, "spec", "taints", default=[])
    return find_obstacle(
        pod.get("spec") or {}, labels_of(node), taints, cordoned=bool(nested(node, "spec", "unschedulable"))
    )


def _is_avoided(pod: Raw, node: Raw) -> bool:
    """Whether the node has a PreferNoSchedule taint that the pod does not tolerate."""
    tolerations = nested(pod, "spec", "tolerations", default=[])
    taints = nested(node, "spec", "taints", default=[])
    return find_untolerated(tolerations, taints, effects=("PreferNoSchedule",)) is not None


def _render_message(count: int, reasons: Counter[str]) -> str:
    listed = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return f"0/{count} nodes are available: {listed}." if count else "no nodes available to schedule pods"


# -- required anti-affinity: as in kube-scheduler it holds both ways. A pod that terminates still counts, one that has ended does not.


def terms_of(pod: Raw) -> Sequence[Raw]:
    """The terms of its required anti-affinity."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found: Sequence[Raw] = nested(pod, "spec", "affinity", "podAntiAffinity", required, default=[])
    return found


def find_excluded(pod: Raw, nodes: Iterable[Raw], pods: Iterable[Raw]) -> dict[str, str]:
    """By the name of each node where the pod may not be, the filter's reason."""
    own, reasons = terms_of(pod), dict[tuple[str, str], str]()
    labels = {name_of(node): labels_of(node) for node in nodes}
    for other in pods:
        node = str(nested(other, "spec", "nodeName", default=""))
        if node not in labels or is_final(other) or uid_of(other) == uid_of(pod):
            continue
        for key in _topologies(own, pod, other):
            reasons[key, labels[node].get(key, "")] = NO_ANTI_AFFINITY
        for key in _topologies(terms_of(other), other, pod):
            reasons.setdefault((key, labels[node].get(key, "")), NO_EXISTING)
    found: dict[str, str] = {}
    for (key, value), reason in reasons.items():
        here = [name for name, one in labels.items() if value and one.get(key) == value]
        found |= {name: reason for name in here if found.get(name) != NO_ANTI_AFFINITY}
    return found


def _topologies(terms: Sequence[Raw], owner: Raw, other: Raw) -> Iterable[str]:
    """The topology keys of the terms of `owner` that name `other`."""
    for term in terms:
        namespaces = term.get("namespaces") or [namespace_of(owner)]
        if namespace_of(other) in namespaces and _selects(term.get("labelSelector"), other):
            yield str(term.get("topologyKey") or "")


def _selects(selector: Raw | None, pod: Raw) -> bool:
    """None selects no pod; what is no selector does not, either."""
    try:
        return selector is not None and read_label_selector(selector).matches(labels_of(pod))
    except BadSelector:
        return False


class Scheduler:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def schedule(self, pod: Raw) -> None:
        place = self._find_place(pod)
        if not place.node:
            await self._report_unschedulable(pod, place.message)
        elif claims := claims_to_provision(pod, self._context.informers) if claims_of(pod) else ():
            chosen = {SELECTED_NODE: place.node}
            for claim in claims:
                if not chosen.items() <= annotations_of(claim).items():
                    await self._context.update(PVC, claim, lambda raw: annotate(raw, chosen))
        else:
            await self._bind(pod, place.node)

    def _find_place(self, pod: Raw) -> Placement:
        informers = self._context.informers
        nodes = list(informers[NODE].values())
        if not claims_of(pod):
            return find_node(pod, nodes, informers[POD].values())
        if problem := find_claim_problem(pod, informers):
            return Placement(message=f"0/{len(nodes)} nodes are available: {problem}.")
        by_node: dict[str, list[Raw]] = {}
        scheduled = [one for one in informers[POD].values() if nested(one, "spec", "nodeName")]
        for one in filter(is_active, scheduled):
            by_node.setdefault(str(nested(one, "spec", "nodeName")), []).append(one)
        taken = is_taken(pod, [one for one in scheduled if not is_final(one)], informers)

        def find_more(node: Raw) -> str:
            if taken:
                return ONE_POD
            return find_volume_obstacle(pod, node, by_node.get(name_of(node), []), informers)

        return find_node(pod, nodes, informers[POD].values(), find_more)

    async def _bind(self, pod: Raw, node: str) -> None:
        ref = ref_of(POD, pod)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "target": {"kind": "Node", "name": node},
        }
        local = self._context.client()
        error = error_for(await local.send(requests.create_subresource(ref, "binding", body)))
        if error is not None and not isinstance(error, NotFound):
            raise error
        self._context.mutated(POD, await local.find(ref))

    async def _report_unschedulable(self, pod: Raw, message: str) -> None:
        conditions = nested(pod, "status", "conditions", default=[])
        before = find_condition(conditions, "PodScheduled")
        if before is not None and before.message == message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": format_time(self._context.now()),
            "reason": "Unschedulable",
            "message": message,
        }
        rest = [one for one in conditions if one["type"] != "PodScheduled"]
        status = {**(pod.get("status") or {}), "conditions": [*rest, condition]}
        await self._context.update_status(POD, pod, status)
        if claims_of(pod):
            await self._context.events.record(
                pod, "FailedScheduling", message, "default-scheduler", "Warning"
            )
