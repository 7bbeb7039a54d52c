"""What must hold of a Harvester whatever was done to the programs around it (reference/06 §5.3).

Pure functions over values; each returns violations as sentences, and none where all is well. `test_invariants.py` plants
a violation for each. Those of the first part hold at every instant, those of the second once faults are over and the
site has come to rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from tests.chaos.inventory import Inventory, Item, Vm

# -- at every instant ----------------------------------------------------------------------------------------------


def find_doubled_machines(inventory: Inventory) -> list[str]:
    """One identity never has two VMs (3)."""
    by_machine: dict[str, list[str]] = defaultdict(list)
    for vm in inventory.vms:
        if vm.machine_uid and not vm.deleting:
            by_machine[vm.machine_uid].append(vm.name)
    return [
        f"machine {uid} has {len(names)} VirtualMachines: {', '.join(sorted(names))}"
        for uid, names in by_machine.items()
        if len(names) > 1
    ]


def find_surplus(
    inventory: Inventory, cluster: str, limits: Mapping[str, int], held: Collection[str] = ()
) -> list[str]:
    """Machines are at most desired + surge (3). `limits` are by pool; a pool without one has none. `held` are VMs that the
    manager has forgotten with a state that was rolled back, and keeps."""
    faults = []
    for pool, limit in limits.items():
        found = [vm for vm in inventory.of_pool(cluster, pool) if vm.name not in held]
        if len(found) > limit:
            faults.append(
                f"pool {pool} of {cluster} has {len(found)} VirtualMachines, {limit} are allowed: {_names(found)}"
            )
    return faults


def find_doubled_addresses(inventory: Inventory) -> list[str]:
    """No address is held by two machines or by two load balancers (4).

    kube-vip binds the address of a load balancer to a machine, which then shows it, and moves it to another one. So such
    an address is the load balancer's, whichever machines show it.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    for balancer in inventory.balancers:
        if balancer.address:
            owners[balancer.address].add(f"LoadBalancer {balancer.namespace}/{balancer.name}")
    floating = frozenset(owners)
    for instance in inventory.instances:
        for address in instance.addresses - floating if instance.running else ():
            owners[address].add(f"VirtualMachineInstance {instance.namespace}/{instance.name}")
    return [
        f"address {address} is held by {len(of)}: {', '.join(sorted(of))}"
        for address, of in sorted(owners.items())
        if len(of) > 1
    ]


def find_lost_property(
    before: Iterable[Item], inventory: Inventory, uids: Mapping[Item, str] | None = None
) -> list[str]:
    """What others own is neither deleted nor made anew (1, 2). `uids` are those that some items had."""
    faults = [f"{' '.join(item)} of another owner is gone" for item in sorted(set(before) - inventory.items)]
    now = {("VirtualMachine", vm.namespace, vm.name): vm.uid for vm in inventory.vms}
    now |= {("PersistentVolumeClaim", one.namespace, one.name): one.uid for one in inventory.volumes}
    return faults + [
        f"{' '.join(item)} of another owner was deleted and made anew"
        for item, uid in sorted((uids or {}).items())
        if now.get(item, uid) != uid
    ]


def find_unexplained_deletions(deleted: Iterable[Vm], asked: Collection[str], allowed: int) -> list[str]:
    """No machine is deleted unless it was named, or its deletion follows from what was asked (2).

    `asked` are the uids of VMs that the run itself deleted; `allowed` is how many others what was declared permits.
    """
    others = sorted({vm for vm in deleted if vm.uid not in asked}, key=lambda vm: vm.name)
    if len(others) <= allowed:
        return []
    return [f"{len(others)} VirtualMachines were deleted, {allowed} had to go: {_names(others)}"]


# -- at rest ---------------------------------------------------------------------------------------------------------


def find_wrong_counts(
    inventory: Inventory, cluster: str, wanted: Mapping[str, int], held: Collection[str] = ()
) -> list[str]:
    """Every pool has its quantity of running VMs (7). `held` are VMs that the Cluster's status names as unrecorded."""
    running = {(one.namespace, one.name) for one in inventory.instances if one.running}
    faults = []
    for pool, quantity in wanted.items():
        found = [
            vm
            for vm in inventory.of_pool(cluster, pool)
            if (vm.namespace, vm.name) in running and vm.name not in held
        ]
        if len(found) != quantity:
            faults.append(
                f"pool {pool} of {cluster} has {len(found)} running VirtualMachines, {quantity} are wanted: "
                f"{_names(found)}"
            )
    return faults


