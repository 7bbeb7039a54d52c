"""Deeds about one Machine, one function for each action. All may be repeated; none decides anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from windrow.bootstrap.intent import Role
from windrow.clusters import actions as do
from windrow.clusters import names
from windrow.clusters.actions import Action
from windrow.clusters.desk import Desk, Lost, delete_if_there, get_machine
from windrow.clusters.intents import build_intent, build_spec, find_distribution
from windrow.clusters.kinds import MACHINE
from windrow.clusters.records import Machine
from windrow.clusters.registries import resolve_registries
from windrow.clusters.seen import Seen
from windrow.kube import requests
from windrow.kube.conditions import Condition, set_condition
from windrow.kube.errors import Conflict, NotAllowed, NotFound, Throttled
from windrow.kube.refs import NODE, POD, SECRET
from windrow.machines.port import CannotRewrite, Power
from windrow.values.clock import stamp

Deed = Callable[[Desk, Any, Seen], Awaitable[None]]


async def order(desk: Desk, action: do.Order, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    spec = build_spec(seen.cluster, machine, await _document(desk, machine, seen))
    planned = machine.memory
    if planned is None:
        planned = await desk.infrastructure.plan(spec)
        await desk.write_machine_status(machine, {"memory": dict(planned)})
    memory = await desk.infrastructure.ensure(spec, planned)
    await desk.write_machine_status(machine, {"memory": dict(memory)})


async def _document(desk: Desk, machine: Machine, seen: Seen) -> str:
    pool = seen.cluster.find_pool(machine.pool)
    if pool is None or seen.secrets is None:
        raise Lost
    registries = await resolve_registries(desk.api, seen.cluster.namespace, seen.cluster.registries)
    cluster = replace(seen.cluster, registries=registries)
    intent = build_intent(cluster, pool, machine, seen.secrets, seen.access.credential)
    return find_distribution(machine.version).render(intent)


async def start(desk: Desk, action: do.Start, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    # First the order, which may be repeated: one that was not taken must not count as a start in vain.
    await desk.infrastructure.power(machine.memory or {}, Power.ON)
    change = {"starts": machine.starts + 1, "lastStart": stamp(desk.clock.now())}
    await desk.write_machine_status(machine, change)


async def label(desk: Desk, action: do.Label, seen: Seen) -> None:
    record = get_machine(action.machine, seen).record
    labels = {names.NODE_ROLE_WORKER: "true"} if Role.WORKER in record.roles else {}
    change = {"labels": labels, "annotations": {names.APPLIED_REVISION: record.revision or "unknown"}}
    await desk.change_node(seen, action.node, {"metadata": change})


async def scrub(desk: Desk, action: do.Scrub, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    document = find_distribution(machine.version).scrub(await _document(desk, machine, seen))
    change: dict[str, Any] = {}
    try:
        change["memory"] = dict(await desk.infrastructure.rewrite(machine.memory or {}, document))
        told = Condition("Scrubbed", "True", "Joined", "what it reads at its next start holds no secrets")
    except CannotRewrite as cannot:
        told = Condition("Scrubbed", "False", names.CANNOT_SCRUB, str(cannot))
    change["conditions"] = set_condition(machine.conditions, told, desk.clock.now())
    await desk.write_machine_status(machine, change)


async def retire(desk: Desk, action: do.Retire, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    try:
        raw = await desk.api.delete(machine.ref, uid=machine.uid)
    except (NotFound, Conflict):
        return
    if raw.get("kind") == MACHINE.kind:
        desk.machines.wrote(raw)


async def cordon(desk: Desk, action: do.Cordon, seen: Seen) -> None:
    await desk.change_node(seen, action.node, {"spec": {"unschedulable": True}})


async def evict(desk: Desk, action: do.Evict, seen: Seen) -> None:
    client = desk.link(seen).client
    for namespace, name in action.pods:
        ref = POD.ref(name, namespace)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        try:
            await client.call(requests.create_sub(ref, "eviction", body))
        except (NotFound, Throttled):
            continue  # gone already, or held by a disruption budget: it is asked again
        except NotAllowed:
            await delete_if_there(client, ref)


async def leave_etcd(desk: Desk, action: do.LeaveEtcd, seen: Seen) -> None:
    change = {"metadata": {"annotations": {names.ETCD_REMOVE: "true"}}}
    await desk.change_node(seen, action.node, change)


async def remove(desk: Desk, action: do.Remove, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    if machine.memory is None:
        return
    desk.infrastructure.watch_over(machine.memory)
    await desk.infrastructure.remove(machine.memory, frozenset())
    desk.memo.removals[machine.uid] = desk.clock.now()


async def forget_node(desk: Desk, action: do.ForgetNode, seen: Seen) -> None:
    client = desk.link(seen).client
    await delete_if_there(client, NODE.ref(action.node))
    await delete_if_there(client, SECRET.ref(names.password_secret(action.node), "kube-system"))


async def release(desk: Desk, action: do.Release, seen: Seen) -> None:
    machine = get_machine(action.machine, seen).record
    raw = await desk.change_finalizers(machine.ref, machine.uid, drop=names.MACHINE_FINALIZER)
    if raw is not None:
        desk.machines.wrote(raw)
    desk.memo.removals.pop(machine.uid, None)


DEEDS: dict[type[Action], Deed] = {
    do.Order: order,
    do.Start: start,
    do.Label: label,
    do.Scrub: scrub,
    do.Retire: retire,
    do.Cordon: cordon,
    do.Evict: evict,
    do.LeaveEtcd: leave_etcd,
    do.Remove: remove,
    do.ForgetNode: forget_node,
    do.Release: release,
}
