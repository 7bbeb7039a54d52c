"""Conditions that no manager of ours writes: a gap in what is shown, and no error."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.app.describe.causes import explain_cluster, explain_machine
from windrow.app.describe.conditions import condition_of, condition_since, list_conditions
from windrow.app.describe.views import read_cluster, read_machine

FOREIGN: tuple[Any, ...] = (
    [{"type": "Ready", "status": "False", "message": ["x"]}],
    [{"type": "Ready", "status": {"a": 1}}],
    [{"type": ["Ready"]}, None, 7],
    ["x"],
    "Ready",
    {"type": "Ready"},
    5,
)


@pytest.mark.parametrize("conditions", FOREIGN, ids=repr)
def test_conditions_that_cannot_be_read_are_a_gap_and_never_an_error(conditions: Any) -> None:
    raw = {"metadata": {"name": "a", "namespace": "n"}, "status": {"conditions": conditions}}

    assert not read_cluster(raw, ()).ready
    assert not read_machine(raw).ready
    assert explain_cluster(raw, [], None)
    explain_machine(raw, None)
    assert condition_of(raw, "Ready") is None


def test_a_condition_is_found_beside_what_cannot_be_read() -> None:
    good = {"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}
    raw = {"status": {"conditions": ["x", {"type": "Ready", **good}]}}

    found = condition_of(raw, "Ready")

    assert found is not None
    assert (found.status, condition_since(found)) == ("True", None)
    assert list_conditions(raw) == (found,)
    assert condition_of(None, "Ready") is None
