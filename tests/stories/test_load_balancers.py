"""Load balancers and address pools of the emulated Harvester, as a client sees them (reference 02 §4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import NOON, run_driven
from tests.support.endpoints import slice_of_one_pod

from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import ClusterSecrets
from windrow.core import pki
from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import AdmissionDenied, Conflict, Invalid
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import NAMESPACE, NODE, SERVICE, ObjectRef

from .harvester_rig import a_harvester, boot, eventually, is_gone, order, vm_ref, vmi_ref
from .test_guests_on_harvester import an_intent, stand_up, until_ready

GROUP = "loadbalancer.harvesterhci.io"
NODE_DRIVER = "docker-machine-driver-harvester"
GUEST = {"guestcluster.harvesterhci.io/name": "mine"}


def a_pool(
    name: str = "pool",
    *,
    ranges: list[Raw] | None = None,
    namespace: str = "*",
    cluster: str = "mine",
    network: str = "",
    priority: int = 0,
    project: str = "*",
) -> Raw:
    """A pool for guest cluster `mine`, of three addresses by default."""
    three = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.12"}]
    scope = [{"project": project, "namespace": namespace, "guestCluster": cluster}]
    selector = {"network": network, "scope": scope, "priority": priority}
    return new_object(kinds.IP_POOL, name, spec={"ranges": ranges or three, "selector": selector})


def a_balancer(name: str = "web", *, ipam: str = "pool", cluster: str = "mine", **spec: Any) -> Raw:
    """What the cloud provider of guest cluster `mine` posts for a service."""
    return new_object(
        kinds.LOAD_BALANCER,
        name,
        "default",
        labels={"cloudprovider.harvesterhci.io/cluster": cluster},
        annotations={f"{GROUP}/cluster": cluster},
        spec={"ipam": ipam, "workloadType": "cluster", **spec},
    )


def lb_ref(name: str = "web") -> ObjectRef:
    return kinds.LOAD_BALANCER.ref(name, "default")


def pool_ref(name: str = "pool") -> ObjectRef:
    return kinds.IP_POOL.ref(name)


async def make(harvester: Harvester, *objects: Raw) -> None:
    for raw in objects:
        kind = {"IPPool": kinds.IP_POOL, "LoadBalancer": kinds.LOAD_BALANCER}[raw["kind"]]
        await harvester.api.local().create(kind, raw)


def ready(raw: Raw | None) -> bool:
    found = find_condition(nested(raw, "status", "conditions"), "Ready")
    return found is not None and found.status == "True"


def says(words: str) -> Callable[[Raw | None], bool]:
    """Whether it is not Ready for this reason."""

    def holds(raw: Raw | None) -> bool:
        found = find_condition(nested(raw, "status", "conditions"), "Ready")
        return found is not None and found.status == "False" and words in found.message

    return holds


def address(raw: Raw | None) -> str:
    return str(nested(raw, "status", "allocatedAddress", "ip", default=""))


async def ready_balancer(harvester: Harvester, name: str = "web") -> Raw:
    found = await eventually(harvester, lb_ref(name), ready)
    assert found is not None
    return found


# --- addresses ----------------------------------------------------------------------------------------------------


def test_a_load_balancer_gets_the_first_address_of_its_pool_which_records_it():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer())
            found = await ready_balancer(harvester)
            pool = await harvester.api.local().get(pool_ref())

            assert found["status"]["allocatedAddress"] == {
                "ipPool": "pool",
                "ip": "10.1.0.10",
                "mask": "255.255.255.0",
                "gateway": "10.1.0.1",
            }
            assert "address" not in found["status"]
            assert found["metadata"]["finalizers"] == ["wrangler.cattle.io/harvester-lb-controller"]
            status = {key: value for key, value in pool["status"].items() if key != "conditions"}
            assert status == {
                "total": 3,
                "available": 2,
                "lastAllocated": "10.1.0.10",
                "allocated": {"10.1.0.10": "default/web"},
            }
            assert labels_of(pool) == {f"{GROUP}/vid": "0", f"{GROUP}/global-ip-pool": "false"}

    run_driven(story())


def test_an_address_is_there_within_a_tenth_of_a_second_and_not_at_once():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool())
            await eventually(harvester, pool_ref(), ready)
            before = harvester.clock.now()
            await make(harvester, a_balancer())
            assert not ready(await harvester.api.local().find(lb_ref()))
            for _ in range(100):
                if ready(await harvester.api.local().find(lb_ref())):
                    break
                await harvester.clock.sleep(0.01)

            assert 0.05 <= (harvester.clock.now() - before).total_seconds() <= 0.15

    run_driven(story())


def test_an_immediate_second_update_conflicts_with_the_controllers_writes():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool())
            await eventually(harvester, pool_ref(), ready)
            line = harvester.api.local()
            made = await line.create(kinds.LOAD_BALANCER, a_balancer())
            await ready_balancer(harvester)
            with pytest.raises(Conflict):
                await line.update(kinds.LOAD_BALANCER, made)

    run_driven(story())


def test_addresses_are_allocated_round_robin():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer("a"), a_balancer("b"))
            first = address(await ready_balancer(harvester, "a"))
            await ready_balancer(harvester, "b")
            await harvester.api.local().delete(lb_ref("a"))
            await eventually(harvester, lb_ref("a"), is_gone)
            await make(harvester, a_balancer("c"))
            third = address(await ready_balancer(harvester, "c"))
            await make(harvester, a_balancer("d"))

            assert third == "10.1.0.12"
            assert address(await ready_balancer(harvester, "d")) == first

    run_driven(story())


def test_a_load_balancer_that_comes_back_gets_its_old_address():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer("a"), a_balancer("b"))
            await ready_balancer(harvester, "b")
            await harvester.api.local().delete(lb_ref("a"))
            await eventually(harvester, lb_ref("a"), is_gone)
            pool = await harvester.api.local().get(pool_ref())
            assert pool["status"]["allocatedHistory"] == {"10.1.0.10": "default/a"}
            assert pool["status"]["available"] == 2

            await make(harvester, a_balancer("a"))
            assert address(await ready_balancer(harvester, "a")) == "10.1.0.10"

    run_driven(story())


def test_a_full_pool_is_a_message_and_a_widened_one_is_used_by_the_next_retry():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), *(a_balancer(name) for name in "abc"))
            for name in "abc":
                await ready_balancer(harvester, name)
            await make(harvester, a_balancer("d"))
            text = "fail to get ip from pool pool, error: no IP addresses available in range set: 10.1.0.10-10.1.0.12"
            await eventually(harvester, lb_ref("d"), says(text))
            await harvester.clock.sleep(120)
            wider = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.20"}]
            await harvester.api.local().patch(pool_ref(), {"spec": {"ranges": wider}})
            before = harvester.clock.now()
            found = await ready_balancer(harvester, "d")

            assert address(found) == "10.1.0.13"
            # A freed or new address triggers no reconcile: only the next retry finds it.
            assert 1 < (harvester.clock.now() - before).total_seconds() <= 31

    run_driven(story())


def test_without_a_pool_the_requirement_is_named_and_a_new_pool_is_found_within_a_second():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_balancer())
            text = "no matched IPPool with requirement &{Network: Project: Namespace:default Cluster:mine}"
            await eventually(harvester, lb_ref(), says(text))
            await harvester.clock.sleep(300)
            await make(harvester, a_pool())
            before = harvester.clock.now()
            await ready_balancer(harvester)

            assert (harvester.clock.now() - before).total_seconds() <= 2

    run_driven(story())


def test_a_named_pool_that_is_not_there_has_no_allocator():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_balancer(ipPool="nowhere"))
            await eventually(harvester, lb_ref(), says("fail to get allocator nowhere"))

    run_driven(story())


def test_another_pool_named_on_a_living_load_balancer_moves_it():
    async def story():
        async with a_harvester() as harvester:
            other = a_pool("other", ranges=[{"subnet": "10.2.0.0/30"}], cluster="unused")
            await make(harvester, a_pool(), other, a_balancer())
            await ready_balancer(harvester)
            await harvester.api.local().patch(lb_ref(), {"spec": {"ipPool": "other"}})
            found = await eventually(harvester, lb_ref(), lambda raw: address(raw).startswith("10.2."))
            assert found is not None

            assert found["status"]["allocatedAddress"]["ip"] == "10.2.0.2"  # .1 is the gateway
            assert "allocated" not in (await harvester.api.local().get(pool_ref()))["status"]

    run_driven(story())


def test_a_load_balancer_without_its_address_in_its_status_gets_it_again():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer())
            await ready_balancer(harvester)
            await harvester.api.local().patch(lb_ref(), {"status": {"allocatedAddress": None}})
            await harvester.clock.sleep(60)
            found = await harvester.api.local().get(lb_ref())
            return address(found), says("10.1.0.10 has been allocated to default/web, duplicate")(found)

    assert run_driven(story()) == ("10.1.0.10", False)


def test_without_ipam_an_address_is_allocated_and_never_released():
    async def story():
        async with a_harvester() as harvester:
            raw = a_balancer()
            del raw["spec"]["ipam"]
            await make(harvester, a_pool(), raw)
            await ready_balancer(harvester)
            await harvester.api.local().delete(lb_ref())
            await eventually(harvester, lb_ref(), is_gone)
            pool = await harvester.api.local().get(pool_ref())

            assert pool["status"]["allocated"] == {"10.1.0.10": "default/web"}
            # An operator releases it by annotation, which is removed in any case.
            wish = {"metadata": {"annotations": {f"{GROUP}/manuallyReleaseIP": "10.1.0.10: default/web"}}}
            await harvester.api.local().patch(pool_ref(), wish)
            pool = await eventually(harvester, pool_ref(), lambda raw: not annotations_of(raw or {}))
            assert pool is not None
            assert "allocated" not in pool["status"]
            assert pool["status"]["available"] == 3

    run_driven(story())


def test_a_dhcp_address_is_the_guest_clusters_to_request():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_balancer(ipam="dhcp"))
            found = await ready_balancer(harvester)

            assert found["status"]["allocatedAddress"] == {"ip": "0.0.0.0"}

    run_driven(story())


def test_the_address_that_the_cloud_provider_writes_stays():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer())
            found = await ready_balancer(harvester)
            found["status"]["address"] = "10.1.0.10"
            await harvester.api.local().update(kinds.LOAD_BALANCER, found)
            await harvester.clock.sleep(60)

            assert (await harvester.api.local().get(lb_ref()))["status"]["address"] == "10.1.0.10"

    run_driven(story())


# --- refusals -----------------------------------------------------------------------------------------------------

HEAD = (
    'admission webhook "validator.harvester-system.harvester-load-balancer-webhook" denied the request: '
    "Internal error occurred: "
)


async def refusal(harvester: Harvester, raw: Raw) -> str:
    with pytest.raises(AdmissionDenied) as caught:
        await make(harvester, raw)
    assert caught.value.status == 500
    return caught.value.message


def test_neither_ipam_nor_workload_type_can_be_changed():
    async def story(version: str):
        async with a_harvester(version=version) as harvester:
            await make(harvester, a_pool(), a_balancer())
            await ready_balancer(harvester)
            with pytest.raises(AdmissionDenied) as caught:
                await harvester.api.local().patch(lb_ref(), {"spec": {"ipam": "dhcp"}})
            refused = caught.value.message
            listener = {"port": 1, "backendPort": 1, "protocol": "TCP"}
            change = {"spec": {"workloadType": "vm", "listeners": [listener]}}
            with pytest.raises(AdmissionDenied, match="can't change the WorkloadType from cluster to vm"):
                await harvester.api.local().patch(lb_ref(), change)
            return refused

    why = "update loadbalancer default/web failed: can't change the IPAM from pool to dhcp"
    assert run_driven(story("v1.6.0")) == HEAD + why


def test_a_pool_in_use_cannot_be_deleted_and_an_unused_one_can():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer())
            await ready_balancer(harvester)
            with pytest.raises(AdmissionDenied) as caught:
                await harvester.api.local().delete(pool_ref())
            assert caught.value.message == HEAD + "can't delete pool before releasing all the allocated IP"
            await harvester.api.local().delete(lb_ref())
            await eventually(harvester, lb_ref(), is_gone)
            await harvester.api.local().delete(pool_ref())
            await eventually(harvester, pool_ref(), is_gone)

    run_driven(story())


def test_a_pool_cannot_shrink_below_what_it_gave_away():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool(), a_balancer())
            await ready_balancer(harvester)
            less = [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.11", "rangeEnd": "10.1.0.12"}]
            with pytest.raises(AdmissionDenied) as caught:
                await harvester.api.local().patch(pool_ref(), {"spec": {"ranges": less}})
            why = "can't update IP pool pool because allocated IP 10.1.0.10 is excluded"
            assert caught.value.message == HEAD + why

    run_driven(story())


def test_pools_may_not_overlap_even_when_posted_in_one_breath():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, a_pool())
            return await refusal(harvester, a_pool("other", cluster="other"))

    assert run_driven(story()).endswith("overlap with other pools")


def test_the_kinds_refuse_unknown_modes_by_schema():
    async def story():
        async with a_harvester() as harvester:
            with pytest.raises(Invalid) as caught:
                await make(harvester, a_balancer(ipam="static"))
            return caught.value.message

    assert 'Unsupported value: "static": supported values: "pool", "dhcp"' in run_driven(story())


# --- guest clusters -----------------------------------------------------------------------------------------------


def test_the_network_of_the_machines_decides_and_since_1_9_the_annotation():
    async def story(version: str):
        async with a_harvester(version=version) as harvester:
            await boot(harvester, name="mine-1", labels=GUEST)
            raw = a_balancer()
            raw["metadata"]["annotations"][f"{GROUP}/network"] = "default/other"
            await make(harvester, raw)
            found = await harvester.api.local().get(lb_ref())
            return annotations_of(found)[f"{GROUP}/network"]

    assert run_driven(story("v1.8.2")) == "default/vlan50"
    assert run_driven(story("v1.9.0")) == "default/other"


def test_the_project_of_the_namespace_is_required():
    async def story():
        async with a_harvester() as harvester:
            change = {"metadata": {"annotations": {"field.cattle.io/projectId": "c-1:p-2"}}}
            await harvester.api.local().patch(NAMESPACE.ref("default"), change)
            await make(harvester, a_balancer())
            found = await harvester.api.local().get(lb_ref())
            return annotations_of(found)[f"{GROUP}/project"]

    assert run_driven(story()) == "c-1/p-2"


async def remove_for_good(harvester: Harvester, name: str) -> None:
    """What a cluster's manager does to its last machines."""
    change = {"metadata": {"annotations": {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}}}
    await harvester.api.local().patch(vm_ref(name), change)


