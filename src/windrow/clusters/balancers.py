"""The end of a cluster's load balancers on Harvester, and of the addresses that they hold.

It comes after the last machine is gone, since no cloud provider can write any more then, and before the guest's
account goes. A label is all that says whose a load balancer is, and two clusters may have one name. So those are left
alone, and told, of which there is a doubt: VMs of another cluster of that name stand in the same namespace; it was
made before our Cluster was; the mark is not our guest's, as far as we know; or the name is the one that nameless
clusters have.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windrow.clusters.actions import DeleteBalancers, KeepBalancers, Wait
from windrow.clusters.leftovers import Balancer
from windrow.clusters.parts import Part, Sheet
from windrow.clusters.reading import Cluster
from windrow.clusters.seen import Seen

# Harvester gives an address back within moments. What has hung for longer may hang for hours.
ASK_AGAIN = timedelta(seconds=1)
ASK_SELDOM = timedelta(seconds=10)
MOST_AT_A_LOOK = 64
MOST_NAMED = 3
# Harvester dates the load balancer and the management API the Cluster, each by its own clock. What seems to be younger
# than the Cluster by less than this may be older. The mark of our own guest makes up for so small a doubt.
CLOCKS_APART = timedelta(minutes=1)
# The framework's word for a cluster that was given no name; the labels of all such clusters are the same.
UNNAMED = frozenset({"", "kubernetes"})
NEXT = "the account on Harvester and the Secrets go"


def plan_end(seen: Seen) -> Part:
    """Delete those that are ours, and wait for each that goes. Waits for nothing once none is left but those kept."""
    sheet = Sheet()
    left = seen.leftovers
    if left is None:
        return sheet.part()
    if left.unknown:
        what = f"Harvester to show the load balancers of the cluster ({left.unknown})"
        sheet.waits.append(Wait(what, "they are deleted", until=seen.now + ASK_SELDOM))
        return sheet.part()
    going = [one for one in left.balancers if not reason_to_keep(one, seen)]
    doomed = tuple(one for one in going if one.deleting is None)[:MOST_AT_A_LOOK]
    if doomed:
        why = f"the cluster is deleted; no service needs {_named(doomed)} any more"
        sheet.actions.append(DeleteBalancers(why, tuple((one.ref, one.uid) for one in doomed)))
    if going:
        sheet.waits.append(Wait(_what_stays(going), NEXT, until=seen.now + _patience(going, seen)))
    return sheet.part()


def plan_farewell(seen: Seen) -> list[KeepBalancers]:
    """Say what stays on Harvester although the cluster goes, and why."""
    left = seen.leftovers.balancers if seen.leftovers else ()
    by_reason: dict[str, list[Balancer]] = {}
    for one in left:
        if why := reason_to_keep(one, seen):
            by_reason.setdefault(why, []).append(one)
    return [KeepBalancers(_farewell(some, why)) for why, some in by_reason.items()]


def reason_to_keep(balancer: Balancer, seen: Seen) -> str:
    """Why it is left alone; "" where it is this cluster's for all that is known."""
    name, left = seen.cluster.name, seen.leftovers
    if name in UNNAMED:
        return f"clusters without a name of their own are called {name!r}, so it may be another's"
    if left is not None and left.namesakes:
        more = f" (and {len(left.namesakes) - 1} more)" if len(left.namesakes) > 1 else ""
        return f"VM {left.namesakes[0]}{more} belongs to another cluster called {name}, whose it may be"
    known = seen.standing.guest_uid
    if balancer.mark and not known:
        return f"one guest cluster called {name} had it made, and which one this was is not recorded"
    if balancer.mark and balancer.mark != known:
        return f"another guest cluster called {name} had it made"
    if not _is_younger(balancer, seen.cluster):
        return f"it was there before this cluster was, so another one called {name} may have had it made"
    return ""


def _is_younger(balancer: Balancer, cluster: Cluster) -> bool:
    """Whether it was surely made after the Cluster was. A mark that it bears is our guest's."""
    if balancer.created is None or cluster.created is None:
        return False
    apart = timedelta() if balancer.mark else CLOCKS_APART
    return balancer.created > cluster.created + apart


def _what_stays(going: Sequence[Balancer]) -> str:
    slowest = min(going, key=lambda one: (one.deleting is None, one.deleting, one.name))
    held = (
        f"; it waits for {', '.join(slowest.finalizers)}" if slowest.deleting and slowest.finalizers else ""
    )
    if len(going) == 1:
        return f"load balancer {slowest} to be gone from Harvester{held}"
    return f"{len(going)} load balancers to be gone from Harvester, {slowest} among them{held}"


def _patience(going: Sequence[Balancer], seen: Seen) -> timedelta:
    oldest = min((one.deleting for one in going if one.deleting), default=seen.now)
    return ASK_AGAIN if seen.now - oldest < ASK_SELDOM else ASK_SELDOM


def _named(some: Sequence[Balancer]) -> str:
    kind = "load balancer" if len(some) == 1 else "load balancers"
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return f"{kind} {', '.join(str(one) for one in some[:MOST_NAMED])}{more}"


def _farewell(some: Sequence[Balancer], why: str) -> str:
    names = " ".join(one.name for one in some[:MOST_NAMED])
    by_hand = f"kubectl -n {some[0].namespace} delete loadbalancers.loadbalancer.harvesterhci.io {names}"
    verb = "stays" if len(some) == 1 else "stay"
    return f"{_named(some)} {verb} on Harvester: {why}; if not, delete by hand, there: {by_hand}"
