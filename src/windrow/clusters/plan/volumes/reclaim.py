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
| recorded: Delete, and a VolumeSnapshot of it stays   | kept, since that may need it    |
| recorded: Delete, without a mark, as the Go driver's | kept, with the way to delete it |
| recorded: Retain                                     | kept                            |
| not recorded, marked as this guest's                 | kept, with the way to delete it |
| recorded, and another guest's, or no CSI driver's    | kept, and no way is shown       |
| any other                                            | not touched                     |

| What was made of it                                           | Then                            |
|---------------------------------------------------------------|---------------------------------|
| a NetworkFilesystem, marked as this guest's                   | deleted with its claim          |
| a snapshot or backup, marked, recorded: Delete                | deleted with its claim          |
| any other snapshot or backup that is marked, or was recorded  | kept, with the way to delete it |

What a VolumeSnapshot holds may be stored in the volume that it was made of (class longhorn-snapshot), and goes with it. So the claim
stays for each one that stays, also one that a person made, and where they cannot be listed.

A VM that uses a claim is one that has it in its spec or in that of its instance, and so is a NetworkFilesystem that others have turned on.
The guest is asked until the first of its machines is deleted, and what its PersistentVolumes say last counts. A record that is older than
`ASK_TIMEOUT` by then, and that the guest does not repeat, has nothing deleted.

A cluster whose API does not answer is asked for `ASK_TIMEOUT`; then it is deleted without, and all its volumes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.names import SKIP_CLEANUP
from windrow.clusters.plan.actions import DeleteVolumes, KeepClaims, KeepVolumes, PartialPlan, RecordVolumes
from windrow.clusters.sources.volumes.dependents import Dependent
from windrow.clusters.sources.volumes.guest_volumes import UNMARKED, VolumeClaim
from windrow.clusters.state import ClusterState, once_per_state, unreachable_reason
from windrow.core.text import join_some
from windrow.harvester.resources import VOLUME_SNAPSHOT
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete

ASK_TIMEOUT = timedelta(minutes=1)
RECHECK = timedelta(seconds=5)
MAX_PER_RECONCILE = 64
MAX_NAMED = 3
# Of those that are kept, in one event, and events of one reason: the recorder sends no more, and cuts longer ones.
MAX_NAMED_KEPT = 6
MAX_EVENTS = 8
_Kept = VolumeClaim | Dependent
NEXT_STEP = "the ServiceAccount on Harvester and the Secrets are deleted"


def must_ask(state: ClusterState) -> bool:
    """Whether the guest has to be asked for its volumes before a machine is deleted, also where it was before: what it says last
    counts."""
    if state.cluster.deletion_timestamp is None or not state.recorded.initialized or _is_opted_out(state):
        return False
    # Once servers are gone there is no one to ask; a status from before volumes were recorded says so too.
    return any(machine.record.is_server and not machine.is_deleting for machine in state.machines)


def plan_record(state: ClusterState) -> PartialPlan:
    """Record the volumes of the guest, or wait until it answers. Nothing else is to be done while there is a wait."""
    partial = PartialPlan()
    if not must_ask(state):
        return partial
    found, recorded = state.guest_volumes, state.recorded.volumes
    if found is not None and found != recorded:
        why = f"{len(found.delete)} of its volumes are to be deleted and {len(found.retain)} to be kept"
        _record(found, why, state, partial)
    elif found is None and not _is_fresh(recorded, state) and state.now < (end := _find_answer_end(state)):
        partial.wait(
            f"the guest API server to list PersistentVolumes ({unreachable_reason(state.guest)})",
            "its Machines are deleted; at the latest a minute after the Cluster, and then all volumes are kept",
            until=min(state.now + RECHECK, end),
        )
    elif found is None and recorded is not None and not _is_fresh(recorded, state):
        # Machines were not deleted at once, and a policy may have been changed since.
        why = "the guest API server does not repeat that volumes are to be deleted, so all are kept"
        _record(GuestVolumes((), recorded.retain), why, state, partial)
    return partial


