"""What is read from the network map, and whose a LoadBalancer is."""

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.services.readings import (
    is_of_service,
    load_balancer_reader,
    read_interfaces,
    read_service,
)
from windrow.emulator import kinds
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SERVICE

UID = "d4b50d98-39ec-4d88-8098-36579de5db4a"
LABELS = "cloudprovider.harvesterhci.io"


@pytest.mark.parametrize(
    ("data", "interfaces"),
    [
        ({names.NETWORK_MAP_KEY: '{"default/vlan1": "enp1s0"}'}, {"default/vlan1": "enp1s0"}),
        ({names.NETWORK_MAP_KEY: '{"a": "enp1s0", "b": "", "c": 7, "d": null}'}, {"a": "enp1s0"}),
        ({names.NETWORK_MAP_KEY: ""}, {}),
        ({names.NETWORK_MAP_KEY: "["}, {}),
        ({names.NETWORK_MAP_KEY: '["a"]'}, {}),
        ({names.NETWORK_MAP_KEY: None}, {}),
        ({"another": '{"default/vlan1": "enp1s0"}'}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_the_network_map_is_what_can_be_understood_of_it(data, interfaces):
    assert read_interfaces({"data": data}) == interfaces


@pytest.mark.parametrize(
    ("differs", "is_its_own"),
    [
        ({}, True),
        ({"cluster": "former"}, True),
        ({"namespace": "other"}, False),
        ({"service": "api"}, False),
        ({"uid": "of-a-namesake"}, False),
        ({"name": "by-hand"}, False),
    ],
)
def test_a_load_balancer_is_of_the_service_that_its_labels_and_its_name_say(differs, is_its_own):
    owner = {"cluster": "demo", "namespace": "default", "service": "web", "uid": UID, **differs}
    parts = [owner[part] for part in ("cluster", "namespace", "service", "uid")]
    labels = {
        f"{LABELS}/cluster": owner["cluster"],
        f"{LABELS}/serviceNamespace": owner["namespace"],
        f"{LABELS}/serviceName": owner["service"],
    }
    # The name is right for the labels, or for the service although its labels are another's.
    for name in {differs.get("name") or names.load_balancer_name(*parts), *other_names(differs, owner)}:
        raw = new_object(kinds.LOAD_BALANCER, name, "default", labels=labels, spec={"ipam": "pool"})
        service = new_object(SERVICE, "web", "default", spec={"type": "LoadBalancer"})

        service["metadata"]["uid"] = UID
        balancer = load_balancer_reader("demo")(raw)

        assert is_of_service(balancer, read_service(service)) is is_its_own


def other_names(differs, owner):
    if {"namespace", "service"} & differs.keys():
        return [names.load_balancer_name(owner["cluster"], "default", "web", UID)]
    return []
