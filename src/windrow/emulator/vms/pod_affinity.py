"""Inter-pod affinity of the simulated scheduler: which hosts the pods on them allow, and which they prefer.

A part of kube-scheduler's InterPodAffinity: required and preferred terms of the new pod, and of those that are there
already. A term counts pods in a topology, which is all hosts with one value of its key; a host without the key is in
none. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.kubernetes.objects import labels_of, namespace_of, nested
from windrow.kubernetes.selectors import LabelSelector, Operator, Requirement, read_label_selector

NO_POD_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
THEIR_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# What a required affinity of a pod that is there counts for a new one that it selects.
HARD_AFFINITY_WEIGHT = 1
NAMESPACE_NAME = "kubernetes.io/metadata.name"

# The topology key, and the host's value of it.
Topology = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A PodAffinityTerm: pods of these namespaces and labels, counted by `topology_key`."""

    topology_key: str
    labels: LabelSelector | None  # None selects none
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelSelector | None = None  # None selects none

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        selects = self.labels is not None and self.labels.matches(labels)
        return selects and self._has_namespace(namespace)

    def _has_namespace(self, namespace: str) -> bool:
        # Of a namespace's labels only the one that every API server sets is known here.
        selector = self.namespace_selector
        return namespace in self.namespaces or (
            selector is not None and selector.matches({NAMESPACE_NAME: namespace})
        )


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """The terms of one pod. Weights of anti-affinity are negative."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod as others see it."""

    namespace: str
    labels: Mapping[str, str]
    terms: AffinityTerms = AffinityTerms()


def read_pod(vmi: Mapping[str, Any]) -> PlacedPod:
    """The pod of an instance: its labels are the instance's."""
    namespace, labels = namespace_of(vmi), labels_of(vmi)
    near, far = (
        nested(vmi, "spec", "affinity", kind, default={}) for kind in ("podAffinity", "podAntiAffinity")
    )

    def read(raw: Mapping[str, Any]) -> PodTerm:
        return _read_term(raw, namespace, labels)

    def preferred(block: Mapping[str, Any], sign: int) -> list[tuple[int, PodTerm]]:
        return [
            (sign * int(one.get("weight") or 0), read(one.get("podAffinityTerm") or {}))
            for one in block.get(PREFERRED) or ()
        ]

    terms = AffinityTerms(
        tuple(read(one) for one in near.get(REQUIRED) or ()),
        tuple(read(one) for one in far.get(REQUIRED) or ()),
        (*preferred(near, 1), *preferred(far, -1)),
    )
    return PlacedPod(namespace, labels, terms)


def _read_term(raw: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> PodTerm:
    of_namespaces = raw.get("namespaceSelector")
    named = frozenset(raw.get("namespaces") or ())
    return PodTerm(
        str(raw.get("topologyKey") or ""),
        _read_labels(raw, labels),
        named if named or of_namespaces is not None else frozenset({namespace}),
        None if of_namespaces is None else read_label_selector(of_namespaces),
    )


def _read_labels(raw: Mapping[str, Any], labels: Mapping[str, str]) -> LabelSelector | None:
    """The term's selector with its keys whose value is that of the pod itself, or another."""
    if raw.get("labelSelector") is None:
        return None
    same = [_same(key, "In", labels) for key in raw.get("matchLabelKeys") or () if key in labels]
    other = [_same(key, "NotIn", labels) for key in raw.get("mismatchLabelKeys") or () if key in labels]
    return LabelSelector((*read_label_selector(raw["labelSelector"]).requirements, *same, *other))


def _same(key: str, operator: Operator, labels: Mapping[str, str]) -> Requirement:
    return Requirement(key, operator, frozenset({labels[key]}))


@dataclass(frozen=True, slots=True)
class PodTopology:
    """How one new pod and the placed ones see each other."""

    pod: PlacedPod
    near: Counter[Topology]  # pods that every required term of affinity selects
    far: Counter[Topology]  # pods that a required term of anti-affinity selects
    closed: frozenset[Topology]  # where a placed pod does not want this one
    liked: Counter[Topology]  # sums of weights

    def find_obstacle(self, labels: Mapping[str, str]) -> str:
        """The reason against a host with these labels, "" where there is none."""
        if not self._allows(labels):
            return NO_POD_AFFINITY
        terms = self.pod.terms.anti_affinity
        if any(self.far[here] for term in terms if (here := _topology(term, labels))):
            return ANTI_AFFINITY
        return THEIR_ANTI_AFFINITY if any(item in self.closed for item in labels.items()) else ""

    def _allows(self, labels: Mapping[str, str]) -> bool:
        terms = self.pod.terms.affinity
        if any(term.topology_key not in labels for term in terms):
            return False
        if all(self.near[term.topology_key, labels[term.topology_key]] for term in terms):
            return True
        # The first pod of a group that wants to be together may go anywhere.
        return not self.near and all(term.selects(self.pod.namespace, self.pod.labels) for term in terms)

    def score(self, labels: Mapping[str, str]) -> int:
        return sum(self.liked[item] for item in labels.items())


def _topology(term: PodTerm, labels: Mapping[str, str]) -> Topology | None:
    value = labels.get(term.topology_key)
    return None if value is None else (term.topology_key, value)


def read_topology(
    pod: PlacedPod, hosts: Iterable[tuple[Mapping[str, str], Iterable[PlacedPod]]]
) -> PodTopology:
    """Count once what the placed pods are to `pod`. `hosts` are the labels and the pods of each."""
    near: Counter[Topology] = Counter()
    far: Counter[Topology] = Counter()
    liked: Counter[Topology] = Counter()
    closed: set[Topology] = set()
    for labels, pods in hosts:
        for other in pods:
            _count(pod, other, labels, near, far)
            closed.update(
                here
                for term in other.terms.anti_affinity
                if (here := _topology(term, labels)) and term.selects(pod.namespace, pod.labels)
            )
            for weight, here in _weights(pod, other, labels):
                liked[here] += weight
    return PodTopology(pod, near, far, frozenset(closed), liked)


def _count(
    pod: PlacedPod,
    other: PlacedPod,
    labels: Mapping[str, str],
    near: Counter[Topology],
    far: Counter[Topology],
) -> None:
    wanted = pod.terms.affinity
    if wanted and all(term.selects(other.namespace, other.labels) for term in wanted):
        near.update(filter(None, {_topology(term, labels) for term in wanted}))
    unwanted = (term for term in pod.terms.anti_affinity if term.selects(other.namespace, other.labels))
    far.update(filter(None, {_topology(term, labels) for term in unwanted}))


def _weights(pod: PlacedPod, other: PlacedPod, labels: Mapping[str, str]) -> Iterable[tuple[int, Topology]]:
    """What the preferences of each, and what `other` requires, weigh for a host of this topology."""
    mine = [
        (weight, term) for weight, term in pod.terms.preferred if term.selects(other.namespace, other.labels)
    ]
    theirs = [*other.terms.preferred, *((HARD_AFFINITY_WEIGHT, term) for term in other.terms.affinity)]
    mine += [(weight, term) for weight, term in theirs if term.selects(pod.namespace, pod.labels)]
    return [(weight, here) for weight, term in mine if (here := _topology(term, labels))]
