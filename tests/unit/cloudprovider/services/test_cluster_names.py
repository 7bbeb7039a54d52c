"""A `--cluster-name` that was lost or changed: what services show stays, and load balancers of the former name are named."""

import pytest

from windrow.cloudprovider import names
from windrow.emulator import kinds
from windrow.kubernetes.objects import annotations_of, labels_of

from .rig import ingress, protected, run_story


async def renamed(world, cluster, **annotations):
    """A service that has its address under `demo`, and a program that now runs with another name."""
    await world.pool(cluster="*")
    await world.harvester.create(
        kinds.IP_POOL,
        {
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
            "kind": "IPPool",
            "metadata": {"name": "unused"},
            "spec": {"ranges": [{"subnet": "10.9.0.0/24"}]},
        },
    )
    world.start()
    await world.serve(**annotations)
    await world.settle(20)
    before = await world.service(), await world.balancers()
    await world.restart(cluster=cluster)
    await world.settle(200)
    return before


@pytest.mark.parametrize("mode", ["pool", "dhcp"])
@pytest.mark.parametrize("cluster", ["kubernetes", "other"])
def test_a_changed_cluster_name_takes_no_address_off_the_network(cluster, mode):
    async def story(world):
        before = await renamed(world, cluster, ipam=mode)
        after = await world.service(), await world.balancers()
        complaints = await world.complaints()
        await world.restart()
        await world.settle(20)
        return before, after, complaints, await world.service()

    (service, balancers), (held, still), complaints, back = run_story(story)

    assert ingress(service)
    assert (held["spec"], ingress(held), annotations_of(held), labels_of(held)) == (
        service["spec"],
        ingress(service),
        annotations_of(service),
        labels_of(service),
    )
    assert sorted(still) == sorted(balancers)
    assert len(complaints) == 1
    assert f"under the cluster name 'demo', and this cloud provider runs with '{cluster}'" in complaints[0]
    assert ingress(back) == ingress(service)


def test_a_service_that_is_deleted_under_a_changed_name_waits_for_the_right_one():
    async def story(world):
        await renamed(world, "kubernetes")
        await world.delete()
        await world.settle(100)
        stays = protected(await world.service()), ingress(await world.service())
        told = [reason for reason, _ in await world.events()]
        await world.restart()
        await world.settle(30)
        return stays, told, await world.is_gone(), await world.balancers()

    (is_protected, address), told, gone, balancers = run_story(story)

    assert is_protected
    assert address
    assert "DeletedLoadBalancer" not in told
    assert (gone, balancers) == (True, {})


def test_without_its_annotation_a_service_gets_an_address_under_the_new_name_and_the_former_one_is_named():
    async def story(world):
        await renamed(world, "other")
        before = set(await world.balancers())
        await world.annotate(**{names.VIP_ADDRESSES: None})
        await world.settle(30)
        moved = await world.address(), set(await world.balancers()) - before
        await world.delete()
        await world.settle(30)
        return moved, await world.is_gone(), await world.events(reason="LoadBalancerLeft"), before

    (address, new), gone, left, before = run_story(story)

    assert address == "10.1.0.11"
    assert len(new) == 1
    assert gone
    assert len(left) == 1
    assert next(iter(before)) in left[0][1]
    assert "'demo'" in left[0][1]


@pytest.mark.parametrize("change", [{"ipam": "dhcp"}, {"network": "default/vlan9"}])
def test_a_service_without_an_address_may_change_its_mode_and_network(change):
    async def story(world):
        await world.map_networks(**{"default/vlan9": "eth1"})
        world.start()
        await world.serve()
        await world.settle(10)
        [old] = (await world.balancers()).values()
        await world.annotate(**change)
        await world.settle(10)
        [new] = (await world.balancers()).values()
        if "network" in change:
            await world.pool(cluster="*")
        await world.settle(200)
        return old, new, await world.address()

    old, new, address = run_story(story)

    assert old["metadata"]["uid"] != new["metadata"]["uid"]
    assert new["spec"]["ipam"] == change.get("ipam", "pool")
    assert annotations_of(new)[names.FIXED_NETWORK] == change.get("network", "")
    assert address is not None


def test_a_dhcp_service_without_a_lease_may_ask_for_a_pool():
    async def story(world):
        await world.pool(cluster="*")
        world.start()
        await world.serve(ipam="dhcp", **{names.VIP_IGNORE: "true"})
        await world.settle(10)
        await world.annotate(ipam="pool")
        await world.settle(20)
        [balancer] = (await world.balancers()).values()
        return balancer["spec"]["ipam"], await world.address()

    assert run_story(story) == ("pool", "10.1.0.10")


def test_the_event_for_a_missing_primary_names_no_service_of_another_namespace():
    async def story(world):
        await world.pool(last=20)
        for namespace in ("secret-team", "other-team"):
            await world.serve("shop", namespace)
        await world.serve("shop", "default")
        world.start()
        await world.serve("web", primary="elsewhere/shop")
        await world.settle(20)
        return await world.complaints()

    [complaint] = run_story(story)

    assert "primary service elsewhere/shop does not exist, but default/shop does" in complaint
    assert "team" not in complaint


def test_a_port_conflict_names_no_service_of_a_third_namespace():
    async def story(world):
        await world.pool(last=20)
        world.start()
        await world.serve("shop", "default", ports=(80,))
        await world.serve("theirs", "secret-team", ports=(81,), primary="default/shop")
        await world.settle(10)
        await world.serve("web", "mine", ports=(81,), primary="default/shop")
        await world.settle(20)
        return await world.complaints()

    [complaint] = run_story(story)

    assert "port 81 (TCP)" in complaint
    assert "secret-team" not in complaint
