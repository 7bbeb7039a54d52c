"""A new Cluster that begins with a snapshot of another: what keeps the copy from acting on what belongs to the original.

The guest in a snapshot takes itself for the original. Its cloud provider would reconcile the original's LoadBalancers, its
attach-detach controller and CSI driver would detach the original's volumes from the original's VMs, since the Nodes that have them
are gone here, and a claim that is deleted here would be deleted there. So:

| Danger | Guard |
|---|---|
| pods of the snapshot act before anything was corrected | the first server registers with TAINT, which they do not tolerate; no other machine joins |
| the cloud provider has the original's name | its Deployment is scaled to none, until its chart is installed anew with the name of the copy |
| attachments | Nodes of the original, their pods and their VolumeAttachments are deleted, without asking the driver |
| claims and snapshots of volumes are deleted | the policies of PersistentVolumes and VolumeSnapshotContents become Retain |
| a pod mounts a volume of the original | its PersistentVolume wants a Node with label VOLUMES_OF, and none has it |
| addresses | those of Services of type LoadBalancer are taken out of them, so that the copy asks for its own |
| the mark by which our programs know what is theirs | Service default/kubernetes is deleted: it comes back with another uid, which is the mark |
| etcd snapshots in S3 | the copy has no S3 before all that is done, and never the original's folder |

All this is one action, which may be repeated; once it finds nothing left to do, it takes the taint off. What the two share for good is
the certificate authorities, the keys of service accounts and the server token.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.api.operations.snapshot import SnapshotFile
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations.actions import ReleaseCopy, SeparateCopy
from windrow.clusters.state import ClusterState
from windrow.machines.port import Problem

TAINT_KEY = "windrow.io/restored-copy"
TAINT = f"{TAINT_KEY}:NoExecute"
VOLUMES_OF = "windrow.io/volumes-of"
RECHECK = timedelta(seconds=5)
CLOCK_SKEW = timedelta(minutes=2)  # between the clock of a guest and this one
FIELD = "spec.rkeConfig.etcdSnapshotRestore"


def is_requested(state: ClusterState) -> bool:
    """Whether the Cluster is to begin with the snapshot of another, and has not begun."""
    request = state.cluster.operations.restore
    return request is not None and request.source is not None and not state.recorded.initialized


def is_exclusive(state: ClusterState) -> bool:
    """Whether nothing else is done: before the snapshot was found fit, since the Cluster would begin empty, and from the first
    answer of its API until the copy is separated."""
    recorded = state.recorded.operations
    if state.recorded.initialized:
        return is_unseparated(state) and recorded.restore.phase in ("Restore", "PostRestorePodCleanup")
    return is_requested(state) and recorded.restore.phase in ("", "Failed")


def is_unseparated(state: ClusterState) -> bool:
    source = state.recorded.operations.source
    return source is not None and not source.separated


def holds_pools(state: ClusterState) -> bool:
    """Whether only the first server may exist."""
    return is_unseparated(state)


def check_separated(file: SnapshotFile, where: str, state: ClusterState) -> Problem | None:
    """A snapshot of before the separation makes the guest the original again, as the file does with which the copy has begun: its
    first server has that on its disk."""
    source = state.recorded.operations.source
    if source is None:
        return None
    if file.created and source.separated and file.created > source.separated + CLOCK_SKEW:
        return None
    return Problem(
        f"{where} is of the time before this Cluster was separated from Cluster {source.cluster}, and its guest would act on what "
        "belongs to that one",
        f"name a later snapshot, or begin a new Cluster with it; nothing was touched, raise {FIELD}.generation to try again",
        FIELD,
    )


def plan_hold(state: ClusterState, partial: PartialPlan) -> None:
    partial.wait(
        f"a higher {FIELD}.generation ({state.recorded.operations.restore.message})",
        "the Cluster begins with the snapshot; without from it would begin empty",
    )


def plan_separation(state: ClusterState, partial: PartialPlan) -> None:
    """Separate the copy, again until nothing is left to do."""
    recorded, source = state.recorded.operations.restore, state.recorded.operations.source
    first = state.init_server
    if source is None or first is None:
        return
    then = f"what the guest has of Cluster {source.cluster} is taken from it"
    if not state.guest.is_reachable or state.guest.interruption:
        partial.wait(
            f"the guest API to answer, which only Machine {first.name} has (a higher {FIELD}.generation begins anew without it)",
            then,
        )
        return
    if recorded.message and recorded.since and state.now < (due := recorded.since + RECHECK):
        partial.wait(recorded.message, "pods of the copy may run", until=due)
        return
    if source.is_clean:
        why = (
            f"its guest has nothing left that acts on Cluster {source.cluster}, whose snapshot it began with"
        )
        partial.actions.append(ReleaseCopy(why, first.node_name))
        return
    why = f"its etcd is that of Cluster {source.cluster} in snapshot {recorded.file}"
    partial.actions.append(SeparateCopy(why, first.node_name))
