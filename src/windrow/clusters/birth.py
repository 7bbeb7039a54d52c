"""Birth: from a Cluster that was only asked for to one whose machines are all nodes.

The order matters in three places only: nothing is made before the preflight passed; exactly one machine may start the
cluster, and it is elected before its VM is ordered; the others need its address. All else happens side by side.

Until the guest API has answered once (`initialized`), a lost first server is made anew from nothing, with the same
authorities. Afterwards that would make a second, empty cluster, so it never happens again.
"""

from __future__ import annotations

from windrow.bootstrap.intent import Role
from windrow.clusters.actions import (
    Claim,
    Elect,
    Enlist,
    Initialize,
    Label,
    MakeSecrets,
    MeetGuest,
    Order,
    Publish,
    Retire,
    Scrub,
    Wait,
)
from windrow.clusters.endpoint import SUPERVISOR_PORT, find_apis, url
from windrow.clusters.names import CANNOT_SCRUB, secrets_name
from windrow.clusters.parts import Part, Sheet
from windrow.clusters.seen import MachineSeen, Seen


def is_prepared(seen: Seen) -> bool:
    """Whether machines may be recorded: checked, with secrets and, where wanted, the guest's credential."""
    return (
        seen.cluster.claimed
        and not seen.has_failed_preflight
        and seen.secrets is not None
        and seen.access.state in ("ready", "unneeded")
    )


def plan_preparation(seen: Seen) -> Part:
    sheet = Sheet()
    if seen.has_failed_preflight:
        return sheet.part()  # the status names every problem; nothing is made before they are solved
    if not seen.cluster.claimed:
        sheet.actions.append(Claim("so that nothing stays behind when it is deleted"))
    if seen.has_lost_secrets:
        # Its machines trust the authorities that are lost; new ones would lock everybody out for good.
        sheet.waits.append(
            Wait(
                f"you to restore Secret {secrets_name(seen.cluster.name)}, without which nobody can reach the cluster",
                "its machines are looked after again",
            )
        )
    elif seen.secrets is None:
        sheet.actions.append(MakeSecrets("its machines will trust each other by them"))
    return sheet.part()


def plan(seen: Seen) -> Part:
    """Elect the first server, order what is recorded, and finish what has joined."""
    sheet = Sheet()
    _elect(seen, sheet)
    _order(seen, sheet)
    _open(seen, sheet)
    for machine in seen.staying:
        _finish(machine, sheet)
    return sheet.part()


def _elect(seen: Seen, sheet: Sheet) -> None:
    candidates = [machine for machine in seen.staying if machine.record.first]
    elected = seen.first
    if seen.standing.initialized or (elected is not None and not elected.is_leaving):
        sheet.actions += [
            Retire("another machine was elected to start the cluster", machine.name)
            for machine in candidates
            if machine.record.uid != seen.standing.first_uid
        ]
        return
    lost = [machine for machine in seen.leaving if machine.record.first]
    if lost:
        # Its VM may still run. Two machines that start a cluster are two clusters.
        sheet.waits.append(Wait(f"{lost[0].name} to be gone", "another first server is recorded"))
        return
    if candidates:
        chosen = min(candidates, key=lambda machine: (machine.record.created, machine.name))
        sheet.actions.append(
            Elect("one machine starts the cluster", chosen.name, chosen.record.uid, seen.standing.first_uid)
        )
        return
    pool = next(
        (pool for pool in seen.cluster.pools if pool.is_etcd and pool.quantity and pool.options is not None),
        None,
    )
    if pool is None:
        sheet.waits.append(
            Wait("a pool with the etcd role and a machine config", "the first server is recorded")
        )
        return
    why = "one machine starts the cluster"
    if seen.standing.first_name:
        why = f"the first server {seen.standing.first_name} was lost before the cluster had started"
    sheet.actions.append(Enlist(why, pool.name, first=True))


def _order(seen: Seen, sheet: Sheet) -> None:
    for machine in seen.staying:
        if machine.record.was_made:
            continue
        if not machine.record.first:
            sheet.actions.append(Order(f"it joins through {machine.record.server}", machine.name))
        elif machine.record.uid == seen.standing.first_uid:
            sheet.actions.append(Order("it was elected to start the cluster", machine.name))


def _open(seen: Seen, sheet: Sheet) -> None:
    if not seen.guest.answers:
        return
    if not seen.standing.initialized:
        sheet.actions.append(Initialize("the guest API answers"))
    elif seen.unmet:
        sheet.actions.append(MeetGuest("its load balancers are known by it"))
    apis = find_apis(seen)
    if apis and seen.guest.published not in apis:
        why = (
            "people reach the cluster with it"
            if not seen.guest.published
            else f"{seen.guest.published} is gone"
        )
        sheet.actions.append(Publish(why, apis[0]))


def _finish(machine: MachineSeen, sheet: Sheet) -> None:
    node = machine.node
    if node is None:
        return
    if not node.revision or (Role.WORKER in machine.record.roles and not node.is_worker):
        sheet.actions.append(Label("kubelet may not set its own role", machine.name, node.name))
    if node.ready and machine.record.memory is not None and not _is_scrubbed(machine):
        sheet.actions.append(Scrub("the node is Ready; its secrets are no longer needed", machine.name))


def _is_scrubbed(machine: MachineSeen) -> bool:
    """Whether its secrets are out of what it reads, or stay there for good because its driver cannot take them out."""
    told = machine.record.find_condition("Scrubbed")
    return told is not None and (told.status == "True" or told.reason == CANNOT_SCRUB)


def plan_strays(seen: Seen) -> list[Retire]:
    """Before the cluster has started, machines that wait for a first server which is no longer the one."""
    first = seen.first
    if seen.standing.initialized:
        return []
    if first is None or first.is_leaving:
        wanted = ""
    elif not first.address:
        return []
    else:
        wanted = url(first.address, SUPERVISOR_PORT)
    return [
        Retire(f"it would join {machine.record.server}, which is not the first server any more", machine.name)
        for machine in seen.staying
        if not machine.record.first and machine.record.server != wanted
    ]
