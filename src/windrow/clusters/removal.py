"""Removal, of one machine in steps and of a whole cluster.

A machine of a living cluster: its node is emptied, its etcd member dropped, its VM removed, its Node and its password
forgotten; then its record goes. Every step shows in the world when it is done, so nothing needs to be remembered, and
a crash resumes where it was. A cluster that ends as a whole needs none of the guest's steps.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.access import plan_end as plan_account_end
from windrow.clusters.actions import (
    Cordon,
    Evict,
    ForgetNode,
    ForgetSecrets,
    LeaveEtcd,
    Release,
    Remove,
    RemoveFinalizer,
    Retire,
    Wait,
    brief,
)
from windrow.clusters.balancers import plan_end as plan_balancers_end
from windrow.clusters.balancers import plan_farewell
from windrow.clusters.parts import Disruption, Part, Sheet, joined
from windrow.clusters.seen import MachineSeen, Seen, silent_about

EVICT_AGAIN = timedelta(seconds=5)
REMOVE_AGAIN = timedelta(minutes=2)


def plan(seen: Seen) -> Part:
    """The next step of every machine that leaves a living cluster."""
    sheet = Sheet()
    for machine in seen.leaving:
        if machine.record.claimed:
            _next_step(machine, seen, sheet)
    return sheet.part()


def _next_step(machine: MachineSeen, seen: Seen, sheet: Sheet) -> None:
    if not machine.record.was_ordered:
        sheet.actions.append(Release("nothing was made for it", machine.name))
    elif _must_drain(machine, seen):
        _drain(machine, seen, sheet)
    elif seen.standing.initialized and (seen.is_member(machine) or _may_be_member(machine, seen)):
        _leave_etcd(machine, seen, sheet)
    elif machine.presence != "missing":
        _remove(machine, seen, sheet)
    else:
        _forget(machine, seen, sheet)


def _may_be_member(machine: MachineSeen, seen: Seen) -> bool:
    """It may have joined while no manager looked; only a guest that answers can say that it has not."""
    return machine.is_etcd and machine.node is None and not seen.guest.answers


def wants_pods(machine: MachineSeen, seen: Seen) -> bool:
    """Whether the pods on its node are of interest: somebody has to look at them."""
    return machine.is_leaving and not seen.cluster.deleting and _is_drainable(machine, seen)


def _is_drainable(machine: MachineSeen, seen: Seen) -> bool:
    """A node that is not Ready cannot end its pods; waiting for it would be in vain."""
    pool = seen.cluster.find_pool(machine.pool)
    wanted = pool is None or pool.drain
    if not (wanted and machine.is_ready and seen.guest.answers and machine.presence != "missing"):
        return False
    if machine.removal_ordered is not None or (machine.node and machine.node.leaving_etcd):
        return False
    within = pool.drain_within if pool else timedelta(minutes=5)
    return machine.record.deleting is not None and seen.now < machine.record.deleting + within


def _must_drain(machine: MachineSeen, seen: Seen) -> bool:
    if not _is_drainable(machine, seen):
        return False
    return bool(machine.pods) or (machine.node is not None and not machine.node.unschedulable)


def _drain(machine: MachineSeen, seen: Seen, sheet: Sheet) -> None:
    node = machine.node
    if node is None:
        return
    if not node.unschedulable:
        sheet.actions.append(Cordon("it is emptied before it is removed", machine.name, node.name))
    going = tuple((pod.namespace, pod.name) for pod in machine.pods if not pod.leaving)
    if going:
        sheet.actions.append(Evict("they must leave before the machine does", machine.name, going))
    sheet.waits.append(
        Wait(
            f"{len(machine.pods)} pods to leave node {node.name}",
            "the machine is removed, with or without them once the drain's time is over",
            machine.name,
            seen.now + EVICT_AGAIN,
        )
    )


def _leave_etcd(machine: MachineSeen, seen: Seen, sheet: Sheet) -> None:
    node = machine.node
    if node is None:  # a member whose Node we do not see, because the API is silent
        sheet.waits.append(
            Wait(f"the guest API ({silent_about(seen.guest)})", "its etcd member is dropped", machine.name)
        )
        return
    if node.leaving_etcd:
        sheet.waits.append(
            Wait(f"the servers to drop etcd member {node.name}", "its VM is removed", machine.name)
        )
        return
    action = LeaveEtcd("its member must be dropped before its VM goes", machine.name, node.name)
    sheet.asked.append(Disruption("leave", machine.name, action))


def _remove(machine: MachineSeen, seen: Seen, sheet: Sheet) -> None:
    """Order the removal once, and again after a while in which nothing happened."""
    ordered, sighting = machine.removal_ordered, machine.sighting
    if ordered is None or seen.now >= ordered + REMOVE_AGAIN:
        why = "the cluster is deleted" if seen.cluster.deleting else "it was given up"
        sheet.actions.append(Remove(why, machine.name))
    words = f" ({brief(sighting.because)})" if sighting and sighting.because else ""
    sheet.waits.append(
        Wait(
            f"VM {machine.name} to be gone from Harvester{words}",
            "its record goes" if seen.cluster.deleting else "its Node is forgotten",
            machine.name,
            (seen.now if ordered is None else ordered) + REMOVE_AGAIN,
        )
    )


def _forget(machine: MachineSeen, seen: Seen, sheet: Sheet) -> None:
    _clear_up(machine, sheet)
    node = machine.node.name if machine.node else machine.record.node
    if node and seen.standing.initialized and not seen.cluster.deleting:
        if not seen.guest.answers:
            sheet.waits.append(
                Wait(f"the guest API ({silent_about(seen.guest)})", f"Node {node} is forgotten", machine.name)
            )
            return
        sheet.actions.append(ForgetNode("its VM is gone", machine.name, node))
    sheet.actions.append(Release("nothing is left of it", machine.name))


def _clear_up(machine: MachineSeen, sheet: Sheet) -> None:
    """A VM that vanished by itself left its disks behind; the order to remove it clears them up."""
    if machine.removal_ordered is None:
        sheet.actions.append(Remove("its VM is gone, its disks may not be", machine.name))


def plan_end(seen: Seen) -> Part:
    """The next steps of a Cluster that is being deleted."""
    sheet = Sheet()
    if not seen.cluster.claimed:
        return sheet.part()
    sheet.actions += [Retire("the cluster is deleted", machine.name) for machine in seen.staying]
    for machine in seen.leaving:
        if not machine.record.claimed:
            continue
        if not machine.record.was_ordered:
            sheet.actions.append(Release("nothing was made for it", machine.name))
        elif machine.presence == "missing":
            _clear_up(machine, sheet)
            sheet.actions.append(Release("nothing is left of it", machine.name))
        else:
            _remove(machine, seen, sheet)
    if seen.machines:
        sheet.waits.append(Wait(_machines_left(seen), "the account on Harvester and the Secrets go"))
        return sheet.part()
    balancers = plan_balancers_end(seen)
    if balancers.waits:
        return joined([sheet.part(), balancers])
    sheet.actions += plan_account_end(seen)
    sheet.actions += plan_farewell(seen)  # not before Harvester took the rest, or each attempt would tell it
    sheet.actions.append(ForgetSecrets("the cluster is deleted"))
    sheet.actions.append(RemoveFinalizer("nothing is left of it"))
    return sheet.part()


def _machines_left(seen: Seen) -> str:
    count = len(seen.machines)
    return "the last machine to be gone" if count == 1 else f"{count} machines to be gone"
