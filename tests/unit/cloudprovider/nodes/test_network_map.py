from windrow.cloudprovider.nodes.network_map import network_map, render_network_map
from windrow.cloudprovider.nodes.readings import Instance, Interface
from windrow.cloudprovider.options import Options

DEMO = Options(cluster_name="demo")


def an_instance(cluster="demo", phase="Running", **devices):
    return Instance(
        "vm",
        "uid",
        phase=phase,
        guest_cluster=cluster,
        networks=tuple((card, f"default/{card}") for card in devices),
        interfaces=tuple(Interface(card, device) for card, device in devices.items()),
    )


def test_networks_on_which_all_guests_agree_are_mapped():
    instances = [an_instance(a="enp1s0", b="enp2s0"), an_instance(a="enp1s0", b="enp3s0")]

    assert network_map(instances, DEMO) == {"default/a": "enp1s0"}


def test_guests_of_others_and_guests_that_are_not_up_do_not_count():
    instances = [
        an_instance(a="enp1s0"),
        an_instance(cluster="other", a="eth0"),
        an_instance(phase="Scheduling", a="eth0"),
        an_instance(),
    ]

    assert network_map(instances, DEMO) == {"default/a": "enp1s0"}


def test_a_card_that_the_guest_does_not_name_is_left_out():
    assert network_map([an_instance(a="")], DEMO) == {}


def test_nothing_known_is_written_as_empty_text():
    assert render_network_map({}) == {"interface-nad-mapping": ""}
    assert render_network_map({"default/a": "enp1s0"}) == {"interface-nad-mapping": '{"default/a":"enp1s0"}'}
