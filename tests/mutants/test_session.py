"""What the runner of mutants stands on: probes before statements, forks that end, a draw that stays."""

from __future__ import annotations

import ast
import builtins
import os
import signal
from itertools import count

import pytest
from tests.mutants.__main__ import draw
from tests.mutants.forks import FAILED, Forks
from tests.mutants.loading import PROBE, Site, add_probes
from tests.mutants.operators import list_mutants

SOURCE = '''\
LIMIT = 3


class Gate:
    def is_open(self, members, limit=LIMIT):
        """Whether one more may come."""
        def is_full():
            return len(members) == limit
        if not members:
            return True
        elif members == "ab":
            return False
        try:
            return members[9] == "x"
        except IndexError:
            return not is_full()
        finally:
            members += "z"
'''


def find_reached(call: str) -> set[str]:
    """The statements, by their first words, that have a mutant and are reached by `call`."""
    mutants = [one for one in list_mutants("core/holed.py", SOURCE) if one.function]
    sites = [Site(number, one.path, one.function, one.start, one.end) for number, one in enumerate(mutants)]
    assert {one.function for one in mutants} == {"Gate.is_open"}
    names: dict[str, object] = {}
    exec(compile(add_probes(SOURCE, "Gate.is_open", sites), "holed", "exec"), names)
    reached: set[int] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, PROBE, reached.add, raising=False)
        eval(call, names)
    return {mutants[number].statement.partition(" z")[0] for number in reached}


@pytest.mark.parametrize(
    ("call", "reached"),
    [
        ("Gate().is_open('')", {"if not members", "return True"}),
        ("Gate().is_open('ab')", {"if not members", 'elif members == "ab"', "return False"}),
        (
            "Gate().is_open('abcdefghix')",
            {"if not members", 'elif members == "ab"', 'return members[9] == "x"', 'members += "z"'},
        ),
        (
            "Gate().is_open('abc')",
            {
                "if not members",
                'elif members == "ab"',
                'return members[9] == "x"',
                "return not is_full()",
                "return len(members) == limit",
                'members += "z"',
            },
        ),
    ],
)
def test_a_probe_notes_each_statement_that_is_reached(call: str, reached: set[str]) -> None:
    assert find_reached(call) == reached


def test_what_runs_at_import_is_reached_by_each_function_of_its_file() -> None:
    tree = add_probes(SOURCE, "Gate.is_open", [Site(7, "core/holed.py", "", 8, 9)])
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    assert ast.unparse(function.body[0]) == f"{PROBE}(7)"


def test_a_fork_ends_with_its_code_or_as_failed() -> None:
    def kill() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    for work, code in ((lambda: 0, 0), (lambda: 3, 3), (kill, FAILED)):
        codes: list[int] = []
        forks = Forks()
        forks.begin(work, codes.append)
        while len(forks):
            forks.wait(float("inf"))
        assert codes == [code]


@pytest.mark.parametrize(("send", "target"), [("kill", -1), ("killpg", 1), ("killpg", 0), ("kill", 1)])
def test_a_fork_that_would_signal_every_process_fails_instead(send: str, target: int) -> None:
    """Once a mutant of child.py ended every process of the machine. Signal 0 harms none."""

    def work() -> int:
        getattr(os, send)(target, 0)
        return 0

    codes: list[int] = []
    forks = Forks()
    forks.begin(work, codes.append)
    while len(forks):
        forks.wait(float("inf"))
    assert codes == [FAILED]


def test_a_fork_that_waits_for_ever_is_ended() -> None:
    codes: list[int] = []
    times = count(0, 31)
    forks = Forks(lambda: next(times))

    def wait() -> int:
        signal.pause()
        return 0

    forks.begin(wait, codes.append)
    while len(forks):
        forks.wait(0)
    assert codes == [FAILED]


def test_another_mutant_more_leaves_the_draw_of_the_others_as_it_was() -> None:
    mutants = list_mutants("core/holed.py", SOURCE)
    drawn = draw(mutants, 5, seed=1)
    assert draw(mutants[::-1], 5, seed=1) == drawn
    assert draw([one for one in mutants if one != drawn[2]], 4, seed=1) == [*drawn[:2], *drawn[3:]]
    assert draw(mutants, 5, seed=2) != drawn
