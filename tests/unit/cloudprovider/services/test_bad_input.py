"""What cannot be done: one event on the service in words one can act on, the service untouched, nothing leaked."""

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.services.own_address import warn_of_annotations
from windrow.cloudprovider.services.readings import read_service
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import SERVICE

from .rig import protected, run_story


def one_complaint(*words, made=(), stocked=True, after=400, **rest):
    """The one event that a service with these annotations gets; it holds `words`. The world is given back, too."""

    async def story(world):
        if stocked:
            await world.pool()
        world.start(**rest.pop("options", {}))
        await world.settle()
        for name, more in made:
            await world.serve(name, **more)
            await world.settle()
        await world.serve("bad", **rest)
        await world.settle(after)
        service = await world.service("bad")
        return await world.complaints("bad"), service, await world.balancers()

    complaints, service, balancers = run_story(story)
    assert len(complaints) == 1, complaints
    for word in words:
        assert word in complaints[0]
    assert not annotations_of(service).get(names.VIP_ADDRESSES)
    return service, balancers


def untouched(service):
    return not protected(service) and "labels" not in service["metadata"]


def test_an_unknown_ipam_mode_is_refused_before_harvester_is_asked():
    service, balancers = one_complaint("'static'", "'pool'", "'dhcp'", ipam="static")

    assert untouched(service)
    assert balancers == {}


def test_an_unknown_pool_is_named():
    one_complaint("nowhere", names.IP_POOL, "fail to get allocator nowhere", pool="nowhere")


def test_no_matching_pool_says_what_a_pool_must_match():
    one_complaint("Cluster:demo", "widen the scope", stocked=False)


def test_an_empty_pool_is_like_a_full_one():
    async def story(world):
        await world.pool(first=1, last=1)  # the gateway
        world.start()
        await world.serve()
        await world.settle(400)
        return await world.complaints()

    complaints = run_story(story)
    assert len(complaints) == 1
    assert "no IP addresses available in range set: 10.1.0.1-10.1.0.1" in complaints[0]


def test_a_full_pool_says_how_to_get_room_and_nothing_is_created_or_deleted_meanwhile():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("first")
        await world.settle()
        world.writes()
        await world.serve()
        await world.settle(600)
        waiting = (await world.complaints(), world.writes(), await world.held())
        await world.widen(20)
        await world.until(world.address, 130)
        await world.settle()
        return *waiting, await world.address(), world.writes()

    complaints, meanwhile, held, address, afterwards = run_story(story)
    assert len(complaints) == 1
    assert "widen its range" in complaints[0]
    assert meanwhile == {"guest PATCH services": 1, "host POST loadbalancers": 1, "guest POST events": 2}
    assert len(held) == 1
    assert address == "10.1.0.11"
    assert "host DELETE loadbalancers" not in afterwards


def test_a_full_pool_is_left_when_the_service_names_another():
    async def story(world):
        await world.pool(last=10)
        await world.pool("other", first=50, last=60, cluster="absent")
        world.start()
        await world.serve("first")
        await world.settle()
        await world.serve()
        await world.settle(100)
        await world.annotate(pool="other")
        await world.settle(35)
        return await world.address(), await world.held("other")

    address, held = run_story(story)
    assert address == "10.1.0.50"
    assert len(held) == 1


PRIMARY = [("web", {})]


