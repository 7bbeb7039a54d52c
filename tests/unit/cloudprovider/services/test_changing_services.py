"""Services that change while they live, and load balancers that others meddle with."""

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.names import load_balancer_name
from windrow.emulator import kinds
from windrow.harvester import names as harvester_names
from windrow.kubernetes.errors import AdmissionDenied
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, new_object, uid_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import EVENT, SERVICE

from .rig import ingress, protected, run_story

WEB = SERVICE.ref("web", "default")


async def settled(world, **rest):
    await world.pool()
    world.start()
    await world.serve(**rest)
    await world.settle()
    world.writes()


def test_a_change_of_the_ipam_mode_is_refused_without_asking_harvester():
    async def story(world):
        await settled(world)
        await world.annotate(ipam="dhcp")
        await world.settle(100)
        refused = await world.complaints(), world.writes(), await world.address()
        await world.annotate(ipam="pool")
        await world.settle()
        afterwards = world.writes()
        await world.annotate(ipam="dhcp")
        await world.settle()
        return *refused, afterwards, world.writes()

    complaints, writes, address, afterwards, again = run_story(story)
    assert len(complaints) == 1
    assert "from pool to dhcp" in complaints[0]
    assert writes == {"guest POST events": 1}
    assert address == "10.1.0.10"
    assert afterwards == {"guest PATCH events": 1}  # the service is ensured, once more
    assert again == {"guest PATCH events": 1}  # what was solved and comes back is news


def test_a_change_of_the_network_is_refused_without_asking_harvester():
    async def story(world):
        await world.map_networks(**{"default/vlan1": "enp1s0", "default/vlan2": "enp2s0"})
        await settled(world, network="default/vlan1")
        await world.annotate(network="default/vlan2")
        await world.settle(100)
        return await world.complaints(), world.writes(), annotations_of(await world.service())

    complaints, writes, annotations = run_story(story)
    assert len(complaints) == 1
    assert "'default/vlan1'" in complaints[0]
    assert writes == {"guest POST events": 1}
    assert annotations[names.VIP_INTERFACE] == "enp1s0"


def test_a_load_balancer_of_an_old_release_is_taken_as_it_is_and_learns_its_network():
    async def story(world):
        await world.map_networks(**{"default/vlan1": "enp1s0"})
        await settled(world, network="default/vlan1")
        balancer = await world.balancer()
        ref = kinds.LOAD_BALANCER.ref(name_of(balancer), "default")
        await world.harvester.patch(ref, {"metadata": {"annotations": {names.FIXED_NETWORK: None}}})
        await world.settle()
        return await world.complaints(), world.writes(), annotations_of(await world.balancer())

    complaints, writes, annotations = run_story(story)
    assert complaints == []
    assert writes == {"host PUT loadbalancers": 1}
    assert annotations[names.FIXED_NETWORK] == "default/vlan1"


def test_an_interface_follows_the_map_and_survives_its_loss():
    async def story(world):
        await world.map_networks(**{"default/vlan1": "enp1s0"})
        await settled(world, network="default/vlan1")
        await world.map_networks(**{"default/vlan1": "enp7s0"})
        await world.settle()
        moved = annotations_of(await world.service())[names.VIP_INTERFACE]
        await world.map_networks()
        await world.settle()
        return moved, annotations_of(await world.service())[names.VIP_INTERFACE], await world.complaints()

    assert run_story(story) == ("enp7s0", "enp7s0", [])


