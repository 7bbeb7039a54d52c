import inspect
from dataclasses import fields
from typing import get_args

import pytest
from tests.unit.clusters.builders import a_cluster, a_machine, a_pool

from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.plan import actions
from windrow.clusters.plan.actions import Action, ProvisionVM, first_clause

ACTIONS = sorted(get_args(Action), key=lambda kind: kind.__name__)


def test_every_action_class_is_part_of_the_union_that_the_executor_matches():
    defined = {
        kind
        for _, kind in inspect.getmembers(actions, inspect.isclass)
        if issubclass(kind, actions._Action) and not kind.__name__.startswith("_")
    }

    assert defined == set(ACTIONS)


POOL = a_pool("workers", 2)
MACHINE = a_machine("prod-workers-x7k2p", POOL)
ACCOUNT = GuestServiceAccount("default", "prod", "ns:cc")
CLUSTER = a_cluster(POOL, recorded=RecordedStatus(service_account=ACCOUNT))


def make(kind):
    """An action with a value for each of its fields; those of a Machine are about MACHINE."""
    values = {"because": "it is due", "machine": MACHINE.name, "node": MACHINE.name, "labels": {}}
    return kind(**{one.name: values.get(one.name, one.name) for one in fields(kind)})


@pytest.mark.parametrize("kind", [kind for kind in ACTIONS if kind.done], ids=lambda kind: kind.__name__)
def test_the_message_of_every_event_names_its_object(kind):
    message = make(kind).message(CLUSTER, MACHINE)

    assert message.endswith(": it is due")
    names = ("Cluster fleet-default/prod", "default/prod", "prod-workers-x7k2p", "pool pool")
    assert any(name in message for name in names), message


def test_an_event_reads_as_a_sentence():
    joins = ProvisionVM("it joins through https://10.0.0.1:9345", MACHINE.name)

    assert joins.message(CLUSTER, MACHINE) == (
        "Provisioned VirtualMachine default/prod-workers-x7k2p: it joins through https://10.0.0.1:9345"
    )


def test_reasons_are_distinct():
    assert all(kind.reason for kind in ACTIONS)
    assert len({kind.reason for kind in ACTIONS}) == len(ACTIONS)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("one line. another", "one line. another"),
        ("first\nsecond", "first"),
        (f"cannot start the guest: {'a reason ' * 12}", "cannot start the guest"),
        # Of the scheduler's message the reasons count, however many there are.
        (
            f"0/3 nodes are available: 1 Insufficient nvidia.com/A2, {'2 others, ' * 9}. preemption: 0/3 nodes",
            f"0/3 nodes are available: 1 Insufficient nvidia.com/A2, {'2 others, ' * 9}"[:99].rstrip() + "…",
        ),
    ],
)
def test_an_explanation_by_another_program_is_cut_where_it_still_explains(text, clause):
    assert first_clause(text) == clause
