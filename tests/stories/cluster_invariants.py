"""What must be true of the world around a cluster whenever it has come to rest, whatever happened before.

Each function looks at Harvester, the guest and the management API as their administrator does, never through the
manager, and returns what is wrong as sentences; an empty list is a clean bill.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterable

from tests.support.simulation import Simulation

from windrow.apiserver.loopback import LoopbackClient
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, IP_ADDRESS, MACHINE
from windrow.demo.cluster import NODE_MACHINE, DemoCluster
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.supervisor import ApiHandler
from windrow.emulator.kit.inventory import Item, inventory
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import EVENT, NODE, SECRET

CLUSTER_UID = "windrow.io/cluster-uid"
MACHINE_UID = "windrow.io/machine-uid"


class Founded:
    """Every guest cluster that ever answered on the network: a second one is a second, empty cluster."""

    def __init__(self, sim: Simulation) -> None:
        self._network = sim.harvester.network
        self._seen: dict[str, GuestCluster] = {}
        self._network.on_change(self._note)

    def _note(self, address: str, port: int) -> None:
        door = self._network.find(address, port)
        if isinstance(door, ApiHandler):
            self._seen[door.cluster.uid] = door.cluster

    def all(self) -> list[GuestCluster]:
        return list(self._seen.values())


async def find_faults(
    sim: Simulation, stage: DemoCluster, before: Iterable[Item], founded: Founded
) -> list[str]:
    """Everything that is wrong with a cluster that lives and is at rest."""
    machines = await stage.list_machines()
    clusters = founded.all()
    faults = [] if len(clusters) == 1 else [f"{len(clusters)} guest clusters were founded"]
    faults += _wrong_counts(await stage.get_cluster(), machines)
    faults += await _strays_on_harvester(sim, stage, machines, frozenset(before))
    faults += await _doubled_vms(sim, machines)
    faults += await _secrets_left(sim, machines)
    for guest in clusters:
        faults += await _guest_faults(guest.client(), guest, machines)
    faults += await _strays_at_manager(sim, {stage.name}, machines)
    return faults


async def find_remains(sim: Simulation, before: Iterable[Item], kept: frozenset[str]) -> list[str]:
    """Everything that a deleted cluster left behind. `kept` are the Secrets that its user brought."""
    after = await inventory(sim.harvester.api)
    faults = [f"left on Harvester: {item}" for item in sorted(after - frozenset(before))]
    faults += [f"taken from Harvester: {item}" for item in sorted(frozenset(before) - after)]
    for kind in (CLUSTER, MACHINE, SECRET, IP_ADDRESS):
        left = [f"{namespace_of(raw)}/{name_of(raw)}" for raw in await sim.management_client.list(kind)]
        faults += [f"left at the manager: {kind.kind} {name}" for name in left if name not in kept]
    doors = [address for address in sim.harvester.network.listeners() if address[0] != sim.harvester.vip]
    return faults + [f"still answers on the network: {door}" for door in doors]


async def find_claim_faults(sim: Simulation, machines: list[Raw], each: int) -> list[str]:
    """Every machine has claimed so many addresses and shows them; no claim is of another, and none is there twice."""
    claims = await sim.management_client.list(IP_ADDRESS)
    places = Counter((raw["spec"]["network"], raw["spec"]["address"]) for raw in claims)
    faults = [
        f"address {address} of {net} is claimed {n} times" for (net, address), n in places.items() if n > 1
    ]
    owners = Counter(raw["spec"]["claimRef"]["uid"] for raw in claims)
    for machine in machines:
        if (found := owners.pop(uid_of(machine), 0)) != each:
            faults.append(f"machine {name_of(machine)} has claimed {found} addresses instead of {each}")
        own = {raw["spec"]["address"] for raw in claims if raw["spec"]["claimRef"]["uid"] == uid_of(machine)}
        if missing := own - set(nested(machine, "status", "addresses", default=())):
            faults.append(f"machine {name_of(machine)} does not show {sorted(missing)}, which it has claimed")
    return faults + [
        f"{count} addresses are claimed for {uid}, which is no machine" for uid, count in owners.items()
    ]


# -- records -------------------------------------------------------------------------------------------------------


def _wrong_counts(cluster: Raw, machines: list[Raw]) -> list[str]:
    wanted = {
        pool["name"]: pool["quantity"]
        for pool in nested(cluster, "spec", "rkeConfig", "machinePools", default=[])
    }
    found = Counter(machine["spec"]["pool"] for machine in machines)
    faults = [
        f"pool {pool} has {found[pool]} machines instead of {quantity}"
        for pool, quantity in wanted.items()
        if found[pool] != quantity
    ]
    unready = [name_of(raw) for raw in machines if not is_true(nested(raw, "status", "conditions"), "Ready")]
    return faults + [f"machine {name} is not Ready" for name in unready]


async def _strays_at_manager(sim: Simulation, clusters: set[str], machines: list[Raw]) -> list[str]:
    """Secrets that no cluster explains, and Machines that no cluster owns."""
    faults = []
    for raw in await sim.management_client.list(MACHINE):
        if nested(raw, "spec", "clusterName") not in clusters:
            faults.append(f"Machine {name_of(raw)} belongs to no cluster")
    for raw in await sim.management_client.list(SECRET):
        if annotations_of(raw).get(CLUSTER_UID) and name_of(raw) not in {
            f"{cluster}-{suffix}" for cluster in clusters for suffix in ("windrow-secrets", "kubeconfig")
        }:
            faults.append(f"Secret {name_of(raw)} belongs to no cluster")
    return faults


# -- Harvester -----------------------------------------------------------------------------------------------------


async def _strays_on_harvester(
    sim: Simulation, stage: DemoCluster, machines: list[Raw], before: frozenset[Item]
) -> list[str]:
    """Objects that no record names, and objects that a record names and that are not there."""
    named: set[Item] = set()
    for machine in machines:
        named |= _named_by(machine)
    account = nested(await stage.get_cluster(), "status", "guestServiceAccount")
    if account:
        namespace, name = account["namespace"], account["serviceAccount"]
        binding = f"{namespace}-{name}"
        named |= {
            ("ServiceAccount", namespace, name),
            ("Secret", namespace, f"{name}-token"),
            ("RoleBinding", namespace, binding),
            ("ClusterRoleBinding", "", binding),
        }
    named |= await _named_by_endpoint(sim, await stage.get_cluster())
    balancers = await sim.harvester_client.list(kinds.LOAD_BALANCER)
    # Those of the guest's services, which only the guest knows.
    named |= {
        ("LoadBalancer", namespace_of(raw), name_of(raw))
        for raw in balancers
        if labels_of(raw).get("cloudprovider.harvesterhci.io/cluster") == stage.name
    }
    found = await inventory(sim.harvester.api) - before
    return [f"no record names {item}" for item in sorted(found - named)] + [
        f"{item} is named by a record and not there" for item in sorted(named - found)
    ]


def _named_by(machine: Raw) -> set[Item]:
    memory = nested(machine, "status", "driverConfig", default={})
    namespace, name = memory.get("VMNamespace", "default"), name_of(machine)
    items = {
        ("VirtualMachine", namespace, name),
        ("VirtualMachineInstance", namespace, name),
        ("Secret", namespace, f"{name}-cloudinit"),
    }
    return items | {("PersistentVolumeClaim", namespace, claim) for claim in memory.get("WindrowClaims", ())}


async def _named_by_endpoint(sim: Simulation, cluster: Raw) -> set[Item]:
    """The load balancers before the servers, and the addresses that are theirs."""
    endpoint = nested(cluster, "status", "controlPlaneEndpoint", default={})
    namespace = endpoint.get("namespace", "")
    named = {("LoadBalancer", namespace, one["name"]) for one in endpoint.get("loadBalancers", ())}
    owners = {f"{namespace}/{name}" for _, _, name in named}
    for pool in await sim.harvester_client.list(kinds.IP_POOL):
        allocated = nested(pool, "status", "allocated", default={})
        named |= {("Address", name_of(pool), address) for address, of in allocated.items() if of in owners}
    return named


async def _doubled_vms(sim: Simulation, machines: list[Raw]) -> list[str]:
    vms = await sim.harvester_client.list(kinds.VM)
    count = Counter(annotations_of(vm).get(MACHINE_UID, "") for vm in vms)
    return [
        f"machine {name_of(raw)} has {count[uid_of(raw)]} VMs" for raw in machines if count[uid_of(raw)] != 1
    ]


async def _secrets_left(sim: Simulation, machines: list[Raw]) -> list[str]:
    """What a machine reads at its next start holds no token and no key."""
    faults = []
    for machine in machines:
        namespace = nested(machine, "status", "driverConfig", "VMNamespace", default="default")
        raw = await sim.harvester_client.find(SECRET.ref(f"{name_of(machine)}-cloudinit", namespace))
        text = b64decode(nested(raw, "data", "userdata", default="")).decode() if raw else ""
        for secret in ("PRIVATE KEY", "token:"):
            if secret in text:
                faults.append(f"the user data of {name_of(machine)} still holds a {secret}")
    return faults


# -- the guest -----------------------------------------------------------------------------------------------------


async def _guest_faults(line: LoopbackClient, guest: GuestCluster, machines: list[Raw]) -> list[str]:
    nodes = await line.list(NODE)
    faults = []
    by_machine = Counter(labels_of(node).get(NODE_MACHINE, "") for node in nodes)
    if by_machine != Counter(uid_of(machine) for machine in machines):
        faults.append(
            f"nodes {sorted(map(name_of, nodes))} do not match machines {sorted(map(name_of, machines))}"
        )
    for node in nodes:
        if not is_true(nested(node, "status", "conditions"), "Ready"):
            faults.append(f"node {name_of(node)} is not Ready")
        if nested(node, "spec", "unschedulable"):
            faults.append(f"node {name_of(node)} is cordoned")
        if not nested(node, "spec", "providerID"):
            faults.append(f"node {name_of(node)} has no providerID")
    servers = sorted(name_of(raw) for raw in machines if "etcd" in raw["spec"]["roles"])
    voters = sorted(member.node for member in guest.etcd.voters())
    if voters != servers or len(guest.etcd.by_name) != len(servers):
        faults.append(f"etcd members {sorted(guest.etcd.by_name)} are not the servers {servers}")
    passwords = {
        name_of(raw).partition(".node-password.")[0]
        for raw in await line.list(SECRET, "kube-system")
        if ".node-password." in name_of(raw)
    }
    if unknown := sorted(passwords - {name_of(node) for node in nodes}):
        faults.append(f"passwords of nodes that are gone: {unknown}")
    return faults


# -- events --------------------------------------------------------------------------------------------------------


async def count_events(sim: Simulation) -> Counter[tuple[str, str, str]]:
    """How often each thing was told: (object, reason, message)."""
    return Counter(
        (nested(raw, "involvedObject", "name"), raw["reason"], raw["message"])
        for raw in await sim.management_client.list(EVENT)
    )


__all__ = ["HARVESTER_CONFIG", "Founded", "count_events", "find_faults", "find_remains"]
