"""Deeds about one Machine, one function for each action. All may be repeated; none decides anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from windrow.bootstrap.spec import Role
from windrow.clusters.api import names
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.machine import Machine
from windrow.clusters.bootstrap_data import build_bootstrap_spec, build_machine_spec, find_distribution
from windrow.clusters.context import ReconcileContext, StalePlan, delete_if_exists, get_machine
from windrow.clusters.plan import actions as do
from windrow.clusters.plan.actions import Action
from windrow.clusters.registries import resolve_registries
from windrow.clusters.state import ClusterState
from windrow.core.clock import format_time
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.kubernetes.errors import Conflict, MethodNotAllowed, NotFound, TooManyRequests
from windrow.kubernetes.resources import NODE, POD, SECRET
from windrow.machines.port import Power, ReplaceUserDataUnsupported

Handler = Callable[[ReconcileContext, Any, ClusterState], Awaitable[None]]


async def provision_vm(context: ReconcileContext, action: do.ProvisionVM, state: ClusterState) -> None:
    machine = get_machine(action.machine, state).record
    spec = build_machine_spec(state.cluster, machine, await _render_cloud_config(context, machine, state))
    recorded = machine.driver_config
    if recorded is None:
        recorded = await context.infrastructure.plan(spec)
        await context.patch_machine_status(machine, {"memory": dict(recorded)})
    driver_config = await context.infrastructure.ensure(spec, recorded)
    await context.patch_machine_status(machine, {"memory": dict(driver_config)})


async def _render_cloud_config(context: ReconcileContext, machine: Machine, state: ClusterState) -> str:
    pool = state.cluster.find_pool(machine.pool)
    if pool is None or state.secrets is None:
        raise StalePlan
    registries = await resolve_registries(context.api, state.cluster.namespace, state.cluster.registries)
    cluster = replace(state.cluster, registries=registries)
    intent = build_bootstrap_spec(cluster, pool, machine, state.secrets, state.guest_credential.credential)
    return find_distribution(machine.version).render(intent)


async def start_vm(context: ReconcileContext, action: do.StartVM, state: ClusterState) -> None:
    machine = get_machine(action.machine, state).record
    # First the order, which may be repeated: one that was not taken must not count as a start in vain.
    await context.infrastructure.power(machine.driver_config or {}, Power.ON)
    change = {"starts": machine.restart_count + 1, "lastStart": format_time(context.clock.now())}
    await context.patch_machine_status(machine, change)


async def label_node(context: ReconcileContext, action: do.LabelNode, state: ClusterState) -> None:
    record = get_machine(action.machine, state).record
    labels = {names.NODE_ROLE_WORKER: "true"} if Role.WORKER in record.roles else {}
    change = {"labels": labels, "annotations": {names.APPLIED_REVISION: record.config_hash or "unknown"}}
    await context.patch_node(state, action.node, {"metadata": change})


async def scrub_bootstrap_data(
    context: ReconcileContext, action: do.ScrubBootstrapData, state: ClusterState
) -> None:
    machine = get_machine(action.machine, state).record
    cloud_config = find_distribution(machine.version).scrub(
        await _render_cloud_config(context, machine, state)
    )
    change: dict[str, Any] = {}
    try:
        change["memory"] = dict(
            await context.infrastructure.replace_user_data(machine.driver_config or {}, cloud_config)
        )
        condition = Condition(
            "Scrubbed", "True", "Joined", "what it reads at its next start holds no secrets"
        )
    except ReplaceUserDataUnsupported as cannot:
        condition = Condition("Scrubbed", "False", names.CANNOT_SCRUB, str(cannot))
    change["conditions"] = set_condition(machine.conditions, condition, context.clock.now())
    await context.patch_machine_status(machine, change)


async def delete_machine(context: ReconcileContext, action: do.DeleteMachine, state: ClusterState) -> None:
    machine = get_machine(action.machine, state).record
    try:
        raw = await context.api.delete(machine.ref, uid=machine.uid)
    except (NotFound, Conflict):
        return
    if raw.get("kind") == MACHINE.kind:
        context.machines.mutated(raw)


async def cordon_node(context: ReconcileContext, action: do.CordonNode, state: ClusterState) -> None:
    await context.patch_node(state, action.node, {"spec": {"unschedulable": True}})


async def evict_pods(context: ReconcileContext, action: do.EvictPods, state: ClusterState) -> None:
    client = context.guest_connection(state).client
    for namespace, name in action.pods:
        ref = POD.ref(name, namespace)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        try:
            await client.call(requests.create_subresource(ref, "eviction", body))
        except (NotFound, TooManyRequests):
            continue  # gone already, or held by a disruption budget: it is asked again
        except MethodNotAllowed:
            await delete_if_exists(client, ref)


async def remove_etcd_member(
    context: ReconcileContext, action: do.RemoveEtcdMember, state: ClusterState
) -> None:
    change = {"metadata": {"annotations": {names.ETCD_REMOVE: "true"}}}
    await context.patch_node(state, action.node, change)


async def delete_vm(context: ReconcileContext, action: do.DeleteVM, state: ClusterState) -> None:
    machine = get_machine(action.machine, state).record
    if machine.driver_config is None:
        return
    context.infrastructure.track(machine.driver_config)
    await context.infrastructure.remove(machine.driver_config, frozenset())
    context.process_state.deletion_requested[machine.uid] = context.clock.now()


async def delete_node(context: ReconcileContext, action: do.DeleteNode, state: ClusterState) -> None:
    client = context.guest_connection(state).client
    await delete_if_exists(client, NODE.ref(action.node))
    await delete_if_exists(client, SECRET.ref(names.password_secret(action.node), "kube-system"))


async def remove_machine_finalizer(
    context: ReconcileContext, action: do.RemoveMachineFinalizer, state: ClusterState
) -> None:
    machine = get_machine(action.machine, state).record
    raw = await context.patch_finalizers(machine.ref, machine.uid, drop=names.MACHINE_FINALIZER)
    if raw is not None:
        context.machines.mutated(raw)
    context.process_state.deletion_requested.pop(machine.uid, None)


HANDLERS: dict[type[Action], Handler] = {
    do.ProvisionVM: provision_vm,
    do.StartVM: start_vm,
    do.LabelNode: label_node,
    do.ScrubBootstrapData: scrub_bootstrap_data,
    do.DeleteMachine: delete_machine,
    do.CordonNode: cordon_node,
    do.EvictPods: evict_pods,
    do.RemoveEtcdMember: remove_etcd_member,
    do.DeleteVM: delete_vm,
    do.DeleteNode: delete_node,
    do.RemoveMachineFinalizer: remove_machine_finalizer,
}
