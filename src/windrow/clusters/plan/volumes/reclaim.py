"""Deletion of a cluster's volumes on Harvester, as the reclaim policies of its PersistentVolumes say.

Before the first machine is deleted the guest is asked for them, and the answer is recorded: afterwards it cannot be asked any
more. When the machines are gone, and nothing of the cluster can write, the claims are deleted that are recorded for it and
that are proven, by their marks on Harvester, to be made for this guest: the guest's word alone could name any claim. No
`removeAllPersistentVolumeClaims` is ever set on a VM: it would delete what is plugged into that VM whatever its policy says,
and not what is plugged into none.

| The claim                                            | Then                            |
|------------------------------------------------------|---------------------------------|
| recorded: Delete, marked as this guest's             | deleted                         |
| recorded: Delete, used by a VM                       | kept, since it is used          |
| recorded: Delete, without a mark, as the Go driver's | kept, with the way to delete it |
| recorded: Retain                                     | kept                            |
| not recorded, marked as this guest's                 | kept, with the way to delete it |
| recorded, and another guest's, or no CSI driver's    | kept, and no way is shown       |
| any other                                            | not touched                     |

A cluster whose API does not answer is asked for `ASK_TIMEOUT`; then it is deleted without, and all its volumes are kept.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.api.names import SKIP_CLEANUP
from windrow.clusters.plan.actions import DeleteVolumes, KeepClaims, KeepVolumes, PartialPlan, RecordVolumes
from windrow.clusters.sources.volumes.guest_volumes import UNMARKED, VolumeClaim
from windrow.clusters.state import ClusterState, unreachable_reason
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete

ASK_TIMEOUT = timedelta(minutes=1)
RECHECK = timedelta(seconds=5)
MAX_PER_RECONCILE = 64
MAX_NAMED = 3
# Of those that are kept, in one event, and events of one reason: the recorder sends no more, and cuts longer ones.
MAX_NAMED_KEPT = 6
MAX_EVENTS = 8
NEXT_STEP = "the ServiceAccount on Harvester and the Secrets are deleted"


def must_ask(state: ClusterState) -> bool:
    """Whether the guest has to be asked for its volumes before a machine is deleted."""
    recorded, since = state.recorded, state.cluster.deletion_timestamp
    if since is None or not recorded.initialized or recorded.volumes is not None or _is_opted_out(state):
        return False
    # Once servers are gone there is no one to ask; a status from before volumes were recorded says so too.
    return any(machine.record.is_server and not machine.is_deleting for machine in state.machines)


def plan_record(state: ClusterState) -> PartialPlan:
    """Record the volumes of the guest, or wait until it answers. Nothing else is to be done while there is a wait."""
    partial = PartialPlan()
    if not must_ask(state):
        return partial
    since = state.cluster.deletion_timestamp
    assert since is not None  # else there is nothing to ask
    if state.guest_volumes is not None:
        found = state.guest_volumes
        why = f"{len(found.delete)} of its volumes are to be deleted and {len(found.retain)} to be kept"
        partial.actions.append(RecordVolumes(why, found))
        partial.wait(
            "the reclaim policies of its volumes to be recorded",
            "its Machines are deleted",
            until=state.now + RECHECK,
        )
    elif state.now < since + ASK_TIMEOUT:
        partial.wait(
            f"the guest API server to list PersistentVolumes ({unreachable_reason(state.guest)})",
            "its Machines are deleted; at the latest a minute after the Cluster, and then all volumes are kept",
            until=min(state.now + RECHECK, since + ASK_TIMEOUT),
        )
    return partial


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Delete what is recorded for it, and wait until it is gone."""
    partial = PartialPlan()
    going = [one for one in _volumes(state) if not reason_to_keep(one, state)]
    if not going:
        return partial
    to_delete = tuple(one for one in going if not one.is_deleting)[:MAX_PER_RECONCILE]
    if to_delete:
        why = f"the Cluster is deleted, and the reclaim policy of {_listed(to_delete)} is Delete"
        partial.actions.append(DeleteVolumes(why, to_delete))
    more = f" (and {len(going) - 1} more)" if len(going) > 1 else ""
    partial.wait(f"{going[0]} to be deleted{more}", NEXT_STEP, until=state.now + RECHECK)
    return partial


def plan_kept(state: ClusterState) -> list[KeepVolumes | KeepClaims]:
    """Report which volumes stay on Harvester, and why."""
    by_reason: dict[tuple[str, bool], list[VolumeClaim]] = {}
    for one in _volumes(state):
        if why := reason_to_keep(one, state):
            by_reason.setdefault((why, _may_be_own(one)), []).append(one)
    kept: list[KeepVolumes | KeepClaims] = []
    for (why, is_own), some in by_reason.items():
        action = KeepVolumes if why == RETAINED else KeepClaims
        for start in range(0, len(some), MAX_NAMED_KEPT)[:MAX_EVENTS]:
            kept.append(action(_kept_sentence(some[start : start + MAX_NAMED_KEPT], why, is_own)))
        if (rest := len(some) - MAX_EVENTS * MAX_NAMED_KEPT) > 0:
            kept.append(action(f"{rest} more PersistentVolumeClaims, since {why}"))
    return kept


def _kept_sentence(some: list[VolumeClaim], why: str, is_own: bool) -> str:
    """A command only for what is the guest's as far as is known: the name of another's disk is not to be pasted."""
    named = _listed(some, MAX_NAMED_KEPT)
    if not is_own:
        return f"{named}, since {why}"
    others = (one.name for one in some[1:])
    by_hand = render_delete(some[0].ref, *others, kubeconfig=ON_HARVESTER)
    if why == UNMARKED:
        return f"{named}, since {why}; if no other guest has it in a PersistentVolume, delete it by hand, there: {by_hand}"
    return f"{named}, since {why}; to delete by hand, there: {by_hand}"


RETAINED = "their PersistentVolumes have the reclaim policy Retain, or were made by hand"


def reason_to_keep(claim: VolumeClaim, state: ClusterState) -> str:
    """Why the claim is not deleted; "" where it is."""
    if _is_opted_out(state):
        return f"annotation {SKIP_CLEANUP} keeps all volumes"
    if not _may_be_own(claim):
        return claim.unproven
    if claim.policy == "Retain":
        return RETAINED
    if claim.policy != "Delete":
        return "the guest did not say that it is to be deleted"
    if claim.unproven:
        return claim.unproven
    if claim.users and not claim.is_deleting:
        return f"VirtualMachine {claim.users[0]} uses it"
    return ""


def _may_be_own(claim: VolumeClaim) -> bool:
    return claim.unproven in ("", UNMARKED)


def _volumes(state: ClusterState) -> tuple[VolumeClaim, ...]:
    return state.orphans.volumes if state.orphans else ()


def _is_opted_out(state: ClusterState) -> bool:
    return state.cluster.keeps_volumes


def _listed(some: tuple[VolumeClaim, ...] | list[VolumeClaim], limit: int = MAX_NAMED) -> str:
    kind = "PersistentVolumeClaim" if len(some) == 1 else "PersistentVolumeClaims"
    more = f" and {len(some) - limit} more" if len(some) > limit else ""
    return f"{kind} {', '.join(f'{one.namespace}/{one.name}' for one in some[:limit])}{more}"
