import pytest

from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.identities import Evidence, Foreign, Found, Missing, Unknown, identify
from windrow.cloudprovider.readings import GuestNode, GuestVm

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