def test_load_balancers_are_deleted_with_the_vms_of_their_cluster_since_1_8():
    async def story(version: str):
        async with a_harvester(version=version) as harvester:
            await boot(harvester, name="mine-1", labels=GUEST)
            await make(harvester, a_balancer("ours", ipam="dhcp"))
            await make(harvester, a_balancer("theirs", ipam="dhcp", cluster="theirs"))
            await ready_balancer(harvester, "theirs")
            await remove_for_good(harvester, "mine-1")
            await harvester.api.local().delete(vm_ref("mine-1"), propagation="Foreground")
            await eventually(harvester, vm_ref("mine-1"), is_gone)
            await harvester.clock.sleep(10)
            return sorted(map(name_of, await harvester.api.local().list(kinds.LOAD_BALANCER)))

    assert run_driven(story("v1.8.0")) == ["theirs"]
    assert run_driven(story("v1.7.2")) == ["ours", "theirs"]


def test_a_cluster_that_is_being_removed_gets_no_new_load_balancer():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester, name="mine-1", labels=GUEST)
            await remove_for_good(harvester, "mine-1")
            await harvester.clock.sleep(1)
            return await refusal(harvester, a_balancer())

    assert run_driven(story()) == HEAD + (
        "create loadbalancer default/web failed with guest cluster check: "
        "the vm default/mine-1 shows guest cluster mine is being removed"
    )


