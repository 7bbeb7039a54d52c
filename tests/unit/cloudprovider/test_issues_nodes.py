"""What people reported of the Go program (numbers of harvester/harvester), replayed: what a guest-side program can mend.

#2354 (all VMs of a cluster in one namespace) is Harvester's own rule and stays. #9502 was a crash on VMs that come and go.
"""

import asyncio

import pytest

from windrow.core.clock import format_time
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE, SERVICE

from .rig import BALANCER, REGION_BETA, SHUTDOWN, VM, VMI, ZONE, ZONE_BETA, run_story, settled

A, B = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


async def writes(world, span):
    """What the program writes, but for its Lease, in this many seconds."""
    world.count()
    await asyncio.sleep(span)
    return [
        f"{request.method} {request.path}"
        for request in world.counted
        if request.method != "GET" and "/leases/" not in request.path
    ]


@pytest.mark.parametrize("by", ["its hardware", "its guest agent"])
def test_issue_11580_the_zone_of_a_vm_goes_to_the_node_it_is_and_no_node_is_tainted(by):
    async def story(world):
        uuid = {"its hardware": A, "its guest agent": ""}[by]
        await world.make_vm("vm-7", "192.168.1.5", uuid=uuid)
        await world.make_vm("vm-8", "192.168.1.6")
        world.hostnames = {"vm-7": "db", "vm-8": "vm-7"}
        world.start()
        await world.join("db", "192.168.1.5", uuid=uuid)
        await asyncio.sleep(30)
        # A node that bears the name of the other one's VM.
        await world.join("vm-7", "192.168.1.6", uuid=B)
        await asyncio.sleep(60)
        await world.set_topology("vm-7", zone="z2")
        await asyncio.sleep(60)
        zones = [(await world.labels(name))[ZONE] for name in ("db", "vm-7")]
        return zones, [*await world.taints("db"), *await world.taints("vm-7")]

    assert run_story(story) == (["z2", "z1"], [])


@pytest.mark.parametrize("issue", [4396, 4947])
def test_issue_4396_4947_a_guest_with_a_host_name_of_its_own_is_initialised(issue):
    async def story(world):
        uid = await world.make_vm("vm-7", "192.168.1.5", uuid=A if issue == 4396 else "")
        world.hostnames = {"vm-7": "abc"}
        world.start()
        await world.join("abc", "192.168.1.5", uuid=A if issue == 4396 else "")
        await asyncio.sleep(30)
        return (await world.node("abc"))["spec"] == {"providerID": f"harvester://{uid}"}

    assert run_story(story)


def test_issue_4947_a_restart_forgets_no_host_name():
    """The Go program's map of host names is empty after a restart: then the VM `abc` was looked for, and not found."""

    async def story(world):
        await world.make_vm("vm-7", "192.168.1.5")
        await world.make_vm("vm-8", "192.168.1.6")
        world.hostnames = {"vm-7": "abc"}
        first = world.start()
        await world.join("abc", "192.168.1.5")
        await world.join("vm-8", "192.168.1.6")
        await asyncio.sleep(60)
        first.cancel()
        await world.be_ready("abc", False)
        world.hostnames = {}
        world.start()
        await asyncio.sleep(600)
        return [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)], await world.taints("abc")

    assert run_story(story) == (["abc", "vm-8"], [])


@pytest.mark.parametrize("issue", [4459, 4432])
def test_issue_4459_4432_vms_that_are_no_node_of_ours_are_no_error_and_no_work(issue):
    """Many clusters in one namespace; or VMs that are no cluster's."""

    async def story(world):
        await settled(world, "w1")
        cluster = "other" if issue == 4459 else ""
        for number in range(20):
            await world.make_vm(f"x{number}", f"192.168.2.{number}", cluster=cluster)
        lines = len(world.lines)
        done = await writes(world, 600)
        for number in range(20):
            await world.set_topology(f"x{number}", zone="z2")
        return world.lines[lines:], done, await writes(world, 600), world.requests

    assert run_story(story) == ([], [], [], [])


