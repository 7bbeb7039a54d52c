from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windrow.apiserver.storage.sqlite import SqliteStore
from windrow.app.state.directory import DirectoryInUse
from windrow.cli import exit_codes
from windrow.cli.errors import CliError, render_error, to_cli_error
from windrow.cli.main import COMMANDS
from windrow.kubernetes import errors
from windrow.kubernetes.kubeconfig import BadKubeconfig

Windrow = Callable[..., Any]


def test_help_names_every_command_and_fits_80_columns(windrow: Windrow):
    answer = windrow("--help")

    assert answer.code == exit_codes.OK
    assert all(f"  {verb} " in answer.out for verb in COMMANDS)
    assert max(len(line) for line in answer.out.splitlines()) <= 80


@pytest.mark.parametrize("verb", COMMANDS)
def test_each_command_s_help_has_an_example_and_fits_80_columns(windrow: Windrow, verb: str):
    answer = windrow(verb, "--help")

    assert answer.code == exit_codes.OK
    assert f"  windrow {verb}" in answer.out or verb == "version"
    assert "--verbose" in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("driver", "disable"), "Forbid Clusters to use a node driver."),
        (("driver", "remove"), "Remove a node driver, its files and its kind."),
        (("machine", "list"), "List machines."),
    ],
)
def test_the_help_of_a_subcommand_says_what_it_does(windrow: Windrow, words: tuple[str, ...], begins: str):
    usage, said, *_ = windrow(*words, "--help").out.split("\n\n")

    assert usage.startswith(f"usage: windrow {' '.join(words)}")
    assert said == begins


@pytest.mark.parametrize(
    ("words", "name"),
    [(("driver", "add"), "--allow-file-urls"), (("scale",), "cluster.x-k8s.io/delete-machine")],
)
def test_no_line_of_the_help_ends_within_a_name(windrow: Windrow, words: tuple[str, ...], name: str):
    assert name in windrow(*words, "--help").out


def test_no_words_at_all_means_help(windrow: Windrow):
    assert windrow().out == windrow("help").out == windrow("--help").out


def test_a_misspelt_command_is_answered_with_the_nearest(windrow: Windrow):
    answer = windrow("aply")

    assert answer.code == exit_codes.USAGE
    assert "windrow apply" in answer.err


def test_what_is_said_beside_the_answer_is_wrapped_and_a_command_is_not(windrow: Windrow):
    sentences = windrow("status").err_lines

    assert sentences == (
        "No kubeconfig of a management API: .windrow/manager.yaml does not exist here,",
        "  and neither --kubeconfig nor WINDROW_KUBECONFIG is set.",
        "→ Start one: windrow serve; or name its kubeconfig with --kubeconfig.",
    )
    refused = windrow("delete", "a-cluster-with-a-long-name/that-is-in-a-namespace-with-a-long-name-too")
    assert refused.err_lines[-2:] == (
        "→ Confirm it:",
        "  windrow delete a-cluster-with-a-long-name/that-is-in-a-namespace-with-a-long-name-too --yes",
    )


def test_a_wrong_option_is_told_in_two_lines(windrow: Windrow):
    answer = windrow("status", "--colour")

    assert answer.code == exit_codes.USAGE
    assert len(answer.err.splitlines()) == 2
    assert "--colour" in answer.err


@pytest.mark.parametrize("argv", [["scale", "prod", "workers"], ["scale", "prod", "workers=-1"], ["machine"]])
def test_arguments_that_make_no_sense_are_a_fault_of_usage(windrow: Windrow, argv: list[str]):
    assert windrow(*argv).code == exit_codes.USAGE


def test_without_a_manager_the_hint_is_to_start_one(windrow: Windrow):
    answer = windrow("status")

    assert answer.code == exit_codes.UNREACHABLE
    assert "windrow serve" in answer.err


def test_a_server_that_does_not_answer_is_named(windrow: Windrow, tmp_path: Path):
    (tmp_path / "k.yaml").write_text(
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )

    answer = windrow("status", env={"WINDROW_KUBECONFIG": str(tmp_path / "k.yaml")})

    assert answer.code == exit_codes.UNREACHABLE
    assert "127.0.0.1:1" in answer.err
    assert len(answer.err.splitlines()) == 2


