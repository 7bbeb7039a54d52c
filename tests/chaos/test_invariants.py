"""Each invariant of a chaos run fails when its violation is planted, and is silent without."""

from __future__ import annotations

from typing import Any

import pytest
from tests.chaos import invariants
from tests.chaos.history import History
from tests.chaos.inventory import Balancer, Instance, Inventory, Vm, Volume, read_inventory


def a_vm(name: str, pool: str = "workers", machine: str = "", **rest: Any) -> Vm:
    return Vm(
        "default", f"orchard-{pool}-{name}", f"uid-{name}", "cluster-1", machine or f"machine-{name}", **rest
    )


def running(*vms: Vm, **rest: Any) -> Inventory:
    """These VMs, each with an instance of its own address and a disk."""
    instances = tuple(
        Instance(vm.namespace, vm.name, f"i-{vm.uid}", frozenset({f"192.168.50.{20 + place}"}))
        for place, vm in enumerate(vms)
    )
    disks = tuple(Volume(vm.namespace, f"{vm.name}-disk", f"d-{vm.uid}", vm.machine_uid) for vm in vms)
    items = {("VirtualMachine", vm.namespace, vm.name) for vm in vms}
    items |= {("PersistentVolumeClaim", one.namespace, one.name) for one in disks}
    return Inventory(vms, **{"instances": instances, "volumes": disks, "items": frozenset(items), **rest})


GOOD = running(a_vm("a"), a_vm("b"))
MINE = ("VirtualMachine", "default", "orchard-workers-mine")


def with_mine(uid: str = "uid-mine") -> Inventory:
    return running(Vm("default", "orchard-workers-mine", uid))


PLANTED = {
    "one machine, two VMs": (
        lambda now: invariants.find_doubled_machines(now),
        GOOD,
        running(a_vm("a"), a_vm("b", machine="machine-a")),
        "machine machine-a has 2 VirtualMachines: orchard-workers-a, orchard-workers-b",
    ),
    "more than is allowed": (
        lambda now: invariants.find_surplus(now, "orchard", {"workers": 2}),
        GOOD,
        running(a_vm("a"), a_vm("b"), a_vm("c")),
        "pool workers of orchard has 3 VirtualMachines, 2 are allowed: "
        "orchard-workers-a, orchard-workers-b, orchard-workers-c",
    ),
    "one address, two machines": (
        lambda now: invariants.find_doubled_addresses(now),
        GOOD,
        Inventory(
            instances=tuple(Instance("default", name, name, frozenset({"192.168.50.20"})) for name in "ab")
        ),
        "address 192.168.50.20 is held by 2: VirtualMachineInstance default/a, VirtualMachineInstance default/b",
    ),
    "one address, two load balancers": (
        lambda now: invariants.find_doubled_addresses(now),
        Inventory(balancers=(Balancer("default", "a", "192.168.50.200"),)),
        Inventory(balancers=tuple(Balancer("default", name, "192.168.50.200") for name in "ab")),
        "address 192.168.50.200 is held by 2: LoadBalancer default/a, LoadBalancer default/b",
    ),
    "another owner's VM is gone": (
        lambda now: invariants.find_lost_property({MINE}, now),
        with_mine(),
        GOOD,
        "VirtualMachine default orchard-workers-mine of another owner is gone",
    ),
    "another owner's VM is another one": (
        lambda now: invariants.find_lost_property({MINE}, now, {MINE: "uid-mine"}),
        with_mine(),
        with_mine("uid-new"),
        "VirtualMachine default orchard-workers-mine of another owner was deleted and made anew",
    ),
    "too few": (
        lambda now: invariants.find_wrong_counts(now, "orchard", {"workers": 2}),
        GOOD,
        running(a_vm("a")),
        "pool workers of orchard has 1 running VirtualMachines, 2 are wanted: orchard-workers-a",
    ),
    "one that does not run": (
        lambda now: invariants.find_wrong_counts(now, "orchard", {"workers": 2}),
        GOOD,
        running(a_vm("a"), a_vm("b"), instances=()),
        "pool workers of orchard has 0 running VirtualMachines, 2 are wanted: none",
    ),
    "something is left": (
        lambda now: invariants.find_leaks(GOOD.items, now),
        GOOD,
        running(a_vm("a"), a_vm("b"), items=GOOD.items | {("Secret", "default", "orchard-token")}),
        "left on Harvester: Secret default orchard-token",
    ),
    "an address is left": (
        lambda now: invariants.find_leaks(frozenset(), now),
        Inventory(),
        Inventory(allocated=(("192.168.50.200", "default/web"),)),
        "address 192.168.50.200 is held by default/web",
    ),
    "a disk without machine": (
        lambda now: invariants.find_orphaned_volumes(now, ["machine-b"], "disk-b"),
        GOOD,
        running(a_vm("a"), volumes=(Volume("default", "disk-b", "d", "machine-b"),)),
        "PersistentVolumeClaim default/disk-b is of machine machine-b, which has no VirtualMachine",
    ),
    "a disk of a forgotten machine that the status does not name": (
        lambda now: invariants.find_orphaned_volumes(now, ["machine-a"], "a"),
        GOOD,
        running(a_vm("a"), volumes=(Volume("default", "disk-b", "d", "machine-b"),)),
        "PersistentVolumeClaim default/disk-b is of machine machine-b, which has no VirtualMachine",
    ),
    "an address without owner": (
        lambda now: invariants.find_held_addresses(now),
        Inventory(balancers=(Balancer("default", "web"),), allocated=(("192.168.50.200", "default/web"),)),
        Inventory(allocated=(("192.168.50.200", "default/web"),)),
        "address 192.168.50.200 is held by LoadBalancer default/web, which does not exist",
    ),
}


