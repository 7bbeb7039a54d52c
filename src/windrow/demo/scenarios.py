"""What the demo does to a cluster in front of the user: each act changes something and checks what came of it.

`plan_acts` chooses by topology alone. An act that fails says so in its check and does not stop the next ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from windrow.app.waiting import Objects, WaitTimedOut, wait_for
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import NODE_MACHINE
from windrow.demo.cluster import DemoCluster, PoolSpec, nodes_by_machine
from windrow.demo.service_scenarios import (
    check_service_survives,
    create_service,
    delete_service,
    pick_machine_under_service,
    wait_for_service,
)
from windrow.harvester.resources import VM, VM_ACTIONS, VMI
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import EVENT

Scenario = Callable[[DemoCluster], Awaitable[None]]

ZONE = "topology.kubernetes.io/zone"
LAST_MEMBER = "replacement skipped: last etcd member"


def plan_scenarios(pools: Sequence[PoolSpec], *, keep: bool = False) -> list[Scenario]:
    """The acts that this topology allows, in the order in which they are played. With `keep` the service stays."""
    members = sum(pool.quantity for pool in pools if pool.etcd)
    workers = next((pool for pool in pools if pool.is_worker_only and pool.quantity), None)
    scenarios: list[Scenario] = [check_nodes, create_service]
    if workers:
        scenarios.append(lambda stage: lose_worker(stage, workers))
    if members == 1:
        scenarios.append(stop_last_member)
    else:
        scenarios.append(stop_machine)
    if members >= 3:
        scenarios.append(lose_member)
    growing = workers or next(pool for pool in pools if pool.etcd)
    scenarios.append(lambda stage: scale_up(stage, growing))
    if workers:
        scenarios.append(lambda stage: scale_down(stage, growing))
    if not keep:
        scenarios.append(delete_service)
    return scenarios


# -- birth -------------------------------------------------------------------------------------------------------


async def check_nodes(stage: DemoCluster) -> None:
    """Look at the guest's nodes and at Harvester's VMs, and compare."""
    machines = await stage.list_machines()
    nodes = await stage.list_nodes()
    found = nodes_by_machine(nodes)
    pairs = [(machine, found.get(uid_of(machine))) for machine in machines]
    check = stage.report.check

    ready = [name_of(node) for node in nodes if is_true(nested(node, "status", "conditions"), "Ready")]
    check(
        "nodes-ready",
        len(ready) == len(machines),
        f"{len(ready)} of {len(machines)} machines are Ready nodes",
    )

    vms = {name_of(raw): uid_of(raw) for raw in await stage.harvester.list(VM)}
    wrong = [
        name_of(machine)
        for machine, node in pairs
        if nested(node, "spec", "providerID") != f"harvester://{vms.get(name_of(machine))}"
    ]
    check("provider-ids", not wrong, _except_for("every node carries the uid of its VM", wrong))

    instances = {name_of(raw): raw for raw in await stage.harvester.list(VMI)}
    mismatched = [
        name_of(machine)
        for machine, node in pairs
        if not _addresses_agree(node, instances.get(name_of(machine)))
    ]
    check(
        "node-addresses",
        not mismatched,
        _except_for("every node has the address that its VM shows", mismatched),
    )

    unplaced = [name_of(machine) for machine, node in pairs if ZONE not in (labels_of(node) if node else {})]
    zones = sorted({labels_of(node).get(ZONE, "") for node in nodes} - {""})
    check("zones", not unplaced, _except_for(f"every node knows its zone ({', '.join(zones)})", unplaced))


def _addresses_agree(node: Raw | None, instance: Raw | None) -> bool:
    shown = {
        address
        for nic in nested(instance, "status", "interfaces", default=[])
        for address in nic.get("ipAddresses") or ()
    }
    listed = nested(node, "status", "addresses", default=[])
    internal = [entry["address"] for entry in listed if entry["type"] == "InternalIP"]
    return bool(internal) and set(internal) <= shown


def _except_for(message: str, exceptions: Sequence[str]) -> str:
    return message if not exceptions else f"{message}, except {', '.join(exceptions)}"


# -- losses ------------------------------------------------------------------------------------------------------


async def lose_worker(stage: DemoCluster, pool: PoolSpec) -> None:
    machine, because = await pick_machine_under_service(stage, await stage.list_machines(pool.name))
    await _lose(stage, machine, "lost-worker-replaced", "a worker", because, "service-survives-worker")


async def lose_member(stage: DemoCluster) -> None:
    """Lose a server that carries etcd; its member must be dropped and the new one must vote."""
    servers = [raw for raw in await stage.list_machines() if "etcd" in raw["spec"]["roles"]]
    machine, because = await pick_machine_under_service(stage, servers)
    what = "a server with an etcd member"
    await _lose(stage, machine, "lost-etcd-member-replaced", what, because, "service-survives-server")
    machines = {uid_of(raw) for raw in await stage.list_machines() if "etcd" in raw["spec"]["roles"]}
    voters = {
        labels_of(node).get(NODE_MACHINE)
        for node in await stage.list_nodes()
        if is_true(nested(node, "status", "conditions"), "EtcdIsVoter")
    }
    stage.report.check(
        "etcd-members", voters == machines, f"{len(voters)} voting members, {len(machines)} servers"
    )


async def _lose(stage: DemoCluster, machine: Raw, check: str, what: str, because: str, survives: str) -> None:
    name = name_of(machine)
    before = {name_of(raw) for raw in await stage.list_machines()}
    vm = await stage.get_vm(machine)
    if because:
        stage.report.add(f"{name} is chosen: {because}")
    stage.report.add(f"{name}: {what}'s VM is deleted on Harvester, behind the manager's back")
    await stage.harvester.delete(VM.ref(name, vm["metadata"]["namespace"]), "Foreground")
    await check_service_survives(stage, name, vm["metadata"]["namespace"], survives)
    after = await stage.wait_for_settled(without=name)
    await wait_for_service(stage)
    new = sorted({name_of(raw) for raw in after} - before)
    stage.report.add(f"{', '.join(new)} took its place")
    stage.report.check(
        check, len(new) == 1 and len(after) == len(before), f"{name} was replaced by {', '.join(new)}"
    )


# -- stops -------------------------------------------------------------------------------------------------------


async def stop_machine(stage: DemoCluster) -> None:
    """Stop a machine that the cluster can spare: it must be started, not replaced."""
    await _stop(stage, (await stage.list_machines())[-1])


async def stop_last_member(stage: DemoCluster) -> None:
    """Stop the only etcd member: it must be started again, and must never be replaced."""
    member = next(raw for raw in await stage.list_machines() if "etcd" in raw["spec"]["roles"])
    await _stop(stage, member)
    said = await _find_event(stage, LAST_MEMBER)
    stage.report.check("last-etcd-member-kept", bool(said), said or f"nobody said “{LAST_MEMBER}”")


async def _stop(stage: DemoCluster, machine: Raw) -> None:
    name = name_of(machine)
    vm = await stage.get_vm(machine)
    namespace = vm["metadata"]["namespace"]
    before = uid_of(await stage.harvester.get(VMI.ref(name, namespace)))
    stage.report.add(f"{name} is stopped on Harvester")
    await stage.harvester.call(put_subresource(VM_ACTIONS.ref(name, namespace), "stop"))

    def started(world: Objects) -> bool | None:
        raw = world.get((namespace, name))
        return (
            True
            if raw is not None and uid_of(raw) != before and nested(raw, "status", "phase") == "Running"
            else None
        )

    await wait_for(
        stage.harvester.transport,
        VMI,
        started,
        what=f"{name} to be started again",
        clock=stage.clock,
        namespace=namespace,
        within=stage.timeout,
    )
    # The manager may hold the cluster Ready until it hears of the stop, so ask the machine itself first.
    await stage.wait_for_machine(name)
    await stage.wait_for_settled()
    same = uid_of(await stage.get_vm(machine)) == uid_of(vm)
    stage.report.add(f"{name} runs again")
    stage.report.check("stopped-machine-started", same, f"{name} was started again; it is the same VM")
    await wait_for_service(stage, "service-after-stop")


async def _find_event(stage: DemoCluster, text: str) -> str:
    """The event of the cluster's namespace that contains `words`, or ""."""
    for event in await stage.manager.list(EVENT, stage.namespace):
        if text in str(event.get("message", "")):
            return f"{nested(event, 'involvedObject', 'name')}: {event['message']}"
    return ""


