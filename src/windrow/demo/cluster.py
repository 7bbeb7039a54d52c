"""One cluster of the demo: reading and waiting for its objects in the management API, on Harvester and in the guest.

Results are read from Harvester and from the guest; the management API is asked only whether the manager is done.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from windrow.app.network import Connect
from windrow.app.preload.buckets import ObjectStores
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.names import NODE_MACHINE
from windrow.core.clock import Clock
from windrow.demo.report import Report
from windrow.demo.waiting import Objects, wait_for
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested
from windrow.kubernetes.resources import NODE, SECRET, ApiResource, ObjectRef

T = TypeVar("T")
HARVESTER = "harvester"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One entry of a Cluster's spec.rkeConfig.machinePools."""

    index: int
    name: str
    quantity: int
    etcd: bool
    control_plane: bool
    worker: bool

    @property
    def is_worker_only(self) -> bool:
        return self.worker and not self.etcd and not self.control_plane


def read_pools(cluster: Mapping[str, Any]) -> list[PoolSpec]:
    raws = nested(cluster, "spec", "rkeConfig", "machinePools", default=[])
    return [
        PoolSpec(
            index,
            str(raw.get("name")),
            int(raw.get("quantity", 1)),
            bool(raw.get("etcdRole")),
            bool(raw.get("controlPlaneRole")),
            bool(raw.get("workerRole")),
        )
        for index, raw in enumerate(raws)
    ]


def is_ready(raw: Mapping[str, Any] | None) -> bool:
    """Whether the object exists and its Ready condition is True."""
    return is_true(nested(raw, "status", "conditions"), "Ready")


def nodes_by_machine(nodes: Iterable[Raw]) -> dict[str, Raw]:
    """Nodes by the uid of their Machine."""
    return {labels_of(raw).get(NODE_MACHINE, ""): raw for raw in nodes}


class ClusterRefused(Exception):
    """The manager refuses the Cluster. `problems` are those of its Ready condition, `message; hint` each."""

    def __init__(self, name: str, problems: str) -> None:
        super().__init__(f"Cluster {name} is refused: {problems}")
        self.name, self.problems = name, problems


@dataclass(frozen=True)
class DemoCluster:
    """One cluster, and clients for its objects. `timeout` bounds every wait, `object_stores` are those of the site."""

    namespace: str
    name: str
    harvester: Client
    manager: Client
    connect: Connect
    clock: Clock
    report: Report
    timeout: timedelta = timedelta(minutes=5)
    object_stores: ObjectStores | None = None

    @property
    def ref(self) -> ObjectRef:
        return CLUSTER.ref(self.name, self.namespace)

    async def get_cluster(self) -> Raw:
        return await self.manager.get(self.ref)

    async def has_cloud_provider(self) -> bool:
        """Whether the manifest asks for Harvester's cloud provider."""
        return read_cluster(await self.get_cluster(), ()).cluster.cloud_provider == HARVESTER

    async def has_ipv4(self) -> bool:
        """Whether the manifest asks for a network of pods with IPv4."""
        return 4 in read_cluster(await self.get_cluster(), ()).cluster.families

    async def list_pools(self) -> list[PoolSpec]:
        return read_pools(await self.get_cluster())

    async def list_machines(self, pool: str = "") -> list[Raw]:
        """The cluster's Machines, oldest first."""
        found = [raw for raw in await self.manager.list(MACHINE, self.namespace) if self.owns(raw)]
        found = [raw for raw in found if not pool or raw["spec"]["pool"] == pool]
        return sorted(found, key=lambda raw: (raw["metadata"]["creationTimestamp"], name_of(raw)))

    def owns(self, machine: Mapping[str, Any]) -> bool:
        return bool(nested(machine, "spec", "clusterName") == self.name)

    async def get_vm(self, machine: Mapping[str, Any]) -> Raw:
        """The machine's VM, which has the machine's name."""
        found = [raw for raw in await self.harvester.list(VM) if name_of(raw) == machine["metadata"]["name"]]
        return found[0]

    async def guest_kubeconfig(self) -> str:
        """The kubeconfig that the manager published for users."""
        secret = await self.manager.get(SECRET.ref(f"{self.name}-kubeconfig", self.namespace))
        return b64decode(secret["data"]["value"]).decode()

    async def guest_client(self) -> Client:
        """The guest API, through the published kubeconfig."""
        return Client(self.connect(parse_kubeconfig(await self.guest_kubeconfig())))

    async def list_nodes(self) -> list[Raw]:
        return await (await self.guest_client()).list(NODE)

    async def wait_for_settled(self, *, without: str = "") -> list[Raw]:
        """The Machines, once every pool has its quantity, all are Ready, none is being deleted and the Cluster is Ready.

        `without` names a Machine that must be gone. Raises WaitTimedOut.
        """
        counts = {pool.name: pool.quantity for pool in await self.list_pools()}

        def all_ready(objects: Objects) -> list[Raw] | None:
            mine = [raw for raw in objects.values() if self.owns(raw)]
            if any(is_deleting(raw) or name_of(raw) == without or not is_ready(raw) for raw in mine):
                return None
            found = {name: sum(raw["spec"]["pool"] == name for raw in mine) for name in counts}
            return mine if found == counts else None

        what = f"every Machine of {self.ref} to be Ready"
        machines = await self.wait_on(self.manager, MACHINE, all_ready, what, self.namespace)
        await self.wait_for_ready()
        return machines

    async def wait_for_ready(self, kind: ApiResource = CLUSTER, name: str = "") -> Raw:
        """The object, or the Cluster, once its Ready condition is True. Raises WaitTimedOut."""
        ref = kind.ref(name or self.name, self.namespace)

        def find_ready(objects: Objects) -> Raw | None:
            raw = objects.get((ref.namespace, ref.name))
            return raw if is_ready(raw) else None

        return await self.wait_on(self.manager, kind, find_ready, f"{ref} to be Ready", ref.namespace)

    async def wait_for_ready_or_refused(self) -> None:
        """Return once the Cluster is Ready. Raises ClusterRefused as soon as its status says so, and WaitTimedOut."""

        def find_result(objects: Objects) -> Raw | None:
            raw = objects.get((self.namespace, self.name))
            if raw is None or is_ready(raw):
                return raw
            observed = nested(raw, "status", "observedGeneration") == raw["metadata"].get("generation")
            return raw if observed and nested(raw, "status", "phase") == "Refused" else None

        what = f"{self.ref} to be Ready"
        raw = await self.wait_on(self.manager, CLUSTER, find_result, what, self.namespace)
        if not is_ready(raw):
            ready = find_condition(nested(raw, "status", "conditions", default=()), "Ready")
            problems = (ready.message if ready else "") or "no reason in its status"
            raise ClusterRefused(f"{self.namespace}/{self.name}", problems)

    async def wait_for_deletion(self) -> None:
        """Return once the Cluster is gone. Raises WaitTimedOut."""
        key = (self.namespace, self.name)
        what = f"{self.ref} to be gone"
        await self.wait_on(self.manager, CLUSTER, lambda objects: key not in objects, what, self.namespace)

    async def wait_on(
        self,
        client: Client,
        kind: ApiResource,
        predicate: Callable[[Objects], T | None],
        what: str,
        namespace: str = "",
    ) -> T:
        """The first true result of `predicate` over the objects of `kind`. Raises WaitTimedOut."""
        return await wait_for(
            client.transport,
            kind,
            predicate,
            what=what,
            clock=self.clock,
            namespace=namespace,
            within=self.timeout,
        )
