"""Deletion of a cluster's LoadBalancers on Harvester, and of the addresses that they hold.

They are deleted after the last machine, since no cloud provider can write any more then, and before the guest's
ServiceAccount. A label with the cluster's name is their only reference to a cluster, and two clusters may have one
name. So a LoadBalancer is kept and reported where it may be another cluster's: VMs of another cluster of that name are
in the same namespace; it was created before our Cluster; its guest uid is not, as far as is recorded, our guest's; or
the name is the default of clusters without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.orphans import OrphanLoadBalancer
from windrow.clusters.plan.actions import DeleteLoadBalancers, KeepLoadBalancers, PartialPlan
from windrow.clusters.state import ClusterState
from windrow.core.text import join_some
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete

# Harvester releases an address within moments. What takes longer may take hours.
RECHECK_SOON = timedelta(seconds=1)
RECHECK_LATER = timedelta(seconds=10)
MAX_PER_RECONCILE = 64
MAX_NAMED = 3
# Harvester dates the load balancer and the management API the Cluster, each by its own clock. What seems to be younger
# than the Cluster by less than this may be older, unless it carries the uid of our guest.
MAX_CLOCK_SKEW = timedelta(minutes=1)
# The default of Kubernetes' cloud provider framework; the labels of all clusters without a name are the same.
DEFAULT_NAMES = frozenset({"", "kubernetes"})
NEXT_STEP = "the ServiceAccount on Harvester and the Secrets are deleted"


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Delete those that are ours, and wait until only those to be kept are left."""
    partial = PartialPlan()
    orphans = state.orphans
    if orphans is None:
        return partial
    if orphans.unknown:
        what = f"Harvester to list what is left of the cluster ({orphans.unknown})"
        partial.wait(what, "they are deleted", until=state.now + RECHECK_LATER)
        return partial
    going = [one for one in orphans.load_balancers if not reason_to_keep(one, state)]
    to_delete = tuple(one for one in going if one.deletion_timestamp is None)[:MAX_PER_RECONCILE]
    if to_delete:
        why = f"the Cluster is deleted; no Service needs {_listed(to_delete)} any more"
        partial.actions.append(DeleteLoadBalancers(why, tuple((one.ref, one.uid) for one in to_delete)))
    if going:
        partial.wait(_remaining(going), NEXT_STEP, until=state.now + _recheck_interval(going, state))
    return partial


def plan_kept(state: ClusterState) -> list[KeepLoadBalancers]:
    """Report what stays on Harvester although the Cluster is deleted, and why."""
    found = state.orphans.load_balancers if state.orphans else ()
    by_reason: dict[str, list[OrphanLoadBalancer]] = {}
    for one in found:
        if why := reason_to_keep(one, state):
            by_reason.setdefault(why, []).append(one)
    return [KeepLoadBalancers(_kept_sentence(some, why)) for why, some in by_reason.items()]


def reason_to_keep(load_balancer: OrphanLoadBalancer, state: ClusterState) -> str:
    """Why it may be another cluster's; "" where it is this one's as far as is known."""
    name, orphans = state.cluster.name, state.orphans
    if name in DEFAULT_NAMES:
        return f"clusters without a name of their own are called {name!r}, so it may be another's"
    if orphans is not None and orphans.same_name_vms:
        more = f" (and {len(orphans.same_name_vms) - 1} more)" if len(orphans.same_name_vms) > 1 else ""
        return (
            f"VM {orphans.same_name_vms[0]}{more} belongs to another cluster called {name}, and so may this"
        )
    known = state.recorded.guest_uid
    if load_balancer.guest_uid and not known:
        return f"a guest cluster called {name} created it, and the uid of this one is not recorded"
    if load_balancer.guest_uid and load_balancer.guest_uid != known:
        return f"another guest cluster called {name} created it"
    if not _is_created_after(load_balancer, state.cluster):
        return f"it was created before this cluster, so another one called {name} may have created it"
    return ""


def _is_created_after(load_balancer: OrphanLoadBalancer, cluster: Cluster) -> bool:
    """Whether it was certainly created after the Cluster. Its guest uid, if any, is our guest's."""
    if load_balancer.created is None or cluster.created is None:
        return False
    tolerance = timedelta() if load_balancer.guest_uid else MAX_CLOCK_SKEW
    return load_balancer.created > cluster.created + tolerance


def _remaining(going: Sequence[OrphanLoadBalancer]) -> str:
    slowest = min(going, key=lambda one: (one.deletion_timestamp is None, one.deletion_timestamp, one.name))
    held = (
        f" (finalizers: {', '.join(slowest.finalizers)})"
        if slowest.deletion_timestamp and slowest.finalizers
        else ""
    )
    if len(going) == 1:
        return f"LoadBalancer {slowest} to be deleted{held}"
    return f"{len(going)} LoadBalancers to be deleted, among them {slowest}{held}"


def _recheck_interval(going: Sequence[OrphanLoadBalancer], state: ClusterState) -> timedelta:
    oldest = min((one.deletion_timestamp for one in going if one.deletion_timestamp), default=state.now)
    return RECHECK_SOON if state.now - oldest < RECHECK_LATER else RECHECK_LATER


def _listed(some: Sequence[OrphanLoadBalancer]) -> str:
    kind = "LoadBalancer" if len(some) == 1 else "LoadBalancers"
    return f"{kind} {join_some(some, MAX_NAMED)}"


def _kept_sentence(some: Sequence[OrphanLoadBalancer], why: str) -> str:
    others = (one.name for one in some[1:MAX_NAMED])
    by_hand = render_delete(some[0].ref, *others, kubeconfig=ON_HARVESTER)
    return f"{_listed(some)}, since {why}; if not, delete by hand, there: {by_hand}"
