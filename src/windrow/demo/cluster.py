"""The demo's stage: one cluster seen from three sides, and the questions that acts ask of it.

Facts are read from Harvester and from the guest itself wherever they can be had there; the manager's own word is
used only to know when it believes to be done.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from windrow.app.network import Connect
from windrow.app.waiting import Objects, wait_for
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import NODE_MACHINE
from windrow.core.clock import Clock
from windrow.demo.report import Report
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested
from windrow.kubernetes.resources import NODE, SECRET, ApiResource

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What a Cluster asks of one pool."""

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


def nodes_by_machine(nodes: Iterable[Raw]) -> dict[str, Raw]:
    """Nodes by the uid of their Machine."""
    return {labels_of(raw).get(NODE_MACHINE, ""): raw for raw in nodes}


@dataclass(frozen=True)
class DemoCluster:
    """One cluster, and the clients that look at it. `patience` bounds every wait."""

    namespace: str
    name: str
    harvester: Client
    manager: Client
    connect: Connect
    clock: Clock
    report: Report
    timeout: timedelta = timedelta(minutes=5)

    async def get_cluster(self) -> Raw:
        return await self.manager.get(CLUSTER.ref(self.name, self.namespace))

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
        """The machine's VM; it bears the machine's name."""
        found = [raw for raw in await self.harvester.list(VM) if name_of(raw) == machine["metadata"]["name"]]
        return found[0]

    async def guest_kubeconfig(self) -> str:
        """The kubeconfig that the manager published for people."""
        secret = await self.manager.get(SECRET.ref(f"{self.name}-kubeconfig", self.namespace))
        return b64decode(secret["data"]["value"]).decode()

    async def guest_client(self) -> Client:
        """The guest API, as the published kubeconfig reaches it."""
        return Client(self.connect(parse_kubeconfig(await self.guest_kubeconfig())))

    async def list_nodes(self) -> list[Raw]:
        return await (await self.guest_client()).list(NODE)

    async def wait_for_settled(self, *, without: str = "", within: timedelta | None = None) -> list[Raw]:
        """The Machines, once every pool has its count, all are Ready, none is leaving and the cluster is Ready.

        `without` names a machine that must be gone. Raises NotSeen.
        """
        counts = {pool.name: pool.quantity for pool in await self.list_pools()}

        def all_ready(world: Objects) -> list[Raw] | None:
            mine = [raw for raw in world.values() if self.owns(raw)]
            if any(is_deleting(raw) or name_of(raw) == without for raw in mine):
                return None
            ready = [raw for raw in mine if is_true(nested(raw, "status", "conditions"), "Ready")]
            found = {name: sum(raw["spec"]["pool"] == name for raw in ready) for name in counts}
            return mine if found == counts and len(ready) == len(mine) else None

        machines = await self._wait_on_manager(
            MACHINE, all_ready, f"every machine of {self.name} to be Ready", within
        )
        await self.wait_for_ready(within)
        return machines

    async def wait_for_ready(self, within: timedelta | None = None) -> Raw:
        """The Cluster, once its Ready condition holds. Raises NotSeen."""
        return await self._wait_for_ready_condition(
            CLUSTER, self.name, f"cluster {self.name} to be Ready", within
        )

    async def wait_for_machine(self, name: str) -> Raw:
        """The Machine, once its Ready condition holds. Raises NotSeen."""
        return await self._wait_for_ready_condition(MACHINE, name, f"{name} to be Ready again")

    async def _wait_for_ready_condition(
        self, kind: ApiResource, name: str, what: str, within: timedelta | None = None
    ) -> Raw:
        def find_ready(world: Objects) -> Raw | None:
            raw = world.get((self.namespace, name))
            return raw if raw is not None and is_true(nested(raw, "status", "conditions"), "Ready") else None

        return await self._wait_on_manager(kind, find_ready, what, within)

    async def wait_for_deletion(self) -> None:
        """Return once the Cluster is gone. Raises NotSeen."""

        def is_gone(world: Objects) -> bool | None:
            return None if (self.namespace, self.name) in world else True

        await self._wait_on_manager(CLUSTER, is_gone, f"cluster {self.name} to be gone")

    async def _wait_on_manager(
        self,
        kind: ApiResource,
        predicate: Callable[[Objects], T | None],
        what: str,
        within: timedelta | None = None,
    ) -> T:
        return await wait_for(
            self.manager.transport,
            kind,
            predicate,
            what=what,
            clock=self.clock,
            namespace=self.namespace,
            within=within or self.timeout,
        )
