"""The taint of a Node that was shut down without notice, and by which program it is."""

from __future__ import annotations

from datetime import UTC, datetime

from windrow.kubernetes.taints import list_out_of_service, render_out_of_service, without_out_of_service

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = "node.kubernetes.io/out-of-service"
OURS = {"key": KEY, "value": "ours", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}
THEIRS = {"key": KEY, "value": "theirs", "effect": "NoExecute"}
OTHER = {"key": "example.com/gpu", "value": "ours", "effect": "NoSchedule"}


def test_the_taint_has_the_effect_and_the_date_that_kubernetes_knows() -> None:
    assert render_out_of_service("ours", NOON) == OURS


def test_a_program_finds_those_of_all_and_takes_away_its_own() -> None:
    node = {"spec": {"taints": [OTHER, OURS, THEIRS]}}

    assert list_out_of_service(node) == [OURS, THEIRS]
    assert without_out_of_service(node, "ours") == [OTHER, THEIRS]


def test_a_node_without_taints_has_none() -> None:
    assert list_out_of_service({}) == []
    assert without_out_of_service({"spec": {"taints": None}}, "ours") == []