@pytest.mark.parametrize(("find", "good", "bad", "sentence"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_found(find: Any, good: Inventory, bad: Inventory, sentence: str) -> None:
    assert find(good) == []
    assert find(bad) == [sentence]


def test_a_vm_that_is_being_deleted_is_no_second_one() -> None:
    now = running(a_vm("a", deleting=True), a_vm("b", machine="machine-a"))

    assert invariants.find_doubled_machines(now) == []
    assert invariants.find_surplus(now, "orchard", {"workers": 1}) == []


def test_an_address_that_kube_vip_shows_on_a_machine_is_the_load_balancers() -> None:
    shown = Instance("default", "orchard-servers-a", "i", frozenset({"192.168.50.20", "192.168.50.200"}))
    now = Inventory(instances=(shown,), balancers=(Balancer("default", "web", "192.168.50.200"),))

    assert invariants.find_doubled_addresses(now) == []


def test_a_vm_that_is_held_counts_in_no_pool() -> None:
    now = running(a_vm("a"), a_vm("b"))

    assert invariants.find_surplus(now, "orchard", {"workers": 1}, {"orchard-workers-b"}) == []
    assert invariants.find_wrong_counts(now, "orchard", {"workers": 1}, {"orchard-workers-b"}) == []


def test_a_vm_that_no_machine_records_is_named_in_the_status() -> None:
    held = {"orchard-workers-b"}

    assert invariants.find_unnamed(held, "VirtualMachine default/orchard-workers-b carries the uid") == []
    assert invariants.find_unnamed(held, "") == [
        "VirtualMachines that no Machine records: orchard-workers-b; the Cluster's status says: ''"
    ]


@pytest.mark.parametrize(
    ("asked", "allowed", "faults"),
    [
        ({"uid-a", "uid-b"}, 0, 0),
        ({"uid-a"}, 1, 0),
        ({"uid-a"}, 0, 1),
        (set(), 1, 1),
    ],
)
def test_a_deletion_is_asked_for_or_follows_from_the_operation(
    asked: set[str], allowed: int, faults: int
) -> None:
    found = invariants.find_unexplained_deletions([a_vm("a"), a_vm("b")], asked, allowed)

    assert len(found) == faults


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({"w-1": 7}, ""),
        ({"w-1": 8}, ""),
        ({"w-1": 6}, "ConfigMap w-1 has 6, and 7 was acknowledged"),
        ({}, "ConfigMap w-1 has None, and 7 was acknowledged"),
        ({"w-1": 9}, "ConfigMap w-1 has 9, and 8 was the last one sent"),
    ],
)
def test_an_acknowledged_write_is_kept(found: dict[str, int], sentence: str) -> None:
    assert invariants.find_lost_writes({"w-1": 7}, {"w-1": 8}, found) == ([sentence] if sentence else [])


