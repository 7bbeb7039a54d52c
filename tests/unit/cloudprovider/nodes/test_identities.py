from dataclasses import replace
from datetime import timedelta

import pytest

from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.nodes.identities import Evidence, Foreign, Found, Missing, Unknown, identify
from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm, Instance
from windrow.testing.clock import NOON

DEMO = Options(cluster_name="demo")
W1 = GuestVm("w1", "uid-1", "demo")
BY_HAND = GuestVm("w1", "uid-1")
STRANGER = GuestVm("w1", "uid-1", "other")
VM7 = GuestVm("vm7", "uid-7", "demo")
VM8 = GuestVm("vm8", "uid-8", "demo")


def a_node(provider_id="", name="w1"):
    return GuestNode(name, "node-uid", provider_id=provider_id)


@pytest.mark.parametrize(
    ("node", "vms", "hostnames", "wanted"),
    [
        (a_node("harvester://uid-1"), [W1], {}, Found(W1)),
        (a_node("harvester://uid-1", "renamed"), [W1], {}, Found(W1)),
        (a_node("harvester://uid-0"), [W1], {}, Missing("uid-0")),
        (a_node("k3s://w1"), [W1], {}, Foreign("k3s://w1")),
        (a_node(), [VM7, W1], {}, Found(W1)),
        (a_node(), [BY_HAND], {}, Found(BY_HAND)),
        (a_node(), [VM7], {"vm7": "w1"}, Found(VM7)),
        (a_node(), [VM7], {"vm7": "W1.example.org"}, Found(VM7)),
        (a_node(name="w1.example.org"), [VM7], {"vm7": "w1.example.org"}, Found(VM7)),
        (a_node(), [W1, VM7], {"vm7": "w1"}, Found(W1)),
    ],
)
def test_the_vm_of_a_node(node, vms, hostnames, wanted):
    assert identify(node, Evidence(vms, hostnames=hostnames), DEMO) == wanted


@pytest.mark.parametrize(
    ("vms", "hostnames", "words"),
    [
        ([STRANGER], {}, "no VM is called 'w1'"),
        ([GuestVm("vm7", "uid-7", "other")], {"vm7": "w1"}, "no VM is called"),
        ([VM7], {"vm7": ""}, "no VM is called"),
        ([VM7, VM8], {"vm7": "w1", "vm8": "w1"}, "several VMs call themselves 'w1': vm7, vm8"),
    ],
)
def test_a_vm_of_another_cluster_or_a_doubtful_one_is_nobodys(vms, hostnames, words):
    found = identify(a_node(), Evidence(vms, hostnames=hostnames), DEMO)

    assert isinstance(found, Unknown)
    assert words in found.because


def test_a_cluster_without_a_name_cannot_tell_vms_apart():
    assert identify(a_node(), Evidence([STRANGER]), Options()) == Found(STRANGER)


# --- hardware, and what contradicts ----------------------------------------------------------------------------------


def on(name, uuid="", **more):
    return Instance(name, f"vmi-{name}", system_uuid=uuid, **more)


NODE = GuestNode("w1", "node-uid", system_uuid="aa")


@pytest.mark.parametrize(
    ("case", "evidence", "wanted"),
    [
        ("hardware before name", Evidence([W1, VM7], [on("w1", "bb"), on("vm7", "aa")]), Found(VM7)),
        ("hardware without a name", Evidence([VM7], [on("vm7", "aa")]), Found(VM7)),
        (
            "copies share hardware; the name decides",
            Evidence([W1, VM7], [on("w1", "aa"), on("vm7", "aa")]),
            Found(W1),
        ),
        ("the hardware of another cluster's VM", Evidence([STRANGER], [on("w1", "aa")]), None),
        ("a VM whose hardware is not told", Evidence([W1], [on("w1")]), Found(W1)),
        ("a VM that does not run", Evidence([W1]), Found(W1)),
        ("other hardware, nobody asked yet", Evidence([W1], [on("w1", "bb")]), None),
        ("other hardware, and the guest is silent", Evidence([W1], [on("w1", "bb")], {}), Found(W1)),
        ("other hardware, and the guest confirms", Evidence([W1], [on("w1", "bb")], {"w1": "w1"}), Found(W1)),
        ("other hardware, and the guest contradicts", Evidence([W1], [on("w1", "bb")], {"w1": "w2"}), None),
        (
            "names that were swapped",
            Evidence([W1, VM7], [on("w1", "bb"), on("vm7", "cc")], {"w1": "vm7", "vm7": "w1"}),
            Found(VM7),
        ),
        ("a VM that another Ready node claims", Evidence([W1], claimed={"uid-1"}), None),
        (
            "the whole name before its first label",
            Evidence([VM7, VM8], hostnames={"vm7": "w1", "vm8": "w1.example.org"}),
            Found(VM7),
        ),
    ],
)
def test_how_evidence_is_weighed(case, evidence, wanted):
    found = identify(NODE, evidence, DEMO)

    assert (found if isinstance(found, Found) else None) == wanted, case


def test_a_uid_is_stronger_than_any_evidence():
    node = GuestNode("w1", "node-uid", provider_id="harvester://uid-7", system_uuid="aa")

    assert identify(node, Evidence([W1, VM7], [on("w1", "aa")], claimed={"uid-7"}), DEMO) == Found(VM7)


# --- a VM made anew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_of", "wanted"),
    [
        (timedelta(minutes=-1), Missing("uid-0")),
        (timedelta(seconds=30), Missing("uid-0")),
        (timedelta(minutes=5), Found(replace(W1, created=NOON))),
    ],
    ids=["before it was made", "about then", "long after"],
)
def test_a_node_that_was_heard_of_after_its_vm_was_made_anew_lives_in_the_new_one(heard_of, wanted):
    node = GuestNode("w1", "node-uid", provider_id="harvester://uid-0", last_heard=NOON + heard_of)

    assert identify(node, Evidence([replace(W1, created=NOON)]), DEMO) == wanted