# --- load balancers of machines -----------------------------------------------------------------------------------


def of_machines(name: str = "front", **spec: Any) -> Raw:
    listener = {"name": "api", "port": 6443, "backendPort": 8443, "protocol": "TCP"}
    given = {"ipam": "pool", "listeners": [listener], "backendServerSelector": {"role": ["server"]}}
    return new_object(kinds.LOAD_BALANCER, name, "default", spec={**given, **spec})


class Answering:
    """A service on a machine."""

    def __init__(self, words: str) -> None:
        self.words = words

    def identity(self) -> None:
        return None

    async def send(self, request: Request, peer: Peer) -> Any:
        return self.words

    def stream(self, request: Request, peer: Peer) -> Any:
        raise NotImplementedError


def everybody(**rest: Any) -> Raw:
    return a_pool(cluster="*", namespace="default", project="*", **rest)


async def ask(harvester: Harvester, place: str, port: int = 6443) -> Any:
    door = harvester.network.find(place, port)
    return await door.send(Request("GET", "/"), Peer()) if door is not None else None


def test_a_load_balancer_of_machines_has_its_address_before_it_has_machines():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, everybody(), of_machines())
            found = await eventually(harvester, lb_ref("front"), says("no running backend servers"))
            assert found is not None
            assert found["status"]["address"] == "10.1.0.10"
            assert harvester.network.find("10.1.0.10", 6443) is None

            vmi = await boot(harvester, name="m-1", labels={"role": "server"})
            found = await ready_balancer(harvester, "front")
            machine = str(nested(vmi, "status", "interfaces", 0, "ipAddress"))
            assert found["status"]["backendServers"] == [machine]
            assert harvester.network.find("10.1.0.10", 6443) is None  # no listener there yet
            harvester.network.listen(machine, 8443, Answering("m-1"))  # type: ignore[arg-type]
            await harvester.clock.sleep(0.1)
            assert await ask(harvester, "10.1.0.10") == "m-1"

            await harvester.api.local().delete(lb_ref("front"))
            await eventually(harvester, SERVICE.ref("front", "default"), is_gone)
            await harvester.clock.sleep(1)
            assert harvester.network.find("10.1.0.10", 6443) is None

    run_driven(story())


