"""StatefulSets: plan, status and controller. Pods have ordinals, and claims that outlive them.

With OrderedReady one pod is created, deleted or updated at a time, and none before those of lower ordinals are Ready; with
Parallel the order matters to updates alone. Not simulated: minReadySeconds and maxUnavailable of a rolling update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from windrow.core.formats.fastjson import dumps, loads
from windrow.emulator.guest_cluster.workloads.context import ControllerContext, OwnerIndex
from windrow.emulator.guest_cluster.workloads.pod_lifecycle import is_final, is_ready
from windrow.emulator.guest_cluster.workloads.revisions import (
    POD_REVISION,
    ensure_revisions,
    number_of,
    pod_revision,
    revision_template,
    trim_history,
)
from windrow.emulator.guest_cluster.workloads.templates import render_pod, selector_matches_template
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.objects import (
    Raw,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import CONTROLLER_REVISION, POD, PVC, STATEFUL_SET

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
_REVISION_LABEL = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True)
class CreateClaim:
    claim: Raw
    because: str


@dataclass(frozen=True, slots=True)
class SetClaimOwners:
    """Write who the claim is deleted with, as the retention policy says."""

    claim: Raw
    owners: list[Raw]
    because: str


@dataclass(frozen=True, slots=True)
class CreateStatefulPod:
    pod: Raw
    because: str


@dataclass(frozen=True, slots=True)
class DeleteStatefulPod:
    pod: Raw
    because: str


SetStep = CreateClaim | SetClaimOwners | CreateStatefulPod | DeleteStatefulPod


@dataclass(frozen=True, slots=True)
class SetState:
    """What is observed of a StatefulSet: its pods by ordinal, all claims, its revisions."""

    stateful_set: Raw
    pods: Mapping[int, Raw]
    claims: Mapping[Key, Raw]
    current: Raw  # the revision that it leaves
    update: Raw  # the revision of its template
    toleration_s: int = 300

    @property
    def ordinals(self) -> range:
        """The ordinals of the pods that are wanted."""
        start = int(nested(self.stateful_set, "spec", "ordinals", "start", default=0))
        return range(start, start + int(nested(self.stateful_set, "spec", "replicas", default=1)))

    @property
    def condemned(self) -> list[int]:
        """Ordinals of pods that are not wanted, the highest first."""
        return sorted((one for one in self.pods if one not in self.ordinals), reverse=True)

    @property
    def is_ordered(self) -> bool:
        return bool(nested(self.stateful_set, "spec", "podManagementPolicy") != "Parallel")

    @property
    def partition(self) -> int:
        """How many of the lowest ordinals an update leaves as they are."""
        return int(
            nested(self.stateful_set, "spec", "updateStrategy", "rollingUpdate", "partition", default=0)
        )


def ordinal_of(stateful_set: Raw, pod: Raw) -> int | None:
    """The number at the end of the pod's name; None for a pod that is not named after the set."""
    parent, _, number = name_of(pod).rpartition("-")
    return int(number) if parent == name_of(stateful_set) and number.isdigit() else None


def plan_stateful_set(state: SetState) -> list[SetStep]:
    """The next steps of the StatefulSet."""
    if is_deleting(state.stateful_set):
        return []
    steps: list[SetStep] = []
    for ordinal in state.ordinals:
        found = _plan_replica(state, ordinal)
        steps += found.steps
        if found.blocks and state.is_ordered:
            return steps
    steps += _plan_claim_owners(state, state.condemned)
    scaled_down = _plan_scale_down(state)
    if state.is_ordered and state.condemned:
        return [*steps, *scaled_down]
    return [*steps, *scaled_down, *_plan_update(state)]


@dataclass(slots=True)
class _Replica:
    """The steps of one ordinal. `blocks` says that those after it have to wait."""

    blocks: bool = False
    steps: list[SetStep] = field(default_factory=list)


def _plan_replica(state: SetState, ordinal: int) -> _Replica:
    pod = state.pods.get(ordinal)
    if pod is None:
        return _plan_creation(state, ordinal)
    if is_final(pod):
        because = f"it is {nested(pod, 'status', 'phase')}, and is created again"
        return _Replica(True, [] if is_deleting(pod) else [DeleteStatefulPod(pod, because)])
    steps: list[SetStep] = []
    if nested(pod, "status", "phase") == "Pending":
        steps += _plan_claims(state, ordinal)
    if state.is_ordered and (is_deleting(pod) or not is_ready(pod)):
        return _Replica(True, steps)
    return _Replica(False, [*steps, *_plan_claim_owners(state, [ordinal])])