@pytest.mark.parametrize(
    ("primary", "words"),
    [
        ("default/absent", "primary service default/absent does not exist"),
        ("absent", "primary service default/absent does not exist"),
        ("other/web", "primary service other/web does not exist, but default/web does"),
        ("bad", "names itself"),
        ("default/bad", "names itself"),
        ("a/b/c", "invalid service name a/b/c"),
        ("/web", "invalid service name /web"),
        ("web/", "invalid service name web/"),
        ("second", "service default/second is not a primary service"),
        ("inner", "default/inner is not of type LoadBalancer"),
        ("foreign", "loadBalancerClass 'acme.io/balancer'"),
    ],
)
def test_a_primary_that_cannot_be_one_is_refused(primary, words):
    made = [
        *PRIMARY,
        ("second", {"primary": "web", "ports": (81,)}),
        ("inner", {"spec": {"type": "ClusterIP"}}),
        ("foreign", {"spec": {"loadBalancerClass": "acme.io/balancer"}}),
    ]
    service, balancers = one_complaint(words, names.PRIMARY_SERVICE, made=made, primary=primary, ports=(82,))

    assert untouched(service)
    assert len(balancers) == 1


def test_a_port_that_is_taken_at_the_shared_address_is_refused():
    made = [*PRIMARY, ("second", {"primary": "web", "ports": (81, 82)})]
    service, balancers = one_complaint(
        "port 82 (TCP) has been used in service default/second", made=made, primary="web", ports=(82,)
    )

    assert untouched(service)
    assert len(balancers) == 1


def test_a_network_that_no_map_has_is_refused_before_harvester_is_asked():
    async def story(world):
        await world.pool()
        await world.map_networks(**{"default/vlan1": "enp1s0"})
        world.start()
        await world.serve(network="default/vlan2")
        await world.settle(400)
        first = await world.complaints(), await world.balancers(), await world.service()
        await world.map_networks(**{"default/vlan2": "enp2s0"})
        await world.settle()
        return *first, (await world.service())["metadata"]["annotations"]

    complaints, balancers, service, annotations = run_story(story)
    assert len(complaints) == 1
    assert "network default/vlan2 not found in NAD mapping for service default/web" in complaints[0]
    assert "default/vlan1" in complaints[0]
    assert balancers == {}
    assert untouched(service)
    assert annotations[names.VIP_INTERFACE] == "enp2s0"
    assert annotations[names.VIP_ADDRESSES] == "10.1.0.10"


def test_an_empty_map_is_another_fault_and_none_at_all_is_none():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("early", network="default/vlan1")
        await world.settle()
        await world.map_networks()
        await world.serve(network="default/vlan1")
        await world.settle(400)
        return await world.address("early"), await world.complaints("early"), await world.complaints()

    early, silence, complaints = run_story(story)
    assert early == "10.1.0.10"
    assert silence == []
    assert len(complaints) == 1
    assert "there is no common NAD mapping: kube-system/harvester-nad-mapping is empty" in complaints[0]


def test_without_a_lease_one_event_names_both_causes_after_a_minute():
    async def story(world):
        world.vip.answers_dhcp = False
        world.start()
        await world.serve(ipam="dhcp")
        await world.settle(55)
        early = await world.complaints()
        await world.settle(400)
        return early, await world.complaints(), await world.address()

    early, complaints, address = run_story(story)
    assert early == []
    assert len(complaints) == 1
    assert "no DHCP server" in complaints[0]
    assert "macvlan" in complaints[0]
    assert address == "0.0.0.0"


def test_an_address_that_kube_vip_does_not_announce_is_complained_about_after_a_minute():
    async def story(world):
        world.vip.works = False
        await world.pool()
        world.start()
        await world.serve()
        await world.serve("quiet", **{"kube-vip.io/ignore": "true"})
        await world.settle(400)
        return await world.complaints(), await world.complaints("quiet")

    complaints, quiet = run_story(story)
    assert len(complaints) == 1
    assert "kube-vip does not announce 10.1.0.1" in complaints[0]
    assert quiet == []


