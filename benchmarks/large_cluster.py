"""One cluster of many machines: what a reconcile costs as it grows, and how 300 machines come up.

Per machine a reconcile should cost the same in a cluster four times the size, in whatever state its machines are. Before
machines were indexed, and their readings and statuses kept while nothing changes: 100 machines booted in 24.5 s of CPU
and 25 in 2.5 s, so four times the machines cost ten times as much; 300 did not come up in 18 minutes of a busy machine.
Before the changes of a large Cluster were gathered, and the emulator read Nodes without copies: 75 machines 25 s, 150
machines 75 s; since then 14 s and 27 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from benchmarks import Figure
from windrow.app.preload import names_of, read_preload
from windrow.bootstrap.spec import CertKeyPair, ClusterSecrets, Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import ClusterState, GuestCredentialState, GuestState, MachineState, Node
from windrow.clusters.status import derive_cluster, derive_machine, find_wait
from windrow.demo.manifests import shipped
from windrow.emulator.host.nodes import HostSpec
from windrow.emulator.preload import VmNetwork
from windrow.harvester.resources import NETWORK
from windrow.kubernetes.objects import Raw, name_of
from windrow.machines.port import MachineStatus

SIZE, TIMES = 150, 4
MACHINES, SERVERS, HOSTS = 300, 3, 50
REPEATS = 3
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
JOIN_SERVER = "https://10.0.0.1:9345"
_SIGNER = CertKeyPair("certificate", "key")
_SECRETS = ClusterSecrets(*5 * (_SIGNER,), "service", "server", "agent")


def measure() -> Iterator[Figure]:
    for scene, change in SCENES.items():
        small, large = (_reconcile_s(change, size) for size in (SIZE, TIMES * SIZE))
        name = f"plan and status, {scene}"
        yield Figure(
            f"{name}, {TIMES * SIZE} machines", large, "s", TIMES * small, f"{SIZE} machines x {TIMES}"
        )
    quarter, _ = _come_up(MACHINES // TIMES)
    whole, simulated = _come_up(MACHINES)
    yield Figure(f"{MACHINES} machines, order to Ready", simulated, "s", 300, "3+3: reference 04 §9.2")
    source = f"{MACHINES // TIMES} machines x {TIMES}"
    yield Figure(f"{MACHINES} machines, CPU of all programs", whole, "s", TIMES * quarter, source)


# -- one plan and its statuses, of machines that are all in one state --------------------------------------------------


def _as_it_is(machine: MachineState) -> MachineState:
    return machine


def _booting(machine: MachineState) -> MachineState:
    record = replace(machine.record, node="", conditions=())
    return replace(machine, record=record, node=None, vm=_status_of(record, addresses=()))


def _unmade(machine: MachineState) -> MachineState:
    return replace(_booting(machine), record=replace(machine.record, node="", driver_config=None), vm=None)


def _vanished(machine: MachineState) -> MachineState:
    missing = MachineStatus(machine.record.uid, machine.name, "missing")
    return replace(machine, vm=missing, node=None)


SCENES: dict[str, Callable[[MachineState], MachineState]] = {
    "all Ready": _as_it_is,
    "workers boot": _booting,
    "workers are not made": _unmade,
    "VMs are gone": _vanished,
}


def _reconcile_s(change: Callable[[MachineState], MachineState], size: int) -> float:
    """Of the CPU of one plan with the statuses of all machines, the least of several."""
    spent = []
    for _ in range(REPEATS):
        state = _observed(change, size)
        begun = time.process_time()
        plan = plan_cluster(state)
        for machine in state.machines:
            derive_machine(machine, state, plan, {})
        derive_cluster(state, plan, find_wait(state, plan, {}))
        spent.append(time.process_time() - begun)
    return min(spent)


def _observed(change: Callable[[MachineState], MachineState], size: int) -> ClusterState:
    servers = Pool(
        "servers", SERVERS, frozenset({Role.ETCD, Role.CONTROL_PLANE}), options={}, credential="a:b"
    )
    workers = Pool("workers", size - SERVERS, options={}, credential="a:b")
    status = RecordedStatus(init_server_uid="uid-servers-0", initialized=True, version="v1.34.7+rke2r1")
    machines = (
        *(_a_machine(servers, number) for number in range(SERVERS)),
        *(change(_a_machine(workers, number)) for number in range(size - SERVERS)),
    )
    cluster = Cluster(
        "fleet-default",
        "orchard",
        uid="uid",
        has_finalizer=True,
        version=status.version,
        credential="a:b",
        pools=(servers, workers),
        recorded=status,
    )
    nodes = tuple(machine.node for machine in machines if machine.node is not None)
    return ClusterState(
        now=NOON,
        cluster=cluster,
        machines=machines,
        guest=GuestState("reachable", nodes=nodes),
        secrets=_SECRETS,
        guest_credential=GuestCredentialState("unneeded"),
    )


def _a_machine(pool: Pool, number: int) -> MachineState:
    name = f"{pool.name}-{number}"
    record = Machine(
        "fleet-default",
        name,
        f"uid-{name}",
        "orchard",
        "uid",
        pool.name,
        pool.roles,
        NOON - timedelta(hours=1),
        provisioned=NOON - timedelta(hours=1),
        options=pool.options or {},
        credential=pool.credential,
        version="v1.34.7+rke2r1",
        join_server=JOIN_SERVER,
        driver_config={"MachineName": name, "WindrowVMUID": f"vm-{name}"},
        node=name,
        conditions=(
            {"type": "Joined", "status": "True"},
            {"type": "BootstrapDataScrubbed", "status": "True"},
        ),
    )
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    node = Node(name, f"node-{name}", record.uid, True, addresses=(address,), applied_revision="1")
    return MachineState(record, _status_of(record, addresses=(address,)), node)


def _status_of(record: Machine, addresses: tuple[str, ...]) -> MachineStatus:
    return MachineStatus(
        record.uid, record.name, "present", f"vm-{record.name}", "running", addresses, "host-1", True
    )


# -- a cluster that comes up on the emulator ---------------------------------------------------------------------------


def _come_up(machines: int) -> tuple[float, float]:
    """Seconds of CPU, of Harvester and of all guests too; and seconds of the driven clock."""
    begun = time.process_time()
    simulated = run_driven(_bootstrap(machines))
    return time.process_time() - begun, simulated


async def _bootstrap(machines: int) -> float:
    documents, name = _order(machines)
    hosts = [HostSpec(f"host-{number}", cpu=64, memory="256Gi") for number in range(HOSTS)]
    async with simulation(hosts=hosts) as sim:
        await _widen_networks(sim, documents)
        await sim.apply(documents)
        begun = sim.clock.now()
        await sim.cluster(name).wait_for_settled()
        return (sim.clock.now() - begun).total_seconds()


def _order(machines: int) -> tuple[list[Raw], str]:
    documents = shipped()
    cluster = next(raw for raw in documents if raw["kind"] == "Cluster")
    pools = cluster["spec"]["rkeConfig"]["machinePools"]
    pools[0]["quantity"], pools[1]["quantity"] = SERVERS, machines - SERVERS
    return documents, name_of(cluster)


async def _widen_networks(sim: Simulation, documents: list[Raw]) -> None:
    """The /24 that a network has unless told otherwise leases 253 addresses."""
    networks = names_of(read_preload(documents), NETWORK)
    await sim.harvester.preload(networks=[VmNetwork(name, cidr="10.115.0.0/20") for name in networks])