def _plan_creation(state: SetState, ordinal: int) -> _Replica:
    name = pod_name(state.stateful_set, ordinal)
    claims = (state.claims.get(key_of(one)) for one in render_claims(state.stateful_set, ordinal))
    if any(_belongs_to_former_pod(claim, name) for claim in claims if claim is not None):
        return _Replica(True)  # it is deleted with the pod that had it
    pod = render_stateful_pod(state, ordinal)
    because = f"{len(state.ordinals)} replicas are wanted"
    return _Replica(True, [*_plan_claims(state, ordinal), CreateStatefulPod(pod, because)])


def _belongs_to_former_pod(claim: Raw, pod: str) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(one["kind"] == "Pod" and one["name"] == pod for one in owners)


def _plan_claims(state: SetState, ordinal: int) -> list[SetStep]:
    wanted = render_claims(state.stateful_set, ordinal)
    because = f"pod {pod_name(state.stateful_set, ordinal)} mounts it"
    return [CreateClaim(one, because) for one in wanted if key_of(one) not in state.claims]


def _plan_scale_down(state: SetState) -> list[SetStep]:
    """Pods beyond the replicas: all of them, or, in order, the highest one once those before it are Ready."""
    steps: list[SetStep] = []
    unhealthy = _first_unhealthy(state)
    for ordinal in state.condemned:
        pod = state.pods[ordinal]
        if is_deleting(pod):
            if state.is_ordered:
                return steps
            continue
        if state.is_ordered and not is_ready(pod) and ordinal != unhealthy:
            return steps
        steps.append(DeleteStatefulPod(pod, f"{len(state.ordinals)} replicas are wanted"))
        if state.is_ordered:
            return steps
    return steps


def _first_unhealthy(state: SetState) -> int | None:
    ordinals: list[int] = [*state.ordinals, *reversed(state.condemned)]
    for ordinal in ordinals:
        pod = state.pods.get(ordinal)
        if pod is None or is_deleting(pod) or not is_ready(pod):
            return ordinal
    return None


def _plan_update(state: SetState) -> list[SetStep]:
    """The pod of the highest ordinal that has another template, once all above it are Ready again."""
    if nested(state.stateful_set, "spec", "updateStrategy", "type") == "OnDelete":
        return []
    for ordinal in reversed(state.ordinals):
        if ordinal < state.ordinals.start + state.partition:
            return []
        pod = state.pods.get(ordinal)
        if pod is None or is_deleting(pod):
            return []
        if pod_revision(pod) != name_of(state.update):
            return [DeleteStatefulPod(pod, f"it is not of revision {name_of(state.update)}")]
        if not is_ready(pod):
            return []
    return []


# --- claims and what deletes them ------------------------------------------------------------------------------------


def pod_name(stateful_set: Raw, ordinal: int) -> str:
    return f"{name_of(stateful_set)}-{ordinal}"


def render_claims(stateful_set: Raw, ordinal: int) -> list[Raw]:
    """The claims of one pod, of the set's templates."""
    made = []
    selected = nested(stateful_set, "spec", "selector", "matchLabels", default={})
    for template in nested(stateful_set, "spec", "volumeClaimTemplates", default=[]):
        claim = new_object(
            PVC,
            f"{name_of(template)}-{pod_name(stateful_set, ordinal)}",
            namespace_of(stateful_set),
            labels={**labels_of(template), **selected},
            annotations=template["metadata"].get("annotations"),
            spec=loads(dumps(template.get("spec") or {})),
        )
        made.append(claim)
    return made


def claim_owners(state: SetState, ordinal: int) -> list[Raw]:
    """The owners that the retention policy gives the claims of a pod: the set, the pod that is scaled away, or none."""
    policy = nested(state.stateful_set, "spec", "persistentVolumeClaimRetentionPolicy", default={})
    is_wanted, pod = ordinal in state.ordinals, state.pods.get(ordinal)
    if policy.get("whenScaled") == "Delete" and not is_wanted and pod is not None:
        return [owner_reference(POD, pod, controller=True, block=True)]
    if policy.get("whenDeleted") == "Delete":
        return [owner_reference(STATEFUL_SET, state.stateful_set, controller=True, block=True)]
    return []


def _plan_claim_owners(state: SetState, ordinals: Iterable[int]) -> list[SetStep]:
    steps: list[SetStep] = []
    for ordinal in ordinals:
        own = {uid_of(state.stateful_set), uid_of(state.pods[ordinal])}
        wanted = claim_owners(state, ordinal)
        for template in render_claims(state.stateful_set, ordinal):
            claim = state.claims.get(key_of(template))
            if claim is None:
                continue
            before = claim["metadata"].get("ownerReferences") or []
            others = [one for one in before if one["uid"] not in own]
            if any(one.get("controller") for one in others) or before == [*others, *wanted]:
                continue  # another controller's, or as it should be
            steps.append(SetClaimOwners(claim, [*others, *wanted], "persistentVolumeClaimRetentionPolicy"))
    return steps


