"""A planted hole is found; a planted test closes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.mutants.accepted import read_accepted
from tests.mutants.loading import ROOT, SOURCES
from tests.mutants.operators import Mutant, list_mutants
from tests.mutants.runner import Outcome, join
from tests.mutants.score import report
from tests.mutants.targets import (
    CORE,
    IN_ANOTHER_PROCESS,
    STRICT,
    TESTS,
    UNSAFE,
    is_asked,
    is_core,
    list_near,
    list_stages,
)

HOLED = """\
LIMIT = 3


class Gate:
    def __init__(self, members):
        self.members = members

    @property
    def is_open(self):
        return len(self.members) < LIMIT


async def find_first(members):
    return members[0]


def count():
    try:
        yield
    except ValueError:
        yield 1
    yield 2
"""
WEAK = """\
import asyncio

from windrow.core.holed import Gate, count, find_first


def test_a_gate_is_open():
    assert Gate([]).is_open


def test_a_full_gate_is_not():
    assert not Gate("abcd").is_open


async def test_the_first_is_found():
    await asyncio.sleep(0)
    assert await find_first("abc") == "a"


def test_what_is_thrown_in_counts():
    counting = count()
    next(counting)
    assert [counting.throw(ValueError), *counting] == [1, 2]
"""
STRONG = (
    WEAK
    + """

def test_a_gate_with_room_for_one_is_open_until_it_comes():
    assert Gate("ab").is_open
    assert not Gate("abc").is_open
"""
)


BROKEN = (
    WEAK
    + """

def test_that_fails_without_any_mutant():
    assert Gate("abc").is_open
"""
)


def plant(folder: Path) -> None:
    """A copy of the tool, with one more module."""
    shutil.copytree(ROOT / "tests" / "mutants", folder / "tests" / "mutants", dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    package = folder / "src" / "windrow" / "core"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "holed.py").write_text(HOLED)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}


def run_planted(folder: Path, tests: str) -> tuple[int, str]:
    """`make mutants` on that copy, with tests of the module."""
    plant(folder)
    place = folder / "tests" / "unit" / "core"
    for directory in (place, *(folder / path for path in TESTS["core"][1])):
        directory.mkdir(parents=True, exist_ok=True)
    (place / "test_holed.py").write_text(tests)
    command = [sys.executable, "-m", "tests.mutants", "core/holed.py", "--processes", "2"]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hole_is_found_and_a_test_closes_it(tmp_path: Path) -> None:
    code, printed = run_planted(tmp_path, WEAK)
    assert code == 1, printed
    assert (
        "SURVIVED src/windrow/core/holed.py:10\n    return len(self.members) < LIMIT\n  - <\n  + <=\n"
        in printed
    )
    assert "LIMIT = 3\n  - 3\n  + (4)" in printed  # a constant is in a module that is imported anew
    assert "2 of the 2 tests that reach it" in printed

    code, printed = run_planted(tmp_path, STRONG)
    assert (code, "SURVIVED" in printed) == (0, False), printed
    assert "killed (100 %), 0 survived" in printed

    # What a test might have noticed that fails anyway is not said to have survived.
    code, printed = run_planted(tmp_path, BROKEN)
    assert (code, "SURVIVED" in printed) == (0, False), printed
    assert (
        "not asked, for they fail without any: tests/unit/core/test_holed.py::test_that_fails_without"
        in printed
    )
    assert "UNDECIDED, survived what was asked: src/windrow/core/holed.py:10\n" in printed
    assert "2 of the 3 tests that reach it" in printed


TYPED = """\
def first_word(text: str | None) -> str:
    if text is None or not text.split():
        return ""
    return text.split()[0]
"""
ASK_MYPY = """\
from tests.mutants.loading import SOURCES
from tests.mutants.operators import list_mutants
from tests.mutants.type_checker import is_refused

for path in ("core/typed.py", "core/holed.py"):
    for mutant in list_mutants(path, (SOURCES / path).read_text()):
        if is_refused(mutant):
            print(path, mutant.new)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_mypy_refuses_what_the_types_show_to_be_wrong_and_nothing_of_a_file_that_it_refuses_anyway(
    tmp_path: Path,
) -> None:
    plant(tmp_path)
    (tmp_path / "src" / "windrow" / "core" / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-c", ASK_MYPY],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )

    assert done.stdout.splitlines() == [
        "core/typed.py (not text.split())",  # text may be None
        "core/typed.py (text is None and (not text.split()))",
        "core/typed.py is not",
        "core/typed.py pass",  # of the first return: the same
        "core/typed.py pass",  # of the last: nothing would be returned
    ], done.stderr


def outcomes(killed: int, survived: int, path: str = "client/client.py") -> list[Outcome]:
    mutant = Mutant(path, 1, (1, 1), "f", 0, 1, "<", "<=", "a < b")
    return [Outcome(mutant, "killed", 1, 1)] * killed + [Outcome(mutant, "survived", 1, 1)] * survived


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 0),
        (outcomes(9, 1), 0),
        (outcomes(89, 11), 1),
        (outcomes(99, 0) + outcomes(0, 1, STRICT[0]), 1),
        (outcomes(9, 0, STRICT[0]) + outcomes(0, 1), 0),
        ([*outcomes(9, 1), Outcome(outcomes(1, 0)[0].mutant)], 0),
        ([Outcome(outcomes(1, 0)[0].mutant)], 0),
        ([Outcome(outcomes(1, 0)[0].mutant, "undecided", 1, 1)], 0),
    ],
)
def test_a_run_fails_below_ninety_percent_and_for_any_survivor_where_none_may_live(
    found: list[Outcome], code: int
) -> None:
    assert report(found)[1] == code


