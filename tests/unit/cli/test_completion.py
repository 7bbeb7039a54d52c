"""`windrow completion`: the script that bash runs answers as the command line understands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Windrow

from windrow.cli.main import COMMANDS

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture
def complete(windrow: Windrow, tmp_path: Path):
    """What bash offers after these words, of which the last is the one at the cursor."""
    script = windrow("completion", "bash").out

    def complete(*words: str, program: str = "windrow") -> list[str]:
        ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _windrow; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask}", "-", program, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return complete


@needs_bash
def test_bash_completes_commands_subcommands_and_options(complete):
    assert set(complete("")) == set(COMMANDS)
    assert complete("dri") == ["driver"]
    assert complete("driver", "a") == ["add"]
    assert complete("status", "--all") == ["--all-namespaces"]
    assert complete("driver", "list", "--kube") == ["--kubeconfig"]


@needs_bash
def test_bash_completes_the_values_of_options(complete, tmp_path: Path):
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "state").mkdir()

    assert complete("status", "-o", "") == ["json", "yaml", "name"]
    assert complete("demo", "--machine-backend", "p") == ["plugin"]
    assert complete("apply", "-f", "cl") == ["cluster.yaml"]
    assert complete("serve", "--state-dir", "") == ["state"]
    assert complete("apply", "--timeout", "") == []


@needs_bash
def test_bash_completes_the_names_of_clusters_and_machines_as_the_management_api_has_them(
    complete, tmp_path: Path
):
    """`windrow` is a program that prints what was asked of it, as `-o jsonpath` prints names."""
    program = tmp_path / "windrow"
    program.write_text(
        '#!/bin/sh\ncase "$1 $2" in "status -o") echo prod fleet/prod;; "machine list") echo prod-a;; esac\n'
    )
    program.chmod(0o755)

    def names(*words: str) -> list[str]:
        return complete(*words, program=str(program))

    assert names("status", "")[-2:] == ["prod", "fleet/prod"]
    assert names("machine", "console", "pr") == ["prod-a"]
    assert names("why", "pr") == ["prod", "prod-a"]
    assert names("version", "pr") == []


@needs_bash
def test_completion_without_a_server_offers_what_is_known_without_it(complete):
    assert "--watch" in complete("status", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_names_every_command(windrow: Windrow, shell: str):
    answer = windrow("completion", shell)

    assert answer.code == 0
    assert all(name in answer.out for name in COMMANDS)
