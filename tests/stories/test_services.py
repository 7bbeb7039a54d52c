"""The life of load balancers, as users of a guest cluster see it. Each story is followed by the invariants.

The golden texts are to be read: they hold everything that users are told, everything that stands at Harvester, and
every call that it cost. Renew them with `WINDROW_RENEW=1 pytest tests/stories/test_services.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.clock import run_driven
from tests.support.endpoints import slice_of_one_pod
from tests.support.simulation import simulation

from windrow.cloudprovider.names import LEASE_NAME, LEASE_NAMESPACE
from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.charts import CLOUD_CONFIG
from windrow.emulator.harvester import Harvester
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, finalizers_of, labels_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import LEASE, NODE, SECRET, SERVICE

from .cluster_invariants import Founded
from .cluster_rig import a_cluster, compare, post, stock
from .cluster_rig import a_pool as a_machine_pool
from .harvester_rig import boot, eventually, order, vmi_ref
from .service_invariants import InvariantChecker, find_faults, look
from .service_narrator import ZONE, Narrator
from .service_rig import (
    ADDRESSES,
    CLEANUP,
    CLUSTER,
    INTERFACE,
    NETWORK_OF,
    PROVIDER,
    ServiceRig,
    a_service_rig,
    an_account,
)

Story = Callable[[ServiceRig, Narrator], Awaitable[None]]
OF_OUR_CLUSTER = {"guestcluster.harvesterhci.io/name": CLUSTER}


def check_story(name: str, story: Story, **kind: Any) -> None:
    """Run the story, hold it against its golden text, and look whether all is well in the end."""

    async def whole() -> tuple[list[str], list[str]]:
        async with a_service_rig(1, **kind) as rig:
            checker = InvariantChecker(rig)
            rig.start()
            await rig.pass_time(10)
            narrator = Narrator(rig)
            narrator.forget_calls()
            await story(rig, narrator)
            await rig.pass_time(120)
            narrator.close()
            return narrator.lines, checker.faults + find_faults(await look(rig))

    lines, faults = run_driven(whole())
    print("\n".join(lines))
    assert faults == []
    compare(f"services-{name}", lines)


def at_host(calls: Counter[str]) -> dict[str, int]:
    """The calls to Harvester among these; watches do not count."""
    return {key: value for key, value in calls.items() if key.startswith("host ")}


# --- 1 --------------------------------------------------------------------------------------------------------------


def test_a_pool_service_has_its_address_for_two_calls_to_harvester_and_four_to_the_guest() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10-12")
        await rig.pass_time(1)
        await narrator.say("a user creates service web: pool, TCP 80")
        await rig.serve()
        begun = rig.now_s
        assert await rig.served() == "10.1.0.10"
        assert rig.now_s - begun < 1
        await rig.pass_time(5)
        calls = narrator.count()
        assert sum(at_host(calls).values()) <= 2
        assert sum(value for key, value in calls.items() if key.startswith("guest ")) <= 4
        await narrator.say("nothing is done for ten minutes")
        await rig.pass_time(600)
        assert not narrator.count()
        await narrator.say("the user deletes web")
        await rig.delete()
        await rig.gone()
        await rig.pass_time(5)
        narrator.count()

    check_story("pool", story)


# --- 2 --------------------------------------------------------------------------------------------------------------


def test_a_dhcp_service_gets_its_lease_from_kube_vip_and_harvester_hears_of_it() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await narrator.say("a user creates service web: dhcp, TCP 80")
        await rig.serve(ipam="dhcp")
        assert await rig.served() == "192.168.50.100"
        await rig.pass_time(5)
        assert sum(at_host(narrator.count()).values()) <= 2
        [balancer] = await rig.balancers()
        assert balancer["status"]["address"] == "192.168.50.100"

    check_story("dhcp", story)


# --- 3 --------------------------------------------------------------------------------------------------------------


def test_three_services_share_an_address_and_the_primary_goes_when_the_others_have_left() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10-12")
        await narrator.say("a user creates service dns: pool, UDP 53")
        await rig.serve("dns", ports=[("UDP", 53)])
        await rig.served("dns")
        await rig.pass_time(5)
        narrator.count()
        await narrator.say("and dns-tcp for TCP 53, and team/web for TCP 80, at the address of dns")
        await rig.serve("dns-tcp", ipam="", ports=[("TCP", 53)], primary="dns")
        await rig.serve("web", "team", ipam="", ports=[80], primary="default/dns")
        assert await rig.served("dns-tcp") == await rig.served("web", "team") == "10.1.0.10"
        await rig.pass_time(5)
        assert sum(at_host(narrator.count()).values()) == 0
        await narrator.say("the user deletes dns")
        await rig.delete("dns")
        await rig.pass_time(60)
        assert await rig.address("dns") == "10.1.0.10"
        narrator.count()
        await narrator.say("the user deletes team/web")
        await rig.delete("web", "team")
        await rig.pass_time(60)
        assert await rig.service("dns") is not None
        await narrator.say("the user gives dns-tcp an address of its own")
        await rig.annotate("dns-tcp", ipam="pool", primary_service=None)
        await rig.gone("dns")
        await rig.pass_time(5)
        assert await rig.address("dns-tcp") == "10.1.0.11"
        narrator.count()

    check_story("shared", story)


# --- 4 --------------------------------------------------------------------------------------------------------------


def test_a_full_pool_is_told_once_and_a_wider_one_is_used() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10")
        await narrator.say("a user creates services one and two; the pool has a single address")
        await rig.serve("one")
        await rig.served("one")
        await rig.serve("two")
        await rig.pass_time(600)
        assert await rig.address("two") == ""
        assert not {key for key in narrator.count() if "DELETE" in key}
        await narrator.say("an administrator widens the pool")
        await rig.set_ranges("10.1.0.10-12")
        assert await rig.served("two", within_s=35) == "10.1.0.11"
        await rig.pass_time(5)
        narrator.count()

    check_story("full-pool", story)


# --- 5 --------------------------------------------------------------------------------------------------------------


def test_a_node_replaced_under_a_service_costs_harvester_no_call_about_load_balancers() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10-12")
        await rig.serve()
        await rig.served()
        await rig.pass_time(5)
        narrator.lines.clear()
        narrator.forget_calls()
        await narrator.say("machine m-3 joins, m-1 is removed for good")
        await rig.add_machine("m-3")
        await rig.pass_time(30)
        await rig.lose_machine("m-1")
        await rig.pass_time(60)
        assert {raw["metadata"]["name"] for raw in await rig.guest.list(NODE)} == {"m-2", "m-3"}
        calls = narrator.count()
        assert not {key for key in calls if "loadbalancers" in key or "services" in key}

    check_story("node-replaced", story, machines=("m-1", "m-2"))


# --- 6 --------------------------------------------------------------------------------------------------------------


def test_another_address_source_is_refused_in_the_guest_before_harvester_is_asked() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10-12")
        await rig.serve()
        await rig.served()
        await rig.pass_time(5)
        narrator.lines.clear()
        narrator.forget_calls()
        await narrator.say("the user wants dhcp instead")
        await rig.annotate(ipam="dhcp")
        await rig.pass_time(600)
        assert at_host(narrator.count()) == {}
        assert await rig.address() == "10.1.0.10"
        await narrator.say("the user wants the pool again")
        await rig.annotate(ipam="pool")
        await rig.pass_time(600)
        assert at_host(narrator.count()) == {}

    check_story("mode-change", story)


# --- 7 --------------------------------------------------------------------------------------------------------------


def test_a_service_deleted_while_harvester_is_down_goes_when_it_is_back() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        await rig.make_pool("10.1.0.10-12")
        await rig.serve(labels={"mine": "yes"}, finalizers=["example.com/mine"])
        await rig.served()
        await rig.pass_time(5)
        narrator.lines.clear()
        narrator.forget_calls()
        await narrator.say("Harvester's API is down, and the user deletes web")
        rig.links["host"].shut()
        await rig.delete()
        await rig.pass_time(1800)
        service = await rig.service()
        assert service is not None
        assert finalizers_of(service) == ["example.com/mine", CLEANUP]
        await narrator.say("Harvester is back")
        rig.links["host"].open()

        async def let_go() -> bool:
            return finalizers_of(await rig.service() or service) == ["example.com/mine"]

        await rig.until(let_go, within_s=310)
        await rig.pass_time(10)
        assert await rig.balancers() == []

    check_story("deleted-while-down", story)


# --- 8 --------------------------------------------------------------------------------------------------------------


def test_a_credential_rotated_in_the_middle_of_a_service_costs_neither_the_service_nor_the_lead() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        harvester = rig.host
        assert isinstance(harvester, Harvester)
        await rig.make_pool("10.1.0.10-12")
        await rig.serve("before")
        await rig.served("before")
        await rig.pass_time(5)
        narrator.lines.clear()
        narrator.forget_calls()
        lease = LEASE.ref(LEASE_NAME, LEASE_NAMESPACE)
        holder = nested(await rig.guest.get(lease), "spec", "holderIdentity")
        await narrator.say("the old credential is withdrawn, and a user creates service web")
        await rig.at_host.delete(SECRET.ref(f"{CLUSTER}-token", "default"))
        rig.links["host"].cut()
        await rig.serve()
        await rig.pass_time(120)
        assert await rig.address() == ""
        await narrator.say("the new credential is put into the Secret that the pod mounts")
        rig.files[CLOUD_CONFIG] = await an_account(harvester, "second")
        assert await rig.served(within_s=180) == "10.1.0.11"
        await rig.pass_time(5)
        assert nested(await rig.guest.get(lease), "spec", "holderIdentity") == holder
        assert rig.pods[0].starts == 1

    check_story("credential", story, whole=True)


# --- 9 --------------------------------------------------------------------------------------------------------------


def test_a_migration_takes_the_node_to_another_zone_and_leaves_services_alone() -> None:
    async def story(rig: ServiceRig, narrator: Narrator) -> None:
        harvester = rig.host
        assert isinstance(harvester, Harvester)
        await boot(harvester, name="demo-1", labels=OF_OUR_CLUSTER)
        await rig.join("demo-1")
        await rig.make_pool("10.1.0.10-12", network="default/vlan50")
        await rig.serve()
        await rig.served()
        await rig.pass_time(30)
        narrator.lines.clear()
        narrator.forget_calls()
        before = labels_of(await rig.guest.get(NODE.ref("demo-1")))[ZONE]
        host = nested(await rig.at_host.get(vmi_ref("demo-1")), "status", "nodeName")
        await narrator.say("an administrator migrates machine demo-1 to another host")
        await order(harvester, "migrate", "demo-1")
        await eventually(
            harvester, vmi_ref("demo-1"), lambda raw: nested(raw, "status", "nodeName") not in (None, host)
        )
        await rig.pass_time(60)
        node = await rig.guest.get(NODE.ref("demo-1"))
        assert labels_of(node)[ZONE] != before
        assert not nested(node, "spec", "taints", default=[])
        assert not {key for key in narrator.count() if "loadbalancers" in key or "services" in key}

    check_story("migration", story, whole=True)


# --- a whole guest --------------------------------------------------------------------------------------------------


def test_a_request_to_a_service_of_a_whole_guest_reaches_its_pod_and_no_one_once_it_is_deleted() -> None:
    """Nothing is simulated here but the machines: the guest is installed by its manager and runs kube-vip itself."""

    async def story() -> None:
        async with simulation(seed=1) as rig:
            founded = Founded(rig)
            documents = a_cluster(a_machine_pool("all", 1, "etcd control-plane worker"), name=CLUSTER)
            await stock(rig, documents)
            ref = await post(rig, documents)
            await rig.cluster(ref.name).wait_for_ready()
            [cluster] = founded.all()
            guest = cluster.client("user", ("system:masters",))
            near = {"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.200", "rangeEnd": "192.168.50.210"}
            scope = {"project": "*", "namespace": "*", "guestCluster": CLUSTER}
            selector = {"network": "default/vlan-50", "scope": [scope]}
            spec = {"ranges": [near], "selector": selector}
            await rig.harvester.api.local().create(kinds.IP_POOL, new_object(kinds.IP_POOL, "lan", spec=spec))

            said = {f"{PROVIDER}/ipam": "pool", NETWORK_OF: "default/vlan-50"}
            ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
            raw = new_object(
                SERVICE, "web", "default", annotations=said, spec={"type": "LoadBalancer", "ports": ports}
            )
            await guest.create(SERVICE, raw)
            await guest.create(ENDPOINT_SLICE, slice_of_one_pod("web"))
            await rig.advance(seconds=5)
            found = await guest.get(SERVICE.ref("web", "default"))
            address = nested(found, "status", "loadBalancer", "ingress", 0, "ip")
            assert re.fullmatch(r"192\.168\.50\.2\d\d", str(address))
            assert annotations_of(found)[ADDRESSES] == address
            assert annotations_of(found)[INTERFACE] == "enp1s0"
            door = rig.harvester.network.find(address, 80)
            assert door is not None
            assert loads((await door.send(Request("GET", "/"), Peer())).body)["pod"] == "web-0"
            [balancer] = await rig.harvester.api.local().list(kinds.LOAD_BALANCER)
            assert balancer["status"]["address"] == address

            await guest.delete(SERVICE.ref("web", "default"))
            await rig.advance(seconds=5)
            assert await guest.find(SERVICE.ref("web", "default")) is None
            assert rig.harvester.network.find(address, 80) is None
            assert await rig.harvester.api.local().list(kinds.LOAD_BALANCER) == []

    run_driven(story())