# -- scale -------------------------------------------------------------------------------------------------------


async def scale_up(stage: DemoCluster, pool: PoolSpec) -> None:
    """One more worker; or, where one pool carries all roles, an odd number of members more."""
    target = pool.quantity + (2 if pool.etcd else 1)
    await _scale(stage, pool, target, "pool-scaled-up")


async def scale_down(stage: DemoCluster, pool: PoolSpec) -> None:
    await _scale(stage, pool, pool.quantity, "pool-scaled-down")


async def _scale(stage: DemoCluster, pool: PoolSpec, target: int, check: str) -> None:
    stage.report.add(f"pool {pool.name} is scaled to {target}")
    cluster = CLUSTER.ref(stage.name, stage.namespace)
    step = {"op": "replace", "path": f"/spec/rkeConfig/machinePools/{pool.index}/quantity", "value": target}
    await stage.manager.json_patch(cluster, [step])
    await stage.wait_for_settled()
    there = nodes_by_machine(await stage.list_nodes())
    nodes = [there.get(uid_of(raw)) for raw in await stage.list_machines(pool.name)]
    found = sum(is_true(nested(node, "status", "conditions"), "Ready") for node in nodes)
    stage.report.add(f"pool {pool.name} has {found} Ready nodes")
    stage.report.check(
        check, found == target, f"pool {pool.name} has {found} Ready nodes; {target} were asked for"
    )


# -- play --------------------------------------------------------------------------------------------------------


async def run_scenario(stage: DemoCluster, scenario: Scenario) -> None:
    """Play one act. What it waited for in vain becomes a check that did not hold."""
    try:
        await scenario(stage)
    except WaitTimedOut as error:
        stage.report.check(f"in-time: {error.what}", False, f"{error}. {_describe_waits(error.last)}")


def _describe_waits(world: Mapping[Any, Raw]) -> str:
    """What the objects that were looked at wait for."""
    found = {
        f"{name_of(raw)}: {nested(raw, 'status', 'waiting', 'for')}"
        for raw in world.values()
        if nested(raw, "status", "waiting", "for")
    }
    return "; ".join(sorted(found)) or "Nothing said what it waits for."