def test_an_address_that_kube_vip_keeps_for_another_type_stays_reserved_until_it_let_go():
    async def story(world):
        await settled(world)
        await world.guest.patch(WEB, {"spec": {"type": "ClusterIP"}})
        await world.settle(400)
        kept, complaints = await world.held(), await world.complaints()
        await world.annotate(addresses=None, **dict.fromkeys(names.VIP_STATUS_KEYS))  # as the event says
        await world.settle()
        plain = await world.service()
        return kept, complaints, await world.held(), annotations_of(plain), protected(plain)

    kept, complaints, held, annotations, is_protected = run_story(story)
    assert list(kept) == ["10.1.0.10"]
    assert len(complaints) == 1
    assert "kubectl -n kube-system rollout restart daemonset kube-vip" in complaints[0]
    assert "annotate service web kube-vip.io/loadbalancerIPs- kube-vip.io/vipHost-" in complaints[0]
    assert (held, annotations, is_protected) == ({}, {}, False)


def test_a_service_that_is_no_load_balancer_any_more_keeps_no_trace_and_can_become_one_again():
    async def story(world):
        await settled(world)
        await world.guest.patch(WEB, {"spec": {"type": "ClusterIP"}, "metadata": {"finalizers": None}})
        await world.guest.patch(WEB, {"metadata": {"finalizers": [names.FINALIZER, "acme.io/other"]}})
        await world.annotate(addresses=None, **dict.fromkeys(names.VIP_STATUS_KEYS))
        await world.settle()
        plain, held = await world.service(), await world.held()
        await world.guest.patch(WEB, {"spec": {"type": "LoadBalancer"}})
        await world.settle()
        return plain, held, ingress(await world.service())

    plain, held, again = run_story(story)
    assert annotations_of(plain) == {}
    assert plain["metadata"]["finalizers"] == ["acme.io/other"]
    assert ingress(plain) == []
    assert held == {}
    assert again == ["10.1.0.10"]  # Harvester remembers who had it


def test_a_service_of_another_class_is_not_ours():
    async def story(world):
        await settled(world, spec={"loadBalancerClass": "acme.io/balancer"})
        await world.guest.patch(WEB, {"metadata": {"finalizers": [names.FINALIZER]}})
        await world.settle()
        return world.writes(), await world.balancers(), protected(await world.service())

    assert run_story(story) == ({}, {}, True)


def test_a_service_that_took_a_class_gives_its_address_back_and_keeps_the_others_finalizer():
    async def story(world):
        await settled(world)
        await world.stop()
        change = {"spec": {"type": "ClusterIP"}}
        await world.guest.patch(WEB, change)
        change = {"spec": {"type": "LoadBalancer", "loadBalancerClass": "acme.io/balancer"}}
        await world.guest.patch(WEB, change)
        world.start()
        await world.settle()
        service = await world.service()
        await world.delete()
        await world.settle()
        return service, await world.held(), await world.is_gone()

    service, held, gone = run_story(story)
    assert names.VIP_ADDRESSES not in annotations_of(service)
    assert protected(service)
    assert held == {}
    assert gone


def test_a_service_that_is_made_anew_gets_the_only_address_of_its_pool_again():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve()
        await world.settle()
        await world.stop()
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.serve()
        world.start()
        await world.settle()
        return await world.address(), await world.held(), await world.balancer(), await world.balancers()

    address, held, balancer, balancers = run_story(story)
    assert address == "10.1.0.10"
    assert held == {"10.1.0.10": f"default/{name_of(balancer)}"}
    assert list(balancers) == [name_of(balancer)]


@pytest.mark.parametrize("holds", ["a webhook", "a finalizer"])
def test_a_leftover_that_cannot_go_is_named_and_not_waited_for_without_end(holds):
    async def story(world):
        async def refuse(operation):
            if operation.kind == kinds.LOAD_BALANCER and operation.verb == "delete":
                raise AdmissionDenied("no")

        await settled(world)
        old = await world.balancer()
        if holds == "a webhook":
            world.host_api.admission.append(refuse)
        else:
            held = [*old["metadata"]["finalizers"], "acme.io/hold"]
            ref = kinds.LOAD_BALANCER.ref(name_of(old), "default")
            await world.harvester.patch(ref, {"metadata": {"finalizers": held}})
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.serve()
        await world.settle(80)
        return await world.address(), name_of(old), await world.complaints()

    address, old, complaints = run_story(story)
    assert address == "10.1.0.11"
    assert all(old in one for one in complaints)
    assert bool(complaints) == (holds == "a webhook")