def test_a_probed_machine_is_a_backend_only_while_it_accepts_connections():
    async def story():
        async with a_harvester() as harvester:
            check = {"port": 8443, "successThreshold": 1, "failureThreshold": 2, "periodSeconds": 1}
            await make(harvester, everybody(), of_machines(healthCheck=check))
            vmi = await boot(harvester, name="m-1", labels={"role": "server"})
            machine = str(nested(vmi, "status", "interfaces", 0, "ipAddress"))
            text = "running backend servers are not probed as healthy total:1, healthy:0"
            await eventually(harvester, lb_ref("front"), says(text))
            assert harvester.network.find("10.1.0.10", 6443) is None

            harvester.network.listen(machine, 8443, Answering("m-1"))  # type: ignore[arg-type]
            await ready_balancer(harvester, "front")
            await harvester.clock.sleep(0.5)
            assert await ask(harvester, "10.1.0.10") == "m-1"

            harvester.network.close(machine, 8443)
            await eventually(harvester, lb_ref("front"), says(text))
            await harvester.clock.sleep(0.5)
            assert harvester.network.find("10.1.0.10", 6443) is None

    run_driven(story())


def test_a_restarted_machine_is_a_backend_as_another_instance():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, everybody(), of_machines())
            vmi = await boot(harvester, name="m-1", labels={"role": "server"})
            await ready_balancer(harvester, "front")
            machine = str(nested(vmi, "status", "interfaces", 0, "ipAddress"))
            harvester.network.listen(machine, 8443, Answering("m-1"))  # type: ignore[arg-type]
            await harvester.clock.sleep(0.1)
            assert await ask(harvester, "10.1.0.10") == "m-1"

            await order(harvester, "stop", "m-1")
            await eventually(harvester, lb_ref("front"), says("no running backend servers"))
            await harvester.clock.sleep(0.1)
            assert await ask(harvester, "10.1.0.10") is None
            found = await harvester.api.local().get(ENDPOINT_SLICE.ref("front", "default"))
            assert [one["addresses"] for one in found["endpoints"]] == [["10.52.0.255"]]

            await eventually(harvester, vmi_ref("m-1"), is_gone)
            await order(harvester, "start", "m-1")
            await eventually(harvester, lb_ref("front"), says("running backend servers have no IP"))
            await ready_balancer(harvester, "front")
            await harvester.clock.sleep(0.1)
            assert await ask(harvester, "10.1.0.10") == "m-1"

    run_driven(story())


