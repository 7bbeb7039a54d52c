"""Addresses of load balancer services in a guest cluster: which node announces them, and which pod is reached."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.json import loads
from windrow.core.formats.yaml import dump
from windrow.emulator.guest_cluster.distribution.helm_crds import HELM_CHART_CONFIG
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, ENDPOINTS
from windrow.kubernetes import requests
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import LEASE, NODE, SERVICE

from .test_cluster_reset import run
from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed

CREDENTIAL = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
CLOUD = {"cloud-provider-name": "harvester", "cloud-provider-config": CREDENTIAL}
Raw = dict[str, Any]
ADDRESSES = "kube-vip.io/loadbalancerIPs"
WEB = SERVICE.ref("web", "default")


class Rig:
    """A cluster whose cloud provider is this test: servers at 10.0.0.11 and up."""

    def __init__(self, testbed: MachineTestbed) -> None:
        self.testbed = testbed
        self.cluster = ClusterFixture()
        self.kubectl = Kubectl(testbed, self.cluster)

    async def start(self, *names: str, initialise: bool = True, **files: str) -> None:
        more = {**CLOUD, "files": {CREDENTIAL: "kubeconfig", **files}}
        for place, name in enumerate(names):
            document = self.cluster.server(name, **more) if place else self.cluster.first(name, **more)
            self.testbed.power_on(name, document)
            await self.testbed.wait_for(lambda name=name: self.is_ready(name))  # type: ignore[misc]
            if initialise:
                await self.initialise(name)

    async def is_ready(self, name: str) -> bool:
        return name in await self.kubectl.ready()

    async def initialise(self, name: str) -> None:
        """What a cloud provider does to a new node."""
        await self.kubectl.patch(NODE.ref(name), {"spec": {"taints": None}})

    async def create(self, kind: Any, raw: Raw) -> None:
        await self.kubectl.send(requests.create(kind, raw))

    async def serve(self, name: str = "web", address: str = "10.0.0.200", **spec: Any) -> None:
        """A service with one pod, and the annotation that a cloud provider writes."""
        await self.create(SERVICE, a_service(name, {ADDRESSES: address}, **spec))
        await self.create(ENDPOINT_SLICE, a_slice(name))

    async def shown(self, name: str = "web") -> list[str]:
        found = await self.kubectl.get(SERVICE.ref(name, "default"))
        return [one["ip"] for one in nested(found, "status", "loadBalancer", "ingress", default=[])]

    def ask(self, address: str = "10.0.0.200", port: int = 80) -> Callable[[], Any]:
        """A request that returns the pod's name; "" when the connection is refused."""

        async def pod() -> str:
            door = self.testbed.network.find(address, port)
            if door is None:
                return ""
            reply = await door.send(Request("GET", "/"), Peer(address="10.0.0.5"))
            assert reply.status == 200
            return str(loads(reply.body)["pod"])

        return pod


@asynccontextmanager
async def a_rig(*servers: str, **more: Any) -> AsyncIterator[Rig]:
    async with a_testbed() as testbed:
        rig = Rig(testbed)
        await rig.start(*servers, **more)
        yield rig