# --- pods and status -------------------------------------------------------------------------------------------------


def render_stateful_pod(state: SetState, ordinal: int) -> Raw:
    """The pod of an ordinal: of the revision that is left below the partition, else of the new one."""
    is_left = ordinal < state.ordinals.start + state.partition
    revision = state.current if is_left else state.update
    raw = render_pod(state.stateful_set, STATEFUL_SET, state.toleration_s, revision_template(revision))
    name = pod_name(state.stateful_set, ordinal)
    raw["metadata"]["name"] = name
    labels = {POD_NAME: name, POD_INDEX: str(ordinal), POD_REVISION: name_of(revision)}
    raw["metadata"]["labels"] = {**labels_of(raw), **labels}
    spec = raw["spec"]
    spec["hostname"] = name
    if service := nested(state.stateful_set, "spec", "serviceName"):
        spec["subdomain"] = service
    made = [
        {"name": name_of(template), "persistentVolumeClaim": {"claimName": name_of(claim)}}
        for template, claim in zip(
            nested(state.stateful_set, "spec", "volumeClaimTemplates", default=[]),
            render_claims(state.stateful_set, ordinal),
            strict=True,
        )
    ]
    names = {one["name"] for one in made}
    volumes = [*made, *(one for one in spec.get("volumes") or () if one["name"] not in names)]
    return {**raw, "spec": {**spec, "volumes": volumes} if volumes else spec}


def render_stateful_set_status(state: SetState) -> Raw:
    """Counts by revision; once all pods are of the new one, it is the current one."""
    pods = list(state.pods.values())
    ready = sum(nested(pod, "status", "phase") == "Running" and is_ready(pod) for pod in pods)
    kept = [pod_revision(pod) for pod in pods if not is_deleting(pod)]
    current, update = name_of(state.current), name_of(state.update)
    counts = {"currentReplicas": kept.count(current), "updatedReplicas": kept.count(update)}
    is_rolling = nested(state.stateful_set, "spec", "updateStrategy", "type") != "OnDelete"
    if is_rolling and counts["updatedReplicas"] == len(pods) == ready:
        current, counts["currentReplicas"] = update, counts["updatedReplicas"]
    counts["readyReplicas"] = ready
    return {
        "observedGeneration": state.stateful_set["metadata"].get("generation", 1),
        "replicas": len(pods),
        "availableReplicas": ready,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
        **{name: count for name, count in counts.items() if count},
    }


# --- controller ------------------------------------------------------------------------------------------------------


class StatefulSetController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._pods = OwnerIndex(context.informers[POD])
        self._revisions = OwnerIndex(context.informers[CONTROLLER_REVISION])
        for kind in (POD, CONTROLLER_REVISION):
            context.informers[kind].add_event_handler(partial(context.enqueue_owner, STATEFUL_SET))

    async def reconcile(self, key: Key) -> None:
        context = self._context
        stateful_set = context.informers[STATEFUL_SET].get(key)
        if stateful_set is None or is_deleting(stateful_set) or not selector_matches_template(stateful_set):
            return
        held = await ensure_revisions(context, self._revisions, stateful_set, STATEFUL_SET, _REVISION_LABEL)
        if not held:
            return  # the namespace is gone
        for action in plan_stateful_set(self._observe(stateful_set, held)):
            await self._execute(action)
        after = self._observe(stateful_set, held)
        await context.update_status(STATEFUL_SET, stateful_set, render_stateful_set_status(after))
        live = {name_of(after.current), name_of(after.update), *map(pod_revision, after.pods.values())}
        await trim_history(context, stateful_set, held, live)

    async def _execute(self, step: SetStep) -> None:
        context = self._context
        match step:
            case CreateClaim(claim, _):
                await context.create(PVC, claim)
            case SetClaimOwners(claim, owners, _):
                edit = {"ownerReferences": owners}
                await context.update(PVC, claim, lambda raw: raw["metadata"].update(edit))
            case CreateStatefulPod(pod, _):
                await context.create(POD, pod)
            case DeleteStatefulPod(pod, _):
                await context.delete(POD, pod)

    def _observe(self, stateful_set: Raw, revisions: Sequence[Raw]) -> SetState:
        update = max(revisions, key=number_of)
        named = nested(stateful_set, "status", "currentRevision")
        current = next((one for one in revisions if name_of(one) == named), update)
        numbered = [(ordinal_of(stateful_set, pod), pod) for pod in self._pods.owned_by(stateful_set)]
        pods = {ordinal: pod for ordinal, pod in numbered if ordinal is not None}
        claims = self._context.informers[PVC]
        return SetState(stateful_set, pods, claims, current, update, self._context.toleration_s)
