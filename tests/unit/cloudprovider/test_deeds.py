from typing import get_args

import pytest

from windrow.cloudprovider import nodes
from windrow.cloudprovider.deeds import tell_change
from windrow.cloudprovider.names import SHUTDOWN
from windrow.cloudprovider.readings import Address, Taint

TOLD = [
    (nodes.SetProviderId("harvester://7", "it is"), "providerID harvester://7 set because it is"),
    (
        nodes.SetLabels((("zone", "z1"), ("region", "r1"), ("old", None)), "it is"),
        "labels zone=z1, region=r1 set and labels old removed because it is",
    ),
    (nodes.SetLabels((("old", None),), "it is"), "labels old removed because it is"),
    (nodes.Record("z1", "it is"), "topology z1 recorded because it is"),
    (nodes.Record("", "it is"), "record of its topology removed because it is"),
    (nodes.RemoveTaint(SHUTDOWN, "it is"), f"taint {SHUTDOWN} removed because it is"),
    (nodes.AddTaint(Taint(SHUTDOWN, "NoSchedule"), "it is"), f"taint {SHUTDOWN} added because it is"),
    (
        nodes.SetAddresses((Address("InternalIP", "10.0.0.1"), Address("Hostname", "w1")), "it is"),
        "addresses set to 10.0.0.1, w1 because it is",
    ),
    (nodes.DeleteNode("it is"), "deleted because it is"),
    (nodes.Announce("source", "Synced", "Node synced", "it is"), ""),
]


@pytest.mark.parametrize(("change", "told"), TOLD)
def test_a_change_is_told_with_a_plain_verb_and_its_reason(change, told):
    assert tell_change(change) == told


def test_every_change_has_its_words():
    assert {type(change) for change, _ in TOLD} == set(get_args(nodes.Change))