def test_a_change_of_pool_takes_the_old_address_off_the_network_first():
    async def story(world):
        await settled(world, pool="pool")
        await world.pool("other", first=50, last=60, cluster="absent")
        await world.annotate(pool="other")

        async def is_free():
            return not await world.held()

        await world.until(is_free)
        at_once = await world.address(), ingress(await world.service())
        await world.settle()
        return at_once, await world.address()

    (address, shown), later = run_story(story)
    assert address in ("", "10.1.0.50")
    assert shown in ([], ["10.1.0.50"])
    assert later == "10.1.0.50"


def test_an_address_that_hangs_in_deletion_is_announced_no_longer_than_it_is_reserved():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve()
        await world.settle()
        await world.serve("next")
        balancer = await world.balancer()
        ref = kinds.LOAD_BALANCER.ref(name_of(balancer), "default")
        held = [*balancer["metadata"]["finalizers"], "acme.io/hold"]
        await world.harvester.patch(ref, {"metadata": {"finalizers": held}})
        await world.harvester.delete(ref)
        await world.settle(400)
        return await world.address(), ingress(await world.service()), await world.address("next")

    assert run_story(story) == ("", [], "10.1.0.10")


def test_without_its_own_mark_a_guest_deletes_nothing_by_labels():
    async def story(world):
        await world.pool()
        name = load_balancer_name("demo", "default", "web", "another-uid")
        labels = {
            harvester_names.LB_OF_CLUSTER: "demo",
            harvester_names.LB_OF_NAMESPACE: "default",
            harvester_names.LB_OF_SERVICE: "web",
        }
        for one in (name, "by-another-name"):
            mark = (
                {} if one == name else {harvester_names.GUEST_UID: uid_of(await world.service("kubernetes"))}
            )
            spec = {"ipam": "pool", "workloadType": "cluster"}
            raw = new_object(kinds.LOAD_BALANCER, one, "default", labels=labels, annotations=mark, spec=spec)
            await world.harvester.create(kinds.LOAD_BALANCER, raw)
        await world.guest.delete(SERVICE.ref("kubernetes", "default"))
        world.start()
        await world.serve()
        await world.settle(100)
        return {name, "by-another-name"} <= set(await world.balancers())

    assert run_story(story)


def test_a_service_that_is_made_anew_is_known_also_where_labels_tell_no_clusters_apart():
    async def story(world):
        await world.pool(last=10, cluster="*")
        world.start(cluster="kubernetes")
        await world.serve()
        await world.settle()
        foreign = await world.balancer(cluster="kubernetes")
        foreign["metadata"] = {
            "name": "kubernetes-default-web-00000000",
            "namespace": "default",
            "labels": labels_of(foreign),
        }
        await world.harvester.create(kinds.LOAD_BALANCER, foreign)
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.serve()
        await world.settle(40)
        return sorted(await world.balancers()), name_of(await world.balancer(cluster="kubernetes"))

    found, own = run_story(story)
    assert found == sorted(["kubernetes-default-web-00000000", own])


@pytest.mark.parametrize("mark", [None, "another-guest"])
def test_a_leftover_that_another_cluster_of_our_name_may_have_made_is_left_alone(mark):
    async def story(world):
        await world.pool()
        said = {harvester_names.GUEST_UID: mark} if mark else {}
        raw = new_object(
            kinds.LOAD_BALANCER,
            "demo-default-web-00000000",
            "default",
            labels={
                harvester_names.LB_OF_CLUSTER: "demo",
                harvester_names.LB_OF_NAMESPACE: "default",
                harvester_names.LB_OF_SERVICE: "web",
            },
            annotations={names.LB_CLUSTER: "demo", **said},
            spec={"ipam": "pool", "workloadType": "cluster"},
        )
        await world.harvester.create(kinds.LOAD_BALANCER, raw)
        world.start()
        await world.serve()
        await world.settle()
        await world.delete()
        await world.settle()
        return list(await world.balancers())

    assert run_story(story) == ["demo-default-web-00000000"]


