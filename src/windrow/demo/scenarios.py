"""The demo's scenarios: each changes something and checks what the manager made of it.

`plan_scenarios` chooses by the pools alone. A scenario that fails records a failed check and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.names import NODE_MACHINE
from windrow.demo.cluster import DemoCluster, PoolSpec, is_ready, nodes_by_machine
from windrow.demo.report import SkippedCheck
from windrow.demo.restore_scenarios import snapshot_and_restore
from windrow.demo.service_scenarios import (
    WITHOUT_PROVIDER,
    check_service_survives,
    create_service,
    delete_service,
    find_service,
    pick_machine_under_service,
    wait_for_service,
)
from windrow.demo.upgrade_scenarios import upgrade
from windrow.demo.volume_scenarios import (
    check_volume_survives,
    create_volume,
    delete_volume,
    find_store,
    find_workers,
)
from windrow.demo.waiting import Objects, WaitTimedOut
from windrow.harvester.resources import VM, VM_ACTIONS, VMI
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import EVENT, ref_of

Scenario = Callable[[DemoCluster], Awaitable[None]]

ZONE = "topology.kubernetes.io/zone"
LAST_MEMBER = "replacement skipped: last etcd member"


def plan_scenarios(pools: Sequence[PoolSpec], *, keep: bool = False) -> list[Scenario]:
    """The scenarios that these pools allow, in order. With `keep` Service and volume are not deleted."""
    members = sum(pool.quantity for pool in pools if pool.etcd)
    workers = find_workers(pools)
    scenarios: list[Scenario] = [check_nodes, create_service, create_volume]
    if workers:
        scenarios.append(lambda cluster: lose_worker(cluster, workers))
    scenarios.append(stop_last_member if members == 1 else stop_machine)
    if members >= 3:
        scenarios.append(lose_member)
    growing = workers or next(pool for pool in pools if pool.etcd)
    scenarios.append(lambda cluster: scale_up(cluster, growing))
    if workers:
        scenarios.append(lambda cluster: scale_down(cluster, growing))
    if not keep:
        scenarios.append(
            delete_volume
        )  # which an upgrade moves and a restore leaves: both take longer with it
    scenarios += [upgrade, snapshot_and_restore]
    if not keep:
        scenarios.append(delete_service)
    return scenarios


def list_skipped(pools: Sequence[PoolSpec], *, keep: bool = False) -> list[SkippedCheck]:
    """The checks of the scenarios that these pools do not allow, and those of the end with `keep`."""
    members = sum(pool.quantity for pool in pools if pool.etcd)
    reasons: dict[str, tuple[str, ...]] = {}
    if not any(pool.is_worker_only and pool.quantity for pool in pools):
        reasons["the manifest has no pool of workers alone"] = (
            "service-survives-worker",
            "lost-worker-replaced",
            "pool-scaled-down",
        )
    if members != 1:
        reasons[f"{members} machines have etcd, so that none is the last"] = ("last-etcd-member-kept",)
    if members < 3:
        reasons["fewer than 3 machines have etcd, so that none may be lost"] = (
            "service-survives-server",
            "lost-etcd-member-replaced",
            "etcd-members",
        )
    if keep:
        reasons["with --keep the cluster goes on"] = (
            "volume-gone",
            "service-gone",
            "cluster-deleted",
            "nothing-left",
        )
    return [SkippedCheck(name, why) for why, names in reasons.items() for name in names]


# -- nodes -------------------------------------------------------------------------------------------------------


async def check_nodes(cluster: DemoCluster) -> None:
    """Compare the guest's Nodes with Harvester's VirtualMachines."""
    machines = await cluster.list_machines()
    nodes = await cluster.list_nodes()
    found = nodes_by_machine(nodes)
    pairs = [(machine, found.get(uid_of(machine))) for machine in machines]
    check = cluster.report.check

    ready = sum(map(is_ready, nodes))
    check("nodes-ready", ready == len(machines), f"{ready} of {len(machines)} Machines have a Ready Node")

    provided = await cluster.has_cloud_provider()
    if not provided:
        cluster.report.skip(("provider-ids", "zones"), WITHOUT_PROVIDER)
    vms = {name_of(raw): uid_of(raw) for raw in await cluster.harvester.list(VM)}
    wrong = [
        name_of(machine)
        for machine, node in pairs
        if nested(node, "spec", "providerID") != f"harvester://{vms.get(name_of(machine))}"
    ]
    if provided:
        check(
            "provider-ids",
            not wrong,
            _except_for("the providerID of every Node is the uid of its VirtualMachine", wrong),
        )

    instances = {name_of(raw): raw for raw in await cluster.harvester.list(VMI)}
    mismatched = [
        name_of(machine)
        for machine, node in pairs
        if not _addresses_agree(node, instances.get(name_of(machine)))
    ]
    check(
        "node-addresses",
        not mismatched,
        _except_for("the InternalIP of every Node is an address of its VirtualMachine", mismatched),
    )

    unplaced = [name_of(machine) for machine, node in pairs if ZONE not in (labels_of(node) if node else {})]
    zones = sorted({labels_of(node).get(ZONE, "") for node in nodes} - {""})
    if provided:
        check(
            "zones",
            not unplaced,
            _except_for(f"every Node has the zone of its host ({', '.join(zones)})", unplaced),
        )


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


async def lose_worker(cluster: DemoCluster, pool: PoolSpec) -> None:
    machine, because = await _pick_machine(cluster, await cluster.list_machines(pool.name))
    await _lose(cluster, machine, "lost-worker-replaced", "a worker", because, "service-survives-worker")


async def lose_member(cluster: DemoCluster) -> None:
    """Delete the VM of a server with etcd: its member must be removed and the new one must vote."""
    servers = [raw for raw in await cluster.list_machines() if "etcd" in raw["spec"]["roles"]]
    machine, because = await _pick_machine(cluster, servers)
    what = "a server with etcd"
    await _lose(cluster, machine, "lost-etcd-member-replaced", what, because, "service-survives-server")
    machines = {uid_of(raw) for raw in await cluster.list_machines() if "etcd" in raw["spec"]["roles"]}
    voters = {
        labels_of(node).get(NODE_MACHINE)
        for node in await cluster.list_nodes()
        if is_true(nested(node, "status", "conditions"), "EtcdIsVoter")
    }
    cluster.report.check(
        "etcd-members", voters == machines, f"{len(voters)} voting members, {len(machines)} servers"
    )


async def _pick_machine(cluster: DemoCluster, machines: Sequence[Raw]) -> tuple[Raw, str]:
    """The machine to lose, and why: that of the pod with the volume, else one under the Service."""
    store = await find_store(cluster)
    for machine in machines:
        if store is not None and name_of(machine) == store.node:
            return machine, f"Pod {store.pod}, which has written into its volume, runs on it"
    return await pick_machine_under_service(cluster, machines)


async def _lose(
    cluster: DemoCluster, machine: Raw, check: str, what: str, because: str, survives: str
) -> None:
    name, of = name_of(machine), MACHINE.ref(name_of(machine), cluster.namespace)
    before = {name_of(raw) for raw in await cluster.list_machines()}
    vm = ref_of(VM, await cluster.get_vm(machine))
    if because:
        cluster.report.add(f"{of} is chosen: {because}")
    cluster.report.add(f"{vm} ({what}) is deleted on Harvester, without the manager")
    cluster.report.deleted_vms.add(vm.name)
    service, store = await find_service(cluster), await find_store(cluster)
    await cluster.harvester.delete(vm, "Foreground")
    await check_service_survives(cluster, service, name, vm.namespace, survives)
    after = await cluster.wait_for_settled(without=name)
    await check_volume_survives(cluster, store, name)
    await wait_for_service(cluster)
    new = [f"{cluster.namespace}/{name_of(raw)}" for raw in after if name_of(raw) not in before]
    cluster.report.add(f"Machine {', '.join(new)} replaces {of}")
    cluster.report.check(
        check, len(new) == 1 and len(after) == len(before), f"{of} was replaced by Machine {', '.join(new)}"
    )


# -- stops -------------------------------------------------------------------------------------------------------


async def stop_machine(cluster: DemoCluster) -> None:
    """Stop the VM of the oldest worker, else of the oldest machine: it must be started again, not replaced.

    Not of a new one: the Create of a plugin may still look for it, the Go driver's up to ten minutes.
    """
    machines = await cluster.list_machines()
    await _stop(cluster, next((raw for raw in machines if "etcd" not in raw["spec"]["roles"]), machines[0]))


async def stop_last_member(cluster: DemoCluster) -> None:
    """Stop the VM of the only etcd member: it must be started again, and never be replaced."""
    member = next(raw for raw in await cluster.list_machines() if "etcd" in raw["spec"]["roles"])
    await _stop(cluster, member)
    said = await _find_event(cluster, LAST_MEMBER)
    cluster.report.check("last-etcd-member-kept", bool(said), said or f"no event says “{LAST_MEMBER}”")


async def _stop(cluster: DemoCluster, machine: Raw) -> None:
    vm = await cluster.get_vm(machine)
    ref = ref_of(VM, vm)
    key = ref.namespace, ref.name
    before = uid_of(await cluster.harvester.get(VMI.ref(ref.name, ref.namespace)))
    service = await find_service(cluster)
    cluster.report.add(f"{ref} is stopped on Harvester")
    await cluster.harvester.call(put_subresource(VM_ACTIONS.ref(ref.name, ref.namespace), "stop"))

    def is_restarted(objects: Objects) -> bool:
        raw = objects.get(key)
        return raw is not None and uid_of(raw) != before and nested(raw, "status", "phase") == "Running"

    await cluster.wait_on(cluster.harvester, VMI, is_restarted, f"{ref} to run again", ref.namespace)
    # The Cluster may still be Ready until the manager observes the stop, so wait for the Machine first.
    await cluster.wait_for_ready(MACHINE, name_of(machine))
    await cluster.wait_for_settled()
    same = uid_of(await cluster.get_vm(machine)) == uid_of(vm)
    cluster.report.add(f"{ref} runs again")
    cluster.report.check("stopped-machine-started", same, f"{ref} was started again and has the same uid")
    await wait_for_service(cluster, "service-after-stop", service)


async def _find_event(cluster: DemoCluster, text: str) -> str:
    """The event of the cluster's namespace whose message contains `text`, or ""."""
    for event in await cluster.manager.list(EVENT, cluster.namespace):
        if text in str(event.get("message", "")):
            return f"{nested(event, 'involvedObject', 'name')}: {event['message']}"
    return ""


