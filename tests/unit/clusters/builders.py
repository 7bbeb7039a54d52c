"""Clusters as a test needs them: everything is well unless the test says otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.bootstrap.node_config import WORKER_LABEL
from windrow.bootstrap.spec import CertKeyPair, ClusterSecrets, Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.status import RecordedStatus, ReservedName
from windrow.clusters.plan.actions import Action
from windrow.clusters.plan.diagnosis import Diagnosis, diagnose
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.state import (
    AddressScope,
    ClusterState,
    GuestCredentialState,
    GuestState,
    MachineState,
    Node,
)
from windrow.harvester.identity import is_certain
from windrow.kubernetes.conditions import Condition, set_condition
from windrow.machines.port import MachineStatus

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ALL_ROLES = frozenset(Role)
SERVER = frozenset({Role.ETCD, Role.CONTROL_PLANE})
WORKER = frozenset({Role.WORKER})
SIGNER = CertKeyPair("certificate", "key")
SECRETS = ClusterSecrets(SIGNER, SIGNER, SIGNER, SIGNER, SIGNER, "service", "server", "agent")
OPTIONS = {"vmNamespace": "default", "cpuCount": "2"}


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def a_pool(name: str = "workers", quantity: int = 1, roles: frozenset[Role] = WORKER, **rest: Any) -> Pool:
    rest.setdefault("options", OPTIONS)
    return Pool(
        name=name, quantity=quantity, roles=roles, config_name=f"nc-{name}", credential="ns:cc", **rest
    )


def a_cluster(*pools: Pool, **rest: Any) -> Cluster:
    rest.setdefault(
        "recorded",
        RecordedStatus(
            init_server_uid="uid-s1",
            init_server_name="s1",
            initialized=True,
            provisioned=True,
            version="v1.35.1+rke2r1",
            volumes=GuestVolumes(at=NOON),
        ),
    )
    version = rest.pop("version_wish", "v1.35.1+rke2r1")
    return Cluster(
        namespace="fleet-default",
        name="prod",
        uid="cluster-uid",
        generation=1,
        has_finalizer=True,
        version=version,
        credential="ns:cc",
        pools=pools,
        **rest,
    )


def a_newborn(*pools: Pool, **rest: Any) -> Cluster:
    """A cluster whose API has never answered."""
    return a_cluster(*pools, recorded=RecordedStatus(), **rest)


def a_machine(name: str, pool: Pool, **rest: Any) -> MachineState:
    """A machine of the pool that is well: VM running, node Ready, and complete."""
    record = Machine(
        namespace="fleet-default",
        name=name,
        uid=f"uid-{name}",
        cluster="prod",
        cluster_uid="cluster-uid",
        pool=pool.name,
        roles=pool.roles,
        created=NOON - minutes(60),
        provisioned=NOON - minutes(60),
        options=pool.options or {},
        credential="ns:cc",
        version="v1.35.1+rke2r1",
        join_server="https://10.0.0.1:9345",
        driver_config={"MachineName": name, "WindrowVMUID": f"vm-{name}"},
        node=name,
        conditions=(condition("BootstrapDataScrubbed", "True"), condition("Joined", "True")),
    )
    sighting = MachineStatus(
        f"uid-{name}",
        name,
        "present",
        f"vm-{name}",
        "running",
        (f"10.0.0.{_number(name)}",),
        "host-1",
        True,
        True,
    )
    node = Node(
        name,
        uid=f"node-{name}",
        machine_uid=f"uid-{name}",
        ready=True,
        provider_id=f"harvester://vm-{name}",
        addresses=sighting.addresses,
        etcd_voter=True if Role.ETCD in pool.roles else None,
        labels=frozenset({WORKER_LABEL} if Role.WORKER in pool.roles else ()),
        applied_revision="1",
    )
    return replace(MachineState(record, sighting, node), **rest)


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 1)


def condition(type: str, status: Any, since: datetime = NOON) -> dict[str, Any]:
    return set_condition((), Condition(type, status), since)[0]


def some(prefix: str, count: int, pool: Pool) -> list[MachineState]:
    return [a_machine(f"{prefix}{number}", pool) for number in range(1, count + 1)]


def record_of(machine: MachineState, **changes: Any) -> MachineState:
    """The machine with another record; `created` is its VM's creation, too, unless `provisioned` is another."""
    if "created" in changes:
        changes.setdefault("provisioned", changes["created"])
    return replace(machine, record=replace(machine.record, **changes))