@pytest.mark.parametrize(
    ("first", "then", "outcome"),
    [
        ("survived", "survived", "survived"),
        ("survived", "undecided", "undecided"),
        ("undecided", "survived", "undecided"),
        ("survived", "not run", "undecided"),
        ("undecided", "killed", "killed"),
    ],
)
def test_a_mutant_has_survived_what_all_tests_let_live(first: str, then: str, outcome: str) -> None:
    mutant = outcomes(1, 0)[0].mutant
    assert join(Outcome(mutant, first, 1, 2), Outcome(mutant, then, 3, 3)).outcome == outcome


def test_what_mypy_refuses_counts_as_killed_and_is_said() -> None:
    refused = [replace(one, by_types=True) for one in outcomes(3, 0)]

    assert (
        "10 mutants ran: 9 killed (90 %), 3 of them by mypy alone (60 % by tests alone), 1 survived"
        in report([*outcomes(6, 1), *refused])[0]
    )


def test_a_run_says_that_it_judged_nothing() -> None:
    mutant = outcomes(1, 0)[0].mutant
    for outcome in (Outcome(mutant), Outcome(mutant, "undecided", 1, 1)):
        text, code = report([outcome])
        assert code == 0
        assert "0 mutants ran: 0 killed, 0 survived" in text
        assert "nothing was judged: give it more time (--seconds), or fewer mutants (--count)" in text
    assert report([])[0] == "no mutants: nothing was judged, for these lines have none"


def test_every_accepted_mutant_is_one_of_the_present_sources_and_has_a_reason() -> None:
    accepted = read_accepted()
    texts = {one.file: (SOURCES / one.file).read_text() for one in accepted}
    present = {mutant.key for path, text in texts.items() for mutant in list_mutants(path, text)}
    assert [one.key for one in accepted if one.key not in present] == []
    assert all(len(one.because) > 10 for one in accepted)


def test_the_tests_nearest_to_a_file_are_asked_first_and_stories_one_by_one() -> None:
    stages = list_stages("clusters", ["clusters/plan/endpoint.py"])

    assert "tests/unit/clusters/test_endpoint.py" in stages[0]
    assert "tests/unit/clusters/test_versions.py" not in stages[0]
    assert stages[1] == ["tests/unit/clusters"]
    assert all(len(stage) == 1 for stage in stages[2:])
    assert {test for stage in stages[2:] for test in stage} == set(TESTS["clusters"][1])


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("clusters/plan/endpoint.py", ["tests/test_endpoint_pools.py", "tests/test_endpoints.py", "tests/test_it.py"]),
        ("clusters/state.py", []),
    ],
)  # fmt: skip
def test_near_are_tests_that_are_named_after_a_file_or_import_it_where_few_do(
    path: str, near: list[str]
) -> None:
    texts = {
        "tests/test_endpoints.py": "",
        "tests/test_endpoint_pools.py": "",
        "tests/test_it.py": "from windrow.clusters.plan.endpoint import join_url",
        **{f"tests/test_{place}.py": "from windrow.clusters.state import ClusterState" for place in range(7)},
    }
    assert sorted(list_near(path, texts)) == near


def test_every_file_and_folder_that_is_named_is_there() -> None:
    stages = [path for stages in TESTS.values() for stage in stages for path in stage]
    assert [path for path in stages if not (ROOT / path).exists()] == []
    assert [path for path in STRICT if not (SOURCES / path).is_file()] == []
    assert [pattern for pattern in CORE if not list(SOURCES.glob(pattern))] == []
    assert all(map(is_core, STRICT))
    assert all(any(SOURCES.glob(pattern)) for pattern in (*UNSAFE, *IN_ANOTHER_PROCESS))


def test_no_mutant_is_run_of_what_kills_processes_that_it_finds() -> None:
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "pidfd_send_signal" in path.read_text()
    }

    assert found == set(UNSAFE)
    assert not any(map(is_asked, UNSAFE))