def refusal(status, reason, message):
    body = f'{{"kind":"Status","status":"Failure","reason":"{reason}","message":"{message}","code":{status}}}'
    return Reply(status, body.encode())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(401, "Unauthorized", "Unauthorized"), "does not accept the credential of the cloud config"),
        (refusal(403, "Forbidden", "loadbalancers is forbidden"), "in namespace default of Harvester"),
    ],
)
def test_a_credential_that_harvester_refuses_is_told_once_and_its_cure_is_noticed(reply, words):
    async def story(world):
        await world.pool()
        world.host_cable.refuse(reply)
        world.start()
        await world.serve()
        await world.settle(1000)
        complaints, service = await world.complaints(), await world.service()
        world.host_cable.mend()
        await world.settle(70)
        return complaints, service, await world.address()

    complaints, service, address = run_story(story)
    assert len(complaints) == 1
    assert words in complaints[0]
    assert untouched(service)
    assert address == "10.1.0.10"


def test_a_credential_that_expires_touches_no_settled_service():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("settled")
        await world.settle()
        world.host_cable.refuse(refusal(401, "Unauthorized", "Unauthorized"))
        await world.settle(1)
        world.writes()
        await world.annotate("settled", colour="blue")
        await world.serve("new")
        await world.settle(600)
        return await world.complaints("settled"), await world.complaints("new"), world.writes()

    settled, new, writes = run_story(story)
    assert settled == []
    assert len(new) == 1
    assert writes == {"guest POST events": 1, "guest PATCH services": 1}  # the new one stalls no other


def test_an_empty_cluster_name_is_refused_and_services_can_still_go():
    async def story(world):
        await world.pool(cluster="*")
        world.start(cluster="")
        await world.serve()
        await world.guest.patch(
            SERVICE.ref("web", "default"), {"metadata": {"finalizers": [names.FINALIZER]}}
        )
        await world.settle(400)
        complaints, balancers = await world.complaints(), await world.balancers()
        await world.delete()
        await world.settle()
        return complaints, balancers, await world.is_gone()

    complaints, balancers, gone = run_story(story)
    assert len(complaints) == 1
    assert "--cluster-name" in complaints[0]
    assert balancers == {}
    assert gone


def test_the_default_cluster_name_works_and_is_warned_of_loudly():
    async def story(world):
        await world.pool(cluster="*")
        world.start(cluster="kubernetes")
        await world.serve()
        await world.settle()
        return await world.address(), await world.events(reason="ClusterNameMissing")

    address, events = run_story(story)
    assert address == "10.1.0.10"
    assert len(events) == 1
    assert "--cluster-name" in events[0][1]


def test_a_cluster_name_that_no_object_can_have_is_refused():
    service, balancers = one_complaint("'My_Cluster'", "--cluster-name", options={"cluster": "My_Cluster"})

    assert untouched(service)
    assert balancers == {}


def test_annotations_that_mean_nothing_any_more_are_named_once_with_what_to_use():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve(**{names.REMOVED_SERVICE_KEYS[0]: "8080"})
        await world.settle()
        first = await world.events(reason="IgnoredAnnotations")
        await world.restart()
        await world.settle()
        again = await world.events(reason="IgnoredAnnotations")
        await world.annotate(**{names.REMOVED_SERVICE_KEYS[1]: "2"})
        await world.settle()
        return first, again, await world.events(reason="IgnoredAnnotations")

    first, again, more = run_story(story)
    assert len(first) == 1
    assert "healthcheck-port" in first[0][1]
    assert "readiness" in first[0][1]
    assert again == first
    assert len(more) == 2
    assert "success-threshold" in more[1][1]
    assert "healthcheck-port" not in more[1][1]