def test_a_primary_that_is_made_anew_keeps_its_old_address_reserved_until_the_secondaries_left_it():
    async def story(world):
        await settled(world)
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        world.vip.works = False
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.serve()
        await world.settle()
        before = await world.address("one"), sorted(await world.held())
        world.vip.works = True
        await world.annotate(nudge="kube-vip")
        await world.settle()
        return before, await world.address("one"), sorted(await world.held())

    before, address, held = run_story(story)
    assert before == ("10.1.0.10", ["10.1.0.10", "10.1.0.11"])
    assert address == "10.1.0.11"
    assert held == ["10.1.0.11"]


def test_a_primary_that_is_made_anew_gets_the_only_address_although_secondaries_show_it():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve()
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.serve()
        await world.settle(60)
        return await world.address(), await world.address("one")

    assert run_story(story) == ("10.1.0.10", "10.1.0.10")


@pytest.mark.parametrize("knows", [True, False])
def test_a_service_that_went_while_harvester_was_away_leaves_no_load_balancer(knows):
    async def story(world):
        await settled(world)
        world.host_cable.cut()
        await world.settle(1)
        if not knows:
            await world.restart()
            await world.settle(1)
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.settle(60)
        world.host_cable.mend()
        await world.settle(70)
        return await world.balancers()

    assert run_story(story) == {}


def test_a_service_that_went_without_waiting_for_us_leaves_no_load_balancer():
    async def story(world):
        await settled(world)
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete()
        await world.settle()
        return await world.balancers()

    assert run_story(story) == {}


def test_the_finalizer_comes_back_when_it_is_removed_from_a_living_service():
    async def story(world):
        await settled(world)
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.settle()
        return protected(await world.service()), world.writes()

    assert run_story(story) == (True, {"guest PATCH services": 1})


def test_a_service_takes_its_name_when_the_load_balancer_of_another_owner_goes():
    async def story(world):
        await world.pool()
        service = await world.serve()
        name = load_balancer_name("demo", "default", "web", uid_of(service))
        raw = new_object(
            kinds.LOAD_BALANCER, name, "default", spec={"ipam": "pool", "workloadType": "cluster"}
        )
        await world.harvester.create(kinds.LOAD_BALANCER, raw)
        world.start()
        await world.settle()
        before = await world.address()
        await world.harvester.delete(kinds.LOAD_BALANCER.ref(name, "default"))
        await world.settle()
        return before, bool(await world.address())

    assert run_story(story) == ("", True)


def test_a_load_balancer_of_another_owner_is_neither_used_nor_deleted():
    async def story(world):
        await world.pool()
        service = await world.serve()
        name = load_balancer_name("demo", "default", "web", uid_of(service))
        raw = new_object(
            kinds.LOAD_BALANCER,
            name,
            "default",
            labels={"cloudprovider.harvesterhci.io/cluster": "theirs"},
            spec={"ipam": "pool", "workloadType": "cluster"},
        )
        await world.harvester.create(kinds.LOAD_BALANCER, raw)
        world.start()
        await world.settle(100)
        complaints, before = await world.complaints(), protected(await world.service())
        await world.guest.patch(WEB, {"metadata": {"finalizers": [names.FINALIZER]}})
        await world.delete()
        await world.settle()
        left = list(await world.balancers())
        return complaints, before, await world.is_gone(), left == [name]

    complaints, before, gone, left = run_story(story)
    assert len(complaints) == 1
    assert "cluster 'theirs'" in complaints[0]
    assert not before
    assert gone
    assert left