def test_issue_10906_a_vm_of_another_cluster_with_our_host_name_poisons_nothing():
    async def story(world):
        uid = await world.make_vm("vm-7", "192.168.1.5")
        await world.make_vm("foreign", "192.168.1.6", cluster="other", zone="z9")
        await world.make_vm("db", "192.168.1.7", cluster="other", zone="z9")
        world.hostnames = {"vm-7": "db", "foreign": "db", "db": "db"}
        world.start()
        await world.join("db", "192.168.1.5")
        await asyncio.sleep(60)
        await world.set_topology("foreign", zone="z8")
        await world.set_topology("db", zone="z8")
        await asyncio.sleep(60)
        node = await world.node("db")
        return node["spec"] == {"providerID": f"harvester://{uid}"}, node["metadata"]["labels"][ZONE]

    assert run_story(story) == (True, "z1")


def test_issue_11683_a_node_whose_vm_is_gone_goes_with_the_rights_of_the_chart():
    allowed = {
        "nodes": {"get", "list", "watch", "patch", "delete"},
        "events": {"create", "patch"},
        "leases": {"get", "create", "update"},
        "services": {"list", "watch"},
        "configmaps": {"get", "list", "watch", "create", "update"},
    }

    async def may(caller, verb, target):
        return verb in allowed.get(target.plural, ())

    async def story(world):
        await settled(world, "w1", "w2")
        await world.lose_vm("w1")
        await world.be_ready("w1", False)
        await asyncio.sleep(5)
        found = [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]
        return found, await world.events(), [line for line in world.lines if "orbidden" in line]

    found, events, complaints = run_story(story, may)

    assert (found, complaints) == (["w2"], [])
    assert ("w1", "DeletingNode") in events
    assert ("w1", "DeletingNodeFailed") not in events


def test_a_lost_node_that_is_out_of_service_goes_only_when_its_volumes_had_time_to_be_detached():
    async def story(world):
        await settled(world, "w1", "w2")
        now = format_time(world.clock.now())
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": now}
        await world.cluster.patch(NODE.ref("w1"), {"spec": {"taints": [taint]}})
        await world.lose_vm("w1")
        await world.be_ready("w1", False)
        await asyncio.sleep(350)
        early = [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]
        await asyncio.sleep(310)
        return early, [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]

    assert run_story(story) == (["w1", "w2"], ["w2"])


def test_issue_11682_a_machine_that_takes_over_a_fixed_host_name_is_itself():
    """The pool fixes the host name. The old machine's node goes with its VM, and the new machine's is initialised."""

    async def story(world):
        await world.make_vm("pool-a", "192.168.1.5", uuid=A)
        await world.make_vm("other", "192.168.1.9")
        world.hostnames = {"pool-a": "cgc-node1", "pool-b": "cgc-node1"}
        world.start()
        await world.join("cgc-node1", "192.168.1.5", uuid=A)
        await world.join("other", "192.168.1.9")
        await asyncio.sleep(30)
        new = await world.make_vm("pool-b", "192.168.1.6", uuid=B)
        await asyncio.sleep(30)
        await world.lose_vm("pool-a")
        await world.be_ready("cgc-node1", False)
        await asyncio.sleep(30)
        left = [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]
        await world.join("cgc-node1", "192.168.1.6", uuid=B)
        await asyncio.sleep(30)
        return left, (await world.node("cgc-node1"))["spec"] == {"providerID": f"harvester://{new}"}

    assert run_story(story) == (["other"], True)


def test_issue_9502_vms_that_come_and_go_at_once_stop_no_node():
    async def story(world):
        await settled(world, "w1")
        for _ in range(10):
            await world.make_vm("passing")
            await world.lose_vm("passing")
            # An instance without labels and annotations, as others make them.
            await world.harvester.create(VMI, new_object(VMI, "bare", "default"))
            await world.harvester.delete(VMI.ref("bare", "default"))
        await asyncio.sleep(10)
        await world.set_topology("w1", zone="z2")
        await asyncio.sleep(10)
        return world.programs[0].done(), (await world.labels("w1"))[ZONE]

    assert run_story(story) == (False, "z2")


