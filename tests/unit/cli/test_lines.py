from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.app.describe.views import MachineView, Wait
from windrow.cli.output.lines import elide_middle, wrap
from windrow.cli.output.progress import render_check, render_entry
from windrow.cli.output.tables import render_machines, render_table
from windrow.demo.report import CheckRecord


@given(st.text(st.characters(codec="ascii", categories=["L", "Zs"]), max_size=200), st.integers(10, 80))
def test_wrapping_loses_no_word_and_breaks_only_between_words(text: str, width: int):
    lines = wrap(text, width)

    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or " " not in line for line in lines)


def test_a_name_that_is_cut_keeps_both_ends():
    assert elide_middle("orchard-servers-x5x7z-9k2lp", 15) == "orchard…z-9k2lp"


def test_the_last_column_gives_way_when_the_table_is_too_wide():
    assert render_table(("NAME", "WAITS FOR"), [("m-1", "x" * 100)], width=30)[1] == f"m-1   {'x' * 23}…"


def test_what_a_machine_waits_for_stands_below_it():
    machine = MachineView("m-1", "default", "c", "workers", wait=Wait("VirtualMachine default/m-1 to run"))

    lines = render_machines([machine], datetime(2026, 1, 1, tzinfo=UTC), width=24)

    assert lines[2:] == [
        "m-1      Pending  -        -        -",
        "  waits for",
        "  VirtualMachine",
        "  default/m-1 to run",
    ]


def test_a_reason_that_machines_share_is_printed_at_the_first_only():
    machines = [
        MachineView(
            name, "default", "c", "workers", wait=Wait(f"VirtualMachine {name} to run (no route (113))")
        )
        for name in ("m-1", "m-2")
    ]

    lines = render_machines(machines, datetime(2026, 1, 1, tzinfo=UTC))

    assert lines[3] == "  waits for VirtualMachine m-1 to run (no route (113))"
    assert lines[5] == "  waits for VirtualMachine m-2 to run"


def test_a_reason_that_is_part_of_another_is_printed():
    machines = [
        MachineView("m-1", "default", "c", "workers", wait=Wait("Node m-1 to be Ready (10.52.0.11)")),
        MachineView("m-2", "default", "c", "workers", wait=Wait("Node m-2 to be Ready (10.52.0.1)")),
    ]

    lines = render_machines(machines, datetime(2026, 1, 1, tzinfo=UTC))

    assert lines[5] == "  waits for Node m-2 to be Ready (10.52.0.1)"


def test_a_moment_hangs_under_its_time():
    lines = [line.text for line in render_entry(72.34, "the first server answers, and others join", width=40)]

    assert lines == [" 1:12.3  the first server answers, and", "         others join"]


@pytest.mark.parametrize(("ok", "head"), [(True, "   ok    "), (False, "   FAILED ")])
def test_a_check_says_its_name_and_how_it_went(ok: bool, head: str):
    assert render_check(CheckRecord("nodes-ready", ok, "5 of 5"))[0].text == f"{head}nodes-ready: 5 of 5"
