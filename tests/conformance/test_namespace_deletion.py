"""A real API server and controller manager delete a namespace with a Cluster in it: nothing stays, there or on Harvester."""

from __future__ import annotations

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.stories.cluster_rig import ALL, a_cluster, a_pool
from tests.support.simulation import VIP

from windrow.app.clock import SystemClock
from windrow.app.embedded import install_crds, make_manager
from windrow.app.emulate import preload_objects
from windrow.app.guest_programs import guest_programs
from windrow.app.loop import running
from windrow.app.network import in_process_connector
from windrow.app.preload import credential_secrets, read_preload
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.core.rng import Rng
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import NAMESPACE, SECRET

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]

TEAM = NAMESPACE.ref("team")
KINDS = {"Secret": SECRET, "HarvesterConfig": HARVESTER_CONFIG, "Cluster": CLUSTER}


async def test_a_namespace_with_a_cluster_and_its_credential_is_deleted_as_a_whole(
    managed_cluster: Cluster,
) -> None:
    clock, rng = SystemClock(), Rng(0)
    harvester = Harvester(clock, rng, time_scale=20.0, machine_factory=machine_factory(guest_programs()))
    documents = a_cluster(a_pool("all", 1, ALL), namespace="team", cloudCredentialSecretName="team:cc")
    async with HttpTransport(managed_cluster.access(), clock) as transport, running(harvester.run):
        api = Client(transport)
        await install_crds(api)
        await preload_objects(harvester, read_preload(documents))
        before = await inventory(harvester.api)
        await api.create(NAMESPACE, {"metadata": {"name": TEAM.name}})
        manager, backend = make_manager(transport, in_process_connector(harvester.network, clock), clock, rng)

        async def manage() -> None:
            async with backend.running():
                await manager.run()

        async with running(manage):
            for raw in [*credential_secrets(documents, harvester.admin_kubeconfig(VIP)), *documents]:
                await api.create(KINDS[raw["kind"]], raw)

            async def vm_is_running() -> bool:
                vms = await Client(harvester.api.local()).list(VM, "default")
                return [nested(vm, "status", "printableStatus") for vm in vms] == ["Running"]

            await eventually(vm_is_running, "a running VM")
            await api.delete(TEAM)

            async def namespace_is_gone() -> bool:
                return await api.find(TEAM) is None

            await eventually(namespace_is_gone, "the namespace gone")

    assert await inventory(harvester.api) == before