def test_a_secret_in_a_log_is_found() -> None:
    logs = {"manager.log": b"token: K10abcdefghijkl::server", "harvester.log": b"all is well"}

    found = invariants.find_exposed_secrets(
        logs, {"the join token": b"K10abcdefghijkl", "a short one": b"all"}
    )

    assert found == ["manager.log has the join token"]


def test_a_file_that_others_may_read_is_found() -> None:
    assert invariants.find_open_files({"manager": 0o40700, "manager/manager.db": 0o100644}) == [
        "manager/manager.db has mode 0644"
    ]


@pytest.mark.parametrize(
    ("ready", "status", "faults"),
    [
        (True, {"phase": "Ready"}, []),
        (False, {"waiting": {"for": "a VM", "since": "now", "next": "the node joins"}}, []),
        (False, {}, []),  # not looked at yet
        (
            False,
            {"phase": "Provisioning"},
            ["Machine m is not Ready, and its status.waiting lacks for, since, next"],
        ),
        (
            False,
            {"waiting": {"for": "a VM", "since": "now"}},
            ["Machine m is not Ready, and its status.waiting lacks next"],
        ),
    ],
)
def test_a_wait_has_a_reason_a_since_and_a_next_step(ready: bool, status: Any, faults: list[str]) -> None:
    assert invariants.find_silent_waits([("Machine m", ready, status)]) == faults


# -- reading -----------------------------------------------------------------------------------------------------------


def raw_vm(name: str, machine: str, **head: Any) -> dict[str, Any]:
    marks = {"windrow.io/cluster-uid": "c", "windrow.io/machine-uid": machine}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"u-{name}", "annotations": marks, **head},
    }


def test_an_inventory_is_read_from_the_lists_of_the_api() -> None:
    instance = {
        "metadata": {"namespace": "default", "name": "a", "uid": "i"},
        "status": {"phase": "Running", "interfaces": [{"ipAddresses": ["192.168.50.20", "fe80::1"]}]},
    }
    pool = {"metadata": {"name": "p"}, "status": {"allocated": {"192.168.50.200": "default/web"}}}
    accounts = [{"metadata": {"namespace": "default", "name": name}} for name in ("default", "orchard")]

    found = read_inventory(
        {
            "VirtualMachine": [raw_vm("a", "m", deletionTimestamp="now")],
            "VirtualMachineInstance": [instance],
            "IPPool": [pool],
            "ServiceAccount": accounts,
        }
    )

    assert found.vms == (Vm("default", "a", "u-a", "c", "m", True),)
    assert found.instances == (Instance("default", "a", "i", frozenset({"192.168.50.20"})),)
    assert found.allocated == (("192.168.50.200", "default/web"),)
    assert {item for item in found.items if item[0] == "ServiceAccount"} == {
        ("ServiceAccount", "default", "orchard")
    }


def test_a_violation_between_two_rests_is_seen_in_the_events() -> None:
    history = History("orchard", {"workers": 1})
    for kind, name in (
        ("ADDED", "orchard-workers-a"),
        ("ADDED", "orchard-workers-b"),
        ("DELETED", "orchard-workers-b"),
    ):
        history.on_event("VirtualMachine", {"type": kind, "object": raw_vm(name, "m")})

    assert [fault.split()[0] for fault in history.faults] == ["machine", "pool"]
    assert [vm.name for vm in history.deleted] == ["orchard-workers-b"]
    assert len(history.inventory.vms) == 1