def test_a_misspelt_annotation_is_named_once_with_the_one_that_was_probably_meant():
    misspelt = {
        "cloudprovider.harvesterhci.io/ipma": "dhcp",
        "windrow.io/ippool": "p",
        "windrow.io/healthcheck": "x",
        "cloudprovider.harvesterhci.io/IPAM-mode": "dhcp",
        # Of others, and by us for kube-vip.
        "harvesterhci.io/ipam": "dhcp",
        "example.org/ipam": "dhcp",
    }

    async def story(world):
        await world.pool()
        world.start()
        await world.serve(**misspelt)
        await world.settle()
        first = await world.events(reason="UnknownAnnotations")
        await world.restart()
        await world.settle()
        again = await world.events(reason="UnknownAnnotations")
        await world.annotate(**{"cloudprovider.harvesterhci.io/projct": "p"})
        await world.settle()
        return first, again, await world.events(reason="UnknownAnnotations")

    first, again, more = run_story(story)
    assert len(first) == 1
    assert first[0][1] == (
        "Without effect, since no Service has them: cloudprovider.harvesterhci.io/IPAM-mode (did you mean "
        "cloudprovider.harvesterhci.io/ipam?); cloudprovider.harvesterhci.io/ipma (did you mean "
        "cloudprovider.harvesterhci.io/ipam?); windrow.io/healthcheck (remove it); windrow.io/ippool (did you mean "
        "windrow.io/ip-pool?)"
    )
    assert again == first
    assert [text for _, text in more[1:]] == [
        "Without effect, since no Service has them: cloudprovider.harvesterhci.io/projct (did you mean "
        "cloudprovider.harvesterhci.io/project?)"
    ]


def test_an_annotation_that_is_written_as_a_label_is_told():
    labels = {"windrow.io/ip-pool": "p", names.PRIMARY_SERVICE: "web", "tier": "db"}
    service = read_service({"metadata": {"name": "web", "namespace": "default", "labels": labels}})

    (told,) = warn_of_annotations(service.ignored_annotations)

    assert told.reason == "UnknownAnnotations"
    assert told.message == (
        "Without effect, since no Service has them: label windrow.io/ip-pool (write it as an annotation)"
    )


def test_annotations_of_before_and_misspelt_ones_have_an_event_each():
    both = names.REMOVED_SERVICE_KEYS[0], "windrow.io/ippool"

    ignored, unknown = warn_of_annotations(both)

    assert (ignored.reason, unknown.reason) == ("IgnoredAnnotations", "UnknownAnnotations")
    assert "ippool" not in ignored.message
    assert "healthcheck" not in unknown.message
    assert [one.reason for one in warn_of_annotations(both[1:])] == ["UnknownAnnotations"]
    assert warn_of_annotations(()) == []


def test_what_a_service_may_have_is_not_without_effect():
    known = dict.fromkeys((*names.SERVICE_KEYS, names.AWAITS_ADDRESS, names.VIP_ADDRESSES), "")

    service = read_service({"metadata": {"name": "web", "namespace": "default", "annotations": known}})

    assert service.ignored_annotations == ()


def test_of_many_annotations_without_effect_twenty_are_named():
    annotations = {names.REMOVED_SERVICE_KEYS[0]: "80"} | {f"windrow.io/x{n:03}": "" for n in range(100)}

    service = read_service({"metadata": {"name": "web", "namespace": "default", "annotations": annotations}})

    assert service.ignored_annotations == (
        names.REMOVED_SERVICE_KEYS[0],
        *(f"windrow.io/x{n:03}" for n in range(20)),
    )


def test_an_address_that_was_wished_for_and_not_given_is_told_with_how_to_fix_one():
    async def story(world):
        await world.pool()
        await world.pool("one", first=99, last=99, cluster="absent")
        world.start()
        await world.serve(spec={"loadBalancerIP": "10.1.0.99"})
        await world.serve("fixed", spec={"loadBalancerIP": "10.1.0.99"}, pool="one")
        await world.settle()
        return (
            await world.address(),
            await world.events(reason="AddressNotAsRequested"),
            await world.address("fixed"),
            await world.events("fixed", "AddressNotAsRequested"),
        )

    address, events, fixed, silence = run_story(story)
    assert address == "10.1.0.10"
    assert len(events) == 1
    assert "10.1.0.99" in events[0][1]
    assert names.IP_POOL in events[0][1]
    assert fixed == "10.1.0.99"
    assert silence == []