def test_a_load_balancer_of_machines_may_have_its_address_by_dhcp():
    async def story():
        async with a_harvester() as harvester:
            await make(harvester, of_machines(ipam="dhcp"), of_machines("second", ipam="dhcp"))
            await eventually(harvester, lb_ref("front"), says("service is waiting for external IP"))
            for name in ("front", "second"):
                await eventually(harvester, lb_ref(name), says("no running backend servers"))
            found = [await harvester.api.local().get(lb_ref(name)) for name in ("front", "second")]
            return [raw["status"]["address"] for raw in found]

    first, second = run_driven(story())
    assert first != second
    assert first.startswith("192.168.100.")


def test_a_service_without_listeners_is_refused():
    async def story():
        async with a_harvester() as harvester:
            return await refusal(harvester, of_machines(listeners=[]))

    why = "create loadbalancer default/front failed: the loadbalancer needs to have at least one listener"
    assert run_driven(story()) == HEAD + why


# --- guests -------------------------------------------------------------------------------------------------------


WITH_AGENT = "#cloud-config\npackages: [qemu-guest-agent]\nruncmd:\n- systemctl start qemu-guest-agent\n"


class Guest:
    """A guest cluster of one machine, whose cloud provider is this test."""

    def __init__(self, harvester: Harvester, secrets: ClusterSecrets, place: str) -> None:
        self.harvester = harvester
        self.place = place
        certificate, _ = pki.issue_certificate(
            secrets.client_ca.certificate,
            secrets.client_ca.key,
            common_name="admin",
            organizations=("system:masters",),
            client=True,
            now=NOON,
            lifetime=timedelta(days=1),
        )
        self.peer = Peer(certificate)

    async def send(self, request: Request) -> Any:
        door = self.harvester.network.find(self.place, 6443)
        assert door is not None
        reply = await door.send(request, self.peer)
        assert reply.status < 400, reply.body
        return loads(reply.body)

    async def serve(self, asked: str, name: str = "web") -> None:
        """A service with this annotation of the cloud provider, and one Ready pod."""
        annotations = {"kube-vip.io/loadbalancerIPs": asked}
        port = {"name": "http", "port": 80, "protocol": "TCP"}
        spec = {"type": "LoadBalancer", "ports": [port]}
        raw = new_object(SERVICE, name, "default", annotations=annotations, spec=spec)
        await self.send(requests.create(SERVICE, raw))
        await self.send(requests.create(ENDPOINT_SLICE, slice_of_one_pod(name)))

    async def shown(self, name: str = "web") -> str:
        """The address in the service's status, as soon as it is there; "" after two minutes."""
        for _ in range(240):
            raw = await self.send(requests.get(SERVICE.ref(name, "default")))
            if found := nested(raw, "status", "loadBalancer", "ingress", 0, "ip", default=""):
                return str(found)
            await self.harvester.clock.sleep(0.5)
        return ""

    async def pod_behind(self, address: str) -> str:
        door = self.harvester.network.find(address, 80)
        if door is None:
            return ""
        return str(loads((await door.send(Request("GET", "/"), Peer())).body)["pod"])


