"""Required anti-affinity between pods: the nodes whose topology has a pod that another may not be with. Pure.

As in kube-scheduler it holds both ways: the new pod's own terms, and those of the pods that are there. A pod that
terminates still counts; one whose containers have ended does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final
from windrow.kubernetes.objects import Raw, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.selectors import BadSelector, read_label_selector

NO_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
NO_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


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