def a_service(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
    given = {"type": "LoadBalancer", "ports": [port], **spec}
    return new_object(SERVICE, name, "default", annotations=annotations or {}, spec=given)


def a_pod(name: str, *, ready: bool = True, node: str = "one") -> Raw:
    target = {"kind": "Pod", "name": name, "namespace": "default"}
    return {"addresses": ["10.42.0.7"], "conditions": {"ready": ready}, "nodeName": node, "targetRef": target}


def a_slice(service: str, *pods: Raw) -> Raw:
    return new_object(
        ENDPOINT_SLICE,
        f"{service}-abcde",
        "default",
        labels={"kubernetes.io/service-name": service},
        addressType="IPv4",
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
        endpoints=list(pods or (a_pod(f"{service}-0"),)),
    )


def change_slice(*pods: Raw) -> Raw:
    return {"endpoints": list(pods)}


SLICE = ENDPOINT_SLICE.ref("web-abcde", "default")


def test_an_annotated_service_is_announced_and_reaches_its_pod():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve()
            await rig.testbed.wait_for(rig.ask())
            found = await rig.kubectl.get(WEB)

            assert await rig.ask()() == "web-0"
            assert annotations_of(found)["kube-vip.io/vipHost"] == "one"
            port = {"port": 80, "protocol": "TCP"}
            assert found["status"]["loadBalancer"]["ingress"] == [
                {"ip": "10.0.0.200", "ipMode": "VIP", "ports": [port]}
            ]
            lease = await rig.kubectl.get(LEASE.ref("plndr-svcs-lock", "kube-system"))
            assert lease["spec"]["holderIdentity"] == "one"

    run_driven(scenario())


def test_without_an_annotation_a_service_stays_pending():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.create(SERVICE, a_service("web"))
            await rig.create(ENDPOINT_SLICE, a_slice("web"))
            await rig.testbed.sleep(120)

            assert await rig.shown() == []

    run_driven(scenario())


def test_ignored_services_and_those_of_another_class_are_left_alone():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            annotations = {ADDRESSES: "10.0.0.201", "kube-vip.io/ignore": "true"}
            await rig.create(SERVICE, a_service("ignored", annotations))
            await rig.serve("foreign", "10.0.0.202", loadBalancerClass="example.com/other")
            await rig.serve("own", "10.0.0.203", loadBalancerClass="kube-vip.io/kube-vip-class")
            await rig.serve("inner", "10.0.0.204", type="ClusterIP")
            await rig.testbed.sleep(60)

            assert [await rig.shown(name) for name in ("ignored", "foreign", "own", "inner")] == [
                [],
                [],
                ["10.0.0.203"],
                [],
            ]

    run_driven(scenario())


def test_before_its_node_is_initialised_kube_vip_does_not_run():
    async def scenario() -> None:
        async with a_rig("one", initialise=False) as rig:
            await rig.serve()
            await rig.testbed.sleep(120)
            assert await rig.shown() == []

            await rig.initialise("one")
            assert await rig.testbed.wait_for(rig.shown) <= 5

    run_driven(scenario())


def test_only_ready_pods_are_reached_and_none_means_refused():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve()
            await rig.testbed.wait_for(rig.ask())
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", ready=False), a_pod("web-1")))
            await rig.testbed.sleep(1)
            assert {await rig.ask()() for _ in range(4)} == {"web-1"}

            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0"), a_pod("web-1")))
            await rig.testbed.sleep(1)
            assert {await rig.ask()() for _ in range(4)} == {"web-0", "web-1"}

            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", ready=False)))
            await rig.testbed.sleep(1)
            assert await rig.ask()() == ""
            assert await rig.shown() == ["10.0.0.200"]  # the address stays, without a listener

    run_driven(scenario())


def test_endpoints_count_where_there_is_no_slice():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.create(SERVICE, a_service("web", {ADDRESSES: "10.0.0.200"}))
            target = {"kind": "Pod", "name": "old-0", "namespace": "default"}
            subset = {
                "addresses": [{"ip": "10.42.0.9", "targetRef": target}],
                "ports": [{"name": "http", "port": 8080}],
            }
            await rig.create(ENDPOINTS, new_object(ENDPOINTS, "web", "default", subsets=[subset]))
            await rig.testbed.wait_for(rig.ask())

            assert await rig.ask()() == "old-0"

    run_driven(scenario())


def test_local_traffic_policy_reaches_only_pods_of_the_node_that_has_the_address():
    async def scenario() -> None:
        async with a_rig("one", **with_values(BEFORE_1_2)) as rig:
            await rig.serve(externalTrafficPolicy="Local")
            await rig.testbed.wait_for(rig.ask())
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", node="elsewhere")))
            await rig.testbed.sleep(1)
            refused = await rig.ask()()
            await rig.kubectl.patch(WEB, {"spec": {"externalTrafficPolicy": "Cluster"}})
            await rig.testbed.sleep(1)

            assert (refused, await rig.ask()()) == ("", "web-0")

    run_driven(scenario())


def test_client_ip_affinity_reaches_the_same_pod():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve(sessionAffinity="ClientIP")
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0"), a_pod("web-1")))
            await rig.testbed.wait_for(rig.ask())

            assert len({await rig.ask()() for _ in range(6)}) == 1

    run_driven(scenario())


def test_an_address_is_moved_with_its_annotation_and_removed_with_its_service():
    async def scenario() -> None:
        async with a_rig("one", **with_values(BEFORE_1_2)) as rig:
            await rig.serve()
            await rig.testbed.wait_for(rig.ask())
            await rig.kubectl.patch(WEB, {"metadata": {"annotations": {ADDRESSES: "10.0.0.210"}}})
            await rig.testbed.wait_for(rig.ask("10.0.0.210"))
            assert await rig.shown() == ["10.0.0.210"]
            assert await rig.ask()() == ""

            await rig.kubectl.delete(WEB)
            await rig.testbed.sleep(1)
            assert await rig.ask("10.0.0.210")() == ""

    run_driven(scenario())


def test_two_services_share_an_address_by_their_ports_and_it_stays_with_the_second():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve()
            other = {"name": "http", "port": 81, "targetPort": 8080, "protocol": "TCP"}
            await rig.serve("second", ports=[other])
            await rig.testbed.wait_for(rig.ask(port=81))
            await rig.kubectl.delete(WEB)
            await rig.testbed.sleep(1)

            assert await rig.ask()() == ""
            assert await rig.ask(port=81)() == "second-0"

    run_driven(scenario())


def test_the_named_interface_has_to_be_there():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            annotations = {ADDRESSES: "10.0.0.200", "kube-vip.io/serviceInterface": "enp9s0"}
            await rig.create(SERVICE, a_service("web", annotations))
            await rig.create(ENDPOINT_SLICE, a_slice("web"))
            await rig.testbed.sleep(30)
            assert await rig.shown() == []
            assert "failed to get interface enp9s0" in rig.testbed.console("one")

            patch = {"metadata": {"annotations": {"kube-vip.io/serviceInterface": "enp1s0"}}}
            await rig.kubectl.patch(WEB, patch)
            await rig.testbed.wait_for(rig.shown)

    run_driven(scenario())


def test_an_address_of_another_network_is_in_the_status_and_unreachable():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve(address="172.16.0.9")
            await rig.testbed.wait_for(rig.shown)
            await rig.testbed.sleep(5)

            assert await rig.ask("172.16.0.9")() == ""
            assert "172.16.0.9 is outside of 10.0.0.0/24" in rig.testbed.console("one")

    run_driven(scenario())


# -- DHCP


def test_a_dhcp_address_is_leased_on_a_macvlan_and_released():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.testbed.sleep(5)
            await rig.serve(address="0.0.0.0")
            assert 2.9 <= await rig.testbed.wait_for(rig.shown) <= 4
            found = await rig.kubectl.get(WEB)
            given = (await rig.shown())[0]
            annotations = annotations_of(found)
            assert annotations["kube-vip.io/requestedIP"] == given
            assert rig.testbed.leases[annotations["kube-vip.io/hwaddr"]] == given
            assert await rig.ask(given)() == "web-0"

            await rig.kubectl.delete(WEB)
            await rig.testbed.sleep(1)
            assert given not in rig.testbed.leases.values()
            assert await rig.ask(given)() == ""

    run_driven(scenario())


def test_without_the_macvlan_module_a_dhcp_service_stays_pending_and_a_pool_service_does_not():
    async def scenario() -> None:
        async with a_rig("one", **{"/etc/modprobe.d/minimal.conf": "blacklist  macvlan\n"}) as rig:
            await rig.serve(address="0.0.0.0")
            await rig.serve("pooled", "10.0.0.201")
            await rig.testbed.sleep(60)

            assert (await rig.shown(), await rig.shown("pooled")) == ([], ["10.0.0.201"])
            assert "operation not supported (kernel module macvlan)" in rig.testbed.console("one")

    run_driven(scenario())


def test_without_a_dhcp_answer_nothing_happens_until_the_service_changes():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            rig.testbed.dhcp = False
            await rig.serve(address="0.0.0.0")
            await rig.testbed.sleep(60)
            rig.testbed.dhcp = True
            await rig.testbed.sleep(60)
            assert await rig.shown() == []

            await rig.kubectl.patch(WEB, {"metadata": {"labels": {"touched": "yes"}}})
            await rig.testbed.wait_for(rig.shown)

    run_driven(scenario())


def test_another_address_from_dhcp_moves_the_service_when_its_lease_is_renewed():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve(address="0.0.0.0")
            await rig.testbed.wait_for(rig.shown)
            first = (await rig.shown())[0]
            mac = annotations_of(await rig.kubectl.get(WEB))["kube-vip.io/hwaddr"]
            await rig.testbed.sleep(1800)
            assert await rig.shown() == [first]

            rig.testbed.leases[mac] = "10.0.0.99"
            await rig.testbed.sleep(1801)
            assert await rig.shown() == ["10.0.0.99"]
            assert annotations_of(await rig.kubectl.get(WEB))["kube-vip.io/requestedIP"] == "10.0.0.99"
            assert (await rig.ask(first)(), await rig.ask("10.0.0.99")()) == ("", "web-0")

    run_driven(scenario())


def test_the_address_of_a_service_of_another_type_stays_on_its_node_as_with_the_real_one():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve(address="0.0.0.0")
            await rig.testbed.wait_for(rig.shown)
            given = (await rig.shown())[0]
            await rig.kubectl.patch(WEB, {"spec": {"type": "ClusterIP"}})
            await rig.testbed.sleep(1)

            assert await rig.ask(given)() == "web-0"
            assert given in rig.testbed.leases.values()

    run_driven(scenario())


def test_a_chart_without_kube_vip_announces_nothing():
    manifest = "/var/lib/rancher/rke2/server/manifests/values.yaml"
    values = (
        "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\n"
        "metadata: {name: harvester-cloud-provider, namespace: kube-system}\n"
        "spec:\n  valuesContent: 'kube-vip: {enabled: false}'\n"
    )

    async def scenario() -> None:
        async with a_rig("one", **{manifest: values}) as rig:
            await rig.serve()
            await rig.testbed.sleep(60)

            assert await rig.shown() == []

    run_driven(scenario())


# -- leaders


def test_the_addresses_move_with_the_leader_and_dhcp_ones_stay_the_same():
    async def scenario() -> None:
        async with a_rig("one", "two", "three") as rig:
            await rig.serve()
            await rig.serve("leased", "0.0.0.0")
            await rig.testbed.wait_for(lambda: rig.shown("leased"))
            given = (await rig.shown("leased"))[0]
            for name in ("web", "leased"):
                there = change_slice(a_pod(f"{name}-0", node="three"))
                await rig.kubectl.patch(ENDPOINT_SLICE.ref(f"{name}-abcde", "default"), there)
            rig.kubectl.address = "10.0.0.13"

            await rig.testbed.cut_power("one")
            assert await rig.ask()() == ""
            spent = await rig.testbed.wait_for(rig.ask())
            await rig.testbed.wait_for(rig.ask(given))
            await rig.testbed.sleep(1)
            hosts = [
                annotations_of(await rig.kubectl.get(SERVICE.ref(name, "default")))["kube-vip.io/vipHost"]
                for name in ("web", "leased")
            ]

            assert 15 <= spent <= 19  # the lease runs out, then one service after the other
            assert hosts[0] in ("two", "three")
            assert hosts[0] == hosts[1]
            assert await rig.shown("leased") == [given]

    run_driven(scenario())


def test_without_a_majority_of_etcd_the_addresses_are_gone():
    async def scenario() -> None:
        async with a_rig("one", "two") as rig:
            await rig.serve()
            await rig.testbed.wait_for(rig.ask())
            leader = annotations_of(await rig.kubectl.get(WEB))["kube-vip.io/vipHost"]
            await rig.testbed.cut_power("two" if leader == "one" else "one")
            assert await rig.ask()() == "web-0"  # the lease has some seconds left
            await rig.testbed.sleep(14)
            lost = await rig.ask()()
            rig.testbed.power_on("two" if leader == "one" else "one")
            await rig.testbed.wait_for(rig.ask())

            assert lost == ""

    run_driven(scenario())


def test_connections_to_a_node_without_power_time_out_while_its_endpoint_is_ready():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            rig.testbed.power_on("four", rig.cluster.worker("four"))
            await rig.testbed.wait_for(lambda: rig.is_ready("four"))
            await rig.serve()
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", node="four")))
            await rig.testbed.wait_for(rig.ask())
            await rig.testbed.cut_power("four")
            with pytest.raises(OutcomeUnknown, match="timed out: its node is down"):
                await rig.ask()()

    run_driven(scenario())


def test_pods_answer_while_the_service_of_their_node_is_stopped():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            rig.testbed.power_on("four", rig.cluster.worker("four"))
            await rig.testbed.wait_for(lambda: rig.is_ready("four"))
            await rig.serve()
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", node="four")))
            await rig.testbed.wait_for(rig.ask())

            assert await run(rig.testbed, "four", "systemctl stop rke2-agent.service") == (0, "")
            await rig.testbed.sleep(60)

            assert "four" not in await rig.kubectl.ready()
            assert await rig.ask()() == "web-0"
            await rig.testbed.cut_power("four")
            with pytest.raises(OutcomeUnknown, match="timed out: its node is down"):
                await rig.ask()()

    run_driven(scenario())


# -- the chart's values

MANIFEST = "/var/lib/rancher/rke2/server/manifests/values.yaml"


def with_values(values: Raw) -> dict[str, str]:
    """The file that gives kube-vip these values."""
    return {MANIFEST: dump(chart_config(values))}


def chart_config(values: Raw) -> Raw:
    spec = {"valuesContent": dump({"kube-vip": values})}
    return new_object(HELM_CHART_CONFIG, "harvester-cloud-provider", "kube-system", spec=spec)


EACH = {"env": {"svc_election": "true"}}
# Later ones announce no other address for a Service, unless there is an election for each.
BEFORE_1_2 = {"image": {"tag": "v1.1.2"}}
ON_WORKERS = {"affinity": None}


async def hosts_of(rig: Rig, *names: str) -> list[str]:
    found = [await rig.kubectl.get(SERVICE.ref(name, "default")) for name in names]
    return [annotations_of(one).get("kube-vip.io/vipHost", "") for one in found]


def test_with_an_election_for_each_service_the_addresses_are_spread_and_only_the_dead_nodes_move():
    names = [f"web-{number}" for number in range(9)]

    async def scenario() -> None:
        async with a_rig("one", "two", "three", **with_values(EACH)) as rig:
            rig.kubectl.address = "10.0.0.12"
            await rig.testbed.sleep(5)  # all three run it
            for number, name in enumerate(names):
                await rig.serve(name, f"10.0.0.{200 + number}")
                await rig.kubectl.patch(
                    ENDPOINT_SLICE.ref(f"{name}-abcde", "default"),
                    change_slice(a_pod(f"{name}-0", node="two")),
                )
            await rig.testbed.sleep(5)
            before = await hosts_of(rig, *names)
            await rig.testbed.cut_power("one")
            answers = [await rig.ask(f"10.0.0.{200 + number}")() for number in range(9)]
            await rig.testbed.sleep(20)
            after = await hosts_of(rig, *names)
            leases = {raw["metadata"]["name"] for raw in await rig.kubectl.list(LEASE, "default")}

            assert set(before) == {"one", "two", "three"}
            assert [bool(answer) for answer in answers] == [host != "one" for host in before]
            assert [new for old, new in zip(before, after, strict=True) if old != "one"] == [
                old for old in before if old != "one"
            ]
            assert "one" not in after
            assert leases == {f"kubevip-{name}" for name in names}
            assert [await rig.ask(f"10.0.0.{200 + number}")() for number in range(9)] == [
                f"{name}-0" for name in names
            ]

    run_driven(scenario())


def test_a_service_with_local_traffic_has_its_address_where_a_pod_of_it_is():
    async def scenario() -> None:
        async with a_rig("one", "two", "three", **with_values(EACH)) as rig:
            await rig.serve(externalTrafficPolicy="Local")
            for node in ("two", "three", "one"):
                await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", node=node)))
                await rig.testbed.sleep(3)
                assert await hosts_of(rig, "web") == [node]
                assert await rig.ask()() == "web-0"
            await rig.kubectl.patch(SLICE, change_slice())
            await rig.testbed.sleep(3)
            assert await rig.ask()() == ""

    run_driven(scenario())


def test_kube_vip_runs_on_workers_where_the_affinity_allows_it():
    async def scenario() -> None:
        async with a_rig("one", **with_values(EACH | ON_WORKERS)) as rig:
            rig.testbed.power_on("four", rig.cluster.worker("four"))
            await rig.testbed.wait_for(lambda: rig.is_ready("four"))
            await rig.serve(externalTrafficPolicy="Local")
            await rig.kubectl.patch(SLICE, change_slice(a_pod("web-0", node="four")))
            await rig.testbed.wait_for(rig.ask())

            assert await hosts_of(rig, "web") == ["four"]

    run_driven(scenario())


def test_kube_vip_starts_on_a_worker_once_it_has_the_label_of_the_affinity():
    terms = [{"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}

    async def scenario() -> None:
        async with a_rig("one", **with_values({"affinity": {"nodeAffinity": required}})) as rig:
            rig.testbed.power_on("four", rig.cluster.worker("four"))
            await rig.testbed.wait_for(lambda: rig.is_ready("four"))
            await rig.serve()
            await rig.testbed.sleep(20)
            assert await rig.shown() == []
            label = {"metadata": {"labels": {"node-role.kubernetes.io/worker": "true"}}}
            await rig.kubectl.patch(NODE.ref("four"), label)
            await rig.testbed.wait_for(rig.ask())

            assert await hosts_of(rig, "web") == ["four"]

    run_driven(scenario())


def test_changed_values_are_rolled_out_while_the_cluster_runs():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            await rig.serve()
            await rig.testbed.wait_for(rig.ask())
            await rig.create(HELM_CHART_CONFIG, chart_config({"enabled": False}))
            await rig.testbed.sleep(1)
            assert await rig.ask()() == ""
            ref = HELM_CHART_CONFIG.ref("harvester-cloud-provider", "kube-system")
            await rig.kubectl.patch(ref, {"spec": chart_config(EACH)["spec"]})
            await rig.testbed.wait_for(rig.ask())
            assert await hosts_of(rig, "web") == ["one"]

    run_driven(scenario())


def test_a_udp_port_is_in_the_status_and_logged_as_unreachable():
    async def scenario() -> None:
        async with a_rig("one") as rig:
            ports = [
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ]
            await rig.serve(ports=ports)
            await rig.testbed.wait_for(rig.ask())
            found = await rig.kubectl.get(WEB)

            assert nested(found, "status", "loadBalancer", "ingress", 0, "ports") == [
                {"port": 80, "protocol": "TCP"},
                {"port": 53, "protocol": "UDP"},
            ]
            assert await rig.ask(port=53)() == ""
            assert "default/web: 53/UDP is announced, but the simulated network carries TCP only" in (
                rig.testbed.console("one")
            )

    run_driven(scenario())
