"""What stands in deploy/Containerfile. Nothing here builds it: that needs a container engine."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """(instruction, rest), comments and line breaks taken out."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def last_stage() -> list[tuple[str, str]]:
    told = instructions()
    start = max(place for place, (word, _) in enumerate(told) if word == "FROM")
    return told[start:]


def test_it_runs_a_program_that_the_package_installs() -> None:
    [entry] = [json.loads(rest) for word, rest in last_stage() if word == "ENTRYPOINT"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert entry == ["harvester-cloud-provider"]
    assert entry[0] in project["scripts"]


def test_its_user_is_a_number_that_is_not_root() -> None:
    [user] = [rest for word, rest in last_stage() if word == "USER"]

    # Kubernetes cannot tell whether a user by name is root.
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_what_it_copies_is_there_and_not_ignored() -> None:
    shown = [line[1:] for line in _ignore_lines() if line.startswith("!")]
    for word, rest in instructions():
        if word != "COPY" or "--from=" in rest:
            continue
        *sources, _ = shlex.split(rest)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == one or source.startswith(f"{one}/") for one in shown), source


def test_nothing_but_what_it_copies_is_sent_to_the_engine() -> None:
    assert _ignore_lines()[0] == "*"
    assert not any(fnmatch(".venv", line[1:]) for line in _ignore_lines() if line.startswith("!"))


def _ignore_lines() -> list[str]:
    lines = (ROOT / "deploy" / "Containerfile.dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_package_is_checked_by_its_hash() -> None:
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    installs = [command for command in commands if " install " in command]

    assert len(installs) == 3
    for command in installs:
        # Our own wheel was built one line before.
        assert "--require-hashes" in command or command.endswith("/wheels/*.whl"), command


def test_it_is_byte_compiled_after_all_is_installed() -> None:
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    compiled = next(place for place, command in enumerate(commands) if "compileall" in command)

    assert not any(" install " in command for command in commands[compiled:])


def test_its_bases_name_no_registry() -> None:
    bases = [rest for word, rest in instructions() if word == "ARG" and rest.startswith("PYTHON=")]

    assert bases == ["PYTHON=python:3.13-slim"]
    assert all(rest.split()[0] == "${PYTHON}" for word, rest in instructions() if word == "FROM")