def find_unnamed(held: Collection[str], message: str) -> list[str]:
    """VMs of the Cluster that no Machine records are named in its status, the first three at least (8)."""
    named = sum(name in message for name in held)
    if named >= min(3, len(held)):
        return []
    return [
        f"VirtualMachines that no Machine records: {', '.join(sorted(held))}; the Cluster's status says: {message!r}"
    ]


def find_leaks(before: Collection[Item], inventory: Inventory) -> list[str]:
    """After its deletion nothing of a cluster is left (5); nor is an address held (4)."""
    left = [f"left on Harvester: {' '.join(item)}" for item in sorted(inventory.items - set(before))]
    return left + [f"address {address} is held by {owner}" for address, owner in inventory.allocated]


def find_orphaned_volumes(inventory: Inventory, recorded: Collection[str], message: str) -> list[str]:
    """Disks of machines go with their machine (5). Those of a machine that the manager has forgotten, with a state that was
    rolled back, are named in the status of the Cluster, the first three at least (8); `recorded` are uids of the others."""
    alive = {vm.machine_uid for vm in inventory.vms}
    orphans = [one for one in inventory.volumes if one.machine_uid and one.machine_uid not in alive]
    forgotten = [one for one in orphans if one.machine_uid not in recorded]
    named = sum(one.name in message for one in forgotten)
    excused = forgotten if named >= min(3, len(forgotten)) else []
    return [
        f"PersistentVolumeClaim {one.namespace}/{one.name} is of machine {one.machine_uid}, which has no VirtualMachine"
        for one in orphans
        if one not in excused
    ]


def find_held_addresses(inventory: Inventory) -> list[str]:
    """Each address of an IP pool has an owner that exists (4)."""
    alive = {f"{one.namespace}/{one.name}" for one in inventory.balancers}
    return [
        f"address {address} is held by LoadBalancer {owner}, which does not exist"
        for address, owner in inventory.allocated
        if owner not in alive
    ]


def find_lost_writes(
    acknowledged: Mapping[str, int], attempted: Mapping[str, int], found: Mapping[str, int]
) -> list[str]:
    """No write that was answered with success is lost, and nothing that was never sent is there (5)."""
    faults = []
    for name, value in sorted(acknowledged.items()):
        now = found.get(name)
        if now is None or now < value:
            faults.append(f"ConfigMap {name} has {now}, and {value} was acknowledged")
        elif now > attempted.get(name, value):
            faults.append(
                f"ConfigMap {name} has {now}, and {attempted.get(name, value)} was the last one sent"
            )
    return faults


# -- on this computer --------------------------------------------------------------------------------------------------


def find_exposed_secrets(texts: Mapping[str, bytes], secrets: Mapping[str, bytes]) -> list[str]:
    """No log has a secret, neither plain nor in base64. Both by name; a secret of fewer than 12 bytes is not looked for."""
    return [
        f"{file} has {name}"
        for file, text in sorted(texts.items())
        for name, secret in sorted(secrets.items())
        if len(secret) >= 12 and secret in text
    ]


def find_open_files(modes: Mapping[str, int]) -> list[str]:
    """No file or directory of a program is open to other users of the computer."""
    return [f"{path} has mode {mode & 0o7777:04o}" for path, mode in sorted(modes.items()) if mode & 0o077]


def find_silent_waits(statuses: Iterable[tuple[str, bool, Mapping[str, object]]]) -> list[str]:
    """Every wait has a reason, a since and a next step (8). `statuses` are (object, is it ready, status)."""
    return list(_silent(statuses))


def _silent(statuses: Iterable[tuple[str, bool, Mapping[str, object]]]) -> Iterator[str]:
    for name, ready, status in statuses:
        waiting = status.get("waiting")
        if ready or not status:
            continue
        missing = [
            key for key in ("for", "since", "next") if not (isinstance(waiting, Mapping) and waiting.get(key))
        ]
        if missing:
            yield f"{name} is not Ready, and its status.waiting lacks {', '.join(missing)}"


def _names(vms: Iterable[Vm]) -> str:
    return ", ".join(sorted(vm.name for vm in vms)) or "none"
