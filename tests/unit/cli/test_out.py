from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from windrow.assembly.report import Check, Moment
from windrow.cli.edge import Edge
from windrow.cli.out import LiveOut, PlainOut, as_said
from windrow.cli.screens.lines import Line, plain

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CLUSTER = {"metadata": {"name": "orchard", "namespace": "fleet-default"}, "spec": {}}


def an_edge(out: io.StringIO) -> Edge:
    return Edge({}, Path(), io.StringIO(), out, io.StringIO(), lambda: NOON)


class Board:
    """Remembers what scrolled by above it."""

    def __init__(self) -> None:
        self.scrolled: list[str] = []

    def draw(self, lines: Iterable[Line]) -> None:
        raise AssertionError("this board draws itself")

    def above(self, one: Line) -> None:
        self.scrolled.append(one.text)


def test_plain_output_tells_moments_and_checks_and_leaves_pictures_out():
    out = io.StringIO()
    told = PlainOut(an_edge(out))

    told.moment(Moment(1.0, NOON, "a cluster is applied"))
    told.check(Check("nodes-ready", True, "5 of 5"))
    told.show([CLUSTER], [])

    assert out.getvalue().splitlines() == [" 0:01.0  a cluster is applied", "   ok    nodes-ready: 5 of 5"]


def test_live_output_scrolls_what_happens_above_a_picture_that_stands():
    told = LiveOut(an_edge(io.StringIO()))
    told.board = board = Board()

    told.say("hello")
    told.moment(Moment(1.0, NOON, "a cluster is applied"))
    told.show([CLUSTER], [])

    assert board.scrolled == ["hello", " 0:01.0  a cluster is applied"]
    assert plain(told.picture())[1:] == ["fleet-default/orchard  new"]


def test_the_picture_is_always_the_last_one_shown():
    told = LiveOut(an_edge(io.StringIO()))

    told.show([CLUSTER], [])
    told.show([], [])

    assert told.picture() == []


def test_a_long_sentence_hangs_under_its_indent_and_a_command_stays_whole():
    assert as_said("  put on its shelves: images", 20) == ["  put on its", "    shelves: images"]
    assert as_said("  kubectl --kubeconfig a get nodes", 20) == ["  kubectl --kubeconfig a get nodes"]
    assert as_said("Try: windrow apply --kubeconfig a b", 20) == ["Try: windrow apply --kubeconfig a b"]
