"""The nodes of a whole guest cluster, cared for by the cloud provider that runs in it. Nothing is simulated but machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.clock import run_driven
from tests.support.endpoints import slice_of_one_pod
from tests.support.simulation import simulation

from windrow.emulator import kinds
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import NODE, SERVICE

from .cluster_invariants import Founded
from .cluster_rig import a_cluster, a_pool, post, stock
from .service_rig import CLUSTER, NETWORK_OF, PROVIDER

ZONE, ZONE_BETA = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"


class Orchard:
    """A cluster that stands: its guest, and the Harvester below."""

    def __init__(self, sim: Any, guest: Any) -> None:
        self.sim, self.guest, self.host = sim, guest, sim.harvester.api.local()

    async def nodes(self) -> list[Any]:
        return list(await self.guest.list(NODE))

    async def addresses(self) -> list[str]:
        found = [nested(raw, "status", "addresses", default=[]) for raw in await self.nodes()]
        return [f"{one['type']} {one['address']}" for many in found for one in many]

    async def vmi(self, name: str) -> Any:
        (found,) = [raw for raw in await self.host.list(kinds.VMI) if name_of(raw) == name]
        return found


def run_story(story: Callable[[Orchard], Awaitable[Any]], *, machines: int = 1) -> Any:
    async def whole() -> Any:
        async with simulation(seed=1) as sim:
            founded = Founded(sim)
            pools = [a_pool("all", 1, "etcd control-plane worker")]
            if machines > 1:
                pools.append(a_pool("more", machines - 1, "worker"))
            documents = a_cluster(*pools, name=CLUSTER)
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name).wait_for_ready()
            [cluster] = founded.all()
            return await story(Orchard(sim, cluster.client("user", ("system:masters",))))

    return run_driven(whole())


def test_each_node_is_its_vm_and_has_the_zone_of_its_host() -> None:
    async def story(orchard: Orchard) -> list[tuple[Any, ...]]:
        seen = []
        for node in await orchard.nodes():
            vmi = await orchard.vmi(name_of(node))
            vm = await orchard.host.get(kinds.VM.ref(name_of(node), "default"))
            seen.append(
                (
                    node["spec"]["providerID"] == f"harvester://{uid_of(vm)}",
                    labels_of(node)[ZONE] == annotations_of(vmi)[ZONE] == labels_of(node)[ZONE_BETA],
                    node["status"]["nodeInfo"]["systemUUID"] == vmi["spec"]["domain"]["firmware"]["uuid"],
                )
            )
        return seen

    assert run_story(story, machines=2) == [(True, True, True)] * 2


def test_labels_of_the_host_that_change_or_go_are_followed() -> None:
    async def story(orchard: Orchard) -> list[tuple[str | None, str | None]]:
        (node,) = await orchard.nodes()
        host = (await orchard.vmi(name_of(node)))["status"]["nodeName"]
        seen = []
        for zone in ("cellar", None, "attic"):
            await orchard.host.patch(NODE.ref(host), {"metadata": {"labels": {ZONE: zone}}})
            await orchard.sim.advance(seconds=120)
            labels = labels_of((await orchard.nodes())[0])
            seen.append((labels.get(ZONE), labels.get(ZONE_BETA)))
        taints = [one["key"] for one in nested((await orchard.nodes())[0], "spec", "taints", default=[])]
        assert not [one for one in taints if "cloudprovider" in one]
        return seen

    assert run_story(story) == [("cellar", "cellar"), (None, None), ("attic", "attic")]


def test_the_address_of_a_service_is_in_the_report_of_the_vm_and_not_at_the_node() -> None:
    async def story(orchard: Orchard) -> tuple[bool, list[str], list[str]]:
        before = await orchard.addresses()
        near = {"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.200", "rangeEnd": "192.168.50.200"}
        scope = {"project": "*", "namespace": "*", "guestCluster": CLUSTER}
        selector = {"network": "default/vlan-50", "scope": [scope]}
        pool = new_object(kinds.IP_POOL, "lan", spec={"ranges": [near], "selector": selector})
        await orchard.host.create(kinds.IP_POOL, pool)
        said = {f"{PROVIDER}/ipam": "pool", NETWORK_OF: "default/vlan-50"}
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await orchard.guest.create(
            SERVICE, new_object(SERVICE, "web", "default", annotations=said, spec=spec)
        )
        await orchard.guest.create(ENDPOINT_SLICE, slice_of_one_pod("web", port=""))
        await orchard.sim.advance(seconds=120)
        (node,) = await orchard.nodes()
        reported = nested(await orchard.vmi(name_of(node)), "status", "interfaces", 0, "ipAddresses")
        return "192.168.50.200" in reported, before, await orchard.addresses()

    is_reported, before, after = run_story(story)

    assert is_reported
    assert after == before