def test_a_load_balancer_that_was_deleted_is_made_again_with_its_address():
    async def story(world):
        await settled(world)
        ref = kinds.LOAD_BALANCER.ref(name_of(await world.balancer()), "default")
        await world.harvester.delete(ref)
        await world.settle()
        return await world.address(), (await world.balancer())["status"]["address"], await world.complaints()

    assert run_story(story) == ("10.1.0.10", "10.1.0.10", [])


async def last_word(world, name="web"):
    """As `kubectl describe` has it: what happened again comes last."""
    found = [raw for raw in await world.guest.list(EVENT) if raw["involvedObject"]["name"] == name]
    return sorted(found, key=lambda raw: raw["lastTimestamp"])[-1]["reason"]


async def back_and_forth(world):
    await world.annotate(ipam="dhcp")
    await world.settle()
    assert await last_word(world) == "SyncLoadBalancerFailed"
    await world.annotate(ipam="pool")


async def wanted_by_others_still(world):
    await world.serve("one", primary="web", ports=(81,))
    await world.settle()
    await world.guest.patch(WEB, {"spec": {"type": "ClusterIP"}})
    await world.settle()
    assert await last_word(world) == "SyncLoadBalancerFailed"
    await world.guest.patch(WEB, {"spec": {"type": "LoadBalancer"}})


async def deleted_on_harvester(world):
    await world.harvester.delete(kinds.LOAD_BALANCER.ref(name_of(await world.balancer()), "default"))


async def harvester_refused(world):
    body = b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"no","code":403}'
    world.host_cable.refuse(Reply(403, body))
    await world.annotate(pool="pool")
    await world.settle(30)
    assert await last_word(world) == "SyncLoadBalancerFailed"
    world.host_cable.mend()
    await world.settle(400)


@pytest.mark.parametrize(
    "trouble", [back_and_forth, wanted_by_others_still, deleted_on_harvester, harvester_refused]
)
def test_a_problem_that_is_over_is_not_the_last_word(trouble):
    async def story(world):
        await settled(world)
        await trouble(world)
        await world.settle()
        last = await last_word(world)
        world.writes()
        await world.annotate(colour="blue")
        await world.settle(100)
        return last, world.writes(), await world.address()

    assert run_story(story) == ("EnsuredLoadBalancer", {}, "10.1.0.10")


def test_a_pool_that_is_corrected_is_not_blamed_for_the_one_before():
    async def story(world):
        await world.pool("good", cluster="absent")
        world.start()
        await world.serve(pool="nowhere")
        await world.settle()
        before = await world.complaints()
        await world.annotate(pool="good")
        await world.settle(60)
        return before, await world.complaints(), await world.address(), await last_word(world)

    before, complaints, address, last = run_story(story)
    assert len(before) == 1
    assert complaints == before
    assert address == "10.1.0.10"
    assert last == "EnsuredLoadBalancer"


def test_a_wrong_pool_that_is_taken_back_leaves_the_choice_to_harvester():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve(pool="nowhere")
        await world.settle()
        before = await world.complaints()
        await world.annotate(pool=None)
        await world.settle(60)
        balancer = await world.balancer()
        return before, await world.complaints(), await world.address(), balancer["spec"]

    before, complaints, address, spec = run_story(story)
    assert len(before) == 1
    assert complaints == before
    assert address == "10.1.0.10"
    assert spec == {"ipam": "pool", "workloadType": "cluster"}


def test_a_wish_that_comes_later_is_answered_once():
    async def story(world):
        await settled(world)
        await world.guest.patch(WEB, {"spec": {"loadBalancerIP": "10.1.0.99"}})
        await world.settle()
        told, writes = await world.events(reason="AddressNotAsRequested"), world.writes()
        await world.annotate(colour="blue")
        await world.restart()
        await world.settle(100)
        again = world.writes()
        await world.guest.patch(WEB, {"spec": {"loadBalancerIP": "10.1.0.10"}})
        await world.settle()
        return told, writes, again, world.writes()

    told, writes, again, met = run_story(story)
    assert len(told) == 1
    assert "10.1.0.99" in told[0][1]
    assert writes == {"guest POST events": 1}
    assert again == {}
    assert met == {}


