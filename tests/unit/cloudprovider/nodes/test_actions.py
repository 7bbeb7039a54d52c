from typing import get_args

import pytest

from windrow.cloudprovider.names import SHUTDOWN
from windrow.cloudprovider.nodes import planning
from windrow.cloudprovider.nodes.readings import Address, Taint

TOLD = [
    (planning.SetProviderId("harvester://7", "it is"), "providerID harvester://7 set because it is"),
    (
        planning.SetLabels((("zone", "z1"), ("region", "r1"), ("old", None)), "it is"),
        "labels zone=z1, region=r1 set and labels old removed because it is",
    ),
    (planning.SetLabels((("old", None),), "it is"), "labels old removed because it is"),
    (planning.RecordAnnotation("z1", "it is"), "topology z1 recorded because it is"),
    (planning.RecordAnnotation("", "it is"), "record of its topology removed because it is"),
    (planning.RemoveTaint(SHUTDOWN, "it is"), f"taint {SHUTDOWN} removed because it is"),
    (planning.AddTaint(Taint(SHUTDOWN, "NoSchedule"), "it is"), f"taint {SHUTDOWN} added because it is"),
    (
        planning.SetAddresses((Address("InternalIP", "10.0.0.1"), Address("Hostname", "w1")), "it is"),
        "addresses set to 10.0.0.1, w1 because it is",
    ),
    (planning.DeleteNode("it is"), "deleted because it is"),
]


@pytest.mark.parametrize(("change", "told"), TOLD)
def test_a_change_is_told_with_a_plain_verb_and_its_reason(change, told):
    assert str(change) == told


def test_every_change_has_its_words():
    assert {type(change) for change, _ in TOLD} == set(get_args(planning.Change)) - {planning.EmitEvent}