# -- scale -------------------------------------------------------------------------------------------------------


async def scale_up(cluster: DemoCluster, pool: PoolSpec) -> None:
    """One more worker; where the pool has etcd, two more, so that the number of members stays odd."""
    target = pool.quantity + (2 if pool.etcd else 1)
    await _scale(cluster, pool, target, "pool-scaled-up")


async def scale_down(cluster: DemoCluster, pool: PoolSpec) -> None:
    await _scale(cluster, pool, pool.quantity, "pool-scaled-down")


async def _scale(cluster: DemoCluster, pool: PoolSpec, target: int, check: str) -> None:
    where = f"pool {pool.name} of {cluster.ref}"
    cluster.report.add(f"{where} is scaled to {target} machines")
    step = {"op": "replace", "path": f"/spec/rkeConfig/machinePools/{pool.index}/quantity", "value": target}
    await cluster.manager.json_patch(cluster.ref, [step])
    await cluster.wait_for_settled()
    there = nodes_by_machine(await cluster.list_nodes())
    nodes = [there.get(uid_of(raw)) for raw in await cluster.list_machines(pool.name)]
    found = sum(map(is_ready, nodes))
    cluster.report.add(f"{where} has {found} Ready Nodes")
    cluster.report.check(check, found == target, f"{where} has {found} of {target} Ready Nodes")


# -- run ---------------------------------------------------------------------------------------------------------


async def run_scenario(cluster: DemoCluster, scenario: Scenario) -> None:
    """Run one scenario. A wait that times out becomes a failed check."""
    try:
        await scenario(cluster)
    except WaitTimedOut as error:
        cluster.report.check(f"in-time: {error.what}", False, f"{error}. {_describe_waits(error.last)}")


def _describe_waits(objects: Mapping[Any, Raw]) -> str:
    """The status.waiting of these objects."""
    found = {
        f"{name_of(raw)}: {nested(raw, 'status', 'waiting', 'for')}"
        for raw in objects.values()
        if nested(raw, "status", "waiting", "for")
    }
    return "; ".join(sorted(found)) or "No object has a status.waiting."
