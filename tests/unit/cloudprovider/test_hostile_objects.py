"""Objects of wrong JSON types, from the guest's API or from Harvester, end neither the program nor the work for others."""

import asyncio

import pytest
from tests.support.readings import faulty_readings
from tests.unit.cloudprovider.rig import BALANCER, VM, VMI, run_story, settled

from windrow.cloudprovider.nodes.readings import read_instance, read_node, read_vm
from windrow.cloudprovider.services.readings import load_balancer_reader, read_interfaces, read_service
from windrow.core.formats.json import dumps
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NODE, SERVICE

META = {"name": "one", "namespace": "default", "uid": "u", "resourceVersion": "7"}
TIME = "2026-01-01T00:00:00Z"
CONDITION = {"type": "Ready", "status": "False", "message": "m", "lastHeartbeatTime": TIME}
SOUND = {
    read_service: {
        "metadata": META,
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "other",
            "loadBalancerIP": "10.0.0.9",
            "ports": [{"protocol": "TCP", "port": 80}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}},
    },
    load_balancer_reader("demo"): {
        "metadata": META,
        "spec": {"ipam": "pool", "ipPool": "p"},
        "status": {
            "address": "10.0.0.9",
            "allocatedAddress": {"ip": "10.0.0.9", "ipPool": "p"},
            "conditions": [CONDITION],
        },
    },
    read_interfaces: {"metadata": META, "data": {"mapping": dumps({"default/vlan1": "enp1s0"}).decode()}},
    read_node: {
        "metadata": {**META, "creationTimestamp": TIME},
        "spec": {"providerID": "harvester://u", "taints": [{"key": "k", "effect": "e", "value": "v"}]},
        "status": {
            "conditions": [CONDITION],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"systemUUID": "U"},
        },
    },
    read_vm: {"metadata": {**META, "creationTimestamp": TIME}},
    read_instance: {
        "metadata": META,
        "spec": {
            "networks": [{"name": "nic", "multus": {"networkName": "default/vlan1"}}],
            "domain": {"firmware": {"uuid": "U"}},
        },
        "status": {
            "phase": "Running",
            "migrationState": {"completed": True},
            "conditions": [{"type": "AgentConnected", "status": "True"}],
            "interfaces": [{"name": "nic", "interfaceName": "enp1s0", "ipAddresses": ["10.0.0.1"]}],
        },
    },
}


@pytest.mark.parametrize("read", SOUND, ids=lambda read: read.__name__)
def test_a_reading_is_of_its_types_or_there_is_none(read):
    """What is read may be hashed, compared and printed by those that work for all objects."""
    assert not faulty_readings(read, SOUND[read])


LABELS = {
    "cloudprovider.harvesterhci.io/cluster": "demo",
    "cloudprovider.harvesterhci.io/serviceNamespace": "default",
    "cloudprovider.harvesterhci.io/serviceName": "web",
}
GUEST_OBJECTS = {
    "an address that is an object": (
        SERVICE,
        {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": {"a": 1}}]}}},
    ),
    "a type that is a list": (SERVICE, {"spec": {"type": ["LoadBalancer"], "loadBalancerIP": [1]}}),
    "ports that are a number": (SERVICE, {"spec": {"type": "LoadBalancer", "ports": 7}}),
    "a spec that is a text": (SERVICE, {"spec": "LoadBalancer", "status": []}),
    "a providerID that is a list": (NODE, {"spec": {"providerID": ["harvester://u"]}}),
    "taints of numbers": (NODE, {"spec": {"taints": [1]}, "status": {"conditions": 5}}),
}
HOST_OBJECTS = {
    "addresses that are objects": (
        BALANCER,
        {"spec": {"ipam": "dhcp"}, "status": {"address": {"a": 1}, "allocatedAddress": {"ip": []}}},
    ),
    "a pool that is a list": (BALANCER, {"spec": {"ipam": [], "ipPool": ["p"]}, "status": 1}),
    "networks of numbers": (VMI, {"spec": {"networks": [1], "domain": {"firmware": {"uuid": 5}}}}),
    "a phase that is an object": (VMI, {"status": {"phase": {}, "interfaces": {"a": 1}}}),
    "a spec that is a list": (VM, {"spec": []}),
}


def test_objects_of_wrong_types_leave_the_program_and_the_other_services_at_work():
    async def story(world):
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await world.cluster.create(
            SERVICE, new_object(SERVICE, "kubernetes", "default", spec={"ports": [{"port": 443}]})
        )
        await settled(world, "n1")
        for server, objects in ((world.guest, GUEST_OBJECTS), (world.host, HOST_OBJECTS)):
            for number, (kind, rest) in enumerate(objects.values()):
                await put(server, new_object(kind, f"hostile-{number}", "default", labels=LABELS, **rest))
        await asyncio.sleep(30)
        await world.cluster.create(SERVICE, new_object(SERVICE, "web", "default", spec=spec))
        await world.make_vm("n2", "192.168.1.9")
        await world.join("n2", "192.168.1.9")
        await asyncio.sleep(30)
        made = [
            one for one in await world.harvester.list(BALANCER) if "hostile" not in one["metadata"]["name"]
        ]
        given = {"status": {"allocatedAddress": {"ip": "10.1.0.1", "ipPool": "p"}}}
        await world.harvester.patch(BALANCER.ref(made[0]["metadata"]["name"], "default"), given)
        await asyncio.sleep(30)
        web = await world.cluster.get(SERVICE.ref("web", "default"))
        return web, await world.taints("n2"), [program.done() for program in world.programs]

    web, taints, ended = run_story(story)

    assert ended == [False]
    assert web["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == "10.1.0.1"
    assert not taints


async def put(server, raw):
    """Into the store as it is, past every validation."""
    metadata = {**raw["metadata"], "uid": f"uid-of-{raw['metadata']['name']}"}
    type = server.registry.find_by_gvk(raw["apiVersion"], raw["kind"])
    key = type.key(metadata.get("namespace", ""), metadata["name"])
    await server.store.commit(key, {**raw, "metadata": metadata}, None)