def test_a_pool_in_mode_dhcp_is_told_to_be_without_effect():
    async def story(world):
        world.start()
        await world.serve(ipam="dhcp", pool="special")
        await world.settle(20)
        return await world.events(reason="AddressNotAsRequested"), ingress(await world.service())

    told, addresses = run_story(story)
    assert len(told) == 1
    assert "special" in told[0][1]
    assert addresses == ["192.168.50.100"]


def test_what_the_pool_moved_is_brought_to_the_service():
    async def story(world):
        await settled(world)
        await world.pool("other", first=50, last=60, cluster="absent")
        await world.annotate(pool="other")
        await world.settle()
        balancer = await world.balancer()
        return await world.address(), balancer["status"]["address"], await world.held()

    assert run_story(story) == ("10.1.0.50", "10.1.0.50", {})


def test_several_addresses_are_all_told_and_all_shared():
    async def story(world):
        await settled(world)
        ref = kinds.LOAD_BALANCER.ref(name_of(await world.balancer()), "default")
        both = {"status": {"allocatedAddress": {"ip": "10.1.0.10, fd00::10"}}}
        await world.harvester.patch(ref, both)
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        return await world.address(), ingress(await world.service()), await world.address("one")

    assert run_story(story) == ("10.1.0.10,fd00::10", ["10.1.0.10", "fd00::10"], "10.1.0.10,fd00::10")


def test_what_does_not_concern_addresses_is_left_alone():
    async def story(world):
        spec = {"externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP"}
        await settled(world, spec=spec, ports=(80, ("UDP", 53)))
        before = await world.service()
        change = {"spec": {"sessionAffinity": "None", "ports": before["spec"]["ports"][:1]}}
        await world.guest.patch(WEB, change)
        await world.settle()
        return before["spec"], world.writes()

    spec, writes = run_story(story)
    assert spec["externalTrafficPolicy"] == "Local"
    assert spec["sessionAffinity"] == "ClientIP"
    assert writes == {}


def test_a_value_that_harvester_puts_its_own_in_place_of_is_not_sent_for_ever():
    async def story(world):
        async def overwrite(operation):
            if operation.kind == kinds.LOAD_BALANCER and operation.object:
                annotations_of(operation.object)[names.LB_CLUSTER] = "other"

        await world.pool(cluster="*")
        world.host_api.admission.append(overwrite)
        world.start()
        await world.serve()
        await world.settle(100)
        return world.calls["host PUT loadbalancers"]

    assert run_story(story) <= 3


def test_an_annotation_without_effect_that_is_added_later_gets_an_event():
    async def story(world):
        await settled(world)
        await world.annotate(**{names.REMOVED_SERVICE_KEYS[0]: "80"})
        await world.settle()
        return await world.events(reason="IgnoredAnnotations")

    assert len(run_story(story)) == 1


def test_an_annotation_without_effect_gets_its_event_also_after_a_reconcile_that_failed():
    async def story(world):
        await settled(world)
        world.guest_cable.denies = "PATCH services"
        both = {names.VIP_ADDRESSES: None, names.REMOVED_SERVICE_KEYS[0]: "80"}
        await world.annotate(**both)
        await world.settle()
        world.guest_cable.denies = ""
        await world.settle(30)
        return await world.address(), await world.events(reason="IgnoredAnnotations")

    address, events = run_story(story)
    assert address == "10.1.0.10"
    assert len(events) == 1


def test_an_observation_changes_nothing():
    async def story(world):
        await settled(world)
        index = world.provider._index
        index.records.clear()
        first, second = index.observe(WEB), index.observe(WEB)
        return first.service.name, first == second, index.records

    assert run_story(story) == ("web", True, {})
