"""What goes over the wire."""

from dataclasses import replace

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import PatchService, RemoveFinalizer, UpdateLoadBalancer
from windrow.cloudprovider.services.execute import (
    render_load_balancer,
    render_load_balancer_update,
    render_service_patch,
)
from windrow.cloudprovider.services.readings import Service, load_balancer_reader
from windrow.cloudprovider.services.state import ClusterSettings
from windrow.harvester import names as harvester_names

POLICY = ClusterSettings("demo", "host-ns", "default/mgmt")
WEB = Service(
    "default",
    "web",
    "d4b50d98-39ec-4d88-8098-36579de5db4a",
    version="7",
    is_load_balancer=True,
    finalizers=("acme.io/other",),
    network="default/vlan1",
    project="c-1/p-1",
    project_namespace="somewhere",
    pool="special",
)


def test_a_load_balancer_says_all_that_the_go_program_says_and_which_guest_had_it_made():
    assert render_load_balancer(WEB, POLICY, "guest-uid") == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {
            "name": POLICY.name_for(WEB),
            "namespace": "host-ns",
            "labels": {
                "cloudprovider.harvesterhci.io/cluster": "demo",
                "cloudprovider.harvesterhci.io/serviceNamespace": "default",
                "cloudprovider.harvesterhci.io/serviceName": "web",
            },
            "annotations": {
                "loadbalancer.harvesterhci.io/network": "default/vlan1",
                "loadbalancer.harvesterhci.io/project": "c-1/p-1",
                "loadbalancer.harvesterhci.io/namespace": "somewhere",
                "loadbalancer.harvesterhci.io/cluster": "demo",
                "cloudprovider.harvesterhci.io/lb-network": "default/vlan1",
                "cloudprovider.harvesterhci.io/managementNetwork": "default/mgmt",
                "windrow.io/guest-uid": "guest-uid",
            },
        },
        "spec": {"ipam": "pool", "workloadType": "cluster", "ipPool": "special"},
    }


def test_dhcp_takes_no_pool():
    spec = render_load_balancer(replace(WEB, ipam="dhcp"), POLICY)["spec"]

    assert spec == {"ipam": "dhcp", "workloadType": "cluster"}


def test_finalizers_of_others_stay_and_every_patch_rests_on_the_version_that_was_read():
    protected = render_service_patch(WEB, PatchService("", add_finalizer=True))["metadata"]
    marked = render_service_patch(WEB, PatchService("", annotations={"a": "b"}, labels={"c": None}))[
        "metadata"
    ]
    freed = replace(WEB, finalizers=("acme.io/other", names.FINALIZER))
    let_go = render_service_patch(freed, RemoveFinalizer("", load_balancer="lb"))["metadata"]
    last = render_service_patch(
        replace(WEB, finalizers=(names.FINALIZER,)), RemoveFinalizer("", load_balancer="lb")
    )["metadata"]

    assert protected == {"resourceVersion": "7", "finalizers": ["acme.io/other", names.FINALIZER]}
    assert marked == {"resourceVersion": "7", "annotations": {"a": "b"}, "labels": {"c": None}}
    assert let_go == {"resourceVersion": "7", "finalizers": ["acme.io/other"]}
    assert last == {"resourceVersion": "7", "finalizers": None}


def a_raw_balancer(cluster="demo"):
    return {
        "kind": "LoadBalancer",
        "metadata": {
            "name": "lb",
            "namespace": "host-ns",
            "resourceVersion": "3",
            "uid": "u",
            "managedFields": [{"manager": "someone"}],
            "labels": {harvester_names.LB_OF_CLUSTER: cluster},
            "annotations": {"theirs": "kept", names.MANAGEMENT_NETWORK: "x/y"},
            "unknown": True,
        },
        "spec": {"ipam": "pool", "novel": 1},
        "status": {"allocatedAddress": {"ip": "10.1.0.10"}},
    }


def test_a_load_balancer_goes_back_as_it_came_but_for_what_changed():
    raw = a_raw_balancer()
    balancer = load_balancer_reader("demo")(raw)
    change = UpdateLoadBalancer(balancer, "", {names.MANAGEMENT_NETWORK: None}, "special", "10.1.0.10")
    amended = render_load_balancer_update(change)

    assert amended["metadata"]["annotations"] == {"theirs": "kept"}
    assert amended["metadata"]["unknown"] is True
    assert amended["metadata"]["resourceVersion"] == "3"
    assert "managedFields" not in amended["metadata"]  # the server keeps them by itself
    assert amended["spec"] == {"ipam": "pool", "novel": 1, "ipPool": "special"}
    assert amended["status"] == {"allocatedAddress": {"ip": "10.1.0.10"}, "address": "10.1.0.10"}
    assert raw == a_raw_balancer()


def test_of_load_balancers_of_other_clusters_nothing_is_kept_but_whose_they_are():
    assert load_balancer_reader("demo")(a_raw_balancer("other")).raw == {}


def test_a_load_balancer_without_a_mark_gets_that_of_the_guest_and_one_that_has_another_keeps_it():
    mark = harvester_names.GUEST_UID
    for had, expected in (({}, "guest"), ({mark: "another"}, "another")):
        raw = a_raw_balancer()
        raw["metadata"]["annotations"] = dict(had)
        balancer = replace(load_balancer_reader("demo")(raw), raw=raw)
        changed = render_load_balancer_update(UpdateLoadBalancer(balancer, "it is", {"a": "b"}), "guest")
        assert changed["metadata"]["annotations"] == {mark: expected, "a": "b"}
        assert "a" not in raw["metadata"]["annotations"]
