import inspect
from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args

import pytest
from tests.unit.clusters.builders import a_cluster, a_machine, a_pool

from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.plan import actions
from windrow.clusters.plan.actions import Action, ProvisionVM, first_clause
from windrow.clusters.plan.actions.base import ActionBase, MachineActionBase

ACTIONS = sorted(get_args(Action), key=lambda kind: kind.__name__)


def test_every_action_class_is_part_of_the_union_that_the_executor_matches():
    """And each is known by the name of the package."""
    bases = (ActionBase, MachineActionBase)
    modules = [import_module(f"{actions.__name__}.{one.name}") for one in iter_modules(actions.__path__)]
    defined = {
        kind
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, ActionBase) and kind not in bases and not name.startswith("_")
    }

    assert defined == set(ACTIONS)
    assert all(getattr(actions, kind.__name__) is kind for kind in defined)


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
