"""What the observer finds on Harvester that is deleted or adopted later: a reading of a moment ago is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, SECRETS, a_cluster, a_machine, a_pool, leaving, record_of
from tests.unit.clusters.test_cluster import a_raw_cluster, a_raw_config, a_raw_pool

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.machine import machine_name_stem
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.names import CREDENTIAL_KEY, ENDPOINT_IP_POOL, ENDPOINT_MODE, secrets_name
from windrow.clusters.api.secrets import GUEST_KUBECONFIG, CredentialError, SecretData, render_secrets
from windrow.clusters.context import ProcessState, ReconcileContext
from windrow.clusters.endpoint_balancer import ObservedBalancer, key_of_balancers, read_balancer
from windrow.clusters.observe.credentials import credentials_of
from windrow.clusters.observe.orphans import find_twin
from windrow.clusters.observer import Observer
from windrow.clusters.orphans import MachineClaim, OrphanVm, read_cluster_vm, read_machine_claim
from windrow.clusters.sources.hosts import UNKNOWN
from windrow.clusters.state import ClusterState, GuestState, ManagerLease, Node, Place, Pod
from windrow.core.stamps import ObservedStamps
from windrow.harvester.cloud_init_secret import build_secret
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import CLUSTER_UID, VM_NAME
from windrow.harvester.resources import LOAD_BALANCER, VM
from windrow.harvester.shutdown import Shutdown
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.harvester.unanswered import LATEST
from windrow.harvester.volumes import claim_name
from windrow.kubernetes.errors import Forbidden, KubeError, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import secret_texts
from windrow.kubernetes.resources import POD, PVC, SECRET, SERVICE_ACCOUNT, ObjectRef
from windrow.machines.port import MachineStatus, Problem

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
    config = {
        "MachineName": NAME,
        "VMNamespace": "default",
        "WindrowVMUID": "vm-1",
        "WindrowClaims": DISKS,
        "WindrowHarvesterUID": "hv",
    }
    given = {"driver_config": config, "credential": CREDENTIAL, "cluster_uid": "u", **record}
    return record_of(machine, **given).record


@dataclass
class Harvester:
    """A Harvester as the watches show it, and as it is now. `error` answers each request."""

    vms: list[OrphanVm] | None = field(default_factory=list)
    claims: list[MachineClaim] | None = field(default_factory=list)
    balancers: list[ObservedBalancer] | None = field(default_factory=list)
    now: dict[ObjectRef, dict[str, Any]] = field(default_factory=dict)
    error: Exception | None = None
    presence: Any = "missing"
    state: Any = "running"
    uid: str = "hv"
    read: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)  # machines of the preflight

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
        if "!" in labels:  # what has no label of a cluster: none here
            return []
        return [raw for ref, raw in self.now.items() if ref.kind == kind and ref.namespace == namespace]


def observe(
    site: Harvester,
    *machines: Any,
    quantity: int = 1,
    problems: Any = None,
    process: ProcessState | None = None,
    is_allowed: bool = True,
    is_watching: bool = True,
    is_new: bool = False,
    hidden: Iterable[str] = (),
    configs: Sequence[dict[str, Any]] = (),
    versions: Mapping[str, HarvesterVersions] | None = None,
    guest: Any = None,
    kept: Mapping[str, str] | None = None,
    account: bool | None = True,
    failure: CredentialError | None = None,
    status: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    rke: Mapping[str, Any] | None = None,
    secret: SecretData | None = None,
    is_probed: bool = True,
    **metadata: Any,
) -> ClusterState:
    """`hidden` are credentials that may not read which Harvester it is; `is_new`: the preflight is to come. `kept` is in the Secret
    of the Cluster; `account`: whether the watch shows its ServiceAccount; `failure` is that of its credential's probe. `earlier` is
    the status at a look before."""
    unused: Any = None
    clock: Any = SimpleNamespace(monotonic=lambda: timedelta(), now=lambda: NOON)
    configs = configs or [a_raw_config()]
    names = [one["metadata"]["name"] for one in configs]
    raw = a_raw_cluster(
        *(
            a_raw_pool(f"pool{place}", quantity=quantity, machineConfigRef={"name": name})
            for place, name in enumerate(names, 1)
        ),
        metadata={"generation": 1, "finalizers": ["windrow.io/cluster"], **metadata},
        rke=dict(rke or {}),
    )
    if not is_new:
        raw["status"] = {"initialized": True, "initServer": {"name": "s1", "uid": "uid-s1"}}
    before = {**raw, "status": {**raw["status"], **(earlier or {})}}
    raw["status"] |= status or {}
    clusters = {KEY: raw}
    namespaces = frozenset({"fleet-default"} if is_allowed else ())
    access = render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token="t"), "harvester")
    allowed = SecretData(
        "cattle-global-data", "cc", allowed_namespaces=namespaces, data={CREDENTIAL_KEY: access}
    )
    secrets = {SECRET.ref("cc", "cattle-global-data"): allowed}
    if secret is not None:
        secrets[SECRET.ref(secret.name, secret.namespace)] = secret
    if kept is not None:
        name = secrets_name("prod")
        secrets[SECRET.ref(name, "fleet-default")] = SecretData("fleet-default", name, "u", data=kept)
    context = ReconcileContext(
        api=site,  # type: ignore[arg-type]
        clusters=clusters,  # type: ignore[arg-type]
        machines=SimpleNamespace(by_index=lambda uid: [one for one in machines if one.cluster_uid == uid]),  # type: ignore[arg-type]
        secrets=secrets,  # type: ignore[arg-type]
        clock=clock,
        rng=unused,
        stamps=ObservedStamps(clock),
        process_state=process or ProcessState(),
    )

    async def list_all(namespace: str, kinds: Any) -> list[Any]:
        return list(configs)

    async def check(specs: Any) -> list[Problem]:
        site.checked += [one.name for one in specs]
        return []

    async def verified(account: Any, namespace: str) -> Harvester:
        if account.harvester not in ("", site.uid):
            raise CredentialError(f"leads to {site.uid}, {account} is on {account.harvester}", "put it right")
        return site

    statuses = {
        one.uid: MachineStatus(one.uid, one.name, site.presence, state=site.state) for one in machines
    }
    parts: dict[str, Any] = {
        "configs": SimpleNamespace(list_all=list_all, resolve_driver=lambda kind: "harvester"),
        "infrastructure": SimpleNamespace(
            statuses=lambda: SimpleNamespace(get=statuses.get, is_watching=is_watching), check=check
        ),
        "harvesters": SimpleNamespace(
            get_client=lambda credential, namespace: site,
            get_verified_client=verified,
            get_config=lambda credential, namespace: ClientConfig("https://10.0.0.1:6443"),
        ),
        "guests": SimpleNamespace(find=lambda uid: guest),
        "prober": SimpleNamespace(
            was_probed=lambda one: is_probed,
            find_problem=lambda one, uid: problems,
            find_failure=lambda one: failure,
            find_identity=lambda one: "hv",
            hides_identity=lambda one: one in hidden,
            find_versions=(versions or {}).get,
        ),
        "objects": SimpleNamespace(
            list_vms=lambda uid, places: None if site.vms is None else tuple(site.vms),
            list_claims=lambda uid, places: site.claims,
            list_balancers=lambda uid, place: site.balancers,
            has_account=lambda *rest: account,
        ),
        "leases": SimpleNamespace(read=lambda places: ManagerLease()),
        "addresses": SimpleNamespace(
            of_cluster=lambda uid: (), of_machine=lambda uid: (), with_uid=lambda uid: ()
        ),
        "scopes": SimpleNamespace(forget=lambda cluster: None),
        "snapshots": SimpleNamespace(by_index=lambda uid: iter(())),
        "hosts": SimpleNamespace(find=lambda credential: UNKNOWN),
    }
    observer = Observer(context, **parts)
    if earlier is not None:
        clusters[KEY] = before
        asyncio.run(observer.observe(KEY))
        clusters[KEY] = raw
    state = asyncio.run(observer.observe(KEY))
    assert state is not None
    return state


# -- versions of a cluster that runs


ASKED = {CREDENTIAL: HarvesterVersions("v1.10.0")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"versions": ASKED}, True),
        ({"versions": {"other:cc": ASKED[CREDENTIAL]}}, None),  # its own was not asked yet
        ({"versions": ASKED, "is_new": True}, None),  # the preflight says it
        ({"versions": ASKED, "deletionTimestamp": GONE}, None),
        ({"versions": ASKED, "is_allowed": False}, False),  # none may be asked
    ],
)
def test_the_versions_of_a_cluster_that_runs_are_compared_with_what_its_harvester_said(
    given: dict[str, Any], expected: bool | None
) -> None:
    found = observe(Harvester(), **given).version_problems

    assert (found is None) == (expected is None)
    assert any("v1.10.0" in one.message for one in found or ()) is bool(expected)


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


def test_a_disk_that_terminates_beside_one_that_does_not_is_read_again_with_it() -> None:
    site = Harvester(
        claims=[of_claim(a_claim(DISKS[0], deletionTimestamp=GONE)), of_claim(a_claim(DISKS[1]))]
    )
    site.put(PVC, a_claim(DISKS[1]))

    assert claims_of(site) == (of_claim(a_claim(DISKS[1])),)


@pytest.mark.parametrize("config", [None, {"MachineName": NAME}])
def test_without_a_watch_and_a_plan_of_its_disks_none_is_read(config: dict[str, Any] | None) -> None:
    site = Harvester(claims=None)

    assert claims_of(site, driver_config=config) == ()
    assert site.read == []


def test_disks_of_another_clouds_machine_are_its_drivers() -> None:
    site = Harvester(claims=None)

    assert claims_of(site, driver="digitalocean") == ()
    assert site.read == []


# -- machines


def a_record(name: str, **changes: Any) -> Any:
    return deleted(name=name, uid=f"uid-{name}", deletion_timestamp=None, **changes)


def test_its_machines_are_those_of_its_namespace_with_its_uid_the_oldest_first() -> None:
    later = NOON + timedelta(minutes=1)
    machines = (
        a_record("c", created=NOON),
        a_record("a", created=later),
        a_record("b", created=NOON),
        a_record("d", cluster_uid="another"),
        a_record("e", namespace="elsewhere"),
    )

    assert [one.name for one in observe(Harvester(presence="present"), *machines).machines] == ["b", "c", "a"]


def test_while_harvester_is_not_watched_the_state_of_a_vm_is_unknown() -> None:
    (machine,) = observe(Harvester(), a_record("a"), is_watching=False).machines

    assert machine.presence == "unknown"


def test_what_only_this_process_knows_of_a_machine_is_part_of_its_state() -> None:
    process = ProcessState(deletion_requested={"uid-a": timedelta(seconds=-30)}, node_deleted={"uid-b"})
    a, b = observe(Harvester(presence="present"), a_record("a"), a_record("b"), process=process).machines

    assert (a.deletion_requested, b.deletion_requested) == (NOON - timedelta(seconds=30), None)
    assert (a.node_deleted, b.node_deleted) == (False, True)


@pytest.mark.parametrize(
    ("record", "may_come"),
    [
        ({"driver_config": {"MachineName": NAME}}, True),
        ({"driver_config": {"MachineName": NAME, "WindrowVMUID": "vm-1"}}, False),
        ({"driver_config": None}, False),
        ({"driver_config": {"MachineName": NAME}, "driver": "digitalocean"}, False),
    ],
    ids=["requested", "made", "not requested", "of another cloud"],
)
def test_a_vm_that_an_earlier_process_requested_may_come_for_a_while(
    record: dict[str, Any], may_come: bool
) -> None:
    (machine,) = observe(Harvester(), a_record("a", **record)).machines

    assert machine.may_be_made_until == (NOON + LATEST if may_come else None)


def test_a_credential_without_consent_leads_nowhere_and_is_a_problem() -> None:
    site = Harvester(vms=[of_vm(a_vm())], claims=[of_claim(a_claim())])
    state = observe(site, is_allowed=False)

    assert (state.places, site.read) == (frozenset(), [])
    (problem,) = state.credential_problems or ()
    assert (problem.is_rejected, problem.is_allowed) == (True, False)


# -- before the first machine

ADDRESSES = [{"network": "default/vlan", "addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24}]


def faults(found: ClusterState) -> list[str]:
    assert found.preflight is not None
    return [one.message for one in found.preflight if one.severity == "error"]


def test_addresses_are_claimed_on_a_harvester_that_may_be_read_only() -> None:
    configs = [
        a_raw_config("plain"),
        a_raw_config("pooled", networkName="default/vlan", addressPools=ADDRESSES),
    ]
    hidden = observe(Harvester(), is_new=True, hidden=[CREDENTIAL], configs=configs)

    assert hidden.harvester_hidden_from == CREDENTIAL
    assert faults(hidden) == [
        "HarvesterConfig fleet-default/pooled: addressPools is set, and credential Secret cattle-global-data/cc may not get "
        "Namespace kube-system on Harvester, under whose uid addresses are claimed"
    ]
    for also in (
        observe(Harvester(), is_new=True, configs=configs),
        observe(Harvester(), is_new=True, hidden=[CREDENTIAL]),
    ):
        assert (also.harvester_hidden_from, faults(also)) == ("", [])


def test_the_pool_of_its_load_balancer_is_asked_for() -> None:
    annotations = {ENDPOINT_MODE: "loadBalancer", ENDPOINT_IP_POOL: "absent"}

    (fault,) = faults(observe(Harvester(), is_new=True, annotations=annotations))

    assert "is absent, and there is no such IPPool on Harvester" in fault


# -- at the end of the cluster


def test_at_its_end_what_carries_its_uid_is_listed_once_its_machines_are_gone() -> None:
    site = Harvester(presence="present")
    site.put(VM, a_vm())
    site.put(VM, a_vm("x-1", "uid-x", "vm-x", annotations=owner_annotations("another", "uid-x")))
    going = a_claim(claim_name(NAME, "data", UID), deletionTimestamp=GONE)
    for claim in (a_claim(DISKS[0]), going, a_claim("copy-of-it"), a_claim("used", "uid-x")):
        site.put(PVC, claim)

    assert observe(site, a_record("a"), deletionTimestamp=GONE).orphans is None
    found = observe(site, deletionTimestamp=GONE).orphans
    assert found is not None
    assert [vm.name for vm in found.vms] == [NAME]
    assert found.claims == (str(of_claim(going)),)
    assert {disk.name: bool(disk.unproven) for disk in found.disks} == {
        DISKS[0]: False,
        "copy-of-it": True,
        "used": True,
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Forbidden("no", status=403), "no; let cattle-global-data:cc list and delete load balancers"),
        (Unreachable("away"), "away"),
        (CredentialError("no Secret", "make it"), "no Secret; make it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_at_its_end_what_cannot_be_listed_is_unknown(error: Exception, said: str) -> None:
    found = observe(Harvester(error=error), deletionTimestamp=GONE).orphans

    assert found is not None
    assert found.unknown.startswith(said)
    assert (found.vms, found.disks) == ((), ())


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
    [
        None,
        a_vm(uid="vm-2"),
        a_vm(machine="uid-x"),
        a_vm(annotations=owner_annotations("another", UID)),
        a_vm(deletionTimestamp=GONE),
    ],
    ids=["gone", "another VM", "of another machine", "of another Cluster", "deleted"],
)
def test_a_vm_that_is_not_as_it_was_listed_waits_for_the_next_look(now: dict[str, Any] | None) -> None:
    site = Harvester(vms=[of_vm(a_vm())])
    if now is not None:
        site.put(VM, now)

    assert observe(site).unrecorded == ()
    assert site.read == [NAME]


@pytest.mark.parametrize(
    "volume",
    [
        {"cloudInitNoCloud": {"networkData": "ethernets: {a: {addresses: [10.9.0.7/24]}}"}},
        {"persistentVolumeClaim": {"claimName": "more"}},
    ],
    ids=["address", "disk"],
)
def test_a_vm_that_was_changed_since_it_was_listed_is_still_there_and_as_it_is_now(
    volume: dict[str, Any],
) -> None:
    """Else its addresses were released, and etcd members counted without it."""
    networks = [{"name": "a", "multus": {"networkName": "lan"}}]
    changed = {**a_vm(), "spec": {"template": {"spec": {"networks": networks, "volumes": [volume]}}}}
    site = Harvester(vms=[of_vm(a_vm())])
    site.put(VM, changed)
    site.put(SECRET, build_secret("default", NAME, "vm-1", user_data=""))

    assert of_vm(changed) != of_vm(a_vm())
    assert observe(site).unrecorded == (of_vm(changed),)


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


# -- volumes of a machine that goes, or is gone


@dataclass
class Guest:
    """A guest whose Nodes are those of these machines; `attached` has the name of the Node of each volume."""

    nodes: tuple[Node, ...]
    attached: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None
    listed: int = 0
    pods: Sequence[dict[str, Any]] = ()
    snapshots: Any = field(default_factory=lambda: SimpleNamespace(observe=lambda: None))
    charts: Any = field(default_factory=lambda: SimpleNamespace(observe=lambda: None))
    claims: dict[str, str] = field(default_factory=dict)

    @property
    def client(self) -> Guest:
        return self

    def observe(self) -> GuestState:
        return GuestState("reachable", nodes=self.nodes)

    async def find(self, ref: Any) -> Any:
        if self.error:
            raise self.error
        volume = self.claims.get(f"{ref.namespace}/{ref.name}")
        return None if volume is None else {"metadata": {}, "spec": {"volumeName": volume} if volume else {}}

    async def list(self, kind: Any, *rest: Any, fields: str = "") -> list[Any]:
        if kind == POD:
            node = fields.removeprefix("spec.nodeName=")
            return [raw for raw in self.pods if raw["spec"]["nodeName"] == node or not fields]
        self.listed += 1
        if self.error:
            raise self.error
        return [
            {
                "metadata": {"name": f"csi-{volume}"},
                "spec": {
                    "nodeName": node,
                    "source": {"persistentVolumeName": volume} if volume != "inline" else {},
                },
            }
            for volume, node in self.attached.items()
        ]


def a_guest(ready: bool = True, **rest: Any) -> Guest:
    return Guest((Node(NAME, uid="node", machine_uid=UID, ready=ready),), **rest)


def kept(**record: Any) -> Any:
    return replace(deleted(**record), deletion_timestamp=None)


def volumes_of(site: Harvester, record: Any, guest: Guest) -> tuple[Any, Any]:
    (machine,) = observe(site, record, guest=guest).machines
    return machine.attached, machine.shutdown


def a_launcher(name: str = "virt-launcher-1", phase: str = "Running", vm: str = NAME) -> dict[str, Any]:
    """As KubeVirt makes it for a VM whose guest has another host name."""
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"vm.kubevirt.io/name": "web", VM_NAME: vm},
    }
    return {"metadata": metadata, "status": {"phase": phase}}


def test_a_machine_whose_vm_is_gone_is_proven_to_be_shut_down_by_live_reads() -> None:
    guest = a_guest(attached={"pvc-2": NAME, "pvc-1": NAME, "pvc-3": "other", "inline": NAME})
    site = Harvester()

    attached, shutdown = volumes_of(site, kept(), guest)

    assert attached == ("csi-inline", "pvc-1", "pvc-2")
    assert shutdown == Shutdown(
        True, f"VirtualMachine default/{NAME} is not found, and no launcher pod of it runs"
    )
    assert site.read[-3:] == [NAME, NAME, "all pods"]


def test_a_launcher_pod_that_runs_on_is_doubt() -> None:
    site = Harvester()
    site.put(POD, a_launcher())

    assert volumes_of(site, kept(), a_guest())[1] == Shutdown(False, "Pod default/virt-launcher-1 is Running")


def test_a_launcher_pod_of_another_vm_is_no_doubt() -> None:
    site = Harvester()
    site.put(POD, a_launcher(vm="another"))

    assert volumes_of(site, kept(), a_guest())[1].is_proven


def test_what_another_harvester_does_not_have_is_no_proof() -> None:
    """The Secret of the credential was exchanged after the machines were last seen."""
    site = Harvester(uid="hv-2")

    _, shutdown = volumes_of(site, kept(), a_guest())

    assert shutdown == Shutdown(False, f"leads to hv-2, VirtualMachine default/{NAME} is on hv; put it right")
    assert "all pods" not in site.read


@pytest.mark.parametrize("uid", ["hv", "hv-2"])
def test_a_machine_without_a_record_of_its_harvester_is_on_that_of_the_cluster(uid: str) -> None:
    other = replace(kept(driver_config={"WindrowHarvesterUID": uid}), name="beside", uid="uid-beside")

    machines = observe(Harvester(), kept(driver_config=None), other, guest=a_guest()).machines

    (proof,) = (one.shutdown for one in machines if one.name == NAME)
    assert proof is not None
    assert proof.is_proven == (uid == "hv")


@pytest.mark.parametrize("config", [{"MachineName": NAME, "VMNamespace": "default"}, None])
def test_where_it_is_not_recorded_which_harvester_a_machine_is_on_nothing_is_a_proof(config: Any) -> None:
    site = Harvester()
    record = kept(driver_config=config)

    assert volumes_of(site, record, a_guest())[1] == Shutdown(
        False, "it is not recorded which Harvester it is on"
    )
    assert "all pods" not in site.read


@pytest.mark.parametrize(
    "error", [Forbidden("pods is forbidden"), Unreachable("refused"), CredentialError("gone", "make it")]
)
def test_what_harvester_does_not_answer_is_doubt(error: Exception) -> None:
    _, shutdown = volumes_of(Harvester(error=error), kept(), a_guest())

    assert shutdown is not None
    assert not shutdown.is_proven
    assert str(error) in shutdown.because


def test_of_another_driver_nothing_is_read_on_harvester() -> None:
    site = Harvester()
    record = kept(driver="digitalocean", driver_config={"WindrowDriver": "digitalocean"})

    assert volumes_of(site, record, a_guest(ready=False))[1] == Shutdown(
        True, "driver digitalocean does not find it"
    )
    assert volumes_of(site, record, a_guest())[1] is None  # its kubelet reports
    assert site.read == []


def test_a_machine_that_another_driver_has_stopped_is_not_proven_to_be_shut_down() -> None:
    record = kept(driver="digitalocean", driver_config={"WindrowDriver": "digitalocean"})
    site = Harvester(presence="present", state="stopped")

    assert volumes_of(site, record, a_guest(ready=False))[1] == Shutdown(
        False, "driver digitalocean reports it as stopped"
    )


def test_a_machine_that_is_deleted_needs_no_proof_where_nothing_is_attached() -> None:
    site = Harvester()

    assert volumes_of(site, deleted(), a_guest()) == ((), None)
    assert "all pods" not in site.read
    assert volumes_of(site, deleted(), a_guest(attached={"pvc-1": NAME}))[0] == ("pvc-1",)
    assert "all pods" in site.read


def test_attachments_that_cannot_be_listed_are_unknown() -> None:
    attached, shutdown = volumes_of(Harvester(), deleted(), a_guest(error=Unreachable("refused")))

    assert attached is None
    assert shutdown is not None


def test_nothing_is_read_of_machines_that_run_or_of_a_cluster_that_is_deleted() -> None:
    guest = a_guest(attached={"pvc-1": NAME})

    assert volumes_of(Harvester(presence="present"), kept(), guest) == ((), None)
    (machine,) = observe(Harvester(), kept(), guest=guest, deletionTimestamp=GONE).machines
    assert (machine.attached, machine.shutdown) == ((), None)
    assert guest.listed == 0


def test_what_is_attached_to_a_drained_node_is_read_before_its_vm_goes() -> None:
    guest = a_guest(attached={"pvc-1": NAME})

    record = deleted(pool="removed")  # the machines of a pool that does not exist any more are drained

    assert volumes_of(Harvester(presence="present"), record, guest) == (("pvc-1",), None)


def a_pod(
    name: str, node: str = NAME, phase: str = "Running", owner: str = "ReplicaSet", **head: Any
) -> dict[str, Any]:
    owners = [{"kind": owner, "name": "o", "controller": True}] if owner else []
    return {
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners, **head},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def test_a_drained_node_waits_for_its_pods_but_for_those_that_belong_to_it_or_have_ended() -> None:
    pods = (
        a_pod("web"),
        a_pod("alone", owner=""),
        a_pod("starting", phase="Pending"),
        a_pod("going", deletionTimestamp=GONE),
        with_empty_dir(a_pod("cache")),
        a_pod("elsewhere", node="other"),
        a_pod("agent", owner="DaemonSet"),
        a_pod("proxy", owner="Node", annotations={"kubernetes.io/config.mirror": "x"}),
        a_pod("job", phase="Succeeded", owner="Job"),
        a_pod("broken", phase="Failed", owner="Job"),
    )

    (machine,) = observe(
        Harvester(presence="present"), deleted(pool="removed"), guest=a_guest(pods=pods)
    ).machines

    assert machine.pods == (
        Pod("shop", "web"),
        Pod("shop", "alone", is_bare=True),
        Pod("shop", "starting"),
        Pod("shop", "going", is_deleting=True),
        Pod("shop", "cache", has_empty_dir=True),
    )


def with_empty_dir(pod: dict[str, Any]) -> dict[str, Any]:
    volumes = [{"name": "token", "projected": {}}, {"name": "tmp", "emptyDir": {}}]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def with_claims(pod: dict[str, Any], *claims: str, ephemeral: str = "") -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims
    ]
    volumes += [{"name": ephemeral, "ephemeral": {"volumeClaimTemplate": {}}}] if ephemeral else []
    pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, *volumes]
    return pod


def staying_of(guest: Guest, presence: Any = "present") -> frozenset[str]:
    (machine,) = observe(Harvester(presence=presence), deleted(pool="removed"), guest=guest).machines
    return machine.staying


def test_volumes_of_pods_that_belong_to_a_node_stay_attached_to_it_when_it_is_drained() -> None:
    pods = (
        with_claims(a_pod("agent", owner="DaemonSet"), "data", "unbound", "unknown", ephemeral="scratch"),
        with_claims(a_pod("ended", owner="DaemonSet", phase="Failed"), "old"),
        with_claims(a_pod("elsewhere", owner="DaemonSet", node="other"), "far"),
        with_claims(a_pod("ended-web", phase="Succeeded"), "web"),
    )
    claims = {"shop/data": "pvc-1", "shop/agent-scratch": "pvc-2", "shop/unbound": ""}
    claims |= {"shop/old": "pvc-3", "shop/far": "pvc-4", "shop/web": "pvc-5", "other/data": "pvc-6"}
    guest = a_guest(attached={"pvc-1": NAME, "pvc-5": NAME}, pods=pods, claims=claims)

    assert staying_of(guest) == {"pvc-1", "pvc-2"}


def test_which_volumes_stay_is_not_asked_where_nothing_is_attached_or_the_vm_is_gone() -> None:
    pods = (with_claims(a_pod("agent", owner="DaemonSet"), "data"),)

    assert staying_of(a_guest(pods=pods, claims={"shop/data": "pvc-1"})) == frozenset()
    attached = a_guest(attached={"pvc-1": NAME}, pods=pods, claims={"shop/data": "pvc-1"})
    assert staying_of(attached, presence="missing") == frozenset()


@pytest.mark.parametrize(
    "given",
    [
        {"presence": "present", "record": {}},  # its pool is not drained
        {"presence": "present", "record": {"pool": "removed"}, "deletionTimestamp": GONE},
        {"presence": "present", "record": {"pool": "removed"}, "ready": False},  # its pods cannot end
    ],
)
def test_pods_of_a_node_that_is_not_drained_are_not_asked_for(given: dict[str, Any]) -> None:
    given = dict(given)
    presence, record = given.pop("presence"), given.pop("record")
    guest = a_guest(given.pop("ready", True), pods=(a_pod("web"),))

    (machine,) = observe(Harvester(presence=presence), deleted(**record), guest=guest, **given).machines

    assert machine.pods == ()


FAKE = {"driver": "fake", "kind": "FakeConfig"}


@pytest.mark.parametrize(
    ("pools", "provider", "credentials"),
    [
        ((a_pool(),), "", ["ns:cc"]),
        ((replace(a_pool(), credential="ns:other"),), "", ["ns:cc", "ns:other"]),
        ((replace(a_pool(), credential="unreadable"),), "", ["ns:cc"]),
        ((), "", ["ns:cc"]),
        ((a_pool(**FAKE),), "", []),
        ((a_pool(**FAKE),), "harvester", ["ns:cc"]),
    ],
)
def test_a_cluster_with_machines_or_a_cloud_provider_on_harvester_names_credentials(
    pools: Any, provider: str, credentials: list[str]
) -> None:
    assert credentials_of(a_cluster(*pools, cloud_provider=provider)) == credentials


# -- the account of the guest


OWN: dict[str, Any] = {
    "status": {
        "guestServiceAccount": {"namespace": "default", "serviceAccount": "prod", "credential": CREDENTIAL}
    },
    "rke": {"machineGlobalConfig": {"cloud-provider-name": "harvester"}},
    "kept": {GUEST_KUBECONFIG: "text"},
}
ACCOUNT = {"metadata": {"name": "prod", "namespace": "default"}}
TOKEN = {"metadata": {"name": "prod-token", "namespace": "default"}}
KEPT = secret_texts(render_secrets(read_cluster(a_raw_cluster(), [a_raw_config()]).cluster, SECRETS))


@pytest.mark.parametrize(
    ("there", "watched", "given", "found"),
    [
        ((), False, {}, "lost"),
        ((ACCOUNT,), False, {}, "lost"),
        ((TOKEN,), False, {}, "lost"),
        ((ACCOUNT, TOKEN), False, {}, "ready"),  # the watch is behind
        ((), True, {}, "ready"),
        ((), None, {}, "ready"),  # it is not watched
        ((), False, {"kept": {}}, "pending"),
        ((), False, {"kept": {}, "status": {}}, "missing"),
        ((), False, {"status": {}}, "ready"),  # none was made here
        ((), False, {"rke": {"machineGlobalConfig": {"cloud-provider-name": ""}}}, "unneeded"),
    ],
)
def test_the_account_of_a_guest_is_lost_when_it_or_its_token_is_not_on_harvester(
    there: Iterable[Any], watched: bool | None, given: dict[str, Any], found: str
) -> None:
    site = Harvester()
    for raw in there:
        site.put(SERVICE_ACCOUNT if raw is ACCOUNT else SECRET, raw)

    assert observe(site, account=watched, **{**OWN, **given}).guest_credential.state == found


def test_an_account_that_is_being_deleted_is_lost_and_one_that_cannot_be_read_is_not() -> None:
    site = Harvester()
    site.put(SERVICE_ACCOUNT, ACCOUNT)
    site.put(SECRET, {"metadata": {**TOKEN["metadata"], "deletionTimestamp": GONE}})
    silent = Harvester(error=Unreachable("refused"))

    assert observe(site, account=False, **OWN).guest_credential.state == "lost"
    assert observe(silent, account=False, **OWN).guest_credential.state == "ready"


@pytest.mark.parametrize(
    ("given", "may_be_made"),
    [
        ({}, False),  # its token is kept, so it was answered
        ({"kept": KEPT}, True),
        ({"kept": None}, False),  # the Secret went first
        ({"kept": KEPT, "status": {}}, False),
    ],
)
def test_an_account_may_be_made_by_a_late_request_until_its_token_is_kept(
    given: dict[str, Any], may_be_made: bool
) -> None:
    process = ProcessState()
    process.unanswered.begin(timedelta())

    state = observe(Harvester(), process=process, deletionTimestamp=GONE, **{**OWN, **given})

    assert state.account_may_be_made_until == (NOON + LATEST if may_be_made else None)


# -- the preflight


def test_the_preflight_says_what_the_probe_of_a_credential_found_and_checks_no_machine_with_it() -> None:
    found = observe(Harvester(), is_new=True, failure=CredentialError("401", "renew it")).preflight

    problem = Problem("401", "renew it", "spec.cloudCredentialSecretName")
    assert found is not None
    assert problem in found
    assert problem not in (observe(Harvester(), is_new=True).preflight or ())


def test_the_preflight_is_repeated_for_another_spec_and_where_the_name_of_the_account_was_taken() -> None:
    process = ProcessState()
    known = (Problem("one", "hint"),)
    process.preflight_passed["u"] = (1, known)

    assert observe(Harvester(), is_new=True, process=process).preflight == known
    assert known[0] not in (
        observe(Harvester(), is_new=True, process=process, generation=2).preflight or known
    )
    assert observe(Harvester(), process=process).preflight is None  # it has begun
    process.account_taken.add("u")
    for is_new in (True, False):
        assert known[0] not in (observe(Harvester(), is_new=is_new, process=process).preflight or known)


def test_every_pool_has_the_digest_of_its_configuration_but_for_a_cluster_that_is_deleted() -> None:
    assert all(observe(Harvester()).config_hashes.get(name) for name in ("pool1",))
    assert observe(Harvester(), deletionTimestamp=GONE).config_hashes == {}


def test_the_digest_is_known_with_a_release_that_a_machine_has_and_that_is_asked_for_no_longer() -> None:
    recorded = {"version": observe(Harvester()).cluster.version}

    state = observe(Harvester(), a_record("a", version="v1.99.1+rke2r1"), status=recorded)

    assert state.left_hashes.keys() == {"v1.99.1+rke2r1"}
    left = state.left_hashes["v1.99.1+rke2r1"]["pool1"]
    assert left not in ("", state.config_hashes["pool1"])


def test_an_endpoint_that_is_recorded_later_is_part_of_the_digest_of_the_configuration() -> None:
    recorded = {"controlPlaneEndpoint": {"mode": "address", "host": "10.0.0.9"}}

    at_once = observe(Harvester(), status=recorded).config_hashes
    later = observe(Harvester(), earlier={}, status=recorded).config_hashes

    assert later == at_once != observe(Harvester()).config_hashes


def test_a_twin_is_another_cluster_whose_guest_has_the_same_uid() -> None:
    mine = a_cluster()
    mine = replace(mine, recorded=replace(mine.recorded, guest_uid="g"))

    def other(guest: str, uid: str = "another") -> dict[str, Any]:
        return {"metadata": {"name": "copy", "namespace": "x", "uid": uid}, "status": {"guestUID": guest}}

    assert find_twin(mine, [other("h"), other("g", mine.uid)]) == ""
    assert find_twin(mine, [other("h"), other("g")]) == "Cluster x/copy"
    assert find_twin(replace(mine, recorded=replace(mine.recorded, guest_uid="")), [other("")]) == ""


# -- the LoadBalancer of the endpoint


def an_endpoint(host: str = "10.0.0.100") -> dict[str, Any]:
    """The status of a cluster with one LoadBalancer, whose address is known, or is to come."""
    endpoint = {
        "mode": "loadBalancer",
        "ipPool": "endpoints",
        "host": host,
        "joinHost": host,
        "namespace": "infra",
        "credential": CREDENTIAL,
        "harvester": "hv",
        "loadBalancers": [{"purpose": "api", "name": "lb"}],
    }
    return {"controlPlaneEndpoint": endpoint}


def a_balancer(address: str = "10.0.0.100", owner: str = "u", servers: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "lb", "namespace": "infra", "uid": "lb-1", "annotations": {CLUSTER_UID: owner}},
        "spec": {"backendServerSelector": {VM_NAME: list(servers)}},
        "status": {"address": address},
    }


def with_balancer(raw: dict[str, Any] | None, shown: Any = "same", **site: Any) -> Harvester:
    """A Harvester with this LoadBalancer; its watch shows the same, or something else."""
    found = Harvester(**site)
    if raw is not None:
        found.now[LOAD_BALANCER.ref("lb", "infra")] = raw
    found.balancers = ([read_balancer(raw)] if raw else []) if shown == "same" else shown
    return found


def test_the_namespace_of_its_load_balancer_is_one_of_its_places() -> None:
    place = Place(CREDENTIAL, "infra", "fleet-default")

    assert place in observe(with_balancer(a_balancer()), status=an_endpoint()).places
    assert place not in observe(with_balancer(a_balancer()), status=an_endpoint(), is_allowed=False).places


def test_a_load_balancer_that_is_as_it_should_be_is_not_read_again() -> None:
    site = with_balancer(a_balancer())

    assert observe(site, status=an_endpoint()).balancers == {"lb": read_balancer(a_balancer())}
    assert "lb" not in site.read


@pytest.mark.parametrize(
    "shown",
    [[], [read_balancer(a_balancer(servers=["gone"]))], [read_balancer(a_balancer(owner="another"))]],
    ids=["not there", "other servers", "another cluster's"],
)
def test_a_load_balancer_that_is_not_as_it_should_be_by_its_watch_is_read_again(shown: Any) -> None:
    site = with_balancer(a_balancer(), shown)

    assert observe(site, status=an_endpoint()).balancers == {"lb": read_balancer(a_balancer())}
    assert "lb" in site.read


def test_before_the_watch_is_open_a_load_balancer_is_read_where_the_cluster_waits_for_its_address() -> None:
    site = with_balancer(a_balancer(), None)
    assert observe(site, status=an_endpoint()).balancers is None
    assert "lb" not in site.read

    assert observe(site, status=an_endpoint(host="")).balancers == {"lb": read_balancer(a_balancer())}
    assert "lb" in site.read


def test_a_load_balancer_that_cannot_be_read_is_unknown_and_why() -> None:
    site = with_balancer(a_balancer(), None, error=Unreachable("refused"))
    found = observe(site, status=an_endpoint(host=""))

    assert (found.balancers, found.balancers_unknown) == (None, "refused")
    other = observe(with_balancer(a_balancer(), None, uid="hv-2"), status=an_endpoint(host=""))
    assert "leads to hv-2" in other.balancers_unknown


def test_the_load_balancers_of_a_cluster_that_is_deleted_go_after_its_machines() -> None:
    site = with_balancer(a_balancer())

    waiting = observe(site, deleted(), status=an_endpoint(), deletionTimestamp=GONE)
    assert (waiting.balancers, "lb" in site.read) == (None, False)
    assert observe(site, status=an_endpoint(), deletionTimestamp=GONE).balancers == {
        "lb": read_balancer(a_balancer())
    }
    assert "lb" in site.read


@pytest.mark.parametrize(("host", "may_come"), [("10.0.0.100", False), ("", True)])
def test_a_load_balancer_that_an_earlier_process_requested_may_come_until_its_address_is_known(
    host: str, may_come: bool
) -> None:
    found = observe(with_balancer(a_balancer()), status=an_endpoint(host))
    assert found.balancers_may_be_made_until == (NOON + LATEST if may_come else None)

    process = ProcessState()
    process.unanswered.on_unanswered(key_of_balancers("u"), timedelta(minutes=1))
    late = observe(with_balancer(a_balancer()), status=an_endpoint(host), process=process)
    assert late.balancers_may_be_made_until == NOON + timedelta(minutes=1) + LATEST


# -- the guest


@dataclass
class Silent(Guest):
    """A guest that does not answer any more."""

    def observe(self) -> GuestState:
        return GuestState("unreachable", "refused", self.nodes)


def test_of_a_guest_that_does_not_answer_the_nodes_are_known_and_none_is_ready() -> None:
    (node,) = (one.node for one in observe(Harvester(presence="present"), kept(), guest=a_guest()).machines)
    assert node is not None
    assert node.ready

    silent = Silent(a_guest().nodes)
    (node,) = (one.node for one in observe(Harvester(presence="present"), kept(), guest=silent).machines)
    assert node == replace(a_guest().nodes[0], ready=False, ready_message="refused")


def test_a_node_of_another_name_or_of_another_machine_is_not_its_node() -> None:
    for node in (
        Node("beside", uid="node", machine_uid=UID, ready=True),
        Node(NAME, uid="node", machine_uid="another", ready=True),
    ):
        (machine,) = observe(Harvester(presence="present"), kept(), guest=Guest((node,))).machines
        assert machine.node is None

    recorded = kept(status={"nodeRef": {"name": NAME, "uid": "node"}})
    unlabelled = Guest((Node(NAME, uid="node", ready=True),))
    (machine,) = observe(Harvester(presence="present"), recorded, guest=unlabelled).machines
    assert machine.node is not None


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, True),
        ({"status": {"guestUID": "g"}}, False),
        ({"is_new": True}, False),
        ({"guest": Silent(())}, False),
        ({"at": timedelta(seconds=-599)}, False),
        ({"at": timedelta(seconds=-600)}, True),
    ],
)
def test_the_uid_of_a_guest_is_asked_for_until_it_is_known_every_ten_minutes(
    given: dict[str, Any], asked: bool
) -> None:
    given = {"guest": a_guest(), **given}
    process = ProcessState()
    if (at := given.pop("at", None)) is not None:
        process.guest_uid_requested["u"] = at

    assert observe(Harvester(presence="present"), kept(), process=process, **given).needs_guest_uid is asked


def test_the_server_in_the_kubeconfig_for_people_is_known_until_that_is_to_be_renewed() -> None:
    def found(renew: str, owner: str = "u") -> str:
        data = {"server": "https://10.0.0.1:6443", "renew-after": renew, "endpoint": "", "endpoint-ca": ""}
        secret = SecretData("fleet-default", "prod-kubeconfig", owner, data=data)
        return observe(Harvester(), guest=a_guest(), secret=secret).guest.published_server

    assert found("2026-01-01T12:00:01Z") == "https://10.0.0.1:6443"
    assert (found("2026-01-01T12:00:00Z"), found("2026-01-01T12:00:01Z", "another")) == ("", "")


GIVEN = {"rke": {"machineGlobalConfig": {"cloud-provider-config": "secret://theirs:config"}}}


@pytest.mark.parametrize(
    ("allowed", "data", "state"),
    [
        (("fleet-default",), {"credential": "text"}, "ready"),
        (("fleet-default",), {"credential": " "}, "missing"),
        (("elsewhere",), {"credential": "text"}, "refused"),
    ],
)
def test_the_credential_that_its_user_gives_a_guest_is_used_where_its_secret_allows_that(
    allowed: Iterable[str], data: dict[str, str], state: str
) -> None:
    secret = SecretData("theirs", "config", allowed_namespaces=frozenset(allowed), data=data)
    found = observe(Harvester(), secret=secret, **GIVEN).guest_credential

    assert found.state == state
    assert ("credential Secret theirs/config" in found.because) == (state == "refused")
    assert found.credential is None or found.credential.kubeconfig == "text"


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ([], ""),
        ([{"type": "Ready", "status": "True", "message": "it serves"}], ""),
        ([{"type": "Ready", "status": "False", "message": "no backend"}], "no backend"),
        ([{"type": "Other", "status": "False", "message": "x"}], ""),
    ],
)
def test_a_load_balancer_that_is_not_ready_says_why(conditions: list[Any], problem: str) -> None:
    raw = a_balancer(servers=["s1", "s2"])
    found = read_balancer({**raw, "status": {**raw["status"], "conditions": conditions}})

    assert (found.problem, found.servers, found.address) == (problem, ("s1", "s2"), "10.0.0.100")


@pytest.mark.parametrize(
    ("recorded", "has_begun"),
    [
        ({}, False),
        ({"initServer": {"uid": "u-1"}}, True),
        ({"initialized": True}, True),
        ({"guestServiceAccount": {"namespace": "n", "serviceAccount": "s", "credential": "c"}}, True),
        (an_endpoint(""), True),
        ({"controlPlaneEndpoint": {"mode": "address", "host": "10.0.0.9"}}, False),
    ],
)
def test_a_cluster_has_begun_when_anything_of_it_may_be_on_harvester(
    recorded: dict[str, Any], has_begun: bool
) -> None:
    assert observe(with_balancer(None), is_new=True, status=recorded).has_begun is has_begun


def test_a_machine_that_was_requested_is_something_of_its_cluster() -> None:
    assert not observe(Harvester(), kept(driver_config=None), is_new=True).has_begun
    assert observe(Harvester(), kept(), is_new=True).has_begun


def test_before_its_credential_was_probed_a_new_cluster_awaits_that_and_nothing_is_checked() -> None:
    site = Harvester()
    found = observe(site, is_new=True, is_probed=False)
    assert (found.awaits_probe, found.preflight, site.checked) == (True, None, [])

    found = observe(site, is_new=True)
    assert (found.awaits_probe, found.preflight is not None) == (False, True)
    assert not observe(Harvester(), is_probed=False).awaits_probe, "one that runs waits for no preflight"


def test_every_machine_is_checked_that_would_be_made_with_a_credential_that_works() -> None:
    site = Harvester()
    observe(site, is_new=True, quantity=3)
    assert len(site.checked) == 3

    site = Harvester()
    observe(site, is_new=True, quantity=3, failure=CredentialError("401", "renew it"))
    assert site.checked == []