def test_issue_3142_labels_follow_the_host_to_and_fro_and_go_where_it_has_none():
    async def story(world):
        await settled(world, "w1", "w2")
        seen = []
        for zone, region in (("z2", "r1"), ("z1", "r2"), (None, "r2"), (None, None), ("z1", "r1")):
            await world.set_topology("w1", zone=zone, region=region)
            await asyncio.sleep(60)
            labels = await world.labels("w1")
            seen.append((labels.get(ZONE), labels.get(ZONE_BETA), labels.get(REGION_BETA)))
        return seen, await world.taints("w1")

    seen, taints = run_story(story)

    assert seen == [
        ("z2", "z2", "r1"),
        ("z1", "z1", "r2"),
        (None, None, "r2"),
        (None, None, None),
        ("z1", "z1", "r1"),
    ]
    assert taints == []


def test_issue_3142_a_restart_does_not_forget_which_labels_are_the_hosts():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.cluster.patch(NODE.ref("w2"), {"metadata": {"labels": {"tier": "gold"}}})
        world.programs[0].cancel()
        await asyncio.sleep(5)
        await world.set_topology("w1", zone=None, region=None)
        world.start()
        await asyncio.sleep(90)
        return await world.labels("w1"), await world.labels("w2")

    bare, kept = run_story(story)

    assert bare == {}
    assert kept[ZONE] == "z1"


def test_issue_3142_a_zone_that_a_user_set_where_the_host_has_none_stays_for_good():
    async def story(world):
        await world.make_vm("w1", "192.168.1.5")
        await world.set_topology("w1", zone=None, region=None)
        world.start()
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(30)
        await world.cluster.patch(NODE.ref("w1"), {"metadata": {"labels": {ZONE: "mine"}}})
        await asyncio.sleep(60)
        world.programs[0].cancel()
        world.start()
        await asyncio.sleep(90)
        return await world.labels("w1")

    assert run_story(story) == {ZONE: "mine"}


def test_issue_10399_vms_made_by_hand_without_labels_are_nodes_as_well():
    async def story(world):
        uid = await world.make_vm("w1", "192.168.1.5", cluster="")
        world.start()
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(30)
        return (await world.node("w1"))["spec"] == {"providerID": f"harvester://{uid}"}, await world.labels(
            "w1"
        )

    known, labels = run_story(story)

    assert known
    assert labels[ZONE] == "z1"


async def hold(world, *addresses, name="web"):
    """A load balancer of this cluster holds them on Harvester."""
    labels = {f"cloudprovider.harvesterhci.io/{key}": value for key, value in OF_WEB.items()}
    raw = new_object(BALANCER, name, "default", labels=labels, spec={"ipam": "pool"})
    if await world.harvester.find(BALANCER.ref(name, "default")) is None:
        await world.harvester.create(BALANCER, raw)
    status = {"allocatedAddress": {"ip": ",".join(addresses), "ipPool": "pool"}}
    await world.harvester.patch(BALANCER.ref(name, "default"), {"status": status})


OF_WEB = {"cluster": "demo", "serviceNamespace": "default", "serviceName": "web"}


def test_issue_6751_the_address_of_a_service_is_not_shown_as_the_nodes():
    """kube-vip binds the address to the node's card, where the guest agent reports it. It need not be excluded."""

    async def story(world):
        await settled(world, "w1")
        await hold(world, "192.168.1.50")
        await world.report("w1", "192.168.1.0", "192.168.1.50", "192.168.1.60")
        await asyncio.sleep(10)
        shown = await world.addresses("w1")
        # It was there before anybody knew, and goes once it is known.
        await hold(world, "192.168.1.60")
        await asyncio.sleep(10)
        return shown, await world.addresses("w1")

    first, then = run_story(story)

    assert first == ["InternalIP 192.168.1.0", "ExternalIP 192.168.1.60", "Hostname w1"]
    assert "ExternalIP 192.168.1.60" not in then