@asynccontextmanager
async def a_guest(**rest: Any) -> AsyncIterator[Guest]:
    async with a_harvester(machine=machine_factory(), **rest) as harvester:
        secrets = new_cluster_secrets(NOON)
        guest = Guest(harvester, secrets, await stand_up(harvester, an_intent(secrets, "one")))
        await until_ready(harvester, secrets, guest.place, {"one"})
        await guest.send(requests.merge_patch(NODE.ref("one"), {"spec": {"taints": None}}))
        yield guest


def test_an_address_of_a_pool_is_announced_in_the_guest_and_reaches_its_pod():
    async def story():
        async with a_guest() as guest:
            near = [
                {"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.200", "rangeEnd": "192.168.50.210"}
            ]
            scope = {"network": "default/vlan50", "ranges": near}
            raw = a_balancer()
            raw["metadata"]["annotations"][f"{GROUP}/cluster"] = "on"  # the machine is called "one"
            await make(guest.harvester, a_pool(cluster="on", **scope), raw)
            asked = address(await ready_balancer(guest.harvester))
            await guest.serve(asked)

            assert await guest.shown() == asked == "192.168.50.200"
            await guest.harvester.clock.sleep(1)
            assert await guest.pod_behind(asked) == "web-0"
            # The guest agent reports it as any other address (harvester#6751).
            await eventually(guest.harvester, vmi_ref("one"), has_second(asked))
            await order(guest.harvester, "stop", "one")
            await eventually(guest.harvester, vm_ref("one"), lambda vm: not nested(vm, "status", "ready"))
            assert await guest.pod_behind(asked) == ""

    run_driven(story())