def test_verbose_prints_the_traceback_wherever_it_stands(windrow: Windrow):
    assert "Traceback" in windrow("status", "--verbose").err
    assert "Traceback" in windrow("--verbose", "status").err
    assert "Traceback" not in windrow("status").err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Unauthorized("no", status=401), exit_codes.UNREACHABLE),
        (errors.Forbidden("no", status=403), exit_codes.UNREACHABLE),
        (errors.CertificateError("no"), exit_codes.UNREACHABLE),
        (errors.Unreachable("no"), exit_codes.UNREACHABLE),
        (errors.OutcomeUnknown("no"), exit_codes.UNREACHABLE),
        (errors.ServerError("no"), exit_codes.UNREACHABLE),
        (errors.NotFound("no"), exit_codes.NOT_FOUND),
        (errors.AdmissionDenied("no"), exit_codes.REFUSED),
        (errors.Invalid("no"), exit_codes.REFUSED),
        (errors.Conflict("no"), exit_codes.FAILED),
        (BadKubeconfig("no", "yes"), exit_codes.UNREACHABLE),
        (DirectoryInUse("no", "yes"), exit_codes.FAILED),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), exit_codes.REFUSED),
        (ZeroDivisionError("no"), exit_codes.FAILED),
        (ExceptionGroup("two", [errors.NotFound("no")]), exit_codes.NOT_FOUND),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int):
    assert to_cli_error(error).code == code


def test_a_second_manager_in_a_directory_is_refused_with_the_store_that_is_in_use(
    windrow: Windrow, tmp_path: Path
):
    (tmp_path / "taken").mkdir()
    store = SqliteStore(tmp_path / "taken" / "manager.db")
    try:
        answer = windrow("serve", "--state-dir", "taken")
    finally:
        store.close()

    assert answer.code == exit_codes.FAILED
    assert "in use by another process" in answer.err
    assert len(answer.err.splitlines()) == 2