def sighted(machine: MachineState, **changes: Any) -> MachineState:
    assert machine.vm is not None
    return replace(machine, vm=replace(machine.vm, **changes))


def unready(machine: MachineState, since: datetime | None = None) -> MachineState:
    """Its node is not Ready; we have known since `since`, or learn it only now."""
    assert machine.node is not None
    machine = replace(
        machine, node=replace(machine.node, ready=False, ready_message="kubelet stopped posting")
    )
    if since is None:
        return machine
    return record_of(machine, conditions=(*machine.record.conditions, condition("Ready", "False", since)))


def missing(machine: MachineState) -> MachineState:
    """Its VM is gone from Harvester, and its node is not Ready any more."""
    gone = unready(machine) if machine.node else machine
    return replace(gone, vm=MachineStatus(machine.record.uid, machine.name, "missing"))


def unknown(machine: MachineState, because: str = "401") -> MachineState:
    return replace(machine, vm=MachineStatus(machine.record.uid, machine.name, "unknown", because=because))


def stopped(machine: MachineState) -> MachineState:
    return sighted(unready(machine), state="stopped", addresses=())


def leaving(machine: MachineState, since: datetime = NOON) -> MachineState:
    return record_of(machine, deletion_timestamp=since)


def nodeless(machine: MachineState) -> MachineState:
    """Ordered and running, but never seen as a node."""
    return replace(record_of(machine, node="", conditions=(), created=NOON - minutes(1)), node=None)


def unordered(machine: MachineState) -> MachineState:
    return replace(record_of(nodeless(machine), driver_config=None), vm=None)


def with_reserved_names(cluster: Cluster) -> Cluster:
    """Names are reserved for all machines that its pools may lack."""
    names = (
        ReservedName(pool.name, f"{pool.name}-new{n}") for pool in cluster.pools for n in range(pool.quantity)
    )
    return replace(cluster, recorded=replace(cluster.recorded, creating=tuple(names)))


# A digest of the server through which the Harvester of `look` is reached.
SERVER_OF = "5e7f"


def look(cluster: Cluster, machines: Iterable[MachineState] = (), **rest: Any) -> ClusterState:
    if rest.pop("reserved", True):
        cluster = with_reserved_names(cluster)
    rest.setdefault("guest", GuestState("reachable", published_server="https://10.0.0.1:6443"))
    rest.setdefault("secrets", SECRETS)
    rest.setdefault("guest_credential", GuestCredentialState("unneeded"))
    state = ClusterState(now=rest.pop("now", NOON), cluster=cluster, machines=tuple(machines), **rest)
    if "address_scope" in rest or not is_certain(state.harvester_uid):
        return state
    return replace(state, address_scope=AddressScope(state.harvester_uid, frozenset({SERVER_OF}), SERVER_OF))


def diagnoses_of(state: ClusterState, *machines: MachineState) -> dict[str, Diagnosis]:
    return {machine.name: diagnose(machine, state) for machine in machines}


def silent(because: str = "connection refused") -> GuestState:
    return GuestState("unreachable", because)


def planned(cluster: Cluster, machines: Iterable[MachineState] = (), **rest: Any) -> Plan:
    return plan_cluster(look(cluster, machines, **rest))


def of_kind(plan: Plan, *kinds: type[Action]) -> list[Action]:
    return [action for action in plan.actions if isinstance(action, kinds)]


def subjects(plan: Plan, kind: type[Action]) -> list[str]:
    return [action.subject for action in plan.actions if isinstance(action, kind)]


def held(plan: Plan) -> dict[str, str]:
    return {held.disruption.machine: held.because for held in plan.held}
