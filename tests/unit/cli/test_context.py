"""What the command line offers to type can be typed: it names the program as the shell finds it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from windrow.cli import exit_codes, main
from windrow.cli.context import CliContext, process_context
from windrow.core.formats.json import loads
from windrow.core.formats.yaml import dump, load

WINDROW = Path(sys.executable).with_name("windrow")


def a_context(program: str) -> CliContext:
    out = io.StringIO()
    return CliContext({}, Path(), io.StringIO(), out, out, lambda: datetime.now(UTC), program=program)


def test_hints_name_the_program_as_it_was_started():
    context = a_context(".venv/bin/windrow")

    assert main.run(["statsu"], context) == exit_codes.USAGE
    assert "Did you mean: .venv/bin/windrow status" in context.out.getvalue()


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("List them: windrow status -A", "List them: python -m windrow status -A"),
        ("machines.windrow.io default/a", "machines.windrow.io default/a"),
        ("/opt/windrow serve", "/opt/windrow serve"),
    ],
)
def test_only_commands_are_renamed(text: str, typed: str):
    assert a_context("python -m windrow").typed(text) == typed


def test_documents_keep_their_lines_and_nothing_that_a_terminal_obeys():
    context = a_context("windrow")

    context.print("a:\n\tb \x1b[31m\u202e")

    assert context.out.getvalue() == "a:\n\tb ?[31m?\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_data_are_read_back_as_they_are_whatever_text_they_hold(tmp_path: Path, output: str):
    text = "full\u3000width, no\u00a0break, \u202eturned, family \U0001f469\u200d\U0001f466, tag \U000e0041, \x9b31m\nü\n"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": "b"},
        "stringData": {"userData": text, "key\u00a0": "z"},
    }
    (tmp_path / "a.yaml").write_text(dump(secret))
    context = replace(a_context("windrow"), cwd=tmp_path)

    assert main.run(["import", "-f", "a.yaml", "-o", output], context) == exit_codes.OK

    printed = context.out.getvalue()
    assert (loads(printed)["items"][0] if output == "json" else load(printed)) == secret
    assert printed.replace("\n", "").isprintable()


def test_a_full_disk_behind_standard_output_is_no_defect_of_windrow():
    with open("/dev/full", "w") as full:
        done = subprocess.run([WINDROW, "version"], stdout=full, stderr=subprocess.PIPE, text=True)

    assert done.returncode == exit_codes.FAILED
    assert "Standard output cannot be written: No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("argv0", "path", "program"),
    [
        (WINDROW, str(WINDROW.parent), "windrow"),
        (WINDROW, "/nowhere", f"./{WINDROW.name}"),
        (WINDROW.with_name("__main__.py"), "/nowhere", f"./{Path(sys.executable).name} -m windrow"),
    ],
)
def test_the_program_is_named_by_the_shortest_path_that_leads_to_it(
    argv0: Path, path: str, program: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", [str(argv0)])
    monkeypatch.setenv("PATH", path)
    monkeypatch.chdir(WINDROW.parent)

    assert process_context().program == program


def test_python_m_windrow_is_the_command_line(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "windrow", "version"],
        cwd=tmp_path,
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout[:8]) == (0, "windrow ")
