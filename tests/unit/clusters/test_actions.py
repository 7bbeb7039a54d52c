import inspect
from typing import get_args

import pytest

from windrow.clusters.plan import actions
from windrow.clusters.plan.actions import Action

ACTIONS = sorted(get_args(Action), key=lambda kind: kind.__name__)


def test_every_action_class_is_part_of_the_union_that_the_executor_matches():
    defined = {
        kind
        for _, kind in inspect.getmembers(actions, inspect.isclass)
        if issubclass(kind, actions._Action) and not kind.__name__.startswith("_")
    }

    assert defined == set(ACTIONS)


@pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.__name__)
def test_every_action_has_a_reason_and_a_sentence_for_its_failure(kind):
    assert kind.reason
    assert " " in kind.failure


def test_reasons_are_distinct():
    assert len({kind.reason for kind in ACTIONS}) == len(ACTIONS)