def has_second(asked: str) -> Callable[[Raw | None], bool]:
    return lambda vmi: asked in nested(vmi, "status", "interfaces", 0, "ipAddresses", default=[])[1:]


def test_dhcp_addresses_come_from_the_machines_network_and_never_twice():
    async def story():
        async with a_guest() as guest:
            for name in ("a", "b", "c"):
                await guest.serve("0.0.0.0", name)
            given = [await guest.shown(name) for name in ("a", "b", "c")]
            await boot(guest.harvester, name="late", user_data=WITH_AGENT)
            server = guest.harvester.vlans.find_dhcp_server("default/vlan50")
            assert server is not None
            held = list(server.leases().values())

            assert all(one.startswith("192.168.50.") for one in given)
            assert set(given) < set(held)
            assert len(held) == len(set(held)) == 5

    run_driven(story())


def test_dhcp_leases_no_address_of_a_pool():
    async def story():
        async with a_harvester() as harvester:
            ranges = [
                {"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.2", "rangeEnd": "192.168.50.30"}
            ]
            await make(harvester, a_pool(ranges=ranges))
            await eventually(harvester, pool_ref(), ready)
            return str(nested(await boot(harvester), "status", "interfaces", 0, "ipAddress"))

    assert run_driven(story()) == "192.168.50.31"


def test_a_full_network_leases_no_address_of_a_service():
    async def story():
        async with a_guest() as guest:
            await guest.serve("0.0.0.0")
            given = await guest.shown()
            server = guest.harvester.vlans.find_dhcp_server("default/vlan50")
            assert server is not None
            others = iter(range(1000))
            while server.lease(f"52:54:00:00:{next(others):04x}") is not None:
                pass
            vmi = await boot(guest.harvester, name="late", user_data=WITH_AGENT)

            assert nested(vmi, "status", "interfaces", 0, "ipAddress") != given
            assert given in server.leases().values()

    run_driven(story())


def test_a_minimal_image_has_no_dhcp_for_services():
    async def story():
        async with a_guest() as guest:
            change = {"metadata": {"annotations": {"emulator.windrow.io/missing-modules": "macvlan"}}}
            await guest.harvester.api.local().patch(kinds.IMAGE.ref("jammy", "default"), change)
            await order(guest.harvester, "restart", "one")
            await guest.harvester.clock.sleep(300)
            await guest.serve("0.0.0.0")

            assert await guest.shown() == ""
            assert any("kernel module macvlan" in line for line in guest.harvester.console("default", "one"))

    run_driven(story())
