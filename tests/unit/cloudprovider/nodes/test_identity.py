from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.clock import NOON

from windrow.cloudprovider.nodes.identity import (
    Candidates,
    OtherCloud,
    VmFound,
    VmMissing,
    VmUnknown,
    match_vm,
)
from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm, Instance
from windrow.cloudprovider.options import Options

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
        (a_node("harvester://uid-1"), [W1], {}, VmFound(W1)),
        (a_node("harvester://uid-1", "renamed"), [W1], {}, VmFound(W1)),
        (a_node("harvester://uid-0"), [W1], {}, VmMissing("uid-0")),
        (a_node("k3s://w1"), [W1], {}, OtherCloud("k3s://w1")),
        (a_node(), [VM7, W1], {}, VmFound(W1)),
        (a_node(), [BY_HAND], {}, VmFound(BY_HAND)),
        (a_node(), [VM7], {"vm7": "w1"}, VmFound(VM7)),
        (a_node(), [VM7], {"vm7": "W1.example.org"}, VmFound(VM7)),
        (a_node(name="w1.example.org"), [VM7], {"vm7": "w1.example.org"}, VmFound(VM7)),
        (a_node(), [W1, VM7], {"vm7": "w1"}, VmFound(W1)),
    ],
)
def test_the_vm_of_a_node(node, vms, hostnames, wanted):
    assert match_vm(node, Candidates(vms, hostnames=hostnames), DEMO) == wanted


@pytest.mark.parametrize(
    ("vms", "hostnames", "words"),
    [
        ([STRANGER], {}, "no VM is named 'w1'"),
        ([GuestVm("vm7", "uid-7", "other")], {"vm7": "w1"}, "no VM is named"),
        ([VM7], {"vm7": ""}, "no VM is named"),
        (
            [VM7, VM8],
            {"vm7": "w1", "vm8": "w1"},
            "the guests of several VMs report the host name 'w1': vm7, vm8",
        ),
    ],
)
def test_a_vm_of_another_cluster_or_a_doubtful_one_is_nobodys(vms, hostnames, words):
    found = match_vm(a_node(), Candidates(vms, hostnames=hostnames), DEMO)

    assert isinstance(found, VmUnknown)
    assert words in found.because


def test_a_cluster_without_a_name_cannot_tell_vms_apart():
    assert match_vm(a_node(), Candidates([STRANGER]), Options()) == VmFound(STRANGER)


# --- hardware, and what contradicts ----------------------------------------------------------------------------------


def on(name, uuid="", **more):
    return Instance(name, f"vmi-{name}", system_uuid=uuid, **more)


NODE = GuestNode("w1", "node-uid", system_uuid="aa")


@pytest.mark.parametrize(
    ("case", "evidence", "wanted"),
    [
        ("hardware before name", Candidates([W1, VM7], [on("w1", "bb"), on("vm7", "aa")]), VmFound(VM7)),
        ("hardware without a name", Candidates([VM7], [on("vm7", "aa")]), VmFound(VM7)),
        (
            "copies share hardware; the name decides",
            Candidates([W1, VM7], [on("w1", "aa"), on("vm7", "aa")]),
            VmFound(W1),
        ),
        ("the hardware of another cluster's VM", Candidates([STRANGER], [on("w1", "aa")]), None),
        ("a VM whose hardware is not told", Candidates([W1], [on("w1")]), VmFound(W1)),
        ("a VM that does not run", Candidates([W1]), VmFound(W1)),
        ("other hardware, not asked yet", Candidates([W1], [on("w1", "bb")]), None),
        ("other hardware, and the guest is silent", Candidates([W1], [on("w1", "bb")], {}), VmFound(W1)),
        (
            "other hardware, and the guest confirms",
            Candidates([W1], [on("w1", "bb")], {"w1": "w1"}),
            VmFound(W1),
        ),
        ("other hardware, and the guest contradicts", Candidates([W1], [on("w1", "bb")], {"w1": "w2"}), None),
        (
            "names that were swapped",
            Candidates([W1, VM7], [on("w1", "bb"), on("vm7", "cc")], {"w1": "vm7", "vm7": "w1"}),
            VmFound(VM7),
        ),
        ("a VM that another Ready node claims", Candidates([W1], claimed={"uid-1"}), None),
        (
            "the whole name before its first label",
            Candidates([VM7, VM8], hostnames={"vm7": "w1", "vm8": "w1.example.org"}),
            VmFound(VM7),
        ),
    ],
)
def test_how_evidence_is_weighed(case, evidence, wanted):
    found = match_vm(NODE, evidence, DEMO)

    assert (found if isinstance(found, VmFound) else None) == wanted, case


def test_a_uid_is_stronger_than_any_evidence():
    node = GuestNode("w1", "node-uid", provider_id="harvester://uid-7", system_uuid="aa")

    assert match_vm(node, Candidates([W1, VM7], [on("w1", "aa")], claimed={"uid-7"}), DEMO) == VmFound(VM7)


# --- a VM made anew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_of", "wanted"),
    [
        (timedelta(minutes=-1), VmMissing("uid-0")),
        (timedelta(seconds=30), VmMissing("uid-0")),
        (timedelta(minutes=5), VmFound(replace(W1, created=NOON))),
    ],
    ids=["before it was made", "about then", "long after"],
)
def test_a_node_that_was_heard_of_after_its_vm_was_made_anew_lives_in_the_new_one(heard_of, wanted):
    node = GuestNode("w1", "node-uid", provider_id="harvester://uid-0", last_heartbeat=NOON + heard_of)

    assert match_vm(node, Candidates([replace(W1, created=NOON)]), DEMO) == wanted