def test_issue_6751_a_restart_does_not_show_the_addresses_of_services_for_a_moment():
    async def story(world):
        await settled(world, "w1")
        await hold(world, "192.168.1.50")
        await world.report("w1", "192.168.1.0", "192.168.1.50")
        await asyncio.sleep(10)
        world.programs[0].cancel()
        await asyncio.sleep(5)
        send = world.host.send

        async def slowly(request, peer):
            if "/loadbalancers" in request.path:
                await asyncio.sleep(5)
            return await send(request, peer)

        world.host.send = slowly
        world.start()
        return await writes(world, 60)

    assert [one for one in run_story(story) if "/nodes/" in one] == []


@pytest.mark.parametrize("provided", ["", "192.168.1.5"])
def test_what_a_user_writes_on_a_service_moves_no_address_of_a_node(provided):
    async def story(world):
        await world.make_vm("n1", "192.168.1.5", "192.168.1.77")
        await world.join("n1", provided)
        world.start()
        await asyncio.sleep(20)
        before = await world.addresses("n1")
        said = {"kube-vip.io/loadbalancerIPs": "192.168.1.5,192.168.1.77", "kube-vip.io/vipHost": "n1"}
        spec = {"type": "LoadBalancer", "loadBalancerClass": "x.io/y", "ports": [{"port": 80}]}
        await world.cluster.create(
            SERVICE, new_object(SERVICE, "evil", "default", annotations=said, spec=spec)
        )
        await asyncio.sleep(20)
        return before, await world.addresses("n1")

    before, after = run_story(story)

    assert before == after == ["InternalIP 192.168.1.5", "ExternalIP 192.168.1.77", "Hostname n1"]


def test_issue_7275_a_node_of_both_families_has_both_of_its_addresses():
    async def story(world):
        await world.make_vm("w1", "192.168.1.5", "fd00::5", "192.168.1.6", "fd00::6")
        world.start()
        await world.join("w1", "fd00::5,192.168.1.5")
        await asyncio.sleep(30)
        return await world.addresses("w1"), await world.taints("w1")

    addresses, taints = run_story(story)

    assert addresses == [
        "InternalIP fd00::5",
        "InternalIP 192.168.1.5",
        "ExternalIP 192.168.1.6",
        "ExternalIP fd00::6",
        "Hostname w1",
    ]
    assert taints == []


def test_issue_10381_several_external_addresses_are_written_once():
    async def story(world):
        await settled(world, "w1")
        await world.report("w1", "192.168.1.0", "192.168.1.60", "192.168.1.61")
        await asyncio.sleep(10)
        return await world.addresses("w1"), await writes(world, 3600)

    addresses, done = run_story(story)

    assert addresses[1:3] == ["ExternalIP 192.168.1.60", "ExternalIP 192.168.1.61"]
    assert done == []


# --- what is no issue yet, and must not become one ---------------------------------------------------------------------


def test_a_vm_restored_under_another_uid_does_not_cost_its_living_node():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.lose_vm("w1")
        await world.make_vm("w1", "192.168.1.0")
        # The guest boots from its old disks; its node keeps the old providerID.
        await asyncio.sleep(300)
        await world.be_ready("w1", True, heard=True)
        await asyncio.sleep(30)
        await world.be_ready("w1", False, heard=True)
        await asyncio.sleep(600)
        await world.harvester.delete(VMI.ref("w1", "default"))
        await asyncio.sleep(10)
        return [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)], await world.taints("w1")

    assert run_story(story) == (["w1", "w2"], [SHUTDOWN])


def test_fifty_nodes_that_lose_their_vms_cost_few_lists():
    async def story(world):
        names = [f"w{number}" for number in range(50)]
        await settled(world, "stays", *names)
        world.count()
        for name in names:
            await world.lose_vm(name)
        await asyncio.gather(*(world.be_ready(name, False) for name in names))
        await asyncio.sleep(60)
        left = [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]
        lists = [one for one in world.counted if one.path == VM.path("default") and one.method == "GET"]
        return left, len(lists)

    left, lists = run_story(story)

    assert left == ["stays"]
    assert lists <= 5


