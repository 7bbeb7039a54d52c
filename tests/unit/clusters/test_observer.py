"""What the observer finds on Harvester that is deleted or adopted later: a reading of a moment ago is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, a_machine, a_pool, leaving, record_of
from tests.unit.clusters.test_cluster import a_raw_cluster, a_raw_config, a_raw_pool

from windrow.clusters.api.cluster import read_cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import machine_name_stem
from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.context import ReconcileContext
from windrow.clusters.observer import Observer
from windrow.clusters.orphans import MachineClaim, OrphanVm, read_cluster_vm, read_machine_claim
from windrow.clusters.state import ClusterState, ManagerLease
from windrow.core.stamps import ObservedStamps
from windrow.harvester.cloud_init_secret import build_secret
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import VM_NAME
from windrow.harvester.resources import VM
from windrow.harvester.volumes import claim_name
from windrow.kubernetes.errors import Forbidden, KubeError, Unreachable
from windrow.kubernetes.resources import PVC, SECRET, ObjectRef
from windrow.machines.port import MachineStatus

KEY = CLUSTER.ref("prod", "fleet-default")
STEM = machine_name_stem(read_cluster(a_raw_cluster(), [a_raw_config()]).cluster, "pool1")
NAME = f"{STEM}x7k2p"
UID = f"uid-{NAME}"
DISKS = [claim_name(NAME, f"disk-{number}", UID) for number in range(2)]
CREDENTIAL = "cattle-global-data:cc"
GONE = "2026-01-01T12:00:00Z"


def a_claim(name: str = DISKS[0], machine: str = UID, **head: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"pvc-{name}",
        "annotations": owner_annotations("u", machine),
    }
    return {"metadata": {**metadata, **head}}


def a_vm(name: str = NAME, machine: str = UID, uid: str = "vm-1", **head: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": uid, "labels": {VM_NAME: name}}
    return {"metadata": {**metadata, "annotations": owner_annotations("u", machine), **head}}


def of_claim(raw: dict[str, Any]) -> MachineClaim:
    found = read_machine_claim(raw)
    assert found is not None
    return found


def of_vm(raw: dict[str, Any]) -> OrphanVm:
    found = read_cluster_vm(raw)
    assert found is not None
    return found


def deleted(**record: Any) -> Any:
    """The Machine that is deleted and whose VM is gone."""
    machine = leaving(a_machine(NAME, a_pool("pool1")))
    config = {"MachineName": NAME, "VMNamespace": "default", "WindrowVMUID": "vm-1", "WindrowClaims": DISKS}
    given = {"driver_config": config, "credential": CREDENTIAL, "cluster_uid": "u", **record}
    return record_of(machine, **given).record


@dataclass
class Harvester:
    """A Harvester as the watches show it, and as it is now. `error` answers each request."""

    vms: list[OrphanVm] | None = field(default_factory=list)
    claims: list[MachineClaim] | None = field(default_factory=list)
    now: dict[ObjectRef, dict[str, Any]] = field(default_factory=dict)
    error: Exception | None = None
    presence: Any = "missing"
    read: list[str] = field(default_factory=list)

    def put(self, kind: Any, raw: dict[str, Any]) -> None:
        self.now[kind.ref(raw["metadata"]["name"], "default")] = raw

    async def find(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        self.read.append(ref.name)
        if self.error:
            raise self.error
        return self.now.get(ref)

    async def list(self, kind: Any, namespace: str, labels: str = "") -> list[Any]:
        self.read.append(f"all {kind.plural}")
        if self.error:
            raise self.error
        return [raw for ref, raw in self.now.items() if ref.kind == kind and ref.namespace == namespace]


def observe(
    site: Harvester, *machines: Any, quantity: int = 1, problems: Any = None, **metadata: Any
) -> ClusterState:
    unused: Any = None
    clock: Any = SimpleNamespace(monotonic=lambda: timedelta(), now=lambda: NOON)
    raw = a_raw_cluster(
        a_raw_pool(quantity=quantity),
        metadata={"generation": 1, "finalizers": ["windrow.io/cluster"], **metadata},
    )
    raw["status"] = {"initialized": True, "initServer": {"name": "s1", "uid": "uid-s1"}}
    allowed = SecretData("cattle-global-data", "cc", allowed_namespaces=frozenset({"fleet-default"}))
    context = ReconcileContext(
        api=unused,
        clusters={KEY: raw},  # type: ignore[arg-type]
        machines=SimpleNamespace(values=lambda: machines),  # type: ignore[arg-type]
        secrets={SECRET.ref("cc", "cattle-global-data"): allowed},  # type: ignore[arg-type]
        clock=clock,
        rng=unused,
        stamps=ObservedStamps(clock),
    )

    async def list_all(namespace: str, kinds: Any) -> list[Any]:
        return [a_raw_config()]

    statuses = {one.uid: MachineStatus(one.uid, one.name, site.presence) for one in machines}
    parts: dict[str, Any] = {
        "configs": SimpleNamespace(list_all=list_all, resolve_driver=lambda kind: "harvester"),
        "infrastructure": SimpleNamespace(
            statuses=lambda: SimpleNamespace(get=statuses.get, is_watching=True)
        ),
        "harvesters": SimpleNamespace(get_client=lambda credential, namespace: site),
        "guests": SimpleNamespace(find=lambda uid: None),
        "prober": SimpleNamespace(was_probed=lambda one: True, find_problem=lambda one, uid: problems),
        "objects": SimpleNamespace(
            list_vms=lambda uid, places: None if site.vms is None else tuple(site.vms),
            list_claims=lambda uid, places: site.claims,
            has_account=lambda *rest: True,
        ),
        "leases": SimpleNamespace(read=lambda places: ManagerLease()),
        "addresses": SimpleNamespace(of_cluster=lambda uid: (), of_machine=lambda uid: ()),
    }
    state = asyncio.run(Observer(context, **parts).observe(KEY))
    assert state is not None
    return state


# -- disks of a machine whose VM is gone


def claims_of(site: Harvester, **record: Any) -> tuple[MachineClaim, ...] | None:
    (machine,) = observe(site, deleted(**record)).machines
    return machine.claims


def test_disks_that_terminate_according_to_the_watch_are_not_read_again() -> None:
    going = [of_claim(a_claim(disk, deletionTimestamp=GONE)) for disk in DISKS]
    used = replace(of_claim(a_claim("data-of-another", "uid-x")), is_used=True)
    site = Harvester(claims=[*going, used])

    assert claims_of(site) == tuple(going)
    assert site.read == []


def test_a_disk_that_does_not_terminate_according_to_the_watch_is_read_again() -> None:
    site = Harvester(claims=[of_claim(a_claim(disk)) for disk in DISKS])
    site.put(PVC, a_claim(DISKS[1], deletionTimestamp=GONE))  # the first one is gone by now

    assert claims_of(site) == (of_claim(a_claim(DISKS[1], deletionTimestamp=GONE)),)
    assert site.read == DISKS


def test_a_claim_of_the_same_name_that_is_another_machines_by_now_is_none_of_it() -> None:
    site = Harvester(claims=[of_claim(a_claim())])
    site.put(PVC, a_claim(machine="uid-x"))

    assert claims_of(site) == ()


def test_before_the_watch_is_open_the_disks_that_were_planned_are_read() -> None:
    site = Harvester(claims=None)
    site.put(PVC, a_claim(DISKS[0]))

    assert claims_of(site) == (of_claim(a_claim(DISKS[0])),)
    assert site.read == DISKS


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Forbidden("no", status=403), ()),
        (Unreachable("no"), None),
        (KubeError("no", status=500), None),
        (CredentialError("no", "no"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_disks_that_may_not_be_read_do_not_hold_the_machine_and_those_that_cannot_be_do(
    error: Exception, expected: tuple[MachineClaim, ...] | None
) -> None:
    assert claims_of(Harvester(claims=[of_claim(a_claim())], error=error)) == expected


@pytest.mark.parametrize("presence", ["present", "unknown"])
def test_of_a_machine_whose_vm_is_not_known_to_be_gone_no_disk_is_asked_for(presence: str) -> None:
    site = Harvester(claims=[of_claim(a_claim())], presence=presence)

    assert claims_of(site) == ()
    assert site.read == []


def test_of_a_machine_that_is_not_deleted_no_disk_is_asked_for() -> None:
    site = Harvester(claims=[of_claim(a_claim())])

    assert claims_of(site, deletion_timestamp=None) == ()
    assert site.read == []


# -- VMs and disks that no Machine records


def test_a_vm_that_no_machine_records_is_confirmed_and_proven() -> None:
    site = Harvester(vms=[of_vm(a_vm())])
    site.put(VM, a_vm())

    (unproven,) = observe(site).unrecorded or ()
    assert (unproven.name, bool(unproven.unproven)) == (NAME, True)

    site.put(SECRET, build_secret("default", NAME, "vm-1", user_data=""))
    assert observe(site).unrecorded == (of_vm(a_vm()),)


@pytest.mark.parametrize(
    "now",
    [None, a_vm(uid="vm-2"), a_vm(machine="uid-x"), a_vm(deletionTimestamp=GONE)],
    ids=["gone", "another VM", "of another machine", "deleted"],
)
def test_a_vm_that_is_not_as_it_was_listed_waits_for_the_next_look(now: dict[str, Any] | None) -> None:
    site = Harvester(vms=[of_vm(a_vm())])
    if now is not None:
        site.put(VM, now)

    assert observe(site).unrecorded == ()
    assert site.read == [NAME]


def test_a_vm_that_a_machine_records_is_not_read_again() -> None:
    site = Harvester(vms=[of_vm(a_vm())], presence="present")

    assert observe(site, deleted(deletion_timestamp=None)).unrecorded == ()
    assert site.read == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"quantity": 1}, (of_vm(a_vm()),)),
        ({"quantity": 0}, None),
        ({"finalizers": []}, None),
        ({"problems": "it does not answer"}, None),
    ],
    ids=["a machine is to be made", "none is", "not yet begun", "a Harvester that does not answer"],
)
def test_before_the_watch_is_open_vms_are_listed_only_where_a_machine_is_to_be_made(
    given: dict[str, Any], expected: Any
) -> None:
    site = Harvester(vms=None)
    site.put(VM, a_vm())
    site.put(VM, a_vm(f"{STEM}fghij", "uid-2", "vm-2", deletionTimestamp=GONE))
    site.put(SECRET, build_secret("default", NAME, "vm-1", user_data=""))

    assert observe(site, **given).unrecorded == expected


def test_vms_that_cannot_be_read_are_unknown_and_of_those_that_may_not_be_listed_there_is_none() -> None:
    assert observe(Harvester(vms=[of_vm(a_vm())], error=Unreachable("no"))).unrecorded is None
    assert observe(Harvester(vms=None, error=Unreachable("no"))).unrecorded is None
    assert observe(Harvester(vms=None, error=Forbidden("no", status=403))).unrecorded == ()


def test_a_disk_of_no_machine_and_no_vm_is_confirmed() -> None:
    site = Harvester(claims=[of_claim(a_claim())])
    site.put(PVC, a_claim())
    assert observe(site).unrecorded_claims == (of_claim(a_claim()),)

    site.put(PVC, a_claim(uid="pvc-2"))
    assert observe(site).unrecorded_claims == ()
    assert observe(replace(site, error=Unreachable("no"))).unrecorded_claims == ()


@pytest.mark.parametrize(
    "claim",
    [
        of_claim(a_claim(deletionTimestamp=GONE)),
        replace(of_claim(a_claim()), is_used=True),
    ],
    ids=["it terminates", "a VM uses it"],
)
def test_a_disk_that_goes_or_is_used_is_not_read_again(claim: MachineClaim) -> None:
    site = Harvester(claims=[claim])

    assert observe(site).unrecorded_claims == ()
    assert site.read == []


def test_a_disk_of_a_machine_that_is_recorded_or_of_a_vm_is_not_read_again() -> None:
    site = Harvester(claims=[of_claim(a_claim())], presence="present")
    assert observe(site, deleted(deletion_timestamp=None)).unrecorded_claims == ()
    assert site.read == []

    vm = replace(of_vm(a_vm(machine="uid-x")), claims=(DISKS[0],))
    assert observe(replace(site, vms=[vm])).unrecorded_claims == ()
    assert DISKS[0] not in site.read