def _record(volumes: GuestVolumes, why: str, state: ClusterState, partial: PartialPlan) -> None:
    """What is recorded already is of the last minute, or else it is waited until this is."""
    partial.actions.append(RecordVolumes(why, volumes))
    if _is_fresh(state.recorded.volumes, state):
        return
    partial.wait(
        "the reclaim policies of its volumes to be recorded",
        "its Machines are deleted",
        until=state.now + RECHECK,
    )


def _is_fresh(recorded: GuestVolumes | None, state: ClusterState) -> bool:
    return recorded is not None and recorded.at is not None and state.now < recorded.at + ASK_TIMEOUT


def _find_answer_end(state: ClusterState) -> datetime:
    """Until when an answer is waited for: a minute from the deletion of the Cluster, or since this process began to ask."""
    since = state.cluster.deletion_timestamp
    assert since is not None  # else there is nothing to ask
    if state.volumes_asked_for is not None:
        since = max(since, state.now - state.volumes_asked_for)
    return since + ASK_TIMEOUT


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Delete what is recorded for it, first what was made of the volumes, and wait until it is gone."""
    partial = PartialPlan()
    claims = [one for one in _volumes(state) if not reason_to_keep(one, state)]
    dependents = [one for one in _dependents(state) if not reason_to_keep_dependent(one, state)]
    going = [*dependents, *claims]
    if not going:
        return partial
    for some, because in (
        (dependents, "it is made of a volume that goes"),
        (claims, "the reclaim policy of {} is Delete"),
    ):
        to_delete = tuple(one for one in some if not one.is_deleting)[:MAX_PER_RECONCILE]
        if to_delete:
            why = f"the Cluster is deleted, and {because.format(_listed(to_delete))}"
            partial.actions.append(DeleteVolumes(why, to_delete))
            break
    more = f" (and {len(going) - 1} more)" if len(going) > 1 else ""
    partial.wait(f"{going[0]} to be deleted{more}", NEXT_STEP, until=state.now + RECHECK)
    return partial


def plan_kept(state: ClusterState) -> list[KeepVolumes | KeepClaims]:
    """Report which volumes stay on Harvester, what was made of volumes and stays, and why."""
    by_reason: dict[tuple[str, bool], list[VolumeClaim]] = {}
    for one in _volumes(state):
        if why := reason_to_keep(one, state):
            by_reason.setdefault((why, _may_be_own(one)), []).append(one)
    kept: list[KeepVolumes | KeepClaims] = []
    for (why, is_own), some in by_reason.items():
        kept += _report(KeepVolumes if why == RETAINED else KeepClaims, some, why, is_own)
    return kept + _plan_kept_dependents(state)


def _plan_kept_dependents(state: ClusterState) -> list[KeepVolumes | KeepClaims]:
    by_reason: dict[tuple[str, bool, str], list[Dependent]] = {}
    for one in _dependents(state):
        if why := reason_to_keep_dependent(one, state):
            by_reason.setdefault((why, _may_be_own(one), one.ref.kind.kind), []).append(one)
    kept: list[KeepVolumes | KeepClaims] = []
    for (why, is_own, _), some in by_reason.items():
        kept += _report(KeepVolumes, some, why, is_own)
    recorded, unknown = (
        state.recorded.volumes,
        state.orphans.volume_dependents_unknown if state.orphans else "",
    )
    if unknown and recorded is not None and (recorded.delete or recorded.snapshots):
        kept.append(
            KeepVolumes(f"what was made of its volumes may stay, since it cannot be listed: {unknown}")
        )
    return kept


def _report(
    action: type[KeepVolumes | KeepClaims], some: Sequence[_Kept], why: str, is_own: bool
) -> list[KeepVolumes | KeepClaims]:
    starts = range(0, len(some), MAX_NAMED_KEPT)[:MAX_EVENTS]
    kept: list[KeepVolumes | KeepClaims] = [
        action(_kept_sentence(some[start : start + MAX_NAMED_KEPT], why, is_own)) for start in starts
    ]
    if (rest := len(some) - MAX_EVENTS * MAX_NAMED_KEPT) > 0:
        kept.append(action(f"{rest} more {some[0].ref.kind.kind}s, since {why}"))
    return kept


def _kept_sentence(some: Sequence[_Kept], why: str, is_own: bool) -> str:
    """A command only for what is the guest's as far as is known: the name of another's disk is not to be pasted."""
    named = _listed(some, MAX_NAMED_KEPT)
    if not is_own:
        return f"{named}, since {why}"
    others = (one.ref.name for one in some[1:])
    by_hand = render_delete(some[0].ref, *others, kubeconfig=ON_HARVESTER)
    if why == UNMARKED:
        return f"{named}, since {why}; if no other guest has it in a PersistentVolume, delete it by hand, there: {by_hand}"
    return f"{named}, since {why}; to delete by hand, there: {by_hand}"


RETAINED = "their PersistentVolumes have the reclaim policy Retain, or were made by hand"
NOT_TO_DELETE = "no VolumeSnapshotContent of the guest said that they are to be deleted"
VOLUME_STAYS = "the volume that they were made of stays, or went before"


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
        return f"{claim.users[0]} uses it"
    if claim.unknown and not claim.is_deleting:
        return f"it is not known {claim.unknown}"
    staying = [name for name in claim.snapshots if name not in _snapshots_to_delete(state)]
    if staying and not claim.is_deleting:
        return f"VolumeSnapshot {claim.namespace}/{staying[0]} of it stays, and may be stored in its volume"
    return ""


def reason_to_keep_dependent(one: Dependent, state: ClusterState) -> str:
    """Why what was made of a volume is not deleted; "" where it is: with the volume, and an export also behind it."""
    if _is_opted_out(state):
        return f"annotation {SKIP_CLEANUP} keeps all volumes"
    if why := _lacks_request(one):
        return why
    if one.is_deleting or (one.is_export and not one.claim):
        return ""
    return "" if one.claim in _names_to_delete(state) else VOLUME_STAYS


def _lacks_request(one: Dependent) -> str:
    """Why it stays whatever becomes of its volume; "" where it goes with that."""
    if one.unproven:
        return one.unproven
    return "" if one.goes_with_claim else NOT_TO_DELETE


@once_per_state
def _snapshots_to_delete(state: ClusterState) -> frozenset[str]:
    """The VolumeSnapshots that go with their claims, so that those need not stay for them."""
    snapshots = (one for one in _dependents(state) if one.ref.kind == VOLUME_SNAPSHOT)
    return frozenset(one.ref.name for one in snapshots if not _lacks_request(one))


@once_per_state
def _names_to_delete(state: ClusterState) -> frozenset[str]:
    return frozenset(claim.name for claim in _volumes(state) if not reason_to_keep(claim, state))


def _may_be_own(one: _Kept) -> bool:
    return one.unproven in ("", UNMARKED)


def _dependents(state: ClusterState) -> tuple[Dependent, ...]:
    return state.orphans.volume_dependents if state.orphans else ()


def _volumes(state: ClusterState) -> tuple[VolumeClaim, ...]:
    return state.orphans.volumes if state.orphans else ()


def _is_opted_out(state: ClusterState) -> bool:
    return state.cluster.keeps_volumes


def _listed(some: Sequence[_Kept], limit: int = MAX_NAMED) -> str:
    """Of one kind, or of several while something is deleted."""
    kinds = {one.ref.kind.kind for one in some}
    if len(kinds) > 1:
        return join_some(some, 1)
    kind = next(iter(kinds)) + ("" if len(some) == 1 else "s")
    return f"{kind} {join_some([f'{one.ref.namespace}/{one.ref.name}' for one in some], limit)}"
