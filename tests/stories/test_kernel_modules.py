"""What a machine's kernel lacks: told on its Machine before anything needs it, and no longer once the image has it."""

from __future__ import annotations

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, machines_of, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.emulator.host.images import MISSING_MODULES
from windrow.emulator.kinds import IMAGE
from windrow.harvester.resources import VM_ACTIONS
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import ObjectRef

CONDITION = "MacvlanAvailable"


async def macvlan(sim: Simulation, ref: ObjectRef) -> Condition:
    """The condition of the cluster's one Machine."""
    (machine,) = await machines_of(sim, ref)
    found = find_condition(machine["status"]["conditions"], CONDITION)
    assert found is not None
    return found


def test_a_machine_whose_kernel_lacks_macvlan_says_so_until_it_has_it() -> None:
    async def scenario() -> None:
        documents = a_cluster(a_pool("all", 1, ALL))
        async with simulation(seed=5) as sim:
            await stock(sim, documents)
            image = IMAGE.ref("jammy", "default")
            await sim.harvester_client.patch(
                image, {"metadata": {"annotations": {MISSING_MODULES: "macvlan"}}}
            )
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            before = await macvlan(sim, ref)
            assert (before.status, before.reason) == ("False", "ModuleMissing")
            (node,) = await stage.list_nodes()
            assert f"Node {node['metadata']['name']} has no module macvlan" in before.message
            assert "kernel-default-base" in before.message

            await sim.harvester_client.patch(image, {"metadata": {"annotations": {MISSING_MODULES: None}}})
            vm = VM_ACTIONS.ref(node["metadata"]["name"], "default")
            await sim.harvester_client.call(put_subresource(vm, "restart"))
            await sim.advance(minutes=3)
            after = await macvlan(sim, ref)
            assert (after.status, after.reason) == ("True", "ModuleAvailable")

    run_driven(scenario())
