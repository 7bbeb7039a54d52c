from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from windrow.cli.context import CliContext
from windrow.cli.output.lines import StyledLine, to_text
from windrow.cli.output.progress import LiveOutput, PlainOutput, wrap_line
from windrow.demo.report import CheckRecord, TimelineEntry

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CLUSTER = {"metadata": {"name": "orchard", "namespace": "fleet-default"}, "spec": {}}


def an_edge(out: io.StringIO) -> CliContext:
    return CliContext({}, Path(), io.StringIO(), out, io.StringIO(), lambda: NOON)


class FakeDisplay:
    """Remembers what scrolled by above it."""

    def __init__(self) -> None:
        self.scrolled: list[str] = []

    def draw(self, lines: Iterable[StyledLine]) -> None:
        raise AssertionError("this fake draws itself")

    def print_above(self, one: StyledLine) -> None:
        self.scrolled.append(one.text)


def test_plain_output_tells_moments_and_checks_and_leaves_pictures_out():
    out = io.StringIO()
    told = PlainOutput(an_edge(out))

    told.timeline_entry(TimelineEntry(1.0, NOON, "a cluster is applied"))
    told.check_record(CheckRecord("nodes-ready", True, "5 of 5"))
    told.update([CLUSTER], [])

    assert out.getvalue().splitlines() == [" 0:01.0  a cluster is applied", "   ok    nodes-ready: 5 of 5"]


def test_live_output_scrolls_what_happens_above_a_picture_that_stands():
    told = LiveOutput(an_edge(io.StringIO()))
    told.display = fake = FakeDisplay()

    told.print_line("hello")
    told.timeline_entry(TimelineEntry(1.0, NOON, "a cluster is applied"))
    told.update([CLUSTER], [])

    assert fake.scrolled == ["hello", " 0:01.0  a cluster is applied"]
    assert to_text(told.render())[1:] == ["fleet-default/orchard  new"]


def test_the_picture_is_always_the_last_one_shown():
    told = LiveOutput(an_edge(io.StringIO()))

    told.update([CLUSTER], [])
    told.update([], [])

    assert told.render() == []


def test_a_long_sentence_hangs_under_its_indent_and_a_command_stays_whole():
    assert wrap_line("  created for it: some images", 20) == ["  created for it:", "    some images"]
    assert wrap_line("  kubectl --kubeconfig a get nodes", 20) == ["  kubectl --kubeconfig a get nodes"]
    assert wrap_line("  curl --proxy http://a http://b/", 20) == ["  curl --proxy http://a http://b/"]
    assert wrap_line("Try: windrow apply --kubeconfig a b", 20) == [
        "Try:",
        "  windrow apply --kubeconfig a b",
    ]
    assert wrap_line("→ Start one: windrow serve --port 6443; or name another file", 20) == [
        "→ Start one:",
        "  windrow serve --port 6443;",
        "  or name another",
        "  file",
    ]


def test_a_command_stays_whole_behind_the_path_of_the_program():
    out = io.StringIO()
    context = replace(an_edge(out), program="/home/ann/windrow/.venv/bin/windrow", width=40)

    PlainOutput(context).print_line("  windrow status -A --kubeconfig a")

    assert out.getvalue() == "  /home/ann/windrow/.venv/bin/windrow status -A --kubeconfig a\n"