@pytest.mark.parametrize("verb", ["serve", "emulate"])
def test_a_port_that_is_taken_is_told_by_its_number(windrow: Windrow, verb: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = windrow(verb, "--port", str(port))

    assert answer.code == exit_codes.FAILED
    assert f"ort {port} of 127.0.0.1 is in use" in answer.err
    assert "--port" in answer.err.splitlines()[1]


def test_an_error_s_own_cure_is_better_than_a_general_one():
    error = errors.Unreachable("cannot reach https://a; use another address")

    assert render_error(to_cli_error(error)) == ["Cannot reach https://a", "→ Use another address"]


def test_a_server_s_own_words_stay_whole():
    error = errors.AdmissionDenied('admission webhook "x" denied the request: a; b')

    assert render_error(to_cli_error(error))[0] == 'Admission webhook "x" denied the request: a; b'


def test_a_fact_that_begins_with_a_name_keeps_its_spelling():
    assert render_error(CliError("default/leap is an ISO", "x"))[0] == "default/leap is an ISO"


@pytest.mark.parametrize(
    ("argv", "code", "named"),
    [
        (["demo", "-f", "nope.yaml"], exit_codes.REFUSED, "nope.yaml"),
        (["demo", "-f", "bad.yaml"], exit_codes.REFUSED, "bad.yaml"),
        (["demo", "-f", "config.yaml"], exit_codes.REFUSED, "No Cluster"),
        (["demo", "-f", "config.yaml", "--distro", "k3s"], exit_codes.USAGE, "--distro chooses among"),
        (["demo", "--report", "nowhere/r.json"], exit_codes.USAGE, "nowhere/r.json"),
        (["demo", "--time-scale", "0"], exit_codes.USAGE, "'0'"),
        (
            ["demo", "--harvester-version", "1.5"],
            exit_codes.USAGE,
            "a Harvester from 1.6 to 1.9, found '1.5'",
        ),
        (["demo", "--inventory", "site.yaml"], exit_codes.REFUSED, "site.yaml: hosts: wanted a list"),
        (
            ["emulate", "--harvester-version", "latest"],
            exit_codes.USAGE,
            "write 1.7, or a release such as v1.7.1",
        ),
        (["emulate", "--inventory", "bad.yaml"], exit_codes.REFUSED, "bad.yaml is not YAML"),
        (["emulate", "--inventory", "nope.yaml"], exit_codes.REFUSED, "nope.yaml"),
        (["emulate", "--inventory", "x.bin"], exit_codes.REFUSED, "x.bin is not text"),
        (["emulate", "--preload", "bad.yaml"], exit_codes.REFUSED, "bad.yaml"),
        (["emulate", "console", "x"], exit_codes.USAGE, "console x"),
        (["emulate", "console", "a/b"], exit_codes.UNREACHABLE, "harvester.yaml"),
        (["emulate", "frob"], exit_codes.USAGE, "frob"),
        (["serve", "--port", "99999"], exit_codes.USAGE, "99999"),
        (["emulate", "--port", "99999999"], exit_codes.USAGE, "99999999"),
        (["serve", "--port", "²"], exit_codes.USAGE, "not a port"),
        (["serve", "--bind", "banana"], exit_codes.USAGE, "'banana' is not an IP address"),
        (["serve", "--proxy", "banana"], exit_codes.USAGE, "banana"),
        (["serve", "--proxy", "http://host:x"], exit_codes.USAGE, "http://HOST:PORT"),
        (["serve", "--kubeconfig", "x.bin"], exit_codes.REFUSED, "x.bin is not text"),
        (["serve", "--state-dir", "config.yaml"], exit_codes.USAGE, "config.yaml"),
        (["emulate", "--state-dir", "config.yaml/x"], exit_codes.USAGE, "config.yaml"),
        (["emulate", "--preload", "x.bin"], exit_codes.REFUSED, "x.bin is not text"),
        (["demo", "-f", "x.bin"], exit_codes.REFUSED, "x.bin is not text"),
        (["demo", "--state-dir", "config.yaml"], exit_codes.USAGE, "writable directory"),
        (["demo", "--report", "."], exit_codes.USAGE, "writable file"),
        (["scale", "a", "b=1", "--timeout", "soon"], exit_codes.USAGE, "soon"),
        (["serve", "--kubeconfig", "bad.yaml"], exit_codes.UNREACHABLE, "not YAML"),
        (["serve", "--kubeconfig", "", "--metrics-bind-address", "x"], exit_codes.USAGE, "HOST:PORT"),
    ],
)
def test_what_cannot_work_is_told_in_two_lines_before_anything_starts(
    windrow: Windrow, tmp_path: Path, argv: list[str], code: int, named: str
):
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "site.yaml").write_text("hosts: 3")
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "config.yaml").write_text("apiVersion: v1\nkind: HarvesterConfig\nmetadata: {name: x}")

    answer = windrow(*argv)

    assert answer.code == code
    assert answer.out == ""
    assert named in answer.err
    assert len(answer.err.splitlines()) == 2


def test_a_locale_without_our_signs_ends_no_command():
    env = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

    done = subprocess.run([sys.executable, "-m", "windrow", "frob"], env=env, capture_output=True, timeout=60)

    assert done.returncode == exit_codes.USAGE
    unknown, hint = done.stderr.decode("ascii").splitlines()
    assert unknown == "windrow: unknown command 'frob'"
    assert hint.startswith("? See the commands: ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["demo", "orchard.yaml"], "→ Write -f orchard.yaml"),
        (["demo", "a.yaml", "b.yaml"], "→ Write -f a.yaml b.yaml"),
        (["demo", "a.yaml", "--bogus"], "→ See its options: windrow demo --help"),
        (["demo", "--bogus"], "→ See its options: windrow demo --help"),
        (["demo", "--time-scale"], "→ See its options: windrow demo --help"),
        (["status", "orchard", "orchard.yaml"], "→ See its options: windrow status --help"),
    ],
)
def test_a_file_that_is_named_without_f_is_told_how_to_be_named(windrow, words, hint):
    answer = windrow(*words)

    assert answer.err.splitlines()[-1] == hint
    assert answer.code == 2