def test_an_unknown_node_is_asked_for_more_and_more_rarely():
    async def story(world):
        await settled(world, "w1")
        await world.make_vm("spare", "192.168.1.7")
        await world.join("bare-metal", "192.168.9.9")
        await asyncio.sleep(3600)
        first = len(world.requests)
        await asyncio.sleep(3600)
        return first, len(world.requests) - first, [line for line in world.lines if "bare-metal" in line]

    first, then, lines = run_story(story)

    assert first < 40
    assert then <= 12
    assert len(lines) == 1


def test_load_balancers_carry_the_mark_of_their_guest_and_those_of_others_are_left_alone():
    async def story(world):
        own = await world.cluster.create(
            SERVICE, new_object(SERVICE, "kubernetes", "default", spec={"ports": [{"port": 443}]})
        )
        labels = {
            "cloudprovider.harvesterhci.io/cluster": "demo",
            "cloudprovider.harvesterhci.io/serviceNamespace": "default",
            "cloudprovider.harvesterhci.io/serviceName": "web",
        }
        for name, mark in (("demo-default-web-00000001", "another-guest"), ("demo-default-web-00000002", "")):
            annotations = {"windrow.io/guest-uid": mark} if mark else None
            spec = {"ipam": "pool", "workloadType": "cluster"}
            raw = new_object(BALANCER, name, "default", labels=labels, annotations=annotations, spec=spec)
            await world.harvester.create(BALANCER, raw)
        world.start()
        web = new_object(SERVICE, "web", "default", spec={"type": "LoadBalancer", "ports": [{"port": 80}]})
        await world.cluster.create(SERVICE, web)
        await asyncio.sleep(120)
        marks = {
            raw["metadata"]["name"]: raw["metadata"].get("annotations", {}).get("windrow.io/guest-uid")
            for raw in await world.harvester.list(BALANCER, "default")
        }
        return marks, own["metadata"]["uid"]

    marks, own = run_story(story)

    assert marks.pop("demo-default-web-00000001") == "another-guest"
    assert marks.pop("demo-default-web-00000002") is None
    assert list(marks.values()) == [own]


def test_a_node_that_is_back_loses_its_taint_also_while_harvester_cannot_be_asked():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.harvester.delete(VMI.ref("w1", "default"))
        await world.be_ready("w1", False)
        await asyncio.sleep(5)
        off = await world.taints("w1")
        world.host.tokens.clear()
        await asyncio.sleep(600)
        lines = len(world.lines)
        await world.be_ready("w1", True)
        await asyncio.sleep(600)
        return off, await world.taints("w1"), [line for line in world.lines[lines:] if "w2" in line]

    assert run_story(story) == ([SHUTDOWN], [], [])


def test_harvester_that_is_away_is_told_once_and_not_for_each_node():
    async def story(world):
        await settled(world, "w1", "w2", "w3")
        world.host.tokens.clear()
        await asyncio.sleep(600)
        for name in ("w1", "w2", "w3"):
            await world.be_ready(name, False)
        await asyncio.sleep(600)
        return [line for line in world.lines if "watch" in line and 'node="' in line]

    assert run_story(story) == []


def test_events_that_cannot_be_written_hold_up_no_node():
    async def story(world):
        send = world.guest.send

        async def send_without_events(request, peer):
            if request.path.endswith("/events"):
                await asyncio.sleep(3600)
            return await send(request, peer)

        world.guest.send = send_without_events
        names = [f"w{number}" for number in range(8)]
        for number, name in enumerate(names):
            await world.make_vm(name, f"192.168.1.{number}")
            await world.join(name, f"192.168.1.{number}")
        world.start()
        await asyncio.sleep(30)
        return [name for name in names if await world.taints(name)]

    assert run_story(story) == []
